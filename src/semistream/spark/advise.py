"""`advise`: how much memory an enrichment needs, asked of the stream itself, live or recorded.

A live stream is watched for a while. Its key columns, and nothing else, go to a table in the driver's memory, which
classic Spark and Spark Connect both have, until enough rows have come or the time is over; the query is stopped, and
the table is dropped. Of a batch DataFrame the first rows are taken. The rest is `planning.advise`: the keys are played
against memories of several sizes.

A size is what `memory=` of `enrich` would be: for all workers of an executor together. What they remember they hold
once, where there is enough for that (`memory_parts`), so a size has room for about as many keys however many workers
there are.

Memory: the keys of at most `rows` rows, in the driver.
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Sequence
from types import UnionType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame

from semistream.budget import parse_bytes
from semistream.clock import Clock, RealClock
from semistream.errors import InvalidOption, check_option_names
from semistream.planning.advise import Advice, Capacities, Capacity
from semistream.planning.advise import advise as make_table
from semistream.planning.capacities import sampled_rows_per_key
from semistream.planning.devices import device_named
from semistream.planning.key_sample import KeySample
from semistream.relations.handle import Lookup, RelationHandle
from semistream.spark.crossing import column_named
from semistream.spark.enrich import enrichment
from semistream.spark.memory_parts import HOT_ALGORITHM, capacity
from semistream.spark.plan import EnrichPlan, least_executor_bytes

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

SIZES = ("16MB", "64MB", "256MB", "1GB")
ROWS = 1_000_000
SECONDS = 60.0

POLL_S = 0.25
"""Seconds between two looks at the query that watches a stream."""


@check_option_names
def advise(
    df: DataFrame,
    relation: RelationHandle | Lookup,
    *,
    on: str | Sequence[str] | None = None,
    memory: str | int | Sequence[str | int] = SIZES,
    rate: float | None = None,
    io: str = "nvme",
    rows: int = ROWS,
    seconds: float = SECONDS,
) -> Advice:
    """Say how much memory `enrich` needs for a stream: memory, hit rate, service rate, and the least for a rate.

    A streaming DataFrame is watched until `rows` rows have come or `seconds` have passed, whatever is first; of a batch
    DataFrame the first `rows` rows are taken. Use it before you set `memory=` of `enrich`, and when hits are fewer than
    you hoped. Where the stream is recorded in files, `semistream advise` does the same without Spark, for one process.

    Args:
        df: A streaming or batch DataFrame.
        relation: What `semistream.relation` returned, or a relation bound to the stream's columns by `.on()`.
        on: Columns of `df` that hold the key; by default those with the names of the relation's key.
        memory: One or several sizes to try, as `memory=` of `enrich`: for all workers of an executor.
        rate: Rows a second that one worker shall look up; the advice names the least memory for it.
        io: The device on which the relation lies: `"hdd"`, `"ssd"`, `"nvme"`, or `"here"`, which measures this machine.
        rows: Rows of the stream that are enough.
        seconds: How long a stream is watched at most.

    Returns:
        The table; `print` shows it, `.as_json()` is for programs, `.plot("curve.png")` draws it.

    Example:
        print(ss.advise(sales, products, on="product_id", memory=["64MB", "256MB"], rate=500_000))
    """
    given = [memory] if isinstance(memory, str) or not isinstance(memory, Sequence) else memory
    sizes = sorted({parse_bytes(size) for size in given})
    if not sizes:
        raise InvalidOption("there is no size of memory to try", given="an empty list", allowed="one or more sizes")
    _check_positive("rows", rows, int)
    _check_positive("seconds", seconds, int | float)
    if rate is not None:
        _check_positive("rate", rate, int | float)
    device = device_named(io)

    def plan_for(memory_bytes: int) -> EnrichPlan:
        return enrichment(df, relation, on=on, memory=memory_bytes, algorithm=HOT_ALGORITHM)

    # All that is wrong with the relation, its key or the sizes is said before anything runs.
    lookup, *others = [plan_for(size) for size in sizes][-1].lookups
    if others:
        raise InvalidOption(
            "advice is for one relation at a time",
            given=f"{1 + len(others)} relations",
            hint="memory for several relations is shared out by their sizes; ask for the largest",
        )
    stored = lookup.open(lookup.lookup.relation.info.version)
    rows_per_key = sampled_rows_per_key(stored)
    sample = KeySample()
    for batch in _keys(df, lookup.lookup.on, rows, seconds).to_batches():
        keys = lookup.codec.encode(batch.columns)
        sample.add(keys.codes if keys.null is None else keys.codes[~keys.null])
    if sample.stream_rows == 0:
        raise InvalidOption(
            "no row with a key has come, so there is nothing to advise on",
            given=f"{seconds:g} s for a streaming DataFrame" if df.isStreaming else "a DataFrame without such rows",
            hint="watch the stream for longer with `seconds=`, or while it flows",
        )
    workers = plan_for(max(sizes)).workers or os.cpu_count() or 1
    capacities = Capacities(least_executor_bytes(lookup, workers), lambda size: _capacity(plan_for(size), rows_per_key))
    return make_table(
        sample,
        stored,
        sizes,
        capacities,
        device.unit_costs,
        rows_per_key=rows_per_key,
        wanted_rows_per_s=rate,
    )


def _check_positive(name: str, given: Any, kind: type | UnionType) -> None:
    is_number = isinstance(given, kind) and not isinstance(given, bool)
    if not is_number or not 0 < given < math.inf:
        what = "whole number" if kind is int else "number"
        raise InvalidOption(f"`{name}` must be a positive {what}", given=repr(given), allowed=f"a {what} above 0")


def _capacity(plan: EnrichPlan, rows_per_key: float) -> Capacity:
    """What the memory of an executor has room for."""
    lookup = plan.lookups[0]
    stored = lookup.open(lookup.lookup.relation.info.version)
    return capacity(stored, plan.parts_of(lookup), lookup.stream_row_bytes, plan.batch_rows, rows_per_key)


# ---------------------------------------------------------------------------------------------------------------------
# Watching
# ---------------------------------------------------------------------------------------------------------------------


def _keys(df: DataFrame, columns: Sequence[str], rows: int, seconds: float) -> pa.Table:
    """The key columns of some rows."""
    keys = df.select(*(column_named(name).alias(f"k{i}") for i, name in enumerate(columns))).limit(rows)
    if not df.isStreaming:
        return keys.toArrow()
    # Spark's table in memory has the name of its query.
    name = f"semistream_advise_{uuid.uuid4().hex}"
    query = keys.writeStream.format("memory").queryName(name).start()
    try:
        taken = df.sparkSession.table(name)
        _watch(query, taken, rows, seconds, RealClock())
        query.stop()
        if (problem := query.exception()) is not None:
            raise problem
        return taken.toArrow()
    finally:
        query.stop()
        df.sparkSession.catalog.dropTempView(name)


def _watch(query: StreamingQuery, taken: DataFrame, rows: int, seconds: float, clock: Clock) -> None:
    """Wait until so many rows were taken, the time is over, or the query has ended."""
    begun_s = clock.now_s()
    # What a query reads is not what comes: there may be a filter before the keys.
    while clock.now_s() - begun_s < seconds and taken.count() < rows:
        if query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes fractions, says int
            return
