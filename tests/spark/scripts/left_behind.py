"""A query that is enriched and then waits to be killed: run by `tests/spark/test_hot_set.py`."""

from __future__ import annotations

import atexit
import sys
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import semistream as ss


def main(relation: str, ready: Path, *wishes: str) -> None:
    """Enrich some rows, say so, and wait."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    if "configured" in wishes:
        builder = ss.configure(builder)
    spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "OFF").getOrCreate()
    products = ss.relation(relation)

    def write(rows: DataFrame, batch_id: int = 0) -> None:
        ss.enrich(rows, products, on="id", memory="32MB").write.format("noop").mode("overwrite").save()

    if "streaming" in wishes or "foreach" in wishes:
        # Handed in before there is anything to clear up, it is asked last.
        atexit.register(lambda: print("still running:", len(spark.streams.active)))
        rows = spark.readStream.format("rate").option("rowsPerSecond", 20_000).load().selectExpr("value % 50000 AS id")
        if "foreach" in wishes:
            query = rows.writeStream.foreachBatch(write).start()
        else:
            query = ss.enrich(rows, products, on="id", memory="32MB").writeStream.format("noop").start()
        while not (query.lastProgress and query.lastProgress.numInputRows):
            time.sleep(0.1)
        ready.touch()
        time.sleep(2)
        return
    write(spark.range(50_000))
    ready.touch()
    if "end" in wishes:
        time.sleep(2)
        spark.stop()
        return
    time.sleep(600)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
