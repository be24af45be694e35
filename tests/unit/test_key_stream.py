"""Popular keys lie where the order says, and move on when the drift says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.errors import InvalidOption
from semistream.lab.workloads.key_stream import Drift, KeyStream, key_order
from semistream.lab.workloads.zipf import Shuffle, Zipf

POPULATION = 5000
ROWS = 40_000


class EveryRank:
    """Ranks in turn instead of at random, so that a test knows each of them."""

    def __init__(self, population: int) -> None:
        self.population = population
        self._next = 0

    def sample(self, rng: np.random.Generator, count: int) -> np.ndarray:
        ranks = np.arange(self._next, self._next + count) % self.population
        self._next += count
        return ranks


def hot(keys: np.ndarray, count: int = 20) -> set[int]:
    values, counts = np.unique(keys, return_counts=True)
    return set(values[np.argsort(counts)[::-1][:count]].tolist())


def test_in_frequency_order_the_key_is_the_rank() -> None:
    stream = KeyStream(Zipf(POPULATION, 1.0), "frequency", seed=50)
    keys = stream.keys(np.random.default_rng(50), 0, ROWS)
    assert np.array_equal(keys, Zipf(POPULATION, 1.0).sample(np.random.default_rng(50), ROWS))
    assert stream.population == POPULATION


def test_shuffled_keys_are_as_popular_but_strewn() -> None:
    plain, shuffled = (
        KeyStream(Zipf(POPULATION, 1.0), order, seed=51).keys(np.random.default_rng(51), 0, ROWS)
        for order in ("frequency", "shuffled")
    )
    assert np.array_equal(Shuffle(POPULATION, 51)(plain), shuffled)
    assert max(hot(plain)) < 40
    assert np.median(np.diff(sorted(hot(shuffled)))) > 50


@given(
    seed=st.integers(0, 2**32),
    population=st.integers(1, 300),
    every_rows=st.integers(1, 90),
    slide_keys=st.none() | st.integers(-500, 500),
    cuts=st.lists(st.integers(0, 120), max_size=6),
    shuffled=st.booleans(),
)
def test_batches_may_end_anywhere(
    seed: int, population: int, every_rows: int, slide_keys: int | None, cuts: list[int], shuffled: bool
) -> None:
    def stream() -> KeyStream:
        order = "shuffled" if shuffled else "frequency"
        return KeyStream(EveryRank(population), order, seed, Drift(every_rows, slide_keys))

    rng = np.random.default_rng(seed)
    whole = stream().keys(rng, 0, sum(cuts))
    assert np.all((whole >= 0) & (whole < population))
    starts = np.cumsum([0, *cuts])
    pieces = stream()
    parts = [pieces.keys(rng, int(start), count) for start, count in zip(starts[:-1], cuts, strict=True)]
    assert np.array_equal(np.concatenate([*parts, np.zeros(0, dtype=np.int64)]), whole)


@given(seed=st.integers(0, 2**32), population=st.integers(1, 200), slide_keys=st.none() | st.integers(0, 300))
def test_no_key_is_lost_by_a_drift(seed: int, population: int, slide_keys: int | None) -> None:
    stream = KeyStream(EveryRank(population), "shuffled", seed, Drift(population, slide_keys))
    keys = stream.keys(np.random.default_rng(seed), 0, 4 * population)
    for period in keys.reshape(4, population):
        assert np.array_equal(np.sort(period), np.arange(population))


def test_dealing_anew_leaves_nothing_hot() -> None:
    drift = Drift(every_rows=ROWS)
    stream = KeyStream(Zipf(POPULATION, 1.0), "frequency", seed=52, drift=drift)
    rng = np.random.default_rng(52)
    first, second, third = (stream.keys(rng, number * ROWS, ROWS) for number in range(3))
    assert hot(first) & hot(second) == set()
    assert hot(second) & hot(third) == set()
    assert max(hot(first)) < 40, "the first period is as without a drift"


def test_a_slide_takes_the_hot_keys_along_step_by_step() -> None:
    stream = KeyStream(Zipf(POPULATION, 1.0), "frequency", seed=53, drift=Drift(ROWS, slide_keys=5))
    rng = np.random.default_rng(53)
    first, second = (stream.keys(rng, number * ROWS, ROWS) for number in range(2))
    assert int(np.bincount(first).argmax()) == 0
    assert int(np.bincount(second).argmax()) == 5
    assert 5 <= len(hot(first) & hot(second)) < 20


def test_no_rows_are_no_keys() -> None:
    stream = KeyStream(Zipf(10, 1.0), "shuffled", seed=54, drift=Drift(3))
    assert len(stream.keys(np.random.default_rng(54), 7, 0)) == 0


def test_an_unknown_order_gets_the_nearest_name() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'shuffled'"):
        key_order("shufled", 10, seed=0)  # type: ignore[arg-type]


def test_a_drift_after_no_rows_is_refused() -> None:
    with pytest.raises(InvalidOption, match="at least one row"):
        Drift(every_rows=0)
