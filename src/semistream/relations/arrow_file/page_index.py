"""The table of pages: where each page of a data file stands, and each buffer in it.

One Arrow IPC file with one record batch, a row a page. Readers map it, so it costs them no private memory and opens
at once whatever its length; it is about 0.2 % as long as the data.

Besides the six columns below there is one column for each Arrow buffer of each flat column (`PageColumn`), which
holds the buffer's absolute position in the data file, or -1 where the page has no such buffer (most often: no
nulls). Nested columns have none: their pages are read by Arrow itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PAGE_FIELDS = ("first_code", "row_start", "row_count", "offset", "length", "checksum")
NO_BUFFER = -1
Int64s = npt.NDArray[np.int64]


class ColumnLayout(Enum):
    """How the values of a column lie in a page."""

    FIXED = "values of a fixed number of whole bytes"
    BITS = "one bit a value"
    VARIABLE = "bytes with 32-bit offsets"
    LARGE_VARIABLE = "bytes with 64-bit offsets"
    NESTED = "anything else; read by Arrow"

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """The Arrow buffers of a column, in Arrow's order."""
        return _BUFFER_NAMES[self]


_BUFFER_NAMES = {
    ColumnLayout.FIXED: ("validity", "values"),
    ColumnLayout.BITS: ("validity", "values"),
    ColumnLayout.VARIABLE: ("validity", "offsets", "values"),
    ColumnLayout.LARGE_VARIABLE: ("validity", "offsets", "values"),
    ColumnLayout.NESTED: (),
}


def layout_of(data_type: pa.DataType) -> ColumnLayout:
    """Return how values of this type lie in a page."""
    if pa.types.is_boolean(data_type):
        return ColumnLayout.BITS
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        return ColumnLayout.VARIABLE
    if pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type):
        return ColumnLayout.LARGE_VARIABLE
    if pa.types.is_primitive(data_type) or pa.types.is_decimal(data_type) or _is_filled_fixed_binary(data_type):
        return ColumnLayout.FIXED
    return ColumnLayout.NESTED


def _is_filled_fixed_binary(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_fixed_size_binary(data_type) and data_type.byte_width > 0)


@dataclass(frozen=True, slots=True)
class PageIndex:
    """The table of pages, as arrays with one element a page."""

    first_code: Int64s
    row_start: Int64s
    row_count: Int64s
    offset: Int64s
    length: Int64s
    checksum: Int64s
    buffers: tuple[tuple[Int64s, ...], ...]
    """For each column of the data file, for each of its buffers: where it begins in the data file."""

    def __len__(self) -> int:
        return len(self.first_code)

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch, schema: pa.Schema) -> PageIndex:
        """View the record batch of an index file; `schema` is that of the data file."""
        arrays = [int64_view(column) for column in batch.columns]
        place = len(PAGE_FIELDS)
        buffers = []
        for field in schema:
            count = len(layout_of(field.type).buffer_names)
            buffers.append(tuple(arrays[place : place + count]))
            place += count
        first_code, row_start, row_count, offset, length, checksum = arrays[: len(PAGE_FIELDS)]
        return cls(first_code, row_start, row_count, offset, length, checksum, tuple(buffers))


def int64_view(column: pa.Array) -> Int64s:
    """View an int64 column without nulls; `to_numpy` would do it too, but imports pandas."""
    assert column.type == pa.int64(), "only int64 columns are viewed"
    assert column.null_count == 0, "a column of numbers has nulls"
    if len(column) == 0:
        return np.zeros(0, np.int64)
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]


def int64_array(values: Int64s) -> pa.Array:
    """Return an Arrow array over the same memory; `pa.array` would copy it, and imports pandas."""
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def index_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the index of a data file with this schema."""
    names = list(PAGE_FIELDS)
    for number, field in enumerate(schema):
        names += [f"{number}.{field.name}.{buffer}" for buffer in layout_of(field.type).buffer_names]
    return pa.schema([pa.field(name, pa.int64(), nullable=False) for name in names])


def write_index(path: Path, schema: pa.Schema, columns: Sequence[Int64s]) -> None:
    """Write an index file; `columns` are those of `index_schema(schema)`."""
    fields = index_schema(schema)
    assert len(columns) == len(fields), "the index has another number of columns than its schema"
    batch = pa.record_batch([int64_array(column) for column in columns], schema=fields)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, fields) as writer:
        writer.write_batch(batch)
