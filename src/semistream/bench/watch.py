"""A contender under observation: its batches as they come, the memory of all its processes, and its time limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semistream.bench.child_process import ChildProcess
from semistream.bench.processes import held_by_tree
from semistream.bench.results import Batch, Status
from semistream.clock import Clock

LOOK_EVERY_S = 0.5
"""Seconds between two looks at memory: to add up the pages of a process takes milliseconds of its time."""


class Watch:
    """Takes in what a child reports, until it ends or its time is over."""

    def __init__(self, batches_total: int, seconds_max: float, clock: Clock) -> None:
        self.batches: list[Batch] = []
        self.peak_bytes: int | None = None
        """The most that all its processes held together; None where the system does not show it."""
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
        held = held_by_tree(child.pid)
        if held is not None:
            self.peak_bytes = max(held, self.peak_bytes or 0)
