"""Answer every step at once: remember what pays, read the rest the cheapest way.

One of the two ways in which `adaptive` works, the one for stores that answer many keys quickly. The rows of a step
probe what is remembered; the distinct keys that it lacks are read together, along the cheapest access path; and no row
waits past the end of its step.

Memory, all inside the one budget: work arrays for the rows of a step, one batch that was read, pairs under
construction, and everything else for what is remembered (`Knowledge`).

What was read is remembered only when the next rows are admitted, so that all pairs of a step stay valid until then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.budget import MIB
from semistream.joins.access_paths import AccessPaths
from semistream.joins.base import (
    ANSWER_COPIES,
    ANSWERED_ROW_BYTES,
    NO_NUMBERS,
    JoinResources,
    JoinStats,
    Numbers,
    StepOutput,
    StreamRows,
)
from semistream.joins.division import output_bytes_within
from semistream.joins.holders import Holders
from semistream.joins.knowledge import Knowledge
from semistream.joins.matching import (
    PAIR_BYTES,
    PairCursor,
    batch_bytes_within,
    codes_of,
    ranges_of,
    read_scratch_bytes,
    take_pairs,
)
from semistream.relations.base import KeyBatch
from semistream.structures.distinct import distinct
from semistream.structures.row_arena import fixed_bytes_per_row, page_slack_bytes

WORK_BYTES_PER_ROW = 200
"""Arrays of a step per stream row: numbers, codes, what probing found, distinct codes and their inverse, order, and the
relation's own. Remembering needs less and happens between steps."""

PAIRS_PER_ROW = 2
"""Pairs a step may build per row it admits; a step with more pairs takes several turns."""

WORK_SHARE, READ_SHARE, PAIRS_SHARE = 1 / 8, 1 / 8, 1 / 16
"""Upper bounds, as shares of the budget, that matter when it is small; a large one is left to remembered rows."""

OUTPUT_SHARE = 1 / 4
"""What is left free for the driver, which builds the output, where the answer to a batch comes in one piece."""

OUTPUT_BYTES = 4 * MIB
"""Enough for output of any usual Arrow batch, stream columns included; more would only be taken from memory's rows."""

SLACK = 1.25
"""Arrow batches are a little larger than the sum of their rows: offsets, validity, padding."""

SPARSE = 4
"""Of a page or a segment with this many times as many rows as were wanted, only those are held."""


