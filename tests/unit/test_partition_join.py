"""The partition join: its modes, its disk probes, and who is in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.joins.base import JoinResources, StreamRows
from semistream.joins.partition_join import BLOCK_ROWS, FREED_SHARE, PATIENCE_PERIODS, PartitionJoin
from semistream.relations.memory import MemoryRelation

PAGE_ROWS, PAGES, STEP_ROWS = 50, 40, 100
MASTER = pa.table({"k": np.arange(PAGES * PAGE_ROWS), "value": np.arange(PAGES * PAGE_ROWS) % 97})


class Feed:
    """A join and rows with ascending numbers."""

    def __init__(self, memory_bytes: int = 1 << 17, **settings: Any) -> None:
        relation = MemoryRelation.from_table(MASTER, ["k"], page_rows=PAGE_ROWS)
        resources = JoinResources(MemoryBudget(memory_bytes), VirtualClock(), rows_per_step=STEP_ROWS)
        self.join = PartitionJoin(relation, resources, **settings)
        self.next_number = 0
        self.finished: set[int] = set()

    def push(self, codes: np.ndarray | list[int]) -> None:
        codes = np.asarray(codes, np.int64)
        rows = StreamRows(np.arange(self.next_number, self.next_number + len(codes)), codes)
        self.next_number += len(codes)
        while len(rows):
            taken = self.join.admit(rows)
            rows = StreamRows(rows.numbers[taken:], rows.codes[taken:])
            while not self.join.wants_rows:
                self.step()

    def step(self) -> None:
        self.finished.update(self.join.step().finished.tolist())

    def drain(self) -> None:
        while self.join.waiting_rows:
            self.step()


def test_with_a_small_backlog_rows_of_a_partition_in_memory_are_joined_at_once() -> None:
    feed = Feed()
    feed.push([0])
    feed.drain()
    feed.push([1, 2, -5, 777])
    assert feed.finished == {0, 1, 2, 3}
    assert feed.join.stats.reads == 1
    assert feed.join.waiting_rows == 1


def test_with_a_large_backlog_they_are_joined_by_blocks() -> None:
    feed = Feed()
    feed.push([0, PAGE_ROWS])
    feed.drain()
    few, many = np.full(BLOCK_ROWS - 1, 1), np.full(STEP_ROWS - BLOCK_ROWS + 1, PAGE_ROWS + 1)
    feed.push(np.concatenate([few, many]))
    assert feed.join.waiting_rows == BLOCK_ROWS - 1
    assert feed.join.lists.lengths[0] == BLOCK_ROWS - 1
    feed.push([2])  # The backlog is gone, and with it block mode.
    assert feed.join.waiting_rows == 0
    assert feed.join.stats.reads == 2


def test_a_list_that_is_too_long_is_read_at_once() -> None:
    feed = Feed(1 << 16)
    feed.push([1500])
    long = feed.join.list_rows_max
    feed.push([0] * (long - 1))
    assert feed.join.stats.reads == 0
    feed.push([0, 0])
    assert feed.join.stats.reads == 1
    assert feed.join.waiting_rows == 1


def test_full_lists_are_freed_the_longest_first() -> None:
    feed = Feed(1 << 16, join_share=0.0)
    rows_max = feed.join.lists.rows_max
    pages = np.arange(rows_max) % PAGES
    pages[: rows_max // 20] = 7
    feed.push(pages * PAGE_ROWS)
    assert feed.join.lists.lengths[7] == 0
    assert feed.join.lists.room >= FREED_SHARE * rows_max
    assert feed.join.stats.reads < PAGES


def test_an_idle_join_reads_the_longest_list() -> None:
    feed = Feed()
    feed.push([0, 60, 61, 120])
    feed.step()
    assert feed.finished == {1, 2}


def test_who_is_asked_for_most_is_in_memory() -> None:
    feed = Feed(1 << 16)
    rng = np.random.default_rng(0)
    for hot in (3, 30):
        for _ in range(100):
            asked = rng.integers(hot * PAGE_ROWS, (hot + 2) * PAGE_ROWS, 200)
            feed.push(np.where(rng.random(200) < 0.8, asked, rng.integers(0, 2000, 200)))
        assert feed.join.resident.is_resident[[hot, hot + 1]].all()
        assert not feed.join.resident.is_resident.all()


def test_no_row_waits_for_ever() -> None:
    feed = Feed()
    feed.push([0])
    feed.drain()
    feed.push([39 * PAGE_ROWS])
    rows_pushed = 0
    while 1 not in feed.finished:
        feed.push([1] * 40)
        rows_pushed += 40
        assert rows_pushed <= (PATIENCE_PERIODS + 1) * feed.join.lists.rows_max, "a row waits for ever"
    assert rows_pushed > feed.join.lists.rows_max
