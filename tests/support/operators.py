"""Toy operators, to see what the driver makes of rows that wait and of operators that are wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from semistream.budget import MIB
from semistream.joins.base import NO_NUMBERS, Joined, Numbers, SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.matching import PairCursor, codes_of, ranges_of


class WaitingJoin(SemiStreamJoin):
    """A toy: rows wait for some steps, the youngest is answered first, and one step before it is finished."""

    output_bytes_max = MIB

    def __init__(self, master: pa.RecordBatch, capacity: int, patience: int) -> None:
        super().__init__()
        self._master = master
        self._capacity = capacity
        self._patience = patience
        self._waiting: list[tuple[int, int]] = []
        self._answered: list[int] = []
        self._steps = 0

    @property
    def waiting_rows(self) -> int:
        return len(self._waiting) + len(self._answered)

    def admit(self, rows: StreamRows) -> int:
        taken = rows.first(self._capacity - self.waiting_rows)
        self._waiting += zip(taken.numbers.tolist(), taken.codes.tolist(), strict=True)
        return len(taken)

    def step(self) -> StepOutput:
        self._steps += 1
        finished = np.array(self._answered, np.int64)
        self._answered = []
        full = self.waiting_rows == self._capacity
        if not self._waiting or (self._steps % self._patience and not full):
            return StepOutput((), finished)
        number, code = self._waiting.pop()
        self._answered = [number]
        first, count = ranges_of(np.array([code]), codes_of(self._master))
        return StepOutput((PairCursor(self._master, np.array([number]), first, count).next(1000),), finished)


class FaultyJoin(SemiStreamJoin):
    """Answers everything in one step per row, and then changes what it says of the rows it has finished."""

    output_bytes_max = MIB

    def __init__(self, master: pa.RecordBatch, fault: Callable[[Numbers, int], Numbers]) -> None:
        super().__init__()
        self._master = master
        self._rows = StreamRows(NO_NUMBERS, NO_NUMBERS)
        self._fault = fault
        self._steps = 0

    @property
    def waiting_rows(self) -> int:
        return len(self._rows)

    def admit(self, rows: StreamRows) -> int:
        self._rows = StreamRows(
            np.concatenate([self._rows.numbers, rows.numbers]), np.concatenate([self._rows.codes, rows.codes])
        )
        return len(rows)

    def step(self) -> StepOutput:
        done, rest = self._rows.first(2), StreamRows(self._rows.numbers[2:], self._rows.codes[2:])
        self._rows = rest
        self._steps += 1
        first, count = ranges_of(done.codes, codes_of(self._master))
        joined: Joined = PairCursor(self._master, done.numbers, first, count).next(1000)
        return StepOutput((joined,), self._fault(done.numbers, self._steps))
