"""Rows from several batches into one.

Joined rows come from two places at once: rows that are remembered and rows that were just read. Arrow's `take` knows
one source and no destination, so two takes, a concatenation and a third take would be needed to bring the result into
the order of the stream. `gather` does it in one pass a column: every part says which of its rows go to which place.

Strings take two: first each part says at which addresses its strings stand, then all are copied in the order of their
places, 32 bytes at a time, each over the overhang of the one before. A string so near the end of its buffer that this
would read behind it is copied byte by byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.structures.columns import (
    OFFSET_MAX,
    WORD_BY_WIDTH,
    ColumnView,
    Layout,
    Rows,
    copy_bits,
    copy_fixed,
    layout_of,
    set_bits,
    view_of,
)
from semistream.structures.compiled import I64, READ_I32, READ_I64, VOID, WRITE_I32, WRITE_I64, WRITE_U8, Array, kernel
from semistream.structures.raw_memory import (
    FETCH_AHEAD_ROWS,
    OVERHANG_BYTES,
    byte_at,
    copy_32_bytes_from,
    fetch,
    fetch_from,
)


@kernel(VOID(READ_I32, I64, I64, READ_I64, READ_I64, WRITE_I64, WRITE_I32))
def _find_strings(
    offsets: Array, begin: int, end: int, rows: Array, places: Array, addresses: Array, lengths: Array
) -> None:
    """Write where the strings of rows stand, in a buffer from one address to another, and how long they are.

    The address of a string is negative if the buffer ends within `OVERHANG_BYTES` behind it.
    """
    for i in range(rows.size):
        fetch(offsets, rows[min(i + FETCH_AHEAD_ROWS, rows.size - 1)])
        row, place = np.uint64(rows[i]), np.uint64(places[i])
        address = begin + offsets[row]
        length = offsets[row + np.uint64(1)] - offsets[row]
        lengths[place] = length
        addresses[place] = address if address + length + OVERHANG_BYTES <= end else -address


@kernel(VOID(READ_I64, READ_I32, WRITE_U8))
def _copy_strings(addresses: Array, offsets: Array, target: Array) -> None:
    """Copy strings to where their offsets say, one behind the other."""
    for i in range(addresses.size):
        fetch_from(addresses[min(i + FETCH_AHEAD_ROWS, addresses.size - 1)])
        address, at, end = addresses[i], np.int64(offsets[i]), np.int64(offsets[i + 1])
        if address >= 0:
            address -= at
            while at < end:
                copy_32_bytes_from(target, at, address + at)
                at += OVERHANG_BYTES
        else:
            for byte in range(end - at):
                target[at + byte] = byte_at(byte - address)


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one batch and the places in the result where they go."""

    batch: pa.RecordBatch
    rows: Rows
    places: Rows


def gather(parts: Sequence[Part], schema: pa.Schema, length: int) -> list[pa.Array]:
    """Return the columns of `schema`, `length` rows each, filled from the parts; places that no part fills are null.

    Example:
        >>> batch = pa.record_batch({"name": ["ant", "bee"]})
        >>> part = Part(batch, np.array([1, 0, 1]), np.array([0, 2, 3]))
        >>> gather([part], batch.schema, 4)[0].to_pylist()
        ['bee', None, 'ant', 'bee']
    """
    parts = [part for part in parts if len(part.rows)]
    filled = sum(len(part.rows) for part in parts)
    assert filled <= length, "two parts fill the same place"
    return [_gather_column(parts, field, length, filled) for field in schema]


def _gather_column(parts: Sequence[Part], field: pa.Field, length: int, filled: int) -> pa.Array:
    layout = layout_of(field.type)
    arrays = [part.batch.column(field.name) for part in parts]
    if layout is Layout.OTHER:
        return _gather_by_take(arrays, parts, field.type, length)
    views = [view_of(array, layout) for array in arrays]
    validity = _gather_validity(views, parts, length, filled)
    if layout is Layout.VARIABLE:
        return _gather_strings(views, parts, field.type, length, validity)
    if layout is Layout.BITS:
        bits = np.zeros((length + 7) // 8, np.uint8)
        for view, part in zip(views, parts, strict=True):
            copy_bits(view.data, view.first_bit, part.rows, part.places, bits)
        return pa.Array.from_buffers(field.type, length, [validity, pa.py_buffer(bits)])
    width = field.type.bit_width // 8
    words = np.zeros(length * (2 if width == 16 else 1), WORD_BY_WIDTH[width])  # noqa: PLR2004
    for view, part in zip(views, parts, strict=True):
        copy_fixed(view, width, part.rows, part.places, words)
    return pa.Array.from_buffers(field.type, length, [validity, pa.py_buffer(words)])


def _gather_validity(views: Sequence[ColumnView], parts: Sequence[Part], length: int, filled: int) -> pa.Buffer | None:
    if filled == length and all(view.validity is None for view in views):
        return None
    bits = np.zeros((length + 7) // 8, np.uint8)
    for view, part in zip(views, parts, strict=True):
        if view.validity is None:
            set_bits(part.places, bits)
        else:
            copy_bits(view.validity, view.first_bit, part.rows, part.places, bits)
    return pa.py_buffer(bits)


def _gather_strings(
    views: Sequence[ColumnView], parts: Sequence[Part], data_type: pa.DataType, length: int, validity: pa.Buffer | None
) -> pa.Array:
    # Behind a first offset of 0 lengths become offsets in place.
    offsets = np.zeros(length + 1, np.int32)
    addresses = np.zeros(length, np.int64)
    for view, part in zip(views, parts, strict=True):
        begin = view.data.ctypes.data
        _find_strings(view.offsets, begin, begin + view.data.nbytes, part.rows, part.places, addresses, offsets[1:])
    total = int(offsets.sum(dtype=np.int64))
    assert total <= OFFSET_MAX, "the caller must cut output before a string column passes 2 GiB"
    np.cumsum(offsets, dtype=np.int32, out=offsets)
    data = np.empty(total + OVERHANG_BYTES, np.uint8)
    _copy_strings(addresses, offsets, data)
    return pa.Array.from_buffers(
        data_type, length, [validity, pa.py_buffer(offsets), pa.py_buffer(data).slice(0, total)]
    )


def _gather_by_take(arrays: Sequence[pa.Array], parts: Sequence[Part], data_type: pa.DataType, length: int) -> pa.Array:
    taken = [array.take(pa.array(part.rows)) for array, part in zip(arrays, parts, strict=True)]
    if not taken:
        return pa.nulls(length, data_type)
    order = np.full(length, -1, np.int64)
    order[np.concatenate([part.places for part in parts])] = np.arange(sum(map(len, taken)))
    return pa.concat_arrays(taken).take(pa.array(order, mask=order < 0))
