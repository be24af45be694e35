"""What runs inside Spark's Python workers.

A worker process serves many tasks, one after the other, and keeps what it remembers between them: a table from
enrichment to `_Served` lives as long as the process. Most of it is shared with the other workers of the executor
(`hot_sets`) and outlives them all. What is remembered is a hint, never the truth, so a killed worker costs time and
nothing else.

At the start of a task each relation is pinned to one version (`served_lookup`).

Where an algorithm joins by hash partition, the stream was shared out before (`sharing_out`), and a task joins the rows
of one partition with that partition alone. A worker remembers rows of the partition it served last. Spark hands tasks
to any worker, so they help the next task only if it is of the same one.

What was learned in a task is shared when it has ended, in a thread of its own: Spark goes on meanwhile, and the next
task waits until it is done. Where workers are not reused the process would end in the middle of it, so there it is done
before.

Counts travel as a list of integers beside the first row of each answer, so that Spark can sum them up in `observe`.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from semistream.clock import RealClock
from semistream.spark.counts import BatchCounts, counts_column
from semistream.spark.plan import EnrichPlan
from semistream.spark.seats import leave_seat, take_seat
from semistream.spark.served_lookup import ServedLookup

IDLE_S_MAX = 60.0
"""An enrichment that got no task for this long is forgotten when another one gets a task."""

REUSED = "SPARK_REUSE_WORKER"
"""Set in the environment of workers that serve one task after the other."""

_clock = RealClock()
_served: dict[str, _Served] = {}
_aside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="semistream-aside")
"""Has no thread before its first work, so it may be made before workers are forked."""


# ---------------------------------------------------------------------------------------------------------------------
# What Spark calls
# ---------------------------------------------------------------------------------------------------------------------


def answers(plan: EnrichPlan) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The body of the Arrow UDF behind `enrich`: key columns in, a struct out."""

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        with _serving(plan, rows_may_wait=False) as served:
            for batch in batches:
                for columns in served.cut(as_columns(batch)):
                    yield served.answer(columns)

    return run


def structs(plan: EnrichPlan) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The body of the Arrow UDF behind `lookup` for unique keys: key columns in, one struct a row out."""

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        with _serving(plan, rows_may_wait=False) as served:
            for batch in batches:
                for columns in served.cut(as_columns(batch)):
                    yield served.structs(columns)

    return run


def lists(plan: EnrichPlan) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The body of the Arrow UDF behind `lookup` for keys that repeat: key columns in, a list of structs a row out."""

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        with _serving(plan, rows_may_wait=False) as served:
            for batch in batches:
                for columns in served.cut(as_columns(batch)):
                    yield served.lists(columns)

    return run


