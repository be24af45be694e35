"""adaptive: remember what pays, and read the rest the cheapest way, at once or in sweeps. The default.

Paper: none, this one is ours. It takes the stream-probing and disk-probing phases from CACHEJOIN, the choice of what to
remember from the cache inequality of the many-to-many joins, the batched query for all missed keys from Derakhshan et
al., and the lists of rows by page from SSIJ.

Reads:     the distinct keys that memory could not answer, all of a step together, along the cheapest access path
           (`at_once`); or page after page, in the order in which they lie, for all rows that wait (`sweeping`).
Remembers: keys with all their rows, by uses per byte; keys known to be absent (`knowledge`).
Waits:     nothing past the end of a step; in sweeps, until the sweep comes by.

Nothing is assumed of the store: what a row costs is measured. It begins at once. Where a missed row costs more than
`MARGIN` times what it would cost in sweeps, which is known from a few pages read one after the other and from how many
rows can wait before the stream ends, it sweeps; where sweeps turn out to be clearly dearer, it goes back, and takes
longer to try again.

Memory: that of the way it works; what is remembered stays when it changes.

- At once, M = w·v_W + 2·d·v_R + p·v_O + h_R·v_R + c: the work arrays of a step of w rows, the d rows of R that were
  read and once more those that are to be remembered, p pairs and output under construction, and with all the rest the
  rows that are remembered.
- In sweeps, M = w·v_W + b·v_R + p·v_O + h_S·v_S + 16·N + h_R·v_R + c, with the page of b rows in hand, h_S rows that
  wait, and 16 bytes for each of the N pages of R. h_S and h_R grow at each other's expense.

c is for the counts of keys and for absent keys, together at most 3/32 of what is for remembering.
"""

from __future__ import annotations

import math

from semistream.errors import BudgetExceeded
from semistream.joins.access_paths import BYTES_PER_S_MAX, COLD_READS
from semistream.joins.at_once import (
    OUTPUT_SHARE,
    PAIRS_SHARE,
    READ_SHARE,
    WORK_BYTES_PER_ROW,
    WORK_SHARE,
    AnsweringAtOnce,
    Division,
)
from semistream.joins.base import (
    ANSWER_COPIES,
    ANSWERED_ROW_BYTES,
    JoinResources,
    SemiStreamJoin,
    StepOutput,
    StreamRows,
)
from semistream.joins.disk_probing import Page
from semistream.joins.holders import Holders
from semistream.joins.knowledge import Knowledge, hints_bytes
from semistream.joins.matching import PAIR_BYTES
from semistream.joins.page_lists import PageLists
from semistream.joins.sweeping import REMEMBERED_SHARE, SweepDivision, Sweeping
from semistream.relations.base import CyclicScan, KeyBatch, PageByKey, RelationInfo
from semistream.structures.reserved import return_free_memory

LEAST_BYTES = 4096
"""Work arrays of a few rows and the least of everything."""

MARGIN = 4.0
"""How many times cheaper sweeps must seem before they are tried: they leave less memory to what is remembered, and a
page is more work than the few that are sampled show."""

SAMPLED_PAGES_MIN, SAMPLED_PAGES = 2, 16
"""Pages read one after the other to learn what a sweep would cost."""

LOOK_AFTER_STEPS = 2 + COLD_READS
LOOK_AFTER_STEPS_MAX = 1024
"""Steps between two comparisons of the two ways; four times as many after each that was in vain."""


def least_memory_bytes(row_bytes_max: int) -> int:
    """The smallest budget that can hold one relation row while it is read and once more while it is put out."""
    return LEAST_BYTES + int(row_bytes_max / min(READ_SHARE, OUTPUT_SHARE))


