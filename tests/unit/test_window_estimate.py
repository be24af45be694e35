"""Estimates from a join of samples: right on average, and inside their intervals as often as they say."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from itertools import product

import numpy as np
import pytest

from semistream.window.estimate import Estimates, Floats, Numbers, PairTally, SampledPairs, estimate

COVERED_OF_1000 = 930


@dataclass(frozen=True)
class FullJoin:
    """All pairs of a window join of two short streams with skewed keys."""

    probe_row: Numbers
    held_row: Numbers
    a_is_later: np.ndarray[tuple[int], np.dtype[np.bool_]]
    moment: Numbers
    """The arrival at which a pair is found."""
    value: Floats
    rows: int


@cache
def full_join(seed: int, *, rows: int = 3000, window_rows: int = 150, keys: int = 40, skew: float = 0.7) -> FullJoin:
    """Every row meets the last `window_rows` rows of the other side that have its key."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, keys + 1) ** -skew
    key = rng.choice(keys, rows, p=shares / shares.sum())
    is_a = rng.random(rows) < 0.6
    number = np.where(is_a, np.cumsum(is_a), np.cumsum(~is_a)) - 1
    other_count = np.where(is_a, np.cumsum(~is_a), np.cumsum(is_a))
    later, earlier = (index.astype(np.int64) for index in np.nonzero(np.tri(rows, k=-1, dtype=bool)))
    matches = (key[later] == key[earlier]) & (is_a[later] != is_a[earlier])
    matches &= other_count[later] - number[earlier] <= window_rows
    later, earlier = later[matches], earlier[matches]
    amount = rng.lognormal(0, 1, rows)
    value = amount[later] + 0.5 * amount[earlier] - 0.3
    return FullJoin(number[later], number[earlier], is_a[later], later, value, rows)


