"""SSCJ's frequency recorder: its model beside records that are played out."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.cost.sscj import recorded_at_most

KEYS, ROUNDS = 100_000, 20


@pytest.mark.parametrize("uses_a_round", (0.05, 0.5, 1.0, 3.0, 12.0))
def test_a_record_is_halved_and_rounded_every_round(uses_a_round: float) -> None:
    rng = np.random.default_rng(7)
    record = np.zeros(KEYS, np.int64)
    for _ in range(ROUNDS):
        record = (record + rng.poisson(uses_a_round, KEYS)) // 2
    found = record + rng.poisson(uses_a_round * rng.random(KEYS))
    for fewest in (0, 1, 4, 15):
        seen, told = float(np.mean(found <= fewest)), float(recorded_at_most(fewest, np.array([uses_a_round]))[0])
        assert told == pytest.approx(seen, abs=0.01), fewest
