"""What runs inside Spark's Python workers for a window join.

A task gets the rows of both streams that belong to one partition, in Arrow batches whose columns are laid out as
`WireColumns` says: a row of either stream stands in columns that both share, as far as types allow, so that no row
carries the nulls of the other stream's columns. Nothing is remembered between tasks; state is on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from semistream.spark.counts import counts_column
from semistream.spark.window_batch import SAMPLE_TYPE, WindowBatch
from semistream.spark.window_plan import WindowPlan
from semistream.spark.window_sequence import BatchRows
from semistream.window.state import PartitionState, StateDirectory, state_path

PARTITION, SIDE, ACCEPTED, TIE, FIRST_SLOT = range(5)
"""Places of the columns that every row has; those that hold either stream's own columns follow."""


@dataclass(frozen=True, slots=True)
class WireColumns:
    """How rows of two streams share columns on their way to the workers."""

    slots: tuple[tuple[int, ...], tuple[int, ...]]
    """For each side, the shared column that holds each of its own."""

    @property
    def count(self) -> int:
        """How many shared columns there are."""
        return max((slot + 1 for of_side in self.slots for slot in of_side), default=0)


def shared_columns(types_a: list[str], types_b: list[str]) -> WireColumns:
    """Let columns of the same type share one, whichever come first.

    Example:
        >>> shared_columns(["long", "string", "long"], ["string", "double", "long"]).slots
        ((0, 1, 2), (1, 3, 0))
    """
    places: dict[tuple[str, int], int] = {}
    slots = []
    for types in (types_a, types_b):
        seen: dict[str, int] = {}
        of_side = []
        for data_type in types:
            nth = seen[data_type] = seen.get(data_type, 0) + 1
            of_side.append(places.setdefault((data_type, nth), len(places)))
        slots.append(tuple(of_side))
    return WireColumns((slots[0], slots[1]))


def rows(plan: WindowPlan, wire: WireColumns) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The body of `mapInArrow` behind `window_join`: rows of both streams in, joined rows out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pieces = [batch for batch in batches if batch.num_rows]
        if not pieces:
            return
        received = pa.Table.from_batches(pieces)
        numbers = received.column(PARTITION).to_numpy()
        # One only, unless something behind our back has put tasks together.
        for partition in np.flatnonzero(np.bincount(numbers)).tolist():
            own = numbers == partition
            mine = received if own.all() else received.filter(pa.array(own))
            yield from _join(plan, partition, _batch_rows(plan, wire, mine))

    return run


def _join(plan: WindowPlan, partition: int, batch: BatchRows) -> Iterator[pa.RecordBatch]:
    joining = WindowBatch(plan, partition, _state(plan, partition))
    schema: pa.Schema | None = None
    for joined in joining.run(batch):
        schema = joined.schema
        yield _with_counts(joined, joining.take_counts())
    # Some counts are known at the end only; they go on a row of nulls that is left out once it was counted.
    schema = schema or empty_output(plan)
    nulls = [pa.nulls(1, field.type) for field in schema]
    yield _with_counts(pa.RecordBatch.from_arrays(nulls, names=schema.names), joining.take_counts(carries_row=False))


def _with_counts(batch: pa.RecordBatch, counts: list[int]) -> pa.RecordBatch:
    columns = [*batch.columns, counts_column(counts, batch.num_rows)]
    return pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, "counts"])


def empty_output(plan: WindowPlan) -> pa.Schema:
    """The columns of joined rows."""
    fields = [(column.name, plan.schemas[column.side].field(column.source).type) for column in plan.output]
    return pa.schema([*fields, ("sample", SAMPLE_TYPE)] if plan.shed == "sample" else fields)


def _state(plan: WindowPlan, partition: int) -> PartitionState | None:
    context = TaskContext.get()
    query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
    batch_id = context.getLocalProperty("streaming.sql.batchId") if context else None
    if plan.state is None or query_id is None or batch_id is None:
        return None
    directory = StateDirectory(state_path(plan.state), plan.reach)
    directory.claim({"query": query_id, **plan.identity})
    return directory.begin(partition, int(batch_id))


def _batch_rows(plan: WindowPlan, wire: WireColumns, received: pa.Table) -> BatchRows:
    """Sort the rows of a partition out by stream."""
    is_b = received.column(SIDE).to_numpy().astype(np.bool_)
    payload = []
    for side, schema in enumerate(plan.schemas):
        chosen = pa.array(is_b == bool(side))
        columns = []
        for field, slot in zip(schema, wire.slots[side], strict=True):
            column = received.column(FIRST_SLOT + slot).filter(chosen).combine_chunks()
            # Spark names the zone of the session in the type of a timestamp; the value is the same in all zones.
            columns.append(column if column.type == field.type else column.cast(field.type))
        length = int(np.count_nonzero(is_b == bool(side)))
        payload.append(_record_batch(columns, schema, length))
    accepted = received.column(ACCEPTED).combine_chunks().cast(pa.int64()).to_numpy()
    ties = received.column(TIE).to_numpy()
    by_side: tuple[npt.NDArray[Any], npt.NDArray[Any]] = ties[~is_b], ties[is_b]
    return BatchRows((payload[0], payload[1]), int(accepted[0]), by_side if plan.needs_tie_break else None)


def _record_batch(columns: list[pa.Array], schema: pa.Schema, length: int) -> pa.RecordBatch:
    assert all(len(column) == length for column in columns), "columns of one stream have different lengths"
    return pa.RecordBatch.from_arrays(columns, schema=schema)
