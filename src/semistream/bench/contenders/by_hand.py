"""What people write by hand: `mapInPandas`, an SQLite table, and an LRU cache in front of it.

The cache is `functools.lru_cache`, the fastest that Python has; it lives as long as a worker process. It counts rows
and not bytes, so it gets as many rows as fit into its worker's part of the memory at what a row takes as Python
objects.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from datetime import date
from functools import cache, lru_cache
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from semistream.bench.contenders.base import Contender, Job
from semistream.bench.workload import KEY, PRODUCTS

CACHED_ROW_BYTES = 515
"""A tuple of an integer, an integer, a float, a date and two strings of 27 letters, its key and its entry in the cache;
measured with 300 000 of them."""

ADDED = [name for name in PRODUCTS.names if name != KEY]

Row = tuple[Any, ...]
Find = Callable[[int], Row]


def lru_by_hand(sales: DataFrame, job: Job) -> DataFrame:
    """Look every row up, through a cache."""
    path, rows_max = str(job.products), max(1, job.memory_bytes // job.cores // CACHED_ROW_BYTES)

    def enrich(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        find = finder(path, rows_max)
        for frame in frames:
            found = [find(key) for key in frame[KEY].tolist()]
            yield pd.concat([frame, pd.DataFrame(found, columns=ADDED, index=frame.index)], axis=1)

    added = [field for field in from_arrow_schema(PRODUCTS).fields if field.name != KEY]
    return sales.mapInPandas(enrich, StructType([*sales.schema.fields, *added]))


@cache
def finder(path: str, rows_max: int) -> Find:
    """The lookup of this process, with its connection and its cache."""
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True, check_same_thread=False)
    query = f"SELECT {', '.join(ADDED)} FROM products WHERE {KEY} = ?"
    day = ADDED.index("listed_on")

    @lru_cache(maxsize=rows_max)
    def find(key: int) -> Row:
        row = connection.execute(query, (key,)).fetchone()
        if row is None:
            return (None,) * len(ADDED)
        return (*row[:day], date.fromisoformat(row[day]), *row[day + 1 :])

    return find


CONTENDERS = (Contender("lru-by-hand", "by hand: mapInPandas, LRU cache, SQLite", "sqlite", lru_by_hand),)
