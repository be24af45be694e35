"""A join against the clock: rows arrive, wait in the stream buffer, are admitted, and are finished.

The papers ask two questions that a join alone cannot answer. How many rows a second can it serve (the service rate μ),
and does it keep up with a stream that brings λ rows a second? Here rows carry their time of arrival, the stream buffer
holds those that have arrived and were not admitted, and each row gets a *waiting time* (arrival to admission) and a
*processing time* (admission to its last pair).

Time is the clock's. With a virtual clock the relation charges its reads (see `relations.metered`) and `charge` says
what the operations in between take; when there is nothing to do, time passes until the next arrival. Without `charge`
computing is free and only reading takes time.

The verdict λ ≤ μ looks at the later half of the rows, when caches have been filled: they were admitted in the time in
which they came, or they piled up in the stream buffer. Bursts that are admitted before the next one comes are no pile.

The stream buffer is the papers' one component that is not charged to the budget: they measure its rows, and so do we.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistream.clock import VirtualClock
from semistream.joins.base import JoinStats, Numbers, SemiStreamJoin, StepOutput, StreamRows

Seconds = npt.NDArray[np.float64]

Charge = Callable[[JoinStats, JoinStats], float]
"""Seconds of the operations that were counted between two states of the counters."""

LATER_MAX = 1.05
"""Rows that keep coming are admitted in at most so many times the time in which they came: the last may come with a
burst, and wait a little."""

OFFERED_ROWS = 65_536
"""Rows that are shown to the operator at once."""


@dataclass(frozen=True, slots=True)
class TimedRun:
    """What became of every row, in seconds, in the order of arrival."""

    arrived_s: Seconds
    admitted_s: Seconds
    finished_s: Seconds
    buffered_rows_max: int
    """The most rows that have waited in the stream buffer."""

    @property
    def waiting_s(self) -> Seconds:
        """Time in the stream buffer."""
        return self.admitted_s - self.arrived_s

    @property
    def processing_s(self) -> Seconds:
        """Time in the join."""
        return self.finished_s - self.admitted_s

    @property
    def arrival_rows_per_s(self) -> float:
        """λ: infinite where all rows arrive at once."""
        span_s = float(self.arrived_s[-1] - self.arrived_s[0]) if len(self.arrived_s) else 0.0
        return (len(self.arrived_s) - 1) / span_s if span_s > 0 else float("inf")

    @property
    def service_rows_per_s(self) -> float:
        """μ where rows pile up, and what comes where none do: rows of the later half that were admitted in a second."""
        rows, _, admitted_s = self._later_half()
        return rows / admitted_s if admitted_s > 0 else float("inf")

    @property
    def keeps_up(self) -> bool:
        """The verdict: λ ≤ μ."""
        _, came_s, admitted_s = self._later_half()
        return admitted_s <= LATER_MAX * came_s or admitted_s == 0

    def _later_half(self) -> tuple[int, float, float]:
        """How many rows came behind the first of the later half, in how much time, and the time of their admission."""
        rows = np.flatnonzero(np.isfinite(self.admitted_s))
        if not len(rows):
            return 0, 0.0, 0.0
        last = int(rows[-1])
        first = last // 2
        came_s, admitted_s = (float(times[last] - times[first]) for times in (self.arrived_s, self.admitted_s))
        return last - first, came_s, admitted_s

    def rate_between(self, first_row: int, end_row: int) -> float:
        """Rows a second between the moments when so many rows were finished."""
        ends_s = np.sort(self.finished_s)
        return float((end_row - first_row) / (ends_s[end_row - 1] - ends_s[first_row - 1]))


def run_timed(
    join: SemiStreamJoin,
    codes: Numbers,
    arrived_s: Seconds,
    clock: VirtualClock,
    charge: Charge | None = None,
    sink: Callable[[StepOutput], None] | None = None,
    window: tuple[int, int] | None = None,
) -> TimedRun:
    """Join rows with these codes, which arrive at these ascending times, and drain the join.

    Who looks only at what is finished between the admissions of two rows gives their numbers as a `window`. Then the
    run ends behind it, unless nothing was finished in it, and rows to which nothing happened until then have no times.
    """
    assert len(codes) == len(arrived_s), f"{len(codes)} codes were given with {len(arrived_s)} times of arrival"
    numbers = np.arange(len(codes), dtype=np.int64)
    admitted_s, finished_s = np.full(len(codes), np.nan), np.full(len(codes), np.nan)
    admitted = finished = buffered_max = 0
    is_over = False
    before = join.stats.copy()

    def let_time_pass() -> None:
        nonlocal before
        if charge is not None:
            clock.advance(charge(before, join.stats))
            before = join.stats.copy()

    while finished < len(codes) and not is_over:
        now_s = clock.now_s()
        arrived = int(np.searchsorted(arrived_s, now_s, side="right"))
        buffered_max = max(buffered_max, arrived - admitted)
        if admitted < arrived and join.wants_rows:
            offered = slice(admitted, min(arrived, admitted + OFFERED_ROWS))
            taken = join.admit(StreamRows(numbers[offered], codes[offered]))
            assert taken > 0, "the operator wants rows and takes none"
            admitted_s[admitted : admitted + taken] = now_s
            admitted += taken
            let_time_pass()
        elif join.waiting_rows or not join.wants_rows:
            step = join.step()
            let_time_pass()
            finished_s[step.finished] = clock.now_s()
            finished += len(step.finished)
            if sink is not None:
                sink(step)
            if window is not None and admitted > window[1] and clock.now_s() > admitted_s[window[1]]:
                is_over = _is_finished_between(finished_s, *admitted_s[list(window)])
                window = None
        else:
            clock.advance(float(arrived_s[admitted]) - now_s)
    return TimedRun(arrived_s, admitted_s, finished_s, buffered_max)


def _is_finished_between(finished_s: Seconds, begin_s: float, end_s: float) -> bool:
    """Whether any row was finished after the one moment and not after the other."""
    return bool(((finished_s > begin_s) & (finished_s <= end_s)).any())
