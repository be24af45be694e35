"""Rows in plain layouts, and how many bytes they take.

The files of a relation hold only layouts in which a row can be found by arithmetic: no dictionaries (they would need
a second lookup, and one dictionary for the whole file), no views (their bytes lie scattered), no run-end encoding.
What a source brings in such a layout is decoded; the values stay the same.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import RelationRefused

VALIDITY_BYTES = 1 / 8
_PLAIN_OF_VIEW = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_OFFSET_BYTES_BY_TEST: tuple[tuple[Callable[[pa.DataType], bool], int], ...] = (
    (pa.types.is_string, 4),
    (pa.types.is_binary, 4),
    (pa.types.is_list, 4),
    (pa.types.is_map, 4),
    (pa.types.is_large_string, 8),
    (pa.types.is_large_binary, 8),
    (pa.types.is_large_list, 8),
)
RowBytes = npt.NDArray[np.float64]


def plain_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type with the same values and a plain layout."""
    if pa.types.is_dictionary(data_type) or pa.types.is_run_end_encoded(data_type):
        return plain_type(data_type.value_type)
    if data_type in _PLAIN_OF_VIEW:
        return _PLAIN_OF_VIEW[data_type]
    if pa.types.is_map(data_type):
        return pa.map_(plain_type(data_type.key_type), plain_field(data_type.item_field), data_type.keys_sorted)
    if pa.types.is_struct(data_type):
        return pa.struct([plain_field(data_type.field(i)) for i in range(data_type.num_fields)])
    return _plain_list_type(data_type)


def _plain_list_type(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(plain_field(data_type.value_field), data_type.list_size)
    if pa.types.is_large_list(data_type) or pa.types.is_large_list_view(data_type):
        return pa.large_list(plain_field(data_type.value_field))
    if pa.types.is_list(data_type) or pa.types.is_list_view(data_type):
        return pa.list_(plain_field(data_type.value_field))
    return data_type


def plain_field(field: pa.Field) -> pa.Field:
    """Return the field with a plain type."""
    return field.with_type(plain_type(field.type))


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with plain types; what pandas or Spark wrote about it is left out."""
    return pa.schema([plain_field(field).remove_metadata() for field in schema])


def plain_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows in the plain layout of `schema`, which is the `plain_schema` of theirs."""
    assert rows.num_columns == len(schema), "the rows have other columns than the relation"
    columns = [_plain_column(rows.column(i), field) for i, field in enumerate(schema)]
    return pa.record_batch(columns, schema=schema)


def _plain_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        if pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        return pc.cast(column, field.type)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as problem:
        raise RelationRefused(
            f"the column {field.name!r} cannot be stored",
            given=f"{column.type}: {problem}",
            hint=f"cast it to {field.type} before building the relation",
        ) from problem


def row_bytes(rows: pa.RecordBatch) -> RowBytes:
    """Return the Arrow bytes of each row: values, offsets and validity bits."""
    total = np.zeros(len(rows), np.float64)
    for column_bytes in row_bytes_by_column(rows):
        total += column_bytes
    return total


def row_bytes_by_column(rows: pa.RecordBatch) -> list[RowBytes]:
    """Return the Arrow bytes of each value, validity bits included, for one column after the other."""
    return [
        column_row_bytes(column) + (VALIDITY_BYTES if field.nullable else 0)
        for field, column in zip(rows.schema, rows.columns, strict=True)
    ]


def column_row_bytes(column: pa.Array) -> RowBytes:
    """Return the Arrow bytes of each value, its own validity bit not included."""
    offset_bytes = next((width for test, width in _OFFSET_BYTES_BY_TEST if test(column.type)), None)
    if offset_bytes is not None:
        return _bytes_between_offsets(column, offset_bytes) + offset_bytes
    if pa.types.is_struct(column.type):
        total = np.zeros(len(column), np.float64)
        for part in column.flatten():
            total += column_row_bytes(part) + VALIDITY_BYTES
        return total
    try:
        return np.full(len(column), column.type.bit_width / 8)
    except ValueError:
        # Unions, extensions and lists of a fixed length: every row counts as the mean.
        return np.full(len(column), column.nbytes / max(1, len(column)))


def _bytes_between_offsets(column: pa.Array, offset_bytes: int) -> RowBytes:
    buffer = column.buffers()[1]
    if buffer is None or len(column) == 0:
        return np.zeros(len(column), np.float64)
    offsets = np.frombuffer(buffer, np.dtype(f"i{offset_bytes}"))[column.offset : column.offset + len(column) + 1]
    if pa.types.is_nested(column.type):
        children = _children_row_bytes(column)
        until = np.zeros(len(children) + 1, np.float64)
        np.cumsum(children, out=until[1:])
        offsets = until[offsets]
    sizes: RowBytes = (offsets[1:] - offsets[:-1]).astype(np.float64)
    return sizes


def _children_row_bytes(column: pa.Array) -> RowBytes:
    # Offsets count from the beginning of the children, which these give without a slice of their own.
    parts = [column.keys, column.items] if pa.types.is_map(column.type) else [column.values]
    total = np.zeros(len(parts[0]), np.float64)
    for part in parts:
        total += column_row_bytes(part) + VALIDITY_BYTES
    return total
