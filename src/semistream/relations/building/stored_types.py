"""Which types a relation stores: those that Spark can hold, so that what is stored is what a query sees.

| source                                          | stored                                                       |
| ----------------------------------------------- | ------------------------------------------------------------ |
| bool, int8 to int64, float, double, date32      | the same                                                     |
| uint8, uint16, uint32, uint64                   | int16, int32, int64, decimal128(20, 0)                       |
| float16, date64                                 | float, date32                                                |
| decimal of up to 38 digits                      | decimal128                                                   |
| timestamp and duration of any unit              | microseconds, the zone kept                                  |
| time32, time64                                  | time64[ns]                                                   |
| string and binary: large, fixed-size, views     | string, binary                                               |
| list (large, fixed-size, views), struct, map    | list, struct, map; their parts by this table                 |
| dictionary, run-end encoded, extension          | their values, by this table                                  |
| null                                            | string                                                       |
| others: unions, intervals, longer decimals      | refused, naming the column and the type                      |

A value is never changed on the way: a timestamp with nanoseconds, say, is an error that says so.

Memory: a column of a stored type is passed on as it is; another is copied.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidOption, did_you_mean

_DECIMAL_DIGITS_MAX = 38

_SAME: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_boolean,
    pa.types.is_signed_integer,
    pa.types.is_float32,
    pa.types.is_float64,
)

_REPLACED: tuple[tuple[Callable[[pa.DataType], bool], pa.DataType], ...] = (
    (pa.types.is_uint8, pa.int16()),
    (pa.types.is_uint16, pa.int32()),
    (pa.types.is_uint32, pa.int64()),
    (pa.types.is_uint64, pa.decimal128(20, 0)),
    (pa.types.is_float16, pa.float32()),
    (pa.types.is_date, pa.date32()),
    (pa.types.is_time, pa.time64("ns")),
    (pa.types.is_duration, pa.duration("us")),
    (pa.types.is_null, pa.string()),
    (pa.types.is_string, pa.string()),
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_binary, pa.binary()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
)

_LISTS: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_list,
    pa.types.is_large_list,
    pa.types.is_fixed_size_list,
    pa.types.is_list_view,
    pa.types.is_large_list_view,
)


def stored_type(given: pa.DataType) -> pa.DataType | None:
    """Return the type in which values of `given` are stored; None when Spark cannot hold them.

    Example:
        >>> stored_type(pa.uint32()), stored_type(pa.list_(pa.float16())), stored_type(pa.month_day_nano_interval())
        (DataType(int64), ListType(list<item: float>), None)
    """
    if any(test(given) for test in _SAME):
        return given
    for test, replacement in _REPLACED:
        if test(given):
            return replacement
    if pa.types.is_dictionary(given) or pa.types.is_run_end_encoded(given):
        return stored_type(given.value_type)
    if isinstance(given, pa.BaseExtensionType):
        return stored_type(given.storage_type)
    return _stored_type_with_parameters(given)


def _stored_type_with_parameters(given: pa.DataType) -> pa.DataType | None:
    if pa.types.is_timestamp(given):
        return pa.timestamp("us", tz=given.tz)
    if pa.types.is_decimal(given):
        fits = given.precision <= _DECIMAL_DIGITS_MAX and 0 <= given.scale <= given.precision
        return pa.decimal128(given.precision, given.scale) if fits else None
    if any(test(given) for test in _LISTS):
        value = stored_type(given.value_type)
        return None if value is None else pa.list_(value)
    if pa.types.is_map(given):
        key, item = stored_type(given.key_type), stored_type(given.item_type)
        return None if key is None or item is None else pa.map_(key, item)
    if pa.types.is_struct(given):
        fields = [(field.name, stored_type(field.type)) for field in given]
        return None if any(part is None for _, part in fields) else pa.struct(fields)
    return None


def stored_field(given: pa.Field, where: str) -> pa.Field:
    """Return the field as it is stored, nullable and without metadata; `where` names the source in errors."""
    stored = stored_type(given.type)
    if stored is None:
        raise InvalidOption(
            f"the column {given.name!r} of {where} has a type that Spark cannot hold",
            given=str(given.type),
            hint="leave it out with `columns=`, or cast it before building the relation",
        )
    return pa.field(given.name, stored)


def stored_rows(rows: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    """Return the columns of `schema` in its types; `where` names the file in errors."""
    return pa.record_batch([_stored_column(rows, field, where) for field in schema], schema=schema)


def _stored_column(rows: pa.RecordBatch, field: pa.Field, where: str) -> pa.Array:
    if field.name not in rows.schema.names:
        raise InvalidOption(
            f"{where} lacks the column {field.name!r}, which the first file has",
            given=", ".join(rows.schema.names) or "no columns",
            hint=did_you_mean(field.name, rows.schema.names),
        )
    column = rows.column(field.name)
    if column.type == field.type:
        return column
    if stored_type(column.type) != field.type and not pa.types.is_null(column.type):
        raise InvalidOption(
            f"the column {field.name!r} of {where} has another type than in the first file",
            given=f"{column.type}, stored as {stored_type(column.type)}",
            allowed=f"what is stored as {field.type}",
            hint="cast it, so that all files agree",
        )
    try:
        return _cast(column, field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as problem:
        raise InvalidOption(
            f"the column {field.name!r} of {where} cannot be stored as {field.type} without loss",
            given=f"{column.type}: {problem}",
            hint=f"round or cast it to {field.type} before building the relation",
        ) from problem


def _cast(column: pa.Array, target: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ExtensionArray):
        return _cast(column.storage, target)
    if pa.types.is_run_end_encoded(column.type):
        return _cast(pc.run_end_decode(column), target)
    return column if column.type == target else column.cast(target)
