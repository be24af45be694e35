"""The segments of a hot set in memory: what is allocated, believed and given back, and rows of any size and width."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.structures import hot_set
from semistream.structures.gather import columns_at
from semistream.structures.hot_layout import DIRECTORY_BYTES, ROWS, HotLayout
from semistream.structures.hot_set import HotSet
from semistream.structures.hot_table import HotTable
from semistream.structures.packed_rows import ROW_UNIT_BYTES
from semistream.structures.raw_memory import OVERHANG_BYTES
from tests.support.hot_rows import BYTES_MAX, COUNTERS, SCHEMA, add, layout, opened, rows, taken


def test_a_reader_of_the_last_string_finds_all_it_reads_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read a hole in a file of a tmpfs that is full ends the process."""
    ends: list[int] = []
    monkeypatch.setattr(hot_set, "allocate", lambda descriptor, begin, end: ends.append(end))
    hot = opened(tmp_path / "hot")
    add(hot, rows(np.arange(300), np.random.default_rng(1), 0.0))
    heap, directory = hot.layout.heap, hot.layout.directory
    used = hot.table.rows_bytes(slice(0, hot.layout.segments)) - DIRECTORY_BYTES * hot.table._visible
    reached = sorted(end - heap.in_file for end in ends if end > heap.in_file)
    assert reached == sorted((used + OVERHANG_BYTES).tolist())
    assert all(end < heap.in_file + heap.stride for end in ends)
    assert sum(directory.in_file < end <= heap.in_file for end in ends) >= hot.layout.segments


def test_addresses_are_given_back_with_the_last_reference() -> None:
    """Not when garbage is collected: a worker tells the collector to pass by what it has loaded."""
    table = HotTable(layout())
    gone = weakref.ref(table._space)
    gc.disable()
    try:
        del table
        assert gone() is None
    finally:
        gc.enable()


def test_a_header_that_cannot_be_true_is_not_believed(tmp_path: Path) -> None:
    hot = opened(tmp_path / "hot")
    add(hot, rows(np.arange(300), np.random.default_rng(1), 0.0))
    for nonsense in (10**12, -(10**12)):
        hot.table.headers[2, ROWS] = nonsense
        hot.look()
        assert (hot.table.probe(np.arange(300))[1] > 0).any()
        assert hot.used_bytes < 2 * BYTES_MAX


def test_heaps_of_more_than_half_of_what_a_place_can_name(tmp_path: Path) -> None:
    """Places have 32 bits without a sign; files are sparse, so nothing of this size is written."""
    large = HotLayout.of(SCHEMA, 60 << 30, 80.0, 10**9)
    assert large is not None and large.segments * large.heap.stride > ROW_UNIT_BYTES << 31
    hot = HotSet(tmp_path / "hot", large, COUNTERS, "large")
    hot.begin()
    batch = rows(np.arange(2000), np.random.default_rng(5), 0.1)
    assert len(add(hot, batch)) == 2000
    first, count = hot.table.probe(np.arange(2000))
    assert (count == 1).all()
    assert hot.table.segments_of(np.arange(2000)).max() == large.segments - 1
    assert taken(hot, first).equals(batch.remove_column(0))


@pytest.mark.parametrize("columns", [0, 1, 8, 70])
def test_rows_of_no_column_and_of_many(columns: int, tmp_path: Path) -> None:
    codes = np.arange(500)
    texts = [
        pa.array([f"{column} of {code}" if (code + column) % 3 else None for code in codes])
        for column in range(columns)
    ]
    names = ["__code", *(f"c{column}" for column in range(columns))]
    batch = pa.RecordBatch.from_arrays([pa.array(codes), *texts], names=names)
    fitting = HotLayout.of(batch.schema, 16 << 20, 8.0 + 16 * columns, 10**6)
    assert fitting is not None
    hot = HotSet(tmp_path / "hot", fitting, COUNTERS, "wide")
    hot.begin()
    assert len(add(hot, batch)) == 500
    first, count = hot.table.probe(codes)
    assert (count == 1).all()
    found, _ = columns_at(hot.table.rows, first, names[1:])
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in texts]