def bytes_wanted_for_steps(info: RelationInfo, rows_per_step: int) -> int:
    """The budget from which on steps have as many rows as they may, and more would only be for remembered rows."""
    work_bytes = rows_per_step * WORK_BYTES_PER_ROW / WORK_SHARE
    pairs_bytes = rows_per_step * PAIR_BYTES / PAIRS_SHARE
    read_bytes = rows_per_step * info.row_bytes_mean / READ_SHARE
    output_bytes = rows_per_step * (ANSWERED_ROW_BYTES + ANSWER_COPIES * info.row_bytes_max) / OUTPUT_SHARE
    return max(least_memory_bytes(info.row_bytes_max), int(max(work_bytes, pairs_bytes, read_bytes, output_bytes)))


def remembering_bytes(relation: KeyBatch, resources: JoinResources) -> int:
    """What is left for remembering, hints included, as long as no row waits."""
    return resources.budget.limit_bytes - division_of(relation, resources).reserved_bytes


def remembered_bytes(relation: KeyBatch, resources: JoinResources) -> int:
    """What is left for remembered rows as long as no row waits."""
    remembering = remembering_bytes(relation, resources)
    return remembering - hints_bytes(relation, remembering, resources.hot_set)


def division_of(relation: KeyBatch, resources: JoinResources) -> Division:
    """How the budget is divided as long as no row waits."""
    limit, rows_per_step = resources.budget.limit_bytes, resources.rows_per_step
    return Division.of(relation, limit, rows_per_step, rows_may_wait=resources.rows_may_wait)


