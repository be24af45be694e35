"""The two constants of c_loop, on a clock whose time is known."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.clock import CpuClock
from semistream.cost.symbols import IoProfile, UnitCosts
from semistream.planning.loops import LoopPoint, LoopSize, _fit, _Run, _Setting, _undisturbed, measure_loops

SIZE = LoopSize(2000, 50, 200_000)
COSTS = UnitCosts(*(8 * [1e-7]), io=IoProfile(0.01, 1e8))


@pytest.mark.parametrize(("fixed_s", "factor"), [(3e-4, 1.5), (0.0, 2.0), (5e-4, 0.0)])
def test_constants_that_made_the_points_are_found(fixed_s: float, factor: float) -> None:
    points = [LoopPoint(SIZE, fixed_s + factor * counted, counted, 0.0) for counted in (1e-4, 3e-4, 9e-4)]
    assert _fit(points) == pytest.approx((fixed_s, factor), abs=1e-12)


def test_neither_constant_is_negative() -> None:
    falling = [LoopPoint(SIZE, 1e-3 / counted, counted, 0.0) for counted in (1.0, 2.0, 4.0)]
    steep = [LoopPoint(SIZE, counted - 0.5, counted, 0.0) for counted in (1.0, 2.0, 4.0)]
    assert min(*_fit(falling), *_fit(steep)) >= 0


@pytest.mark.parametrize("algorithm", ["meshjoin", "moij"])
def test_iterations_are_timed_and_predicted(algorithm: str) -> None:
    (found,) = measure_loops(COSTS, CpuClock(), [algorithm], fitted=(SIZE, LoopSize(2000, 100, 400_000)), tried=(SIZE,))
    assert found.algorithm == algorithm
    assert found.tried[0].measured_s > 0
    assert found.tried[0].predicted_s == pytest.approx(found.fixed_s + found.factor * found.tried[0].unit_costs_s)


@pytest.mark.parametrize(("algorithm", "lets_in"), [("sscj", True), ("cachejoin", True), ("hybridjoin", False)])
def test_letting_keys_in_has_a_price(algorithm: str, lets_in: bool) -> None:
    free, priced = (_Setting.of(algorithm, SIZE, COSTS, letting_s).unit_costs_s for letting_s in (0.0, 1.0))
    assert (0.0 < priced - free <= 1.0) if lets_in else priced == free


def test_a_run_goes_on_where_it_was_and_counts_its_iterations() -> None:
    run = _Run(_Setting.of("hybridjoin", SIZE, COSTS, 0.0), CpuClock())
    parts = [run.go_on(run.setting.part_rows) for _ in range(4)]
    assert all(seconds > 0 for seconds, _ in parts)
    assert sum(iterations for _, iterations in parts) == run._join.stats.iterations > 0


def test_what_hits_a_whole_stretch_or_one_size_of_it_does_not_show() -> None:
    quiet = np.array([1e-3, 2e-3, 5e-4])
    stretches = quiet * np.array([[1.5], [1.0], [1.2], [1.4], [1.1]])
    assert _undisturbed(stretches) == pytest.approx(quiet)
    stretches[3, 1] *= 1.1
    assert _undisturbed(stretches) == pytest.approx(quiet)


@pytest.mark.parametrize("algorithm", ["hybridjoin", "sscj"])
def test_a_run_warms_up_until_what_it_remembers_has_come_to_rest(algorithm: str) -> None:
    run = _Run(_Setting.of(algorithm, SIZE, COSTS, 0.0), CpuClock())
    run.warm_up()
    remembered = run._keys_remembered
    assert (remembered > 0) == (algorithm == "sscj")
    run.go_on(run.setting.warm_up_rows)
    assert run._keys_remembered == pytest.approx(remembered, rel=0.1)
