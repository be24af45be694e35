"""Skew that is exactly what it says, shuffles that lose no key, bursts that add up."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.errors import InvalidOption
from semistream.lab.workloads.arrivals import burst_sizes
from semistream.lab.workloads.zipf import CHUNK_ROWS, Shuffle, Zipf

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
    cumulated = np.append(0.0, np.cumsum(exact_probabilities(population, 1.0)))
    statistic, freedom = chi_square(counts, np.diff(cumulated[edges]) * SAMPLE_ROWS)
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


@pytest.mark.parametrize(("rows", "bursts"), [(1, 1), (1000, 7), (1_000_000, 24), (24, 24), (25, 24)])
def test_bursts_add_up_to_the_rows_and_none_is_empty(rows: int, bursts: int) -> None:
    sizes = burst_sizes(np.random.default_rng(29), rows, bursts)
    assert (len(sizes), int(sizes.sum())) == (bursts, rows)
    assert sizes.min() >= 1


def test_bursts_are_uneven_unless_the_spread_is_nothing() -> None:
    bursty = burst_sizes(np.random.default_rng(30), 1_000_000, 50)
    even = burst_sizes(np.random.default_rng(30), 1_000_000, 50, spread=0.0)
    assert bursty.max() > 2 * np.median(bursty)
    assert even.max() - even.min() <= 1


def test_fewer_rows_than_bursts_give_a_row_a_burst() -> None:
    assert burst_sizes(np.random.default_rng(31), 3, 24).tolist() == [1, 1, 1]
    assert burst_sizes(np.random.default_rng(31), 0, 24).tolist() == []


@pytest.mark.parametrize(("rows", "bursts"), [(-1, 1), (1, 0)])
def test_an_impossible_stream_is_refused(rows: int, bursts: int) -> None:
    with pytest.raises(InvalidOption, match="stream"):
        burst_sizes(np.random.default_rng(32), rows, bursts)
