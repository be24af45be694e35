"""PCSRJ: R and the stream in parts by a hash of the key, and a CACHEJOIN for each part, side by side.

Paper: Naeem, Khan, Aslam, Jamil. Parallelisation of a cache-based stream-relation join for a near-real-time data
warehouse. Electronics 9(8), 1299, 2020. It has two nodes, for odd and for even keys.
Reads:     in every part, the page of the oldest waiting key.
Remembers: in every part, keys for which enough rows waited.
Waits:     in every part, rows whose key is not remembered.

Assumes a relation in hash partitions, each of them with an index (`semistream index --partitions N`). Any other
relation is one part, and this is CACHEJOIN.

Memory: M = N·(b·v_R + h_R·v_R + h_S·v_S): each part has an N-th of the budget, with a disk buffer, a cache and a queue
of its own.

What is parallel: the steps of parts that have something to do, in a thread each. Kernels, reads of files and copies of
Arrow run outside of Python's lock, the rest of a step runs inside; so reads that wait for a device overlap, and
processors are used together only as far as steps are long. On Spark the parts are in processes of their own, as the
paper has them: the stream is shared out by the same hash, and each task joins its rows with one part, which is what
this class does with a relation of one part.

Deviates: any number of parts, by a hash instead of odd and even, which shares out popular keys as well as it can be
done without knowing them. Rows are handed to the inboxes of all parts at once and the next ones when all are empty: the
stream is as fast as the part that falls behind, as the cost model says.
"""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace

import numpy as np

from semistream.budget import MemoryBudget
from semistream.joins import division
from semistream.joins.base import NO_NUMBERS, JoinResources, JoinStats, SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.cachejoin import CACHE_SHARE, CacheJoin
from semistream.relations.base import PageByKey, Relation
from semistream.relations.partitioned import partition_of, partitions_of

INBOX_SHARE = 1 / 16
"""Of a part's memory, what rows may take that were handed to the part and not yet taken by its join."""

INBOX_ROW_BYTES = 64
"""A row in an inbox: number and code, and the same once more with its place while rows are handed out."""


def least_memory_bytes(relation: Relation, stream_row_bytes: int) -> int:
    """The smallest budget: what CACHEJOIN needs for the most demanding part, for each part, and an inbox of one row."""
    parts = partitions_of(relation)
    most = max(division.least_memory_bytes(part, stream_row_bytes) for part in parts)
    return len(parts) * (int(most / (1 - INBOX_SHARE)) + INBOX_ROW_BYTES + stream_row_bytes + 1)


class ParallelCacheJoin(SemiStreamJoin):
    """PCSRJ: a CACHEJOIN for each part of R."""

    def __init__(self, relation: PageByKey, resources: JoinResources, *, cache_share: float = CACHE_SHARE) -> None:
        super().__init__()
        parts = partitions_of(relation)
        budget = resources.budget
        part_bytes = budget.limit_bytes // len(parts)
        inbox_row_bytes = INBOX_ROW_BYTES + resources.stream_row_bytes
        self._inbox_rows_max = max(1, min(resources.rows_per_step, int(part_bytes * INBOX_SHARE) // inbox_row_bytes))
        self._budgets = [MemoryBudget(part_bytes - self._inbox_rows_max * inbox_row_bytes) for _ in parts]
        self.joins = [
            CacheJoin(part, replace(resources, budget=part_budget), cache_share=cache_share)
            for part, part_budget in zip(parts, self._budgets, strict=True)
        ]
        self._inboxes = [StreamRows(NO_NUMBERS, NO_NUMBERS)] * len(parts)
        """Rows of each part that its join has not taken yet."""
        self._inboxes_bytes = len(parts) * self._inbox_rows_max * resources.stream_row_bytes
        budget.account("inboxes").hold(len(parts) * self._inbox_rows_max * INBOX_ROW_BYTES)
        self._accounts = [budget.account(f"part {number}") for number in range(len(parts))]
        # Each part leaves room for output in its own budget; the driver has all of it.
        self.output_bytes_max = sum(join.output_bytes_max for join in self.joins)
        self._threads = ThreadPoolExecutor(len(parts), "pcsrj") if len(parts) > 1 else None
        if self._threads is not None:
            weakref.finalize(self, self._threads.shutdown, wait=False)
        self._sum_up()

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return sum(join.waiting_rows for join in self.joins) + sum(len(inbox) for inbox in self._inboxes)

    @property
    def waiting_bytes_max(self) -> int:
        """What all parts have set aside for the columns of rows that wait, and what inboxes have."""
        return sum(join.waiting_bytes_max for join in self.joins) + self._inboxes_bytes

    @property
    def wants_rows(self) -> bool:
        """Whether all inboxes are empty and all parts want rows: the next may be of any."""
        return not any(self._is_busy(number) for number in range(len(self.joins)))

    def _is_busy(self, number: int) -> bool:
        return len(self._inboxes[number]) > 0 or not self.joins[number].wants_rows

    def admit(self, rows: StreamRows) -> int:
        """Put rows into the inboxes of their parts, up to the first that finds no room."""
        if not self.wants_rows:
            return 0
        rows = rows.first(len(self.joins) * self._inbox_rows_max)
        part_numbers = partition_of(rows.codes, len(self.joins))
        places = [np.flatnonzero(part_numbers == number) for number in range(len(self.joins))]
        most = self._inbox_rows_max
        end = min([len(rows), *(int(own[most]) for own in places if len(own) > most)])
        for number, found in enumerate(places):
            own = found[found < end]
            self._inboxes[number] = StreamRows(rows.numbers[own], rows.codes[own])
        return end

    def step(self) -> StepOutput:
        """Let all parts work that keep the stream waiting; if none does, all in which rows wait."""
        numbers = range(len(self.joins))
        busy = [number for number in numbers if self._is_busy(number)]
        working = busy or [number for number in numbers if self.joins[number].waiting_rows]
        if self._threads is None or len(working) == 1:
            outputs = [self._work_on(number) for number in working]
        else:
            outputs = list(self._threads.map(self._work_on, working))
        self._sum_up()
        finished = [output.finished for output in outputs if len(output.finished)]
        joined = tuple(pairs for output in outputs for pairs in output.joined)
        return StepOutput(joined, np.concatenate(finished) if finished else NO_NUMBERS)

    def _work_on(self, number: int) -> StepOutput:
        """Let a part take rows from its inbox as long as it wants them; then, if it has to, it steps."""
        join, inbox = self.joins[number], self._inboxes[number]
        is_pause = not self._is_busy(number)
        while len(inbox) and join.wants_rows:
            taken = join.admit(inbox)
            inbox = StreamRows(inbox.numbers[taken:], inbox.codes[taken:])
        self._inboxes[number] = inbox
        return join.step() if is_pause or not join.wants_rows else StepOutput()

    def _sum_up(self) -> None:
        """Count and charge what the parts have."""
        for counter in fields(JoinStats):
            setattr(self.stats, counter.name, sum(getattr(join.stats, counter.name) for join in self.joins))
        for account, budget in zip(self._accounts, self._budgets, strict=True):
            account.hold(budget.peak_bytes)

    def forget(self) -> None:
        """Drop everything that is remembered, in all parts."""
        for join in self.joins:
            join.forget()
        self._sum_up()
