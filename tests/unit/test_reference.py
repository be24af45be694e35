"""The reference join against joins written out by hand, because everything else is measured against it."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import pyarrow as pa
import pytest

from semistream.joins.reference import reference_join
from tests.support.oracle import assert_same_rows, duckdb_join

SALES = pa.table({"sku": [1, 2, None, 9], "n": [10, 20, 30, 40]})
PRODUCTS = pa.table({"id": [1, 1, 2, None], "name": ["ant", "auk", None, "ghost"]})


def test_each_stream_row_meets_all_its_partners_in_order() -> None:
    assert reference_join(SALES, PRODUCTS, ["sku"], ["id"]) == [
        {"sku": 1, "n": 10, "name": "ant"},
        {"sku": 1, "n": 10, "name": "auk"},
        {"sku": 2, "n": 20, "name": None},
        {"sku": None, "n": 30, "name": None},
        {"sku": 9, "n": 40, "name": None},
    ]


def test_rows_without_a_partner_are_dropped_or_get_defaults() -> None:
    dropped = reference_join(SALES, PRODUCTS, ["sku"], ["id"], "drop")
    assert [row["n"] for row in dropped] == [10, 10, 20]
    filled = reference_join(SALES, PRODUCTS, ["sku"], ["id"], "default", {"name": "unknown"})
    assert [row["name"] for row in filled] == ["ant", "auk", None, "unknown", "unknown"]
    left_null = reference_join(SALES, PRODUCTS, ["sku"], ["id"], "null", {"name": "unknown"})
    assert [row["name"] for row in left_null] == ["ant", "auk", None, None, None]


def test_a_null_is_equal_to_nothing_in_any_column_of_the_key() -> None:
    stream = pa.table({"a": [1, 1, None], "b": ["x", None, "x"]})
    relation = pa.table({"c": [1, 1, None], "d": ["x", None, "x"], "v": [7, 8, 9]})
    assert [row["v"] for row in reference_join(stream, relation, ["a", "b"], ["c", "d"])] == [7, None, None]


def test_empty_sides() -> None:
    assert reference_join(SALES.slice(0, 0), PRODUCTS, ["sku"], ["id"]) == []
    assert reference_join(SALES, PRODUCTS.slice(0, 0), ["sku"], ["id"], "drop") == []
    assert len(reference_join(SALES, PRODUCTS.slice(0, 0), ["sku"], ["id"])) == 4


KEYS: list[tuple[list[Any], pa.DataType]] = [
    ([1, 2, 3], pa.int32()),
    (["", "a", "ä"], pa.string()),
    ([b"", b"\x00"], pa.binary()),
    ([True, False], pa.bool_()),
    ([datetime.date(2020, 1, 1), datetime.date(1960, 2, 2)], pa.date32()),
    ([decimal.Decimal("1.50"), decimal.Decimal("-2.25")], pa.decimal128(9, 2)),
]


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("seed", range(6))
def test_it_agrees_with_duckdb(seed: int, how: str) -> None:
    rng = random.Random(seed)
    chosen = rng.sample(KEYS, rng.randint(1, 2))

    def table(rows: int, prefix: str) -> pa.Table:
        columns = {
            f"{prefix}{i}": pa.array([rng.choice([*values, None]) for _ in range(rows)], data_type)
            for i, (values, data_type) in enumerate(chosen)
        }
        return pa.table(columns | {f"{prefix}row": pa.array(range(rows), pa.int64())})

    stream, relation = table(40, "s"), table(15, "r")
    stream_key, relation_key = ([f"{side}{i}" for i in range(len(chosen))] for side in "sr")
    found = reference_join(stream, relation, stream_key, relation_key, "null" if how == "left" else "drop")
    assert_same_rows(found, duckdb_join(stream, relation, stream_key, relation_key, how=how))
