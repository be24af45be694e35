"""Streaming queries that something happens to: run by `tests/spark/test_faults.py` in a process that may be killed.

Every query reads a folder of Parquet files, two a micro-batch, enriches them and writes Parquet; all run side by side.
When they are done, what they have written is read back through Spark, which knows what was committed, and stored for
the test.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyarrow import feather
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from semistream.spark import worker
from tests.support.frames import crossings

FAULTY_BATCH = 1
HANG_S = 600


def start_spark() -> SparkSession:
    """Two tasks for a query that hangs and two for others, four attempts a task, several Arrow batches a task."""
    builder = SparkSession.builder.master("local[4,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    return builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


# Faults --------------------------------------------------------------------------------------------------------------


def is_due(marker: str) -> bool:
    """Whether this is the first attempt at a task of the batch that shall suffer; leaves a mark if so."""
    context = TaskContext.get()
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    if batch_id != str(FAULTY_BATCH) or context.attemptNumber() > 0:
        return False
    Path(marker).touch()
    return True


def struck(body: Callable[..., Iterator[Any]], fault: str, marker: str) -> Callable[..., Iterator[Any]]:
    """The body of an enrichment to which something happens when it has put out a part of its rows."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for number, output in enumerate(body(batches)):
            yield output
            if number == 1 and is_due(marker):
                if fault == "worker killed":
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(HANG_S)

    return run


def enriched(stream: DataFrame, query: dict[str, Any]) -> DataFrame:
    """The stream with the relation's columns, and with what shall happen on the way."""
    fault, marker = query["fault"], query["out"] + ".struck"
    bodies = {name: getattr(worker, name) for name in ("answers", "rows")}
    if fault in ("worker killed", "hangs"):
        for name, body in bodies.items():
            setattr(worker, name, lambda plan, body=body: struck(body(plan), fault, marker))
    result = ss.enrich(stream, ss.relation(query["relation"]), on="id", memory=query["memory_bytes"])
    for name, body in bodies.items():
        setattr(worker, name, body)
    if fault == "task fails":

        @F.udf("long")
        def checked(row: int) -> int:
            if row % 1000 == 700 and is_due(marker):
                raise OSError("made to fail")
            return row

        result = result.withColumn("row", checked("row"))
    return result


# Queries -------------------------------------------------------------------------------------------------------------


def start_query(spark: SparkSession, query: dict[str, Any]) -> tuple[StreamingQuery, str]:
    """Start a query over all files that are there now; return it and the way its rows take through Python."""
    stream = spark.readStream.schema("id bigint, row bigint").option("maxFilesPerTrigger", 2).parquet(query["input"])
    result = enriched(stream, query)
    writer = result.writeStream.format("parquet").option("path", query["out"])
    writer = writer.option("checkpointLocation", query["out"] + ".checkpoint")
    if not query.get("idles"):
        writer = writer.trigger(availableNow=True)
    return writer.start(), {"ArrowEvalPython": "answers", "MapInArrow": "rows"}[crossings(result)[-1]]


def main(queries: list[dict[str, Any]]) -> None:
    """Run queries, store what they have committed, and print the way of each."""
    spark = start_spark()
    started = [(query, *start_query(spark, query)) for query in queries]
    for query, running, _ in started:
        if query.get("idles"):
            running.processAllAvailable()
            Path(query["out"] + ".idle").touch()
            time.sleep(HANG_S)
        running.awaitTermination()
        feather.write_feather(spark.read.parquet(query["out"]).toArrow(), query["out"] + ".arrow")
    spark.stop()
    print(json.dumps({query["out"]: way for query, _, way in started}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
