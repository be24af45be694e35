"""Hashing keys and comparing them where they lie: the kernels of `semistream.keys`, and how columns reach them.

A hash is stored on disk beside the rows it belongs to, so it is a definition and not a detail. It reads bytes as
little-endian words of eight, whatever the machine, and depends on nothing but the bytes and their number:

    state = SEED ^ length * GOLDEN
    state = absorb(state, word)        for each eight bytes, the last eight overlapping the ones before
    hash  = finish(state)

A text below eight bytes is one word from which, with the length, it could be rebuilt; so texts of one length up to
eight bytes never collide. `absorb` scrambles the word before it meets the state, because otherwise a difference in
the top bits of one word can be undone by a difference in the next. `finish` is the finaliser of splitmix64, a
bijection; so composite keys that differ in one column only collide just when the codes of that column do.

It is not a cryptographic hash: whoever can choose keys can make them collide. Results stay right then, because keys
with equal codes are compared, but they come slower.

Traps. Indices into bytes are unsigned, without which the compiler must guard each byte against a negative index and
no longer fuses eight loads into one. `uint64` mixed with `int64` becomes `float64` in Numba as in NumPy, so every
constant here has a type. Nothing is bounds-checked: row numbers are the caller's promise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from semistream.structures.compiled import (
    I64,
    READ_I32,
    READ_I64,
    READ_U8,
    VOID,
    WRITE_BOOL,
    WRITE_I64,
    Array,
    inlined,
    kernel,
)

# Changing any of these changes every stored code: raise keys.CODE_VERSION with them.
SEED = np.uint64(0x243F6A8885A308D3)  # the fraction of pi; any number would do
GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # the fraction of the golden ratio, made odd
_SCRAMBLE_1 = np.uint64(0xC2B2AE3D27D4EB4F)
_SCRAMBLE_2 = np.uint64(0xD6E8FEB86659FD93)
_CHAIN = np.uint64(0xA0761D6478BD642F)
_FINISH_1 = np.uint64(0xBF58476D1CE4E5B9)
_FINISH_2 = np.uint64(0x94D049BB133111EB)

VARIABLE = -1
"""The `width` of bytes whose places are given by offsets."""


class NumberLayout(NamedTuple):
    """How the numbers of a column are stored."""

    width_bytes: int
    """Bytes a number; 0 for bits."""
    signed: int
    """1 when a number shorter than a word is continued by its sign."""
    multiply: int
    """What brings a number to the unit of its family; 1 where `divide` does."""
    divide: int
    """What brings a number to the unit of its family, without a remainder; 1 where `multiply` does."""
    first_bit: int
    """Where bits begin in their first byte."""


_LAYOUT: Any = types.NamedUniTuple(I64, len(NumberLayout._fields), NumberLayout)


@inlined
def _load_8(data: Array, at: Any) -> Any:
    return (
        np.uint64(data[at])
        | np.uint64(data[at + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[at + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[at + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[at + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[at + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[at + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[at + np.uint64(7)]) << np.uint64(56)
    )


@inlined
def _load_short(data: Array, at: Any, length: Any) -> Any:
    """One word that holds all of fewer than eight bytes."""
    word = np.uint64(0)
    for place in range(length):
        word |= np.uint64(data[at + place]) << (np.uint64(8) * place)
    return word


@inlined
def _absorb(state: Any, word: Any) -> Any:
    word *= _SCRAMBLE_1
    state ^= (word << np.uint64(31) | word >> np.uint64(33)) * _SCRAMBLE_2
    return (state << np.uint64(27) | state >> np.uint64(37)) * _CHAIN + GOLDEN


@inlined
def _finish(state: Any) -> Any:
    state = (state ^ state >> np.uint64(30)) * _FINISH_1
    state = (state ^ state >> np.uint64(27)) * _FINISH_2
    return state ^ state >> np.uint64(31)


@inlined
def _span(offsets32: Array, offsets64: Array, width: int, row: int) -> Any:
    """Where the bytes of a row begin and how many they are."""
    if width >= 0:
        return np.uint64(row * width), np.uint64(width)
    if offsets32.size > 0:
        return np.uint64(offsets32[row]), np.uint64(offsets32[row + 1] - offsets32[row])
    return np.uint64(offsets64[row]), np.uint64(offsets64[row + 1] - offsets64[row])


@kernel(VOID(READ_U8, READ_I32, READ_I64, I64, WRITE_I64))
def hash_bytes(data: Array, offsets32: Array, offsets64: Array, width: int, codes: Array) -> None:
    """Write the hash of each row's bytes: `width` bytes a row, or those between the offsets that are not empty."""
    for row in range(codes.size):
        at, length = _span(offsets32, offsets64, width, row)
        state = SEED ^ length * GOLDEN
        if length < np.uint64(8):
            state = _absorb(state, _load_short(data, at, length))
        else:
            last = at + length - np.uint64(8)
            while at < last:
                state = _absorb(state, _load_8(data, at))
                at += np.uint64(8)
            state = _absorb(state, _load_8(data, last))
        codes[row] = np.int64(_finish(state))


