"""Costs of window indexes: what is measured, on a clock that a test can move."""

from __future__ import annotations

import pytest

from semistream.cost.window_join import INDEX_NAMES, TouchedTuples, WindowWorkload, best_pair
from semistream.planning.window_calibrate import ROUNDS, WindowCalibration, calibrate_windows

SIZES = (50, 200)


class StepClock:
    """A clock that moves by one second whenever it is read."""

    def __init__(self) -> None:
        self.readings = 0

    def now_s(self) -> float:
        self.readings += 1
        return float(self.readings)


def test_both_operations_of_all_indexes_are_measured_at_all_sizes() -> None:
    clock, turns = StepClock(), []
    found = calibrate_windows(clock, window_rows=SIZES, on_round=lambda done, total: turns.append((done, total)))
    assert set(found.probes_s) == set(found.updates_s) == set(INDEX_NAMES)
    assert all(tuple(costs) == SIZES for costs in (*found.probes_s.values(), *found.updates_s.values()))
    assert clock.readings == 2 * ROUNDS * 2 * len(SIZES) * len(INDEX_NAMES)
    assert turns == [(turn, ROUNDS) for turn in range(1, ROUNDS + 1)]
    assert best_pair(found.curves(), WindowWorkload(1, 1, 100, 100))[0] in INDEX_NAMES


def test_weights_are_found_again_from_the_costs_that_they_make() -> None:
    paper = TouchedTuples()
    sizes = (100, 1000, 10_000)
    costs = WindowCalibration(
        {index: {size: paper.probe(index, size) for size in sizes} for index in INDEX_NAMES},
        {index: {size: paper.update(index, size) for size in sizes} for index in INDEX_NAMES},
        arrival_s=0.0,
        bucket_rows=10,
        node_rows=100,
    )
    fitted = costs.weights()
    for index in INDEX_NAMES:
        assert fitted.weights[index].search == pytest.approx(paper.weights[index].search)
        assert fitted.weights[index].update == pytest.approx(paper.weights[index].update)
        assert costs.curves().probe(index, 1000) == pytest.approx(paper.probe(index, 1000))
