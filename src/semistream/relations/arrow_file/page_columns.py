"""From rows found on pages to one Arrow record batch of at most so many bytes.

Strings are looked up before anything is copied, so that the length of every row is known and the batch can be cut
exactly; what does not fit is left to the next batch. Columns that no kernel knows (lists, structs, maps, extensions)
are taken by Arrow page by page: correct, and slower by a factor of ten or more.

Scratch memory: 24 bytes a row, 16 more for each string column, for about as many rows as fit into the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.relations.arrow_file.gather_pages import (
    copy_strings,
    find_strings,
    gather_bits,
    gather_values,
    gather_wide_values,
)
from semistream.relations.arrow_file.page_index import (
    NO_BUFFER,
    ColumnLayout,
    Int64s,
    PageIndex,
    int64_array,
    layout_of,
)
from semistream.relations.arrow_file.page_source import HeldPages
from semistream.relations.arrow_file.plain_layout import VALIDITY_BYTES, column_row_bytes
from semistream.relations.base import Codes
from semistream.structures.raw_memory import OVERHANG_BYTES

BATCH_BYTES_MAX = 2**31 - 1
"""Most bytes that a string column with 32-bit offsets can hold."""

_NESTED_OVERHEAD_BYTES = 64
"""What the buffers of one nested column may take beyond its rows: last offsets and the rest of validity bytes."""

_CODE_BYTES = 8
_WIDTH_LOG2 = {1: 0, 2: 1, 4: 2, 8: 3}
_STRINGS = (ColumnLayout.VARIABLE, ColumnLayout.LARGE_VARIABLE)


@dataclass(frozen=True, slots=True)
class WantedColumn:
    """One column that is read: its place in the data file and where its buffers are."""

    place: int
    field: pa.Field
    layout: ColumnLayout
    width_bytes: int
    """Bytes of a value; for strings, of an offset; 0 for bits and nested columns."""
    validity: Int64s | None
    """Where the validity bits of each page stand; None when no page has any."""
    buffers: tuple[Int64s, ...]
    """Where the other buffers of each page stand."""

    @classmethod
    def find(cls, name: str, schema: pa.Schema, index: PageIndex) -> WantedColumn:
        """Look a column up in the schema and the index of a data file."""
        place = schema.get_field_index(name)
        data_type = schema.field(place).type
        layout = layout_of(data_type)
        widths = {ColumnLayout.VARIABLE: 4, ColumnLayout.LARGE_VARIABLE: 8}
        width_bytes = data_type.bit_width // 8 if layout is ColumnLayout.FIXED else widths.get(layout, 0)
        validity = index.buffers[place][:1]
        has_nulls = any(bool(np.any(positions != NO_BUFFER)) for positions in validity)
        return cls(
            place,
            schema.field(place),
            layout,
            width_bytes,
            validity[0] if has_nulls else None,
            index.buffers[place][1:],
        )


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Rows to be copied: the code of each, the slot of its page and its row on that page."""

    codes: Codes
    slots: Int64s
    rows: Int64s

    def first(self, count: int) -> FoundRows:
        """Return the first `count` of them."""
        return FoundRows(self.codes[:count], self.slots[:count], self.rows[:count])


@dataclass(frozen=True, slots=True)
class _FoundStrings:
    sources: Int64s
    until: Int64s


