"""What Spark has: its join algorithms, asked for by hints, and the two ways around them that people have found.

Spark plans and reads the static side again in every micro-batch. `persist` keeps it in memory, and with that frozen:
such a query does not see changes of R. The last two are Spark's best: to broadcast the stream and read R once (possible
for inner joins), and in `foreachBatch` to reduce R to the keys of the batch by a semi-join first (for left joins).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from semistream.bench.contenders.base import Contender, Job
from semistream.bench.workload import KEY, PRODUCTS


def sort_merge(sales: DataFrame, job: Job) -> DataFrame:
    """Shuffle and sort both sides."""
    return sales.join(_products(job).hint("merge"), KEY)


def shuffled_hash(sales: DataFrame, job: Job) -> DataFrame:
    """Shuffle both sides and build a hash table of the smaller one, the stream's."""
    return sales.hint("shuffle_hash").join(_products(job), KEY)


def broadcast(sales: DataFrame, job: Job) -> DataFrame:
    """Send all of R to everybody."""
    return sales.join(F.broadcast(_products(job)), KEY)


def broadcast_persisted(sales: DataFrame, job: Job) -> DataFrame:
    """Keep R in the memory of the JVM, and send it to everybody from there."""
    return sales.join(F.broadcast(_products(job).persist()), KEY)


def broadcast_stream(sales: DataFrame, job: Job) -> DataFrame:
    """Send the micro-batch to everybody and pass R by it."""
    return F.broadcast(sales).join(_products(job), KEY)


def semi_join(sales: DataFrame, job: Job) -> DataFrame:
    """Reduce R to the keys of the batch, which are broadcast, and broadcast what is left for a left join."""
    keys = sales.select(KEY).distinct()
    wanted = _products(job).join(F.broadcast(keys), KEY, "left_semi")
    return sales.join(F.broadcast(wanted), KEY, "left")


def _products(job: Job) -> DataFrame:
    return _opened(job.products)


@cache
def _opened(path: Path) -> DataFrame:
    """R as a DataFrame, opened once: a contender that is called with every batch need not list files every time."""
    return SparkSession.active().read.schema(from_arrow_schema(PRODUCTS)).parquet(str(path))


CONTENDERS = (
    Contender("spark-sort-merge", "Spark: sort-merge join", "parquet", sort_merge),
    Contender("spark-shuffled-hash", "Spark: shuffled hash join", "parquet", shuffled_hash),
    Contender("spark-broadcast", "Spark: broadcast(R)", "parquet", broadcast),
    Contender("spark-broadcast-persisted", "Spark: broadcast(R.persist())", "parquet", broadcast_persisted),
    Contender("spark-broadcast-stream", "Spark: broadcast(stream)", "parquet", broadcast_stream),
    Contender("spark-semi-join", "Spark: foreachBatch, semi-join", "parquet", semi_join, by_batch=True),
)
