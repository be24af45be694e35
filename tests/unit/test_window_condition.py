"""Conditions: what is read, what an index serves of it, and that no pair is lost or added on the way."""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import ColumnNotFound, InvalidOption, KeyMismatch, SemistreamError
from semistream.window.condition import Condition, from_columns, from_text
from semistream.window.expression import is_true, parse
from semistream.window.predicate import Equality, Span

MOMENT = datetime.datetime(2024, 2, 29, 12)
ROWS = 60


def stream(seed: int) -> pa.RecordBatch:
    """Few different values of every type, nulls, NaN, infinities and both zeros among them."""
    rng = np.random.default_rng(seed)

    def column(values: list[object], data_type: pa.DataType) -> pa.Array:
        chosen = [None if rng.random() < 0.1 else values[i] for i in rng.integers(0, len(values), ROWS)]
        return pa.array(chosen, data_type)

    seconds = [MOMENT + datetime.timedelta(seconds=i) for i in range(12)]
    return pa.record_batch(
        {
            "i": column(list(range(-6, 7)), pa.int32()),
            "j": column([-(2**63), 2**63 - 1, 0, 1, -1, 2**62, -(2**62)], pa.int64()),
            "f": column([math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 0.2, 0.3, -0.1, 0.4, 1e300], pa.float64()),
            "g": column([0.5, 1.5, -2.5, math.nan, 3.25], pa.float32()),
            "d": column([Decimal(i) / 4 for i in range(-8, 9)], pa.decimal128(10, 2)),
            "e": column([Decimal(i) / 8 for i in range(-8, 9)], pa.decimal128(12, 3)),
            "t": column(seconds, pa.timestamp("us")),
            "z": column(seconds, pa.timestamp("us", tz="UTC")),
            "day": column([MOMENT.date() + datetime.timedelta(days=i) for i in range(9)], pa.date32()),
            "s": column(["", "ant", "bee", "cow"], pa.string()),
            "ok": column([True, False], pa.bool_()),
        }
    )


A, B = stream(1), stream(2)


def served(condition: Condition) -> set[tuple[int, int]]:
    """Pairs that meet by code when rows of `a` probe, then pass the residual."""
    codes_a = condition.predicate.encode(0, dict(zip(A.schema.names, A.columns, strict=True)))
    codes_b = condition.predicate.encode(1, dict(zip(B.schema.names, B.columns, strict=True)))
    both_valid = codes_a.valid[:, None] & codes_b.valid[None, :]
    a_probes = (codes_b.code >= codes_a.low[:, None]) & (codes_b.code <= codes_a.high[:, None]) & both_valid
    b_probes = (codes_a.code[:, None] >= codes_b.low) & (codes_a.code[:, None] <= codes_b.high) & both_valid
    if condition.predicate.exact:
        assert (a_probes == b_probes).all(), "it matters which side probes"
    found = [passing(condition, *np.nonzero(candidates)) for candidates in (a_probes, b_probes)]
    assert found[0] == found[1], "it matters which side probes"
    return found[0]


def passing(condition: Condition, rows_a: np.ndarray, rows_b: np.ndarray) -> set[tuple[int, int]]:
    pairs = list(zip(rows_a.tolist(), rows_b.tolist(), strict=True))
    if condition.residual is None:
        return set(pairs)
    columns = {(0, name): A[name].take(pa.array(rows_a)) for name in condition.residual_columns[0]}
    columns |= {(1, name): B[name].take(pa.array(rows_b)) for name in condition.residual_columns[1]}
    holds = is_true(condition.residual, columns).to_pylist()
    return {pair for pair, held in zip(pairs, holds, strict=True) if held}


def brute_force(text: str) -> set[tuple[int, int]]:
    """Pairs for which Arrow finds the whole condition true, less those with NaN, which never match here either."""
    places = np.arange(ROWS)
    rows_a, rows_b = np.repeat(places, ROWS), np.tile(places, ROWS)
    columns = {(0, name): A[name].take(pa.array(rows_a)) for name in A.schema.names}
    columns |= {(1, name): B[name].take(pa.array(rows_b)) for name in B.schema.names}
    holds = is_true(parse(text), columns).to_numpy(zero_copy_only=False)
    return set(zip(rows_a[holds].tolist(), rows_b[holds].tolist(), strict=True))


