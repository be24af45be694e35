"""When counts are halved: rarely while hits are steady, altogether when they fall."""

from __future__ import annotations

import numpy as np

from semistream.joins.aging import ALL, PERIOD_MAX, PERIOD_MIN, Aging

ENTRIES = 2000


def halvings(aging: Aging, share: float, looks: int, rng: np.random.Generator) -> list[int]:
    """What is due after each of so many looks at hits of this share."""
    due = []
    for _ in range(looks):
        aging.note(ENTRIES, int(rng.binomial(ENTRIES, share)))
        due.append(aging.due())
    return due


def test_a_steady_stream_is_halved_after_periods_that_double_up_to_the_longest() -> None:
    due = halvings(Aging(ENTRIES), 0.6, 4 * PERIOD_MAX, np.random.default_rng(1))
    halved_after = np.diff([-1, *np.flatnonzero(due)])
    assert halved_after.tolist() == [20, 40, 80, 160, 320, 640, 640, 640]
    assert set(due) == {0, 1}


def test_chance_alone_does_not_make_counts_be_forgotten() -> None:
    for seed in range(20):
        for share in (0.02, 0.3, 0.97):
            assert ALL not in halvings(Aging(ENTRIES), share, 500, np.random.default_rng(seed)), f"seed {seed}"


def test_a_fall_of_hits_makes_everything_be_forgotten_once_and_periods_short_again() -> None:
    rng = np.random.default_rng(2)
    aging = Aging(ENTRIES)
    halvings(aging, 0.7, 500, rng)
    after = halvings(aging, 0.2, PERIOD_MIN + 1, rng)
    assert after[0] == ALL
    assert after[1:PERIOD_MIN] == [0] * (PERIOD_MIN - 1)
    assert 1 in after


def test_a_slow_rise_is_no_fall() -> None:
    rng = np.random.default_rng(3)
    aging = Aging(ENTRIES)
    for share in np.linspace(0.1, 0.8, 200):
        assert ALL not in halvings(aging, float(share), 1, rng)


def test_the_outlook_is_the_length_of_a_period_over_what_was_counted() -> None:
    aging = Aging(ENTRIES)
    aging.note(5 * ENTRIES, 0)
    assert aging.outlook == PERIOD_MIN / 5
    aging.note((PERIOD_MIN - 5) * ENTRIES, 0)
    assert aging.outlook == 1
    # Half of what was counted is left, and the next period is twice as long.
    assert aging.due() == 1
    assert aging.outlook == 4
    other = Aging(ENTRIES)
    other.go_on_from(aging.as_numbers())
    assert other.outlook == aging.outlook
