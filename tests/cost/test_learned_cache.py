"""What a learning cache holds; its predictions stand beside the operators in `test_models_beside_operators`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from semistream.cost import cachejoin
from semistream.cost.base import Sizes, Workload
from semistream.cost.symbols import IoProfile, UnitCosts

WORKLOAD = Workload(r_rows=50_000, zipf_exponent=1.0, layout="shuffled")
SIZES = Sizes(h_s_rows=2000, page_rows=100, h_r_rows=1000)


def test_rows_of_keys_that_come_back_at_once_wait_less() -> None:
    """Keys of the hottest page go in the middle of a round and come in at its end; nobody lets in those of the last."""
    shares = cachejoin.learned(replace(WORKLOAD, layout="frequency"), SIZES).shares
    assert shares.wait is not None
    assert 2 / 3 <= shares.wait[0] < 0.85
    assert shares.wait[-1] == pytest.approx(1.0, abs=0.01)


def test_keys_share_the_places_of_the_cache() -> None:
    loop = cachejoin.learned(WORKLOAD, SIZES)
    assert loop.cached_keys == pytest.approx(cachejoin.FILLED_SHARE * SIZES.h_r_rows, rel=0.02)
    assert np.all(np.diff(loop.occupancy) <= 1e-9), "a more popular key is in the cache at least as often"


@pytest.mark.parametrize("exponent", (0.3, 0.6, 1.0, 1.3))
def test_a_cache_that_learns_answers_less_than_a_perfect_one_and_more_than_a_random_one(exponent: float) -> None:
    workload = Workload(r_rows=50_000, zipf_exponent=exponent, layout="shuffled")
    hit_share = cachejoin.learned(workload, SIZES).hit_share
    assert SIZES.h_r_rows / workload.keys < hit_share < workload.popularity.share_of_hottest(SIZES.h_r_rows)


def test_without_room_for_a_key_nothing_is_answered_from_the_cache() -> None:
    loop = cachejoin.learned(WORKLOAD, Sizes(h_s_rows=2000, page_rows=100, h_r_rows=0.5))
    assert loop.hit_share == 0


def test_without_room_no_iteration_lets_a_key_in() -> None:
    costs = UnitCosts(*(8 * [1e-7]), io=IoProfile(0.01, 1e8))
    lettings = [
        cachejoin.predict(WORKLOAD, replace(SIZES, h_r_rows=rows), costs).counts.lettings for rows in (0.5, 1000)
    ]
    assert lettings[0] == 0
    assert 0 < lettings[1] < 1
