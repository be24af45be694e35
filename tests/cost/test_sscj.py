"""SSCJ's frequency recorder: its model beside records that are played out."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.cost.base import Sizes, Workload
from semistream.cost.cachejoin import resting
from semistream.cost.sscj import LEAST_USED_GO, LEAVING_SHARE, found_leaving, recorded_at_most

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


@pytest.mark.parametrize("skew", (0.0, 0.5, 1.0, 1.4))
@pytest.mark.parametrize("cached_rows", (1000.0, 5000.0))
def test_as_many_keys_can_go_as_make_room_and_none_with_more_uses_before_all_with_fewer(
    skew: float, cached_rows: float
) -> None:
    workload = Workload(r_rows=50_000, zipf_exponent=skew)
    sizes = Sizes(h_s_rows=5000.0, page_rows=100, h_r_rows=cached_rows)
    for at_rest in resting(workload, sizes, LEAST_USED_GO).values():
        loop = at_rest.loop
        fewest, evictable = found_leaving(loop)
        held, uses_a_round = loop.count * loop.occupancy, loop.share * loop.round_rows
        assert float((held * evictable).sum()) == pytest.approx(LEAVING_SHARE * held.sum())
        fewer = recorded_at_most(fewest - 1, uses_a_round) if fewest else np.zeros_like(held)
        assert (evictable >= fewer - 1e-12).all()
        assert (evictable <= recorded_at_most(fewest, uses_a_round) + 1e-12).all()
