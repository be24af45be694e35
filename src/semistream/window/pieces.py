"""What goes into a window join and what comes out of it: numbers and codes, never payload.

Whoever holds the rows themselves numbers them as the join does: the rows of each side from 0 on, in the order of the
one sequence, rows with null keys included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.structures.window_state import Bytes, Int64s

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

NO_ROWS: Int64s = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """A piece of the one sequence of both streams."""

    side: npt.NDArray[np.int8]
    """0 for a row of A, 1 for a row of B."""
    code: Int64s
    """By which the other side will find the row."""
    low: Int64s
    """The row's partners have codes from `low` ..."""
    high: Int64s
    """... to `high`, both inclusive; none where `low` is above `high`."""
    valid: Flags
    """False where a null in the key rules out any partner."""
    time_us: Int64s
    """Microseconds; what they count from is the caller's, as long as it is one thing."""

    def __post_init__(self) -> None:
        columns = (self.side, self.code, self.low, self.high, self.valid, self.time_us)
        assert len({len(column) for column in columns}) == 1, "the columns of arrivals have different lengths"

    def __len__(self) -> int:
        return len(self.side)

    def columns(self) -> tuple[npt.NDArray[Any], ...]:
        """The columns as the compiled code takes them."""
        return (
            np.ascontiguousarray(self.side, np.int8),
            *(np.ascontiguousarray(column, np.int64) for column in (self.code, self.low, self.high)),
            np.ascontiguousarray(self.valid, np.bool_).view(np.uint8),
            np.ascontiguousarray(self.time_us, np.int64),
        )


@dataclass(frozen=True, slots=True)
class Pairs:
    """What a piece of work yields."""

    row_a: Int64s
    row_b: Int64s
    a_is_later: Flags
    """Which of the two arrived later, and so probed."""
    probe_share: Floats | None = None
    """The probability with which the later row probed; None while nothing is shed."""
    held_share: Floats | None = None
    """The probability with which the earlier row was held."""
    unmatched_a: Int64s = field(default_factory=lambda: NO_ROWS)
    """Left joins only: rows of A that have left without a partner."""

    def __len__(self) -> int:
        return len(self.row_a)

    @property
    def weight(self) -> Floats | None:
        """How many pairs of the full join each stands for; None while nothing is shed."""
        if self.probe_share is None or self.held_share is None:
            return None
        weights: Floats = 1.0 / (self.probe_share * self.held_share)
        return weights


@dataclass(frozen=True, slots=True)
class HeldRows:
    """The rows in a window, oldest first: enough to build it again."""

    code: Int64s
    row: Int64s
    """Numbers on their side, ascending."""
    mark: Int64s
    """Row number, number in the sequence of both streams, or time in microseconds, by the kind of window."""
    tag: Bytes
    """Left joins: 1 where a partner was found. Otherwise the level of the share it is held with, 0 for all rows."""

    def __len__(self) -> int:
        return len(self.row)

    def pieces(self, rows_max: int) -> Iterator[HeldRows]:
        """The same rows, so many at a time; nothing is copied."""
        for begin in range(0, len(self), rows_max):
            own = slice(begin, begin + rows_max)
            yield HeldRows(self.code[own], self.row[own], self.mark[own], self.tag[own])


@dataclass(frozen=True, slots=True)
class SideCounts:
    """What has happened to the rows of one side."""

    arrivals: int
    pairs: int
    """Pairs in which a row of this side was the later one."""
    probes: int
    probes_skipped: int
    rows_shed: int
    """Rows that were not held, or no longer, because memory was short."""
    rows_late: int
    """Rows that were out of their window when they arrived; they probe but are not held."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of a join between two pieces; the first of every pair belongs to A."""

    counts: tuple[SideCounts, SideCounts]
    arrived: int
    clock_us: int
    levels: tuple[int, int]
    """Levels of the shares with which new rows are held."""
    held: tuple[HeldRows, HeldRows]
