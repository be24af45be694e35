"""Where a threshold rests: the walk's weights beside the walk itself."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.cost.threshold import ROUNDS_WAITED, Round, weights

PARTS_MAX = 7


def rounds(*means: float, deviation: float = 0.0) -> dict[int, Round]:
    """Rounds under the thresholds 1, 2, ...; the last ones let in nothing."""
    return {at: Round(mean, deviation, PARTS_MAX) for at, mean in enumerate((*means, 0.0, 0.0), start=1)}


def walked(under: dict[int, Round], steps: int) -> dict[int, float]:
    """The share of rounds under each threshold, played out: keys come in, and full parts make room."""
    rng = np.random.default_rng(5)
    threshold, filled = 1, rng.random()
    seen: dict[int, int] = {}
    for _ in range(steps):
        seen[threshold] = seen.get(threshold, 0) + 1
        now = under[threshold]
        filled += max(0.0, rng.normal(now.mean, now.deviation))
        parts, filled = int(filled), filled % 1.0
        if parts > now.parts_max:
            threshold += 1
        elif parts == 0:
            threshold = max(1, threshold - 1)
    return {at: count / steps for at, count in seen.items()}


@pytest.mark.parametrize(
    ("mean", "rises", "falls"), [(0.0, 0.0, 1.0), (0.7, 0.0, 0.3), (4.0, 0.0, 0.0), (7.2, 0.2, 0.0), (12.0, 1.0, 0.0)]
)
def test_a_round_sees_the_whole_number_of_parts_below_or_above(mean: float, rises: float, falls: float) -> None:
    assert (Round(mean, 0.0, PARTS_MAX).rises, Round(mean, 0.0, PARTS_MAX).falls) == pytest.approx((rises, falls))
    assert Round(mean, 1e-6, PARTS_MAX).rises == pytest.approx(rises, abs=1e-5)


@pytest.mark.parametrize(("mean", "deviation"), [(7.0, 0.3), (6.2, 0.8), (1.1, 0.2), (0.4, 0.9), (8.0, 2.0)])
def test_what_is_beyond_is_the_mean_over_a_normal_number(mean: float, deviation: float) -> None:
    drawn = np.random.default_rng(2).normal(mean, deviation, 400_000)
    now = Round(mean, deviation, PARTS_MAX)
    assert now.rises == pytest.approx(float(np.clip(drawn - PARTS_MAX, 0, 1).mean()), abs=2e-3)
    assert now.falls == pytest.approx(float(np.clip(1 - drawn, 0, 1).mean()), abs=2e-3)


@pytest.mark.parametrize(
    "means", [(16.0, 7.3, 0.6), (16.0, 7.1, 0.5), (9.0, 7.5, 0.8), (16.0, 9.0, 3.0), (16.0, 12.0, 7.4, 0.7)]
)
def test_weights_are_those_of_the_walk(means: tuple[float, ...]) -> None:
    under = rounds(*means, deviation=0.4)
    seen, told = walked(under, 100_000), weights(under.__getitem__)
    assert sum(told.values()) == pytest.approx(1.0)
    for threshold in seen | told:
        assert told.get(threshold, 0.0) == pytest.approx(seen.get(threshold, 0.0), abs=0.05), threshold


def test_a_step_that_takes_too_long_is_not_waited_for() -> None:
    """At 2 the threshold rises once in a while, at 3 it would never fall."""
    often, seldom = 2.0 / ROUNDS_WAITED, 0.5 / ROUNDS_WAITED
    assert weights(rounds(16.0, PARTS_MAX + often, 3.0).__getitem__) == {3: 1.0}
    assert weights(rounds(16.0, PARTS_MAX + seldom, 3.0).__getitem__) == {2: 1.0}


def test_a_cache_into_which_hardly_anything_comes_rests_at_the_least_threshold() -> None:
    assert weights(rounds(0.2).__getitem__) == {1: 1.0}
