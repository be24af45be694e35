"""Rows whose values lie together.

Arrow keeps each column apart, which serves those who read columns. Who looks up one row here and one there touches a
line of memory for each of its values, two for each string, and as many pages of the processor's address cache. So rows
that are remembered to be looked up lie *packed*: one behind the other, each with all of its values.

```
bitmap | a cell for each column | the bytes of its strings | up to 7 bytes of nothing
```

The bitmap has a bit for each column, set where there is a value. A cell has the value itself, a byte for a truth
value, and for a string where it ends, counted from the beginning of the row; it begins where the one before it ends.
A row is a multiple of eight bytes long.

`RowFormat` says where cells stand and writes rows; `PackedRows` names rows by number and finds them; `gather` reads
them. Kernels are given addresses and check no bounds: who calls them knows what may be touched.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.structures.columns import Layout, Rows, add_lengths, layout_of, view_of
from semistream.structures.compiled import (
    I64,
    READ_I32,
    READ_I64,
    READ_U8,
    VOID,
    WRITE_I32,
    WRITE_I64,
    WRITE_U8,
    Array,
    hot_helper,
    kernel,
)
from semistream.structures.raw_memory import (
    FETCH_AHEAD_ROWS,
    byte_at,
    copy_1_byte,
    copy_2_bytes,
    copy_4_bytes,
    copy_8_bytes_between,
    fetch_from,
    int32_at,
    put_byte,
    put_int32,
)

ROW_UNIT_BYTES = 8
"""Rows begin at multiples of this, so that 32 bits name a place in 32 GB."""

LINE_BYTES = 64
"""What the processor brings from memory at a time."""

LINES_FETCHED = 3
"""Lines of a row that are fetched ahead; what follows comes by itself, one line leading to the next."""

NO_CELL = -1


# ---------------------------------------------------------------------------------------------------------------------
# Kernels
# ---------------------------------------------------------------------------------------------------------------------


@hot_helper
def copy_cell(to: Any, source: Any, width: Any) -> None:
    """Copy a value of 1, 2, 4, 8 or 16 bytes between two addresses."""
    if width == 8:  # noqa: PLR2004 - the most usual first
        copy_8_bytes_between(to, source)
    elif width == 4:  # noqa: PLR2004 - a number of bytes, as the name says
        copy_4_bytes(to, source)
    elif width == 1:
        copy_1_byte(to, source)
    elif width == 2:  # noqa: PLR2004 - the same
        copy_2_bytes(to, source)
    else:
        copy_8_bytes_between(to, source)
        copy_8_bytes_between(to + 8, source + 8)


@hot_helper
def fetch_row(address: Any) -> None:
    """Ask for the lines of a row."""
    for line in range(LINES_FETCHED):
        fetch_from(address + line * LINE_BYTES)


@kernel(VOID(READ_I64, READ_I64, READ_I64, READ_I64, READ_I64))
def unpack_cells(addresses: Array, places: Array, cells: Array, widths: Array, targets: Array) -> None:
    """Copy cells of rows at addresses to places in columns that begin at other addresses."""
    for i in range(addresses.size):
        fetch_row(addresses[min(i + FETCH_AHEAD_ROWS, addresses.size - 1)])
        address, place = addresses[i], places[i]
        for column in range(cells.size):
            width = widths[column]
            copy_cell(targets[column] + place * width, address + cells[column], width)


@kernel(VOID(READ_I64, READ_I64, I64, WRITE_U8))
def unpack_bits(addresses: Array, places: Array, cell: int, target: Array) -> None:
    """Copy truth values to places in a column of bits, which are zeros."""
    for i in range(addresses.size):
        if byte_at(addresses[i] + cell) != 0:
            target[places[i] >> 3] |= np.uint8(1 << (places[i] & 7))


@kernel(VOID(READ_I64, READ_I64, I64, WRITE_U8))
def unpack_validity(addresses: Array, places: Array, column: int, target: Array) -> None:
    """Set the bits of places whose rows have a value in a column."""
    for i in range(addresses.size):
        if byte_at(addresses[i] + (column >> 3)) & (1 << (column & 7)):
            target[places[i] >> 3] |= np.uint8(1 << (places[i] & 7))


@kernel(VOID(READ_I64, READ_I64, I64, I64, I64, WRITE_I64, WRITE_I32))
def find_packed_strings(
    addresses: Array, places: Array, begin_cell: int, end_cell: int, fixed_bytes: int, found: Array, lengths: Array
) -> None:
    """Write where the strings of rows stand, and how long they are, to their places."""
    for i in range(addresses.size):
        fetch_from(addresses[min(i + FETCH_AHEAD_ROWS, addresses.size - 1)] + end_cell)
        address, place = addresses[i], np.uint64(places[i])
        begin = fixed_bytes if begin_cell < 0 else np.int64(int32_at(address + begin_cell))
        found[place] = address + begin
        lengths[place] = np.int64(int32_at(address + end_cell)) - begin


@kernel(VOID(READ_I64, I64, READ_I64, I64, I64))
def _pack_cells(rows: Array, source: int, addresses: Array, cell: int, width: int) -> None:
    for i in range(rows.size):
        copy_cell(addresses[i] + cell, source + rows[i] * width, width)


@kernel(VOID(READ_U8, I64, READ_I64, READ_I64, I64))
def _pack_bits(source: Array, first_bit: int, rows: Array, addresses: Array, cell: int) -> None:
    for i in range(rows.size):
        bit = first_bit + rows[i]
        put_byte(addresses[i] + cell, np.uint8(1 if source[bit >> 3] & (1 << (bit & 7)) else 0))


@kernel(VOID(READ_I64, I64))
def _pack_all_valid(addresses: Array, bitmap_bytes: int) -> None:
    for i in range(addresses.size):
        for byte in range(bitmap_bytes):
            put_byte(addresses[i] + byte, np.uint8(0xFF))


@kernel(VOID(READ_U8, I64, READ_I64, READ_I64, I64))
def _pack_nulls(validity: Array, first_bit: int, rows: Array, addresses: Array, column: int) -> None:
    for i in range(rows.size):
        bit = first_bit + rows[i]
        if not validity[bit >> 3] & (1 << (bit & 7)):
            byte = addresses[i] + (column >> 3)
            put_byte(byte, np.uint8(byte_at(byte) & ~(1 << (column & 7))))


@kernel(VOID(READ_I32, I64, READ_I64, READ_I64, I64, I64, I64))
def _pack_strings(
    offsets: Array, source: int, rows: Array, addresses: Array, begin_cell: int, end_cell: int, fixed_bytes: int
) -> None:
    """Eight bytes at a time and the rest one by one: behind a row another may stand."""
    for i in range(rows.size):
        address = addresses[i]
        begin = fixed_bytes if begin_cell < 0 else np.int64(int32_at(address + begin_cell))
        length = np.int64(offsets[rows[i] + 1]) - np.int64(offsets[rows[i]])
        put_int32(address + end_cell, np.int32(begin + length))
        to, at = address + begin, source + np.int64(offsets[rows[i]])
        whole = length // 8 * 8
        for byte in range(0, whole, 8):
            copy_8_bytes_between(to + byte, at + byte)
        for byte in range(whole, length):
            copy_1_byte(to + byte, at + byte)


@kernel(VOID(READ_I64, READ_I64, READ_I64))
def _copy_rows(sources: Array, sizes: Array, addresses: Array) -> None:
    for i in range(sources.size):
        fetch_row(sources[min(i + FETCH_AHEAD_ROWS, sources.size - 1)])
        for byte in range(0, sizes[i], ROW_UNIT_BYTES):
            copy_8_bytes_between(addresses[i] + byte, sources[i] + byte)


# ---------------------------------------------------------------------------------------------------------------------
# What rows look like
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a column stands in every row."""

    column: int
    layout: Layout
    at: int
    width: int
    begin_at: int = NO_CELL
    """For a string, the cell that says where it begins; none for the first, which begins behind all cells."""


