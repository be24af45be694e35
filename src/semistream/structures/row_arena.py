"""Rows kept for long: a record batch with room at its end.

Columns lie in Arrow's own layout, so that `RowArena.batch` is a view and costs nothing. Rows are appended; `keep`
drops all others and closes the gaps in place. There is no free list and no fragmentation, and rows that were appended
together stay together.

Memory: the rows, and what the system gives in whole pages beyond them. Columns of fixed length lie side by side in
address space that is as large as `bytes_max`, so all of them together never take more than a page beyond that. Strings
have any length, so each buffer beside them needs as much address space as all of them together, and pages of its own.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from itertools import islice

import numpy as np
import pyarrow as pa

from semistream.structures.columns import (
    OFFSET_MAX,
    WORD_BY_WIDTH,
    ColumnView,
    Layout,
    Rows,
    add_lengths,
    copy_bits,
    copy_fixed,
    copy_pairs,
    copy_strings,
    copy_values,
    layout_of,
    offsets_from_lengths,
    set_bits,
    view_of,
)
from semistream.structures.reserved import WORD_BYTES, Reserved


def fixed_bytes_per_row(schema: pa.Schema) -> int:
    """Bytes of a row in an arena, the bytes of its strings not counted."""
    total = 0.0
    for field in schema:
        layout = layout_of(field.type)
        total += 1 / 8
        if layout is Layout.FIXED:
            total += field.type.bit_width / 8
        elif layout is Layout.VARIABLE:
            total += 4
        elif layout is Layout.BITS:
            total += 1 / 8
    return int(np.ceil(total))


def page_slack_bytes(schema: pa.Schema) -> int:
    """What an arena may take beyond its `bytes_max`, because the system gives memory in pages."""
    buffers = sum(3 if layout_of(field.type) is Layout.VARIABLE else 2 for field in schema)
    return buffers * mmap.PAGESIZE if _has_strings(schema) else mmap.PAGESIZE + buffers * WORD_BYTES


def _has_strings(schema: pa.Schema) -> bool:
    return any(layout_of(field.type) is Layout.VARIABLE for field in schema)


def _buffer_sizes(data_type: pa.DataType, rows_max: int, heap_bytes_max: int) -> tuple[int, int, int]:
    """Bytes of validity, offsets and data of a column."""
    layout, bits_bytes = layout_of(data_type), (rows_max + 7) // 8
    if layout is Layout.VARIABLE:
        return bits_bytes, 4 * (rows_max + 1), heap_bytes_max
    return bits_bytes, 0, bits_bytes if layout is Layout.BITS else rows_max * data_type.bit_width // 8


def can_be_kept(schema: pa.Schema) -> bool:
    """Whether an arena can hold rows of this schema: every column has a layout that the kernels know."""
    return all(layout_of(field.type) is not Layout.OTHER for field in schema)


class RowArena:
    """Rows kept in one growing record batch of fixed capacity.

    The address space for the largest possible content is reserved at once; memory is used only as rows come in and is
    returned to the system when `keep` drops them. `used_bytes` never passes `bytes_max`, which is 2 GiB at most where
    there are strings: their offsets have 32 bits.
    """

    def __init__(self, schema: pa.Schema, bytes_max: int) -> None:
        assert can_be_kept(schema), "an arena cannot hold nested columns"
        self._is_fixed = not _has_strings(schema)
        if not self._is_fixed:
            bytes_max = min(bytes_max, OFFSET_MAX)
        self.schema = schema
        self.bytes_max = bytes_max
        self._row_bytes = fixed_bytes_per_row(schema)
        self.rows_max = bytes_max // self._row_bytes
        sizes = [size for field in schema for size in _buffer_sizes(field.type, self.rows_max, bytes_max)]
        buffers = iter(Reserved.side_by_side(sizes) if self._is_fixed else [Reserved(size) for size in sizes])
        self._columns = [_ArenaColumn(field.name, field.type, *islice(buffers, 3)) for field in schema]
        self._strings = [column for column in self._columns if column.layout is Layout.VARIABLE]
        self.row_count = 0
        self._batch: pa.RecordBatch | None = None
        """The view, made once for all probes between two changes."""

    @property
    def used_bytes(self) -> int:
        """Bytes of the rows held now."""
        return self.row_count * self._row_bytes + sum([column.heap_used for column in self._strings])

    @property
    def batch(self) -> pa.RecordBatch:
        """The rows as a record batch: a view, valid until the next `append` or `keep`."""
        if self._batch is None:
            columns = [column.array(self.row_count) for column in self._columns]
            self._batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        return self._batch

    @property
    def row_bytes(self) -> int | None:
        """Bytes of any row; None where rows have strings and each its own length."""
        return self._row_bytes if self._is_fixed else None

    def bytes_of(self, batch: pa.RecordBatch, rows: Rows) -> Rows:
        """Return what each of these rows would add to `used_bytes`."""
        sizes = np.full(len(rows), self._row_bytes, np.int64)
        for column in self._strings:
            add_lengths(view_of(batch.column(column.name), column.layout).offsets, rows, sizes)
        return sizes

    def append(self, batch: pa.RecordBatch, rows: Rows) -> int:
        """Append these rows of a batch and return the number of the first; the caller has made sure they fit."""
        first = self.row_count
        if len(rows) == 0:
            return first
        assert first + len(rows) <= self.rows_max, "more rows than the arena has room for"
        self._batch = None
        places = np.arange(first, first + len(rows), dtype=np.int64)
        for column in self._columns:
            column.append(batch.column(column.name), rows, places)
        self.row_count += len(rows)
        assert self.used_bytes <= self.bytes_max, "the arena was filled past its limit"
        return first

    def keep(self, rows: Rows) -> None:
        """Keep only these rows, ascending; they are numbered anew from 0."""
        self.keep_parts([rows])

    def keep_parts(self, parts: Iterable[Rows]) -> None:
        """Keep only the rows of these parts, each ascending and behind the one before.

        Moving takes some 40 bytes for each row of a part besides what is kept, so who has little memory gives small
        parts.
        """
        kept = 0
        self._batch = None
        for column in self._columns:
            column.begin_keeping()
        for rows in parts:
            places = np.arange(kept, kept + len(rows), dtype=np.int64)
            for column in self._columns:
                column.move(rows, places)
            kept += len(rows)
        for column in self._columns:
            column.release_from(kept)
        self.row_count = kept

    def clear(self) -> None:
        """Drop all rows."""
        self.keep_parts([])


class _ArenaColumn:
    """One column of an arena, in Arrow's layout.

    Rows come in a few at a time, after every read of a page. So what a column has to know of itself is found once.
    """

    def __init__(
        self, name: str, data_type: pa.DataType, validity: Reserved, offsets: Reserved, data: Reserved
    ) -> None:
        self.name = name
        self.layout = layout_of(data_type)
        self.type = data_type
        self.heap_used = 0
        self._has_nulls = False
        self._validity, self._offsets, self._data = validity, offsets, data
        self._width = data_type.bit_width // 8 if self.layout is Layout.FIXED else 0
        self._words = self._data.bytes.view(WORD_BY_WIDTH[self._width or 1])
        self._ends = self._offsets.bytes.view(np.int32)
        """Of strings: where each begins, and the last one ends."""
        reserved = (self._offsets, self._data) if self.layout is Layout.VARIABLE else (self._data,)
        self._buffers = [pa.py_buffer(memory.bytes) for memory in reserved]

    def array(self, row_count: int) -> pa.Array:
        """The first `row_count` values, without a copy."""
        validity = pa.py_buffer(self._validity.bytes) if self._has_nulls else None
        return pa.Array.from_buffers(self.type, row_count, [validity, *self._buffers])

    def append(self, array: pa.Array, rows: Rows, places: Rows) -> None:
        """Write these values of `array` to the places at the end."""
        view = view_of(array, self.layout)
        self._write_validity(view, rows, places)
        if self.layout is Layout.VARIABLE:
            lengths = np.zeros(len(rows), np.int64)
            add_lengths(view.offsets, rows, lengths)
            # Kernels check no bounds: this must be known before they write.
            end = self.heap_used + int(lengths.sum())
            assert end <= len(self._data.bytes), "more bytes than the arena has room for"
            self.heap_used = offsets_from_lengths(lengths, self._ends[int(places[0]) :], self.heap_used)
            copy_strings(view.offsets, view.data, rows, places, self._ends, self._data.bytes)
        elif self.layout is Layout.BITS:
            copy_bits(view.data, view.first_bit, rows, places, self._data.bytes)
        else:
            copy_fixed(view, self._width, rows, places, self._words)

    def begin_keeping(self) -> None:
        """Prepare for `move`; strings are counted anew as they come."""
        self.heap_used = 0

    def move(self, rows: Rows, places: Rows) -> None:
        """Move these ascending rows to consecutive places before them: a target never lies behind its source."""
        if len(rows) == 0:
            return
        if self._has_nulls:
            copy_bits(self._validity.bytes, 0, rows, places, self._validity.bytes)
        if self.layout is Layout.VARIABLE:
            self._move_strings(rows, int(places[0]))
        elif self.layout is Layout.BITS:
            copy_bits(self._data.bytes, 0, rows, places, self._data.bytes)
        else:
            self._move_words(rows, places)

    def _move_words(self, rows: Rows, places: Rows) -> None:
        width, first, place = self._width, int(rows[0]), int(places[0])
        if int(rows[-1]) - first == len(rows) - 1:
            # The oldest were dropped, as by a cache that replaces them: the rest moves in one piece.
            values, length = self._data.bytes, len(rows) * width
            values[place * width :][:length] = values[first * width :][:length]
            return
        copy_words = copy_pairs if width == 16 else copy_values  # noqa: PLR2004 - two words a value
        copy_words(self._words, rows, places, self._words)

    def _move_strings(self, rows: Rows, first_place: int) -> None:
        offsets = self._ends
        lengths = np.zeros(len(rows), np.int64)
        add_lengths(offsets, rows, lengths)
        moved = np.zeros(len(rows) + 1, np.int32)
        moved[0] = self.heap_used
        self.heap_used = offsets_from_lengths(lengths, moved, self.heap_used)
        places = np.arange(len(rows), dtype=np.int64)
        copy_strings(offsets, self._data.bytes, rows, places, moved, self._data.bytes)
        # This overwrites no offset that is still needed: the next row begins behind the last place, or, as long as
        # every row was kept, at it, and then its offset does not change.
        offsets[first_place : first_place + len(moved)] = moved

    def _write_validity(self, view: ColumnView, rows: Rows, places: Rows) -> None:
        if view.validity is not None:
            if not self._has_nulls:
                # The first null: everything before it was valid. Bits behind it are written as their rows come.
                self._validity.bytes[: -(-int(places[0]) // 8)] = 0xFF
                self._has_nulls = True
            copy_bits(view.validity, view.first_bit, rows, places, self._validity.bytes)
        elif self._has_nulls:
            set_bits(places, self._validity.bytes)

    def release_from(self, row_count: int) -> None:
        """Give back the memory behind the first `row_count` rows."""
        bits_bytes = (row_count + 7) // 8
        if self._has_nulls:
            self._validity.release_from(bits_bytes)
        if self.layout is Layout.VARIABLE:
            self._offsets.release_from(4 * (row_count + 1))
            self._data.release_from(self.heap_used)
        elif self.layout is Layout.BITS:
            self._data.release_from(bits_bytes)
        else:
            self._data.release_from(row_count * self.type.bit_width // 8)
