"""MOIJ's theorems, and where the cache settles."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from semistream.cost import moij, ssbj
from semistream.cost.base import Sizes, Workload
from semistream.cost.cache_inequality import is_cached, least_bytes, settled_cache, waiting_rows_beside
from semistream.cost.symbols import IoProfile, UnitCosts

COSTS = UnitCosts(1e-7, 2e-7, 3e-7, 4e-7, 5e-7, 6e-7, 7e-7, 8e-7, IoProfile(seek_s=0.01, bytes_per_s=1e8))
WORKLOAD = Workload(r_rows=100_000, zipf_exponent=1.0)
SIZES = Sizes(h_s_rows=20_000, page_rows=500, queue_node_bytes=0)


def test_no_placement_needs_less_than_the_rule() -> None:
    matches, waiting = np.array([4, 2, 1, 7, 3]), np.array([3, 3, 9, 1, 3])
    placements = (
        sum(m * 120.0 if cached else n * 100.0 for m, n, cached in zip(matches, waiting, chosen, strict=True))
        for chosen in product((False, True), repeat=5)
    )
    assert least_bytes(matches, waiting, 120, 100) == min(placements)


def test_the_papers_example_caches_the_part_with_few_suppliers_only() -> None:
    # Part 10 has four suppliers, part 30 two; three sales of each wait, and rows are of one size.
    assert is_cached([4, 2], [3, 3], 100, 100).tolist() == [False, True]


def test_a_tie_is_not_worth_a_move() -> None:
    assert is_cached([1], [6], 120, 20).tolist() == [False]


@pytest.mark.parametrize("exponent", (0.5, 0.8, 1.0, 1.2))
@pytest.mark.parametrize("rows_per_key", (1.0, 3.0))
def test_the_settled_placement_needs_the_least_memory(exponent: float, rows_per_key: float) -> None:
    workload = replace(WORKLOAD, zipf_exponent=exponent, rows_per_key=rows_per_key)
    cached = settled_cache(workload, SIZES)
    waiting_rows = waiting_rows_beside(workload, SIZES, cached)
    popularity = workload.popularity
    stream_rows = waiting_rows / (1 - popularity.share_of_hottest(cached))
    shares = np.diff(popularity.cumulative(np.arange(workload.keys + 1)))
    least = least_bytes(np.full(workload.keys, rows_per_key), shares * stream_rows, 120, 20)
    assert SIZES.h_s_rows * 20 == pytest.approx(least, rel=0.005)


@pytest.mark.parametrize("exponent", (0.0, 0.01))
@pytest.mark.parametrize("model", (moij, ssbj))
def test_a_uniform_stream_leaves_the_cache_empty(model: object, exponent: float) -> None:
    prediction = model.predict(replace(WORKLOAD, zipf_exponent=exponent), SIZES, COSTS)  # type: ignore[attr-defined]
    # Chance lets a key in now and then; less than one of the keys is in the cache at a time.
    assert prediction.remembered_rows < 1
    assert prediction.hit_share < 1e-6


@pytest.mark.parametrize("model", (moij, ssbj))
def test_more_skew_caches_more_of_the_stream(model: object) -> None:
    hits = [
        model.predict(replace(WORKLOAD, zipf_exponent=exponent), SIZES, COSTS).hit_share  # type: ignore[attr-defined]
        for exponent in (0.3, 0.6, 0.9, 1.2)
    ]
    assert hits == sorted(hits)
    assert hits[-1] > 0.7


def test_many_rows_a_key_make_a_cached_key_dearer() -> None:
    one = moij.predict(WORKLOAD, SIZES, COSTS)
    four = moij.predict(replace(WORKLOAD, r_rows=400_000, rows_per_key=4.0), SIZES, COSTS)
    assert four.remembered_rows / 4 < one.remembered_rows
    assert four.hit_share < one.hit_share


def test_both_tables_together_fill_the_memory_that_was_given() -> None:
    memory = moij.memory_bytes(WORKLOAD, SIZES)
    assert memory["H_R"] + memory["H_S"] + memory["queue"] == pytest.approx(SIZES.h_s_rows * 20)


def test_moij_tests_its_cache_every_ten_iterations_and_ssbj_once_a_scan() -> None:
    prediction = moij.predict(WORKLOAD, SIZES, COSTS)
    assert prediction.counts.eviction_tests == pytest.approx(prediction.remembered_rows / 10)
    scanned = ssbj.predict(WORKLOAD, SIZES, COSTS)
    assert scanned.counts.eviction_tests == pytest.approx(scanned.remembered_rows / 200)
    assert scanned.counts.seeks == 1 / 200
