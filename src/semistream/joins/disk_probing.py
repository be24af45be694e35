"""The loop that HYBRIDJOIN and its heirs share: fill H_S, read a page, answer everything that waits for it.

One iteration:

1. *Stream-probing*, for those that remember: rows whose key is in H_R are answered at once, the others wait. This goes
   on until H_S is full or the stream pauses.
2. *Disk-probing*: the page of the oldest waiting key is read; its rows probe H_S, all matches are put out and leave.
   A page never splits a key, so who found a partner has found all of them. If the oldest key is not on its page it is
   nowhere, and its rows leave without a partner; the papers' pseudo-code lets them go, too, but forgets their slots.

An heir says which pages an iteration looks at, what is remembered of a page, and what happens at the end of an
iteration. No page is read while H_S has room and the stream has rows.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.joins.base import NO_NUMBERS, Joined, JoinResources, Numbers, SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.division import Division, hold_for_steps
from semistream.joins.held_keys import HeldKeys
from semistream.joins.matching import PairCursor, codes_of
from semistream.joins.waiting import WaitingRows
from semistream.relations.base import PageByKey
from semistream.structures.compiled import I64, READ_I64, WRITE_I64, Array, kernel


@kernel(I64(READ_I64, WRITE_I64, WRITE_I64, WRITE_I64))
def _find_distinct(codes: Array, distinct: Array, first: Array, count: Array) -> int:
    """Write the distinct ones of ascending codes, with their first row and how many rows they have; return how many."""
    length = 0
    for row in range(codes.size):
        if length == 0 or codes[row] != distinct[length - 1]:
            distinct[length], first[length], count[length] = codes[row], row, 0
            length += 1
        count[length - 1] += 1
    return length


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of the relation in memory, by distinct code."""

    batch: pa.RecordBatch
    codes: Numbers
    """The distinct codes, ascending."""
    first: Numbers
    """The first row of each code."""
    count: Numbers
    """How many rows have it."""

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Page:
        """Find the codes of a batch that a relation has returned."""
        codes = codes_of(batch)
        distinct, first, count = np.empty((3, len(codes)), np.int64)
        length = _find_distinct(codes, distinct, first, count)
        if length < len(codes):
            # A page may be held for long, and then only what it is charged for.
            distinct, first, count = (array[:length].copy() for array in (distinct, first, count))
        return cls(batch, distinct, first, count)

    @property
    def row_count(self) -> int:
        """Rows with these codes."""
        return int(self.count.sum())

    def part(self, begin: int, end: int) -> Page:
        """The codes from `begin` to before `end`, over the same rows."""
        return Page(self.batch, self.codes[begin:end], self.first[begin:end], self.count[begin:end])

    def pairs_with(self, rows: StreamRows) -> PairCursor:
        """Line up rows with their partners on the page; who is not on it has none."""
        if len(self.codes) == 0:
            none = np.zeros(len(rows), np.int64)
            return PairCursor(self.batch, rows.numbers, none, none)
        places = np.minimum(np.searchsorted(self.codes, rows.codes), len(self.codes) - 1)
        count = np.where(self.codes[places] == rows.codes, self.count[places], 0)
        return PairCursor(self.batch, rows.numbers, self.first[places], count)


