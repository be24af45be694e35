"""The loop that MESHJOIN and its heirs share: R passes by for ever, and every row stays until all of it has passed.

One iteration admits `w` stream rows, reads the next segment of a cyclic scan, lets its rows probe all rows that wait,
and expires the rows for which this was the last segment. So the waiting rows are a queue of *cells*, one for each
iteration that still has to pass, and who came together leaves together: not by key, which would take others along.

`w` is the same in every iteration, so that the cells fill H_S exactly; a cell may be smaller when the stream pauses.
"""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from semistream.joins.base import NO_NUMBERS, Joined, JoinResources, Numbers, SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.disk_probing import Page
from semistream.joins.division import Division, hold_for_steps
from semistream.joins.held_keys import HeldKeys
from semistream.joins.matching import PairCursor
from semistream.joins.waiting import WaitingRows
from semistream.relations.base import CyclicScan


class ScanProbingJoin(SemiStreamJoin):
    """MESHJOIN's loop over segments of a cyclic scan; what it remembers is left to its heirs."""

    def __init__(
        self, relation: CyclicScan, resources: JoinResources, division: Division, waiting: WaitingRows
    ) -> None:
        super().__init__()
        self._relation = relation
        self._division = division
        self.output_bytes_max = division.output_bytes_max
        hold_for_steps(relation, resources, division)
        self._stream_row_bytes = resources.stream_row_bytes
        self.waiting = waiting
        self.held: HeldKeys | None = None
        self._segment = 0
        self._cells: deque[int] = deque()
        """Rows of each cell, oldest first."""
        self._admitted = 0
        """Rows of the newest cell so far."""
        self._hits: PairCursor | None = None
        self._hit_numbers = NO_NUMBERS
        self._page: Page | None = None
        self._answers: PairCursor | None = None
        self._rows_answered = 0
        self._has_answered_all = False

    @property
    def iterations_per_round(self) -> int:
        """Iterations until all of R has passed by: the number of cells."""
        return self._relation.segment_count

    @property
    def cell_rows_max(self) -> int:
        """w: the rows that an iteration admits."""
        return max(1, self.waiting.rows_max // max(1, self.iterations_per_round))

    @property
    def waiting_bytes_max(self) -> int:
        """What was set aside for the columns of rows that wait."""
        return self.waiting.rows_max * self._stream_row_bytes

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return len(self.waiting) + len(self._hit_numbers)

    @property
    def wants_rows(self) -> bool:
        """Whether the newest cell has room and no segment is in hand."""
        has_room = self._admitted < self.cell_rows_max and self.waiting.room > 0
        return has_room and self._page is None and self._hits is None

    # Stream-probing --------------------------------------------------------------------------------------------------

    def admit(self, rows: StreamRows) -> int:
        """Answer rows whose key is remembered; put the others into the newest cell, as long as it has room."""
        if not self.wants_rows:
            return 0
        rows = rows.first(self._division.rows_per_step)
        room = min(self.cell_rows_max - self._admitted, self.waiting.room)
        if self.held is None:
            rows = waiting = rows.first(room)
        else:
            rows, waiting = self._probe_held(self.held, rows, room)
        self.stats.rows += len(rows)
        self.waiting.push(waiting)
        self._admitted += len(waiting)
        self.stats.waited += len(waiting)
        return len(rows)

    def _probe_held(self, held: HeldKeys, rows: StreamRows, room: int) -> tuple[StreamRows, StreamRows]:
        """Line up rows whose key is remembered, until the others fill the room; return all of them, and the others."""
        first, count = held.probe_until(rows.codes, room)
        rows = rows.first(len(first))
        hit = count > 0
        self.stats.stream_probes += len(rows)
        self.stats.hits += int(hit.sum())
        if hit.any():
            self._hit_numbers = rows.numbers[hit]
            self._hits = held.pairs(self._hit_numbers, first[hit], count[hit])
        return rows, StreamRows(rows.numbers[~hit], rows.codes[~hit])

    # Disk-probing ----------------------------------------------------------------------------------------------------

    def step(self) -> StepOutput:
        """Put out what memory has answered; or let the segment in hand probe the rows that wait."""
        if self._hits is not None:
            return self._put_out_hits(self._hits)
        page = self._page or self._turn_segment()
        joined: list[Joined] = []
        pairs_left = self._division.pairs_max
        finished = NO_NUMBERS
        while pairs_left > 0:
            if self._answers is None and not self._answer_more(page):
                finished = self._end_iteration(page)
                break
            assert self._answers is not None, "a segment without answers was not ended"
            joined.append(self._answers.next(pairs_left))
            pairs_left -= len(joined[-1])
            if self._answers.left == 0:
                self._answers = None
        return self._output(joined, finished)

    def _put_out_hits(self, hits: PairCursor) -> StepOutput:
        joined, finished = hits.next(self._division.pairs_max), NO_NUMBERS
        if hits.left == 0:
            finished, self._hit_numbers, self._hits = self._hit_numbers, NO_NUMBERS, None
        return self._output([joined], finished)

    def _output(self, joined: list[Joined], finished: Numbers) -> StepOutput:
        pairs = sum(len(part) for part in joined)
        self.stats.outputs += pairs
        return StepOutput(tuple(joined), finished)

    def _turn_segment(self) -> Page:
        self._cells.append(self._admitted)
        self._admitted = 0
        self._page = page = self._next_segment()
        self._rows_answered = 0
        self._has_answered_all = False
        self.stats.disk_probes += page.row_count
        return page

    def _next_segment(self) -> Page:
        """The next segment of the scan."""
        if self._relation.segment_count == 0:
            return Page.of(pa.RecordBatch.from_pylist([], self._relation.schema))
        return self.read_segment()

    def read_segment(self) -> Page:
        """Read what follows the last segment, or the first, into the disk buffer."""
        batch = self._relation.segment(self._segment)
        self._segment = (self._segment + 1) % self._relation.segment_count
        self.stats.reads += 1
        self.stats.rows_read += len(batch)
        return Page.of(batch)

    def _answer_more(self, page: Page) -> bool:
        """Pair further waiting rows with the segment; False when there are none."""
        if self._has_answered_all:
            return False
        rows_max = self._division.rows_per_step
        positions, numbers = self.waiting.pairs(page.codes, rows_max, self._rows_answered)
        self._rows_answered += len(numbers)
        self._has_answered_all = len(numbers) < rows_max
        if len(numbers) == 0:
            return False
        self._answers = PairCursor(page.batch, numbers, page.first[positions], page.count[positions])
        return True

    def _end_iteration(self, page: Page) -> Numbers:
        """Turn away from the segment; return the rows for which it was the last, and exactly those."""
        self._consider(page)
        expired = NO_NUMBERS
        if len(self._cells) >= self.iterations_per_round:
            expired = self.waiting.take_oldest(self._cells.popleft())
            self.stats.left += len(expired)
        self._remember(page)
        self._page = None
        self.stats.iterations += 1
        return expired

    def _consider(self, page: Page) -> None:
        """Choose what to remember of a segment; the rows that have met all of R with it are still there."""

    def _remember(self, page: Page) -> None:
        """Remember what was chosen; those rows are gone."""

    def forget(self) -> None:
        """Begin the scan anew; nothing waits."""
        assert self.waiting_rows == 0, "rows wait for what would be forgotten"
        self._cells.clear()
        self._segment = 0
