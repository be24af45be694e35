"""What runs inside Spark's Python workers.

A worker process serves many tasks, one after the other, and keeps what it remembers between them: a table from
enrichment to `_Served` lives as long as the process. What is remembered is a hint, never the truth, so a killed worker
costs time and nothing else.

At the start of a task each relation is pinned to one version. In a streaming query the first task of a micro-batch to
get there decides, by a lease in the relation's directory; all others, and any replay of the batch, read the lease. In
a batch query the version was pinned when it was planned.

Where an algorithm joins by hash partition, the stream was shared out before (`sharing_out`), and a task joins the rows
of one partition with that partition alone. A worker remembers rows of the partition it served last. Spark hands tasks
to any worker, so they help the next task only if it is of the same one.

Counts travel as a list of integers beside the first row of each answer, so that Spark can sum them up in `observe`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark import TaskContext

from semistream.budget import MemoryBudget
from semistream.clock import RealClock
from semistream.joins.balance import Balance
from semistream.joins.base import JoinResources
from semistream.joins.driver import JoinDriver
from semistream.joins.output import OutputColumns
from semistream.joins.registry import algorithm_named
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.leases import pin_version
from semistream.spark.counts import BatchCounts, LookupCounts, counts_column
from semistream.spark.plan import EnrichPlan, LookupPlan
from semistream.spark.seats import NO_SEAT, leave_seat, take_seat
from semistream.spark.versions import newest_fitting_version

IDLE_S_MAX = 60.0
"""An enrichment that got no task for this long is forgotten when another one gets a task."""

SEATLESS_SHARE = 1 / 8
"""Part of a worker's memory that is set aside for joining without a seat; more only where a row would not fit."""

_clock = RealClock()
_served: dict[str, _Served] = {}


# ---------------------------------------------------------------------------------------------------------------------
# What Spark calls
# ---------------------------------------------------------------------------------------------------------------------


def answers(plan: EnrichPlan) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The body of the Arrow UDF behind `enrich`: key columns in, a struct of structs out."""

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        served = _serve(plan, rows_may_wait=False)
        for batch in batches:
            for columns in served.cut(as_columns(batch)):
                yield served.answer(columns)

    return run


def structs(plan: EnrichPlan) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The body of the Arrow UDF behind `lookup` for unique keys: key columns in, one struct a row out."""

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        served = _serve(plan, rows_may_wait=False)
        for batch in batches:
            for columns in served.cut(as_columns(batch)):
                yield served.structs(columns)[0]

    return run


def lists(plan: EnrichPlan) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The body of the Arrow UDF behind `lookup` for keys that repeat: key columns in, a list of structs a row out."""

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        served = _serve(plan, rows_may_wait=False)
        for batch in batches:
            for columns in served.cut(as_columns(batch)):
                yield served.lists(columns)

    return run


def rows(plan: EnrichPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The body of `mapInArrow` behind `enrich`: rows in, joined rows out."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        served = _serve(plan, rows_may_wait=True)
        schema: pa.Schema | None = None
        for batch in batches:
            schema = batch.schema
            yield from served.push(batch)
        if schema is not None:
            yield from served.drain(schema)

    return run


def rows_by_partition(plan: EnrichPlan) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """As `rows`, for batches whose last column is the hash partition of each row."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        served = _serve(plan, rows_may_wait=True)
        schema: pa.Schema | None = None
        partition: int | None = None
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


def _serve(plan: EnrichPlan, *, rows_may_wait: bool) -> _Served:
    now_s = _clock.now_s()
    # What is divided for answers in one piece does not serve for rows that wait.
    served_id = f"{plan.id}-{'rows' if rows_may_wait else 'answers'}"
    for other_id in [i for i, other in _served.items() if now_s - other.used_at_s > IDLE_S_MAX and i != served_id]:
        leave_seat(other_id, _served.pop(other_id).seat)
    if served_id not in _served:
        _served[served_id] = _Served(served_id, plan, rows_may_wait)
    served = _served[served_id]
    served.used_at_s = now_s
    served.begin_task()
    return served


