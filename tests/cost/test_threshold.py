"""Where a threshold rests: the weights beside a walk that is played out."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from semistream.cost.threshold import THRESHOLD_MAX, weights, what_is_held

PARTS_MAX, PART_KEYS, SPAN_ROUNDS = 15, 100, 4


def told(*parts: float) -> dict[int, float]:
    """Weights where so many parts come in in a span under the thresholds 1, 2, ..., and nothing further on."""
    return weights(
        dict(enumerate((*parts, *(0.0 for _ in range(THRESHOLD_MAX))), start=1)).__getitem__, PARTS_MAX, PART_KEYS
    )


def walked(parts_in: tuple[float, ...], steps: int) -> dict[int, float]:
    """The share of spans under each threshold, played out: keys come in, and full parts make room."""
    rng = np.random.default_rng(5)
    threshold, seen = 1, dict.fromkeys(range(1, len(parts_in) + 2), 0)
    for _ in range(steps):
        seen[threshold] += 1
        keys = rng.poisson(PART_KEYS * (*parts_in, 0.0)[threshold - 1])
        # A span begins anywhere between two parts.
        parts = int(rng.random() + keys / PART_KEYS)
        if parts > PARTS_MAX:
            threshold += 1
        elif parts == 0:
            threshold = max(1, threshold - 1)
    return {at: count / steps for at, count in seen.items()}


@pytest.mark.parametrize(
    "parts",
    [
        (60.0, 26.0, 6.4),
        (60.0, 15.4, 15.1, 14.4, 13.6),
        (60.0, 14.6, 0.95),
        (60.0, 15.5, 0.4),
        (60.0, 20.0, 0.2),
        (60.0, 15.2, 0.9),
        (30.0, 0.0),
    ],
)
def test_weights_are_those_of_the_walk(parts: tuple[float, ...]) -> None:
    seen, found = walked(parts, 100_000), told(*parts)
    assert sum(found.values()) == pytest.approx(1.0)
    for threshold in seen | found:
        assert found.get(threshold, 0.0) == pytest.approx(seen.get(threshold, 0.0), abs=0.02), threshold


def test_it_rests_at_the_least_threshold_under_which_not_all_of_the_cache_is_replaced() -> None:
    assert told(400.0, 26.0, 6.4, 2.0) == {3: 1.0}
    assert told(*np.linspace(400.0, 10.0, 40)) == {40: 1.0}


def test_where_one_busy_span_in_hundreds_is_enough_it_rises() -> None:
    assert told(60.0, 14.4, 6.0) == {3: 1.0}
    assert told(60.0, 13.5, 6.0) == {2: 1.0}


def test_a_cache_into_which_hardly_anything_comes_rests_at_the_least_threshold() -> None:
    assert told(0.2) == {1: 1.0}


def played_out(below: float, above: float, rounds: int) -> float:
    """The share of a cache that came in under the higher of two thresholds, round by round and part by part."""
    rng = np.random.default_rng(7)
    threshold, gathered, quiet_rounds, held = 2, 0.0, 0, 0.0
    replaced: deque[int] = deque(maxlen=SPAN_ROUNDS)
    came_under = np.full(PARTS_MAX, threshold)
    for _ in range(rounds):
        gathered += rng.poisson(PART_KEYS * {1: below, 2: above}[threshold] / SPAN_ROUNDS) / PART_KEYS
        parts, gathered = int(gathered), gathered % 1.0
        for _ in range(parts):
            came_under[rng.integers(PARTS_MAX)] = threshold
        replaced.append(parts)
        quiet_rounds = 0 if parts else quiet_rounds + 1
        if threshold == 1 and sum(replaced) > PARTS_MAX:
            threshold = 2
            replaced.clear()
        elif quiet_rounds >= SPAN_ROUNDS:
            threshold = 1
        held += float((came_under == 2).mean())
    return held / rounds


@pytest.mark.parametrize(
    ("below", "above"), [(22.0, 1.2), (22.0, 1.1), (19.0, 1.0), (19.0, 0.9), (40.0, 0.8), (30.0, 0.5)]
)
def test_what_a_higher_threshold_lets_in_is_held_less_often_than_it_holds(below: float, above: float) -> None:
    parts = {1: below, 2: above}
    resting = weights(lambda at: parts.get(at, 400.0), PARTS_MAX, PART_KEYS)
    held = what_is_held(resting, parts.__getitem__, PARTS_MAX, PART_KEYS, SPAN_ROUNDS)
    assert sum(held.values()) == pytest.approx(1.0)
    assert held[2] < resting[2]
    assert held[2] == pytest.approx(played_out(below, above, 200_000), abs=0.05)


def test_where_a_threshold_never_falls_what_it_lets_in_is_held() -> None:
    assert what_is_held({3: 1.0}, {3: 6.0}.__getitem__, PARTS_MAX, PART_KEYS, SPAN_ROUNDS) == {3: 1.0}
