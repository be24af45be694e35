"""A contender under observation: its batches as they come, the memory of all its processes, and its time limit.

Whoever looks must not be in the way. What is resident is looked at often; what the processes hold together is found out
only when that has grown, which is while a contender warms up and hardly ever afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semistream.bench.child_process import ChildProcess
from semistream.bench.processes import can_be_seen, held_bytes, resident_bytes, tree_of
from semistream.bench.results import Batch, Status
from semistream.clock import Clock

LOOK_EVERY_S = 0.5
"""Seconds between two looks at memory."""

GROWN = 1.01
"""By how much what is resident must exceed the most so far: about what a peak may be too low by."""


class Watch:
    """Takes in what a child reports, until it ends or its time is over."""

    def __init__(self, batches_total: int, seconds_max: float, clock: Clock) -> None:
        self.batches: list[Batch] = []
        self.peak_bytes: int | None = None
        """The most that all its processes held together; None where the system does not show it."""
        self._resident_bytes_max = 0
        self._batches_total = batches_total
        self._seconds_max = seconds_max
        self._clock = clock

    def follow(self, child: ChildProcess, on_report: Callable[[dict[str, Any]], None]) -> tuple[Status, str]:
        """Return how it ended, and what there is to say about that; each report is passed on when it was taken in."""
        begun_s = looked_s = self._clock.now_s()
        for told in child.reports(LOOK_EVERY_S):
            now_s = self._clock.now_s()
            if told is not None:
                if "seconds" in told:
                    self.batches.append(Batch(told["seconds"], told["rows"], told["checksum"]))
                on_report(told)
            if now_s - looked_s >= LOOK_EVERY_S:
                self._look(child)
                looked_s = now_s
            if now_s - begun_s > self._seconds_max:
                return "stopped", f"time limit of {self._seconds_max:g} s after {len(self.batches)} batches"
        failure = child.failure()
        if failure is None and len(self.batches) < self._batches_total:
            failure = f"ended after {len(self.batches)} of {self._batches_total} batches"
        return ("ok", "") if failure is None else ("died", failure)

    def _look(self, child: ChildProcess) -> None:
        if not can_be_seen():
            return
        pids = tree_of(child.pid)
        resident = sum(map(resident_bytes, pids))
        if resident > self._resident_bytes_max * GROWN:
            self._resident_bytes_max = resident
            self.peak_bytes = max(sum(map(held_bytes, pids)), self.peak_bytes or 0)
