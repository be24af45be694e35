"""The partition-based join: a list of waiting rows for each partition of R, and the longest list is read first.

Paper: Chakraborty, Singh. A partition-based approach to support streaming updates over persistent data in an active
data warehouse. IPDPS 2009.
Reads:     the partition whose list is too long; the longest lists when memory is full; the longest when idle.
Remembers: whole partitions ("join memory"), those that are asked for most.
Waits:     rows whose partition is not in memory; in block mode all rows, until a block of them is together.

A partition is a page of the store. Rows of a partition in memory are joined at once in *tuple mode*. When the stream
comes faster than it is joined, in *block mode*, they are put into the list of their partition like all others and
joined as soon as a block is full, so that the work of turning to a partition is shared. A partition that was read takes
the place of one in memory if its rate of arrivals, an exponentially weighted mean, is higher.

Assumes an index on R that tells a key's partition. Good where the stream asks for neighbours in R, and keeps asking.

Memory: M = b·v_R + j·v_P (join memory) + h_S·v_S (lists), and some bytes for every partition.

Constants are those of a re-implementation, scaled to the budget. Blocks of 16 rows are as they are. Block mode began
with a backlog of 500 rows and an input buffer of 1 000: here with half of the rows of a step. A list was too long
beyond 3 000 rows, with a wait buffer of 2 000 blocks: here beyond 3/32 of the rows that can wait. Two fifths of the
wait buffer are freed when it is full, the newest period has a weight of 0.3 in a rate, and a newcomer must exceed a
rate by no margin (rho = 0).

Deviates: the paper lets a row wait without bound. Here a list is read at the latest when `PATIENCE_PERIODS` periods
have passed since its oldest row came; a period is as many stream rows as can wait. A row that is joined at once passes
through its list, too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.joins.base import NO_NUMBERS, JoinResources, Numbers, StepOutput, StreamRows
from semistream.joins.disk_probing import Page
from semistream.joins.page_probing import PageProbingJoin
from semistream.joins.x_hybridjoin import PagesAndScan

JOIN_SHARE = 1 / 2
"""The join memory's part of the memory for rows."""

BLOCK_ROWS = 16
"""Rows of a full block."""

BACKLOG_SHARE = 1 / 2
"""L_MARK: block mode begins with a backlog of this part of the rows of a step."""

LIST_SHARE = 3_000 / (2_000 * BLOCK_ROWS)
"""nIvk: a longer list than this part of all rows that can wait is read at once."""

FREED_SHARE = 0.4
"""r_wb: what is freed of the lists when they are full."""

NEWEST_WEIGHT = 0.3
"""Weight of the newest period in the mean rate of arrivals."""

RATE_MARGIN = 0.0
"""rho: by what part a newcomer must exceed the rate of a partition in memory."""

PATIENCE_PERIODS = 2
"""Periods after which a list is read, however short it is."""


class PartitionJoin(PageProbingJoin):
    """The partition-based join: tuple mode, block mode, and disk probes by the length of lists."""

    def __init__(self, relation: PagesAndScan, resources: JoinResources, *, join_share: float = JOIN_SHARE) -> None:
        super().__init__(relation, resources, join_share)

    def _set_up(self) -> None:
        super()._set_up()
        page_count = len(self.lists.lengths)
        self._arrivals = np.zeros(page_count, np.int32)
        """Rows of this period that asked for each partition."""
        self._rate = np.zeros(page_count, np.float32)
        """Mean rows a period, before this one."""
        self._period = 0
        self._period_rows = 0
        self._in_block_mode = False
        self._is_freeing = False
        self._is_idle = False
        self._due = NO_NUMBERS
        """Partitions that must be visited: those in memory with enough rows, those that are overdue or too long."""

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return len(self.lists) + len(self._answered)

    @property
    def list_rows_max(self) -> int:
        """A longer list is read at once."""
        return max(BLOCK_ROWS, int(self.lists.rows_max * LIST_SHARE))

    @property
    def wants_rows(self) -> bool:
        """Whether there is room, and nothing that must be visited first."""
        in_hand = self._answers is not None or self._page is not None
        return self.lists.room > 0 and not in_hand and not self._is_freeing and len(self._due) == 0

    # Input -----------------------------------------------------------------------------------------------------------

    def admit(self, rows: StreamRows) -> int:
        """Put rows into the lists of their partitions; say which partitions are to be visited."""
        if not self.wants_rows:
            return 0
        # What is offered is what has come and was not taken yet.
        self._in_block_mode = len(rows) >= BACKLOG_SHARE * self._division.rows_per_step > 1
        rows = rows.first(min(self._division.rows_per_step, self.lists.room))
        self.stats.rows += len(rows)
        pages = self._relation.page_numbers(rows.codes)
        np.add.at(self._arrivals, pages, 1)
        self.lists.push(rows, pages, self._period)
        self._due = self._due_among(np.unique(pages))
        self._is_freeing = self.lists.room == 0
        self._period_rows += len(rows)
        if self._period_rows >= self.lists.rows_max:
            self._end_period()
        return len(rows)

    def _due_among(self, pages: Numbers) -> Numbers:
        rows_min = BLOCK_ROWS if self._in_block_mode else 1
        lengths = self.lists.lengths[pages]
        in_memory = self.resident.is_resident[pages] & (lengths >= rows_min)
        return pages[in_memory | (lengths > self.list_rows_max)]

    def _end_period(self) -> None:
        """Update the rates; what has waited for too long is due."""
        self._rate *= 1 - NEWEST_WEIGHT
        self._rate += NEWEST_WEIGHT * self._arrivals
        self._arrivals[:] = 0
        self._period += 1
        self._period_rows = 0
        self.stats.iterations += 1
        overdue = (self.lists.lengths > 0) & (self.lists.since <= self._period - PATIENCE_PERIODS)
        self._due = np.union1d(self._due, np.flatnonzero(overdue))

    # Visits ----------------------------------------------------------------------------------------------------------

    def step(self) -> StepOutput:
        """Visit what is due; free the lists when they are full; read the longest list when the stream pauses."""
        self._is_idle = self.wants_rows
        return super().step()

    def _visit_in_memory(self) -> tuple[Page, StreamRows] | None:
        while (number := self._next_partition(in_memory=True)) is not None:
            rows = self.lists.take(number, self._division.rows_per_step)
            if self.lists.lengths[number] == 0:
                self._due = self._due[self._due != number]
            if len(rows):
                return self.resident[number], rows
        return None

    def _page_to_read(self) -> int | None:
        return self._next_partition(in_memory=False)

    def _next_partition(self, *, in_memory: bool) -> int | None:
        """The partition to visit next: one that is due, or the one with the longest list if that must be."""
        due = self._due[self.resident.is_resident[self._due] == in_memory]
        if len(due):
            return int(due[np.argmax(self.lists.lengths[due])])
        if self._is_freeing and self.lists.room >= FREED_SHARE * self.lists.rows_max:
            self._is_freeing = False
        if len(self.lists) == 0 or not (self._is_freeing or self._is_idle):
            return None
        longest = int(np.argmax(self.lists.lengths))
        return longest if self.resident.is_resident[longest] == in_memory else None

    def _end_page(self, number: int, page: Page) -> None:
        self._due = self._due[self._due != number]
        self.resident.offer(number, page, self._rate_of, RATE_MARGIN)

    def _rate_of(self, numbers: Numbers) -> npt.NDArray[np.float64]:
        """The mean rates of partitions, this period included."""
        return (1 - NEWEST_WEIGHT) * self._rate[numbers] + NEWEST_WEIGHT * self._arrivals[numbers]
