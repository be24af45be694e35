"""Tails of Poisson numbers beside their sums."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semistream.cost.poisson import EXACT_TERMS, at_least, at_least_in_a_part, short_of


def summed(mean: float, least: int) -> float:
    logs = [number * math.log(mean) - mean - math.lgamma(number + 1) for number in range(least)]
    return 1.0 - sum(map(math.exp, logs))


@pytest.mark.parametrize("least", [1, 2, 7, EXACT_TERMS, EXACT_TERMS + 1, 700])
def test_the_tail_of_a_poisson_number_is_that_of_its_sum(least: int) -> None:
    means = least * np.array([0.2, 0.8, 1.0, 1.3, 3.0])
    expected = [summed(mean, least) for mean in means.tolist()]
    assert at_least(means, least) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("least", [1, 2, 7, 40])
def test_of_a_part_of_the_time_the_tail_is_the_mean_over_all_parts(least: int) -> None:
    means = least * np.array([0.02, 0.5, 1.0, 1.3, 5.0])
    parts = (np.arange(2000) + 0.5) / 2000
    expected = [float(at_least(mean * parts, least).mean()) for mean in means.tolist()]
    assert at_least_in_a_part(means, least) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("limit", [4, 40, 400])
def test_a_poisson_number_falls_short_of_a_limit_by_what_it_does_on_average(limit: int) -> None:
    means = limit * np.array([0.1, 0.7, 1.0, 1.5])
    numbers = np.random.default_rng(1).poisson(means, (200_000, len(means)))
    seen = np.maximum(limit - numbers, 0).mean(axis=0)
    assert short_of(means, limit) == pytest.approx(seen, abs=0.02 * limit)
