"""SSIJ: its phases, its plan of reads, its cache of pages and the balance of its memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.joins.base import JoinResources, StreamRows
from semistream.joins.reference import reference_join
from semistream.joins.ssij import PATIENCE_PHASES, SemiStreamedIndexJoin, plan_of
from semistream.relations.memory import MemoryRelation
from tests.support.oracle import assert_same_rows
from tests.support.running import run_join

pytestmark = pytest.mark.long


PAGE_ROWS, PAGES = 50, 40
MASTER = pa.table({"k": np.arange(PAGES * PAGE_ROWS), "value": np.arange(PAGES * PAGE_ROWS) % 97})


def make_join(memory_bytes: int = 1 << 17, **settings: Any) -> SemiStreamedIndexJoin:
    relation = MemoryRelation.from_table(MASTER, ["k"], page_rows=PAGE_ROWS)
    resources = JoinResources(MemoryBudget(memory_bytes), VirtualClock(), rows_per_step=1000)
    return SemiStreamedIndexJoin(relation, resources, **settings)


class Feed:
    """Rows with ascending numbers."""

    def __init__(self, join: SemiStreamedIndexJoin) -> None:
        self.join = join
        self.next_number = 0
        self.finished: set[int] = set()

    def push(self, codes: np.ndarray) -> None:
        rows = StreamRows(np.arange(self.next_number, self.next_number + len(codes)), codes)
        self.next_number += len(codes)
        while len(rows):
            taken = self.join.admit(rows)
            rows = StreamRows(rows.numbers[taken:], rows.codes[taken:])
            while not self.join.wants_rows:
                self.finished.update(self.join.step().finished.tolist())

    def drain(self) -> None:
        while self.join.waiting_rows:
            self.finished.update(self.join.step().finished.tolist())


def test_the_plan_takes_runs_with_most_rows_for_a_seek_and_overdue_ones_first() -> None:
    lengths = np.array([9, 0, 4, 4, 4, 0, 0, 1, 0, 7], np.int32)
    never = np.zeros(len(lengths), np.bool_)
    # 9 rows for a seek and a page; 7 for the same; 12 for a seek and three pages; 1.
    assert plan_of(lengths, never)[0].tolist() == [0, 9, 2, 3, 4, 7]
    overdue = never.copy()
    overdue[[7, 1]] = True
    plan, must_read = plan_of(lengths, overdue)
    assert plan.tolist() == [7, 0, 9, 2, 3, 4]
    assert must_read == 1


def test_nothing_is_read_before_the_stream_buffer_is_full_or_the_stream_pauses() -> None:
    join = make_join()
    feed = Feed(join)
    feed.push(np.arange(0, 2000, 100))
    assert join.stats.reads == 0
    assert join.waiting_rows == 20
    join.step()  # Online: no page is cached yet.
    assert (join.stats.reads, join.stats.hits, len(join.lists)) == (0, 0, 20)
    join.step()  # The stream pauses: join.
    assert join.stats.reads == 1
    feed.drain()
    assert join.stats.left == join.stats.waited == 20


def test_a_cached_page_answers_in_the_online_phase_also_that_a_key_is_absent() -> None:
    join = make_join()
    feed = Feed(join)
    feed.push(np.array([0, 1, 2]))
    feed.drain()
    reads = join.stats.reads
    feed.push(np.array([3, -7, 4]))  # A key before the first would stand on the first page.
    feed.drain()
    assert join.stats.reads == reads
    assert join.stats.hits == 3


def test_a_join_phase_ends_when_half_of_the_rows_are_answered() -> None:
    join = make_join(cache_share=0.0)
    feed = Feed(join)
    feed.push(np.concatenate([np.zeros(60, np.int64), np.arange(1000, 2000, 50)]))
    join.step()
    while join.stats.iterations == 0:
        join.step()
    assert join.stats.reads == 1
    assert join.waiting_rows == 20


def test_the_pages_that_are_asked_for_most_stay() -> None:
    join = make_join(1 << 16)
    rng = np.random.default_rng(1)
    feed = Feed(join)
    for _ in range(60):
        hot = rng.integers(10 * PAGE_ROWS, 13 * PAGE_ROWS, 400)
        feed.push(np.where(rng.random(400) < 0.9, hot, rng.integers(0, 2000, 400)))
    assert 0 < len(join.resident) < PAGES
    assert join.resident.is_resident[10:13].all()


def test_a_row_that_nobody_else_waits_with_is_answered_while_the_stream_goes_on() -> None:
    join = make_join(1 << 16, cache_share=0.0)
    rng = np.random.default_rng(2)
    feed = Feed(join)
    feed.push(np.array([39 * PAGE_ROWS]))
    phases = 0
    while 0 not in feed.finished:
        feed.push(rng.integers(0, 8 * PAGE_ROWS, 200))
        phases = join.stats.iterations
        assert phases <= PATIENCE_PHASES + 2, "a row waits for ever"
    assert phases >= 1


class FixedMemoryJoin(SemiStreamedIndexJoin):
    """SSIJ that leaves its memory as it was divided at first."""

    def _rebalance(self) -> None:
        pass


@pytest.mark.parametrize("hot_share", [0.0, 0.8])
def test_moving_memory_between_cache_and_stream_buffer_saves_reads(hot_share: float) -> None:
    relation = MemoryRelation.from_table(MASTER, ["k"], page_rows=PAGE_ROWS)
    reads = {}
    for kind in (SemiStreamedIndexJoin, FixedMemoryJoin):
        rng = np.random.default_rng(3)
        join = kind(relation, JoinResources(MemoryBudget(1 << 16), VirtualClock(), rows_per_step=1000))
        feed, cache_bytes_at_first = Feed(join), join.resident.bytes_max
        for _ in range(120):
            is_hot = rng.random(500) < hot_share
            feed.push(np.where(is_hot, rng.integers(0, 100, 500), rng.integers(0, 2000, 500)))
        reads[kind] = join.stats.reads
        assert (join.resident.bytes_max < cache_bytes_at_first) == (kind is SemiStreamedIndexJoin)
    print(reads)
    assert reads[SemiStreamedIndexJoin] < 0.95 * reads[FixedMemoryJoin]


def test_where_the_stream_pauses_often_the_cache_takes_what_the_rows_do_not_need() -> None:
    join = make_join(1 << 16)
    feed, cache_bytes_at_first = Feed(join), join.resident.bytes_max
    rng = np.random.default_rng(5)
    for _ in range(40):
        feed.push(rng.integers(0, 2000, 20))
        feed.drain()
    assert join.resident.bytes_max > cache_bytes_at_first


def test_the_rows_are_right_while_memory_moves() -> None:
    rng = np.random.default_rng(4)
    stream = pa.table({"s": rng.integers(-100, 2100, 5000), "row": np.arange(5000)})
    relation = MemoryRelation.from_table(MASTER, ["k"], page_rows=PAGE_ROWS)
    run = run_join(relation, stream, ["s"], algorithm="ssij", memory_bytes=1 << 16, rows_per_step=200)
    assert_same_rows(run.table, reference_join(stream, MASTER, ["s"], ["k"]))
    assert run.budget.peak_bytes <= 1 << 16
