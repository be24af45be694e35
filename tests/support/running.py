"""An operator run over a table in this process, as a Spark worker would run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.clock import Clock, RealClock
from semistream.joins.base import JoinResources, JoinStats
from semistream.joins.driver import OPEN_ROW_BYTES, Balance, JoinDriver
from semistream.joins.output import OnMiss, OutputColumns
from semistream.joins.registry import algorithm_named
from semistream.keys import KeyCodec
from semistream.structures.hot_set import HotSet


@dataclass(frozen=True)
class Run:
    table: pa.Table
    balance: Balance
    stats: JoinStats
    budget: MemoryBudget


def no_hot_set(relation: Any) -> HotSet | None:
    """Nothing is shared."""
    return None


open_hot_set: Callable[[Any], HotSet | None] = no_hot_set
"""What drivers share their rows through; tests of what is shared put another in its place."""


def make_driver(
    relation: Any,
    stream_schema: pa.Schema,
    on: Sequence[str],
    *,
    algorithm: str = "adaptive",
    memory_bytes: int = 1 << 20,
    on_miss: OnMiss = "null",
    defaults: Mapping[str, Any] | None = None,
    rows_per_step: int = 10_000,
    clock: Clock | None = None,
    stream_row_bytes: int = 0,
    **settings: Any,
) -> tuple[JoinDriver, MemoryBudget]:
    """A driver for a relation that was opened with its key columns."""
    budget = MemoryBudget(memory_bytes)
    resources = JoinResources(
        budget, clock or RealClock(), rows_per_step, stream_row_bytes, hot_set=open_hot_set(relation)
    )
    join = algorithm_named(algorithm).build(relation, resources, **settings)
    payload = pa.schema([f for f in relation.info.schema if f.name not in relation.info.key])
    codec = KeyCodec([stream_schema.field(name).type for name in on], on)
    exact = codec.exact and KeyCodec([relation.info.schema.field(n).type for n in relation.info.key]).exact
    output = OutputColumns(
        payload, tuple(payload.names), () if exact else relation.info.key, on_miss, dict(defaults or {})
    )
    return JoinDriver(join, codec, output, budget), budget


def run_join(relation: Any, stream: pa.Table, on: Sequence[str], *, batch_rows: int = 100, **options: Any) -> Run:
    """Push a stream through an operator, batch by batch, and drain it."""
    options.setdefault("stream_row_bytes", OPEN_ROW_BYTES + -(-stream.nbytes // max(1, len(stream))))
    driver, budget = make_driver(relation, stream.schema, on, **options)
    batches: list[pa.RecordBatch] = []
    for batch in stream.combine_chunks().to_batches(max_chunksize=batch_rows):
        batches += driver.push(batch, on)
    batches += driver.drain()
    assert driver.is_idle, "the stream has ended and rows still wait"
    payload = [f for f in relation.info.schema if f.name not in relation.info.key]
    schema = pa.schema([*stream.schema, *payload])
    table = pa.Table.from_batches([pa.RecordBatch.from_arrays(b.columns, schema=schema) for b in batches], schema)
    return Run(table, driver.balance, driver.join.stats, budget)
