"""The oracle: DuckDB joins the same tables, and rows are compared as a multiset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pyarrow as pa


def duckdb_join(
    stream: pa.Table, relation: pa.Table, stream_key: Sequence[str], relation_key: Sequence[str], *, how: str = "left"
) -> pa.Table:
    """Return `stream` joined with `relation`, the relation's key columns left out."""
    payload = [name for name in relation.column_names if name not in relation_key]
    condition = " AND ".join(f's."{left}" = r."{right}"' for left, right in zip(stream_key, relation_key, strict=True))
    columns = ", ".join([f's."{name}"' for name in stream.column_names] + [f'r."{name}"' for name in payload])
    with duckdb.connect() as connection:
        connection.register("s", stream)
        connection.register("r", relation)
        query = f"SELECT {columns} FROM s {how.upper()} JOIN r ON {condition}"
        return connection.sql(query).to_arrow_table()


def as_multiset(rows: pa.Table | Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset of tuples; NaN counts as equal to NaN."""
    listed = rows.to_pylist() if isinstance(rows, pa.Table) else list(rows)
    return Counter(tuple(_plain(value) for value in row.values()) for row in listed)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, list):
        return tuple(_plain(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _plain(item)) for name, item in value.items())
    return value


def assert_same_rows(found: Any, expected: Any) -> None:
    """Fail with the rows that are missing and those that are too many."""
    found_rows, expected_rows = as_multiset(found), as_multiset(expected)
    missing, surplus = expected_rows - found_rows, found_rows - expected_rows
    assert not missing and not surplus, (
        f"{missing.total()} rows are missing, for example {list(missing)[:3]}; "
        f"{surplus.total()} rows are too many, for example {list(surplus)[:3]}"
    )
