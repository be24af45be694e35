"""What a learning cache holds; its predictions stand beside the operators in `test_models_beside_operators`."""

from __future__ import annotations

import math

import numpy as np
import pytest

from semistream.cost import cachejoin
from semistream.cost.base import Sizes, Workload
from semistream.cost.learned_cache import EXACT_TERMS, at_least

WORKLOAD = Workload(r_rows=50_000, zipf_exponent=1.0, layout="shuffled")
SIZES = Sizes(h_s_rows=2000, page_rows=100, h_r_rows=1000)


def summed(mean: float, least: int) -> float:
    logs = [number * math.log(mean) - mean - math.lgamma(number + 1) for number in range(least)]
    return 1.0 - sum(map(math.exp, logs))


@pytest.mark.parametrize("least", [1, 2, 7, EXACT_TERMS, EXACT_TERMS + 1, 700])
def test_the_tail_of_a_poisson_number_is_that_of_its_sum(least: int) -> None:
    means = least * np.array([0.2, 0.8, 1.0, 1.3, 3.0])
    expected = [summed(mean, least) for mean in means.tolist()]
    assert at_least(means, least) == pytest.approx(expected, abs=1e-3)


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
