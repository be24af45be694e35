"""DataFrames for tests: from Arrow and back, the plan Spark made of one, and what a query reported."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tests.support.oracle import assert_same_rows


def frame_of(session: SparkSession, table: pa.Table, *, partitions: int = 0) -> DataFrame:
    """A DataFrame with the rows of a table, its timestamps without a zone kept so; in few partitions or in as many."""
    df = session.createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))
    return df.repartition(partitions) if partitions else df.coalesce(1)


def assert_same_table(df: DataFrame, expected: pa.Table) -> None:
    """Fail unless a DataFrame has the columns of a table, in their order, and its rows, in any."""
    found = df.toArrow()
    assert found.column_names == expected.column_names, "other columns"
    assert_same_rows(found, expected)


def physical_plan(df: DataFrame) -> str:
    """What `explain` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        df.explain()
    return printed.getvalue()


def crossings(df: DataFrame) -> list[str]:
    """The kinds of operators that take rows to Python, one for each in the plan."""
    return [
        kind
        for line in physical_plan(df).splitlines()
        for kind in ("ArrowEvalPython", "MapInArrow")
        if line.lstrip(" :+-*()0123456789").startswith(kind)
    ]


def observed(progress: Any, name: str) -> dict[str, Any]:
    """Metrics by name from a progress report, those of the workers among the others."""
    row = _by_name(progress.observedMetrics[name].asDict(recursive=True))
    return {**row.pop("counts", {}), **row}


def _by_name(row: dict[str, Any]) -> dict[str, Any]:
    """The values of a row by name. Spark Connect gives them as values beside a schema."""
    if "schema" not in row:
        return row
    return {
        field["name"]: _by_name(value) if isinstance(value, dict) else value
        for field, value in zip(row["schema"]["fields"], row["values"], strict=True)
    }
