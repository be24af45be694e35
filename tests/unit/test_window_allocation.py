"""Sharing of processor time and memory between two streams, against the figures of the paper."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.errors import InvalidOption
from semistream.window.allocation import STRATEGIES, Demand, Strategy, allocate, nothing_short

FIGURE_5 = Demand(rate_a=800, rate_b=200, window_a=100, window_b=200)
FIGURE_6 = Demand(rate_a=10, rate_b=50, window_a=1000, window_b=1000)
FIGURE_7 = Demand(rate_a=10, rate_b=10, window_a=100, window_b=100)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("max-a", 200), ("max-b", 100), ("by-rate", 180), ("by-window", 133), ("equal", 150), ("optimum", 200)],
)
def test_figure_5_shares_the_processor(strategy: Strategy, expected: int) -> None:
    given = allocate(FIGURE_5, probes_per_s=100, strategy=strategy, least_share=0)
    assert round(given.output_rows_per_s(0.01)) == expected
    assert given.rate_a + given.rate_b == pytest.approx(100)
    assert given.held_shares == (1, 1)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("max-a", 250), ("max-b", 50), ("by-rate", 83), ("inverse", 217), ("equal", 150), ("optimum", 250)],
)
def test_figure_6_shares_the_memory(strategy: Strategy, expected: int) -> None:
    given = allocate(FIGURE_6, held_rows=1000, strategy=strategy, least_share=0)
    assert round(given.output_rows_per_s(min(0.005, 0.01))) == expected
    assert given.window_a + given.window_b == pytest.approx(1000)
    assert given.probe_shares == (1, 1)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("cross-a", 10), ("cross-b", 10), ("max-a", 0), ("max-b", 0), ("equal", 5), ("optimum", 10)],
)
def test_figure_7_shares_both(strategy: Strategy, expected: int) -> None:
    given = allocate(FIGURE_7, probes_per_s=10, held_rows=100, strategy=strategy, least_share=0)
    assert given.output_rows_per_s(0.01) == pytest.approx(expected)


def test_a_least_share_is_kept_for_each_stream() -> None:
    """The paper's example: of 100 rows a second at least 10 of each stream."""
    demand = Demand(rate_a=1000, rate_b=1000, window_a=500, window_b=1000)
    given = allocate(demand, probes_per_s=100, least_share=0.1)
    assert (given.rate_a, given.rate_b) == (90, 10)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_stream_gets_more_than_it_needs_and_nothing_is_left_over(strategy: Strategy) -> None:
    rng = np.random.default_rng(7)
    for _ in range(300):
        demand = Demand(*(float(value) for value in rng.lognormal(3, 2, 4)))
        probes, held = (float(value) for value in rng.lognormal(3, 2, 2))
        given = allocate(demand, probes_per_s=probes, held_rows=held, strategy=strategy, least_share=0.05)
        assert -1e-9 <= given.rate_a <= demand.rate_a + 1e-9
        assert -1e-9 <= given.rate_b <= demand.rate_b + 1e-9
        assert given.rate_a + given.rate_b == pytest.approx(min(probes, demand.rate_a + demand.rate_b))
        assert -1e-9 <= given.window_a <= demand.window_a + 1e-9
        assert -1e-9 <= given.window_b <= demand.window_b + 1e-9
        assert given.window_a + given.window_b == pytest.approx(min(held, demand.window_a + demand.window_b))


def test_the_optimum_is_not_below_any_way_to_share() -> None:
    rng = np.random.default_rng(11)
    for _ in range(100):
        demand = Demand(*(float(value) for value in rng.lognormal(3, 1.5, 4)))
        probes = float(rng.uniform(0.1, 1)) * (demand.rate_a + demand.rate_b)
        held = float(rng.uniform(0.1, 1)) * (demand.window_a + demand.window_b)
        best = allocate(demand, probes_per_s=probes, held_rows=held, least_share=0).output_rows_per_s(1)
        for x in np.linspace(max(0, probes - demand.rate_b), min(probes, demand.rate_a), 9):
            for y in np.linspace(max(0, held - demand.window_b), min(held, demand.window_a), 9):
                assert x * (held - y) + (probes - x) * y <= best * (1 + 1e-9)


def test_what_gives_the_same_either_way_is_shared_equally() -> None:
    given = allocate(Demand(100, 100, 50, 50), probes_per_s=60)
    assert (given.rate_a, given.rate_b) == (30, 30)


def test_enough_of_everything_is_no_shedding() -> None:
    demand = Demand(10, 20, 30, 40)
    assert allocate(demand, probes_per_s=100, held_rows=100) == nothing_short(demand)
    assert nothing_short(Demand(0, 5, 0, 5)).probe_shares == (1, 1)


@pytest.mark.parametrize("least_share", [-0.1, 0.51])
def test_a_share_that_two_cannot_have_is_an_error(least_share: float) -> None:
    with pytest.raises(InvalidOption, match=r"0 to 0\.5"):
        allocate(FIGURE_5, probes_per_s=1, least_share=least_share)


def test_an_unknown_strategy_is_an_error_with_the_nearest() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'by-rate'"):
        allocate(FIGURE_5, probes_per_s=1, strategy="byrate")  # type: ignore[arg-type]


def test_nothing_to_share_and_negative_needs_are_errors() -> None:
    with pytest.raises(InvalidOption, match="must be positive"):
        allocate(FIGURE_5, held_rows=0)
    with pytest.raises(InvalidOption, match="`rate_b` must not be negative"):
        Demand(1, -1, 1, 1)
