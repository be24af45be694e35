"""Queries whose Python workers are watched from outside: run by `tests/limits/test_worker_memory.py`.

All queries share one driver, but each has workers of its own: those of a query are killed when it is done, and Spark
forks new ones for the next. What they have remembered together is removed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

import semistream as ss
from semistream.spark import enrich as entry_points
from tests.support.processes import PeakMemory, hot_set_files, python_workers

TRIES_MAX = 3

make_plan = entry_points.make_plan


def start_spark(workers: int) -> SparkSession:
    """Spark on as many cores as there shall be workers."""
    builder = SparkSession.builder.master(f"local[{workers}]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "OFF")
    builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    return builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def remove_hot_sets() -> None:
    """Remove what the workers that were killed have remembered together."""
    for place in hot_set_files():
        shutil.rmtree(place.parent, ignore_errors=True)


def run_query(spark: SparkSession, query: dict[str, Any], workers: int) -> dict[str, Any]:
    """Enrich a stream, throw the rows away, and return the most that its workers held together."""
    ways: list[str] = []

    def planned(*arguments: Any, **options: Any) -> Any:
        # An empty relation has no large rows and would be joined the other way.
        plan = make_plan(*arguments, **options)
        ways.append(query.get("way") or plan.way)
        return replace(plan, way=ways[-1])

    entry_points.make_plan = planned
    for _ in range(TRIES_MAX):
        stream = spark.read.parquet(query["stream"])
        enriched = ss.enrich(stream, ss.relation(query["relation"]), on="id", memory=query["memory_bytes"])
        with PeakMemory(python_workers, shared=hot_set_files) as watched:
            # What the first run has learned is published while the others work.
            for _ in range(query.get("runs", 1)):
                enriched.write.format("noop").mode("overwrite").save()
        for pid in python_workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        remove_hot_sets()
        # Now and then Spark starts a worker more than it needs, which cannot be compared with anything.
        if watched.processes == workers:
            break
    seen = {"peak_bytes": watched.peak_bytes, "shared_bytes": watched.shared_bytes}
    return {**seen, "workers": watched.processes, "way": ways[-1]}


def main(queries: list[dict[str, Any]], workers: int) -> None:
    """Run the queries and print what was seen of each."""
    spark = start_spark(workers)
    found = {query["name"]: run_query(spark, query, workers) for query in queries}
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
