"""SSIJ: fill the memory with stream rows, answer what cached blocks know, then read the blocks that answer most.

Paper: Bornea, Deligiannakis, Kotidis, Vassalos. Semi-Streamed Index Join for near-real time execution of ETL
transformations. ICDE 2011.
Reads:     runs of neighbouring pages, those with the most waiting rows for a seek and the pages first.
Remembers: whole pages ("blocks") by utility: the rows that asked for them, of late.
Waits:     rows whose page is not in memory, until a join phase reads it.

It goes through three phases. *Pending*: rows are collected in the input buffer. *Online*: they are ordered by page; who
asks for a cached page is answered, the rest goes to the stream buffer. *Join*, once the stream buffer is full or the
stream pauses: pages are read by a plan until half of the rows that waited are answered, and for each page that was read
it is decided whether it stays. Then memory is moved between cache and stream buffer.

Assumes an index on R that tells a key's page. Good where rows of one page are asked for together.

Memory: M = b·v_R + c·v_P (cache) + h_S·v_S (input and stream buffer), and some bytes for every page of R.

The balance. A page in the cache saves a read in each join phase and keeps u rows out of the stream buffer. Its memory,
given to the stream buffer, lets v_P/v_S more rows wait, of which a phase answers a part a with the same reads. With a
mean of n rows answered by a read, the page is worth its place if u + n > a·v_P/v_S. After a join phase that a full
buffer has begun, the coldest page of the cache is tested, and the hottest that was refused; an eighth of the memory is
moved if the test says so. A join phase that a pause has begun shows that the stream buffer is large enough, so the
cache may only grow.

Deviates: the paper publishes no constants; a prototype has an input buffer of 4 000 rows beside a stream buffer of
22 000, and these are the shares here, of what fits the memory. The plan of reads takes maximal runs of pages that rows
wait for, and a seek costs as much as `SEEK_PAGES` pages. A page is read in any case when its oldest row has waited for
`PATIENCE_PHASES` join phases, so that no row waits for ever.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.joins.base import NO_NUMBERS, JoinResources, Numbers, StepOutput, StreamRows
from semistream.joins.disk_probing import Page
from semistream.joins.division import WAITING_ROWS_MIN
from semistream.joins.page_probing import PageProbingJoin
from semistream.joins.resident_pages import page_bytes
from semistream.joins.x_hybridjoin import PagesAndScan

CACHE_SHARE = 1 / 2
"""The cache's part of the memory for rows, at first."""

MOVED_SHARE, CACHE_SHARE_MAX = 1 / 8, 3 / 4
"""What is moved between cache and stream buffer at once, and the most that the cache can have."""

INPUT_SHARE = 4_000 / (4_000 + 22_000)
"""The input buffer's part of the rows that can wait."""

ANSWERED_SHARE = 1 / 2
"""A join phase ends when this part of the rows that waited is answered."""

SEEK_PAGES = 1.0
"""What a seek costs, in pages read: a disk moves half a megabyte to two in that time, flash far less."""

PATIENCE_PHASES = 4
"""Join phases that may pass without a page that a row waits for."""


