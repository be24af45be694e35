"""`enrich(…, shuffle=…)` and `explain`, on classic Spark and on Spark Connect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.errors import InvalidOption
from semistream.relations.handle import RelationHandle
from tests.support.frames import assert_same_table, crossings, frame_of, physical_plan
from tests.support.oracle import duckdb_join

Publish = Callable[..., RelationHandle]


def stream_of(rows: int) -> pa.Table:
    """One key has nearly half of the rows, some are null, some are not in the relation."""
    rng = np.random.default_rng(3)
    keys = np.where(rng.random(rows) < 0.45, 1, rng.integers(0, 60, rows))
    return pa.table({"id": pa.array(keys, mask=rng.random(rows) < 0.05), "row": np.arange(rows)})


@pytest.mark.parametrize("rows_per_key", [1, 2], ids=["by answers", "by rows"])
def test_rows_that_are_shared_out_by_key_are_the_same_rows(
    session: SparkSession, publish: Publish, rows_per_key: int
) -> None:
    master = pa.table(
        {"id": np.repeat(np.arange(40), rows_per_key), "name": [f"n{i}" for i in range(40 * rows_per_key)]}
    )
    products, stream = publish(master, "id"), stream_of(2_000)
    enriched = ss.enrich(frame_of(session, stream, partitions=3), products, shuffle="always")
    assert len(crossings(enriched)) == 2, "once to be shared out, once to be joined"
    assert "Exchange" in physical_plan(enriched)
    assert_same_table(enriched, duckdb_join(stream, master, ["id"], ["id"]))


def test_rows_stay_where_they_are_unless_asked(session: SparkSession, products: RelationHandle) -> None:
    stream = frame_of(session, stream_of(100))
    for shuffle in ("auto", "never"):
        assert len(crossings(ss.enrich(stream, products, shuffle=shuffle))) == 1


def test_explain_says_what_enrich_would_do(session: SparkSession, products: RelationHandle) -> None:
    told = ss.explain(frame_of(session, stream_of(10)), products, on="id", memory="64MB", name="mine")
    for part in ("products: 3 rows", "adaptive", "keys cross to Python", "a shuffle does not pay", "61.0 MiB"):
        assert part in told


def test_explain_refuses_what_enrich_would_refuse(session: SparkSession, products: RelationHandle) -> None:
    with pytest.raises(InvalidOption, match=r"(?s)`explain` has no such option.*did you mean 'memory'"):
        ss.explain(frame_of(session, stream_of(10)), products, on="id", memry="64MB")
