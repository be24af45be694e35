"""Rows from several sources into one batch.

Joined rows come from two places at once: rows that are remembered and rows that were just read. Arrow's `take` knows
one source and no destination, so two takes, a concatenation and a third take would be needed to bring the result into
the order of the stream. `gather` does it in one pass a column: every part says which of its rows go to which place. Of
packed rows all columns of fixed width are filled in one pass together.

Strings take two: first each part says at which addresses its strings stand, then all are copied in the order of their
places, 32 bytes at a time, each over the overhang of the one before. A string so near the end of its buffer that this
would read behind it is copied byte by byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.structures.columns import (
    OFFSET_MAX,
    WORD_BY_WIDTH,
    Bytes,
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
from semistream.structures.packed_rows import (
    PackedRows,
    RowSource,
    find_packed_strings,
    unpack_bits,
    unpack_cells,
    unpack_validity,
)
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


@kernel(I64(WRITE_I32))
def _add_up(lengths: Array) -> int:
    """Turn the lengths of strings into where each of them ends; return where the last one does."""
    total = 0
    for i in range(lengths.size):
        total += lengths[i]
        lengths[i] = total
    return total


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
    """Rows of one source and the places in the result where they go."""

    source: RowSource
    rows: Rows
    places: Rows


@dataclass(frozen=True, slots=True)
class _Packed:
    """A part whose rows are packed, found in memory."""

    source: PackedRows
    addresses: Rows
    places: Rows


_FoundPart = Part | _Packed


def gather(parts: Sequence[Part], schema: pa.Schema, length: int) -> list[pa.Array]:
    """Return the columns of `schema`, `length` rows each, filled from the parts; places that no part fills are null.

    Example:
        >>> batch = pa.record_batch({"name": ["ant", "bee"]})
        >>> part = Part(batch, np.array([1, 0, 1]), np.array([0, 2, 3]))
        >>> gather([part], batch.schema, 4)[0].to_pylist()
        ['bee', None, 'ant', 'bee']
    """
    filled = sum(len(part.rows) for part in parts)
    assert filled <= length, "two parts fill the same place"
    found = [_found(part) for part in parts if len(part.rows)]
    words = {field.name: _words_for(field.type, length) for field in schema if layout_of(field.type) is Layout.FIXED}
    for part in found:
        if isinstance(part, _Packed) and words:
            _unpack_words(part, words)
    return [_gather_column(found, field, length, filled == length, words.get(field.name)) for field in schema]


def columns_at(source: RowSource, rows: Rows, names: Sequence[str]) -> tuple[list[pa.Array], Rows]:
    """Columns in which these rows of a source stand, and where; of packed rows they are a copy."""
    if not isinstance(source, PackedRows):
        return [source.column(name) for name in names], rows
    places = np.arange(len(rows), dtype=np.int64)
    return gather([Part(source, rows, places)], pa.schema([source.schema.field(n) for n in names]), len(rows)), places


def _found(part: Part) -> _FoundPart:
    if not isinstance(part.source, PackedRows):
        return part
    return _Packed(part.source, part.source.addresses_of(part.rows), part.places)


def _words_for(data_type: pa.DataType, length: int) -> npt.NDArray[Any]:
    width = data_type.bit_width // 8
    return np.zeros(length * (2 if width == 16 else 1), WORD_BY_WIDTH[width])  # noqa: PLR2004 - two words a value


def _unpack_words(part: _Packed, words: Mapping[str, npt.NDArray[Any]]) -> None:
    """Fill all columns of fixed width in one pass over the rows, each of which is fetched once."""
    cells = [part.source.format.cells[name] for name in words]
    unpack_cells(
        part.addresses,
        part.places,
        np.array([cell.at for cell in cells], np.int64),
        np.array([cell.width for cell in cells], np.int64),
        np.array([target.ctypes.data for target in words.values()], np.int64),
    )


def _gather_column(
    parts: Sequence[_FoundPart], field: pa.Field, length: int, is_filled: bool, words: npt.NDArray[Any] | None
) -> pa.Array:
    layout = layout_of(field.type)
    if layout is Layout.OTHER:
        return _gather_by_take(parts, field, length)
    columns = [_column_of(part, field.name, layout) for part in parts]
    validity = _gather_validity(columns, length, is_filled)
    if layout is Layout.VARIABLE:
        return _gather_strings(columns, field.type, length, validity)
    if layout is Layout.BITS:
        bits = np.zeros((length + 7) // 8, np.uint8)
        for column in columns:
            column.copy_bits(bits)
        return pa.Array.from_buffers(field.type, length, [validity, pa.py_buffer(bits)])
    assert words is not None, "a column of fixed width has no room"
    for column in columns:
        # Those of packed rows are there already.
        if isinstance(column, _ArrowColumn):
            copy_fixed(column.view, field.type.bit_width // 8, column.rows, column.places, words)
    return pa.Array.from_buffers(field.type, length, [validity, pa.py_buffer(words)])


def _gather_validity(columns: Sequence[_Column], length: int, is_filled: bool) -> pa.Buffer | None:
    if is_filled and not any(column.has_nulls for column in columns):
        return None
    bits = np.zeros((length + 7) // 8, np.uint8)
    for column in columns:
        if column.has_nulls:
            column.copy_validity(bits)
        else:
            set_bits(column.places, bits)
    return pa.py_buffer(bits)


def _gather_strings(
    columns: Sequence[_Column], data_type: pa.DataType, length: int, validity: pa.Buffer | None
) -> pa.Array:
    # Behind a first offset of 0 lengths become offsets in place.
    offsets = np.zeros(length + 1, np.int32)
    addresses = np.zeros(length, np.int64)
    for column in columns:
        column.find_strings(addresses, offsets[1:])
    total = _add_up(offsets)
    assert total <= OFFSET_MAX, "the caller must cut output before a string column passes 2 GiB"
    data = np.empty(total + OVERHANG_BYTES, np.uint8)
    _copy_strings(addresses, offsets, data)
    return pa.Array.from_buffers(
        data_type, length, [validity, pa.py_buffer(offsets), pa.py_buffer(data).slice(0, total)]
    )


# ---------------------------------------------------------------------------------------------------------------------
# One column of one part
# ---------------------------------------------------------------------------------------------------------------------


class _Column(Protocol):
    """What a part has to say about one column."""

    @property
    def places(self) -> Rows: ...

    @property
    def has_nulls(self) -> bool: ...

    def copy_validity(self, bits: Bytes) -> None: ...

    def copy_bits(self, bits: Bytes) -> None: ...

    def find_strings(self, addresses: Rows, lengths: npt.NDArray[np.int32]) -> None: ...


def _column_of(part: _FoundPart, name: str, layout: Layout) -> _Column:
    if isinstance(part, _Packed):
        return _PackedColumn(part, name)
    view = view_of(part.source.column(name), layout)
    return _ArrowColumn(part.rows, part.places, view)


@dataclass(frozen=True, slots=True)
class _ArrowColumn:
    """A column of a record batch."""

    rows: Rows
    places: Rows
    view: ColumnView

    @property
    def has_nulls(self) -> bool:
        return self.view.validity is not None

    def copy_validity(self, bits: Bytes) -> None:
        copy_bits(self.view.validity, self.view.first_bit, self.rows, self.places, bits)

    def copy_bits(self, bits: Bytes) -> None:
        copy_bits(self.view.data, self.view.first_bit, self.rows, self.places, bits)

    def find_strings(self, addresses: Rows, lengths: npt.NDArray[np.int32]) -> None:
        begin = self.view.data.ctypes.data
        end = begin + self.view.data.nbytes
        _find_strings(self.view.offsets, begin, end, self.rows, self.places, addresses, lengths)


class _PackedColumn:
    """A column of packed rows; values of fixed width were copied for all columns at once."""

    def __init__(self, part: _Packed, name: str) -> None:
        self.places = part.places
        self._addresses = part.addresses
        self._format = part.source.format
        self._cell = self._format.cells[name]
        self.has_nulls = part.source.has_nulls[self._cell.column]

    def copy_validity(self, bits: Bytes) -> None:
        unpack_validity(self._addresses, self.places, self._cell.column, bits)

    def copy_bits(self, bits: Bytes) -> None:
        unpack_bits(self._addresses, self.places, self._cell.at, bits)

    def find_strings(self, addresses: Rows, lengths: npt.NDArray[np.int32]) -> None:
        cells = self._cell.begin_at, self._cell.at
        find_packed_strings(self._addresses, self.places, *cells, self._format.fixed_bytes, addresses, lengths)


def _gather_by_take(parts: Sequence[_FoundPart], field: pa.Field, length: int) -> pa.Array:
    taken = []
    for part in parts:
        assert isinstance(part, Part), "packed rows have no nested columns"
        taken.append(part.source.column(field.name).take(pa.array(part.rows)))
    if not taken:
        return pa.nulls(length, field.type)
    order = np.full(length, -1, np.int64)
    order[np.concatenate([part.places for part in parts])] = np.arange(sum(map(len, taken)))
    return pa.concat_arrays(taken).take(pa.array(order, mask=order < 0))
