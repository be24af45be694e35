"""Ours, as a user calls it: everything but the memory is left to the defaults.

`semistream-inlj` is the same query and the same way of reading with nothing remembered. It takes part when it is named,
and shows what remembering is worth where the system's cache of pages does not hold all of R.
"""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame

import semistream as ss
from semistream.bench.contenders.base import Contender, Job
from semistream.bench.workload import KEY


def enriched(sales: DataFrame, job: Job, *, algorithm: str = "auto") -> DataFrame:
    """Call `enrich`."""
    relation = ss.relation(job.products, key=KEY)
    return ss.enrich(sales, relation, on=KEY, memory=job.memory_bytes, algorithm=algorithm)


CONTENDERS = (
    Contender("semistream", "semistream.enrich", "relation", enriched),
    Contender(
        "semistream-inlj",
        "semistream.enrich, nothing remembered",
        "relation",
        partial(enriched, algorithm="inlj"),
        is_usual=False,
    ),
)
