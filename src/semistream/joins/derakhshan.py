"""The join of Derakhshan et al.: an LRU cache, one query for all keys that it lacks, and the order of the stream.

Paper: Derakhshan, Sattar, Stantic. A new operator for efficient stream-relation join processing in data streaming
engines. CIKM 2013.
Reads:     all missed keys of a step in one batched query.
Remembers: the keys that were asked for last, with all of their rows; the least recently used make room.
Waits:     nothing past the end of a step's rows: hits wait for the misses among them, because order is kept.

Assumes a store that answers many keys in one call, such as a database.

Memory: M = w·v_S (a step) + the answer to a query, and once more in order + h_R·v_R (cache).

Output comes in the order of the stream: what the cache knows and what was read is brought together in one *answer*, a
batch with the rows of every distinct key of the step, and the stream rows are paired with it one after the other. When
an answer does not fit its memory, the query is dropped and fewer stream rows are asked for at once; when it fits again,
more. A single row whose partners do not fit is paired with one batch after the other. Rows are finished as far as pairs
have been handed out, so that the driver can put those without a partner where they belong.

Deviates: hits and misses take turns instead of threads, so that the same stream gives the same output. The queue of
misses is that of a step, and is full at its end: no row waits for rows that may not come. Recency is counted in steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from semistream.errors import BudgetExceeded
from semistream.joins.adaptive import least_memory_bytes
from semistream.joins.at_once import (
    OUTPUT_BYTES,
    OUTPUT_SHARE,
    PAIRS_PER_ROW,
    PAIRS_SHARE,
    READ_SHARE,
    SLACK,
    WORK_BYTES_PER_ROW,
    WORK_SHARE,
)
from semistream.joins.base import NO_NUMBERS, Joined, JoinResources, Numbers, SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.held_keys import USES_MAX, HeldKeys
from semistream.joins.matching import (
    PAIR_BYTES,
    PairCursor,
    batch_bytes_within,
    codes_of,
    ranges_of,
    read_scratch_bytes,
)
from semistream.joins.output import ORDERING_BYTES
from semistream.relations.base import KeyBatch
from semistream.structures.columns import row_bytes
from semistream.structures.distinct import distinct
from semistream.structures.gather import Part, gather
from semistream.structures.row_arena import page_slack_bytes

BATCHES_HELD = 3
"""A batch that is read exists three times: as what was read, as the one behind it that shows that all of it does not
fit, and as the answer."""

PLACED_PAIR_BYTES = PAIR_BYTES + ORDERING_BYTES
"""A pair, and what the driver takes to put it into order."""

EVICTED_SHARE = 1 / 16
"""Keys that make room at once, at least: rows are kept together, so moving them must be rare."""

EVICTION_BYTES_PER_KEY = 8
"""What finding the least recently used takes: a copy of their steps, and flags."""


class RecentKeys(HeldKeys):
    """Keys with their rows; the uses of a key are the number of the step in which it was used last."""

    step_number = 0

    def begin_step(self) -> None:
        """Everything from now on is used later than everything before."""
        self.step_number += 1
        if self.step_number == USES_MAX:
            self.uses[:] >>= 1
            self.step_number >>= 1

    def probe(self, codes: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first held row of each code and how many there are, and remember that they were used now."""
        if len(self) == 0:
            return np.zeros(len(codes), np.int64), np.zeros(len(codes), np.int64)
        entries = self._index.first(codes)
        held = entries >= 0
        self._uses[entries[held]] = self.step_number
        count: Numbers = np.where(held, self._count[entries], 0).astype(np.int64)
        return self._first[entries].astype(np.int64), count

    def hold(self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers) -> None:
        """Hold keys that are not held; the least recently used make room, and what never fits is left out."""
        if not self.can_hold or len(codes) == 0:
            return
        sizes = self.bytes_of(batch, first, count)
        sizes_until = np.cumsum(sizes)
        wanted = min(int(np.searchsorted(sizes_until, self.rows_bytes_max, side="right")), self.entries_max)
        while self.fitting(sizes[:wanted]) < wanted and len(self):
            needed_bytes = int(sizes_until[wanted - 1]) - (self.rows_bytes_max - self.rows_bytes)
            needed_share = max(needed_bytes / max(1, self.rows_bytes), EVICTED_SHARE)
            needed_keys = wanted - (self.entries_max - len(self))
            self.keep_recent(len(self) - min(len(self), max(1, int(len(self) * needed_share), needed_keys)))
        part, used_now = slice(wanted), np.full(wanted, self.step_number)
        self.add(batch, codes[part], first[part], count[part], sizes[part], used_now)

    def keep_recent(self, kept: int) -> None:
        """Let all but `kept` keys go, those that were used longest ago; of one step, those that came first."""
        leaving = len(self) - kept
        oldest = int(np.partition(self.uses, leaving - 1)[leaving - 1])
        stays = self.uses > oldest
        of_oldest_step = np.flatnonzero(self.uses == oldest)
        stays[of_oldest_step[leaving - int(np.count_nonzero(self.uses < oldest)) :]] = True
        self.keep(stays)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The rows of distinct keys in one batch, or in the cache."""

    batch: pa.RecordBatch
    first: Numbers
    count: Numbers


@dataclass(frozen=True, slots=True)
class _Offer:
    """Keys that were read and may be remembered."""

    batch: pa.RecordBatch
    codes: Numbers
    first: Numbers
    count: Numbers


def _all_of(batch: pa.RecordBatch, number: Numbers) -> PairCursor:
    """Pairs of one stream row with every row of a batch."""
    return PairCursor(batch, number, np.zeros(1, np.int64), np.array([len(batch)]))


class OrderedCacheJoin(SemiStreamJoin):
    """The join of Derakhshan et al.: output comes in the order of the stream."""

    keeps_order = True

    def __init__(self, relation: KeyBatch, resources: JoinResources) -> None:
        super().__init__()
        budget, info, schema = resources.budget, relation.info, relation.schema
        limit = budget.limit_bytes
        if limit < least_memory_bytes(info.row_bytes_max):
            raise BudgetExceeded(
                f"the memory is too small to hold one row of relation {info.name!r}",
                given=f"{limit} bytes, for rows of up to {info.row_bytes_max} bytes",
                allowed=f"at least {least_memory_bytes(info.row_bytes_max)} bytes",
                hint="raise `memory`, or select fewer columns of the relation",
            )
        self._relation = relation
        self._rows_per_step = max(1, min(resources.rows_per_step, int(limit * WORK_SHARE) // WORK_BYTES_PER_ROW))
        pairs_bytes = min(int(limit * PAIRS_SHARE), self._rows_per_step * PAIRS_PER_ROW * PLACED_PAIR_BYTES)
        self._pairs_max = max(1, pairs_bytes // PLACED_PAIR_BYTES)
        self._scratch_bytes = read_scratch_bytes(schema)
        usual_bytes = self._rows_per_step * (2 * max(1, info.rows_per_code_max) * info.row_bytes_mean + 64)
        held_bytes = min(int(limit * READ_SHARE), int(usual_bytes) + info.row_bytes_max + 64 * len(schema))
        rows_read_max = self._rows_per_step * max(1, info.rows_per_code_max)
        self._batch_bytes = batch_bytes_within(held_bytes, schema, rows_read_max)
        self._batch_bytes_max = held_bytes
        self.output_bytes_max = min(int(limit * OUTPUT_SHARE), max(OUTPUT_BYTES, 2 * info.row_bytes_max))
        reserved = self._rows_per_step * WORK_BYTES_PER_ROW + pairs_bytes + BATCHES_HELD * held_bytes
        reserved += int(SLACK * self.output_bytes_max) + page_slack_bytes(schema)
        free_bytes = max(0, limit - reserved)
        keys_max = int(free_bytes / (info.row_bytes_mean + EVICTION_BYTES_PER_KEY + 1))
        cache_bytes = max(0, free_bytes - keys_max * EVICTION_BYTES_PER_KEY)
        self.cache = RecentKeys(schema, cache_bytes, info.row_bytes_mean)
        self._work = budget.account("rows of a step")
        self._pairs = budget.account("pairs")
        self._read = budget.account("rows just read")
        self._cache_account = budget.account("remembered rows")
        self._cache_account.hold(self.cache.used_bytes)
        self._waiting = 0
        self._rows = StreamRows(NO_NUMBERS, NO_NUMBERS)
        """Rows that were not asked for yet."""
        self._rows_at_once = self._rows_per_step
        self._cursor: PairCursor | None = None
        self._asking = NO_NUMBERS
        """Rows that were asked for and are not finished: at the latest when the cursor is at its end and no batch
        follows."""
        self._batches: Iterator[pa.RecordBatch] = iter(())
        """What follows of an answer that does not fit; it is for one stream row."""
        self._offer: _Offer | None = None
        self._cache_is_lent = False
        """Whether pairs were handed out that point into the cache, which must not change then."""

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return self._waiting

    def admit(self, rows: StreamRows) -> int:
        """Take the next rows once the last ones are finished."""
        if self._waiting:
            return 0
        self._cache_is_lent = False
        self._remember()
        rows = rows.first_part(self._rows_per_step)
        self._work.hold(len(rows) * WORK_BYTES_PER_ROW)
        self.cache.begin_step()
        self._rows = rows
        self._waiting = len(rows)
        self.stats.rows += len(rows)
        return len(rows)

    def step(self) -> StepOutput:
        """Ask for the next rows, or pair them with their answer, up to the pairs that fit."""
        assert self._waiting > 0, "the driver called step() with nothing waiting"
        if self._cursor is None and not self._ask(self._rows.first(self._rows_at_once)):
            return StepOutput()
        assert self._cursor is not None, "rows were asked for and have no answer"
        joined = self._cursor.next(self._pairs_max)
        self._pairs.hold(len(joined) * PLACED_PAIR_BYTES)
        self.stats.outputs += len(joined)
        return StepOutput((joined,), self._finished(joined))

    def _finished(self, joined: Joined) -> Numbers:
        """The rows whose pairs are all out, in order; at the end of the cursor go on to the next batch."""
        assert self._cursor is not None, "there is nothing to go on with"
        if self._cursor.left:
            # The last one may have more pairs; those before it have none, even if they never had one.
            return self._finish(int(np.searchsorted(self._asking, joined.stream_rows[-1])))
        self._cursor = None
        batch = next(self._batches, None)
        if batch is not None:
            self._hold_read([batch, joined.relation])
            self._cursor = _all_of(batch, self._asking)
            return NO_NUMBERS
        return self._finish(len(self._asking))

    def _finish(self, count: int) -> Numbers:
        """Finish the oldest of the rows that were asked for."""
        finished, self._asking = self._asking[:count], self._asking[count:]
        self._waiting -= count
        return finished

    # Asking ----------------------------------------------------------------------------------------------------------

    def _ask(self, rows: StreamRows) -> bool:
        """Look rows up in the cache and in the relation; False when their answer does not fit."""
        self._remember()
        codes, inverse = distinct(rows.codes)
        first, count = self.cache.probe(codes)
        missed = np.flatnonzero(count == 0)
        hits = int(np.count_nonzero(count[inverse]))
        if len(missed) == 0:
            self._cache_is_lent = True
            self._begin(rows, self.cache.pairs(rows.numbers, first[inverse], count[inverse]), hits)
            return True
        read, following = self._query(codes[missed])
        fits = following is None and self._fits_beside(read, first, count)
        if not fits and len(rows) > 1:
            self._rows_at_once = max(1, len(rows) // 2)
            self._hold_read([])
            return False
        if following is not None:
            self._begin_stream(rows, chain(read, [following], self._batches))
            return True
        answer = self._answer_of(codes, first, count, missed, read)
        cursor = PairCursor(answer.batch, rows.numbers, answer.first[inverse], answer.count[inverse])
        self._begin(rows, cursor, hits)
        return True

    def _begin(self, rows: StreamRows, cursor: PairCursor, hits: int) -> None:
        self.stats.hits += hits
        self.stats.stream_probes += len(rows)
        self._asking, self._cursor = rows.numbers, cursor
        self._rows = StreamRows(self._rows.numbers[len(rows) :], self._rows.codes[len(rows) :])
        self._rows_at_once = min(self._rows_per_step, 2 * self._rows_at_once)

    def _begin_stream(self, rows: StreamRows, batches: Iterator[pa.RecordBatch]) -> None:
        """Pair one row with batches as they come; all of their rows have its code."""
        first_batch = next(batches)
        self._batches = batches
        self._begin(rows, _all_of(first_batch, rows.numbers), hits=0)
        self._rows_at_once = 1

    def _query(self, codes: Numbers) -> tuple[list[pa.RecordBatch], pa.RecordBatch | None]:
        """Ask for keys; return the batches that fit, and one that does not, behind which there may be others."""
        self.stats.reads += 1
        self.stats.keys_read += len(codes)
        self._batches = self._counted(self._relation.rows_for(codes, self._batch_bytes))
        read: list[pa.RecordBatch] = []
        for batch in self._batches:
            self._hold_read([*read, batch])
            if read and sum(part.nbytes for part in read) + batch.nbytes > self._batch_bytes:
                return read, batch
            read.append(batch)
        self._batches = iter(())
        return read, None

    def _counted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self.stats.rows_read += len(batch)
            yield batch

    def _hold_read(self, batches: list[pa.RecordBatch]) -> None:
        scratch_bytes = len(batches[-1]) * self._scratch_bytes if batches else 0
        self._read.hold(sum(batch.nbytes for batch in batches) + scratch_bytes)

    def _fits_beside(self, read: list[pa.RecordBatch], first: Numbers, count: Numbers) -> bool:
        """Whether what was read and what the cache knows fit into one answer."""
        read_bytes = sum(batch.nbytes for batch in read)
        known = int(count.sum())
        if known == 0:
            return True
        # Bytes are only added up for as many rows as could fit.
        if known * 8 + read_bytes > self._batch_bytes_max:
            return False
        pairs = self.cache.pairs(first, first, count).next(known)
        known_bytes = int(row_bytes(pairs.relation, pairs.relation_rows).sum())
        return bool(known_bytes + read_bytes <= self._batch_bytes_max)

    def _answer_of(
        self, codes: Numbers, first: Numbers, count: Numbers, missed: Numbers, read: list[pa.RecordBatch]
    ) -> _Answer:
        """Bring the rows of all keys together: first those of the cache, then those that were read."""
        known = int(count.sum())
        if known == 0 and len(read) == 1:
            batch = read[0]
        else:
            batch = self._gathered(first, count, known, read)
        read_codes = codes_of(batch)[known:]
        missed_first, missed_count = ranges_of(codes[missed], read_codes)
        answer_first = np.cumsum(count) - count
        answer_first[missed] = known + missed_first
        answer_count = count.copy()
        answer_count[missed] = missed_count
        found = missed[missed_count > 0]
        self._offer = _Offer(batch, codes[found], answer_first[found], answer_count[found])
        self._hold_read([batch])
        return _Answer(batch, answer_first, answer_count)

    def _gathered(self, first: Numbers, count: Numbers, known: int, read: list[pa.RecordBatch]) -> pa.RecordBatch:
        parts = []
        if known:
            pairs = self.cache.pairs(first, first, count).next(known)
            parts.append(Part(pairs.relation, pairs.relation_rows, np.arange(known, dtype=np.int64)))
        begin = known
        for batch in read:
            rows = np.arange(len(batch), dtype=np.int64)
            parts.append(Part(batch, rows, begin + rows))
            begin += len(batch)
        schema = self._relation.schema
        columns = gather(parts, schema, begin)
        answer = pa.RecordBatch.from_arrays(columns, schema=schema)
        self._hold_read([*read, answer])
        return answer

    # Remembering -----------------------------------------------------------------------------------------------------

    def _remember(self) -> None:
        """Let the cache have what was read, unless pairs that were handed out point into it."""
        offer, self._offer = self._offer, None
        if offer is not None and not self._cache_is_lent:
            self.cache.hold(offer.batch, offer.codes, offer.first, offer.count)
            self._cache_account.hold(self.cache.used_bytes)
            self.stats.evicted = self.cache.evicted
        self._read.hold(0)

    def forget(self) -> None:
        """Drop everything that is remembered."""
        assert self._waiting == 0, "rows wait for what would be forgotten"
        self._offer = None
        self.cache.clear()
        self._cache_account.hold(self.cache.used_bytes)
        self._read.hold(0)