class _Served:
    """One enrichment in this process."""

    def __init__(self, served_id: str, plan: EnrichPlan, rows_may_wait: bool) -> None:
        self._plan = plan
        workers = plan.workers or os.cpu_count() or 1
        self.seat = take_seat(served_id, workers)
        self.used_at_s = 0.0
        worker_bytes = plan.memory_bytes / workers
        self._lookups = [
            _ServedLookup(p, int(worker_bytes * p.memory_share), self.seat, plan.batch_rows, rows_may_wait)
            for p in plan.lookups
        ]
        self._rows_in = 0

    def begin_task(self) -> None:
        """Pin every relation to the version that this task must see, and start from a clean slate."""
        context = TaskContext.get()
        query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
        batch_id = context.getLocalProperty("streaming.sql.batchId") if context else None
        for lookup in self._lookups:
            lookup.begin_task(query_id, batch_id)
        self._rows_in = 0

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
        """One struct a row: a struct for each lookup, null where it found nothing, and the counts."""
        length = len(columns[0])
        self._rows_in += length
        found = self.structs(columns)
        counts = counts_column(self._counts(), length)
        names = [f"r{i}" for i in range(len(found))]
        return pa.StructArray.from_arrays([*found, counts], names=[*names, "counts"])

    def structs(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """For each lookup the structs it found, null where there are none."""
        found = []
        begin = 0
        for lookup in self._lookups:
            width = len(lookup.plan.lookup.on)
            found.append(lookup.structs(columns[begin : begin + width]))
            begin += width
        return found

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

    def _counts(self, *, carries_row: bool = True) -> list[int]:
        """Everything counted since the last call."""
        counts = BatchCounts(
            rows_in=self._rows_in,
            seat=self.seat,
            bytes_held=sum(lookup.budget.peak_bytes for lookup in self._lookups),
            carries_row=carries_row,
            lookups=[lookup.counts() for lookup in self._lookups],
        )
        self._rows_in = 0
        return counts.as_list()


class _ServedLookup:
    """One lookup in this process, at one version of its relation."""

    def __init__(self, plan: LookupPlan, lookup_bytes: int, seat: int, batch_rows: int, rows_may_wait: bool) -> None:
        self.plan = plan
        self._rows_may_wait = rows_may_wait
        # What a worker without a seat may hold; those with one have no less.
        self._seatless_bytes = max(
            int(lookup_bytes * SEATLESS_SHARE), plan.least_memory_bytes(plan.lookup.relation.info.version)
        )
        self._memory_bytes = self._seatless_bytes if seat == NO_SEAT else lookup_bytes - self._seatless_bytes
        self._batch_rows = batch_rows if batch_rows > 0 else 10_000
        self._pinned: tuple[int, tuple[int, int] | None] = (-1, None)
        """The version that this task must see, and its edition."""
        self._version = -1
        self._edition: tuple[int, int] | None = None
        self._partition: int | None = None
        self._info = plan.lookup.relation.info
        self.driver: JoinDriver
        self.budget: MemoryBudget

    def begin_task(self, query_id: str | None, batch_id: str | None) -> None:
        """Pin the version that this task must see, and open it unless the task will say which partition."""
        handle = self.plan.lookup.relation
        directory = RelationDirectory(handle.path)
        version = handle.info.version
        if query_id is not None and batch_id is not None:
            version = pin_version(
                directory, query_id, int(batch_id), lambda: newest_fitting_version(self.plan, self._seatless_bytes)
            )
        self._pinned = version, directory.edition(version)
        if not self.plan.is_by_partition:
            self.be_open(None)

    def be_open(self, partition: int | None) -> None:
        """Open the pinned version, or one partition of it, unless it is open; drop what a failed task left behind."""
        version, edition = self._pinned
        # Rows that are gone from the directory stay readable where they are open.
        is_open = (version, partition) == (self._version, self._partition) and edition in (self._edition, None)
        if not is_open or not self.driver.is_idle:
            self._open(version, partition)
            self._edition = edition
        self._counted = self._totals()

    @property
    def answer_rows_max(self) -> int:
        """Rows whose answers surely fit the memory together."""
        info = self._info
        return self.driver.answer_rows_max(info.row_bytes_max * max(1, info.rows_per_code_max))

    def _open(self, version: int, partition: int | None) -> None:
        if self._version >= 0:
            # What was remembered of the last version must be free before anything of the next one is held.
            del self.driver, self.budget
            self._version = -1
        whole = self.plan.open(version)
        relation = whole if partition is None else whole.partitions[partition]
        self._info = relation.info
        self.budget = MemoryBudget(self._memory_bytes)
        row_bytes = self.plan.stream_row_bytes
        resources = JoinResources(self.budget, _clock, self._batch_rows, row_bytes, self._rows_may_wait)
        join = algorithm_named(self.plan.algorithm).build(relation, resources)
        output = OutputColumns(
            self.plan.payload,
            self.plan.lookup.output_names,
            self.plan.verify_key,
            self.plan.on_miss,
            self.plan.defaults,
        )
        self.driver = JoinDriver(join, self.plan.codec, output, self.budget)
        self._version, self._partition = version, partition

    def structs(self, keys: Sequence[pa.Array]) -> pa.Array:
        """One struct a row, null where nothing was found and nothing takes its place."""
        aligned = self.driver.align(keys)
        if not aligned.columns:
            return _structs_of_nothing(aligned.matched)
        mask = None
        if self.plan.on_miss != "default" and not aligned.matched.all():
            mask = pa.array(~aligned.matched)
        return pa.StructArray.from_arrays(aligned.columns, names=list(self.plan.lookup.output_names), mask=mask)

    def lists(self, keys: Sequence[pa.Array]) -> pa.Array:
        """A list of structs a row, empty where nothing was found."""
        grouped = self.driver.group(keys)
        if grouped.columns:
            structs = pa.StructArray.from_arrays(grouped.columns, names=list(self.plan.lookup.output_names))
        else:
            structs = _structs_of_nothing(np.ones(int(grouped.offsets[-1]), np.bool_))
        return pa.ListArray.from_arrays(pa.array(grouped.offsets, pa.int32()), structs)

    def counts(self) -> LookupCounts:
        """What was counted since the last call."""
        before, self._counted = self._counted, self._totals()
        return LookupCounts(*(int(n) for n in np.subtract(self._counted, before)))

    def _totals(self) -> tuple[int, ...]:
        balance: Balance = self.driver.balance
        stats = self.driver.join.stats
        return (balance.matched, balance.unmatched, balance.null_keys, stats.hits, stats.reads)


def _structs_of_nothing(valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Structs without a field, for a relation that is nothing but its key; from no columns Arrow makes no rows."""
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.struct([]), len(valid), [validity], children=[])
