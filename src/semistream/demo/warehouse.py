"""The star schema: one fact, four dimensions, Parquet.

A sale knows natural keys (article, store and customer numbers); the fact knows surrogate keys, which is what the
enrichment is for. Each dimension begins with its *unknown member*, key -1: sales whose article the master data does
not know, or that have no customer, point to it, so that no sale is lost from any sum.

The fact is written by Spark's file sink, whose log (`_spark_metadata`) says which files count. Spark reads it; other
readers see every file, which after an undisturbed run is the same. The dimensions are copied from the sources in
batches and never held whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

UNKNOWN_KEY = -1
"""Surrogate key of the unknown member of every dimension."""

UNKNOWN_TEXT = "Unknown"

AMOUNT = "decimal(8,2)"
"""Money of one sale: a dozen of the dearest product is 12 000. Spark adds up to 8 digits as plain integers."""

TABLES = ("sales_fact", "product_dim", "store_dim", "customer_dim", "date_dim")

TOP_PRODUCTS_SQL = """
    WITH revenue AS (
        SELECT date_dim.month, sales_fact.product_key, SUM(sales_fact.revenue) AS revenue, SUM(sales_fact.quantity) AS units
        FROM sales_fact JOIN date_dim USING (date_key)
        GROUP BY ALL
    ), ranked AS (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY month ORDER BY revenue DESC, product_key) AS place FROM revenue
    )
    SELECT /*+ BROADCAST(ranked) */ month, place, product_name, category, units, revenue
    FROM ranked JOIN product_dim USING (product_key)
    WHERE place <= {places}
    ORDER BY month, place
"""  # noqa: E501
"""Top products by month. The product dimension is joined last, when a handful of rows is left, and they go to it: by
itself Spark would sort the dimension."""


@dataclass(frozen=True, slots=True)
class TopProduct:
    """One line of the answer that the warehouse gives at the end."""

    month: str
    place: int
    product_name: str
    category: str
    units: int
    revenue: Decimal


# Loading


def fact_rows(enriched: DataFrame) -> DataFrame:
    """Turn enriched sales into rows of the fact."""
    return enriched.select(
        "sale_id",
        F.date_format("sold_at", "yyyyMMdd").cast("int").alias("date_key"),
        "product_key",
        "store_key",
        "customer_key",
        "quantity",
        "unit_price",
        (F.col("quantity") * F.col("unit_price")).cast(AMOUNT).alias("revenue"),
        (F.col("quantity") * F.col("unit_cost")).cast(AMOUNT).alias("cost"),
    )


def start_loading(rows: DataFrame, fact: Path, checkpoint: Path) -> StreamingQuery:
    """Start the query that appends `rows` to the fact until the source has no more."""
    return (
        rows.writeStream.format("parquet")
        .option("path", str(fact))
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )


def write_dimension(source: Path, directory: Path, surrogate_key: str) -> int:
    """Copy master data into a dimension, after its unknown member, and return its rows."""
    directory.mkdir(parents=True)
    with pq.ParquetFile(source) as master:
        schema = master.schema_arrow
        with pq.ParquetWriter(directory / "part-0.parquet", schema, store_decimal_as_integer=True) as writer:
            writer.write_batch(_unknown_member(schema, surrogate_key))
            for batch in master.iter_batches():
                writer.write_batch(batch)
        return int(master.metadata.num_rows) + 1


def _unknown_member(schema: pa.Schema, surrogate_key: str) -> pa.RecordBatch:
    def value(field: pa.Field) -> Any:
        if field.name == surrogate_key:
            return UNKNOWN_KEY
        return UNKNOWN_TEXT if pa.types.is_string(field.type) else None

    return pa.record_batch([pa.array([value(field)], field.type) for field in schema], schema=schema)


def write_date_dimension(directory: Path, year: int) -> int:
    """Write one row a day of `year` and return how many."""
    directory.mkdir(parents=True)
    days = np.arange(f"{year}-01-01", f"{year + 1}-01-01", dtype="datetime64[D]")
    months = days.astype("datetime64[M]")
    month_number = months.astype(np.int64) % 12 + 1
    day_number = (days - months).astype(np.int64) + 1
    # 1970-01-01 was a Thursday; 1 is Monday, as in ISO 8601.
    weekday = (days.astype(np.int64) + 3) % 7 + 1
    table = pa.table(
        {
            "date_key": (year * 10_000 + month_number * 100 + day_number).astype(np.int32),
            "date": days,
            "year": np.full(len(days), year, dtype=np.int32),
            "quarter": ((month_number - 1) // 3 + 1).astype(np.int32),
            "month": np.datetime_as_string(months),
            "weekday": weekday.astype(np.int32),
            "is_weekend": weekday >= 6,  # noqa: PLR2004 - Saturday
        }
    )
    pq.write_table(table, directory / "part-0.parquet")
    return len(days)


# Asking


def open_warehouse(spark: SparkSession, warehouse: Path) -> None:
    """Make every table of the warehouse known to SQL by its name."""
    for table in TABLES:
        spark.read.parquet(str(warehouse / table)).createOrReplaceTempView(table)


def count_sales(spark: SparkSession) -> int:
    """Rows of the fact, counted by reading it."""
    return spark.table("sales_fact").count()


def top_products(spark: SparkSession, places: int) -> Iterator[TopProduct]:
    """Yield the products with the highest revenue of each month, best first."""
    for row in spark.sql(TOP_PRODUCTS_SQL.format(places=places)).collect():
        yield TopProduct(**row.asDict())