class SemiStreamedIndexJoin(PageProbingJoin):
    """SSIJ: pending, online and join phases over cached blocks."""

    def __init__(self, relation: PagesAndScan, resources: JoinResources, *, cache_share: float = CACHE_SHARE) -> None:
        super().__init__(relation, resources, cache_share)

    def _set_up(self) -> None:
        super()._set_up()
        self._utility = np.zeros(len(self.lists.lengths), np.float32)
        """Rows that asked for each page; the last join phase counts half, the one before a quarter, and so on."""
        self._input: list[StreamRows] = []
        self._input_rows = 0
        self._online = StreamRows(NO_NUMBERS, NO_NUMBERS)
        self._online_pages = NO_NUMBERS
        """Rows whose page is cached, by page, and their pages."""
        self._plan = NO_NUMBERS
        self._plan_place = 0
        self._plan_must_read = 0
        """Pages at the beginning of the plan that are read in any case."""
        self._plan_rows_left = 0
        """The join phase ends when no more rows than these wait."""
        self._phase_number = 0
        self._phase_began_full = False
        self._phase_reads = 0
        self._phase_answered = 0
        self._refused: tuple[int, int] | None = None
        """Number and bytes of the hottest page that found no place in the cache."""

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return len(self.lists) + self._input_rows + len(self._online) + len(self._answered)

    @property
    def input_rows_max(self) -> int:
        """Rows of the input buffer."""
        return max(1, min(self._division.rows_per_step, int(self.lists.rows_max * INPUT_SHARE)))

    @property
    def wants_rows(self) -> bool:
        """Whether this is the pending phase and the input buffer has room."""
        return not self._is_busy and not self._is_full and self._input_rows < self.input_rows_max

    @property
    def _is_full(self) -> bool:
        """Whether the stream buffer could not take all of another input buffer."""
        return self.lists.room < self.input_rows_max

    @property
    def _is_busy(self) -> bool:
        return self._answers is not None or self._page is not None or len(self._online) > 0 or len(self._plan) > 0

    # 1. Pending ------------------------------------------------------------------------------------------------------

    def admit(self, rows: StreamRows) -> int:
        """Put rows into the input buffer, as long as it has room."""
        if not self.wants_rows:
            return 0
        rows = rows.first(self.input_rows_max - self._input_rows)
        self.stats.rows += len(rows)
        self._input.append(rows)
        self._input_rows += len(rows)
        return len(rows)

    def step(self) -> StepOutput:
        """Leave the pending phase, if this is it; then go on with the online or the join phase."""
        if not self._is_busy:
            if self._input:
                self._begin_online()
            else:
                # The stream buffer is full, or the stream pauses.
                self._begin_join()
        return super().step()

    # 2. Online -------------------------------------------------------------------------------------------------------

    def _begin_online(self) -> None:
        """Order the input by page; line up who asks for a cached page, and let the others wait."""
        numbers = np.concatenate([rows.numbers for rows in self._input])
        codes = np.concatenate([rows.codes for rows in self._input])
        self._input, self._input_rows = [], 0
        pages = self._relation.page_numbers(codes)
        np.add.at(self._utility, pages, 1)
        order = np.argsort(pages, kind="stable")
        numbers, codes, pages = numbers[order], codes[order], pages[order]
        cached = self.resident.is_resident[pages]
        self._online, self._online_pages = StreamRows(numbers[cached], codes[cached]), pages[cached]
        self.lists.push(StreamRows(numbers[~cached], codes[~cached]), pages[~cached], self._phase_number)

    def _visit_in_memory(self) -> tuple[Page, StreamRows] | None:
        if len(self._online) == 0:
            return None
        number = int(self._online_pages[0])
        end = int(np.searchsorted(self._online_pages, number, side="right"))
        rows = self._online.first(end)
        self._online = StreamRows(self._online.numbers[end:], self._online.codes[end:])
        self._online_pages = self._online_pages[end:]
        return self.resident[number], rows

    # 3. Join ---------------------------------------------------------------------------------------------------------

    def _begin_join(self) -> None:
        """Plan which pages to read, and in which order."""
        self._phase_began_full = self._is_full
        self._phase_reads = self._phase_answered = 0
        self._refused = None
        overdue = self.lists.since <= self._phase_number - PATIENCE_PHASES
        self._plan, self._plan_must_read = plan_of(self.lists.lengths, overdue)
        self._plan_place = 0
        self._plan_rows_left = int(len(self.lists) * (1 - ANSWERED_SHARE))

    def _page_to_read(self) -> int | None:
        if len(self._plan) == 0:
            return None
        number = int(self._plan[self._plan_place])
        self._plan_place += 1
        self._phase_reads += 1
        self._phase_answered += int(self.lists.lengths[number])
        return number

    def _end_page(self, number: int, page: Page) -> None:
        if not self.resident.offer(number, page, self._utility_of) and page_bytes(page) <= self._store_bytes:
            if self._refused is None or self._utility[number] > self._utility[self._refused[0]]:
                self._refused = number, page_bytes(page)
        is_enough = len(self.lists) <= self._plan_rows_left and self._plan_place >= self._plan_must_read
        if is_enough or self._plan_place == len(self._plan):
            self._end_join()

    def _utility_of(self, numbers: Numbers) -> npt.NDArray[np.float32]:
        return self._utility[numbers]

    def _end_join(self) -> None:
        self._plan = NO_NUMBERS
        self._phase_number += 1
        self.stats.iterations += 1
        self._utility /= 2
        self._rebalance()

    def _rebalance(self) -> None:
        """Move memory to where another page's worth of it answers more rows."""
        if self._refused is not None and (not self._phase_began_full or self._is_worth_caching(*self._refused)):
            self._move_memory(MOVED_SHARE)
        elif self._phase_began_full and len(self.resident):
            numbers = self.resident.numbers
            coldest = int(numbers[np.argmin(self._utility[numbers])])
            if not self._is_worth_caching(coldest, page_bytes(self.resident[coldest])):
                self._move_memory(-MOVED_SHARE)

    def _is_worth_caching(self, number: int, bytes_of_page: int) -> bool:
        waiting_row_bytes = self.lists.nbytes / self.lists.rows_max + self._stream_row_bytes
        rows_per_read = self._phase_answered / max(1, self._phase_reads)
        rows_instead = ANSWERED_SHARE * bytes_of_page / waiting_row_bytes
        return bool(self._utility[number] + rows_per_read > rows_instead)

    def _move_memory(self, share: float) -> None:
        """Give a share of the memory to the cache, or take it away."""
        moved = self.resident.bytes_max + int(share * self._store_bytes)
        cache_bytes = min(max(0, moved), int(CACHE_SHARE_MAX * self._store_bytes))
        rows_max = self._rows_beside(cache_bytes)
        if rows_max >= max(WAITING_ROWS_MIN, 2 * len(self.lists)):
            self.resident.limit(cache_bytes, self._utility_of)
            self.lists.resize(rows_max)


def plan_of(lengths: npt.NDArray[np.int32], overdue: npt.NDArray[np.bool_]) -> tuple[Numbers, int]:
    """The order in which to read the pages that rows wait for, and how many must be read.

    Runs of neighbours are kept together. Those with a page that is overdue come first, then those with the most rows
    for what reading them costs.
    """
    pages = np.flatnonzero(lengths)
    begins = np.flatnonzero(np.diff(pages, prepend=-2) > 1)
    run_pages = np.diff(begins, append=len(pages))
    rows = np.add.reduceat(lengths[pages], begins, dtype=np.int64)
    is_due = np.logical_or.reduceat(overdue[pages], begins)
    order = np.lexsort((-rows / (SEEK_PAGES + run_pages), ~is_due))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return pages[np.argsort(np.repeat(rank, run_pages), kind="stable")], int(run_pages[is_due].sum())
