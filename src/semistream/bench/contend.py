"""One contender in a process of its own: `python -m semistream.bench.contend '{…}'`, started by `race`.

Reports each micro-batch as a line of JSON: its seconds, as Spark's progress has them (`triggerExecution`), its rows and
its checksum. The sink is the same for all: every output column goes into a hash, the hashes of a batch are added up,
and the rows are thrown away by Spark's `noop`. A sum does not depend on the order of rows.

Settings are the same for all, too: `local[cores]`, as many shuffle partitions as cores, adaptive execution as Spark
has it by default, results of any size on the driver (a broadcast of R needs that), what `semistream.configure` sets,
which is for everyone who crosses to Python, and checkpoints that are written as fast as a local disk lets them be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.bench.child_process import report
from semistream.bench.container import Container

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

    from semistream.bench.contenders.base import Contender, Job

METRICS = "sink"

SHIFTED_BITS = 16
"""Hashes are cut to 48 bits, of either sign, so that the sum of a hundred million of them does not overflow."""

POLL_S = 0.5
"""Seconds between two looks at the query; a look takes milliseconds of a core that the query could use."""


def main(order: dict[str, Any]) -> None:
    """Enter the container if there is one, and run the stream through the contender."""
    if order["container"] is not None:
        # Before anything large is loaded: memory stays on the bill of the group in which it was taken.
        Container(Path(order["container"]), 0).enter()
    run(order)


def run(order: dict[str, Any]) -> None:
    """Start Spark, join, and report batch by batch."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from semistream.bench.contenders import CONTENDERS
    from semistream.bench.contenders.base import Job
    from semistream.bench.workload import SALES
    from semistream.demo.session import quiet_spark

    contender, scratch, batches = CONTENDERS[order["contender"]], Path(order["scratch"]), int(order["batches"])
    cores = int(order["cores"])
    job = Job(Path(order["products"]), int(order["memory_bytes"]), cores)
    settings = spark_settings(cores, int(order["heap_bytes"]), scratch, batches) | order["settings"]
    with quiet_spark(Path(order["spark_log"]), cores=cores, settings=settings) as spark:
        sales = (
            spark.readStream.schema(from_arrow_schema(SALES))
            .option("maxFilesPerTrigger", order["files_per_batch"])
            .parquet(order["sales"])
        )
        sink = Sink(contender, job)
        query = sink.start(sales, scratch / "checkpoint")
        warm_up = int(order["warm_up_batches"]), float(order["warm_up_s"])
        for progress in as_many_as_needed(followed(query, batches), *warm_up, int(order["measured_batches"])):
            report(**timed(progress), **sink.checked(progress))
        query.stop()


def spark_settings(cores: int, heap_bytes: int, scratch: Path, batches: int) -> dict[str, str]:
    """What all contenders run with."""
    from semistream.spark.configure import DRIVER_JAVA, helpful_settings

    return {
        "spark.app.name": "semistream bench",
        "spark.driver.memory": f"{heap_bytes // 2**20}m",
        "spark.driver.maxResultSize": "0",
        DRIVER_JAVA: helpful_settings("local")[DRIVER_JAVA],
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.streaming.numRecentProgressUpdates": str(batches + 10),
        "spark.local.dir": str(scratch / "spark"),
    }


class Sink:
    """Where all contenders put their rows."""

    def __init__(self, contender: Contender, job: Job) -> None:
        self._contender = contender
        self._job = job
        self._by_batch: dict[int, dict[str, Any]] = {}

    def start(self, sales: DataFrame, checkpoint: Path) -> StreamingQuery:
        """Start the query over all there is."""
        from semistream.bench.workload import OUTPUT_COLUMNS

        if self._contender.by_batch:
            writer = sales.writeStream.foreachBatch(self._write_batch)
        else:
            hashes = hashed(self._contender.join(sales, self._job), OUTPUT_COLUMNS)
            writer = hashes.observe(METRICS, *sums()).writeStream.format("noop")
        options = {"checkpointLocation": str(checkpoint)}
        return writer.options(**options).trigger(availableNow=True).start()

    def checked(self, progress: StreamingQueryProgress) -> dict[str, Any]:
        """Rows and checksum of a batch that is done."""
        if self._contender.by_batch:
            return self._by_batch.pop(progress.batchId)
        return told(progress.observedMetrics[METRICS].asDict())

    def _write_batch(self, sales: DataFrame, batch: int) -> None:
        from pyspark.sql import Observation

        from semistream.bench.workload import OUTPUT_COLUMNS

        observation = Observation()
        hashes = hashed(self._contender.join(sales, self._job), OUTPUT_COLUMNS)
        hashes.observe(observation, *sums()).write.format("noop").mode("overwrite").save()
        self._by_batch[batch] = told(observation.get)


def hashed(joined: DataFrame, columns: Sequence[str]) -> DataFrame:
    """A hash of these columns of each row. In a projection Spark compiles it; in an observation it costs much more."""
    from pyspark.sql import functions as F

    return joined.select(F.shiftright(F.xxhash64(*columns), SHIFTED_BITS).alias("hash"))


def sums() -> tuple[Column, Column]:
    """How many rows there are, and the sum of their hashes."""
    from pyspark.sql import functions as F

    return F.count(F.lit(1)).alias("rows"), F.sum("hash").alias("checksum")


def told(counted: dict[str, Any]) -> dict[str, Any]:
    """The rows and the checksum of a batch, as they are reported."""
    return {"rows": counted["rows"], "checksum": counted["checksum"] or 0}


def timed(progress: StreamingQueryProgress) -> dict[str, Any]:
    """The number of a batch and its seconds, as they are reported."""
    return {"batch": progress.batchId, "seconds": progress.durationMs["triggerExecution"] / 1000}


def as_many_as_needed(
    batches: Iterator[StreamingQueryProgress], warm_up_batches: int, warm_up_s: float, measured_batches: int
) -> Iterator[StreamingQueryProgress]:
    """Pass batches on until enough of them have come behind the warm-up, which has so many and takes so long."""
    spent_s, last = 0.0, None
    for number, progress in enumerate(batches, start=1):
        yield progress
        spent_s += timed(progress)["seconds"]
        if last is None and number >= warm_up_batches and spent_s >= warm_up_s:
            last = number + measured_batches
        if number == last:
            return


def followed(query: StreamingQuery, batches: int) -> Iterator[StreamingQueryProgress]:
    """Yield the report of each micro-batch when it is done, until the stream has ended."""
    from semistream.demo.progress import progress_from

    done = 0
    ended = False
    while not ended:
        ended = bool(query.awaitTermination(POLL_S))  # type: ignore[arg-type]  # takes fractions, says int
        for progress in progress_from(query, done):
            # Behind the last files Spark may run a batch of its own, without any.
            if progress.batchId < batches:
                yield progress
                done = progress.batchId + 1


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
