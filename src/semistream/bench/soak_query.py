"""The query of `bench soak`, in a process of its own: an endless stream, enriched and thrown away.

The stream is Spark's `rate-micro-batch`, whose rows are numbers; a hash of the number makes a key of it, log-uniform
over R, which is Zipf's law with exponent 1 as near as a formula comes to it. So no file is read but R's. One
micro-batch follows the other without a pause.

The heap of the JVM is taken as a whole at the start. Otherwise it grows for as long as Java pleases, and nothing could
be told from it; so, of the JVM, what is watched is everything beside the heap.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import semistream as ss
from semistream.bench.child_process import report
from semistream.bench.workload import KEY
from semistream.clock import RealClock
from semistream.demo.session import quiet_spark

HEAP_MB = 1024
POLL_S = 0.5
FRACTION_BITS = 52
SPREAD = 2_654_435_761
"""A prime, by which popular keys are spread over R; no size of R here has it as a factor."""


def main(order: dict[str, Any]) -> None:
    """Run until the time is over, and report batches."""
    cores, scratch = int(order["cores"]), Path(order["scratch"])
    settings = {
        "spark.app.name": "semistream soak",
        "spark.driver.memory": f"{HEAP_MB}m",
        "spark.driver.extraJavaOptions": f"-Xms{HEAP_MB}m -XX:+AlwaysPreTouch",
        "spark.local.dir": str(scratch / "spark"),
    }
    with quiet_spark(Path(order["spark_log"]), cores=cores, settings=settings) as spark:
        sales = endless_sales(spark, int(order["relation_rows"]), int(order["batch_rows"]), cores)
        relation = ss.relation(order["relation"], key=KEY)
        enriched = ss.enrich(sales, relation, on=KEY, memory=int(order["memory_bytes"]))
        checkpoint = {"checkpointLocation": str(scratch / "checkpoint")}
        query = enriched.writeStream.format("noop").options(**checkpoint).start()
        clock = RealClock()
        begun_s: float | None = None
        while begun_s is None or clock.now_s() - begun_s < order["seconds"]:
            query.awaitTermination(POLL_S)  # type: ignore[arg-type]  # takes fractions, says int
            progress = query.lastProgress
            if progress is not None:
                begun_s = clock.now_s() if begun_s is None else begun_s
                report(batches=progress.batchId + 1)
        query.stop()


def endless_sales(spark: SparkSession, relation_rows: int, batch_rows: int, cores: int) -> DataFrame:
    """Sales without an end, `batch_rows` in each micro-batch."""
    numbers = (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", batch_rows)
        .option("numPartitions", cores)
        .load()
    )
    fraction = F.shiftrightunsigned(F.xxhash64("value"), 64 - FRACTION_BITS) / float(2**FRACTION_BITS)
    rank = F.floor(F.exp(fraction * math.log(relation_rows)))
    return numbers.select(
        F.col("value").alias("sale_id"),
        F.col("timestamp").alias("sold_at"),
        (rank * SPREAD % relation_rows).alias(KEY),
        (F.col("value") % 9 + 1).alias("quantity"),
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
