"""Key columns in, int64 codes out.

Operators and relations know a key only by its code. Two keys that are equal have the same code, however they are
stored: the code depends on the family of a type and on the value, never on width, offsets, dictionary or time unit.

| family                         | code of a single column                              | exact          |
| ------------------------------ | ---------------------------------------------------- | -------------- |
| integer, bool                  | the value                                            | yes            |
| uint64                         | its bits                                             | yes            |
| date                           | days since 1970-01-01                                | yes            |
| timestamp, with or without zone| microseconds since 1970-01-01                        | yes            |
| decimal                        | the unscaled value; a hash where 64 bits are too few | to 18 digits   |
| string, binary                 | a hash of the bytes                                  | no             |

Two to four columns are mixed into one hash. Where codes are not exact, different keys may share one, and whoever
matched codes asks `keys_equal` before believing them.

Codes are stored in relations, so they must be the same in every process, on every machine and in every release:
`CODE_VERSION` names the definition and a test pins values.

Memory: a column of int64, uint64 or microseconds costs nothing, its codes are a read-only view of its buffer; every
other column costs eight bytes a row, a composite key eight more, nulls one. Dictionaries and string views are decoded
first. `keys_equal` copies nothing but rows of dictionaries that it is asked for; a string view column it decodes whole:
cast one that is asked often.

Assumes little-endian buffers. Measured through this module on one core of an AMD EPYC that was shared with other work,
lowest and highest of two runs of a million rows: 69 to 170 million strings of 2 to 12 bytes a second, 41 to 53 million
UUIDs, 1.6 to 3.1 GB/s in strings of 1 000 bytes; `keys_equal` 47 to 205 million of the short strings a second in order,
6 to 9 million in random order. A call of ten rows takes 15 to 30 microseconds.

Traps. What lies in a null slot is arbitrary: it may be hashed, but never complained about. A view of a buffer may be
unaligned (a buffer received over a socket), which compiled kernels refuse; such a view is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import InvalidOption, KeyMismatch
from semistream.structures.hashing import (
    SEED,
    BytesPlace,
    bits_of,
    bytes_of,
    equal_bytes,
    equal_words,
    fixed_bytes,
    hash_bytes,
    mix_column,
    values_of,
    words_of,
)

CODE_VERSION = 1
"""Number of the definition of codes; a relation that was built with another must be built again."""

COLUMNS_MAX = 4
"""Most columns of a key: wider ones are rare, and usually a mistake."""

FAMILIES: Mapping[str, str] = {
    "integer": "int64",
    "uint64": "uint64",
    "bool": "bool",
    "date": "date32",
    "timestamp": "timestamp[us]",
    "timestamp with zone": "timestamp[us, tz=UTC]",
    "string": "string",
    "binary": "binary",
    "decimal": "decimal128",
}
"""Families of types that can be a key, and the type to cast to in order to enter each. Types of one family can be
joined with each other; decimals only where their scales are equal, so `family_of` adds the scale."""

_MEMBERS: tuple[tuple[str, tuple[Callable[[pa.DataType], bool], ...]], ...] = (
    ("uint64", (pa.types.is_uint64,)),
    ("integer", (pa.types.is_integer,)),
    ("bool", (pa.types.is_boolean,)),
    ("date", (pa.types.is_date,)),
    ("string", (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)),
    (
        "binary",
        (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
    ),
)

_DIGITS_EXACT_MAX = 18  # all numbers of 18 digits fit in 64 bits, not all of 19
_WORD_BYTES = 8
_WIDEST_DECIMAL_WORDS = 4
_MS_PER_DAY = 86_400_000
_US_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_NS_PER_US = 1_000

Codes = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeyCodes:
    """The codes of a batch of keys."""

    codes: Codes
    """One code a row, contiguous, perhaps read-only; undefined where the key is null."""
    null: Flags | None
    """True where any column of the key is null; None when no key is."""


# ---------------------------------------------------------------------------------------------------------------------
# Which types can be a key, and which can meet
# ---------------------------------------------------------------------------------------------------------------------


def family_of(data_type: pa.DataType) -> str | None:
    """Return the family of a type, or None when it cannot be a key (floats, times, nested types and others).

    Example:
        >>> family_of(pa.int16()), family_of(pa.decimal128(10, 2)), family_of(pa.float64())
        ('integer', 'decimal with scale 2', None)
    """
    if pa.types.is_dictionary(data_type):
        return family_of(data_type.value_type)
    if pa.types.is_decimal(data_type):
        return f"decimal with scale {data_type.scale}"
    if pa.types.is_timestamp(data_type):
        return "timestamp" if data_type.tz is None else "timestamp with zone"
    return next((family for family, tests in _MEMBERS if any(test(data_type) for test in tests)), None)


def check_same_family(stream: Mapping[str, pa.DataType], relation: Mapping[str, pa.DataType]) -> None:
    """Raise `KeyMismatch` unless the key columns of both sides, taken in order, can be compared."""
    if len(stream) != len(relation):
        raise KeyMismatch(
            "the keys of the stream and of the relation have different numbers of columns",
            given=f"{_listed(stream)} in the stream, {_listed(relation)} in the relation",
            allowed="one stream column for each key column of the relation, in the same order",
        )
    for (stream_name, stream_type), (relation_name, relation_type) in zip(
        stream.items(), relation.items(), strict=True
    ):
        stream_family = _family_or_refuse(stream_type, f"the stream's {stream_name!r}")
        relation_family = _family_or_refuse(relation_type, f"the relation's {relation_name!r}")
        if stream_family != relation_family:
            raise KeyMismatch(
                f"the stream's {stream_name!r} cannot be compared with the relation's {relation_name!r}",
                given=f"{stream_type} ({stream_family}) and {relation_type} ({relation_family})",
                allowed="two types of one family; decimals must have the same scale",
                hint=f"cast the stream's {stream_name!r} to {_cast_target(relation_type)}, "
                f"or build the relation with {relation_name!r} as {_cast_target(stream_type)}",
            )


def _family_or_refuse(data_type: pa.DataType, column: str) -> str:
    family = family_of(data_type)
    if family is None:
        raise KeyMismatch(
            f"{column} has a type that cannot be a key",
            given=str(data_type),
            allowed=", ".join(FAMILIES),
            hint="equality of floats depends on rounding; cast it to a decimal or an integer"
            if pa.types.is_floating(data_type)
            else "use another column, or cast this one to string",
        )
    return family


def _cast_target(data_type: pa.DataType) -> str:
    if pa.types.is_dictionary(data_type):
        return _cast_target(data_type.value_type)
    if pa.types.is_decimal(data_type):
        return str(data_type)
    family = family_of(data_type)
    assert family is not None, "only types that can be a key are suggested"
    return FAMILIES[family]


def _listed(names: Mapping[str, pa.DataType] | Sequence[str]) -> str:
    return f"{len(names)} ({', '.join(repr(name) for name in names)})" if names else "0"


def _is_exact(data_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(data_type):
        return _is_exact(data_type.value_type)
    if pa.types.is_decimal(data_type):
        return int(data_type.precision) <= _DIGITS_EXACT_MAX
    return family_of(data_type) not in ("string", "binary")


# ---------------------------------------------------------------------------------------------------------------------
# Codes
# ---------------------------------------------------------------------------------------------------------------------


class KeyCodec:
    """Turns the key columns of batches into codes.

    Columns of other widths or encodings than `types` are accepted too, as long as the families are the same.

    Example:
        >>> codec = KeyCodec([pa.int32()], ["product_id"])
        >>> codec.encode([pa.array([7, None, 9], pa.int32())]).null.tolist()
        [False, True, False]
    """

    exact: bool
    """Two keys have the same code if and only if they are equal. Matches of codes need no `keys_equal` only where this
    holds for both sides: a decimal of 30 digits may share its code with one of 10."""

    def __init__(self, types: Sequence[pa.DataType], names: Sequence[str] = ()) -> None:
        assert len(names) in (0, len(types)), "either all key columns have a name or none"
        if not 1 <= len(types) <= COLUMNS_MAX:
            raise InvalidOption(
                "`key` has a wrong number of columns",
                given=_listed(names) if names else str(len(types)),
                allowed=f"1 to {COLUMNS_MAX}",
                hint="a wider key can be one string column, such as its parts joined by a separator"
                if types
                else "name the column that identifies a row",
            )
        labels = [f"key column {name!r}" for name in names] or [f"key column {i + 1}" for i in range(len(types))]
        self._labels = labels
        self._families = [_family_or_refuse(t, label) for t, label in zip(types, labels, strict=True)]
        self.exact = len(types) == 1 and _is_exact(types[0])
        self._types_before: list[pa.DataType] = []  # of the columns encoded last: batches of a stream are alike

    def encode(self, columns: Sequence[pa.Array]) -> KeyCodes:
        """Return the code of each row; `columns` stand in the order of the key."""
        assert len(columns) == len(self._families), "the key has another number of columns"
        assert all(len(column) == len(columns[0]) for column in columns), "key columns of different lengths"
        types = [column.type for column in columns]
        if types != self._types_before:
            assert [family_of(t) for t in types] == self._families, "a column is of another family than the codec's"
            assert not self.exact or all(map(_is_exact, types)), "a column is too wide for an exact codec"
            self._types_before = types
        plain = [_decoded(column) for column in columns]
        codes = [_column_codes(column, label) for column, label in zip(plain, self._labels, strict=True)]
        return KeyCodes(codes[0] if len(codes) == 1 else _mixed(codes), _any_null(plain))


def _decoded(column: pa.Array) -> pa.Array:
    """The same values without dictionary or views."""
    if pa.types.is_dictionary(column.type):
        # Not `dictionary_decode`: the dictionary may hold nulls or views of its own.
        return _decoded(column.dictionary).take(column.indices)
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        return column.cast(pa.large_binary())
    return column


def _any_null(columns: Sequence[pa.Array]) -> Flags | None:
    null: Flags | None = None
    for column in columns:
        flags = _nulls(column)
        if flags is not None:
            null = flags if null is None else null | flags
    return null


def _nulls(column: pa.Array) -> Flags | None:
    if column.null_count == 0:
        return None
    flags: Flags = column.is_null().to_numpy(zero_copy_only=False)
    return flags


def _mixed(columns: Sequence[Codes]) -> Codes:
    # The number of columns is not mixed in: keys of different numbers of columns never meet.
    mixed = np.full(len(columns[0]), SEED.view(np.int64), np.int64)
    for codes in columns:
        mix_column(mixed, codes)
    return mixed


def _column_codes(column: pa.Array, label: str) -> Codes:
    if pa.types.is_decimal(column.type):
        return _decimal_codes(column)
    if family_of(column.type) in ("string", "binary"):
        return _hashed(bytes_of(column), len(column))
    return _in_unit(_numbers(column), column, label)


def _hashed(place: BytesPlace, length: int) -> Codes:
    codes = np.empty(length, np.int64)
    hash_bytes(*place, codes)
    return codes


def _decimal_codes(column: pa.Array) -> Codes:
    width_bytes = column.type.bit_width // 8
    if width_bytes <= _WORD_BYTES:
        return values_of(column, f"i{width_bytes}").astype(np.int64, copy=False)
    word_count = width_bytes // _WORD_BYTES
    words = values_of(column, np.int64, per_row=word_count).reshape(-1, word_count)
    codes = words[:, 0].copy()
    if column.type.precision <= _DIGITS_EXACT_MAX:
        return codes
    # A value that fits in one word has the code that a narrower decimal would give it; the few others are hashed at
    # the full width, so that decimal128 and decimal256 agree.
    large = np.flatnonzero((words[:, 1:] != (codes >> 63)[:, None]).any(axis=1))
    full = np.empty((len(large), _WIDEST_DECIMAL_WORDS), np.int64)
    full[:, :word_count] = words[large]
    full[:, word_count:] = (words[large, -1] >> 63)[:, None]
    codes[large] = _hashed(
        fixed_bytes(full.reshape(-1).view(np.uint8), _WORD_BYTES * _WIDEST_DECIMAL_WORDS), len(large)
    )
    return codes


def _numbers(column: pa.Array) -> Codes:
    """The stored numbers, as int64, in the unit they are stored in."""
    if pa.types.is_boolean(column.type):
        data, first_bit = bits_of(column)
        bits = np.unpackbits(data, count=first_bit + len(column), bitorder="little")
        return bits[first_bit:].astype(np.int64)
    kind = "u" if pa.types.is_unsigned_integer(column.type) else "i"
    numbers = values_of(column, f"{kind}{column.type.bit_width // 8}")
    return numbers.view(np.int64) if numbers.itemsize == _WORD_BYTES else numbers.astype(np.int64)


def _in_unit(numbers: Codes, column: pa.Array, label: str) -> Codes:
    """Numbers in the unit of their family: days, microseconds, or as they are."""
    multiply, divide = _unit_factors(column.type)
    if multiply > 1:
        limit = np.iinfo(np.int64).max // multiply
        too_far = (numbers > limit) | (numbers < -limit)
        _refuse_where(too_far, column, f"{label} holds timestamps that 64 bits of microseconds cannot hold")
        return numbers * multiply
    if divide > 1:
        quotients = numbers // divide
        unit = "days" if pa.types.is_date(column.type) else "microseconds"
        _refuse_where(quotients * divide != numbers, column, f"{label} holds values that are not whole {unit}")
        return quotients
    return numbers


def _unit_factors(data_type: pa.DataType) -> tuple[int, int]:
    """What to multiply by and what to divide by; one of them is 1."""
    if pa.types.is_date64(data_type):
        return 1, _MS_PER_DAY
    if pa.types.is_timestamp(data_type):
        return _US_PER_UNIT[data_type.unit], _NS_PER_US if data_type.unit == "ns" else 1
    return 1, 1


def _refuse_where(bad: Flags, column: pa.Array, what: str) -> None:
    null = _nulls(column)
    count = int(np.count_nonzero(bad if null is None else bad & ~null))
    if count:
        family = family_of(column.type)
        assert family is not None, "only types that can be a key have a unit"
        raise KeyMismatch(
            what,
            given=f"{count} of {len(column)} values, of type {column.type}",
            allowed=f"values that {FAMILIES[family]} can hold",
            hint="round or replace them before the join",
        )


# ---------------------------------------------------------------------------------------------------------------------
# Comparing keys where they lie
# ---------------------------------------------------------------------------------------------------------------------


def keys_equal(left: Sequence[pa.Array], left_rows: Rows, right: Sequence[pa.Array], right_rows: Rows) -> Flags:
    """Return, pair by pair, whether the key at `left_rows[i]` equals the key at `right_rows[i]`.

    No row may be null, and `KeyCodec.encode` must have accepted both sides.

    Example:
        >>> left, right = [pa.array(["ant", "bee"])], [pa.array(["bee", "cow"], pa.large_string())]
        >>> keys_equal(left, np.array([0, 1]), right, np.array([0, 0])).tolist()
        [False, True]
    """
    assert len(left) == len(right), "the keys have different numbers of columns"
    assert len(left_rows) == len(right_rows), "rows are compared in pairs"
    equal = np.ones(len(left_rows), np.bool_)
    for left_column, right_column in zip(left, right, strict=True):
        family = family_of(left_column.type)
        assert family == family_of(right_column.type), "columns of different families"
        left_plain, left_at = _plain_rows(left_column, left_rows)
        right_plain, right_at = _plain_rows(right_column, right_rows)
        if family in ("string", "binary"):
            equal_bytes(*bytes_of(left_plain), left_at, *bytes_of(right_plain), right_at, equal)
        else:
            left_words = words_of(left_plain, *_unit_factors(left_plain.type))
            right_words = words_of(right_plain, *_unit_factors(right_plain.type))
            equal_words(*left_words, left_at, *right_words, right_at, equal)
    return equal


def _plain_rows(column: pa.Array, rows: Rows) -> tuple[pa.Array, Rows]:
    if pa.types.is_dictionary(column.type):
        return _decoded(column.take(pa.array(rows))), np.arange(len(rows))
    return _decoded(column), np.ascontiguousarray(rows, np.int64)
