"""The choice of indexes for two windows: curves of a machine, and when a running join changes."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.budget import MIB, MemoryBudget
from semistream.cost.window_curves import Curve, MeasuredCurves
from semistream.cost.window_join import INDEX_NAMES, IndexName, TouchedTuples, WindowWorkload, best_pair, direction_cost
from semistream.errors import InvalidOption
from semistream.planning.window_choice import (
    FOR_RANGES,
    IndexChooser,
    IndexKeeper,
    Period,
    choose_for_batch,
    choose_pair,
    typical_costs,
)
from semistream.window.join import WindowJoin
from semistream.window.pieces import Arrivals
from semistream.window.windows import rows

PAPER = TouchedTuples()


def test_a_curve_goes_through_its_points_and_on_beyond_them() -> None:
    curve = Curve((100.0, 400.0, 1600.0), (1.0, 2.0, 8.0))
    assert [curve.at(rows) for rows in (100, 400, 1600)] == [1.0, 2.0, 8.0]
    assert curve.at(200) == pytest.approx(2**0.5)
    assert curve.at(25) == pytest.approx(0.5)
    assert curve.at(6400) == pytest.approx(32.0)


@pytest.mark.parametrize(
    ("rows", "seconds"), [((1.0,), (1.0,)), ((2.0, 1.0), (1.0, 1.0)), ((1.0, 2.0), (0.0, 1.0)), ((1.0, 2.0), (1.0,))]
)
def test_points_that_make_no_curve_are_an_error(rows: tuple[float, ...], seconds: tuple[float, ...]) -> None:
    with pytest.raises(InvalidOption, match="growing windows"):
        Curve(rows, seconds)


def test_curves_through_the_papers_costs_choose_as_the_paper_does() -> None:
    sizes = tuple(float(100 * 2**step) for step in range(9))

    def curves(cost: str) -> dict[IndexName, Curve]:
        return {
            index: Curve(sizes, tuple(getattr(PAPER, cost)(index, rows) for rows in sizes)) for index in INDEX_NAMES
        }

    measured = MeasuredCurves(curves("probe"), curves("update"))
    rng = np.random.default_rng(3)
    for _ in range(50):
        window_a, window_b = (float(rng.choice(sizes)) for _ in range(2))
        share = float(rng.uniform(0.01, 0.99))
        workload = WindowWorkload(share, 1 - share, window_a, window_b)
        assert best_pair(measured, workload) == best_pair(PAPER, workload)


def test_a_range_is_served_by_no_hash() -> None:
    workload = WindowWorkload(rate_a=550, rate_b=450, window_a=4000, window_b=6000)
    assert choose_pair(PAPER, workload, equality=True) == ("hash", "hash")
    assert set(choose_pair(PAPER, workload, equality=False)) <= set(FOR_RANGES)


def test_on_a_usual_machine_a_hash_serves_equality_and_a_window_that_is_hardly_probed_is_scanned() -> None:
    costs = typical_costs()
    assert choose_pair(costs, WindowWorkload(500, 500, 5000, 5000), equality=True) == ("hash", "hash")
    assert choose_pair(costs, WindowWorkload(1, 999, 5000, 500), equality=True) == ("hash", "scan")
    assert "scan" not in choose_pair(costs, WindowWorkload(500, 500, 5000, 5000), equality=False)


def test_indexes_change_when_the_rates_move_and_back_when_they_return() -> None:
    chooser = IndexChooser(PAPER, ("hash", "hash"), equality=True)
    even, slow_a = Period(500, 500, 5000, 5000), Period(2, 998, 5000, 5000)
    assert [chooser.consider(even) for _ in range(50)] == [None] * 50
    said = [chooser.consider(slow_a) for _ in range(200)]
    assert [pair for pair in said if pair] == [("b+tree", "hash")]
    said = [chooser.consider(even) for _ in range(200)]
    assert [pair for pair in said if pair] == [("hash", "hash")]
    assert chooser.in_use == ("hash", "hash")


def test_rates_that_swing_around_a_crossover_change_nothing() -> None:
    chooser = IndexChooser(PAPER, ("hash", "hash"), equality=True)
    for turn in range(500):
        share = 0.216 + 0.02 * (-1) ** turn
        assert chooser.consider(Period(round(1000 * share), round(1000 * (1 - share)), 5000, 5000)) is None


def test_whatever_the_rates_do_the_cost_is_not_far_above_that_of_the_best_fixed_choice() -> None:
    """Against the best single pair of hindsight, prices of changes included."""
    rng = np.random.default_rng(5)
    for _ in range(30):
        chooser = IndexChooser(PAPER, ("hash", "hash"), equality=True)
        fixed = dict.fromkeys(INDEX_NAMES, 0.0)
        paid, price, used = 0.0, 0.0, chooser.in_use[0]
        for _ in range(40):
            share = float(rng.beta(0.3, 0.3))
            for _ in range(int(rng.integers(1, 60))):
                arrived_a = round(1000 * share)
                period = Period(arrived_a, 1000 - arrived_a, 5000, 5000)
                bills = {
                    index: direction_cost(
                        PAPER, index, probing_rate=period.arrived_b, updating_rate=arrived_a, window_rows=5000
                    )
                    for index in INDEX_NAMES
                }
                paid += bills[used]
                for index, bill in bills.items():
                    fixed[index] += bill
                chooser.consider(period)
                if chooser.in_use[0] != used:
                    used = chooser.in_use[0]
                    price += 5000 * PAPER.update(used, 5000) / 2
        assert paid + price <= 1.1 * min(fixed.values())


def test_an_idle_stream_asks_for_no_change() -> None:
    chooser = IndexChooser(PAPER, ("scan", "scan"), equality=True)
    assert chooser.consider(Period(0, 0, 0, 0)) is None
    assert chooser.consider(Period(0, 0, 5000, 5000)) is None


def test_a_running_join_changes_its_indexes_and_loses_no_pair() -> None:
    rng = np.random.default_rng(9)
    # Both streams alike, then nearly only B, then nearly only A.
    sides = [(rng.random(4096) < share_b).astype(np.int8) for share_b in [0.5] * 3 + [0.999] * 40 + [0.001] * 40]
    keys = [rng.integers(0, 300, len(side)) for side in sides]
    kept, fixed = (WindowJoin(rows(400), rows(300), budget=MemoryBudget(4 * MIB)) for _ in range(2))
    keeper = IndexKeeper(kept, PAPER, equality=True)
    changes = []
    for side, key in zip(sides, keys, strict=True):
        count = len(side)
        piece = Arrivals(side, key, key, key, np.ones(count, np.bool_), np.zeros(count, np.int64))
        assert found_pairs(kept, piece) == found_pairs(fixed, piece)
        changes.append(keeper.between_pieces())
    said = [pair for pair in changes if pair is not None]
    assert changes[:3] == [None] * 3
    assert len(said) >= 2
    assert kept.index_names == said[-1]
    assert said[-1][0] == "scan"


def found_pairs(join: WindowJoin, piece: Arrivals) -> set[tuple[int, int]]:
    return {
        (int(row_a), int(row_b))
        for pairs in join.push(piece)
        for row_a, row_b in zip(pairs.row_a, pairs.row_b, strict=True)
    }


def test_a_few_arrivals_are_no_reason_to_ask() -> None:
    join = WindowJoin(rows(10), rows(10), budget=MemoryBudget(MIB))
    keeper = IndexKeeper(join, PAPER, equality=True)
    assert keeper.between_pieces() is None
    assert join.index_names == ("hash", "hash")


def test_an_index_that_is_built_for_one_batch_must_pay_within_it() -> None:
    costs = typical_costs()
    few, many = (20, 20), (5000, 5000)
    assert choose_for_batch(costs, (50_000, 50_000), few, equality=True) == ("scan", "scan")
    assert choose_for_batch(costs, (50_000, 50_000), many, equality=True) == ("hash", "hash")
    assert choose_for_batch(costs, (50_000, 50_000), few, equality=False) == ("scan", "scan")
    assert set(choose_for_batch(costs, (50_000, 50_000), many, equality=False)) <= {"b+tree", "t-tree"}
    # Nobody of a probes, so b's window needs no index.
    assert choose_for_batch(costs, (50_000, 50_000), (0, 5000), equality=True) == ("hash", "scan")
