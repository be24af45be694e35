"""The sketch against a dictionary that ages in the same way."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest

from semistream.structures.frequency import COUNT_MAX, ROWS, FrequencySketch

Int64s = npt.NDArray[np.int64]

INT64 = np.iinfo(np.int64)
EXTREMES = [0, -1, 1, INT64.min, INT64.max]


def ints(*values: int) -> Int64s:
    return np.array(values, dtype=np.int64)


class AgedCounts:
    """Exact counts that are saturated and halved when the sketch's are."""

    def __init__(self, period: int) -> None:
        self.period = period
        self.additions = 0
        self.counts: Counter[int] = Counter()

    def add(self, code: int, count: int = 1) -> None:
        self.counts[code] = min(self.counts[code] + count, COUNT_MAX)
        self.additions += count
        halvings, self.additions = divmod(self.additions, self.period)
        if halvings:
            self.counts = Counter({code: count // 2**halvings for code, count in self.counts.items()})

    def of(self, codes: Int64s) -> Int64s:
        return ints(*(self.counts[code] for code in codes.tolist()))


def check_invariants(sketch: FrequencySketch, exact: AgedCounts, codes: Int64s) -> None:
    assert (sketch.estimate(codes) >= exact.of(codes)).all(), "an estimate is below the aged count"
    assert sketch._additions == exact.additions
    # Conservative addition raises no counter above the sum of what was added to its row.
    total = sum(exact.counts.values())
    if exact.counts and max(exact.counts.values()) < COUNT_MAX and exact.period > 10**9:
        assert (sketch._table.reshape(ROWS, -1).sum(axis=1, dtype=np.int64) <= total).all()


@pytest.mark.parametrize("counters", [1, 3, 64])
@pytest.mark.parametrize("period", [1, 7, 500, 10**12])
@pytest.mark.parametrize("seed", range(3))
def test_an_estimate_is_never_below_the_aged_count(counters: int, period: int, seed: int) -> None:
    rng = np.random.default_rng([seed, counters, period])
    sketch, exact = FrequencySketch(counters, period=period), AgedCounts(period)
    domain = np.concatenate([ints(*EXTREMES), rng.integers(INT64.min, INT64.max, 40)])
    for _ in range(25):
        codes = rng.choice(domain, rng.integers(0, 30))
        if rng.random() < 0.5:
            counts = rng.integers(0, 40_000 if rng.random() < 0.1 else 5, len(codes))
            sketch.add_counts(codes, counts)
        else:
            counts = np.ones(len(codes), dtype=np.int64)
            sketch.add(codes)
        for code, count in zip(codes.tolist(), counts.tolist(), strict=True):
            exact.add(code, count)
        check_invariants(sketch, exact, domain)


def over_estimates(sketch: FrequencySketch, stream: Int64s, strangers: Int64s) -> tuple[Int64s, float]:
    """Feed a stream; return by how much each code (and each that never came) is over-estimated, and the bound."""
    exact = AgedCounts(sketch.period)
    for code in stream.tolist():
        exact.add(code)
    for batch in np.array_split(stream, 13):
        sketch.add(batch)
    codes = np.concatenate([np.unique(stream), strangers])
    over = sketch.estimate(codes) - exact.of(codes)
    assert over.min() >= 0, "an estimate is below the aged count"
    return over, math.e * sum(exact.counts.values()) / sketch.counters


def test_on_a_skewed_stream_the_error_keeps_far_within_its_bound() -> None:
    rng = np.random.default_rng(20_240_607)
    stream = np.minimum(rng.zipf(1.2, 60_000), 10**12)
    over, bound = over_estimates(FrequencySketch(1024), stream, strangers=-1 - np.arange(5_000))
    assert np.mean(over > bound) <= math.exp(-ROWS)
    assert np.mean(over > bound / 4) <= math.exp(-ROWS)


def test_on_a_flat_stream_the_error_keeps_within_its_bound() -> None:
    rng = np.random.default_rng(20_240_608)
    stream = rng.integers(0, 8_000, 40_000)
    over, bound = over_estimates(FrequencySketch(1024), stream, strangers=-1 - np.arange(5_000))
    assert np.mean(over > bound) <= math.exp(-ROWS)


@pytest.mark.parametrize("step", [1, 1024, 2**20, 2**44])
def test_codes_in_steps_are_spread_like_any_others(step: int) -> None:
    stream = np.tile(np.arange(4_000) * step, 5)
    over, bound = over_estimates(FrequencySketch(1000), stream, strangers=(4_000 + np.arange(4_000)) * step)
    assert np.mean(over > bound) <= math.exp(-ROWS)


@pytest.mark.parametrize("step", [1, 2**32])
def test_the_rows_are_independent_of_each_other(step: int) -> None:
    sketch = FrequencySketch(1000)
    sketch.add(np.arange(700) * step)
    taken = np.mean(sketch._table > 0)
    wrong = np.mean(sketch.estimate((700 + np.arange(20_000)) * step) > 0)
    assert wrong == pytest.approx(taken**ROWS, rel=0.2)


def test_rare_codes_leave_the_counters_of_a_frequent_one_as_they_are() -> None:
    sketch = FrequencySketch(32)
    sketch.add_counts(ints(7), ints(100))
    sketch.add(np.arange(1_000, 1_200))
    assert (sketch._table.reshape(ROWS, -1).max(axis=1) == 100).all()
    assert sketch.estimate(ints(7)).tolist() == [100]


def test_the_most_frequent_codes_are_found_in_their_order() -> None:
    rng = np.random.default_rng(11)
    stream = rng.zipf(1.3, 500)
    sketch = FrequencySketch(2048)
    sketch.add(stream)
    assert Counter(stream.tolist()).most_common(1)[0][1] < COUNT_MAX
    expected = [code for code, _ in Counter(stream.tolist()).most_common(6)]
    candidates = np.unique(stream)
    order = np.argsort(-sketch.estimate(candidates), kind="stable")
    assert candidates[order[:6]].tolist() == expected


def test_a_code_that_no_longer_comes_is_forgotten_by_halves() -> None:
    sketch = FrequencySketch(512, period=100)
    sketch.add_counts(ints(7), ints(80))
    seen = []
    for turn in range(8):
        sketch.add(np.full(100, 1_000 + turn))
        seen.append(int(sketch.estimate(ints(7))[0]))
    assert seen == [40, 20, 10, 5, 2, 1, 0, 0]


def test_counting_at_once_equals_counting_one_by_one() -> None:
    at_once, one_by_one = FrequencySketch(16), FrequencySketch(16)
    at_once.add_counts(ints(5, 6, 5), ints(3, 0, 2))
    one_by_one.add(ints(5, 5, 5, 5, 5))
    assert (at_once._table == one_by_one._table).all()


def test_a_counter_stops_at_its_largest_value() -> None:
    sketch = FrequencySketch(4, period=2**62)
    sketch.add_counts(ints(1, 1, 1), ints(COUNT_MAX - 1, 5, 2**50))
    assert sketch.estimate(ints(1)).tolist() == [COUNT_MAX]


def test_a_count_of_many_periods_leaves_nothing_of_what_was() -> None:
    sketch = FrequencySketch(64, period=10)
    sketch.add(ints(1, 1, 1, 1))
    sketch.add_counts(ints(2), ints(10**15))
    assert sketch.estimate(ints(1, 2)).tolist() == [0, 0]


def test_the_same_codes_give_the_same_counters() -> None:
    codes = np.random.default_rng(3).integers(-50, 50, 5_000)
    first, second = FrequencySketch(100), FrequencySketch(100)
    first.add(codes)
    for batch in np.array_split(codes, 7):
        second.add(batch)
    assert (first._table == second._table).all()


def test_arrays_may_be_read_only_or_empty() -> None:
    sketch = FrequencySketch(8)
    codes, none = ints(1, 2, 1), ints()
    codes.flags.writeable = False
    sketch.add(codes)
    sketch.add_counts(codes, codes)
    sketch.add(none)
    assert sketch.estimate(codes[:1]).tolist() == [4]
    assert sketch.estimate(none).tolist() == []


def test_negative_counts_and_counts_for_other_codes_are_refused() -> None:
    with pytest.raises(AssertionError, match="a negative number of times"):
        FrequencySketch(8).add_counts(ints(1), ints(-1))
    with pytest.raises(AssertionError, match="2 counts were given for 1 codes"):
        FrequencySketch(8).add_counts(ints(1), ints(1, 2))


def test_a_sketch_without_counters_or_without_a_period_is_refused() -> None:
    with pytest.raises(AssertionError, match="0 counters in each row"):
        FrequencySketch(0)
    with pytest.raises(AssertionError, match="a period must have at least one addition"):
        FrequencySketch(8, period=0)


def test_the_default_period_is_ten_additions_for_each_counter_of_a_row() -> None:
    assert FrequencySketch(300).period == 3_000


def test_what_a_capacity_costs_is_what_it_allocates_and_what_fits_is_the_largest() -> None:
    for bytes_max in range(200):
        counters = FrequencySketch.counters_fitting(bytes_max)
        assert FrequencySketch.bytes_for(counters) <= bytes_max < FrequencySketch.bytes_for(counters + 1)
        assert counters == 0 or FrequencySketch(counters).nbytes == FrequencySketch.bytes_for(counters)
    assert FrequencySketch.counters_fitting(-1) == 0


def test_halving_on_demand_halves_every_estimate_and_begins_a_new_period() -> None:
    sketch = FrequencySketch(1024, period=10)
    sketch.add_counts(np.array([7, 9]), np.array([5, 4]))
    sketch.halve()
    assert sketch.estimate(np.array([7, 9])).tolist() == [2, 2]
    sketch.add_counts(np.array([7]), np.array([9]))
    assert sketch.estimate(np.array([7])).tolist() == [11], "the period did not begin anew"