@dataclass(frozen=True, slots=True)
class Division:
    """How a budget is divided: the most that each use may take; remembered rows get the rest."""

    rows_per_step: int
    pairs_max: int
    batch_bytes: int
    """What the relation is asked for at a time."""
    rows_read_max: int
    """Rows that come back in one batch at most."""
    scratch_bytes: int
    """What reading takes for each of them besides."""
    offers_bytes_max: int
    """Batches that are held until they can be remembered."""
    output_bytes_max: int
    reserved_bytes: int
    """All of it together."""

    @property
    def between_steps_bytes(self) -> int:
        """What is free when nothing is in hand, and only the driver may still hold output."""
        return self.reserved_bytes - int(SLACK * self.output_bytes_max)

    @classmethod
    def of(cls, relation: KeyBatch, limit_bytes: int, rows_per_step: int, *, rows_may_wait: bool) -> Division:
        """Divide a budget for this relation; no step shall have more rows than `rows_per_step`.

        Where rows may not wait, the answer to a batch comes in one piece, which takes more room.
        """
        info, schema = relation.info, relation.schema
        rows = max(1, min(rows_per_step, int(limit_bytes * WORK_SHARE) // WORK_BYTES_PER_ROW))
        pairs_bytes = min(int(limit_bytes * PAIRS_SHARE), rows * PAIRS_PER_ROW * PAIR_BYTES)

        read_share_bytes = int(limit_bytes * READ_SHARE)
        rows_read_max, scratch_bytes = rows * max(1, info.rows_per_code_max), read_scratch_bytes(schema)
        batch_bytes = min(
            batch_bytes_within(read_share_bytes, schema, rows_read_max), rows * max(1, info.row_bytes_max)
        )
        rows_read_max = min(rows_read_max, batch_bytes // fixed_bytes_per_row(schema) + 1)
        # A batch of one row may be larger than was asked for.
        offers_bytes_max = min(max(batch_bytes, info.row_bytes_max), read_share_bytes)
        read_bytes = min(offers_bytes_max + rows_read_max * scratch_bytes, read_share_bytes)

        answered_bytes = rows * (ANSWERED_ROW_BYTES + ANSWER_COPIES * info.row_bytes_max)
        output_bytes_max = min(int(limit_bytes * OUTPUT_SHARE), max(OUTPUT_BYTES, answered_bytes))
        if rows_may_wait:
            output_bytes_max = min(output_bytes_max, output_bytes_within(limit_bytes, info))
        reserved_bytes = rows * WORK_BYTES_PER_ROW + pairs_bytes + offers_bytes_max + read_bytes
        reserved_bytes += int(SLACK * output_bytes_max) + page_slack_bytes(schema)
        return cls(
            rows,
            max(1, pairs_bytes // PAIR_BYTES),
            batch_bytes,
            rows_read_max,
            scratch_bytes,
            offers_bytes_max,
            output_bytes_max,
            reserved_bytes,
        )


@dataclass(slots=True)
class _Misses:
    """Stream rows that memory could not answer, by distinct code."""

    numbers: Numbers
    codes: Numbers
    inverse: Numbers
    found: npt.NDArray[np.bool_]
    batches: Iterator[pa.RecordBatch]
    last_code: int | None = None
    """The last code of the batch read last."""
    order: Numbers | None = None
    """Positions of the stream rows in order of their codes; made when a second batch comes."""

    def rows_between(self, begin: int, end: int) -> Numbers:
        """Positions of the stream rows whose distinct code lies in [begin, end)."""
        if self.order is None:
            self.order = np.argsort(self.inverse, kind="stable")
        begin_row, end_row = np.searchsorted(self.inverse, [begin, end], sorter=self.order)
        return self.order[begin_row:end_row]


@dataclass(frozen=True, slots=True)
class _Offer:
    """Keys that were read and may be remembered, with the ranges of their rows."""

    batch: pa.RecordBatch
    codes: Numbers
    first: Numbers
    count: Numbers


def _compact(offer: _Offer) -> _Offer:
    """The same keys without the rows of others."""
    ends = np.cumsum(offer.count)
    rows = np.repeat(offer.first - (ends - offer.count), offer.count) + np.arange(int(ends[-1]) if len(ends) else 0)
    # Not from Arrow's own pool, which keeps a megabyte and more of what it was given back.
    batch = pc.take(offer.batch, pa.array(rows), memory_pool=pa.system_memory_pool())
    return _Offer(batch, offer.codes, ends - offer.count, offer.count)


def _together(offers: list[_Offer]) -> _Offer:
    """All offers in one batch."""
    if len(offers) == 1:
        return offers[0]
    batch = pa.concat_batches([offer.batch for offer in offers], memory_pool=pa.system_memory_pool())
    begins = np.cumsum([0, *(len(offer.batch) for offer in offers[:-1])])
    first = [offer.first + begin for offer, begin in zip(offers, begins, strict=True)]
    codes, count = (np.concatenate([getattr(offer, name) for offer in offers]) for name in ("codes", "count"))
    return _Offer(batch, codes, np.concatenate(first), count)


class AnsweringAtOnce:
    """Answers all rows of a step before it takes others."""

    def __init__(
        self,
        relation: KeyBatch,
        resources: JoinResources,
        division: Division,
        knowledge: Knowledge,
        holders: Holders,
        stats: JoinStats,
    ) -> None:
        self.stats = stats
        self._division = division
        self._knowledge = knowledge
        self._holders = holders
        self._paths = AccessPaths(relation, division.batch_bytes, resources.clock)
        self._missed_rows = self._missed_keys = 0
        """Of the last step for which something was read."""
        self._waiting = 0
        self._hits: list[PairCursor] = []
        self._hit_numbers = NO_NUMBERS
        self._misses: _Misses | None = None
        self._cursor: PairCursor | None = None
        self._to_remember: list[_Offer] = []
        self._offered_bytes = 0
        self._holds_all_read = True
        self._cut_codes: list[int] = []

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return self._waiting

    # Admit -----------------------------------------------------------------------------------------------------------

    def missed_row_s(self, rows: float | None = None) -> float:
        """Seconds for a row that memory could not answer, at the prices of now; 0 as long as they are not known.

        So many come together, or as many as in the last step.
        """
        if not self._missed_rows:
            return 0.0
        together = self._missed_rows if rows is None else min(rows, self._division.rows_per_step)
        return self._paths.expected_s(together * self._missed_keys / self._missed_rows) / together

    @property
    def wants_rows(self) -> bool:
        """Whether the last rows are finished."""
        return self._waiting == 0

    def admit(self, rows: StreamRows) -> int:
        """Take the next rows once the last ones are finished, and answer from memory what memory knows."""
        if self._waiting:
            return 0
        self.settle()
        rows = rows.first_part(self._division.rows_per_step)
        self._holders.work.hold(len(rows) * WORK_BYTES_PER_ROW)
        self._waiting = len(rows)
        self.stats.rows += len(rows)
        self.stats.stream_probes += len(rows)

        recalled = self._knowledge.remembered.recall(rows)
        self._hits, self._hit_numbers = recalled.cursors, recalled.numbers
        self._misses = self._ask(recalled.missed) if len(recalled.missed) else None
        self.stats.hits += len(self._hit_numbers)
        return len(rows)

    def _ask(self, missed: StreamRows) -> _Misses:
        """De-duplicate what was missed, leave out what is known to be absent, and open the read of the rest."""
        unique, inverse = distinct(missed.codes)
        uses = np.bincount(inverse, minlength=len(unique))
        self._knowledge.count_missed(unique, uses)
        known = self._knowledge.known_absent(unique)
        wanted, known_rows = unique, 0
        if known.any():
            wanted, known_rows = unique[~known], int(uses[known].sum())
        self.stats.hits += known_rows
        batches: Iterator[pa.RecordBatch] = iter(())
        if len(wanted):
            batches = self._paths.read(wanted)
            self._missed_rows, self._missed_keys = len(missed) - known_rows, len(wanted)
            self.stats.reads += 1
            self.stats.keys_read += len(wanted)
            self.stats.disk_probes += len(wanted)
        return _Misses(missed.numbers, unique, inverse, np.zeros(len(unique), np.bool_), batches)

    # Step ------------------------------------------------------------------------------------------------------------

    def step(self) -> StepOutput:
        """Pair what memory answered, then what the relation answers, up to the pairs that fit."""
        assert self._waiting > 0, "the driver called step() with nothing waiting"
        finished: list[Numbers] = []
        pairs_left = self._division.pairs_max

        # 1. Stream-probing: rows whose key is remembered.
        joined = take_pairs(self._hits, pairs_left)
        pairs_left -= sum(len(part) for part in joined)
        if joined and not self._hits:
            finished.append(self._hit_numbers)

        # 2. Disk-probing: what the relation returns, as long as all batches of this step are held anyway in order to
        #    be remembered. Most steps end here, with one batch and the news that there is no other.
        while not self._hits and self._misses is not None and pairs_left > 0:
            if self._cursor is None:
                if joined and not self._holds_all_read:
                    break
                self._cursor = self._next_batch(self._misses)
            if self._cursor is None:
                finished.append(self._settle(self._misses))
                self._misses = None
            else:
                joined.append(self._cursor.next(pairs_left))
                pairs_left -= len(joined[-1])
                if self._cursor.left == 0:
                    self._cursor = None

        pairs = sum(len(part) for part in joined)
        self._holders.pairs.hold(pairs * PAIR_BYTES)
        self.stats.outputs += pairs
        done = np.concatenate(finished) if finished else NO_NUMBERS
        self._waiting -= len(done)
        assert self._waiting >= 0, "more rows were finished than admitted"
        return StepOutput(tuple(joined), done)

    def _next_batch(self, misses: _Misses) -> PairCursor | None:
        """Read the next batch and line up the stream rows it answers."""
        batch = next(misses.batches, None)
        if batch is None:
            return None
        batch_codes = codes_of(batch)
        first, count = ranges_of(misses.codes, batch_codes)
        numbers, code_index = misses.numbers, misses.inverse
        if misses.last_code is not None:
            # One of several batches answers few of the rows, so that looking at all of them each time would not do.
            begin = int(np.searchsorted(misses.codes, batch_codes[0], side="left"))
            end = int(np.searchsorted(misses.codes, batch_codes[-1], side="right"))
            rows = misses.rows_between(begin, end)
            numbers, code_index = numbers[rows], code_index[rows]
            if misses.last_code == batch_codes[0]:
                self._cut_codes.append(misses.last_code)
        misses.last_code = int(batch_codes[-1])
        found = count > 0
        misses.found |= found
        rows_read = int(count.sum())
        self.stats.rows_read += rows_read
        # Mostly all are found at once.
        those = slice(None) if found.all() else found
        self._hold_until_remembered(_Offer(batch, misses.codes[those], first[those], count[those]), rows_read)
        return PairCursor(batch, numbers, first[code_index], count[code_index])

    def _settle(self, misses: _Misses) -> Numbers:
        """All batches were read: what was not found is absent, and all rows are finished."""
        self._knowledge.learn_absent(misses.codes[~misses.found])
        return misses.numbers

    # Remember --------------------------------------------------------------------------------------------------------

    def _hold_until_remembered(self, offer: _Offer, wanted_rows: int) -> None:
        """Hold on to what was read as far as there is room; the rest is read again when it is wanted again."""
        batch_rows, batch_bytes = len(offer.batch), offer.batch.nbytes
        scratch_bytes = min(batch_rows, self._division.rows_read_max) * self._division.scratch_bytes
        self._holders.read.hold(self._offered_bytes + batch_bytes + scratch_bytes)
        if SPARSE * wanted_rows < batch_rows:
            self._holds_all_read = False
            self._gather_offer(_compact(offer))
            return
        self._holds_all_read = self._offered_bytes + batch_bytes <= self._division.offers_bytes_max
        if self._holds_all_read:
            self._offered_bytes += batch_bytes
            self._to_remember.append(offer)

    def _gather_offer(self, offer: _Offer) -> None:
        """Put a few rows together with those gathered before: small batches take far more than their rows."""
        gathered = _together([*self._to_remember, offer])
        # While they are put together they are there twice.
        if 2 * gathered.batch.nbytes <= self._division.offers_bytes_max:
            self._to_remember = [gathered]
            self._offered_bytes = gathered.batch.nbytes

    def settle(self) -> None:
        """Remember what was offered. Nothing may be waiting."""
        assert self._waiting == 0, "pairs may point at what would be moved"
        if self._missed_keys and (read_s := self._paths.expected_s(self._missed_keys)):
            self._knowledge.price_reads(read_s / self._missed_keys)
        for offer in self._to_remember:
            # The rows of a code that two batches share are not all in one of them.
            whole = ~np.isin(offer.codes, self._cut_codes) if self._cut_codes else slice(None)
            self._knowledge.learn(offer.batch, offer.codes[whole], offer.first[whole], offer.count[whole])
        self._to_remember.clear()
        self._cut_codes.clear()
        self._offered_bytes = 0
        self._holds_all_read = True
        self._holders.read.hold(0)
        # Nothing is in hand, and sharing takes memory in passing.
        self._holders.work.hold(0)
        self._holders.pairs.hold(0)
        self._knowledge.settle()
        self.stats.evicted = self._knowledge.evicted