@kernel(VOID(WRITE_I64, READ_I64))
def mix_column(mixed: Array, codes: Array) -> None:
    """Mix one more key column into `mixed`, in place; the order of the columns matters."""
    for row in range(mixed.size):
        mixed[row] = np.int64(_finish(np.uint64(mixed[row]) * GOLDEN ^ np.uint64(codes[row])))


@kernel(VOID(READ_U8, READ_I32, READ_I64, I64, READ_I64, READ_U8, READ_I32, READ_I64, I64, READ_I64, WRITE_BOOL))
def equal_bytes(
    left: Array,
    left_offsets32: Array,
    left_offsets64: Array,
    left_width: int,
    left_rows: Array,
    right: Array,
    right_offsets32: Array,
    right_offsets64: Array,
    right_width: int,
    right_rows: Array,
    equal: Array,
) -> None:
    """Clear `equal` for each pair of rows whose bytes differ."""
    eight = np.uint64(8)
    for pair in range(equal.size):
        if not equal[pair]:
            continue
        left_at, length = _span(left_offsets32, left_offsets64, left_width, left_rows[pair])
        right_at, right_length = _span(right_offsets32, right_offsets64, right_width, right_rows[pair])
        if length != right_length:
            equal[pair] = False
        elif length < eight:
            equal[pair] = _load_short(left, left_at, length) == _load_short(right, right_at, length)
        else:
            last = length - eight
            done = np.uint64(0)
            while done < last and _load_8(left, left_at + done) == _load_8(right, right_at + done):
                done += eight
            # Where the loop stopped early it stopped at a difference, and this finds it again.
            done = min(done, last)
            equal[pair] = _load_8(left, left_at + done) == _load_8(right, right_at + done)


@inlined
def _word_at(data: Array, row: int, layout: NumberLayout) -> Any:
    """The lowest 64 bits of a row's number, in the unit its family is compared in."""
    width = layout.width_bytes
    if width == 0:
        bit = layout.first_bit + row
        return np.int64(data[bit >> 3] >> (bit & 7) & 1)
    if width >= 8:  # noqa: PLR2004 - bytes in a word
        word = np.int64(_load_8(data, np.uint64(row * width)))
    else:
        word = np.int64(0)
        for byte in range(width):
            word |= np.int64(data[row * width + byte]) << (8 * byte)
        if layout.signed:
            unused_bits = 64 - 8 * width
            word = word << unused_bits >> unused_bits
    if layout.divide > 1:
        return word // layout.divide
    return word * layout.multiply


