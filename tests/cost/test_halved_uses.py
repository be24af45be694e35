"""How long a key stays whose uses are halved now and then, beside a simulation of such keys."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.cost.halved_uses import PASSAGES_MAX, PASSAGES_MIN, clearly_more, passages_held

KEYS, TESTS_PER_PASSAGE = 4_000, 6


def simulated(asked_per_passage: float, border: float) -> float:
    """Passages until a key goes that came in with the least number of rows, on average over many keys."""
    rng = np.random.default_rng(5)
    counted = rng.uniform(PASSAGES_MIN, PASSAGES_MAX, KEYS)
    uses = (clearly_more(border) * counted).astype(np.int64)
    held, passages = np.ones(KEYS, np.bool_), 0.0
    while held.any():
        passages += float(held.mean()) / TESTS_PER_PASSAGE
        uses += rng.poisson(asked_per_passage / TESTS_PER_PASSAGE, KEYS)
        counted += 1 / TESTS_PER_PASSAGE
        held &= uses >= border * counted
        halved = counted >= PASSAGES_MAX
        uses[halved] //= 2
        counted[halved] /= PASSAGES_MAX / PASSAGES_MIN
    return passages


@pytest.mark.parametrize("border", (0.5, 1.35, 1.74, 6.0, 20.0))
@pytest.mark.parametrize("deviations", (-0.5, 0.0, 0.4))
def test_keys_stay_as_long_as_in_a_simulation(border: float, deviations: float) -> None:
    asked = border + deviations * np.sqrt(border)
    told = float(passages_held(np.array([asked]), border, TESTS_PER_PASSAGE)[0])
    seen = simulated(asked, border)
    print(f"border {border}, asked {asked:.2f}: {seen:.1f} passages (told {told:.1f})")
    assert told == pytest.approx(seen, rel=0.1)


def test_a_popular_key_stays_for_ever_and_a_key_that_nobody_asks_for_until_its_uses_are_halved_away() -> None:
    never, always = passages_held(np.array([0.0, 30.0]), 2.0, TESTS_PER_PASSAGE)
    assert never < 2 * PASSAGES_MAX
    assert always > 1e6
