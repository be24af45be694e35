"""adaptive where seeking is dear: rows wait for their page, and pages are read in the order in which they lie."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.joins.adaptive import AdaptiveJoin
from semistream.joins.base import JoinResources
from semistream.joins.sweeping import Sweeping
from semistream.joins.timed import run_timed
from semistream.lab.workloads.zipf import Shuffle, Zipf
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, IoProfile, MeteredRelation
from tests.support.oracle import assert_same_rows, duckdb_join
from tests.support.running import make_driver

pytestmark = pytest.mark.long

KEYS, PAGE_ROWS, STREAM_ROW_BYTES = 20_000, 100, 20
MEMORY = IoProfile("memory", seek_s=0.0, bytes_per_s=math.inf)
SLOW_SEGMENT_S = 0.001


class Notes(MeteredRelation):
    """Writes down which segments were read."""

    def __init__(self, inner: Any, profile: IoProfile, clock: VirtualClock) -> None:
        super().__init__(inner, profile, clock)
        self.segments: list[int] = []

    def _read_segment(self, number: int) -> pa.RecordBatch:
        self.segments.append(number)
        return super()._read_segment(number)


class ChangingDisk(MeteredRelation):
    """Reads get dearer once there is something to remember."""

    def become(self, profile: IoProfile) -> None:
        self._profile = profile


def noted(profile: IoProfile, clock: VirtualClock) -> Notes:
    table = pa.table({"k": np.arange(KEYS), "text": np.full(KEYS, "x" * 80)})
    return Notes(MemoryRelation.from_table(table, ["k"], page_rows=PAGE_ROWS), profile, clock)


def run(
    exponent: float, rows: int, profile: IoProfile = HDD, memory_bytes: int = 400_000
) -> tuple[AdaptiveJoin, Notes]:
    clock = VirtualClock()
    relation = noted(profile, clock)
    resources = JoinResources(MemoryBudget(memory_bytes), clock, 10_000, STREAM_ROW_BYTES)
    join = AdaptiveJoin(relation, resources)
    codes = Shuffle(KEYS, 1)(Zipf(KEYS, exponent).sample(np.random.default_rng(3), rows))
    run_timed(join, codes, np.zeros(rows), clock)
    assert resources.budget.peak_bytes <= memory_bytes
    return join, relation


def way_of(join: AdaptiveJoin) -> Sweeping:
    assert isinstance(join._way, Sweeping)
    return join._way


def test_on_a_disk_rows_wait_and_in_memory_they_do_not() -> None:
    assert run(0.8, 40_000, HDD)[0].is_sweeping
    assert not run(0.8, 40_000, MEMORY)[0].is_sweeping


def test_where_rows_may_not_wait_they_do_not() -> None:
    clock = VirtualClock()
    resources = JoinResources(MemoryBudget(400_000), clock, 10_000, STREAM_ROW_BYTES, rows_may_wait=False)
    join = AdaptiveJoin(noted(HDD, clock), resources)
    run_timed(join, np.arange(0, KEYS, 2), np.zeros(KEYS // 2), clock)
    assert not join.is_sweeping


@pytest.mark.parametrize("memory_bytes", [1_500_000, 1_800_000])
def test_a_memory_full_of_remembered_rows_makes_room_for_the_disk_buffer(memory_bytes: int) -> None:
    keys, rows, clock = 40_000, 200_000, VirtualClock()
    table = pa.table({"k": np.arange(keys), "text": np.full(keys, "x" * 100)})
    relation = ChangingDisk(MemoryRelation.from_table(table, ["k"], page_rows=1800), MEMORY, clock)
    resources = JoinResources(MemoryBudget(memory_bytes), clock, 20_000, STREAM_ROW_BYTES)
    join, rng = AdaptiveJoin(relation, resources), np.random.default_rng(3)
    run_timed(join, rng.integers(0, keys, rows), np.zeros(rows), clock)
    assert not join.is_sweeping
    relation.become(HDD)
    run_timed(join, rng.integers(0, keys, rows), np.full(rows, clock.now_s()), clock)
    assert join.is_sweeping
    assert resources.budget.peak_bytes <= memory_bytes


def test_pages_are_read_in_their_order_again_and_again() -> None:
    join, relation = run(0.0, 60_000)
    # From the second round on, when it is certain that nothing else is read.
    sweep = relation.segments[3 * KEYS // PAGE_ROWS :]
    turns = [later for earlier, later in pairwise(sweep) if later <= earlier]
    assert len(turns) <= len(sweep) // (KEYS // PAGE_ROWS // 2)
    assert join.stats.rows == 60_000


def test_a_round_serves_twice_as_many_rows_as_can_wait() -> None:
    join, relation = run(0.0, 200_000)
    way = way_of(join)
    rounds = len(relation.segments) / (KEYS / PAGE_ROWS)
    # Without skew nothing is worth remembering, so the lists end up with nearly all memory; the way there counts, too.
    assert 1.5 * way.lists.rows_max <= join.stats.waited / rounds <= 2.1 * way.lists.rows_max


def test_the_border_moves_towards_what_a_byte_is_worth() -> None:
    ways = (way_of(run(exponent, 300_000)[0]) for exponent in (0.0, 1.1))
    without_skew, with_skew = (way._remembered_bytes / way._division.store_bytes for way in ways)
    assert without_skew < 0.2
    assert with_skew > 0.3


class SlowScan(Notes):
    """Keys cost nothing and segments do."""

    def _read_segment(self, number: int) -> pa.RecordBatch:
        self._clock.advance(SLOW_SEGMENT_S)
        return super()._read_segment(number)


def test_sweeps_that_turn_out_to_be_dear_are_given_up() -> None:
    clock = VirtualClock()
    relation = SlowScan(noted(MEMORY, clock), MEMORY, clock)
    join = AdaptiveJoin(relation, JoinResources(MemoryBudget(400_000), clock, 10_000, STREAM_ROW_BYTES))
    assert join._sweeps is not None
    join._begin_to_sweep(join._sweeps)
    codes = np.random.default_rng(5).integers(0, KEYS, 60_000)
    run_timed(join, codes, np.zeros(len(codes)), clock)
    assert not join.is_sweeping
    assert len(relation.segments) < 4 * KEYS // PAGE_ROWS


@pytest.mark.parametrize("seed", range(3))
def test_sweeps_are_not_given_up_where_rows_come_so_slowly_that_hardly_two_share_a_page(seed: int) -> None:
    """Then a row costs as much either way, and in sweeps no row waits until others are answered."""
    clock, rows = VirtualClock(), 3000
    relation = noted(HDD, clock)
    join = AdaptiveJoin(relation, JoinResources(MemoryBudget(200_000), clock, 10_000, STREAM_ROW_BYTES))
    codes = Shuffle(KEYS, 1)(Zipf(KEYS, 1.0).sample(np.random.default_rng(seed), rows))
    run = run_timed(join, codes, np.arange(rows) / 150, clock)
    assert join.is_sweeping
    assert run.waiting_s.mean() < HDD.seek_s


def test_where_nothing_can_be_remembered_all_memory_is_for_rows_that_wait() -> None:
    clock = VirtualClock()
    table = pa.table({"k": np.arange(KEYS), "list": [[1, 2]] * KEYS})
    relation = MeteredRelation(MemoryRelation.from_table(table, ["k"], page_rows=PAGE_ROWS), HDD, clock)
    join = AdaptiveJoin(relation, JoinResources(MemoryBudget(400_000), clock, 10_000, STREAM_ROW_BYTES))
    assert join._sweeps is not None
    join._begin_to_sweep(join._sweeps)
    assert way_of(join).lists.rows_max == way_of(join)._rows_beside(0)


@pytest.mark.parametrize("text_bytes", [0, 40, 400])
@pytest.mark.parametrize("batch_rows", [7, 1000])
def test_rows_that_are_larger_than_expected_wait_in_smaller_numbers(text_bytes: int, batch_rows: int) -> None:
    rng = np.random.default_rng(text_bytes)
    master = pa.table({"k": np.arange(0, 3000, 2), "text": np.full(1500, "x" * 60)})
    stream = pa.table({"k": rng.integers(0, 3200, 8000), "row": np.arange(8000), "note": ["n" * text_bytes] * 8000})
    clock = VirtualClock()
    relation = MeteredRelation(MemoryRelation.from_table(master, ["k"], page_rows=20), HDD, clock)
    options: dict[str, Any] = {"memory_bytes": 120_000, "stream_row_bytes": 30, "clock": clock}
    driver, budget = make_driver(relation, stream.schema, ["k"], **options)
    pieces = []
    for batch in stream.to_batches(batch_rows):
        pieces += driver.push(batch, ["k"])
    pieces += driver.drain()
    assert isinstance(driver.join, AdaptiveJoin)
    assert driver.join.is_sweeping
    assert budget.peak_bytes <= 120_000
    assert_same_rows(pa.Table.from_batches(pieces), duckdb_join(stream, master, ["k"], ["k"]))
