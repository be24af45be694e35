"""One contender of `bench window` in a process of its own: `python -m semistream.bench.window_contend '{…}'`.

Both answer the same question: pairs of events with equal keys that are at most `window_s` apart. The sink, the settings
and what is reported of a micro-batch are those of `contend`.

Spark's own join gets the best state store it has: RocksDB with a log of changes, and version 4 of the join's state,
which is ordered by event time. Spark stays on an older version without a word where the store cannot do it, so what
is in effect is read off the running query: the version from its plan, the store from its metrics, and how many
stores it opens (one a partition; older versions open four).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.bench.child_process import report
from semistream.bench.contend import METRICS, followed, hashed, spark_settings, sums, timed, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

STATE_SETTINGS = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.join.stateFormatVersion": "4",
}
"""Spark's own join reads them; ours has no state of Spark's, and runs with them as well."""

_FORMAT_IN_PLAN = re.compile(r"StreamingSymmetricHashJoin\b.*\], (\d+), \w+$", re.MULTILINE)
"""The version stands behind the predicates by which state is cleaned up, before the output mode."""

Join = Callable[["DataFrame", "DataFrame", dict[str, Any]], "DataFrame"]


def by_spark(a: DataFrame, b: DataFrame, order: dict[str, Any]) -> DataFrame:
    """Spark's stream-stream join, with watermarks on both sides."""
    from pyspark.sql import functions as F

    reach = f"INTERVAL '{float(order['window_s']):.6f}' SECOND"
    # Event times never go back from one batch to the next, so no delay is needed and state goes as early as it can.
    left = a.withWatermark("ts", "0 seconds")
    right = b.toDF(*(f"b_{name}" for name in b.columns)).withWatermark("b_ts", "0 seconds")
    return left.join(right, F.expr(f"k = b_k AND b_ts BETWEEN ts - {reach} AND ts + {reach}"), "inner").drop("b_k")


def by_semistream(a: DataFrame, b: DataFrame, order: dict[str, Any]) -> DataFrame:
    """Ours, as a user calls it."""
    import semistream as ss

    return ss.window_join(
        a,
        b,
        on="k",
        within=ss.seconds(float(order["window_s"])),
        time="ts",
        memory=int(order["memory_bytes"]),
        state=str(Path(order["scratch"]) / "state"),
        prefix_b="b_",
    )


CONTENDERS: dict[str, Join] = {"semistream": by_semistream, "spark": by_spark}


def main(order: dict[str, Any]) -> None:
    """Start Spark, join, and report batch by batch; the first report of Spark's join is about its state."""
    from semistream.bench.window_streams import OUTPUT_COLUMNS, SIDES
    from semistream.demo.session import quiet_spark

    cores, batches, scratch = int(order["cores"]), int(order["batches"]), Path(order["scratch"])
    settings = spark_settings(cores, int(order["heap_bytes"]), scratch, batches) | STATE_SETTINGS
    with quiet_spark(Path(order["spark_log"]), cores=cores, settings=settings) as spark:
        a, b = (_stream(spark, Path(order["events"]) / side, cores) for side in SIDES)
        joined = CONTENDERS[order["contender"]](a, b, order)
        writer = hashed(joined, OUTPUT_COLUMNS).observe(METRICS, *sums()).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(scratch / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        for progress in followed(query, batches):
            if order["contender"] == "spark" and progress.batchId == 0:
                report(state=_state_in_effect(query, progress), partitions=cores)
            report(**timed(progress), **told(progress.observedMetrics[METRICS].asDict()))


def _stream(spark: SparkSession, folder: Path, files_per_batch: int) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    from semistream.bench.window_streams import EVENTS

    source = spark.readStream.schema(from_arrow_schema(EVENTS)).option("maxFilesPerTrigger", files_per_batch)
    return source.parquet(str(folder))


def _state_in_effect(query: StreamingQuery, progress: Any) -> dict[str, Any]:
    """What Spark's join keeps its rows in, as the running query shows it."""
    (operator,) = progress.stateOperators
    return {
        "format": format_in_plan(str(query._jsq.explainInternal(False))),
        "is_rocksdb": any(name.startswith("rocksdb") for name in operator.customMetrics),
        "stores": operator.numStateStoreInstances,
    }


def format_in_plan(plan: str) -> int | None:
    """The version of the join's state in the text of a plan; None where it does not stand there."""
    found = _FORMAT_IN_PLAN.search(plan)
    return None if found is None else int(found.group(1))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
