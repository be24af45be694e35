"""Arrow columns as arrays: how values lie in memory, and the kernels that move them.

Layouts: values of 1, 2, 4, 8 or 16 bytes, bits, and strings or binaries with 32-bit offsets are moved by kernels here;
everything else (lists, structs, 64-bit offsets) is `Layout.OTHER` and left to Arrow's own `take`.

All kernels have the same shape: `rows` are read from the source, `places` are written in the target. What is built
from them stands in `gather` (rows from several batches into one) and `row_arena` (rows kept for long).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.structures.compiled import (
    I64,
    READ_I16,
    READ_I32,
    READ_I64,
    READ_U8,
    VOID,
    WRITE_I16,
    WRITE_I32,
    WRITE_I64,
    WRITE_U8,
    Array,
    kernel,
)
from semistream.structures.raw_memory import FETCH_AHEAD_ROWS, copy_8_bytes, fetch

Rows = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

OFFSET_MAX = 2**31 - 1
"""Most bytes that a string column with 32-bit offsets can hold."""


class Layout(Enum):
    """How the values of a column lie in memory."""

    FIXED = "values of a fixed number of bytes"
    BITS = "one bit a value"
    VARIABLE = "bytes with 32-bit offsets"
    OTHER = "anything else"


WORD_BY_WIDTH = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.int64}


def layout_of(data_type: pa.DataType) -> Layout:
    """Return how values of this type lie in memory."""
    if pa.types.is_boolean(data_type):
        return Layout.BITS
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return Layout.VARIABLE
    if _is_plain(data_type) and data_type.bit_width // 8 in WORD_BY_WIDTH:
        return Layout.FIXED
    return Layout.OTHER


def _is_plain(data_type: pa.DataType) -> bool:
    return (
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_temporal(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    ) and not pa.types.is_interval(data_type)


# ---------------------------------------------------------------------------------------------------------------------
# Kernels: `rows` are read from the source, `places` written in the target.
# ---------------------------------------------------------------------------------------------------------------------


@kernel(
    VOID(READ_U8, READ_I64, READ_I64, WRITE_U8),
    VOID(READ_I16, READ_I64, READ_I64, WRITE_I16),
    VOID(READ_I32, READ_I64, READ_I64, WRITE_I32),
    VOID(READ_I64, READ_I64, READ_I64, WRITE_I64),
)
def copy_values(source: Array, rows: Array, places: Array, target: Array) -> None:
    """Copy values of up to eight bytes."""
    for i in range(rows.size):
        fetch(source, rows[min(i + FETCH_AHEAD_ROWS, rows.size - 1)])
        # Unsigned positions: a signed one is tested for "counted from the end".
        target[np.uint64(places[i])] = source[np.uint64(rows[i])]


@kernel(VOID(READ_I64, READ_I64, READ_I64, WRITE_I64))
def copy_pairs(source: Array, rows: Array, places: Array, target: Array) -> None:
    """Copy values of sixteen bytes, two words each."""
    for i in range(rows.size):
        target[2 * places[i]] = source[2 * rows[i]]
        target[2 * places[i] + 1] = source[2 * rows[i] + 1]


@kernel(VOID(READ_U8, I64, READ_I64, READ_I64, WRITE_U8))
def copy_bits(source: Array, first_bit: int, rows: Array, places: Array, target: Array) -> None:
    """Copy bits, ones and zeros."""
    for i in range(rows.size):
        bit = first_bit + rows[i]
        place = places[i]
        mask = np.uint8(1 << (place & 7))
        if source[bit >> 3] & (1 << (bit & 7)):
            target[place >> 3] |= mask
        else:
            target[place >> 3] &= np.uint8(~mask)


@kernel(VOID(READ_I64, WRITE_U8))
def set_bits(places: Array, target: Array) -> None:
    """Set bits."""
    for i in range(places.size):
        target[places[i] >> 3] |= np.uint8(1 << (places[i] & 7))


@kernel(VOID(READ_I32, READ_U8, READ_I64, READ_I64, READ_I32, WRITE_U8))
def copy_strings(
    offsets: Array, source: Array, rows: Array, places: Array, target_offsets: Array, target: Array
) -> None:
    """Copy the bytes of strings to where their new offsets say.

    Eight bytes at a time and the rest one by one: not over a string's end, where another may stand already, and not
    backwards, because strings that move to the front of an arena overlap with where they were.
    """
    for i in range(rows.size):
        ahead = rows[min(i + FETCH_AHEAD_ROWS, rows.size - 1)]
        fetch(source, np.int64(offsets[ahead]))
        begin = np.int64(offsets[rows[i]])
        length = np.int64(offsets[rows[i] + 1]) - begin
        to = np.int64(target_offsets[places[i]])
        at = np.int64(0)
        while at + 8 <= length:
            copy_8_bytes(target, to + at, source, begin + at)
            at += 8
        while at < length:
            target[to + at] = source[begin + at]
            at += 1


@kernel(VOID(READ_I32, READ_I64, WRITE_I64))
def add_lengths(offsets: Array, rows: Array, sizes: Array) -> None:
    """Add the lengths of strings to sizes, one for each row."""
    for i in range(rows.size):
        sizes[i] += offsets[rows[i] + 1] - offsets[rows[i]]


@kernel(I64(READ_I64, WRITE_I32, I64))
def offsets_from_lengths(lengths: Array, offsets: Array, begin: int) -> int:
    """Write the offset behind each string, the first beginning at `begin`; return the last."""
    for i in range(lengths.size):
        begin += lengths[i]
        offsets[i + 1] = begin
    return begin


# ---------------------------------------------------------------------------------------------------------------------
# Views of Arrow columns
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnView:
    """The buffers of one Arrow array as NumPy arrays that begin at its first row."""

    validity: Bytes | None
    first_bit: int
    offsets: npt.NDArray[np.int32]
    data: npt.NDArray[np.generic]


_NO_BYTES: Bytes = np.zeros(0, np.uint8)
_NO_OFFSETS: npt.NDArray[np.int32] = np.zeros(1, np.int32)


def _as_bytes(buffer: pa.Buffer | None) -> Bytes:
    return _NO_BYTES if buffer is None else np.frombuffer(buffer, np.uint8)


def view_of(array: pa.Array, layout: Layout) -> ColumnView:
    """Return the buffers of an Arrow array of this layout."""
    buffers = array.buffers()
    validity = _as_bytes(buffers[0]) if array.null_count else None
    begin = array.offset
    if layout is Layout.BITS:
        return ColumnView(validity, begin, _NO_OFFSETS, _as_bytes(buffers[1]))
    if layout is Layout.VARIABLE:
        # Cut before the view: what follows the last offset need not be a whole number of words.
        ends = _as_bytes(buffers[1])[4 * begin : 4 * (begin + len(array) + 1)]
        offsets = ends.view(np.int32) if len(array) else _NO_OFFSETS
        return ColumnView(validity, begin, offsets, _as_bytes(buffers[2]))
    width = array.type.bit_width // 8
    # A fixed-size binary may begin anywhere; cutting before the view keeps its words where its values are.
    data = _as_bytes(buffers[1])[begin * width : (begin + len(array)) * width]
    return ColumnView(validity, begin, _NO_OFFSETS, data.view(WORD_BY_WIDTH[width]))


def copy_fixed(view: ColumnView, width: int, rows: Rows, places: Rows, target: npt.NDArray[np.generic]) -> None:
    """Copy values of a fixed width."""
    if width == 16:  # noqa: PLR2004 - two words a value
        copy_pairs(view.data, rows, places, target)
    else:
        copy_values(view.data, rows, places, target)


def rows_of(first: npt.NDArray[np.integer[Any]], count: npt.NDArray[np.integer[Any]]) -> Rows:
    """Return all row numbers of ranges, one range after the other."""
    if len(count) == 0 or int(count.max()) == 1:
        return np.ascontiguousarray(first, dtype=np.int64)
    ends = np.cumsum(count, dtype=np.int64)
    rows: Rows = np.arange(int(ends[-1]), dtype=np.int64) + np.repeat(first - (ends - count), count)
    return rows


def row_bytes(batch: pa.RecordBatch, rows: Rows) -> Rows:
    """Return the Arrow bytes of each of these rows: fixed widths, string bytes and offsets; nested columns by mean."""
    fixed_bytes = 0.0
    sizes = np.zeros(len(rows), np.int64)
    for column in batch.columns:
        layout = layout_of(column.type)
        if layout is Layout.VARIABLE:
            add_lengths(view_of(column, layout).offsets, rows, sizes)
        fixed_bytes += _bytes_besides_strings(column, layout)
    sizes += int(np.ceil(fixed_bytes))
    return sizes


def _bytes_besides_strings(column: pa.Array, layout: Layout) -> float:
    validity = 1 / 8
    if layout is Layout.FIXED:
        return float(column.type.bit_width) / 8 + validity
    if layout is Layout.VARIABLE:
        return 4 + validity
    if layout is Layout.BITS:
        return 1 / 8 + validity
    return float(column.nbytes) / max(1, len(column))
