"""The loop that SSIJ and the partition join share: pages are visited, in memory or on disk, and answer their lists.

A *visit* brings a page and stream rows that ask for keys of it together: rows with a partner are paired, the others
are finished without one. An heir says which rows visit which resident page, which page to read next, and what becomes
of a page that was read. One page is read a step, because the next takes its place in the disk buffer.

Memory: that of `divide`, of which `store_bytes` are for lists and resident pages, less `PAGE_STATE_BYTES` for each page
of R: what is known of a page that is not in memory.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import pyarrow as pa

from semistream.budget import format_bytes
from semistream.errors import BudgetExceeded
from semistream.joins import division
from semistream.joins.base import NO_NUMBERS, Joined, JoinResources, Numbers, SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.disk_probing import Page
from semistream.joins.division import WAITING_ROWS_MIN, divide, hold_for_steps
from semistream.joins.matching import PairCursor
from semistream.joins.page_lists import PageLists
from semistream.joins.resident_pages import ResidentPages
from semistream.joins.x_hybridjoin import PagesAndScan
from semistream.relations.base import Relation

PAGE_STATE_BYTES = 64
"""Length and age of its list, whether it is resident, how often it is asked for, its place in a plan of reads."""


def least_memory_bytes(relation: Relation, stream_row_bytes: int) -> int:
    """The smallest budget: a page, some rows that wait, and what is known of every page."""
    # Twice, because all that is divided off by shares is less than half of a budget.
    return division.least_memory_bytes(relation, stream_row_bytes) + 2 * PAGE_STATE_BYTES * relation.info.page_count


class PageProbingJoin(SemiStreamJoin):
    """Waiting rows in lists by page, some pages in memory."""

    lists: PageLists
    resident: ResidentPages

    def __init__(self, relation: PagesAndScan, resources: JoinResources, resident_share: float) -> None:
        super().__init__()
        self._relation = relation
        self._resident_share = resident_share
        self._stream_row_bytes = resources.stream_row_bytes
        self._division = divide(relation, resources)
        self.output_bytes_max = self._division.output_bytes_max
        hold_for_steps(relation, resources, self._division)
        budget = resources.budget
        self._page_state = budget.account("state of pages")
        self._lists_account = budget.account("waiting rows")
        self._resident_account = budget.account("resident pages")
        self._page: Page | None = None
        self._page_number = 0
        self._answers: PairCursor | None = None
        self._answered = NO_NUMBERS
        self._set_up()

    @property
    def waiting_bytes_max(self) -> int:
        """What was set aside for the columns of rows that wait."""
        return self.lists.rows_max * self._stream_row_bytes

    def _set_up(self) -> None:
        """Begin without rows and pages; a relation that has changed may have another number of them."""
        info = self._relation.info
        state_bytes = PAGE_STATE_BYTES * info.page_count
        self._store_bytes = self._division.store_bytes - state_bytes
        if PageLists.rows_fitting(self._store_bytes, self._stream_row_bytes) < WAITING_ROWS_MIN:
            raise BudgetExceeded(
                f"the memory is too small for what must be known of each page of relation {info.name!r}",
                given=f"{format_bytes(max(0, self._division.store_bytes))} for {info.page_count} pages and for rows",
                allowed=f"at least {least_memory_bytes(self._relation, self._stream_row_bytes)} bytes in all",
                hint="raise `memory`, or build the relation with larger pages",
            )
        resident_bytes = min(
            int(self._store_bytes * self._resident_share),
            self._store_bytes - PageLists.bytes_for(WAITING_ROWS_MIN) - WAITING_ROWS_MIN * self._stream_row_bytes,
        )
        self.resident = ResidentPages(info.page_count, resident_bytes)
        self.lists = PageLists(info.page_count, self._rows_beside(resident_bytes), self._rows_beside(0))
        self._page_state.hold(state_bytes)
        self._charge()

    def _rows_beside(self, resident_bytes: int) -> int:
        """Rows that can wait beside so many bytes of pages."""
        return PageLists.rows_fitting(self._store_bytes - resident_bytes, self._stream_row_bytes)

    def _charge(self) -> None:
        # Who has become smaller first, or both together could seem to be too large.
        held = [(self._lists_account, self.lists.nbytes), (self._resident_account, self.resident.used_bytes)]
        for account, held_bytes in sorted(held, key=lambda pair: pair[1] - pair[0].used_bytes):
            account.hold(held_bytes)
        self.stats.evicted = self.resident.evicted_keys

    # Visits ----------------------------------------------------------------------------------------------------------

    def step(self) -> StepOutput:
        """Go on with visits until the pairs of a step are full, or a page that was read is done with."""
        joined: list[Joined] = []
        finished: list[Numbers] = []
        pairs_left = self._division.pairs_max
        while pairs_left > 0:
            if self._answers is None and not self._visit(may_read=not joined and not finished):
                break
            assert self._answers is not None, "a visit without answers"
            if self._answers.left:
                joined.append(self._answers.next(pairs_left))
                pairs_left -= len(joined[-1])
            if self._answers.left == 0:
                finished.append(self._answered)
                self._answers, self._answered = None, NO_NUMBERS
        pairs = sum(len(part) for part in joined)
        self.stats.outputs += pairs
        return StepOutput(tuple(joined), np.concatenate(finished) if finished else NO_NUMBERS)

    def _visit(self, *, may_read: bool) -> bool:
        """Begin the next visit; False when the step is over."""
        if self._page is None:
            if (visit := self._visit_in_memory()) is not None:
                page, rows = visit
                self.stats.hits += len(rows)
                self.stats.stream_probes += len(rows)
                self._answers, self._answered = page.pairs_with(rows), rows.numbers
                return True
            number = self._page_to_read() if may_read else None
            if number is None:
                return False
            self._page, self._page_number = self._read(number), number
        rows = self.lists.take(self._page_number, self._division.rows_per_step)
        if len(rows) == 0:
            page, self._page = self._page, None
            self._end_page(self._page_number, page)
            self._charge()
            return False
        self.stats.waited += len(rows)
        self.stats.left += len(rows)
        self._answers, self._answered = self._page.pairs_with(rows), rows.numbers
        return True

    def _read(self, number: int) -> Page:
        """Read a page into the disk buffer; an empty relation has one page without rows."""
        if self._relation.segment_count == 0:
            return Page.of(pa.RecordBatch.from_pylist([], self._relation.schema))
        batch = self._relation.segment(number)
        self.stats.reads += 1
        self.stats.rows_read += len(batch)
        self.stats.disk_probes += len(batch)
        return Page.of(batch)

    def forget(self) -> None:
        """Drop all pages, and what is known of them."""
        assert self.waiting_rows == 0, "rows wait for what would be forgotten"
        self._set_up()

    # What heirs choose -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _visit_in_memory(self) -> tuple[Page, StreamRows] | None:
        """A resident page and rows that ask for it."""

    @abstractmethod
    def _page_to_read(self) -> int | None:
        """The page that is read next, if one is; rows wait for it."""

    @abstractmethod
    def _end_page(self, number: int, page: Page) -> None:
        """A page has answered its list: shall it stay?"""
