"""Gathering from several batches against plain lists, for every layout a column can have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from semistream.structures.columns import Layout, layout_of, row_bytes, view_of
from semistream.structures.gather import Part, columns_at, gather
from semistream.structures.packed_rows import ROW_UNIT_BYTES, PackedRows, RowFormat
from semistream.structures.raw_memory import OVERHANG_BYTES
from tests.support.relations import random_codes, rows_of_every_type

SEEDS = range(12)


def ints(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64)


def random_rows(rng: np.random.Generator, count: int, nulls: float) -> pa.RecordBatch:
    """Rows of every type, as a slice that begins and ends anywhere within a larger batch."""
    before, after = rng.integers(0, 11, 2)
    rows = rows_of_every_type(rng, random_codes(rng, before + count + after), nulls)
    wide = [rng.bytes(width) for _ in range(len(rows)) for width in (1, 2, 4, 8, 16)]
    for i, width in enumerate((1, 2, 4, 8, 16)):
        rows = rows.append_column(f"{width} bytes", pa.array(wide[i::5], pa.binary(width)))
    return rows.slice(before, count)


def packed(batch: pa.RecordBatch) -> PackedRows:
    """The same rows, packed into memory of their own, in an order of their own."""
    row_format = RowFormat(batch.schema)
    order = np.random.default_rng(len(batch)).permutation(len(batch))
    sizes = row_format.sizes_of(batch, order)
    assert (sizes % ROW_UNIT_BYTES == 0).all()
    memory = np.full(int(sizes.sum()) + OVERHANG_BYTES, 0xA5, np.uint8)
    addresses = memory.ctypes.data + np.cumsum(sizes) - sizes
    has_nulls = row_format.pack(batch, order, addresses)
    assert (memory[-OVERHANG_BYTES:] == 0xA5).all(), "something was written behind the last row"
    by_row = np.argsort(order)

    def addresses_of(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        assert memory is not None, "the memory lives as long as who finds rows in it"
        return addresses[by_row[rows]]

    return PackedRows(row_format, tuple(has_nulls.tolist()), addresses_of, lambda rows: sizes[by_row[rows]])


def random_parts(rng: np.random.Generator, length: int, *, gaps: bool) -> list[Part]:
    """Parts that fill different places in any order, each from a batch of its own, the same row perhaps twice."""
    filled = rng.permutation(length)[: rng.integers(0, length + 1) if gaps else length]
    cuts = np.sort(rng.integers(0, len(filled) + 1, 3))
    parts = []
    for places in np.split(filled, cuts):
        batch = random_rows(rng, int(rng.integers(1, 20)), nulls=rng.choice([0.0, 0.3, 1.0]))
        parts.append(Part(batch, rng.integers(0, len(batch), len(places)), places))
    return parts


def expected_values(parts: list[Part], name: str, length: int) -> list[object]:
    values: list[object] = [None] * length
    for part in parts:
        source = part.source.column(name).to_pylist()
        for row, place in zip(part.rows.tolist(), part.places.tolist(), strict=True):
            values[place] = source[row]
    return values


@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_layout_gives_the_values_of_a_list(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    length = int(rng.choice([0, 1, 7, 8, 9, 63, 100]))
    parts = random_parts(rng, length, gaps=gaps)
    schema = parts[0].source.schema
    for field, found in zip(schema, gather(parts, schema, length), strict=True):
        found.validate(full=True)
        assert found.type == field.type
        assert len(found) == length
        assert found.to_pylist() == expected_values(parts, field.name, length), field


@pytest.mark.parametrize("gaps", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_packed_rows_give_the_same_as_the_batches_they_were_packed_from(seed: int, gaps: bool) -> None:
    rng = np.random.default_rng(seed)
    length = int(rng.choice([1, 7, 8, 9, 63, 100]))
    parts = random_parts(rng, length, gaps=gaps)
    names = [field.name for field in parts[0].source.schema if layout_of(field.type) is not Layout.OTHER]
    parts = [Part(part.source.select(names), part.rows, part.places) for part in parts]
    some_packed = [
        Part(packed(part.source) if i % 2 else part.source, part.rows, part.places) for i, part in enumerate(parts)
    ]
    schema = parts[0].source.schema
    for field, found in zip(schema, gather(some_packed, schema, length), strict=True):
        found.validate(full=True)
        assert found.to_pylist() == expected_values(parts, field.name, length), f"seed {seed}, {field}"


def test_packed_rows_are_copied_whole() -> None:
    batch = random_rows(np.random.default_rng(3), 40, nulls=0.3)
    batch = batch.select([field.name for field in batch.schema if layout_of(field.type) is not Layout.OTHER])
    before = packed(batch)
    rows = np.arange(len(batch))
    sizes = before.sizes_of(rows)
    memory = np.empty(int(sizes.sum()) + OVERHANG_BYTES, np.uint8)
    addresses = memory.ctypes.data + np.cumsum(sizes) - sizes
    before.copy(rows, addresses)
    after = PackedRows(before.format, before.has_nulls, lambda numbers: addresses[numbers], before.sizes_of)
    columns, places = columns_at(after, rows, batch.schema.names)
    assert places.tolist() == rows.tolist()
    assert pa.RecordBatch.from_arrays(columns, schema=batch.schema).equals(batch)


def test_columns_of_a_batch_are_not_copied() -> None:
    batch = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})
    (column,), rows = columns_at(batch, ints(1), ["b"])
    assert column.buffers()[2].address == batch.column("b").buffers()[2].address
    assert rows.tolist() == [1]


def test_every_layout_is_among_the_tested_types() -> None:
    schema = random_rows(np.random.default_rng(0), 1, 0.0).schema
    assert {layout_of(field.type) for field in schema} == set(Layout)
    assert {f.type.bit_width for f in schema if layout_of(f.type) is Layout.FIXED} == {8, 16, 32, 64, 128}


def test_without_parts_everything_is_null() -> None:
    schema = random_rows(np.random.default_rng(1), 1, 0.0).schema
    empty = Part(random_rows(np.random.default_rng(1), 0, 0.0), ints(), ints())
    for parts in ([], [empty]):
        for found in gather(parts, schema, 9):
            found.validate(full=True)
            assert found.null_count == len(found) == 9


def test_columns_are_found_by_name_and_stand_in_the_order_of_the_schema() -> None:
    left = pa.record_batch({"a": [1, 2], "b": ["x", "y"], "c": [True, False]})
    right = pa.record_batch({"c": [None, True], "b": ["z", None], "a": [3, 4]})
    schema = pa.schema([("b", pa.string()), ("a", pa.int64())])
    names, numbers = gather([Part(left, ints(1), ints(2)), Part(right, ints(0, 1), ints(1, 0))], schema, 3)
    assert names.to_pylist() == [None, "z", "y"]
    assert numbers.to_pylist() == [4, 3, 2]


def test_a_column_without_nulls_needs_no_validity() -> None:
    batch = pa.record_batch({"n": [1, 2], "t": ["x", "y"], "f": [True, False]})
    whole = gather([Part(batch, ints(0, 1, 1), ints(0, 1, 2))], batch.schema, 3)
    assert [column.buffers()[0] for column in whole] == [None, None, None]
    with_a_gap = gather([Part(batch, ints(0, 1), ints(0, 2))], batch.schema, 3)
    assert [column.null_count for column in with_a_gap] == [1, 1, 1]


def test_what_lies_under_a_null_does_not_come_out() -> None:
    valid = pa.py_buffer(bytes([0b101]))
    numbers = pa.Array.from_buffers(pa.int32(), 3, [valid, pa.py_buffer(np.array([1, 77, 3], np.int32))])
    texts = pa.Array.from_buffers(
        pa.string(), 3, [valid, pa.py_buffer(np.array([0, 1, 4, 5], np.int32)), pa.py_buffer(b"ajunkb")]
    )
    batch = pa.record_batch({"n": numbers, "t": texts})
    found = gather([Part(batch, ints(2, 1, 0), ints(0, 1, 2))], batch.schema, 3)
    assert found[0].to_pylist() == [3, None, 1]
    assert found[1].to_pylist() == ["k", None, "a"]


def test_buffers_may_begin_and_end_at_any_byte() -> None:
    """As they do when several of them arrive in one message."""

    def unaligned(content: bytes) -> pa.Buffer:
        return pa.py_buffer(b"\xff" + content + b"\xff\xff").slice(1)

    numbers = pa.Array.from_buffers(pa.int64(), 3, [None, unaligned(np.array([5, 6, 7]).tobytes())])
    offsets = unaligned(np.array([0, 1, 3, 3], np.int32).tobytes())
    texts = pa.Array.from_buffers(pa.string(), 3, [None, offsets, unaligned(b"abc")])
    batch = pa.record_batch({"n": numbers, "t": texts})
    found = gather([Part(batch, ints(2, 1, 0), ints(2, 1, 0))], batch.schema, 3)
    assert found[0].to_pylist() == [5, 6, 7]
    assert found[1].to_pylist() == ["a", "bc", ""]


def test_more_rows_than_places_are_a_mistake() -> None:
    batch = pa.record_batch({"n": [1, 2]})
    with pytest.raises(AssertionError, match="the same place"):
        gather([Part(batch, ints(0, 1), ints(0, 1)), Part(batch, ints(0), ints(1))], batch.schema, 2)


def test_a_view_begins_at_the_first_row_of_a_slice() -> None:
    column = pa.array(["no", "yes", None, "last", "no"]).slice(1, 3)
    view = view_of(column, Layout.VARIABLE)
    assert np.diff(view.offsets).tolist() == [3, 0, 4]
    assert view.first_bit == 1
    assert view_of(pa.array([1, 2, 3], pa.int16()).slice(2), Layout.FIXED).data.tolist() == [3]


@pytest.mark.parametrize(
    "data_type",
    [
        pa.large_string(),
        pa.large_binary(),
        pa.string_view(),
        pa.decimal256(40, 2),
        pa.binary(3),
        pa.month_day_nano_interval(),
        pa.null(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.int8()),
        pa.struct([("a", pa.int8())]),
    ],
    ids=str,
)
def test_what_the_kernels_do_not_know_is_left_to_arrow(data_type: pa.DataType) -> None:
    assert layout_of(data_type) is Layout.OTHER


@pytest.mark.parametrize("seed", SEEDS)
def test_row_bytes_add_up_to_what_arrow_allocates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch = random_rows(rng, int(rng.integers(50, 200)), nulls=0.3)
    rows = rng.integers(0, len(batch), int(rng.integers(50, 200)))
    flat = [name for name in batch.schema.names if layout_of(batch.schema.field(name).type) is not Layout.OTHER]
    wanted = batch.select(flat)
    sizes = row_bytes(wanted, rows)
    taken = wanted.take(pa.array(rows))
    assert len(sizes) == len(rows)
    # Not less than the truth but for the last offset and the rest of a byte of each column; at most a byte a row more.
    assert taken.nbytes - 5 * len(flat) <= sizes.sum() <= taken.nbytes + len(rows) * (1 + len(flat) / 8)


def test_row_bytes_of_a_nested_column_are_the_mean() -> None:
    batch = pa.record_batch({"l": pa.array([[1] * 10, [], [], [2] * 10], pa.list_(pa.int64()))})
    assert row_bytes(batch, ints(1, 2)).tolist() == [batch.nbytes / 4] * 2
    assert row_bytes(batch.slice(0, 0), ints()).tolist() == []


@pytest.mark.parametrize("seed", SEEDS)
def test_strings_of_any_length_are_copied_whole_also_at_the_end_of_their_buffer(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts, begin = [], 0
    places = rng.permutation(300)
    for count in (200, 100):
        # Around the 32 bytes that are copied at a time, and the last string as long as any.
        texts = ["x" * int(n) for n in rng.choice([0, 1, 31, 32, 33, 63, 64, 65, 200], count - 1)] + ["y" * 97]
        batch = pa.record_batch({"text": [text[:-1] + "z" if text else text for text in texts]})
        parts.append(Part(batch, rng.permutation(count), places[begin : begin + count]))
        begin += count
    [found] = gather(parts, parts[0].source.schema, 300)
    found.validate(full=True)
    assert found.to_pylist() == expected_values(parts, "text", 300)
