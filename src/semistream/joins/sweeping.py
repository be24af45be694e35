"""Let rows wait for their page, and sweep over the pages again and again, as an elevator does.

The other of the two ways in which `adaptive` works, the one for devices on which going on is much cheaper than going
elsewhere. A row that memory cannot answer joins the list of its page. Pages are read in the order in which they lie,
those that nobody waits for are left out; a page answers its whole list. Where the next list is so near that reading
what lies between costs less than a seek, what lies between is read and thrown away.

A list is emptied when the sweep comes by and has grown to its full length when it comes again, so on average half of
the rows of a round wait: with room for W rows, 2·W are served in a round. MESHJOIN, whose rows wait until all of R has
passed by, serves W.

How much is remembered. A byte for remembered rows is a byte less for rows that wait. A key that is asked for u times a
round keeps u/2 rows waiting if it is not remembered; so remembering it pays as long as its bytes are fewer than those
of u/2 waiting rows. That is the cache inequality of MOIJ and SSBJ. It is applied to the least useful of what is
remembered, once a round, and moves the border between the two by a step; where there was room for more rows to wait,
memory is not what they lack, and remembered rows get some of theirs. Which keys are remembered is decided by uses
per byte (`Knowledge`), over many rounds, because the count of a single round is mostly chance.

Memory: the page in hand, `PageLists`, the columns of the rows that wait, and what is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistream.errors import BudgetExceeded
from semistream.joins.base import NO_NUMBERS, Joined, JoinResources, JoinStats, Numbers, StepOutput, StreamRows
from semistream.joins.disk_probing import Page
from semistream.joins.division import (
    OUTPUT_SLACK,
    WAITING_ROWS_MIN,
    WORK_BYTES_PER_ROW,
    disk_buffer_bytes,
    divide,
)
from semistream.joins.holders import Holders
from semistream.joins.knowledge import Knowledge, hints_bytes
from semistream.joins.matching import PAIR_BYTES, PairCursor, take_pairs
from semistream.joins.page_lists import PAGE_BYTES, PageLists
from semistream.joins.x_hybridjoin import PagesAndScan
from semistream.relations.base import Relation
from semistream.structures.distinct import distinct

REFILL = 32
"""Rows are taken in when one of so many parts of the lists is free: a few at a time would cost more than they gain."""

BORDER_STEP = 1 / 16
"""Part of the memory by which the border between waiting and remembered rows moves in a round."""

CLEAR = 1.2
"""A byte must be worth this many times as much on the other side before the border moves, and a row must cost this many
times as much as it would at once before sweeps are given up."""

REMEMBERED_SHARE = 1 / 2
"""Where the border stands at first."""

LOOK_AHEAD_PAGES = 1024
LEARNING_RATE = 0.2


@dataclass(frozen=True, slots=True)
class SweepDivision:
    """How a budget is divided."""

    rows_per_step: int
    pairs_max: int
    output_bytes_max: int
    store_bytes: int
    """For rows that wait and rows that are remembered."""

    @classmethod
    def of(cls, relation: Relation, resources: JoinResources) -> SweepDivision | None:
        """Divide a budget; None where it is too small for this way."""
        try:
            division = divide(relation, resources)
        except BudgetExceeded:
            return None
        # Not more than this, for not all of the budget is for remembering.
        hints_bytes_max = hints_bytes(relation, resources.budget.limit_bytes)
        store_bytes = division.store_bytes - hints_bytes_max - PAGE_BYTES * relation.info.page_count
        if PageLists.rows_fitting(store_bytes, resources.stream_row_bytes) < WAITING_ROWS_MIN:
            return None
        return cls(division.rows_per_step, division.pairs_max, division.output_bytes_max, store_bytes)


class _Prices:
    """Seconds of reading the next page, and a page elsewhere, as measured."""

    def __init__(self) -> None:
        self.next_s = 0.0
        self.elsewhere_s = 0.0

    def learn(self, seconds: float, *, goes_on: bool) -> None:
        if goes_on:
            self.next_s += (LEARNING_RATE if self.next_s else 1.0) * (seconds - self.next_s)
        else:
            self.elsewhere_s += (LEARNING_RATE if self.elsewhere_s else 1.0) * (seconds - self.elsewhere_s)

    def pages_through(self) -> int:
        """How many pages that nobody wants are read rather than left out."""
        if self.next_s <= 0 or self.elsewhere_s <= 0:
            return 0
        return int(self.elsewhere_s / self.next_s) - 1


class Sweeping:
    """Rows wait in lists by page, and the sweep comes by."""

    def __init__(
        self,
        relation: PagesAndScan,
        resources: JoinResources,
        division: SweepDivision,
        knowledge: Knowledge,
        holders: Holders,
        stats: JoinStats,
        row_s_elsewhere: Callable[[float], float],
    ) -> None:
        self.stats = stats
        self._row_s_elsewhere = row_s_elsewhere
        """What a row would cost if so many were answered at once."""
        self._relation = relation
        self._clock = resources.clock
        self._stream_row_bytes = resources.stream_row_bytes
        self._division = division
        self._knowledge = knowledge
        self._holders = holders
        self._prices = _Prices()
        # What is remembered may have most of the budget from the other way, and gives it back first. Where nothing can
        # be remembered, nothing is set aside for it.
        self._remembered_bytes = min(int(division.store_bytes * REMEMBERED_SHARE), knowledge.rows_bytes_max)
        knowledge.resize(self._remembered_bytes)
        # Set aside for good: rows that wait must leave it alone, or no step could ever let them go.
        holders.work.hold(division.rows_per_step * WORK_BYTES_PER_ROW)
        holders.pairs.hold(division.pairs_max * PAIR_BYTES)
        holders.read.hold(disk_buffer_bytes(relation))
        self.lists = PageLists(
            relation.info.page_count, self._rows_beside(self._remembered_bytes), self._rows_beside(0)
        )
        self._rows_wanted_max = self.lists.rows_max
        """What the lists may hold; less than they can while they are about to shrink."""
        self._charge()
        self._is_filling = True
        self._position = 0
        """Where the sweep goes on."""
        self._read_last = -1
        """The page that was read last."""
        self._page: Page | None = None
        self._page_number = 0
        self._asked: list[Numbers] = []
        """Codes that the rows of the page in hand have asked for."""
        self._answers: PairCursor | None = None
        self._answered = NO_NUMBERS
        self._hits: list[PairCursor] = []
        self._hit_numbers = NO_NUMBERS
        self.is_ending = False
        """Whether no more rows are wanted, because this way has turned out to be the dearer one."""
        self._round = _Round()

    @property
    def waiting_bytes_max(self) -> int:
        """What was set aside for the columns of rows that wait."""
        return self.lists.rows_max * self._stream_row_bytes

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return len(self.lists) + len(self._hit_numbers) + len(self._answered)

    @property
    def wants_rows(self) -> bool:
        """Whether there is room for rows and nothing in hand."""
        if self._page is not None or len(self._hit_numbers):
            return False
        if self.is_ending:
            return len(self.lists) == 0
        return self._is_filling

    # Stream-probing --------------------------------------------------------------------------------------------------

    def admit(self, rows: StreamRows) -> int:
        """Answer rows from memory; let the others wait for their pages."""
        if not self.wants_rows:
            return 0
        rows = rows.first(min(self._division.rows_per_step, self._room))
        self.stats.rows += len(rows)
        self.stats.stream_probes += len(rows)
        self._round.rows += len(rows)
        recalled = self._knowledge.remembered.recall(rows)
        missed, self._hits = recalled.missed, recalled.cursors
        absent = self._note_missed(missed.codes)
        self._hit_numbers = np.concatenate([recalled.numbers, missed.numbers[absent]])
        self.stats.hits += len(self._hit_numbers)
        self._let_wait(StreamRows(missed.numbers[~absent], missed.codes[~absent]))
        return len(rows)

    def _note_missed(self, codes: Numbers) -> npt.NDArray[np.bool_]:
        """Count what memory has no rows of; return which of these codes are known to be absent."""
        unique, inverse = distinct(codes)
        self._knowledge.count_missed(unique, np.bincount(inverse, minlength=len(unique)))
        return self._knowledge.known_absent(unique)[inverse]

    def _let_wait(self, rows: StreamRows) -> None:
        self.lists.push(rows, self._relation.page_numbers(rows.codes), now=0)
        self.stats.waited += len(rows)
        self._round.missed_rows += len(rows)
        if self._room <= 0:
            self._is_filling = False
            self._round.was_full = True

    @property
    def _room(self) -> int:
        return self._rows_wanted_max - len(self.lists)

    # Disk-probing ----------------------------------------------------------------------------------------------------

    def step(self) -> StepOutput:
        """Put out what memory has answered; or let the page in hand, or the next one, answer its list."""
        begun_s = self._clock.now_s()
        joined: list[Joined] = []
        finished: list[Numbers] = []
        pairs_left = self._division.pairs_max
        if len(self._hit_numbers):
            joined += take_pairs(self._hits, pairs_left)
            if not self._hits:
                finished.append(self._hit_numbers)
                self._hit_numbers = NO_NUMBERS
        else:
            page = self._page or self._next_page()
            while pairs_left > 0 and self._answer_more(page):
                assert self._answers is not None, "an answer without pairs"
                joined.append(self._answers.next(pairs_left))
                pairs_left -= len(joined[-1])
                if self._answers.left == 0:
                    finished.append(self._answered)
                    self._answers, self._answered = None, NO_NUMBERS
        self._round.seconds += self._clock.now_s() - begun_s
        pairs = sum(len(part) for part in joined)
        self.stats.outputs += pairs
        return StepOutput(tuple(joined), np.concatenate(finished) if finished else NO_NUMBERS)

    def _answer_more(self, page: Page) -> bool:
        """Take more rows from the list of the page, unless some are in hand; False when there are none."""
        if self._answers is not None:
            return True
        rows = self.lists.take(self._page_number, self._division.rows_per_step)
        if len(rows) == 0:
            self._end_page(page)
            return False
        self.stats.left += len(rows)
        self.stats.disk_probes += len(rows)
        self._asked.append(rows.codes)
        self._answers, self._answered = page.pairs_with(rows), rows.numbers
        return True

    def _next_page(self) -> Page:
        """Read the next page that somebody waits for."""
        number = self._next_asked(self._position)
        if number is None:
            self._end_round()
            number = self._next_asked(0)
        assert number is not None, "the sweep found no list although rows wait"
        self._round.pages += 1
        self._round.fed_pages += not self._is_filling
        if 0 < number - self._position <= self._prices.pages_through():
            for between in range(self._position, number):
                self._read(between)
        self._page, self._page_number = self._read(number), number
        return self._page

    def _next_asked(self, begin: int) -> int | None:
        lengths = self.lists.lengths
        for start in range(begin, len(lengths), LOOK_AHEAD_PAGES):
            asked = lengths[start : start + LOOK_AHEAD_PAGES] > 0
            first = int(asked.argmax())
            if asked[first]:
                return start + first
        return None

    def _read(self, number: int) -> Page:
        begun_s = self._clock.now_s()
        batch = self._relation.segment(number)
        self._prices.learn(self._clock.now_s() - begun_s, goes_on=number == self._read_last + 1)
        self._read_last, self._position = number, number + 1
        self.stats.reads += 1
        self.stats.rows_read += len(batch)
        return Page.of(batch)

    def _end_page(self, page: Page) -> None:
        """Remember what pays of what was asked for, and turn away."""
        asked = distinct(np.concatenate(self._asked))[0]
        self._asked.clear()
        self._page = None
        if len(page.codes):
            places = np.minimum(np.searchsorted(page.codes, asked), len(page.codes) - 1)
            found = page.codes[places] == asked
            places = places[found]
            if not self._is_tight:
                self._knowledge.learn(page.batch, asked[found], page.first[places], page.count[places])
            self._knowledge.learn_absent(asked[~found])
        else:
            self._knowledge.learn_absent(asked)
        self._knowledge.settle()
        self.stats.evicted = self._knowledge.evicted
        self.stats.iterations += 1
        self._shrink_lists()
        if self._room >= max(1, self._rows_wanted_max // REFILL):
            self._is_filling = True

    @property
    def _is_tight(self) -> bool:
        """Whether rows that wait are larger than was expected, and have taken what others were to get."""
        return self._holders.waiting.free_bytes < OUTPUT_SLACK * self._division.output_bytes_max

    # The border ------------------------------------------------------------------------------------------------------

    def _end_round(self) -> None:
        self._position = 0
        self._round.rounds += 1
        if self._round.missed_rows < WAITING_ROWS_MIN:
            return
        ended, self._round = self._round, _Round()
        self.is_ending = ended.missed_row_s > CLEAR * self._row_s_elsewhere(ended.missed_rows / ended.rounds)
        remembered = self._knowledge.remembered
        if not remembered.is_full or ended.fed_pages == 0:
            return
        saved_bytes_per_byte = remembered.marginal_uses_per_byte(ended.rows_if_fed) / 2 * self._waiting_row_bytes
        step_bytes = int(self._division.store_bytes * BORDER_STEP)
        if saved_bytes_per_byte > CLEAR or not ended.was_full:
            self._move_border(self._remembered_bytes + step_bytes)
        elif saved_bytes_per_byte < 1 / CLEAR:
            self._move_border(self._remembered_bytes - step_bytes)

    @property
    def _waiting_row_bytes(self) -> float:
        return self.lists.nbytes / self.lists.rows_max + self._stream_row_bytes

    def _move_border(self, remembered_bytes: int) -> None:
        """Give remembered rows so much, and rows that wait the rest."""
        remembered_bytes = max(0, min(remembered_bytes, self._knowledge.rows_bytes_max))
        rows_max = self._rows_beside(remembered_bytes)
        if rows_max < WAITING_ROWS_MIN:
            return
        self._remembered_bytes = remembered_bytes
        self._rows_wanted_max = rows_max
        if rows_max > self.lists.rows_max:
            self._knowledge.resize(remembered_bytes)
            self.lists.resize(rows_max)
            self._charge()
        self._shrink_lists()

    def _shrink_lists(self) -> None:
        """Give memory of the lists to what is remembered, once fewer rows wait."""
        if len(self.lists) <= self._rows_wanted_max < self.lists.rows_max:
            self.lists.resize(self._rows_wanted_max)
            self._charge()
            self._knowledge.resize(self._remembered_bytes)

    def _rows_beside(self, remembered_bytes: int) -> int:
        return PageLists.rows_fitting(self._division.store_bytes - remembered_bytes, self._stream_row_bytes)

    def _charge(self) -> None:
        self._holders.waiting.hold(self.lists.nbytes + PAGE_BYTES * self._relation.info.page_count)


@dataclass(slots=True)
class _Round:
    """What happened since the sweep began anew; where rows come so slowly that a few tell nothing, several times."""

    rounds: int = 0
    rows: int = 0
    missed_rows: int = 0
    seconds: float = 0.0
    was_full: bool = False
    """Whether rows had to wait outside, because no more could wait here."""
    pages: int = 0
    fed_pages: int = 0
    """Those that were read while there was no room for more rows; the others because no more rows came."""

    @property
    def missed_row_s(self) -> float:
        """Seconds for a row that memory could not answer."""
        return self.seconds / self.missed_rows

    @property
    def rows_if_fed(self) -> float:
        """How many rows would have come, had the stream not paused or ended."""
        return self.rows * self.pages / self.fed_pages if self.fed_pages else 0.0
