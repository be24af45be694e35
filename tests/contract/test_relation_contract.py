"""One behaviour for every relation, wrapped or not: what `semistream.relations.base` promises.

A new store or wrapper adds a line to `RELATIONS` and inherits all of it. Every test knows the true rows, reads
through an access path, and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.clock import VirtualClock
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.arrow_file.writer import ArrowFileWriter
from semistream.relations.base import CODE_COLUMN, ChangeFeed, CyclicScan, KeyBatch, PageByKey
from semistream.relations.counting import CountingRelation
from semistream.relations.failing import FailingRelation
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, MeteredRelation
from semistream.relations.partitioned import split_in_memory
from tests.support.relations import publish_version, random_codes, rows_of_every_type

Open = Callable[[Path, pa.RecordBatch, Sequence[str] | None], Any]


def _mapped(path: Path, rows: pa.RecordBatch, columns: Sequence[str] | None) -> Any:
    return ArrowFileRelation(publish_version(path, rows), 1, columns)


def _read(path: Path, rows: pa.RecordBatch, columns: Sequence[str] | None) -> Any:
    directory = publish_version(path, rows)
    largest = directory.manifest(1).page_bytes_max
    return ArrowFileRelation(directory, 1, columns, access="read", disk_buffer_bytes=max(1, 2 * largest))


def _memory(_: Path, rows: pa.RecordBatch, columns: Sequence[str] | None) -> Any:
    return MemoryRelation(rows, ["key"], page_rows=16, columns=columns)


def _metered(path: Path, rows: pa.RecordBatch, columns: Sequence[str] | None) -> Any:
    return MeteredRelation(_mapped(path, rows, columns), HDD, VirtualClock())


def _partitioned(_: Path, rows: pa.RecordBatch, columns: Sequence[str] | None) -> Any:
    return split_in_memory(MemoryRelation(rows, ["key"]), 3, page_rows=16, columns=columns)


def _in_partitions(path: Path, rows: pa.RecordBatch, columns: Sequence[str] | None) -> Any:
    return ArrowFileRelation(publish_version(path, rows, partitions=3), 1, columns)


def _read_in_partitions(path: Path, rows: pa.RecordBatch, columns: Sequence[str] | None) -> Any:
    directory = publish_version(path, rows, partitions=5)
    largest = directory.manifest(1).page_bytes_max
    return ArrowFileRelation(directory, 1, columns, access="read", disk_buffer_bytes=max(1, 2 * largest))


def _one_partition(path: Path, rows: pa.RecordBatch, columns: Sequence[str] | None) -> Any:
    """The second of three partitions: the rows under test stand between others of the same file."""
    directory = RelationDirectory(path)
    # A table without rows has columns of other types.
    others = rows_of_every_type(np.random.default_rng(0), np.arange(20)) if len(rows) else rows
    with directory.begin_version() as staged, ArrowFileWriter(staged, rows.schema, page_bytes=4096) as writer:
        writer.append(others)
        writer.next_partition()
        writer.append(rows)
        writer.next_partition()
        writer.append(others)
        written = writer.close()
        unique = written.rows_per_code_max <= 1
        directory.publish(staged, written.manifest(key=("key",), unique=unique, null_key_rows=0, code_version=1))
    return ArrowFileRelation(directory, 1, columns).partitions[1]


RELATIONS: dict[str, Open] = {
    "arrow file, mapped": _mapped,
    "arrow file, read": _read,
    "memory": _memory,
    "counting": lambda *given: CountingRelation(_read(*given)),
    "metered": _metered,
    "failing": lambda *given: FailingRelation(_memory(*given), nth=10**9),
    "partitioned": _partitioned,
    "arrow file in partitions, mapped": _in_partitions,
    "arrow file in partitions, read": _read_in_partitions,
    "wrapped in partitions": lambda *given: CountingRelation(_in_partitions(*given)),
    "one partition": _one_partition,
    "wrapped twice": lambda *given: CountingRelation(_metered(*given)),
}


@pytest.fixture(params=RELATIONS.values(), ids=RELATIONS.keys())
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Any]:
    """Opens the rows as a relation of the kind under test."""
    counter = iter(range(100))

    def open_relation(rows: pa.RecordBatch, columns: Sequence[str] | None = None) -> Any:
        return request.param(tmp_path / f"relation{next(counter)}", rows, columns)

    return open_relation


@cache
def _rows(seed: int, row_count: int = 120, distinct_max: int | None = None) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    return rows_of_every_type(rng, random_codes(rng, row_count, distinct_max=distinct_max))


def _same(found: pa.Table, expected: pa.Table) -> bool:
    """The order of rows with one code is free, so rows are compared as sets of texts within their codes."""
    if found.schema != expected.schema or len(found) != len(expected):
        return False
    return sorted(map(repr, found.to_pylist())) == sorted(map(repr, expected.to_pylist()))


def _table(rows: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([rows])


def _rows_with(rows: pa.RecordBatch, codes: np.ndarray[Any, Any]) -> pa.Table:
    wanted = np.flatnonzero(np.isin(rows.column(0).to_numpy(), codes))
    return _table(rows.take(pa.array(wanted)))


def _lookup(relation: Any, codes: np.ndarray[Any, Any], bytes_max: int = 1 << 20) -> pa.Table:
    return pa.Table.from_batches(list(relation.rows_for(codes, bytes_max)), relation.schema)


def _some_codes(rng: np.random.Generator, rows: pa.RecordBatch, count: int) -> np.ndarray[Any, Any]:
    """Codes that are there, their neighbours that mostly are not, and both ends of the range."""
    there = rng.choice(rows.column(0).to_numpy(), count)
    near = there[: count // 4] ^ 1
    return np.unique(np.concatenate([there, near, [-(2**63), 2**63 - 1]]))


def test_it_offers_all_four_ways(opened: Callable[..., Any]) -> None:
    relation = opened(_rows(1))
    for way in (PageByKey, CyclicScan, KeyBatch, ChangeFeed):
        assert isinstance(relation, way)


def test_it_knows_itself_without_reading(opened: Callable[..., Any]) -> None:
    rows = _rows(2, distinct_max=40)
    info = opened(rows).info
    codes, counts = np.unique(rows.column(0).to_numpy(), return_counts=True)
    assert info.key == ("key",)
    assert info.schema.names == rows.schema.names[1:]
    assert info.version == 1
    assert info.row_count == len(rows)
    assert info.rows_per_code_max == counts.max()
    assert not info.unique
    assert len(codes) < len(rows)
    assert info.row_bytes_mean == pytest.approx(rows.nbytes / len(rows), rel=0.1)
    assert info.row_bytes_mean <= info.row_bytes_max <= info.page_bytes_max


@pytest.mark.parametrize("seed", range(3))
def test_all_segments_are_all_rows_in_the_order_of_codes(opened: Callable[..., Any], seed: int) -> None:
    rows = _rows(seed, distinct_max=None if seed else 20)
    relation = opened(rows)
    segments = [relation.segment(number) for number in range(relation.segment_count)]
    assert relation.segment_count == relation.info.page_count > 1
    assert all(len(segment) > 0 for segment in segments)
    if relation.info.partition_count > 1:
        for codes in (segment.column(0).to_numpy() for segment in segments):
            assert bool(np.all(codes[1:] >= codes[:-1]))
    else:
        codes = np.concatenate([segment.column(0).to_numpy() for segment in segments])
        assert codes.tolist() == rows.column(0).to_pylist()
    table = pa.Table.from_batches(segments)
    assert _same(table, _table(rows))


def test_a_segment_reads_the_same_a_second_time(opened: Callable[..., Any]) -> None:
    relation = opened(_rows(4))
    first = relation.segment(1)
    for number in range(relation.segment_count):
        relation.segment(number)
    assert relation.segment(1).equals(first)


def test_no_page_shares_a_code_with_another(opened: Callable[..., Any]) -> None:
    relation = opened(_rows(5, distinct_max=12))
    codes = [np.unique(relation.segment(n).column(0).to_numpy()) for n in range(relation.segment_count)]
    assert sum(map(len, codes)) == len(np.unique(np.concatenate(codes))) > 1


@pytest.mark.parametrize("seed", range(3))
def test_the_page_of_a_key_holds_all_its_rows(opened: Callable[..., Any], seed: int) -> None:
    rows = _rows(seed, distinct_max=30)
    relation = opened(rows)
    for code in _some_codes(np.random.default_rng(seed), rows, 20).tolist():
        page = relation.page_for(code)
        assert page.schema == relation.schema
        assert len(page) > 0
        wanted = np.array([code])
        assert _same(_rows_with(page, wanted), _rows_with(rows, wanted))


def test_the_page_of_a_key_is_known_without_reading(opened: Callable[..., Any]) -> None:
    rows = _rows(3, distinct_max=30)
    relation = opened(rows)
    codes = np.random.default_rng(3).permutation(_some_codes(np.random.default_rng(3), rows, 20))
    reads_before = relation.page_reads
    numbers = relation.page_numbers(codes)
    assert relation.page_reads == reads_before
    for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
        assert relation.page_for(code).equals(relation.segment(number))


@pytest.mark.parametrize("seed", range(6))
def test_a_batch_of_keys_finds_exactly_their_rows(opened: Callable[..., Any], seed: int) -> None:
    rows = _rows(seed, distinct_max=None if seed % 2 else 30)
    relation = opened(rows)
    codes = _some_codes(np.random.default_rng(seed), rows, 10 ** (seed % 3 + 1))
    found = _lookup(relation, codes)
    assert found.column(CODE_COLUMN).to_pylist() == sorted(found.column(CODE_COLUMN).to_pylist())
    found.validate(full=True)
    assert _same(found, _rows_with(rows, codes))


@pytest.mark.parametrize("bytes_max", [1, 300, 1000, 5000, 100_000])
def test_batches_keep_to_their_bytes_and_lose_nothing(opened: Callable[..., Any], bytes_max: int) -> None:
    rows = _rows(7, distinct_max=25)
    relation = opened(rows)
    codes = _some_codes(np.random.default_rng(7), rows, 200)
    batches = list(relation.rows_for(codes, bytes_max))
    for batch in batches:
        assert len(batch) == 1 or 0 < batch.nbytes <= bytes_max
    assert _same(pa.Table.from_batches(batches), _rows_with(rows, codes))


def test_a_batch_holds_no_more_memory_than_its_rows(opened: Callable[..., Any]) -> None:
    rows = _rows(8)
    for batch in opened(rows).rows_for(np.unique(rows.column(0).to_numpy()), 4000):
        buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None]
        assert sum(buffer.size for buffer in buffers) <= batch.nbytes + 64 * len(buffers)


def test_batches_stay_as_they_are_when_more_is_read(opened: Callable[..., Any]) -> None:
    rows = _rows(9)
    relation = opened(rows)
    codes = np.unique(rows.column(0).to_numpy())
    kept = relation.page_for(int(codes[0])), *relation.rows_for(codes[:50], 1 << 20)
    before = [batch.to_pylist() for batch in kept]
    _lookup(relation, codes)
    for number in range(relation.segment_count):
        relation.segment(number)
    assert [batch.to_pylist() for batch in kept] == before


def test_two_readers_do_not_disturb_each_other(opened: Callable[..., Any]) -> None:
    rows = _rows(10)
    relation = opened(rows)
    codes = np.unique(rows.column(0).to_numpy())
    found: list[list[pa.RecordBatch]] = [[], []]
    readers = [relation.rows_for(codes[::2], 3000), relation.rows_for(codes[1::2], 5000)]
    while readers[0] is not None or readers[1] is not None:
        for i, reader in enumerate(readers):
            batch = next(reader, None) if reader is not None else None
            if batch is None:
                readers[i] = None
            else:
                found[i].append(batch)
    assert _same(pa.Table.from_batches(found[0]), _rows_with(rows, codes[::2]))
    assert _same(pa.Table.from_batches(found[1]), _rows_with(rows, codes[1::2]))


def test_keys_that_are_not_there_find_nothing(opened: Callable[..., Any]) -> None:
    rows = _rows(11)
    absent = np.setdiff1d(np.arange(-5, 2000, 3), rows.column(0).to_numpy())
    assert list(opened(rows).rows_for(absent, 1 << 20)) == []


def test_no_keys_find_nothing(opened: Callable[..., Any]) -> None:
    assert list(opened(_rows(12)).rows_for(np.zeros(0, np.int64), 1 << 20)) == []


def test_an_empty_relation_is_a_relation(opened: Callable[..., Any]) -> None:
    relation = opened(_rows(13, row_count=0))
    assert relation.info.row_count == relation.info.page_count == relation.segment_count == 0
    assert relation.info.rows_per_code_max == 0
    assert list(relation.rows_for(np.array([-1, 0, 1]), 1000)) == []
    page = relation.page_for(5)
    assert relation.page_numbers(np.array([5, 6])).tolist() == [0, 0]
    assert len(page) == 0
    assert page.schema == relation.schema


def test_one_row_is_a_relation(opened: Callable[..., Any]) -> None:
    rows = _rows(14, row_count=1)
    relation = opened(rows)
    code = rows.column(0)[0].as_py()
    assert relation.info.unique
    assert _same(_table(relation.page_for(0)), _table(rows))
    assert _same(_lookup(relation, np.array([code])), _table(rows))


def test_one_code_with_all_rows_is_one_page(opened: Callable[..., Any]) -> None:
    rng = np.random.default_rng(15)
    rows = rows_of_every_type(rng, np.full(60, 42))
    relation = opened(rows)
    assert relation.segment_count == 1
    assert _same(_lookup(relation, np.array([41, 42, 43]), 2000), _table(rows))


@pytest.mark.parametrize("columns", [[], ["text"], ["map", "key", "flag"], ["wide decimal", "int8"]])
def test_only_the_columns_asked_for_are_read(opened: Callable[..., Any], columns: list[str]) -> None:
    rows = _rows(16)
    relation = opened(rows, columns)
    expected = rows.select([CODE_COLUMN, *columns])
    codes = _some_codes(np.random.default_rng(16), rows, 50)
    assert relation.schema == expected.schema
    assert relation.info.schema.names == rows.schema.names[1:]
    assert _same(_lookup(relation, codes), _rows_with(expected, codes))
    assert relation.segment(0).schema == expected.schema


def test_nothing_changed_since_its_own_version(opened: Callable[..., Any]) -> None:
    relation = opened(_rows(17))
    assert relation.changed_since(1).tolist() == []
    assert relation.changed_since(0) is None