@pytest.mark.parametrize(
    "text",
    [
        "a.i = b.i",
        "a.i = b.j",
        "a.s = b.s",
        "a.i = b.i AND b.s = a.s",
        "a.z = b.z and a.f < b.f",
        "a.ok = b.ok AND (a.i < b.i OR a.f > 0.1)",
        "a.i + 1 = b.i",
        "a.i < b.i",
        "a.i <= b.j",
        "b.i > a.i",
        "a.j >= b.j",
        "a.j > b.j",
        "a.f < b.f",
        "a.f <= b.f",
        "a.f > b.i",
        "a.f = b.f",
        "a.i = b.f",
        "a.d = b.e",
        "a.g >= b.f",
        "a.ok < b.ok",
        "a.d < b.e",
        "a.i <= b.d",
        "a.t <= b.t",
        "a.day > b.day",
        "abs(a.i - b.i) <= 2",
        "abs(a.i - b.i) < 2",
        "abs(a.i - b.i) <= 2.5",
        "2 >= abs(b.i - a.i)",
        "abs(a.i - b.i - 3) <= 1",
        "abs(a.f - b.f) <= 0.1",
        "abs(a.f - b.f) <= 1e300",
        "abs(a.g - b.f) < 0.25",
        "abs(a.d - b.e) <= 0.25",
        "abs(a.d - b.e) < 0.3",
        "abs(a.t - b.t) <= interval 3 seconds",
        "abs(a.z - b.z) < interval '1.5' seconds",
        "abs(a.day - b.day) <= interval 2 days",
        "abs(a.day - b.day) < interval 36 hours",
        "a.f <= b.f + 0.1",
        "a.f - 0.1 >= b.f",
        "a.f - b.f <= 0.1 AND a.f - b.f >= 0",
        "a.i + a.i <= b.i - 1",
        "a.i + b.i <= 3",
        "3 < a.i - b.i",
        "a.i BETWEEN b.i - 1 AND b.i + 2",
        "a.t >= b.t AND a.t <= b.t + interval 5 seconds AND a.i != b.i",
        "b.t between a.t - interval 1 second and a.t",
        "a.i - b.i BETWEEN -1 AND 2 AND NOT (a.s = 'bee')",
        "a.i < b.i AND a.i > 0 AND b.s IS NOT NULL",
        "a.i < b.i AND abs(a.f - b.f) <= 0.2",
        "a.i > b.i AND a.i < b.i",
        "a.i * 2 <= b.i / 2",
    ],
)
def test_index_and_residual_find_the_pairs_of_brute_force(text: str) -> None:
    condition = from_text(text, A.schema, B.schema)
    assert served(condition) == brute_force(text), str(condition)


def test_differences_that_64_bits_cannot_hold_neither_add_nor_lose_a_pair() -> None:
    values = A["j"].to_pylist(), B["j"].to_pylist()
    for distance in (0, 1, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1, 2**70):
        condition = from_text(f"a.j <= b.j + {distance} AND a.j >= b.j - {distance}", A.schema, B.schema)
        expected = {
            (i, k)
            for i, x in enumerate(values[0])
            for k, y in enumerate(values[1])
            if x is not None and y is not None and abs(x - y) <= distance
        }
        assert served(condition) == expected, distance


@pytest.mark.parametrize(
    ("text", "kind", "has_residual"),
    [
        ("a.i = b.i AND a.f < b.f", Equality, True),
        ("a.f < b.f AND a.i = b.j", Equality, True),
        ("a.i = b.i AND a.day = b.day", Equality, True),
        ("a.i = b.i", Equality, False),
        ("a.s = b.s", Equality, True),
        ("a.i < b.j AND abs(a.f - b.f) <= 1", Span, True),
        ("abs(a.i - b.i) <= 1", Span, False),
        ("abs(a.f - b.f) <= 1", Span, True),
        ("a.f < b.f", Span, False),
        ("a.i >= b.i AND a.i < b.i + 3", Span, False),
    ],
)
def test_the_part_with_the_fewest_candidates_is_served(text: str, kind: type, has_residual: bool) -> None:
    condition = from_text(text, A.schema, B.schema)
    assert type(condition.predicate) is kind
    assert (condition.residual is not None) == has_residual
    assert not isinstance(condition.predicate, Span) or condition.predicate.is_band == ("abs" in text or "AND" in text)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("a.i = b.i OR a.f < b.f", InvalidOption, "no index can serve"),
        ("a.i != b.i", InvalidOption, "no index can serve"),
        ("a.i > 3", InvalidOption, "no index can serve"),
        ("a.s < b.s", InvalidOption, "no index can serve"),
        ("abs(a.i - b.i) >= 2", InvalidOption, "no index can serve"),
        ("a.i * b.i < 3", InvalidOption, "no index can serve"),
        ("a.f = b.s", KeyMismatch, "a.f of type double and b.s of type string"),
        ("a.t = b.z", InvalidOption, "timestamp with zone"),
        ("a.s = b.i", KeyMismatch, "a.s of type string and b.i of type int32"),
        ("a.i = b.ii", ColumnNotFound, "did you mean 'i'"),
        ("c.i = b.i", InvalidOption, "a column as a.x or b.y"),
        ("i = b.i", InvalidOption, "a column as a.x or b.y"),
        ("a.i = ", InvalidOption, "the end"),
        ("a.i = b.i b.j", InvalidOption, "the end, AND or OR"),
        ("a.i + b.i", InvalidOption, "neither true nor false"),
        ("a.i = b.i AND #", InvalidOption, "means nothing"),
        ("a.t < b.t + interval 3 fortnights", InvalidOption, "microsecond"),
        ("a.i NOT b.i", InvalidOption, "BETWEEN"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_the_reason(text: str, error: type[SemistreamError], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        from_text(text, A.schema, B.schema)


def test_equal_columns_need_no_condition() -> None:
    condition = from_columns({"i": "j", "s": "s"}, A.schema, B.schema)
    assert served(condition) == brute_force("a.i = b.j AND a.s = b.s")
    with pytest.raises(KeyMismatch, match=r"a\.t cannot be compared with b\.z"):
        from_columns({"t": "z"}, A.schema, B.schema)
    with pytest.raises(KeyMismatch, match="cannot be a key"):
        from_columns({"f": "f"}, A.schema, B.schema)
    with pytest.raises(InvalidOption, match="1 to 4"):
        from_columns({}, A.schema, B.schema)
    with pytest.raises(ColumnNotFound, match="did you mean 'day'"):
        from_columns({"dya": "day"}, A.schema, B.schema)


def test_names_in_backticks_may_hold_anything() -> None:
    schema = pa.schema([("unit price", pa.int64()), ("odd`name", pa.int64())])
    condition = from_text("a.`unit price` < b.`odd``name`", schema, schema)
    assert str(condition).startswith("a.unit price - b.odd`name")
