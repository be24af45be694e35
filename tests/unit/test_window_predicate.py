"""Codes of predicates: their order, their ends, and values that match nothing."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import KeyMismatch
from semistream.window.expression import Column
from semistream.window.predicate import CODE_MAX, CODE_MIN, Bound, Equality, Operand, Span, common_type


def operand(side: int, data_type: pa.DataType) -> Operand:
    return Operand(Column(side, "x"), data_type)


def span(data_type: pa.DataType, least: Bound | None, most: Bound | None) -> Span:
    operands = operand(0, data_type), operand(1, data_type)
    return Span(operands, common_type(*operands), least, most)


CLOSED, OPEN = Bound(Fraction(0), False), Bound(Fraction(0), True)


def test_floats_keep_their_order_in_codes() -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(-(2**63), 2**63 - 1, 20_000, endpoint=True)
    floats = np.concatenate([bits.view(np.float64), [0.0, -0.0, math.inf, -math.inf, 5e-324, -5e-324]])
    floats = np.sort(floats[~np.isnan(floats)])
    codes = span(pa.float64(), CLOSED, None).encode(0, {"x": pa.array(floats)})
    assert ((codes.code[1:] > codes.code[:-1]) == (floats[1:] > floats[:-1])).all()
    assert codes.valid.all()


def test_null_and_nan_match_nothing_and_both_zeros_are_one() -> None:
    values = pa.array([None, math.nan, 0.0, -0.0])
    codes = span(pa.float64(), CLOSED, CLOSED).encode(1, {"x": values})
    assert codes.valid.tolist() == [False, False, True, True]
    assert codes.code[2] == codes.code[3] == codes.low[3] == codes.high[2]


@pytest.mark.parametrize(
    ("least", "most", "of_a", "of_b"),
    [
        (None, OPEN, (6, CODE_MAX), (CODE_MIN, 4)),
        (None, CLOSED, (5, CODE_MAX), (CODE_MIN, 5)),
        (OPEN, None, (CODE_MIN, 4), (6, CODE_MAX)),
        (CLOSED, None, (CODE_MIN, 5), (5, CODE_MAX)),
        (Bound(Fraction(-2), False), Bound(Fraction(3), True), (3, 7), (3, 7)),
        (Bound(Fraction(-5, 2), False), Bound(Fraction(5, 2), False), (3, 7), (3, 7)),
    ],
)
def test_a_span_of_integers_is_an_interval_of_whole_numbers(
    least: Bound | None, most: Bound | None, of_a: tuple[int, int], of_b: tuple[int, int]
) -> None:
    for side, expected in ((0, of_a), (1, of_b)):
        codes = span(pa.int32(), least, most).encode(side, {"x": pa.array([5], pa.int32())})
        assert (codes.code[0], codes.low[0], codes.high[0]) == (5, *expected)


def test_beyond_the_ends_of_64_bits_there_is_no_partner() -> None:
    codes = span(pa.int64(), None, OPEN).encode(0, {"x": pa.array([2**63 - 1, -(2**63)])})
    assert codes.low[0] > codes.high[0]
    assert (codes.low[1], codes.high[1]) == (-(2**63) + 1, CODE_MAX)


def test_what_has_no_common_order_is_refused_by_name() -> None:
    for a, b in [
        (pa.string(), pa.string()),
        (pa.int64(), pa.string()),
        (pa.date32(), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC")),
        (pa.decimal128(30, 2), pa.decimal128(10, 2)),
        (pa.int64(), pa.decimal128(10, 2)),
        (pa.bool_(), pa.int8()),
        (pa.list_(pa.int8()), pa.list_(pa.int8())),
    ]:
        with pytest.raises(KeyMismatch, match=re.escape(f"{a} and {b}")):
            common_type(operand(0, a), operand(1, b))


@pytest.mark.parametrize(
    ("types", "exact"),
    [([pa.int32()], True), ([pa.decimal128(18, 2)], True), ([pa.string()], False), ([pa.int64(), pa.date32()], False)],
)
def test_equality_is_exact_where_codes_are_no_hashes(types: list[pa.DataType], exact: bool) -> None:
    operands = tuple(Operand(Column(0, f"k{i}"), t) for i, t in enumerate(types))
    assert Equality((operands, operands)).exact is exact


def test_equal_keys_of_other_widths_have_one_code() -> None:
    equality = Equality(((operand(0, pa.int16()),), (operand(1, pa.int64()),)))
    a = equality.encode(0, {"x": pa.array([1, None, -7], pa.int16())})
    b = equality.encode(1, {"x": pa.array([1, 2, -7], pa.int64())})
    assert a.valid.tolist() == [True, False, True]
    assert (a.code[[0, 2]] == b.code[[0, 2]]).all()
    assert (b.low == b.high).all()
