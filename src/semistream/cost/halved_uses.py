"""How long MOIJ holds a key: until its uses, of which half are forgotten now and then, are fewer than the border.

A key is let in when clearly more rows wait for it than the border B, and brings them as uses. Its uses are counted over
p passages of the queue, from `PASSAGES_MIN` to `PASSAGES_MAX`, when uses and p are halved; it goes at the first test at
which its uses are less than B p. A key that n rows ask for in a passage gets a Poisson number of uses between two
tests, so its uses are a Markov chain with one absorbing end, and the time to that end obeys

    v_k(u) = 1/tests + sum over j of Poisson(j; n/tests) v_k+1(u + j) [u + j >= B p_k+1]       v_end(u) = v_0(u / 2)

with tests per passage and k counting the tests from one halving to the next. Applied again and again, what a halving
adds to v becomes a geometric series; a few terms and its quotient are enough, for who stays long as for who goes at
once. A key comes in at any moment between two halvings.

Nearly all depends on (n - B) / sqrt(B), by how many deviations of a count a key is from the border. So v is found for
borders up to `BORDER_MAX`, and others are moved to there: as many states, however large rows of R are.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from semistream.cost.poisson import LEAST_CHANCE, poisson_moves
from semistream.cost.zipf import Floats

CERTAINTY = 3.0
"""Standard deviations of a count by which it must exceed the border for a key to come in."""

PASSAGES_MIN, PASSAGES_MAX = 4, 8
"""Passages of the queue over which uses are counted: from the one number to the other, when they are halved."""

TESTS_MAX = 24
"""From one halving to the next; more find nothing that these do not."""

BORDER_MAX = 6.0
"""A border from which on counts are nearly normal."""

HALVINGS = 16
"""After which each halving adds the same part of what the one before it did."""

RATES = 48
"""Rates of asking for which v is found; between them its logarithm is nearly straight."""

DEVIATIONS_MAX = 6.0
"""Above the border, beyond which a key stays for ever."""

LEAST_LOSS = 1e-9
"""Of the quotient to 1, because its digits end; who stays for so many halvings stays for ever."""


def clearly_more(border: float) -> int:
    """The least number of waiting rows with which a key comes in."""
    return math.floor(border + CERTAINTY * math.sqrt(border)) + 1


def passages_held(asked_per_passage: Floats, border: float, tests_per_passage: float) -> Floats:
    """How many passages keys stay that so many rows ask for in a passage."""
    tests = min(max(1, round(tests_per_passage * (PASSAGES_MAX - PASSAGES_MIN))), TESTS_MAX)
    near = min(border, BORDER_MAX)
    asked = near + (asked_per_passage - border) * math.sqrt(near / border)
    return np.exp(np.interp(asked, _rates(near), _log_passages(near, tests)))


def _rates(border: float) -> Floats:
    return np.linspace(0.0, border + DEVIATIONS_MAX * math.sqrt(border), RATES)


@lru_cache(maxsize=64)
def _log_passages(border: float, tests: int) -> Floats:
    """The logarithm of v for each of the `_rates`, for a key that has just come in."""
    uses = np.arange(PASSAGES_MAX * clearly_more(border) + 1)
    step = (PASSAGES_MAX - PASSAGES_MIN) / tests
    counted = PASSAGES_MIN + step * np.arange(tests + 1)
    brought = (clearly_more(border) * counted).astype(np.int64)
    moves = poisson_moves(_rates(border) * step, len(uses))
    v = np.zeros((RATES, len(uses)))
    of_newcomers = np.zeros((HALVINGS, RATES))
    for halving in range(HALVINGS):
        v = v[:, uses // 2]
        for test in range(tests - 1, -1, -1):
            # Tests come at any moment of a step; with one moment for all, many keys would stand just at the border.
            stays = np.clip((uses / border - counted[test + 1]) / step + 0.5, 0.0, 1.0)
            v = step + np.einsum("rij,rj->ri", moves, stays * v)
            of_newcomers[halving] += v[:, brought[test]] / tests
    *_, before, last = np.diff(of_newcomers, axis=0)
    quotient = last / np.maximum(before, LEAST_CHANCE)
    rest = last * quotient / np.maximum(1.0 - quotient, LEAST_LOSS)
    logarithm: Floats = np.log(of_newcomers[-1] + rest)
    return logarithm
