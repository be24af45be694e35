"""X-HYBRIDJOIN: HYBRIDJOIN with the hottest pages of R pinned in memory.

Paper: Naeem, Dobbie, Weber. X-HYBRIDJOIN for near-real-time data warehousing. BNCOD 2011; with the tuner's numbers it
is Tuned X-HYBRIDJOIN.
Reads:     the page of the oldest waiting key.
Remembers: the first pages of R, pinned. Their rows probe H_S in every iteration, as if they were read each time.
Waits:     every row, also one whose page is pinned, until the next iteration.

Assumes an index on R, unique keys, and R sorted by how often its rows are asked for, so that the first pages are the
hottest. Without that order pinned pages are as cold as any.

Memory: M = k·v_P (swappable) + l·v_P (non-swappable) + h_S·v_S. X-HYBRIDJOIN has l = k; the tuner chooses both.

Deviates: the pages that are pinned are read once, at the first row, and not at the start of the program.
"""

from __future__ import annotations

import pyarrow as pa

from semistream.errors import InvalidOption
from semistream.joins.base import NO_NUMBERS, JoinResources, Numbers
from semistream.joins.disk_probing import Page
from semistream.joins.division import WORK_BYTES_PER_PAGE_ROW, divide, waiting_rows_within
from semistream.joins.hybridjoin import OldestKeyJoin
from semistream.relations.base import CyclicScan, PageByKey, RelationInfo

PINNED_PAGES = 1
"""As many as are swappable: the published algorithm before it was tuned."""


class PagesAndScan(PageByKey, CyclicScan):
    """A relation that is read by key and page by page."""


def require_unique(info: RelationInfo, algorithm: str) -> None:
    """Refuse a relation whose keys repeat."""
    if not info.unique:
        raise InvalidOption(
            f"{algorithm} joins unique keys only, and keys of relation {info.name!r} repeat",
            given=f"up to {info.rows_per_code_max} rows a key",
            allowed="a relation with unique keys",
            hint='algorithm="auto" or "moij" joins many to many',
        )


def first_pages(relation: CyclicScan, page_count: int) -> pa.RecordBatch:
    """The first pages of the relation in one batch."""
    pages = [relation.segment(number) for number in range(min(page_count, relation.segment_count))]
    return pa.concat_batches(pages) if pages else pa.RecordBatch.from_pylist([], relation.schema)


class XHybridJoin(OldestKeyJoin):
    """X-HYBRIDJOIN: pinned pages probe the rows that wait, then the page of the oldest key does."""

    def __init__(self, relation: PagesAndScan, resources: JoinResources, *, pinned_pages: int = PINNED_PAGES) -> None:
        require_unique(relation.info, "x-hybridjoin")
        pinned_pages = min(pinned_pages, relation.segment_count)
        division = divide(relation, resources, pages_held=1 + pinned_pages)
        waiting = waiting_rows_within(division.store_bytes, resources)
        super().__init__(relation, resources, division, waiting)
        self._pages = relation
        self._pinned_pages = pinned_pages
        self._pinned_account = resources.budget.account("pinned pages")
        self._pinned: Page | None = None
        self._is_pinned_done = False

    def _next_page(self) -> Page:
        if self._is_pinned_done:
            return super()._next_page()
        if self._pinned is None:
            batch = first_pages(self._pages, self._pinned_pages)
            self.stats.reads += self._pinned_pages
            self.stats.rows_read += len(batch)
            self._pinned_account.hold(batch.nbytes + len(batch) * WORK_BYTES_PER_PAGE_ROW)
            self._pinned = Page.of(batch)
        return self._pinned

    def _answer_more(self, page: Page) -> bool:
        has_more = super()._answer_more(page)
        if page is self._pinned:
            self.stats.hits += len(self._answered)
        return has_more

    def _without_partner(self, page: Page) -> Numbers:
        # Pinned pages say nothing of keys that are not on them.
        return NO_NUMBERS if page is self._pinned else super()._without_partner(page)

    def _has_more_pages(self) -> bool:
        self._is_pinned_done = not self._is_pinned_done and len(self.waiting) > 0
        return self._is_pinned_done

    def forget(self) -> None:
        """Drop the pinned pages; they are read anew when the next row comes."""
        self._pinned = None
        self._pinned_account.hold(0)
