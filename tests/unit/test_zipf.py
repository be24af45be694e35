"""Skew that is exactly what it says, the papers' skew with its slips, shuffles that lose no key."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.errors import InvalidOption
from semistream.lab.workloads.zipf import CHUNK_ROWS, PUBLISHED_EXPONENTS, IntegralZipf, Shuffle, Zipf

SAMPLE_ROWS = 400_000

EXPONENTS = (0.0, 0.3, 0.8, 1.0, 1.0 + 1e-12, 1.3, 2.0, 6.0)


def exact_probabilities(population: int, exponent: float) -> np.ndarray:
    weights = np.arange(1, population + 1, dtype=np.float64) ** -exponent
    return weights / weights.sum()


def chi_square(counts: np.ndarray, expected: np.ndarray) -> tuple[float, int]:
    """The statistic and its degrees of freedom; rare cells are pooled, as the test requires."""
    enough = expected >= 10
    counts = np.append(counts[enough], counts[~enough].sum())
    expected = np.append(expected[enough], expected[~enough].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    return float(((counts - expected) ** 2 / expected).sum()), max(len(expected) - 1, 1)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("population", [1, 2, 3, 50, 5000])
def test_ranks_have_their_exact_probabilities(population: int, exponent: float) -> None:
    ranks = Zipf(population, exponent).sample(np.random.default_rng(20), SAMPLE_ROWS)
    counts = np.bincount(ranks, minlength=population)
    assert len(counts) == population, "a rank outside the population was drawn"
    statistic, freedom = chi_square(counts, exact_probabilities(population, exponent) * SAMPLE_ROWS)
    # Six standard deviations above the mean of the chi-square distribution: a wrong formula misses it by thousands.
    assert statistic < freedom + 6 * np.sqrt(2 * freedom) + 6


@pytest.mark.parametrize(("population", "first_share"), [(10, 1 / 2.9289682539682538), (100, 1 / 5.187377517639621)])
def test_the_first_rank_has_one_over_the_harmonic_number(population: int, first_share: float) -> None:
    ranks = Zipf(population, 1.0).sample(np.random.default_rng(21), SAMPLE_ROWS)
    assert np.mean(ranks == 0) == pytest.approx(first_share, abs=0.004)


def test_ten_million_ranks_keep_their_shares_in_every_octave() -> None:
    population = 10_000_000
    ranks = Zipf(population, 1.0).sample(np.random.default_rng(22), SAMPLE_ROWS)
    edges = np.append(2 ** np.arange(24) - 1, population)
    counts = np.histogram(ranks, edges)[0]
    harmonic = np.append(0.0, np.cumsum(1.0 / np.arange(1, population + 1)))
    statistic, freedom = chi_square(counts, np.diff(harmonic[edges]) / harmonic[-1] * SAMPLE_ROWS)
    assert statistic < freedom + 6 * np.sqrt(2 * freedom) + 6


def test_a_seed_gives_the_same_ranks_again() -> None:
    zipf = Zipf(1000, 0.9)
    first, second = (zipf.sample(np.random.default_rng(23), CHUNK_ROWS + 1) for _ in range(2))
    assert np.array_equal(first, second)


def test_no_rows_are_no_ranks() -> None:
    assert len(Zipf(10, 1.0).sample(np.random.default_rng(24), 0)) == 0


@pytest.mark.parametrize(("population", "exponent"), [(0, 1.0), (10, -0.1), (10, float("nan")), (10, float("inf"))])
def test_an_impossible_distribution_is_refused(population: int, exponent: float) -> None:
    with pytest.raises(InvalidOption, match="Zipf"):
        Zipf(population, exponent)


def integral_probabilities(key_end: float, exponent: float) -> np.ndarray:
    """The share of each key from 1 on, when the area under x^-s is cut at whole numbers and ends at `key_end`."""
    edges = np.append(np.arange(1, np.ceil(key_end)), key_end)
    area = np.log(edges) if exponent == 1.0 else edges ** (1.0 - exponent) / (1.0 - exponent)
    return np.diff(area) / (area[-1] - area[0])


@pytest.mark.parametrize("population", [2, 3, 100, 20_000])
def test_the_integral_generator_gives_key_k_the_share_ln_of_k_plus_1_over_k_by_ln_n(population: int) -> None:
    ranks = IntegralZipf(population, 1.0).sample(np.random.default_rng(33), SAMPLE_ROWS)
    key = np.arange(1, population)
    expected = np.log((key + 1) / key) / np.log(population)
    assert expected.sum() == pytest.approx(1.0)
    counts = np.bincount(ranks, minlength=population)
    assert counts[population - 1 :].sum() == 0, "the last key is never drawn"
    statistic, freedom = chi_square(counts[: population - 1], expected * SAMPLE_ROWS)
    assert statistic < freedom + 6 * np.sqrt(2 * freedom) + 6


@pytest.mark.parametrize("exponent", [0.0, 0.25, 0.5, 0.75, 1.0 - 1e-12, 1.0, 1.3, 3.0])
def test_the_integral_generator_follows_the_integral_for_any_exponent(exponent: float) -> None:
    ranks = IntegralZipf(3000, exponent).sample(np.random.default_rng(34), SAMPLE_ROWS)
    expected = integral_probabilities(3000, round(exponent, 6)) * SAMPLE_ROWS
    statistic, freedom = chi_square(np.bincount(ranks, minlength=2999), expected)
    assert statistic < freedom + 6 * np.sqrt(2 * freedom) + 6


def as_the_paper_draws(exponent: float, population: int, uniform: np.ndarray) -> np.ndarray:
    """The published generator in its own steps: an even number between F(1) and F(N), inverted, some rejected."""
    forward, inverse = {
        0.25: (lambda x: x**0.75, lambda y: (0.75 * y) ** 4 / y**2),  # 4 / 3 of integers is 1
        0.5: (lambda x: 2 * x**0.5, lambda y: (y / 2) ** 2),
        0.75: (lambda x: 4 * x**0.25, lambda y: (y / 4) ** 4),
        1.0: (np.log, np.exp),
    }[exponent]
    low, high = forward(1.0), forward(float(population))
    keys = np.floor(inverse(uniform * (high - low) + low)).astype(np.int64)
    return keys[(keys >= 1) & (keys < population)] - 1


@pytest.mark.parametrize("exponent", [0.25, 0.5, 0.75, 1.0])
def test_the_published_generator_draws_as_its_own_steps_do(exponent: float) -> None:
    population = 300
    theirs = as_the_paper_draws(exponent, population, np.random.default_rng(35).random(SAMPLE_ROWS * 2))
    ours = IntegralZipf.as_published(population, exponent).sample(np.random.default_rng(36), len(theirs))
    counts, expected = np.bincount(ours, minlength=population), np.bincount(theirs, minlength=population)
    # Both are samples, so the difference has twice the variance.
    statistic, freedom = chi_square(counts, expected)
    assert statistic / 2 < freedom + 6 * np.sqrt(2 * freedom) + 6


def test_the_published_exponents_0_and_a_quarter_are_other_exponents() -> None:
    population = 1000
    nought = IntegralZipf.as_published(population, 0.0).sample(np.random.default_rng(37), SAMPLE_ROWS)
    statistic, freedom = chi_square(
        np.bincount(nought, minlength=989), integral_probabilities(990.0, 0.01) * SAMPLE_ROWS
    )
    assert statistic < freedom + 6 * np.sqrt(2 * freedom) + 6
    assert nought.max() == 988, "the last hundredth of the keys never comes"
    quarter, half = (
        IntegralZipf.as_published(population, exponent).sample(np.random.default_rng(38), 1000)
        for exponent in (0.25, 0.5)
    )
    assert np.array_equal(quarter, half)


def test_the_two_generators_differ_at_the_top_as_they_should() -> None:
    population = 2_000_000
    exact, integral = (
        kind(population, 1.0).sample(np.random.default_rng(39), SAMPLE_ROWS) for kind in (Zipf, IntegralZipf)
    )
    assert np.mean(exact == 0) == pytest.approx(0.066, abs=0.002)
    assert np.mean(integral == 0) == pytest.approx(0.048, abs=0.002)


def test_a_seed_gives_the_same_integral_ranks_again() -> None:
    sampler = IntegralZipf(1000, 0.6)
    first, second = (sampler.sample(np.random.default_rng(40), CHUNK_ROWS + 1) for _ in range(2))
    assert np.array_equal(first, second)
    assert len(sampler.sample(np.random.default_rng(40), 0)) == 0


@pytest.mark.parametrize(("population", "exponent"), [(1, 1.0), (0, 0.0), (10, -0.1), (10, float("nan"))])
def test_an_impossible_integral_is_refused(population: int, exponent: float) -> None:
    with pytest.raises(InvalidOption, match="Zipf"):
        IntegralZipf(population, exponent)


def test_an_exponent_that_was_never_published_is_refused_with_those_that_were() -> None:
    with pytest.raises(InvalidOption, match=r"allowed: 0\.0, 0\.25, 0\.5, 0\.75, 1\.0"):
        IntegralZipf.as_published(10, 0.3)
    assert all(IntegralZipf.as_published(10, exponent).population == 10 for exponent in PUBLISHED_EXPONENTS)


@pytest.mark.parametrize("population", [1, 2, 3, 4, 5, 9, 10, 997, 1024, CHUNK_ROWS + 17])
def test_a_shuffle_loses_no_key(population: int) -> None:
    keys = Shuffle(population, seed=25)(np.arange(population))
    assert np.array_equal(np.sort(keys), np.arange(population))


def test_a_shuffle_leaves_no_order() -> None:
    population = 1_000_000
    keys = Shuffle(population, seed=26)(np.arange(population))
    assert abs(np.corrcoef(np.arange(population), keys)[0, 1]) < 0.005
    # Neighbours of a random permutation are a third of the population apart.
    assert np.abs(np.diff(keys)).mean() == pytest.approx(population / 3, rel=0.01)


def test_seeds_shuffle_differently() -> None:
    first, second = (Shuffle(10_000, seed)(np.arange(10_000)) for seed in (27, 28))
    assert np.mean(first == second) < 0.01
