"""The arena against a plain list of rows, and its limits as limits."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from semistream.structures.columns import OFFSET_MAX
from semistream.structures.row_arena import RowArena, can_be_kept, fixed_bytes_per_row, page_slack_bytes
from tests.support.relations import random_codes, rows_of_every_type

KEPT_COLUMNS = ["__code", "int8", "uint16", "float", "double", "flag", "whole flag", "day", "decimal", "text", "bytes"]
FIXED_COLUMNS = KEPT_COLUMNS[:-2]


def ints(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def random_rows(rng: np.random.Generator, count: int, nulls: float) -> pa.RecordBatch:
    """Rows of every layout an arena knows, as a slice out of the middle of a larger batch."""
    rows = rows_of_every_type(rng, random_codes(rng, count + 5), nulls)
    return rows.select(KEPT_COLUMNS).slice(3, count)


def all_rows(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    return np.arange(len(batch), dtype=np.int64)


def resident_bytes(array: npt.NDArray[Any]) -> int:
    """Bytes of the pages under this array that the system has given memory to."""
    begin = array.ctypes.data // mmap.PAGESIZE * mmap.PAGESIZE
    length = array.ctypes.data + array.nbytes - begin
    states = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mincore(ctypes.c_void_p(begin), ctypes.c_size_t(length), states) == 0, ctypes.get_errno()
    return sum(state & 1 for state in states) * mmap.PAGESIZE


def check(arena: RowArena, model: list[dict[str, Any]]) -> None:
    batch = arena.batch
    batch.validate(full=True)
    assert batch.to_pylist() == model
    assert arena.row_count == len(model)
    assert arena.used_bytes == int(arena.bytes_of(batch, all_rows(batch)).sum())
    assert batch.nbytes <= arena.used_bytes + 8 * batch.num_columns, "the rows take more than they are charged for"
    assert arena.used_bytes <= arena.bytes_max


@pytest.mark.parametrize("columns", [KEPT_COLUMNS, FIXED_COLUMNS], ids=["with strings", "side by side"])
@pytest.mark.parametrize("seed", range(10))
def test_any_sequence_of_appends_and_keeps_is_that_of_a_list(seed: int, columns: list[str]) -> None:
    rng = np.random.default_rng(seed)
    arena = RowArena(random_rows(rng, 1, 0.0).select(columns).schema, 100_000)
    model: list[dict[str, Any]] = []
    for _ in range(30):
        action = rng.choice(["append", "append", "keep", "clear"], p=[0.4, 0.4, 0.17, 0.03])
        if action == "append":
            # Half of all batches have no nulls, so that the first one comes late, or after all nulls have left.
            batch = random_rows(rng, int(rng.integers(1, 40)), nulls=rng.choice([0.0, 0.0, 0.3, 1.0])).select(columns)
            rows = rng.integers(0, len(batch), int(rng.integers(0, 60)))
            if arena.used_bytes + int(arena.bytes_of(batch, rows).sum()) <= arena.bytes_max:
                assert arena.append(batch, rows) == len(model)
                values = batch.to_pylist()
                model += [values[row] for row in rows]
        elif action == "keep":
            kept = np.flatnonzero(rng.random(len(model)) < rng.choice([0.0, 0.5, 0.95, 1.0]))
            # In one go, or in several parts, some of them empty.
            arena.keep_parts(np.split(kept, np.sort(rng.integers(0, len(kept) + 1, rng.integers(0, 4)))))
            model = [model[row] for row in kept]
        else:
            arena.clear()
            model = []
        check(arena, model)


def test_the_first_null_may_come_late_and_the_last_one_may_leave() -> None:
    whole = pa.record_batch({"n": [1, 2, 3], "t": ["a", "b", "c"], "f": [True, False, True]})
    holed = pa.record_batch(
        {"n": pa.array([None, 5]), "t": pa.array([None, "e"]), "f": pa.array([None, False])}, schema=whole.schema
    )
    arena = RowArena(whole.schema, 10_000)
    arena.append(whole, ints(0, 1, 2))
    arena.append(holed, ints(0, 1))
    assert arena.batch.column("n").to_pylist() == [1, 2, 3, None, 5]
    arena.keep(ints(0, 2, 4))
    assert arena.batch.column("n").to_pylist() == [1, 3, 5]
    arena.append(whole, ints(1, 1, 1))
    assert arena.batch.column("t").to_pylist() == ["a", "c", "e", "b", "b", "b"]
    assert arena.batch.column("f").to_pylist() == [True, True, False, False, False, False]
    assert arena.batch.column("n").null_count == 0


def test_the_batch_is_a_view() -> None:
    arena = RowArena(pa.schema([("n", pa.int64()), ("t", pa.string())]), 1 << 20)
    arena.append(pa.record_batch({"n": [7], "t": ["x"]}), ints(0))
    first, second = arena.batch, arena.batch
    for name in ("n", "t"):
        assert [b and b.address for b in first.column(name).buffers()] == [
            b and b.address for b in second.column(name).buffers()
        ]


def test_it_can_be_filled_to_the_last_byte_and_not_beyond() -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    row_bytes = fixed_bytes_per_row(schema) + 3
    batch = pa.record_batch({"n": [1], "t": ["abc"]})
    arena = RowArena(schema, 100 * row_bytes)
    arena.append(batch, np.zeros(100, np.int64))
    assert arena.used_bytes == arena.bytes_max
    assert set(arena.batch.column("t").to_pylist()) == {"abc"}
    with pytest.raises(AssertionError, match="filled past its limit"):
        arena.append(batch, ints(0))


@pytest.mark.parametrize("text", ["", "a long text " * 1000])
def test_what_does_not_fit_is_refused_before_anything_is_written_past_the_end(text: str) -> None:
    arena = RowArena(pa.schema([("n", pa.int64()), ("t", pa.string())]), 4_000)
    batch = pa.record_batch({"n": [1], "t": [text]})
    with pytest.raises(AssertionError, match="than the arena has room for"):
        arena.append(batch, np.zeros(1_000, np.int64))


def test_what_rows_would_take_is_known_before_they_are_appended() -> None:
    rng = np.random.default_rng(3)
    batch = random_rows(rng, 30, nulls=0.2)
    arena = RowArena(batch.schema, 1 << 20)
    for _ in range(5):
        rows = rng.integers(0, len(batch), 20)
        before = arena.used_bytes
        sizes = arena.bytes_of(batch, rows)
        arena.append(batch, rows)
        assert arena.used_bytes - before == sizes.sum()


def test_rows_without_strings_are_all_of_one_size() -> None:
    batch = random_rows(np.random.default_rng(4), 30, nulls=0.2)
    plain = batch.select(FIXED_COLUMNS)
    arena = RowArena(plain.schema, 1 << 20)
    assert arena.row_bytes is not None
    assert arena.bytes_of(plain, all_rows(plain)).tolist() == [arena.row_bytes] * len(plain)
    assert RowArena(batch.schema, 1 << 20).row_bytes is None


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel which pages it holds")
def test_memory_is_used_as_rows_come_and_given_back_when_they_leave() -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.string())])
    count = 20_000
    # A null in the last row, so that validity takes memory as well.
    numbers = pa.array(np.arange(count), mask=np.arange(count) == count - 1)
    batch = pa.record_batch({"n": numbers, "t": [f"{i:0100}" for i in range(count)]})
    arena = RowArena(schema, 8 << 20)
    buffers = [part.bytes for c in arena._columns for part in (c._data, c._offsets, c._validity)]

    def resident() -> int:
        return sum(resident_bytes(buffer) for buffer in buffers)

    slack = page_slack_bytes(schema)
    assert resident() <= slack, "an empty arena holds memory"
    arena.append(batch, all_rows(batch))
    assert arena.used_bytes * 0.95 <= resident() <= arena.used_bytes + slack
    arena.keep_parts(np.split(np.arange(0, count, 4), 10))
    assert arena.used_bytes * 0.95 <= resident() <= arena.used_bytes + slack
    assert arena.batch.column("n").to_pylist() == list(range(0, count, 4))
    assert arena.batch.column("t")[1].as_py() == f"{4:0100}"
    arena.clear()
    assert resident() <= slack
    arena.append(batch, ints(5, 6))
    assert arena.batch.column("t").to_pylist() == [f"{5:0100}", f"{6:0100}"]


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel which pages it holds")
@pytest.mark.parametrize("bytes_max", [3_000, 40_000, 1_000_000])
def test_columns_of_fixed_length_together_take_a_page_too_many_at_most(bytes_max: int) -> None:
    columns = 40
    arena = RowArena(pa.schema([(f"n{i}", pa.int64()) for i in range(columns)]), bytes_max)
    numbers = pa.array(np.arange(arena.rows_max), mask=np.arange(arena.rows_max) % 7 == 3)
    batch = pa.record_batch([numbers] * columns, schema=arena.schema)
    space = np.frombuffer(arena._columns[0]._data._space, np.uint8)
    assert page_slack_bytes(arena.schema) < 2 * mmap.PAGESIZE
    arena.append(batch, all_rows(batch))
    assert resident_bytes(space) <= bytes_max + page_slack_bytes(arena.schema)
    kept = np.arange(0, arena.rows_max, 4)
    arena.keep(kept)
    # Each buffer begins and ends within a page that it may share.
    assert resident_bytes(space) <= min(bytes_max, arena.used_bytes + 4 * columns * mmap.PAGESIZE) + mmap.PAGESIZE
    assert all(column == numbers.take(pa.array(kept)) for column in arena.batch.columns)
    arena.clear()
    arena.append(batch, ints(3, 5))
    assert arena.batch.column("n39").to_pylist() == [None, 5]


def test_strings_never_need_more_than_32_bits_of_offset() -> None:
    with_text = RowArena(pa.schema([("n", pa.int64()), ("t", pa.string())]), OFFSET_MAX + 4096)
    assert with_text.bytes_max == OFFSET_MAX
    assert RowArena(pa.schema([("n", pa.int64())]), OFFSET_MAX + 4096).bytes_max == OFFSET_MAX + 4096


def test_columns_that_only_arrow_can_move_cannot_be_kept() -> None:
    rows = rows_of_every_type(np.random.default_rng(0), ints(1, 2))
    assert can_be_kept(rows.select(KEPT_COLUMNS).schema)
    for name in ("list", "struct", "map", "large text", "wide decimal", "three bytes", "nothing"):
        assert not can_be_kept(rows.select([name]).schema), name
    with pytest.raises(AssertionError, match="nested"):
        RowArena(rows.select(["list"]).schema, 1 << 20)
