"""Codes and comparisons of keys, against plain Python."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.errors import InvalidOption, KeyMismatch
from semistream.keys import CODE_VERSION, FAMILIES, KeyCodec, check_same_family, family_of, keys_equal

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
SEED = 0x243F6A8885A308D3
UTC = dt.UTC


# ---------------------------------------------------------------------------------------------------------------------
# The definition of codes once more, in plain Python
# ---------------------------------------------------------------------------------------------------------------------


def signed(word: int) -> int:
    return word - 2**64 if word >> 63 else word


def rotated(word: int, left: int) -> int:
    return (word << left | word >> (64 - left)) & MASK


def finish(state: int) -> int:
    state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ state >> 27) * 0x94D049BB133111EB) & MASK
    return state ^ state >> 31


def plain_hash(text: bytes) -> int:
    if len(text) < 8:
        words = [text]
    else:
        words = [text[i : i + 8] for i in range(0, len(text) - 8, 8)] + [text[-8:]]
    state = SEED ^ (len(text) * GOLDEN) & MASK
    for word in words:
        scrambled = rotated(int.from_bytes(word, "little") * 0xC2B2AE3D27D4EB4F & MASK, 31) * 0xD6E8FEB86659FD93 & MASK
        state = (rotated(state ^ scrambled, 27) * 0xA0761D6478BD642F + GOLDEN) & MASK
    return signed(finish(state))


def plain_mix(*codes: int) -> int:
    mixed = SEED
    for code in codes:
        mixed = finish((mixed * GOLDEN & MASK) ^ (code & MASK))
    return signed(mixed)


def codes_of(*columns: pa.Array) -> list[int | None]:
    """Codes as a list, None where the key is null."""
    encoded = KeyCodec([column.type for column in columns]).encode(columns)
    assert encoded.codes.dtype == np.int64
    assert encoded.codes.flags.c_contiguous
    assert len(encoded.codes) == len(columns[0])
    if encoded.null is None:
        return list(encoded.codes.tolist())
    assert encoded.null.dtype == np.bool_
    return [None if null else code for code, null in zip(encoded.codes.tolist(), encoded.null.tolist(), strict=True)]


def equal_pairs(left: Sequence[pa.Array], right: Sequence[pa.Array]) -> list[list[bool]]:
    """Is each key of `left` equal to each key of `right`? None of them is null."""
    rows = np.repeat(np.arange(len(left[0])), len(right[0]))
    columns = np.tile(np.arange(len(right[0])), len(left[0]))
    return keys_equal(left, rows, right, columns).reshape(len(left[0]), len(right[0])).tolist()


def days(value: dt.date) -> int:
    return (value - dt.date(1970, 1, 1)).days


def microseconds(value: dt.datetime) -> int:
    return (value.replace(tzinfo=None) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def same(value: Any) -> int:
    return int(value)


TEXTS = [
    "",
    "a",
    "ab",
    "abcdefg",
    "abcdefgh",
    "abcdefghi",
    "ünïcödé",
    "日本語のキー",
    "👩‍👩‍👧",
    "a\0",
    "a\0\0",
    "x" * 100,
]
BYTES = [text.encode() for text in TEXTS]
DATES = [dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date.min, dt.date.max, dt.date(2024, 2, 29)]
SECONDS = [
    dt.datetime(1970, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59),
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 1, 1),
]
MOMENTS = [*SECONDS, dt.datetime(2024, 2, 29, 12, 0, 0, 123456)]
ZONED = [moment.replace(tzinfo=UTC) for moment in MOMENTS]
CENTS = [Decimal(n).scaleb(-2) for n in (0, 1, -1, 99, -10_000, 10**7 - 1, 1 - 10**7)]
WIDE = [*CENTS, *(Decimal(n).scaleb(-2) for n in (10**37, -(10**37), 2**63, -(2**63) - 1, 2**64, 2**63 - 1, -(2**63)))]


def cents(value: Decimal) -> int:
    unscaled = int(value.scaleb(2))
    if -(2**63) <= unscaled < 2**63:
        return unscaled
    return plain_hash(unscaled.to_bytes(32, "little", signed=True))


def ends(bits: int, *, unsigned: bool = False) -> list[int]:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return [low, low + 1, 0, 1, 7, high - 1, high]


COLUMNS: dict[str, tuple[pa.DataType, list[Any], Callable[[Any], int]]] = {
    "int8": (pa.int8(), ends(8), same),
    "int16": (pa.int16(), ends(16), same),
    "int32": (pa.int32(), ends(32), same),
    "int64": (pa.int64(), ends(64), same),
    "uint8": (pa.uint8(), ends(8, unsigned=True), same),
    "uint16": (pa.uint16(), ends(16, unsigned=True), same),
    "uint32": (pa.uint32(), ends(32, unsigned=True), same),
    "uint64": (pa.uint64(), ends(64, unsigned=True), signed),
    "bool": (pa.bool_(), [True, False, False, True, True], same),
    "date32": (pa.date32(), DATES, days),
    "date64": (pa.date64(), DATES, days),
    "seconds": (pa.timestamp("s"), SECONDS, microseconds),
    "milliseconds": (pa.timestamp("ms"), SECONDS, microseconds),
    "microseconds": (pa.timestamp("us"), MOMENTS, microseconds),
    "nanoseconds": (pa.timestamp("ns"), [SECONDS[0], SECONDS[1], MOMENTS[-1]], microseconds),
    "zoned": (pa.timestamp("us", "UTC"), ZONED, microseconds),
    "zoned seconds": (pa.timestamp("s", "Europe/Berlin"), ZONED[:2], microseconds),
    "string": (pa.string(), TEXTS, lambda text: plain_hash(text.encode())),
    "large string": (pa.large_string(), TEXTS, lambda text: plain_hash(text.encode())),
    "string view": (pa.string_view(), TEXTS, lambda text: plain_hash(text.encode())),
    "binary": (pa.binary(), [*BYTES, b"\xff\0\xff"], plain_hash),
    "large binary": (pa.large_binary(), BYTES, plain_hash),
    "binary view": (pa.binary_view(), BYTES, plain_hash),
    "3 bytes": (pa.binary(3), [b"abc", b"abd", b"\0\0\0", b"\xff\xff\xff"], plain_hash),
    "16 bytes": (pa.binary(16), [uuid.UUID(int=i * 10**30).bytes for i in range(9)], plain_hash),
    "no bytes": (pa.binary(0), [b"", b""], plain_hash),
    "decimal32": (pa.decimal32(9, 2), CENTS, cents),
    "decimal64": (pa.decimal64(18, 2), CENTS, cents),
    "decimal128 short": (pa.decimal128(18, 2), CENTS, cents),
    "decimal256 short": (pa.decimal256(18, 2), CENTS, cents),
    "decimal128": (pa.decimal128(38, 2), WIDE, cents),
    "decimal256": (pa.decimal256(76, 2), [*WIDE, Decimal(10**70).scaleb(-2), Decimal(-(10**70)).scaleb(-2)], cents),
    "dictionary of strings": (pa.dictionary(pa.int8(), pa.string()), TEXTS, lambda text: plain_hash(text.encode())),
    "dictionary of integers": (pa.dictionary(pa.int32(), pa.int64()), ends(64), same),
}
kinds_of_column = pytest.mark.parametrize("kind", COLUMNS)


def array_of(kind: str, values: Sequence[Any]) -> pa.Array:
    data_type = COLUMNS[kind][0]
    if pa.types.is_dictionary(data_type):
        return pa.array(values, data_type.value_type).dictionary_encode().cast(data_type)
    return pa.array(values, data_type)


# ---------------------------------------------------------------------------------------------------------------------
# Codes
# ---------------------------------------------------------------------------------------------------------------------


@kinds_of_column
def test_codes_are_what_the_definition_says(kind: str) -> None:
    _, values, code = COLUMNS[kind]
    assert codes_of(array_of(kind, values)) == [code(value) for value in values]


@kinds_of_column
@pytest.mark.parametrize("begin", [1, 3, 8, 13])
def test_slices_and_nulls_are_respected(kind: str, begin: int) -> None:
    _, values, code = COLUMNS[kind]
    many: list[Any] = [None if i % 3 == 1 else values[i % len(values)] for i in range(41)]
    expected = [None if value is None else code(value) for value in many]
    assert codes_of(array_of(kind, many)[begin:29]) == expected[begin:29]
    assert codes_of(array_of(kind, many)[begin:][2:9]) == expected[begin:][2:9]
    without_null: list[Any] = [values[i % len(values)] for i in range(41)]
    assert codes_of(array_of(kind, without_null)[begin:29]) == [code(value) for value in without_null[begin:29]]


@kinds_of_column
def test_empty_and_all_null_columns_have_codes(kind: str) -> None:
    data_type, values, _ = COLUMNS[kind]
    for empty in (pa.array([], data_type), array_of(kind, values)[1:1], pa.nulls(0, data_type)):
        assert codes_of(empty) == []
        nothing = np.zeros(0, np.int64)
        assert keys_equal([empty], nothing, [empty], nothing).tolist() == []
    assert codes_of(pa.nulls(5, data_type)[2:]) == [None] * 3
    assert codes_of(pa.array([None, None], data_type)) == [None, None]


@pytest.mark.parametrize("data_type", [pa.int32(), pa.bool_(), pa.binary(3), pa.decimal128(38, 2), pa.string()])
def test_arrays_without_buffers_are_empty(data_type: pa.DataType) -> None:
    buffers = [None, None, pa.py_buffer(b"")] if pa.types.is_string(data_type) else [None, None]
    column = pa.Array.from_buffers(data_type, 0, buffers)
    assert codes_of(column) == []
    assert codes_of(column, column) == []


def test_codes_of_version_1_never_change() -> None:
    # Stored relations hold these numbers: if this fails, the code is wrong, not the test.
    assert CODE_VERSION == 1
    assert codes_of(pa.array(["", "a", "product-0001", "ünïcödé"])) == [
        -5585898107582869136,
        4365858979106121637,
        5624299973582026155,
        7821786311259338670,
    ]
    assert codes_of(pa.array(["store-1", "x"]), pa.array([7, -1], pa.int16())) == [
        7710352562698237747,
        -5649346115598589387,
    ]
    assert codes_of(pa.array([Decimal(10) ** 30], pa.decimal128(38, 0))) == [7277897693368550103]


@pytest.mark.parametrize("length", [*range(70), 1_000, 2**20 - 1, 2**20])
def test_texts_of_every_length_are_hashed(length: int) -> None:
    text = random.Random(length).randbytes(length)
    assert codes_of(pa.array([b"before", text, b"after"], pa.binary())[1:2]) == [plain_hash(text)]


def test_an_int64_column_without_nulls_is_not_copied() -> None:
    column = pa.array(range(100), pa.int64())[37:90]
    codes = KeyCodec([pa.int64()]).encode([column]).codes
    assert codes.ctypes.data == column.buffers()[1].address + 37 * 8
    assert codes.tolist() == list(range(37, 90))
    assert not codes.flags.writeable


@pytest.mark.parametrize("data_type", [pa.int64(), pa.int32(), pa.timestamp("us"), pa.string(), pa.large_string()])
def test_buffers_at_odd_addresses_work(data_type: pa.DataType) -> None:
    values = ["x", "yy", "zzz"] if family_of(data_type) == "string" else [1, 2, 3]
    column = pa.array(values, data_type)
    odd = [buffer and pa.py_buffer(b"_" + buffer.to_pybytes()).slice(1) for buffer in column.buffers()]
    moved = pa.Array.from_buffers(data_type, 3, odd)
    assert codes_of(moved) == codes_of(column)
    assert codes_of(moved, moved) == codes_of(column, column)
    assert keys_equal([moved], np.arange(3), [column], np.array([0, 1, 0])).tolist() == [True, True, False]


def test_a_null_inside_a_dictionary_is_a_null_key() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["x", None]))
    assert codes_of(column) == [plain_hash(b"x"), None, None, plain_hash(b"x")]
    views = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1]), pa.array(["x", "y"], pa.string_view()))
    assert codes_of(views[1:]) == [plain_hash(b"x"), plain_hash(b"y")]


def test_a_codec_accepts_other_widths_of_its_family() -> None:
    codec = KeyCodec([pa.int64(), pa.string()])
    wide = codec.encode([pa.array([7]), pa.array(["a"])])
    narrow = codec.encode([pa.array([7], pa.uint8()), pa.array(["a"]).dictionary_encode()])
    assert wide.codes.tolist() == narrow.codes.tolist()


@pytest.mark.parametrize(
    ("types", "exact"),
    [
        ([pa.int8()], True),
        ([pa.uint64()], True),
        ([pa.bool_()], True),
        ([pa.date64()], True),
        ([pa.timestamp("s", "UTC")], True),
        ([pa.dictionary(pa.int8(), pa.int64())], True),
        ([pa.decimal128(18, 2)], True),
        ([pa.decimal128(19, 2)], False),
        ([pa.string()], False),
        ([pa.binary(8)], False),
        ([pa.dictionary(pa.int8(), pa.string())], False),
        ([pa.int8(), pa.int8()], False),
    ],
    ids=str,
)
def test_a_codec_knows_whether_its_codes_are_exact(types: list[pa.DataType], exact: bool) -> None:
    assert KeyCodec(types).exact is exact


# ---------------------------------------------------------------------------------------------------------------------
# Composite keys
# ---------------------------------------------------------------------------------------------------------------------


def test_composite_codes_are_mixed_in_the_order_of_the_columns() -> None:
    numbers, texts, truths = pa.array([1, 2, None]), pa.array(["a", None, "c"]), pa.array([True, False, True])
    assert codes_of(numbers, texts) == [plain_mix(1, plain_hash(b"a")), None, None]
    assert codes_of(texts, numbers) == [plain_mix(plain_hash(b"a"), 1), None, None]
    assert codes_of(truths, numbers, texts, truths) == [plain_mix(1, 1, plain_hash(b"a"), 1), None, None]
    assert codes_of(truths, truths) == [plain_mix(1, 1), plain_mix(0, 0), plain_mix(1, 1)]


def test_moving_a_letter_to_the_next_column_changes_the_code() -> None:
    pairs = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"), ("c", "ab"), ("bc", "a")]
    assert len(set(codes_of(*(pa.array(column) for column in zip(*pairs, strict=True))))) == len(pairs)


def test_a_grid_of_small_numbers_has_no_collision() -> None:
    left, right = (axis.ravel() for axis in np.meshgrid(np.arange(-500, 500), np.arange(-500, 500)))
    codes = KeyCodec([pa.int64(), pa.int64()]).encode([pa.array(left), pa.array(right)]).codes
    assert len(np.unique(codes)) == len(codes)


# ---------------------------------------------------------------------------------------------------------------------
# The hash
# ---------------------------------------------------------------------------------------------------------------------


def many_texts(kind: str, count: int) -> pa.Array:
    rng = random.Random(count)
    if kind == "sequential":
        return pa.array([f"{i}" for i in range(count)])
    if kind == "padded":
        return pa.array([f"customer-{i:012d}" for i in range(count)])
    if kind == "uuid":
        return pa.array([str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(count)])
    return pa.array([f"{i:07d}".encode() + bytes(40) for i in range(count)], pa.binary())


def test_a_million_sequential_texts_have_no_collision() -> None:
    codes = np.array(codes_of(many_texts("sequential", 1_000_000)))
    assert len(np.unique(codes)) == len(codes)


@pytest.mark.parametrize("kind", ["sequential", "padded", "uuid", "long tails"])
@pytest.mark.parametrize("shift", [0, 24, 52])
def test_texts_spread_evenly_over_buckets(kind: str, shift: int) -> None:
    count, bucket_count = 2**17, 2**12
    buckets = np.array(codes_of(many_texts(kind, count))).view(np.uint64) >> np.uint64(shift) & np.uint64(4095)
    expected = count / bucket_count
    chi_squared = (
        float(((np.bincount(buckets.astype(np.int64), minlength=bucket_count) - expected) ** 2).sum()) / expected
    )
    # Its mean is 4095 and its deviation 90; the texts are fixed, so this never flickers.
    assert 4095 - 5 * 90 < chi_squared < 4095 + 5 * 90


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 36, 100])
def test_each_bit_of_a_text_moves_half_of_the_code(length: int) -> None:
    text = random.Random(length).randbytes(length)
    flipped = [(int.from_bytes(text) ^ 1 << bit).to_bytes(length) for bit in range(8 * length)]
    codes = np.array(codes_of(pa.array([text, *flipped], pa.binary())))
    moved = np.bitwise_count((codes[1:] ^ codes[0]).view(np.uint64))
    assert moved.min() >= 10
    assert 28 < moved.mean() < 36


# ---------------------------------------------------------------------------------------------------------------------
# Comparing
# ---------------------------------------------------------------------------------------------------------------------


COMPARABLE = [(a, b) for a in COLUMNS for b in COLUMNS if family_of(COLUMNS[a][0]) == family_of(COLUMNS[b][0])]


@pytest.mark.parametrize(("kind", "other_kind"), COMPARABLE)
def test_keys_are_equal_just_when_their_values_are(kind: str, other_kind: str) -> None:
    # Slices, so that offsets are seen to be respected.
    left, right = [*COLUMNS[kind][1] * 2][3:], [*COLUMNS[other_kind][1] * 2][1:]
    left_column = array_of(kind, COLUMNS[kind][1] * 2)[3:]
    right_column = array_of(other_kind, COLUMNS[other_kind][1] * 2)[1:]
    assert equal_pairs([left_column], [right_column]) == [[a == b for b in right] for a in left]
    code_of = dict(zip(left, codes_of(left_column), strict=True))
    for value, code in zip(right, codes_of(right_column), strict=True):
        assert code_of.get(value, code) == code, "equal keys have equal codes, whatever their types"


@pytest.mark.parametrize("length", [1, 5, 7, 8, 9, 15, 16, 17, 40, 2**20])
def test_one_different_byte_is_seen_wherever_it_is(length: int) -> None:
    text = bytes(length)
    places = range(length) if length < 100 else (0, 12_345, length - 9, length - 8, length - 1)
    others = [text[:i] + b"\1" + text[i + 1 :] for i in places]
    rows = np.arange(len(others))
    left, right = pa.array([text], pa.binary()), pa.array([*others, text], pa.large_binary())
    assert not keys_equal([left], np.zeros_like(rows), [right], rows).any()
    assert keys_equal([left], np.array([0]), [right], np.array([len(others)])).all()


def test_different_composite_keys_with_one_code_are_told_apart() -> None:
    # The last column enters by exclusive or, so for any first column there is a second one with a wanted code.
    def before_last(first: int) -> int:
        return (finish((SEED * GOLDEN & MASK) ^ first) * GOLDEN) & MASK

    first, other = 1, 2
    second = signed(before_last(first) ^ before_last(other) ^ 5)
    keys = [pa.array([first, other]), pa.array([second, 5])]
    codes = codes_of(*keys)
    assert codes[0] == codes[1]
    assert equal_pairs(keys, keys) == [[True, False], [False, True]]


def test_different_decimals_with_one_code_are_told_apart() -> None:
    large = Decimal(10) ** 30
    twin = Decimal(cents(large.scaleb(-2)))
    keys = [pa.array([large, twin], pa.decimal128(38, 0))]
    codes = codes_of(*keys)
    assert codes[0] == codes[1]
    assert equal_pairs(keys, keys) == [[True, False], [False, True]]


def test_different_texts_with_one_code_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semistream.keys.hash_bytes", lambda *arguments: arguments[-1].fill(0))
    keys = [pa.array(["ant", "bee"])]
    assert codes_of(*keys) == [0, 0]
    assert equal_pairs(keys, keys) == [[True, False], [False, True]]


def test_rows_to_compare_may_have_gaps_and_any_order() -> None:
    rows = np.arange(20)[::-2]
    column = pa.array([str(i) for i in range(20)])
    assert keys_equal([column], rows, [column.dictionary_encode()], rows.astype(np.int32)).all()


texts = st.text(alphabet="ab\0é", max_size=18)
tiny = st.integers(-2, 2)
key_columns = {
    pa.string(): texts,
    pa.large_string(): texts,
    pa.int8(): tiny,
    pa.int64(): tiny,
    pa.decimal128(38, 0): st.sampled_from([Decimal(n) for n in (0, 1, -1, 2**63, -(2**64), 2**64)]),
    pa.bool_(): st.booleans(),
    pa.date64(): st.sampled_from(DATES),
}


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_equal_keys_and_only_they_are_equal(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(key_columns)), min_size=1, max_size=4))
    keys = data.draw(st.lists(st.tuples(*(key_columns[t] for t in types)), min_size=1, max_size=25))
    skipped = data.draw(st.integers(0, len(keys) - 1))
    columns = [pa.array(c, t)[skipped:] for c, t in zip(zip(*keys, strict=True), types, strict=True)]
    keys = keys[skipped:]
    assert equal_pairs(columns, columns) == [[a == b for b in keys] for a in keys]
    codes = codes_of(*columns)
    # With this few keys of this kind a collision would be a mistake, not bad luck.
    assert len(set(codes)) == len(set(keys))
    assert dict(zip(keys, codes, strict=True)) == dict(zip(keys[::-1], codes[::-1], strict=True))


# ---------------------------------------------------------------------------------------------------------------------
# Families and errors
# ---------------------------------------------------------------------------------------------------------------------


def test_every_type_belongs_to_the_family_it_should() -> None:
    found = {kind: family_of(data_type) for kind, (data_type, _, _) in COLUMNS.items()}
    assert set(FAMILIES) == {"decimal" if f and f.startswith("decimal") else f for f in found.values()}
    assert found["uint32"] == found["int8"] == found["dictionary of integers"] == "integer"
    assert found["date64"] == "date"
    assert found["zoned seconds"] == "timestamp with zone"
    assert found["3 bytes"] == found["binary view"] == "binary"
    assert found["decimal32"] == found["decimal256"] == "decimal with scale 2"


@pytest.mark.parametrize(
    "data_type",
    [pa.float16(), pa.float64(), pa.time64("us"), pa.duration("s"), pa.list_(pa.int8()), pa.struct([]), pa.null()],
    ids=str,
)
def test_other_types_cannot_be_a_key(data_type: pa.DataType) -> None:
    assert family_of(data_type) is None
    assert family_of(pa.dictionary(pa.int8(), pa.float32())) is None


ALLOWED = "integer, uint64, bool, date, timestamp, timestamp with zone, string, binary, decimal"


def test_an_unsupported_type_is_named_with_its_column() -> None:
    with pytest.raises(KeyMismatch) as caught:
        KeyCodec([pa.int8(), pa.float64()], ["id", "price"])
    assert str(caught.value) == (
        f"key column 'price' has a type that cannot be a key; given: double; allowed: {ALLOWED}.\n"
        "Hint: equality of floats depends on rounding; cast it to a decimal or an integer."
    )
    with pytest.raises(KeyMismatch) as caught:
        KeyCodec([pa.list_(pa.int8())])
    assert str(caught.value) == (
        f"key column 1 has a type that cannot be a key; given: list<item: int8>; allowed: {ALLOWED}.\n"
        "Hint: use another column, or cast this one to string."
    )


def test_a_key_has_one_to_four_columns() -> None:
    with pytest.raises(InvalidOption) as caught:
        KeyCodec([pa.int8()] * 5, list("abcde"))
    assert str(caught.value) == (
        "`key` has a wrong number of columns; given: 5 ('a', 'b', 'c', 'd', 'e'); allowed: 1 to 4.\n"
        "Hint: a wider key can be one string column, such as its parts joined by a separator."
    )
    with pytest.raises(InvalidOption) as caught:
        KeyCodec([])
    assert str(caught.value) == (
        "`key` has a wrong number of columns; given: 0; allowed: 1 to 4.\nHint: name the column that identifies a row."
    )


def test_types_of_one_family_can_meet() -> None:
    check_same_family({"a": pa.int8(), "b": pa.string()}, {"x": pa.uint32(), "y": pa.large_string()})
    check_same_family({"a": pa.decimal32(5, 2)}, {"a": pa.decimal256(50, 2)})
    check_same_family({"a": pa.timestamp("s", "UTC")}, {"a": pa.timestamp("ns", "Asia/Tokyo")})
    check_same_family({"a": pa.dictionary(pa.int8(), pa.binary())}, {"a": pa.binary(16)})


@pytest.mark.parametrize(
    ("stream", "relation", "given", "hint"),
    [
        (pa.string(), pa.int32(), "string (string) and int32 (integer)", ("int64", "string")),
        (pa.int64(), pa.uint64(), "int64 (integer) and uint64 (uint64)", ("uint64", "int64")),
        (
            pa.timestamp("us", "UTC"),
            pa.timestamp("ms"),
            "timestamp[us, tz=UTC] (timestamp with zone) and timestamp[ms] (timestamp)",
            ("timestamp[us]", "timestamp[us, tz=UTC]"),
        ),
        (
            pa.decimal128(10, 2),
            pa.decimal128(12, 3),
            "decimal128(10, 2) (decimal with scale 2) and decimal128(12, 3) (decimal with scale 3)",
            ("decimal128(12, 3)", "decimal128(10, 2)"),
        ),
        (
            pa.dictionary(pa.int8(), pa.string()),
            pa.date64(),
            "dictionary<values=string, indices=int8, ordered=0> (string) and date64[ms] (date)",
            ("date32", "string"),
        ),
    ],
    ids=str,
)
def test_types_of_two_families_are_refused_with_a_cast_to_use(
    stream: pa.DataType, relation: pa.DataType, given: str, hint: tuple[str, str]
) -> None:
    with pytest.raises(KeyMismatch) as caught:
        check_same_family({"ok": pa.int8(), "sku": stream}, {"ok": pa.int64(), "id": relation})
    assert str(caught.value) == (
        f"the stream's 'sku' cannot be compared with the relation's 'id'; given: {given}; "
        "allowed: two types of one family; decimals must have the same scale.\n"
        f"Hint: cast the stream's 'sku' to {hint[0]}, or build the relation with 'id' as {hint[1]}."
    )


def test_different_numbers_of_key_columns_are_refused() -> None:
    with pytest.raises(KeyMismatch) as caught:
        check_same_family({"a": pa.int8()}, {"x": pa.int8(), "y": pa.int8()})
    assert str(caught.value) == (
        "the keys of the stream and of the relation have different numbers of columns; "
        "given: 1 ('a') in the stream, 2 ('x', 'y') in the relation; "
        "allowed: one stream column for each key column of the relation, in the same order."
    )


def test_a_side_with_a_type_that_cannot_be_a_key_is_named() -> None:
    with pytest.raises(KeyMismatch, match=r"^the stream's 'a' has a type that cannot be a key; given: double; "):
        check_same_family({"a": pa.float64()}, {"x": pa.int8()})
    with pytest.raises(KeyMismatch, match=r"^the relation's 'x' has a type that cannot be a key; given: float; "):
        check_same_family({"a": pa.int8()}, {"x": pa.float32()})


def raw(data_type: pa.DataType, *numbers: int | None) -> pa.Array:
    """A column with these stored numbers; where there is None, a null above an odd one."""
    validity = pa.array([number is not None for number in numbers]).buffers()[1]
    data = pa.py_buffer(np.array([2**62 + 1 if number is None else number for number in numbers], np.int64))
    return pa.Array.from_buffers(data_type, len(numbers), [validity, data])


@pytest.mark.parametrize(
    ("column", "what", "target"),
    [
        (raw(pa.timestamp("ns"), 1_000, 1, -1), "values that are not whole microseconds", "timestamp[us]"),
        (raw(pa.date64(), 86_400_000, 1, -1), "values that are not whole days", "date32"),
        (
            raw(pa.timestamp("ms", "UTC"), 0, 2**63 // 1000 + 1, -(2**63)),
            "timestamps that 64 bits of microseconds cannot hold",
            "timestamp[us, tz=UTC]",
        ),
    ],
    ids=["nanoseconds", "part of a day", "far future"],
)
def test_times_that_have_no_code_are_refused(column: pa.Array, what: str, target: str) -> None:
    with pytest.raises(KeyMismatch) as caught:
        KeyCodec([column.type], ["at"]).encode([column])
    assert str(caught.value) == (
        f"key column 'at' holds {what}; given: 2 of 3 values, of type {column.type}; "
        f"allowed: values that {target} can hold.\nHint: round or replace them before the join."
    )


def test_what_lies_under_a_null_is_never_complained_about() -> None:
    assert codes_of(raw(pa.timestamp("ns"), 5_000, None)) == [5, None]
    assert codes_of(raw(pa.date64(), 86_400_000, None)) == [1, None]
    assert codes_of(raw(pa.timestamp("s"), 5, None)) == [5_000_000, None]


def test_extreme_times_keep_their_value() -> None:
    limit = 2**63 // 1_000_000
    assert codes_of(raw(pa.timestamp("s"), limit, -limit)) == [limit * 10**6, -limit * 10**6]
    assert codes_of(raw(pa.timestamp("us"), 2**63 - 1, -(2**63))) == [2**63 - 1, -(2**63)]
    assert codes_of(pa.array([-(2**31), 2**31 - 1], pa.int32()).view(pa.date32())) == [-(2**31), 2**31 - 1]
