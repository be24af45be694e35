"""Where a threshold rests that rises when all of a cache is replaced in some rounds, and falls when nothing is.

The rule is CACHEJOIN's: a round is as many iterations as R has pages, and a *span* some rounds. When the cache is full,
a *part* of it makes room at once. If the parts of a span are more than what is held, the threshold rises by one; if
there was none, it falls by one. So where it rests follows from how many keys come in in a span under each threshold, a
number of parts.

Keys come in on their own, so theirs is a Poisson number: X parts on average, give or take sqrt(X / keys of a part). And
a span begins anywhere between two parts, so with x parts of keys it sees the whole number below x or the one above, the
latter as often as x is beyond the former: more than n parts are replaced with a probability of x - n, within 0 and 1,
and none with 1 - x. More come in under a lower threshold, so the threshold rises up to the least from which it does not
rise, and rests there, unless so little comes in that it falls. Then it is there and at the one below in turn, and goes
up as often as down:

    weight(t) / weight(t - 1) = rises(t - 1) / falls(t)

A whole cache beside one part of it is sixteen to one, and by one step of the threshold X falls by less than that, as a
rule: only where hardly any key is more popular than others there are two. For the same reason one busy span is enough
to rise for good where X is just below n, and what happens once in some hundred spans is taken to have happened.

What is held follows the threshold slowly. After a fall as much as all of it is replaced in one busy span, and the
threshold rises again; above, less than two parts come anew in a span, so that it takes dozens of rounds until what the
higher threshold lets in is held, and another fall may come before. Keys go whoever they are, so what was held is less
by a factor of e each time that as much as all was replaced (`what_is_held`).

Assumes that spans are alike. The first after a step is still a little like the one before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from semistream.cost.poisson import short_of

THRESHOLD_MAX = 1024
"""Where the search for the threshold ends; a small cache beside a long queue comes to rest at some ten."""

LIKELY = 2
"""Where the search begins. Hardly any cache rests at one, and to ask takes time."""

LEAST_CHANCE = 1 / 400
"""What happens in fewer spans than that does not happen: no stream is the same for longer."""

LEAST_FALLS = LEAST_CHANCE / 10
"""The same for falls, of which each is felt for a long time."""


def weights(parts_at: Callable[[int], float], parts_max: int, part_keys: float) -> dict[int, float]:
    """The share of the time under each threshold.

    `parts_at` says how many parts of keys come in in a span under a threshold, `parts_max` after how many it stays, and
    `part_keys` how many keys are a part.
    """

    def rises(threshold: int) -> float:
        chance = _between(parts_at(threshold), parts_max, part_keys)
        return chance if chance >= LEAST_CHANCE else 0.0

    highest = _least_that_does_not_rise(rises)
    falls = 1.0 - _between(parts_at(highest), 0, part_keys)
    if highest == 1 or falls < LEAST_FALLS:
        return {highest: 1.0}
    below = rises(highest - 1)
    return {highest - 1: falls / (below + falls), highest: below / (below + falls)}


def what_is_held(
    resting: Mapping[int, float], parts_at: Callable[[int], float], parts_max: int, part_keys: float, span_rounds: int
) -> dict[int, float]:
    """The share of the time for which a cache that rests so holds what each threshold lets in.

    A span is looked at in each round, and is so many of them long.
    """
    if len(resting) == 1:
        return dict(resting)
    below, highest = sorted(resting)
    falls = 1.0 - _between(parts_at(highest), 0, part_keys)
    rises = _between(parts_at(below), parts_max, part_keys)
    above_rounds, below_rounds = span_rounds - 1 + 1.0 / falls, span_rounds - 1 + 1.0 / rises
    renewed = parts_at(highest) / (parts_max * span_rounds)
    replaced = below_rounds * parts_at(below) / (parts_max * span_rounds)
    kept = math.exp(-replaced)
    # Between two falls it tends to all, and from there to what was kept.
    above = renewed / (renewed + falls * (1.0 - kept))
    of_highest = above * (above_rounds + below_rounds * (1.0 - kept) / replaced) / (above_rounds + below_rounds)
    return {below: 1.0 - of_highest, highest: of_highest}


def _between(parts: float, begin: int, part_keys: float) -> float:
    """How much of the part from `begin` to the next is filled on average."""
    keys = np.array([parts * part_keys])
    lacking = short_of(keys, begin * part_keys) - short_of(keys, (begin + 1) * part_keys)
    return 1.0 + float(lacking[0]) / part_keys


def _least_that_does_not_rise(rises: Callable[[int], float]) -> int:
    low, high = 0, LIKELY
    while high < THRESHOLD_MAX and rises(high) > 0.0:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if rises(middle) > 0.0:
            low = middle
        else:
            high = middle
    return high
