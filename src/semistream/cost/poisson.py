"""Poisson numbers: how many rows of a stream ask for a key while something else takes its time."""

from __future__ import annotations

import math

import numpy as np

from semistream.cost.zipf import Floats

LEAST_CHANCE = 1e-15
"""What is less probable never happens; keeps quotients finite."""

SURE_DEVIATIONS = 6.0
"""Standard deviations beyond which a Poisson number is not expected."""

EXACT_TERMS = 100
"""Poisson sums up to here are added up; further ones by a formula that is then exact to four digits."""


def at_least(mean: Floats, least: int) -> Floats:
    """The probability that a Poisson number of this mean is `least` or more."""
    if least <= 0:
        return np.ones_like(mean)
    if least > EXACT_TERMS:
        # Wilson and Hilferty: the cube root of a gamma variable is almost normal.
        deviation = 3.0 * math.sqrt(least) * (np.cbrt(mean / least) - 1.0 + 1.0 / (9.0 * least))
        return np.array([0.5 * math.erfc(-z / math.sqrt(2.0)) for z in deviation.tolist()])
    term = np.exp(-mean)
    below = term.copy()
    for number in range(1, least):
        term = term * mean / number
        below += term
    return np.clip(1.0 - below, 0.0, 1.0)


def at_least_in_a_part(mean: Floats, least: int) -> Floats:
    """The probability of `at_least` for a part of the time, any part from none to all being equally likely."""
    fewer = mean * (1.0 - at_least(mean, least - 1)) + least * at_least(mean, least)
    chance: Floats = np.clip(1.0 - fewer / np.maximum(mean, LEAST_CHANCE), 0.0, 1.0)
    return chance


def short_of(mean: Floats, limit: float) -> Floats:
    """By how much a Poisson number of this mean falls short of a limit on average, as if it were normal."""
    deviation = np.sqrt(np.maximum(mean, LEAST_CHANCE))
    z = (limit - mean) / deviation
    below = (z > 0.0).astype(np.float64)
    is_open = np.abs(z) < SURE_DEVIATIONS
    below[is_open] = [0.5 * math.erfc(one) for one in (-z[is_open] / math.sqrt(2.0)).tolist()]
    short: Floats = deviation * np.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi) + (limit - mean) * below
    return short


def poisson_moves(means: Floats, states: int) -> Floats:
    """For each mean, the probabilities of coming from one number of uses to another; the last is that or more."""
    chances = np.empty((len(means), states))
    chances[:, 0] = np.exp(-means)
    for number in range(1, states):
        chances[:, number] = chances[:, number - 1] * means / number
    more = np.arange(states) - np.arange(states)[:, None]
    moves = np.where(more >= 0, chances[:, np.abs(more)], 0.0)
    moves[:, :, -1] += 1.0 - moves.sum(axis=2)
    return moves
