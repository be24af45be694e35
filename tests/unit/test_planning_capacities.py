"""Planned sizes are those that the operators really have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import BudgetExceeded
from semistream.joins.division import least_memory_bytes
from semistream.joins.registry import ALGORITHMS
from semistream.planning.capacities import (
    Room,
    held_rows,
    predict_for,
    remembered_bytes,
    sampled_rows_per_key,
    sizes_of,
    workload_of,
)
from semistream.planning.charging import typical
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD
from semistream.relations.partitioned import split_in_memory

pytestmark = pytest.mark.long


ROWS = 20_000


def relation(page_rows: int = 50, rows_per_key: int = 1) -> MemoryRelation:
    codes = np.repeat(np.arange(ROWS // rows_per_key), rows_per_key)
    return MemoryRelation.from_table(pa.table({"k": codes, "a": codes, "b": codes}), ["k"], page_rows=page_rows)


@pytest.mark.parametrize("memory_bytes", [200_000, 1_000_000, 5_000_000])
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("hybridjoin", {}),
        ("moij", {}),
        ("ssbj", {}),
        ("meshjoin", {}),
        ("r-meshjoin", {"parts": 3}),
        ("x-hybridjoin", {"pinned_pages": 7}),
        ("tuned-x-hybridjoin", {}),
        ("cachejoin", {"cache_share": 0.3}),
        ("sscj", {}),
        ("optimised-x-hybridjoin", {"pinned_share": 0.6}),
    ],
)
def test_as_many_rows_can_wait_and_be_held_as_was_planned(
    name: str, settings: dict[str, Any], memory_bytes: int
) -> None:
    room, r = Room(memory_bytes), relation()
    join: Any = ALGORITHMS[name].build(r, room.resources(), **settings)
    sizes = sizes_of(name, r, room, settings)
    if "mesh" in name:
        assert sizes.h_s_rows == join.cell_rows_max * join.iterations_per_round
        assert sizes.segments == settings.get("parts", 1)
    else:
        assert sizes.h_s_rows == join.waiting.rows_max
    if name in ("cachejoin", "sscj", "optimised-x-hybridjoin"):
        assert sizes.h_r_rows == min(join.held.entries_max, ROWS)
    if "tuned" in name:
        assert sizes.h_r_rows == join._pinned_pages * 50


@pytest.mark.parametrize("name", ["moij", "ssbj"])
@pytest.mark.parametrize("more_bytes", [0, 300, 1_000, 5_000])
def test_a_store_of_a_few_rows_is_planned_as_it_is(name: str, more_bytes: int) -> None:
    r = relation()
    room = Room(least_memory_bytes(r, 20) + more_bytes)
    join: Any = ALGORITHMS[name].build(r, room.resources())
    assert sizes_of(name, r, room).h_s_rows == join.waiting.rows_max
    workload = workload_of(r, room, zipf_exponent=2.0)
    told = predict_for(name, r, room, workload, typical(HDD))
    assert 0 < told.w_n + told.w_s < math.inf


@pytest.mark.parametrize("memory_bytes", [200_000, 1_000_000, 5_000_000])
def test_adaptive_remembers_as_much_as_was_planned(memory_bytes: int) -> None:
    room, r = Room(memory_bytes), relation()
    join: Any = ALGORITHMS["adaptive"].build(r, room.resources())
    sizes = sizes_of("adaptive", r, room)
    # The operator does not set aside its (empty) set of absent keys, the plan does: up to a sixth of the keys.
    assert sizes.h_r_rows == pytest.approx(min(join.knowledge.remembered.entries_max, ROWS), rel=0.2)
    assert sizes.rows_per_step == join._division.rows_per_step
    assert remembered_bytes(r, room) < memory_bytes


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_every_part_of_pcsrj_has_the_room_that_was_planned(parts: int) -> None:
    room, r = Room(1_000_000), split_in_memory(relation(), parts, page_rows=50)
    join: Any = ALGORITHMS["pcsrj"].build(r, room.resources())
    sizes = sizes_of("pcsrj", r, room)
    assert sizes.partitions == parts
    assert min(part.waiting.rows_max for part in join.joins) == sizes.h_s_rows


def test_keys_with_many_rows_are_held_whole() -> None:
    single, many = relation(), relation(rows_per_key=10)
    assert held_rows(many, 100_000, 10.0) % 1 == pytest.approx(0, abs=1)
    assert held_rows(single, 100_000) < held_rows(many, 100_000, 10.0) < 100_000 / many.info.row_bytes_mean


def test_a_room_that_is_too_small_is_refused_as_the_operator_refuses_it() -> None:
    with pytest.raises(BudgetExceeded, match="too small"):
        sizes_of("hybridjoin", relation(page_rows=10_000), Room(100_000))


def test_a_scan_of_more_pages_than_rows_can_wait_is_not_planned_with_more_rows_than_fit() -> None:
    r, room = relation(page_rows=2), Room(200_000)
    join: Any = ALGORITHMS["meshjoin"].build(r, room.resources())
    assert join.waiting.rows_max < r.info.page_count
    assert sizes_of("meshjoin", r, room).h_s_rows == join.waiting.rows_max


@pytest.mark.parametrize("rows_per_key", [1, 4, 10])
def test_how_often_keys_repeat_is_learned_from_a_few_pages(rows_per_key: int) -> None:
    assert sampled_rows_per_key(relation(rows_per_key=rows_per_key)) == rows_per_key
