"""A streaming query on a cluster: run by `tests/spark/test_cluster.py`, which may kill a worker of the cluster."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyarrow import feather
from pyspark.sql import DataFrame, SparkSession

import semistream as ss


def main(order: dict[str, Any]) -> None:
    """Enrich all files, store what was committed, and print where the rows were joined."""
    out = Path(order["out"])
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    builder = builder.config("spark.sql.shuffle.partitions", "4")
    # The executors run elsewhere as far as Spark knows.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    for name, value in order["settings"].items():
        builder = builder.config(name, value)
    spark = ss.configure(builder).getOrCreate()
    stream = spark.readStream.schema("id bigint, row bigint").option("maxFilesPerTrigger", 4).parquet(order["input"])
    enriched = ss.enrich(stream, ss.relation(order["relation"]), on="id", memory="16MB", shuffle=order["shuffle"])

    def write(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(out / f"batch={batch}"))
        (out / f"done-{batch}").touch()

    query = enriched.writeStream.foreachBatch(write).option("checkpointLocation", str(out / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    feather.write_feather(spark.read.parquet(str(out / "batch=*")).toArrow(), str(out / "all.arrow"))
    print(json.dumps({"batches": len(list(out.glob("done-*")))}))
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