def rows(plan: EnrichPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The body of `mapInArrow` behind `enrich`: rows in, joined rows out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema: pa.Schema | None = None
        with _serving(plan, rows_may_wait=True) as served:
            for batch in batches:
                schema = batch.schema
                yield from served.push(batch)
            if schema is not None:
                yield from served.drain(schema)

    return run


def rows_by_partition(plan: EnrichPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As `rows`, for batches whose last column is the hash partition of each row."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema: pa.Schema | None = None
        partition: int | None = None
        with _serving(plan, rows_may_wait=True) as served:
            for batch in batches:
                stream = batch.select(batch.schema.names[:-1])
                for number, of_partition in _split_by_partition(stream, batch.column(batch.num_columns - 1)):
                    if number != partition:
                        if schema is not None:
                            yield from served.drain(schema)
                        served.turn_to_partition(number)
                        partition, schema = number, stream.schema
                    yield from served.push(of_partition)
            if schema is not None:
                yield from served.drain(schema)

    return run


def _split_by_partition(stream: pa.RecordBatch, column: pa.Array) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each partition; of one only, unless something behind our back has put tasks together."""
    numbers = column.to_numpy()
    for number in np.unique(numbers).tolist():
        own = numbers == number
        yield number, stream if own.all() else stream.filter(pa.array(own))


def as_columns(batch: Any) -> tuple[pa.Array, ...]:
    """The columns of a batch as Spark hands it to an Arrow UDF."""
    # Spark hands over a bare array for one argument and a tuple for several.
    return (batch,) if isinstance(batch, pa.Array) else tuple(batch)


# ---------------------------------------------------------------------------------------------------------------------
# What a worker keeps
# ---------------------------------------------------------------------------------------------------------------------


@cache
def _spare_what_stays() -> None:
    """Let the collector pass by what is loaded once a first task was served: PySpark calls it behind every task."""
    gc.freeze()


@contextmanager
def _serving(plan: EnrichPlan, *, rows_may_wait: bool) -> Iterator[_Served]:
    """Serve a task, and share what was learned when it is done."""
    served = _served_by(plan, rows_may_wait=rows_may_wait)
    served.begin_task()
    try:
        yield served
    finally:
        served.end_task()


def _served_by(plan: EnrichPlan, *, rows_may_wait: bool) -> _Served:
    now_s = _clock.now_s()
    # What is divided for answers in one piece does not serve for rows that wait.
    served_id = f"{plan.id}-{'rows' if rows_may_wait else 'answers'}"
    for other_id, other in list(_served.items()):
        if other_id != served_id and (now_s - other.used_at_s > IDLE_S_MAX or other.is_replaced_by(plan)):
            _served.pop(other_id).close(other_id)
    if served_id not in _served:
        _served[served_id] = _Served(served_id, plan, rows_may_wait)
    served = _served[served_id]
    served.used_at_s = now_s
    return served


def _of_task(name: str) -> str | None:
    """A property of the job that this task belongs to."""
    context = TaskContext.get()
    return context.getLocalProperty(name) if context else None


class _Served:
    """One enrichment in this process."""

    def __init__(self, served_id: str, plan: EnrichPlan, rows_may_wait: bool) -> None:
        self._plan = plan
        workers = plan.workers or os.cpu_count() or 1
        self.seat = take_seat(served_id, workers)
        self.used_at_s = 0.0
        self._query_id: str | None = None
        self._lookups = [
            ServedLookup(plan, number, self.seat, rows_may_wait=rows_may_wait, clock=_clock)
            for number in range(len(plan.lookups))
        ]
        self._rows_in = 0
        self._sharing: Future[None] | None = None
        """Set between two tasks."""

    def close(self, served_id: str) -> None:
        """Let go of everything."""
        self._wait_until_shared()
        leave_seat(served_id, self.seat)
        for lookup in self._lookups:
            lookup.close()

    def is_replaced_by(self, plan: EnrichPlan) -> bool:
        """Whether the query of this task has planned the same again: a relation has changed since."""
        query_id = _of_task("sql.streaming.queryId")
        return plan.family == self._plan.family and query_id is not None and query_id == self._query_id

    def begin_task(self) -> None:
        """Pin every relation to the version that this task must see, and start from a clean slate."""
        self._wait_until_shared()
        self._query_id, batch_id = _of_task("sql.streaming.queryId"), _of_task("streaming.sql.batchId")
        for lookup in self._lookups:
            lookup.begin_task(self._query_id, batch_id)
        self._rows_in = 0

    def end_task(self) -> None:
        """Share what was learned, whether the task ends well or not."""
        if REUSED in os.environ:
            self._sharing = _aside.submit(self._share)
            _spare_what_stays()
        else:
            self._share()

    def _share(self) -> None:
        for lookup in self._lookups:
            lookup.end_task()

    def _wait_until_shared(self) -> None:
        if self._sharing is not None:
            sharing, self._sharing = self._sharing, None
            sharing.result()

    def turn_to_partition(self, number: int) -> None:
        """Join the rows that follow with this hash partition of the relation; no row waits."""
        self._lookups[0].be_open(number)

    # Answers ---------------------------------------------------------------------------------------------------------

    def cut(self, columns: Sequence[pa.Array]) -> Iterator[Sequence[pa.Array]]:
        """Cut an Arrow batch of keys so that the answer to each piece surely fits; Spark only counts the rows."""
        rows_max = min(lookup.answer_rows_max for lookup in self._lookups)
        for begin in range(0, len(columns[0]), rows_max):
            yield [column.slice(begin, rows_max) for column in columns]

    def answer(self, columns: Sequence[pa.Array]) -> pa.Array:
        """One struct a row: what all lookups found, null where one found nothing, whether all did, and the counts."""
        length = len(columns[0])
        self._rows_in += length
        found = [lookup.driver.align(keys) for lookup, keys in self._keys_by_lookup(columns)]
        added = [column for aligned in found for column in aligned.columns]
        arrays = {f"c{i}": column for i, column in enumerate(added)}
        if self._plan.drops_misses:
            arrays["kept"] = pa.array(np.logical_and.reduce([aligned.matched for aligned in found]))
        arrays["counts"] = counts_column(self._counts(), length)
        return pa.StructArray.from_arrays(list(arrays.values()), names=list(arrays))

    def _keys_by_lookup(self, columns: Sequence[pa.Array]) -> Iterator[tuple[ServedLookup, Sequence[pa.Array]]]:
        begin = 0
        for lookup in self._lookups:
            end = begin + len(lookup.plan.lookup.on)
            yield lookup, columns[begin:end]
            begin = end

    def structs(self, columns: Sequence[pa.Array]) -> pa.Array:
        """What the only lookup found, null where there is nothing."""
        return self._lookups[0].structs(columns)

    def lists(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The only lookup's structs, all of them, as lists."""
        return self._lookups[0].lists(columns)

    # Rows ------------------------------------------------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Send a batch of the stream through all lookups."""
        self._rows_in += batch.num_rows
        yield from map(self._with_counts, self._through(0, batch))

    def drain(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """End the stream: what waits in a lookup goes through those behind it."""
        for i, lookup in enumerate(self._lookups):
            for batch in lookup.driver.drain():
                yield from map(self._with_counts, self._through(i + 1, batch))
        # The last rows may be finished without output, so there may be counts that no row has carried.
        yield self._counts_alone(schema)

    def _through(self, i: int, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if i == len(self._lookups):
            yield batch
            return
        lookup = self._lookups[i]
        for joined in lookup.driver.push(batch, lookup.plan.lookup.on):
            yield from self._through(i + 1, joined)

    def _with_counts(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = [*batch.schema.names, "counts"]
        return pa.RecordBatch.from_arrays([*batch.columns, counts_column(self._counts(), batch.num_rows)], names=names)

    def _counts_alone(self, schema: pa.Schema) -> pa.RecordBatch:
        """Counts that no row was there to carry, on a row of nulls that is left out once it was counted."""
        added = [field.type for p in self._plan.lookups for field in p.payload]
        names = [*schema.names, *(name for p in self._plan.lookups for name in p.lookup.output_names), "counts"]
        nulls = [pa.nulls(1, data_type) for data_type in [*schema.types, *added]]
        return pa.RecordBatch.from_arrays([*nulls, counts_column(self._counts(carries_row=False), 1)], names=names)

    def _bytes_held(self) -> int:
        """What all workers hold together, and what each may hold for itself, if none holds more than this one."""
        own_bytes = sum(lookup.budget.peak_bytes for lookup in self._lookups)
        return max(1, self._plan.workers) * own_bytes + sum(lookup.shared_bytes for lookup in self._lookups)

    def _counts(self, *, carries_row: bool = True) -> list[int]:
        """Everything counted since the last call."""
        counts = BatchCounts(
            rows_in=self._rows_in,
            bytes_held=self._bytes_held(),
            carries_row=carries_row,
            lookups=[lookup.counts() for lookup in self._lookups],
        )
        self._rows_in = 0
        return counts.as_list()
