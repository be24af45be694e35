"""Time as a parameter.

Nothing outside this file asks the machine for the time; whatever needs it is handed a `Clock`. So a test, a metered
disk or the laboratory can decide what a second is.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Something that knows how many seconds have passed."""

    def now_s(self) -> float:
        """Seconds since an arbitrary but fixed moment; never goes back."""
        ...


class RealClock:
    """The machine's monotonic clock."""

    def now_s(self) -> float:
        """Seconds since an arbitrary but fixed moment."""
        return time.perf_counter()


class CpuClock:
    """Processor time of this process: what other processes take of a busy machine is not in it."""

    def now_s(self) -> float:
        """Seconds that a processor has worked for this process."""
        return time.process_time()


class VirtualClock:
    """A clock that moves only when told to.

    Example:
        >>> clock = VirtualClock()
        >>> clock.advance(0.015)
        >>> clock.now_s()
        0.015
    """

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        """Seconds advanced so far."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass."""
        assert seconds >= 0, "a clock never goes back"
        self._now_s += seconds


def wall_time_s() -> float:
    """Seconds since the epoch, for time stamps on files; never for measuring."""
    return time.time()
