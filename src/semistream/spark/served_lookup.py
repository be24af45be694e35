"""One lookup of an enrichment, as a worker serves it: a version of a relation, the join that reads it, its memory.

At the start of a task the relation is pinned to one version. In a streaming query the first task of a micro-batch to
get there decides, by a lease in the relation's directory; all others, and any replay of the batch, read the lease. In
a batch query the version was pinned when it was planned. What was remembered of another version is dropped first.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.clock import Clock
from semistream.joins.balance import Balance
from semistream.joins.base import JoinResources
from semistream.joins.driver import JoinDriver
from semistream.joins.output import OutputColumns
from semistream.joins.registry import algorithm_named
from semistream.planning.auto import settings_for
from semistream.planning.capacities import Room
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.leases import pin_version
from semistream.relations.base import Relation
from semistream.spark.counts import LookupCounts
from semistream.spark.hot_sets import HotSets
from semistream.spark.memory_parts import rows_per_step
from semistream.spark.plan import EnrichPlan
from semistream.spark.seats import NO_SEAT
from semistream.spark.versions import must_fit, newest_fitting_version
from semistream.structures.hot_set import HotSet


class ServedLookup:
    """One lookup in this process, at one version of its relation."""

    def __init__(self, enrichment: EnrichPlan, number: int, seat: int, *, rows_may_wait: bool, clock: Clock) -> None:
        self.plan = enrichment.lookups[number]
        self._clock = clock
        self._rows_may_wait = rows_may_wait
        self._parts = enrichment.parts_of(self.plan)
        self._memory_bytes = self._parts.seatless_bytes if seat == NO_SEAT else self._parts.seat_bytes
        self._hot_sets = HotSets(enrichment.family, enrichment.id, number, self._parts.hot_bytes)
        self._hot: HotSet | None = None
        self._query_id: str | None = None
        self._batch_rows = rows_per_step(enrichment.batch_rows)
        self._pinned: tuple[int, tuple[int, int] | None] = (-1, None)
        """The version that this task must see, and its edition."""
        self._version = -1
        self._edition: tuple[int, int] | None = None
        self._partition: int | None = None
        self._info = self.plan.lookup.relation.info
        self.driver: JoinDriver
        self.budget: MemoryBudget

    def begin_task(self, query_id: str | None, batch_id: str | None) -> None:
        """Pin the version that this task must see, and open it unless the task will say which partition."""
        handle = self.plan.lookup.relation
        directory = RelationDirectory(handle.path)
        version = handle.info.version
        if query_id is not None and batch_id is not None:
            version = pin_version(
                directory,
                query_id,
                int(batch_id),
                lambda: newest_fitting_version(self.plan, self._parts.seatless_bytes),
            )
            if version != self._version:
                must_fit(self.plan, version, self._parts.seatless_bytes)
        self._pinned = version, directory.edition(version)
        self._query_id = query_id
        if not self.plan.is_by_partition:
            self.be_open(None)

    def be_open(self, partition: int | None) -> None:
        """Open the pinned version, or one partition of it, unless it is open; drop what a failed task left behind."""
        version, edition = self._pinned
        # Rows that are gone from the directory stay readable where they are open.
        is_open = (version, partition) == (self._version, self._partition) and edition in (self._edition, None)
        if not is_open or not self.driver.is_idle or self._hot_set_has_come():
            self._edition = edition
            self._open(version, partition)
        self._counted = self._totals()

    def end_task(self) -> None:
        """Share what was learned; of a task that failed, only let go of what others wait for."""
        if self._version >= 0 and self.driver.is_idle:
            self.driver.join.rest()
        elif self._hot is not None:
            self._hot.end()

    def close(self) -> None:
        """Let go of everything."""
        if self._version >= 0:
            del self.driver, self.budget
            self._version = -1
        if self._hot is not None:
            self._hot.close()
            self._hot = None

    @property
    def shared_bytes(self) -> int:
        """What all workers hold together."""
        return self._hot.used_bytes if self._hot is not None else 0

    @property
    def answer_rows_max(self) -> int:
        """Rows whose answers surely fit the memory together."""
        info = self._info
        return self.driver.answer_rows_max(info.row_bytes_max * max(1, info.rows_per_code_max))

    def _open(self, version: int, partition: int | None) -> None:
        # What was remembered of the last version must be free before anything of the next one is held.
        self.close()
        whole = self.plan.open(version)
        relation = whole if partition is None else whole.partitions[partition]
        self._info = relation.info
        self.budget = MemoryBudget(self._memory_bytes)
        row_bytes = self.plan.stream_row_bytes
        self._hot = self._opened_hot_set(relation)
        resources = JoinResources(self.budget, self._clock, self._batch_rows, row_bytes, self._rows_may_wait, self._hot)
        settings = settings_for(self.plan.algorithm, relation, Room(self._memory_bytes, row_bytes, self._batch_rows))
        join = algorithm_named(self.plan.algorithm).build(relation, resources, **settings)
        output = OutputColumns(
            self.plan.payload,
            self.plan.lookup.output_names,
            self.plan.verify_key,
            self.plan.on_miss,
            self.plan.defaults,
        )
        self.driver = JoinDriver(join, self.plan.codec, output, self.budget)
        self._version, self._partition = version, partition

    def _opened_hot_set(self, relation: Relation) -> HotSet | None:
        if not self._parts.shares(relation.info):
            return None
        version, edition = self._pinned
        return self._hot_sets.open(relation, version, edition, self._query_id)

    def _hot_set_has_come(self) -> bool:
        """Whether there is a hot set that there was not before, because others still read another version.

        Where the one that was used is gone, because nobody had used it for long, there may be another.
        """
        if self._hot is not None and self._hot.is_gone():
            self._hot.close()
            self._hot = None
        if self._hot is not None or not self._parts.shares(self._info):
            return False
        self._hot = self._opened_hot_set(self.plan.open(self._version))
        return self._hot is not None

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
        return LookupCounts(*map(sub, self._counted, before))

    def _totals(self) -> LookupCounts:
        balance: Balance = self.driver.balance
        stats = self.driver.join.stats
        return LookupCounts(balance.matched, balance.unmatched, balance.null_keys, stats.hits, stats.reads)


def _structs_of_nothing(valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Structs without a field, for a relation that is nothing but its key; from no columns Arrow makes no rows."""
    validity = pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.struct([]), len(valid), [validity], children=[])