class DiskProbingJoin(SemiStreamJoin):
    """HYBRIDJOIN's loop; what it remembers is left to its heirs."""

    def __init__(self, relation: PageByKey, resources: JoinResources, division: Division, waiting: WaitingRows) -> None:
        super().__init__()
        self._relation = relation
        self._division = division
        self.output_bytes_max = division.output_bytes_max
        hold_for_steps(relation, resources, division)
        self._stream_row_bytes = resources.stream_row_bytes
        self.waiting = waiting
        self.held: HeldKeys | None = None
        self._hits: PairCursor | None = None
        self._hit_numbers = NO_NUMBERS
        self._page: Page | None = None
        self._has_answered_all = False
        self._in_iteration = False
        self._answers: PairCursor | None = None
        self._answered = NO_NUMBERS

    @property
    def waiting_bytes_max(self) -> int:
        """What was set aside for the columns of rows that wait."""
        return self.waiting.rows_max * self._stream_row_bytes

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return len(self.waiting) + len(self._hit_numbers) + len(self._answered)

    @property
    def wants_rows(self) -> bool:
        """Whether H_S has room and nothing is in hand that must be put out first."""
        return self.waiting.room > 0 and self._hits is None and self._page is None and not self._in_iteration

    # Stream-probing --------------------------------------------------------------------------------------------------

    def admit(self, rows: StreamRows) -> int:
        """Answer rows whose key is remembered; let the others wait, as long as there is room."""
        if not self.wants_rows:
            return 0
        rows = rows.first(self._division.rows_per_step)
        if self.held is None:
            return self._wait(rows.first(self.waiting.room))
        return self._probe_held(self.held, rows)

    def _wait(self, rows: StreamRows) -> int:
        self.waiting.push(rows)
        self.stats.rows += len(rows)
        self.stats.waited += len(rows)
        return len(rows)

    def _probe_held(self, held: HeldKeys, rows: StreamRows) -> int:
        """Probe H_R with rows until those that it does not know fill H_S."""
        first, count = held.probe_until(rows.codes, self.waiting.room)
        rows = rows.first(len(first))
        hit = count > 0
        self._wait(StreamRows(rows.numbers[~hit], rows.codes[~hit]))
        numbers = rows.numbers[hit]
        self.stats.stream_probes += len(rows)
        self.stats.rows += len(numbers)
        self.stats.hits += len(numbers)
        if len(numbers):
            self._hits, self._hit_numbers = held.pairs(numbers, first[hit], count[hit]), numbers
        return len(rows)

    # Disk-probing ----------------------------------------------------------------------------------------------------

    def step(self) -> StepOutput:
        """Put out what memory has answered; or go on with an iteration until the pairs of a step are full."""
        if self._hits is not None:
            return self._put_out_hits(self._hits)
        joined: list[Joined] = []
        finished: list[Numbers] = []
        pairs_left = self._division.pairs_max
        page = self._page or self._turn_page()
        # One page a step: the next one may take its place in the disk buffer.
        while pairs_left > 0:
            if self._answers is None and not self._answer_more(page):
                finished.append(self._end_page(page))
                break
            assert self._answers is not None, "a page without answers was not ended"
            joined.append(self._answers.next(pairs_left))
            pairs_left -= len(joined[-1])
            if self._answers.left == 0:
                finished.append(self._answered)
                self._answers, self._answered = None, NO_NUMBERS
        return self._output(joined, finished)

    def _put_out_hits(self, hits: PairCursor) -> StepOutput:
        joined = hits.next(self._division.pairs_max)
        finished = []
        if hits.left == 0:
            finished.append(self._hit_numbers)
            self._hits, self._hit_numbers = None, NO_NUMBERS
        return self._output([joined], finished)

    def _output(self, joined: list[Joined], finished: list[Numbers]) -> StepOutput:
        pairs = sum(len(part) for part in joined)
        self.stats.outputs += pairs
        return StepOutput(tuple(joined), np.concatenate(finished) if finished else NO_NUMBERS)

    def _turn_page(self) -> Page:
        """Look at the next page of the iteration."""
        self._in_iteration = True
        self._has_answered_all = False
        self._page = page = self._next_page()
        self.stats.disk_probes += page.row_count
        self._consider(page)
        return page

    def _answer_more(self, page: Page) -> bool:
        """Take rows from H_S that the page answers; False when there are none."""
        if self._has_answered_all:
            return False
        positions, numbers = self.waiting.take_codes(page.codes, self._division.rows_per_step)
        self._has_answered_all = len(numbers) < self._division.rows_per_step
        if len(numbers) == 0:
            return False
        self.stats.left += len(numbers)
        self._answered = numbers
        self._answers = PairCursor(page.batch, numbers, page.first[positions], page.count[positions])
        return True

    def _end_page(self, page: Page) -> Numbers:
        """Turn away from the page; return rows for which it has shown that they have no partner."""
        gone = self._without_partner(page)
        self._remember(page)
        self._page = None
        if not self._has_more_pages():
            self._in_iteration = False
            self.stats.iterations += 1
            self._end_iteration()
        return gone

    def read_page(self, code: int) -> Page:
        """Read the page of a key into the disk buffer."""
        batch = self._relation.page_for(code)
        self.stats.reads += 1
        self.stats.keys_read += 1
        self.stats.rows_read += len(batch)
        return Page.of(batch)

    # What heirs choose -----------------------------------------------------------------------------------------------

    @abstractmethod
    def _next_page(self) -> Page:
        """The next page of the iteration, whose rows probe H_S."""

    def _has_more_pages(self) -> bool:
        """Whether the iteration goes on with another page."""
        return False

    def _without_partner(self, page: Page) -> Numbers:
        """Take the rows that this page has shown to have no partner; return their numbers."""
        return NO_NUMBERS

    def _consider(self, page: Page) -> None:
        """Choose what to remember of a page; the rows that wait for it are still there."""

    def _remember(self, page: Page) -> None:
        """Remember what was chosen; the rows that waited for the page are gone."""

    def _end_iteration(self) -> None:
        """The iteration is over."""
