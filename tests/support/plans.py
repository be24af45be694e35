"""Plans of an enrichment for tests of what runs in a worker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from semistream.budget import MIB
from semistream.relations.handle import Lookup
from semistream.spark.plan import EnrichPlan, make_plan

KEYS_ONLY = pa.schema([("id", pa.int64())])

_OPTIONS: dict[str, Any] = {
    "memory_bytes": 8 * MIB,
    "workers": 1,
    "batch_rows": 10_000,
    "algorithm": "auto",
    "on_miss": "null",
    "defaults": None,
    "tasks": 2,
    "shuffle": "auto",
}


def planned(*lookups: Lookup, stream: pa.Schema = KEYS_ONLY, **changed: Any) -> EnrichPlan:
    """A plan for one worker, with these options changed."""
    return make_plan(stream, lookups, **{**_OPTIONS, **changed})