@kernel(VOID(READ_U8, _LAYOUT, READ_I64, READ_U8, _LAYOUT, READ_I64, WRITE_BOOL))
def equal_words(
    left: Array,
    left_layout: NumberLayout,
    left_rows: Array,
    right: Array,
    right_layout: NumberLayout,
    right_rows: Array,
    equal: Array,
) -> None:
    """Clear `equal` for each pair of rows whose numbers differ, whatever the widths they are stored in."""
    left_width, right_width = left_layout.width_bytes, right_layout.width_bytes
    words = max(left_width, right_width) >> 3
    for pair in range(equal.size):
        if not equal[pair]:
            continue
        left_row, right_row = left_rows[pair], right_rows[pair]
        left_word = _word_at(left, left_row, left_layout)
        right_word = _word_at(right, right_row, right_layout)
        same = left_word == right_word
        # Only wide decimals have more words; the narrower of two is continued by its sign.
        for number in range(1, words):
            begin = number << 3
            if begin < left_width:
                left_word = np.int64(_load_8(left, np.uint64(left_row * left_width + begin)))
            else:
                left_word >>= 63
            if begin < right_width:
                right_word = np.int64(_load_8(right, np.uint64(right_row * right_width + begin)))
            else:
                right_word >>= 63
            same &= left_word == right_word
        equal[pair] = same


# ---------------------------------------------------------------------------------------------------------------------
# Arrow columns as the kernels want them
# ---------------------------------------------------------------------------------------------------------------------


class BytesPlace(NamedTuple):
    """Where the bytes of a column lie, as the kernels want to know it."""

    data: npt.NDArray[np.uint8]
    offsets32: npt.NDArray[np.int32]
    offsets64: npt.NDArray[np.int64]
    width_bytes: int


_NO_OFFSETS32 = np.zeros(0, np.int32)
_NO_OFFSETS64 = np.zeros(0, np.int64)


def bytes_of(column: pa.Array) -> BytesPlace:
    """Where the bytes of a string or binary column lie; views are not known here."""
    if pa.types.is_fixed_size_binary(column.type):
        width_bytes = column.type.byte_width
        return fixed_bytes(values_of(column, np.uint8, per_row=width_bytes), width_bytes)
    data = _view(column.buffers()[2], np.uint8)
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        return BytesPlace(data, _NO_OFFSETS32, values_of(column, np.int64, extra=1), VARIABLE)
    return BytesPlace(data, values_of(column, np.int32, extra=1), _NO_OFFSETS64, VARIABLE)


def fixed_bytes(data: npt.NDArray[np.uint8], width_bytes: int) -> BytesPlace:
    """Bytes of the same number in each row."""
    return BytesPlace(data, _NO_OFFSETS32, _NO_OFFSETS64, width_bytes)


def words_of(column: pa.Array, multiply: int, divide: int) -> tuple[npt.NDArray[np.uint8], NumberLayout]:
    """The numbers of a column as bytes, and their layout."""
    if pa.types.is_boolean(column.type):
        data, first_bit = bits_of(column)
        return data, NumberLayout(0, 0, multiply, divide, first_bit)
    width_bytes = column.type.bit_width // 8
    signed = int(not pa.types.is_unsigned_integer(column.type))
    data = values_of(column, np.uint8, per_row=width_bytes)
    return data, NumberLayout(width_bytes, signed, multiply, divide, 0)


def bits_of(column: pa.Array) -> tuple[npt.NDArray[np.uint8], int]:
    """The bytes of a boolean column and the number of the bit in which its first row stands."""
    first_byte, first_bit = divmod(column.offset, 8)
    return _view(column.buffers()[1], np.uint8)[first_byte:], first_bit


def values_of(column: pa.Array, dtype: npt.DTypeLike, *, per_row: int = 1, extra: int = 0) -> npt.NDArray[Any]:
    """The column's values, or offsets, from its first row on: `per_row` numbers a row and `extra` ones at the end."""
    begin = column.offset * per_row
    end = begin + len(column) * per_row + extra
    # The buffer of an empty column may lack even the one offset that the format asks for.
    return _view(column.buffers()[1], dtype, begin, end) if len(column) else np.zeros(0, dtype)


def _view(buffer: pa.Buffer | None, dtype: npt.DTypeLike, begin: int = 0, end: int | None = None) -> npt.NDArray[Any]:
    if buffer is None:
        return np.zeros(0, dtype)
    data = np.frombuffer(buffer, np.uint8)
    item_bytes = np.dtype(dtype).itemsize
    view = data[begin * item_bytes : data.size if end is None else end * item_bytes].view(dtype)
    if not view.flags.aligned:
        return view.copy()
    # Arrow hands out what it has just built as writable; nobody may write into a column through its codes.
    view.flags.writeable = False
    return view