class AdaptiveJoin(SemiStreamJoin):
    """Join a stream with a relation of any size inside a memory budget.

    Needs a relation that answers batches of keys; pages and scans are used where they are cheaper.
    """

    def __init__(self, relation: KeyBatch, resources: JoinResources) -> None:
        super().__init__()
        info, limit = relation.info, resources.budget.limit_bytes
        if limit < least_memory_bytes(info.row_bytes_max):
            raise BudgetExceeded(
                f"the memory is too small to hold one row of relation {info.name!r}",
                given=f"{limit} bytes, for rows of up to {info.row_bytes_max} bytes",
                allowed=f"at least {least_memory_bytes(info.row_bytes_max)} bytes",
                hint="raise `memory`, or select fewer columns of the relation",
            )
        self._relation = relation
        self._resources = resources
        self._division = division_of(relation, resources)
        self.output_bytes_max = self._division.output_bytes_max
        self._rows_bytes_max = remembered_bytes(relation, resources)
        remembering = remembering_bytes(relation, resources)
        self.knowledge = Knowledge(relation, resources.budget, remembering, resources.hot_set)
        self._holders = Holders.of(resources.budget)
        self._sweeps = self._possible_sweeps()
        self._at_once = AnsweringAtOnce(relation, resources, self._division, self.knowledge, self._holders, self.stats)
        self._way: AnsweringAtOnce | Sweeping = self._at_once
        self._look_after_steps = self._steps_to_look = LOOK_AFTER_STEPS
        self._rows_between_ends = math.inf
        """Rows that come before the stream ends, for now: those behind cannot share a sweep with them."""
        self._rows_at_end = 0

    def _possible_sweeps(self) -> SweepDivision | None:
        relation = self._relation
        if not self._resources.rows_may_wait:
            return None
        if not isinstance(relation, PageByKey) or not isinstance(relation, CyclicScan):
            return None
        # A page must fit already when its price is learned.
        page_bytes_max = relation.info.page_bytes_max
        if relation.segment_count < SAMPLED_PAGES_MIN or page_bytes_max > self._division.between_steps_bytes:
            return None
        return SweepDivision.of(relation, self._resources)

    @property
    def is_sweeping(self) -> bool:
        """Whether rows wait for a sweep."""
        return isinstance(self._way, Sweeping)

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return self._way.waiting_rows

    @property
    def wants_rows(self) -> bool:
        """Whether more stream rows should come before the next step."""
        return self._way.wants_rows

    @property
    def waiting_bytes_max(self) -> int:
        """What was set aside for the columns of rows that wait."""
        return self._way.waiting_bytes_max if isinstance(self._way, Sweeping) else 0

    def admit(self, rows: StreamRows) -> int:
        """Take the next rows, and answer from memory what memory knows."""
        if self._way.waiting_rows == 0:
            self._choose_way()
        return self._way.admit(rows)

    def step(self) -> StepOutput:
        """Go on with what is in hand."""
        assert self.waiting_rows or not self.wants_rows, "the driver called step() with nothing to do"
        return self._way.step()

    def end_stream(self) -> None:
        """Note how many rows come before all of them must be finished."""
        self._rows_between_ends = self.stats.rows - self._rows_at_end
        self._rows_at_end = self.stats.rows

    def rest(self) -> None:
        """Share what was learned."""
        assert self.waiting_rows == 0, "rows wait that may point at what is shared"
        self._at_once.settle()
        self.knowledge.rest()

    def forget(self) -> None:
        """Drop everything that is remembered, absent keys included."""
        assert self.waiting_rows == 0, "rows wait for what would be forgotten"
        if isinstance(self._way, Sweeping):
            self._answer_at_once()
        self._at_once.settle()
        self.knowledge.forget()

    # Which way -------------------------------------------------------------------------------------------------------

    def _choose_way(self) -> None:
        """Compare what a row costs both ways, now and then. Nothing waits."""
        if isinstance(self._way, Sweeping):
            if self._way.is_ending:
                self._answer_at_once()
            return
        self._steps_to_look -= 1
        if self._sweeps is None or self._steps_to_look > 0:
            return
        if self._swept_row_s(self._sweeps) * MARGIN < self._at_once.missed_row_s():
            self._begin_to_sweep(self._sweeps)
        else:
            self._look_later()

    def _swept_row_s(self, sweeps: SweepDivision) -> float:
        """What a row would cost in sweeps; pages are read only where it could be little enough."""
        info = self._relation.info
        lists_bytes = int(sweeps.store_bytes * (1 - REMEMBERED_SHARE))
        rows = 2.0 * max(1, PageLists.rows_fitting(lists_bytes, self._resources.stream_row_bytes))
        rows = max(1.0, min(rows, self._rows_between_ends * self._missed_share))
        pages = -info.page_count * math.expm1(-rows / info.page_count)
        least_s = info.row_count * info.row_bytes_mean / info.page_count / BYTES_PER_S_MAX
        if least_s * pages / rows * MARGIN >= self._at_once.missed_row_s():
            return least_s * pages / rows
        return self._sampled_page_s() * pages / rows

    @property
    def _missed_share(self) -> float:
        return 1 - self.stats.hits / max(1, self.stats.rows)

    def _sampled_page_s(self) -> float:
        """Seconds of reading a page behind the one before; the first is left out, because it may be far away."""
        relation, clock = self._relation, self._resources.clock
        assert isinstance(relation, CyclicScan), "a relation without segments was asked for some"
        self._at_once.settle()
        self._holders.release()
        pages = range(min(SAMPLED_PAGES, relation.segment_count))
        begun_s = 0.0
        for number in pages:
            page = Page.of(relation.segment(number))
            self._holders.read.hold(page.batch.nbytes)
            begun_s = begun_s if number else clock.now_s()
        return (clock.now_s() - begun_s) / (len(pages) - 1)

    def _begin_to_sweep(self, sweeps: SweepDivision) -> None:
        self._at_once.settle()
        self._holders.release()
        return_free_memory()
        self._way = Sweeping(
            self._relation,  # type: ignore[arg-type]
            self._resources,
            sweeps,
            self.knowledge,
            self._holders,
            self.stats,
            self._at_once.missed_row_s,
        )

    def _answer_at_once(self) -> None:
        self._holders.release()
        return_free_memory()
        self.knowledge.resize(self._rows_bytes_max)
        self._way = self._at_once
        self._look_later()

    def _look_later(self) -> None:
        self._look_after_steps = min(4 * self._look_after_steps, LOOK_AFTER_STEPS_MAX)
        self._steps_to_look = self._look_after_steps
