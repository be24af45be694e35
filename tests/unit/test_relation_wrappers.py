"""Relations in front of others: they count, charge or fail, and change nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.clock import VirtualClock
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.base import CODE_COLUMN, ChangeFeed, CyclicScan, KeyBatch, PageByKey, RelationInfo
from semistream.relations.counting import CountingRelation, ReadCounts
from semistream.relations.failing import FailingRelation
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, NVME, SSD, IoProfile, MeteredRelation
from semistream.relations.partitioned import split_in_memory
from tests.support.relations import publish_version

ROWS = pa.record_batch(
    {CODE_COLUMN: np.arange(1000), "key": np.arange(1000), "text": [f"row {i}" for i in range(1000)]}
)


@pytest.fixture
def memory() -> MemoryRelation:
    return MemoryRelation(ROWS, ["key"], page_rows=100)


class KeysOnly:
    """What a database offers: rows by key, no pages, no count of them."""

    def __init__(self, inner: MemoryRelation) -> None:
        self._inner = inner

    @property
    def info(self) -> RelationInfo:
        return self._inner.info

    @property
    def schema(self) -> pa.Schema:
        return self._inner.schema

    def rows_for(self, codes: Any, bytes_max: int) -> Iterator[pa.RecordBatch]:
        return self._inner.rows_for(codes, bytes_max)


def test_a_wrapper_offers_what_its_inner_relation_offers_and_no_more(memory: MemoryRelation) -> None:
    wrappers: list[Any] = [
        CountingRelation(KeysOnly(memory)),
        MeteredRelation(KeysOnly(memory), HDD, VirtualClock()),
        FailingRelation(KeysOnly(memory), 1),
        CountingRelation(FailingRelation(KeysOnly(memory), 100)),
    ]
    for wrapper in wrappers:
        assert isinstance(wrapper, KeyBatch)
        assert not isinstance(wrapper, PageByKey)
        assert not isinstance(wrapper, CyclicScan)
        assert not isinstance(wrapper, ChangeFeed)
        assert wrapper.page_reads is None
        assert wrapper.info == memory.info
        assert wrapper.schema == memory.schema


def test_wrappers_of_one_kind_are_one_class(memory: MemoryRelation) -> None:
    first, second = CountingRelation(memory), CountingRelation(memory)
    assert type(first) is type(second)
    assert isinstance(first, CountingRelation)
    assert type(first).__name__ == "CountingRelation"


# Counting


def test_reads_are_counted_by_access_path(memory: MemoryRelation) -> None:
    relation = CountingRelation(memory)
    page = relation.page_for(150)
    segment = relation.segment(9)
    batches = list(relation.rows_for(np.array([5, 7, 250, 2000]), 1 << 20))
    assert relation.by_page == ReadCounts(calls=1, keys=1, pages=1, rows=100, bytes=page.nbytes)
    assert relation.by_scan == ReadCounts(calls=1, keys=0, pages=1, rows=100, bytes=segment.nbytes)
    assert relation.by_keys == ReadCounts(calls=1, keys=4, pages=3, rows=3, bytes=batches[0].nbytes)
    assert relation.counts.calls == 3
    assert relation.counts.rows == 203


def test_pages_of_a_batch_of_keys_are_those_the_store_touched(tmp_path: Path) -> None:
    store = ArrowFileRelation(publish_version(tmp_path / "r", ROWS), 1)
    relation = CountingRelation(store)
    for batch in relation.rows_for(np.arange(0, 1000, 2), 2000):
        # Another reader of the same store is not ours to count.
        store.segment(0)
        assert len(batch) > 0
    assert relation.by_keys.pages == store.segment_count
    assert relation.by_keys.rows == 500


def test_a_store_without_pages_counts_none(memory: MemoryRelation) -> None:
    relation = CountingRelation(KeysOnly(memory))
    list(relation.rows_for(np.array([1, 2]), 1000))
    assert relation.by_keys.pages == 0
    assert relation.by_keys.rows == 2


# Metered


def test_a_page_costs_a_seek_and_its_bytes(memory: MemoryRelation) -> None:
    clock = VirtualClock()
    page = MeteredRelation(memory, HDD, clock).page_for(5)
    assert clock.now_s() == pytest.approx(0.010 + page.nbytes / 100e6)


def test_a_scan_seeks_only_where_it_jumps(memory: MemoryRelation) -> None:
    clock = VirtualClock()
    relation = MeteredRelation(memory, IoProfile("seeks only", 1.0, 1e30), clock)
    for number in [0, 1, 2, 3]:
        relation.segment(number)
    assert clock.now_s() == pytest.approx(1)
    relation.segment(9)
    relation.segment(0)
    relation.segment(1)
    assert clock.now_s() == pytest.approx(3)
    relation.page_for(250)
    relation.segment(2)
    assert clock.now_s() == pytest.approx(5)


def test_a_batch_of_keys_seeks_once_for_each_page(memory: MemoryRelation) -> None:
    clock = VirtualClock()
    relation = MeteredRelation(memory, IoProfile("seeks only", 1.0, 1e30), clock)
    assert sum(map(len, relation.rows_for(np.array([0, 1, 2, 150, 160, 990]), 100))) == 6
    assert clock.now_s() == pytest.approx(3)


def test_pages_are_charged_with_their_mean_bytes(memory: MemoryRelation) -> None:
    clock = VirtualClock()
    list(MeteredRelation(memory, IoProfile("bytes only", 0.0, 1.0), clock).rows_for(np.array([1, 501]), 1 << 20))
    assert clock.now_s() == pytest.approx(2 * 100 * memory.info.row_bytes_mean)


def test_a_store_without_pages_seeks_once_for_each_key(memory: MemoryRelation) -> None:
    clock = VirtualClock()
    relation = MeteredRelation(KeysOnly(memory), IoProfile("seeks only", 1.0, 1e30), clock)
    list(relation.rows_for(np.array([1, 2, 3]), 1 << 20))
    assert clock.now_s() == pytest.approx(3)


def test_a_faster_device_takes_less_time(memory: MemoryRelation) -> None:
    seconds = []
    for profile in (HDD, SSD, NVME):
        clock = VirtualClock()
        MeteredRelation(memory, profile, clock).page_for(1)
        seconds.append(clock.now_s())
    assert seconds == sorted(seconds, reverse=True)
    assert seconds[0] > 50 * seconds[1]


# Failing


def _read_everything(relation: Any) -> int:
    count = len(relation.page_for(3)) + len(relation.segment(2))
    return count + sum(map(len, relation.rows_for(np.arange(0, 1000, 100), 100)))


def test_the_nth_read_fails_for_every_n_and_then_all_is_well(memory: MemoryRelation) -> None:
    expected = _read_everything(memory)
    untouched = FailingRelation(memory, nth=10**9)
    assert _read_everything(untouched) == expected
    assert untouched.reads > 5
    for nth in range(1, untouched.reads + 1):
        relation = FailingRelation(memory, nth)
        with pytest.raises(OSError, match="made to fail"):
            _read_everything(relation)
        assert _read_everything(relation) == expected


def test_the_error_can_be_chosen(memory: MemoryRelation) -> None:
    relation = FailingRelation(memory, 1, ConnectionResetError("gone"))
    with pytest.raises(ConnectionResetError, match="gone"):
        list(relation.rows_for(np.array([1]), 100))
    assert relation.page_for(1).num_rows == 100


def test_a_lookup_that_finds_nothing_is_a_read(memory: MemoryRelation) -> None:
    relation = FailingRelation(memory, 2)
    assert list(relation.rows_for(np.array([-1]), 100)) == []
    with pytest.raises(OSError, match="made to fail"):
        list(relation.rows_for(np.array([-1]), 100))


# Hash partitions


def test_partitions_show_through_wrappers_and_are_wrapped_likewise(memory: MemoryRelation) -> None:
    inner = split_in_memory(memory, 3)
    clock = VirtualClock()
    relation = CountingRelation(MeteredRelation(FailingRelation(inner, 10**9), HDD, clock))
    assert len(relation.partitions) == 3
    assert relation.partitions is relation.partitions
    for part, inner_part in zip(relation.partitions, inner.partitions, strict=True):
        assert type(part) is type(relation)
        assert part.info == inner_part.info
        assert part.partitions == ()
        before_s = clock.now_s()
        page = part.page_for(5)
        assert page.equals(inner_part.page_for(5))
        assert clock.now_s() > before_s
    assert CountingRelation(memory).partitions == ()


def test_a_whole_counts_what_is_read_from_its_partitions(memory: MemoryRelation) -> None:
    relation = CountingRelation(split_in_memory(memory, 3))
    relation.partitions[1].page_for(1)
    relation.segment(0)
    list(relation.partitions[2].rows_for(np.array([1, 2, 3]), 1000))
    list(relation.rows_for(np.array([1, 2, 3]), 1000))
    assert [part.counts.calls for part in relation.partitions] == [0, 1, 1]
    assert (relation.by_page.calls, relation.by_scan.calls, relation.by_keys.calls) == (1, 1, 2)
    assert relation.counts.calls == 4


def test_reads_of_all_partitions_are_counted_together_until_one_fails(memory: MemoryRelation) -> None:
    relation = FailingRelation(split_in_memory(memory, 2), nth=3)
    first, second = relation.partitions
    first.page_for(1)
    second.page_for(1)
    with pytest.raises(OSError, match="made to fail"):
        first.segment(0)
    second.segment(0)
    assert relation.reads == 4


# Memory


def test_a_table_in_any_order_becomes_a_relation() -> None:
    table = pa.table({"id": [7, None, 3, 7], "name": ["pear", "nobody", "fig", "plum"]})
    relation = MemoryRelation.from_table(table, key=["id"], name="fruit", version=4)
    assert relation.info.row_count == 3
    assert not relation.info.unique
    assert (relation.info.name, relation.info.version) == ("fruit", 4)
    rows = pa.Table.from_batches(list(relation.rows_for(np.array([3, 7]), 1000)))
    assert rows.column("name").to_pylist() == ["fig", "pear", "plum"]


def test_a_key_of_several_columns_is_unique_as_a_whole() -> None:
    table = pa.table({"store": ["a", "a", "b"], "product": [1, 2, 1], "price": [1.0, 2.0, 3.0]})
    relation = MemoryRelation.from_table(table, key=["store", "product"], columns=["price"])
    assert relation.info.unique
    assert relation.schema.names == [CODE_COLUMN, "price"]
    assert relation.info.schema.names == ["store", "product", "price"]


def test_an_empty_table_becomes_an_empty_relation() -> None:
    relation = MemoryRelation.from_table(pa.schema([("id", pa.int64())]).empty_table(), key=["id"])
    assert relation.info.row_count == 0
    assert relation.info.unique