class RowGatherer:
    """Copies rows of some columns out of held pages."""

    def __init__(self, schema: pa.Schema, file_schema: pa.Schema, index: PageIndex) -> None:
        self._schema = schema
        self._file_schema = file_schema
        self._index = index
        self._columns = [WantedColumn.find(name, file_schema, index) for name in schema.names[1:]]
        self._nested = [column for column in self._columns if column.layout is ColumnLayout.NESTED]
        self._strings = [column for column in self._columns if column.layout in _STRINGS]
        self.row_bytes_min = _CODE_BYTES + sum(column.width_bytes for column in self._columns)
        """Bytes of a row whose strings and nested values are empty, bits not counted."""
        self._bitmaps = sum(
            int(column.validity is not None) + int(column.layout is ColumnLayout.BITS) for column in self._columns
        )
        one_more_offset = sum(column.width_bytes for column in self._strings)
        self._constant_bytes = one_more_offset + _NESTED_OVERHEAD_BYTES * len(self._nested)

    def gather(self, held: HeldPages, found: FoundRows, bytes_max: int) -> pa.RecordBatch:
        """Return as many of the rows, from the first on, as fit into `bytes_max`; at least one."""
        strings = {column.place: _find_strings(column, held, found) for column in self._strings}
        nested = self._take_nested(held, found)
        count = self._rows_that_fit(len(found.rows), strings, nested, bytes_max)
        found = found.first(count)
        # A copy: a batch owns its rows.
        arrays = [int64_array(found.codes)]
        for column in self._columns:
            if column.layout is ColumnLayout.NESTED:
                # A slice would keep all that was taken alive.
                taken = nested[column.place]
                arrays.append(taken if len(taken) == count else taken.take(int64_array(np.arange(count))))
            elif column.place in strings:
                arrays.append(_copy_strings(column, held, found, strings[column.place]))
            else:
                arrays.append(_copy_values(column, held, found))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _rows_that_fit(
        self, count: int, strings: dict[int, _FoundStrings], nested: dict[int, pa.Array], bytes_max: int
    ) -> int:
        bytes_max = min(bytes_max, BATCH_BYTES_MAX)
        string_sums = [found.until for found in strings.values()]
        nested_sums = [np.cumsum(column_row_bytes(taken) + VALIDITY_BYTES) for taken in nested.values()]

        def bytes_of(until: Any) -> Any:
            """Bytes of so many rows, or of each of several numbers of rows."""
            total = until * self.row_bytes_min + (until + 7) // 8 * self._bitmaps + self._constant_bytes
            return total + sum(sums[until] for sums in string_sums) + sum(sums[until - 1] for sums in nested_sums)

        # All of them mostly fit.
        if bytes_of(count) <= bytes_max:
            return count
        return max(1, int(np.searchsorted(bytes_of(np.arange(1, count + 1)), bytes_max, side="right")))

    def _take_nested(self, held: HeldPages, found: FoundRows) -> dict[int, pa.Array]:
        if not self._nested:
            return {}
        parts: dict[int, list[pa.Array]] = {column.place: [] for column in self._nested}
        begins = np.flatnonzero(np.concatenate([[True], found.slots[1:] != found.slots[:-1]]))
        for begin, end in zip(begins, [*begins[1:], len(found.slots)], strict=True):
            page = pa.ipc.read_record_batch(held.message(int(found.slots[begin]), self._index), self._file_schema)
            rows = int64_array(found.rows[begin:end])
            for column in self._nested:
                parts[column.place].append(page.column(column.place).take(rows))
        return {place: pa.concat_arrays(taken) for place, taken in parts.items()}


def _copy_validity(column: WantedColumn, held: HeldPages, found: FoundRows) -> pa.Buffer | None:
    if column.validity is None:
        return None
    return _copy_bits(held, held.starts(column.validity), found)


def _copy_bits(held: HeldPages, starts: Int64s, found: FoundRows) -> pa.Buffer:
    bits = np.zeros((len(found.rows) + 7) // 8, np.uint8)
    gather_bits(held.u8, starts, found.slots, found.rows, bits)
    return pa.py_buffer(bits)


def _copy_values(column: WantedColumn, held: HeldPages, found: FoundRows) -> pa.Array:
    count = len(found.rows)
    positions = column.buffers[0]
    width = column.width_bytes
    if column.layout is ColumnLayout.BITS:
        values = _copy_bits(held, held.starts(positions), found)
    elif width in _WIDTH_LOG2:
        width_log2 = _WIDTH_LOG2[width]
        source = (held.u8, held.i16, held.i32, held.i64)[width_log2]
        target = np.empty(count, source.dtype)
        gather_values(source, width_log2, held.starts(positions), found.slots, found.rows, target)
        values = pa.py_buffer(target)
    else:
        wide = np.empty(count * width + OVERHANG_BYTES, np.uint8)
        gather_wide_values(held.u8, held.starts(positions), found.slots, found.rows, width, wide)
        values = pa.py_buffer(wide).slice(0, count * width)
    return pa.Array.from_buffers(column.field.type, count, [_copy_validity(column, held, found), values])


def _find_strings(column: WantedColumn, held: HeldPages, found: FoundRows) -> _FoundStrings:
    offsets, values = column.buffers
    strings = _FoundStrings(np.empty(len(found.rows), np.int64), np.empty(len(found.rows) + 1, np.int64))
    find_strings(
        held.i32 if column.layout is ColumnLayout.VARIABLE else held.i64,
        _WIDTH_LOG2[column.width_bytes],
        held.starts(offsets),
        # A page whose strings are all empty has no values buffer; then nothing is copied from where it is not.
        held.starts(values),
        found.slots,
        found.rows,
        strings.sources,
        strings.until,
    )
    return strings


def _copy_strings(column: WantedColumn, held: HeldPages, found: FoundRows, strings: _FoundStrings) -> pa.Array:
    count = len(found.rows)
    until = strings.until[: count + 1]
    value_bytes = int(until[-1])
    target = np.empty(value_bytes + OVERHANG_BYTES, np.uint8)
    copy_strings(held.u8, strings.sources[:count], until, target)
    offsets = until.astype(np.int32) if column.layout is ColumnLayout.VARIABLE else until
    buffers = [
        _copy_validity(column, held, found),
        pa.py_buffer(offsets),
        pa.py_buffer(target).slice(0, value_bytes),
    ]
    return pa.Array.from_buffers(column.field.type, count, buffers)
