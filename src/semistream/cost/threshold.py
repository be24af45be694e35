"""Where a threshold rests that rises when all of a cache is replaced in some rounds, and falls when nothing is.

The rule is CACHEJOIN's: a round is as many iterations as R has pages, and a *span* some rounds. When the cache is full,
a *part* of it makes room at once. If the parts of a span are more than what is held, the threshold rises by one; if
there was none, it falls by one. So where it rests follows from how many keys come in in a span under each threshold, a
number X, in parts.

A span begins anywhere between two parts, so with X parts of keys it sees the whole number below X or the one above, the
latter as often as X is beyond the former: more than n parts are replaced with a probability of X - n, within 0 and 1,
and none with 1 - X. More come in under a lower threshold, so the threshold rises up to the least from which it does not
rise, and rests there, unless so little comes in that it falls. Then it is there and at the one below in turn, and goes
up as often as down:

    weight(t) / weight(t - 1) = rises(t - 1) / falls(t)

A whole cache beside one part of it is sixteen to one, and by one step of the threshold X falls by less than that, as a
rule: only where hardly any key is more popular than others there are two.

Assumes that spans are alike. The first after a step is still a little like the one before it.
"""

from __future__ import annotations

from collections.abc import Callable

THRESHOLD_MAX = 1024
"""Where the search for the threshold ends; a small cache beside a long queue comes to rest at some ten."""


def weights(parts_at: Callable[[int], float], parts_max: int) -> dict[int, float]:
    """The share of the time under each threshold.

    `parts_at` says how many parts of keys come in in a span under a threshold, `parts_max` after how many it stays.
    """
    highest = _least_that_does_not_rise(parts_at, parts_max)
    falls = max(0.0, 1.0 - parts_at(highest))
    if highest == 1 or falls == 0.0:
        return {highest: 1.0}
    rises = min(1.0, parts_at(highest - 1) - parts_max)
    return {highest - 1: falls / (rises + falls), highest: rises / (rises + falls)}


def _least_that_does_not_rise(parts_at: Callable[[int], float], parts_max: int) -> int:
    low, high = 0, 1
    while high < THRESHOLD_MAX and parts_at(high) > parts_max:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if parts_at(middle) > parts_max:
            low = middle
        else:
            high = middle
    return high
