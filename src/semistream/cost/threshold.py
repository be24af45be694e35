"""Where a threshold rests that rises when too much of a cache is replaced, and falls when nothing is.

The rule is CACHEJOIN's: a round is as many iterations as R has pages. When the cache is full, a *part* of it makes room
at once. If the parts of a round are more than half of what is held, the threshold rises by one; if there was none, it
falls by one. So it walks, and what it does in the long run follows from how many keys come in in a round under each
threshold, a normal number X of some mean and deviation, in parts.

A round begins anywhere between two parts, so with X parts of keys it sees the whole number below X or the one above,
the latter as often as X is beyond the former. More than n parts are replaced with a probability of X - n, within 0 and
1, and none with 1 - X; both on average over X. The walk goes up from t as often as down from t + 1:

    weight(t + 1) / weight(t) = rises(t) / falls(t + 1)

More come in under a lower threshold, so this quotient falls with t: weights have one peak, the least t from which the
threshold rises more seldom than it falls back.

The long run can be too long. A small cache lets in nearly as many keys under 12 as under 11, and would need thousands
of rounds to find the peak. The threshold comes from below; where it rises less than once in `ROUNDS_WAITED`, it stays.

Assumes that rounds are independent. They are not quite: a round just after a step is still like the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

THRESHOLD_MAX = 1024
"""Where the search for the threshold ends; a small cache beside a long queue comes to rest at some ten."""

ROUNDS_WAITED = 40
"""A step up that takes longer is not waited for: R has been read as often as that, and no stream stays the same."""

LEAST_WEIGHT = 0.01
"""Of the peak; thresholds with less are left out."""


@dataclass(frozen=True)
class Round:
    """Keys that come in in a round, in parts of the cache that make room at once."""

    mean: float
    deviation: float
    parts_max: int
    """The most parts after which the threshold stays where it is."""

    @property
    def rises(self) -> float:
        """The probability that the threshold rises after a round."""
        return self._beyond(self.parts_max) - self._beyond(self.parts_max + 1)

    @property
    def falls(self) -> float:
        """The probability that it falls."""
        # By how much X is below a number: by how much it is beyond it, less what its mean is beyond it.
        below_1, below_0 = (self._beyond(parts) + parts - self.mean for parts in (1.0, 0.0))
        return min(1.0, max(0.0, below_1 - below_0))

    def _beyond(self, parts: float) -> float:
        """By how much the keys exceed so many parts, on average: 0 where they do not."""
        if self.deviation <= 0:
            return max(0.0, self.mean - parts)
        z = (self.mean - parts) / self.deviation
        density = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
        return self.deviation * (density + z * math.erfc(-z / math.sqrt(2.0)) / 2.0)


def weights(round_at: Callable[[int], Round]) -> dict[int, float]:
    """The share of rounds under each threshold, in the long run; `round_at` says what a round is like under one."""
    peak = _peak(round_at)
    found = {peak: 1.0}
    at, weight = peak, 1.0
    while at > 1 and (weight := weight * round_at(at).falls / round_at(at - 1).rises) >= LEAST_WEIGHT:
        at -= 1
        found[at] = weight
    at, weight = peak, 1.0
    while _rises(round_at(at)) and (weight := weight * round_at(at).rises / round_at(at + 1).falls) >= LEAST_WEIGHT:
        at += 1
        found[at] = weight
    total = sum(found.values())
    return {threshold: weight / total for threshold, weight in sorted(found.items())}


def _peak(round_at: Callable[[int], Round]) -> int:
    """The least threshold from which it does not rise more often than it falls back."""

    def rests(threshold: int) -> bool:
        now = round_at(threshold)
        return not _rises(now) or now.rises <= round_at(threshold + 1).falls

    low, high = 0, 1
    while high < THRESHOLD_MAX and not rests(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if rests(middle):
            high = middle
        else:
            low = middle
    return high


def _rises(now: Round) -> bool:
    """Whether a step up is waited for."""
    return ROUNDS_WAITED * now.rises >= 1.0