@dataclass(frozen=True)
class RowFormat:
    """What rows of a schema look like when they are packed. All columns must have a layout that kernels know."""

    schema: pa.Schema

    @property
    def bitmap_bytes(self) -> int:
        """Bytes before the first cell."""
        return -(-len(self.schema) // 8)

    @cached_property
    def cells(self) -> dict[str, Cell]:
        """The cell of each column, by name."""
        cells, at, string_before = {}, self.bitmap_bytes, NO_CELL
        for column, field in enumerate(self.schema):
            layout = layout_of(field.type)
            width = {Layout.VARIABLE: 4, Layout.BITS: 1}.get(layout) or field.type.bit_width // 8
            cells[field.name] = Cell(column, layout, at, width, string_before)
            if layout is Layout.VARIABLE:
                string_before = at
            at += width
        return cells

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes of a row before its strings."""
        return self.bitmap_bytes + sum(cell.width for cell in self.cells.values())

    @property
    def row_bytes_min(self) -> int:
        """Bytes of a row whose strings are empty."""
        return -(-self.fixed_bytes // ROW_UNIT_BYTES) * ROW_UNIT_BYTES

    def sizes_of(self, batch: pa.RecordBatch, rows: Rows) -> Rows:
        """What each of these rows takes when it is packed."""
        sizes = np.full(len(rows), self.fixed_bytes + ROW_UNIT_BYTES - 1, np.int64)
        for name, cell in self.cells.items():
            if cell.layout is Layout.VARIABLE:
                add_lengths(view_of(batch.column(name), cell.layout).offsets, rows, sizes)
        sizes &= -ROW_UNIT_BYTES
        return sizes

    def pack(self, batch: pa.RecordBatch, rows: Rows, addresses: Rows) -> npt.NDArray[np.bool_]:
        """Write these rows of a batch to addresses; return for each column whether there may be nulls among them."""
        _pack_all_valid(addresses, self.bitmap_bytes)
        has_nulls = np.zeros(len(self.cells), np.bool_)
        for name, cell in self.cells.items():
            view = view_of(batch.column(name), cell.layout)
            source = view.data.ctypes.data
            if cell.layout is Layout.VARIABLE:
                _pack_strings(view.offsets, source, rows, addresses, cell.begin_at, cell.at, self.fixed_bytes)
            elif cell.layout is Layout.BITS:
                _pack_bits(view.data, view.first_bit, rows, addresses, cell.at)
            else:
                _pack_cells(rows, source, addresses, cell.at, cell.width)
            if view.validity is not None:
                _pack_nulls(view.validity, view.first_bit, rows, addresses, cell.column)
                has_nulls[cell.column] = True
        return has_nulls


# ---------------------------------------------------------------------------------------------------------------------
# Rows by number
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PackedRows:
    """Packed rows that somebody keeps, by number."""

    format: RowFormat
    has_nulls: tuple[bool, ...]
    """For each column, whether some row may have no value in it."""
    addresses_of: Callable[[Rows], Rows]
    """Where rows begin; behind each, `OVERHANG_BYTES` can be read."""
    sizes_of: Callable[[Rows], Rows]
    """The bytes of rows."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of all rows."""
        return self.format.schema

    def copy(self, rows: Rows, addresses: Rows) -> None:
        """Copy rows, whole, to other addresses."""
        _copy_rows(self.addresses_of(rows), self.sizes_of(rows), addresses)


RowSource = pa.RecordBatch | PackedRows
"""Where rows can be gathered from by their numbers."""
