"""W-TinyLFU: a newcomer may stay if it was asked for more often than the one that would have to leave.

Paper: Einziger, Friedman, Manes: TinyLFU, a highly efficient cache admission policy, ACM Transactions on Storage 2017.

A key enters a window, an LRU list of a hundredth of the room. Who leaves the window is compared with the first that
would leave the main part; a sketch of counters (of four bits, halved after ten times as many requests as there is room)
says who of the two was asked for more often. The main part is a segmented LRU list: a fifth is on probation, and who is
asked for there moves to the protected four fifths.

The window keeps its size: the hill climbing that Caffeine added later is not part of the paper.
Memory beside the rows: the sketch, eight counters of half a byte a key.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

WINDOW_SHARE, PROTECTED_SHARE = 0.01, 0.8
REQUESTS_PER_KEY = 10
"""Requests for each key there is room for, after which all counters are halved."""

COUNT_MAX = 15
COUNTERS_PER_KEY = 8
ROWS = 4
MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
"""Odd numbers without a pattern, one for each row of the sketch."""

_List = OrderedDict[int, None]


class CountSketch:
    """How often a key was asked for, about: the least of four small counters.

    Example:
        >>> sketch = CountSketch(keys=100)
        >>> for _ in range(3): sketch.add(7)
        >>> sketch.estimate(7)
        3
    """

    def __init__(self, keys: int) -> None:
        self._bits = max(4, (COUNTERS_PER_KEY * keys // ROWS - 1).bit_length())
        self._rows = [bytearray(1 << self._bits) for _ in range(ROWS)]
        self._requests = 0
        self._requests_max = REQUESTS_PER_KEY * keys

    @staticmethod
    def bytes_for(keys: int) -> float:
        """What it takes where a counter takes half a byte."""
        return COUNTERS_PER_KEY * keys / 2

    def add(self, key: int) -> None:
        """Count a request; only the least counters rise, which keeps the others truer."""
        places = self._places(key)
        least = min(row[place] for row, place in zip(self._rows, places, strict=True))
        if least < COUNT_MAX:
            for row, place in zip(self._rows, places, strict=True):
                if row[place] == least:
                    row[place] = least + 1
        self._requests += 1
        if self._requests >= self._requests_max:
            self._halve()

    def estimate(self, key: int) -> int:
        """At least how often the key was asked for lately, up to `COUNT_MAX`."""
        return min(row[place] for row, place in zip(self._rows, self._places(key), strict=True))

    def _places(self, key: int) -> list[int]:
        shift = 64 - self._bits
        return [((key + 1) * multiplier & (2**64 - 1)) >> shift for multiplier in MULTIPLIERS]

    def _halve(self) -> None:
        self._rows = [bytearray(np.frombuffer(row, np.uint8) >> 1) for row in self._rows]
        self._requests //= 2


class WTinyLfu:
    """A window, a probation and a protected list, and the sketch at the door.

    Example:
        >>> cache = WTinyLfu(keys_max=100)
        >>> [cache.ask(key) for key in (1, 2, 1)]
        [False, False, True]
    """

    def __init__(self, keys_max: int) -> None:
        self._window_max = max(1, int(keys_max * WINDOW_SHARE))
        self._main_max = keys_max - self._window_max
        self._protected_max = int(self._main_max * PROTECTED_SHARE)
        self._window: _List = OrderedDict()
        self._probation: _List = OrderedDict()
        self._protected: _List = OrderedDict()
        self._sketch = CountSketch(keys_max)

    def __len__(self) -> int:
        return len(self._window) + len(self._probation) + len(self._protected)

    def ask(self, key: int) -> bool:
        """Return whether the key is held, and let it into the window."""
        self._sketch.add(key)
        if key in self._window:
            self._window.move_to_end(key)
        elif key in self._protected:
            self._protected.move_to_end(key)
        elif key in self._probation:
            self._promote(key)
        else:
            self._let_in(key)
            return False
        return True

    def _promote(self, key: int) -> None:
        del self._probation[key]
        self._protected[key] = None
        if len(self._protected) > self._protected_max:
            demoted, _ = self._protected.popitem(last=False)
            self._probation[demoted] = None

    def _let_in(self, key: int) -> None:
        self._window[key] = None
        if len(self._window) <= self._window_max:
            return
        candidate, _ = self._window.popitem(last=False)
        if len(self._probation) + len(self._protected) < self._main_max:
            self._probation[candidate] = None
            return
        held = self._probation or self._protected
        if not held:
            return
        victim = next(iter(held))
        if self._sketch.estimate(candidate) > self._sketch.estimate(victim):
            del held[victim]
            self._probation[candidate] = None
