"""The two constants of c_loop, on a clock whose time is known."""

from __future__ import annotations

import pytest

from semistream.clock import CpuClock
from semistream.cost.symbols import IoProfile, UnitCosts
from semistream.planning.loops import LoopPoint, LoopSize, _fit, measure_loops

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
