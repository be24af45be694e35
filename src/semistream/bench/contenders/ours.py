"""Ours, as a user calls it: everything but the memory is left to the defaults.

`semistream-inlj` is the same query and the same way of reading with nothing remembered. It takes part when it is named,
and shows what remembering is worth where the system's cache of pages does not hold all of R. `semistream-three` adds
stores and packages in the same pass over the boundary to Python, as in a star schema: two small relations beside the
large one.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

import semistream as ss
from semistream.bench.contenders.base import Contender, Job
from semistream.bench.workload import KEY, QUANTITY_MAX, STORES
from semistream.relations.handle import RelationHandle


def enriched(sales: DataFrame, job: Job, *, algorithm: str = "auto") -> DataFrame:
    """Call `enrich`."""
    relation = ss.relation(job.products, key=KEY)
    return ss.enrich(sales, relation, on=KEY, memory=job.memory_bytes, algorithm=algorithm)


def enriched_thrice(sales: DataFrame, job: Job) -> DataFrame:
    """Call `enrich` once, with three relations."""
    folder = job.products.parent
    lookups = [
        ss.relation(job.products, key=KEY).on(KEY),
        _small(folder / "stores", "store_id", STORES).on("store_id"),
        _small(folder / "packages", "quantity", QUANTITY_MAX + 1).on("quantity"),
    ]
    return ss.enrich(sales, lookups, memory=job.memory_bytes)


def _small(path: Path, key: str, rows: int) -> RelationHandle:
    """A relation of some columns for the keys from 0 on."""
    if not path.exists():
        numbers = pa.array(range(rows), pa.int32())
        names = pa.array([f"{path.name} {number}" for number in range(rows)])
        table = pa.table({key: numbers, f"{path.name}_name": names, f"{path.name}_no": numbers})
        ss.build_relation(table, key=key, out=path)
    return ss.relation(path, key=key)


CONTENDERS = (
    Contender("semistream", "semistream.enrich", "relation", enriched),
    Contender(
        "semistream-inlj",
        "semistream.enrich, nothing remembered",
        "relation",
        partial(enriched, algorithm="inlj"),
        is_usual=False,
    ),
    Contender(
        "semistream-three",
        "semistream.enrich, three relations in one pass",
        "relation",
        enriched_thrice,
        is_usual=False,
    ),
)