def sampled(full: FullJoin, rng: np.random.Generator, q: tuple[float, float], p: tuple[float, float]) -> SampledPairs:
    """What a shed join finds; half-way through, a row is held only if it would be at nine tenths of p."""
    chance = rng.random((2, 2, full.rows))
    direction = full.a_is_later.astype(int)
    probe_share = np.where(full.a_is_later, q[0], q[1])
    held_share = np.where(full.a_is_later, p[1], p[0]) * np.where(full.moment > full.rows // 2, 0.9, 1.0)
    found = (chance[0, direction, full.probe_row] < probe_share) & (chance[1, direction, full.held_row] < held_share)
    return SampledPairs(
        full.probe_row[found],
        full.held_row[found],
        probe_share[found],
        held_share[found],
        full.a_is_later[found],
        full.value[found],
    )


def piece(found: SampledPairs, part: slice) -> SampledPairs:
    return SampledPairs(*(getattr(found, field.name)[part] for field in fields(found)))


def covered(full: FullJoin, seeds: range, q: tuple[float, float], p: tuple[float, float]) -> dict[str, int]:
    """How often the truth lies inside the interval."""
    truth = {"count": len(full.value), "sum": full.value.sum(), "average": full.value.mean()}
    inside = dict.fromkeys(truth, 0)
    for seed in seeds:
        estimates = estimate(sampled(full, np.random.default_rng(seed), q, p))
        for name, true in truth.items():
            one = getattr(estimates, name)
            inside[name] += one.low <= true <= one.high
    return inside


def numbers(estimates: Estimates) -> list[float]:
    all_three = (estimates.count, estimates.sum, estimates.average)
    return [number for one in all_three for number in (one.value, one.low, one.high)]


def test_the_truth_lies_inside_the_interval_in_most_of_a_hundred_runs() -> None:
    assert min(covered(full_join(1, rows=1500), range(100), (0.6, 0.4), (0.5, 0.7)).values()) >= 90


@pytest.mark.long
@pytest.mark.parametrize(
    ("skew", "q", "p"),
    [
        (0.0, (0.5, 0.5), (0.5, 0.5)),
        (0.7, (0.6, 0.4), (0.5, 0.7)),
        (1.0, (0.2, 0.3), (0.4, 0.3)),
        (1.0, (1.0, 1.0), (0.2, 0.5)),
        (0.5, (0.5, 0.8), (1.0, 1.0)),
    ],
)
def test_the_truth_lies_inside_the_interval_in_at_least_930_of_1000_runs(
    skew: float, q: tuple[float, float], p: tuple[float, float]
) -> None:
    inside = covered(full_join(2, skew=skew), range(1000), q, p)
    assert min(inside.values()) >= COVERED_OF_1000, inside


def test_estimate_and_variance_are_right_on_average_over_all_samples() -> None:
    """Three probing and two held rows: all 32 outcomes, each with its probability."""
    q, p = np.array([0.3, 0.5, 0.9]), np.array([0.4, 0.8])
    pairs = np.array([(0, 0), (0, 1), (1, 0), (2, 1), (2, 0)])
    value = np.array([1.0, 2.0, -0.5, 4.0, 3.0])
    means = np.zeros(4)
    for met in product((False, True), repeat=5):
        has = np.array(met)
        probability = float(np.where(has, [*q, *p], [*(1 - q), *(1 - p)]).prod())
        x, y = pairs[:, 0], pairs[:, 1]
        found = has[x] & has[3 + y]
        if not found.any():
            continue
        tally = PairTally()
        a_is_later = np.ones(found.sum(), dtype=bool)
        tally.add(SampledPairs(x[found], y[found], q[x[found]], p[y[found]], a_is_later, value[found]))
        total = tally._sum
        means += probability * np.array([total, total**2, tally._moments()[2], tally._count])
    mean, square, variance, count = means
    assert mean == pytest.approx(value.sum())
    assert count == pytest.approx(len(value))
    assert variance == pytest.approx(square - mean**2)


def test_pairs_may_come_in_pieces_and_rows_that_left_are_forgotten() -> None:
    full = full_join(3, rows=1200, window_rows=60)
    found = sampled(full, np.random.default_rng(5), (0.7, 0.8), (0.6, 0.9))
    tally = PairTally()
    for begin in range(0, len(found.value), 97):
        part = piece(found, slice(begin, begin + 97))
        tally.add(part)
        a_rows = np.concatenate((part.probe_row[part.a_is_later], part.held_row[~part.a_is_later]))
        b_rows = np.concatenate((part.probe_row[~part.a_is_later], part.held_row[part.a_is_later]))
        tally.forget_before(int(a_rows.max(initial=0)) - 150, int(b_rows.max(initial=0)) - 150)
        assert tally.open_rows < 500
    assert numbers(tally.estimates()) == pytest.approx(numbers(estimate(found)))


def test_tallies_of_streams_without_common_rows_add_up() -> None:
    full = full_join(4, rows=800)
    found = sampled(full, np.random.default_rng(6), (0.5, 0.5), (0.5, 0.5))
    whole, one, other = PairTally(), PairTally(), PairTally()
    for tally, shift in ((one, 0), (other, 10_000)):
        moved = SampledPairs(
            found.probe_row + shift,
            found.held_row + shift,
            found.probe_share,
            found.held_share,
            found.a_is_later,
            found.value,
        )
        tally.add(moved)
        whole.add(moved)
    one.merge(other)
    assert numbers(one.estimates()) == pytest.approx(numbers(whole.estimates()))


def test_an_unshed_join_is_known_exactly() -> None:
    full = full_join(5, rows=400)
    ones = np.ones(len(full.value))
    exact = estimate(SampledPairs(full.probe_row, full.held_row, ones, ones, full.a_is_later, full.value))
    assert (exact.count.low, exact.count.high) == (len(full.value), len(full.value))
    assert exact.sum.half_width == 0
    assert exact.average.value == pytest.approx(full.value.mean())


def test_with_no_pair_nothing_is_known() -> None:
    nothing = PairTally().estimates()
    assert (nothing.count.value, nothing.count.high) == (0, math.inf)
    assert math.isnan(nothing.average.value)
    assert (nothing.sum.low, nothing.sum.high) == (-math.inf, math.inf)


def test_a_share_that_falls_while_a_row_is_held_keeps_the_variance_right_on_average() -> None:
    """One held row, two probes that all happen, at p = 0.8 and then at p = 0.5."""
    means = np.zeros(3)
    shares = np.array([0.8, 0.5])
    value = np.array([2.0, 3.0])
    for probability, pairs in ((0.2, 0), (0.3, 1), (0.5, 2)):
        if not pairs:
            continue
        tally = PairTally()
        for place in range(pairs):
            row = np.array([place])
            tally.add(SampledPairs(row, np.array([0]), np.ones(1), shares[row], np.array([True]), value[row]))
        means += probability * np.array([tally._sum, tally._sum**2, tally._moments()[2]])
    mean, square, variance = means
    assert mean == pytest.approx(5.0)
    assert variance == pytest.approx(square - mean**2)
