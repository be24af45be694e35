"""INLJ: the index nested loop join. Every row asks the relation; nothing is remembered.

Paper: the baseline of all of them; rows are asked for in small batches, as its usual implementations do.
Reads:     the key of each row; the rows of one step share a call and repeated keys are asked for once.
Remembers: nothing.
Waits:     nothing past the end of a step's rows.

Assumes a store that finds rows by their key, and many keys in one call. Nothing of order or skew: from skew it gains
only what repeats within a step.

Memory: M = w·v_W + d·v_R + p·v_O, with v_W for the work arrays of each of the w rows of a step, d rows of R in the
batch that was read, and p pairs and output under construction. Each has a share of the budget, whatever R holds.

Deviates: the textbook join makes one call a row; a call here carries the keys of a step, or the cost of a Python call
would be all that is measured.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from semistream.joins.base import NO_NUMBERS, Joined, JoinResources, SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.matching import (
    PAIR_BYTES,
    PairCursor,
    batch_bytes_within,
    codes_of,
    ranges_of,
    read_scratch_bytes,
)
from semistream.relations.base import KeyBatch
from semistream.structures.distinct import distinct

WORK_BYTES_PER_ROW = 200
"""Arrays of a step per stream row: numbers, codes, distinct codes, inverse, ranges, and the relation's own."""

WORK_SHARE, READ_SHARE, PAIRS_SHARE, OUTPUT_SHARE = 1 / 8, 1 / 4, 1 / 8, 1 / 4
"""Shares of the budget; a quarter stays free, for open rows and the few bytes by which a batch is larger than its rows.
"""


class IndexNestedLoopJoin(SemiStreamJoin):
    """Join by asking the relation for every step's keys. The yardstick for everything that remembers."""

    def __init__(self, relation: KeyBatch, resources: JoinResources) -> None:
        super().__init__()
        budget = resources.budget
        limit = budget.limit_bytes
        self._relation = relation
        self._rows_per_step = max(1, min(resources.rows_per_step, int(limit * WORK_SHARE) // WORK_BYTES_PER_ROW))
        self._pairs_max = max(1, int(limit * PAIRS_SHARE) // PAIR_BYTES)
        self._scratch_bytes = read_scratch_bytes(relation.schema)
        self._rows_read_max = self._rows_per_step * max(1, relation.info.rows_per_code_max)
        self._read_bytes_max = batch_bytes_within(int(limit * READ_SHARE), relation.schema, self._rows_read_max)
        self.output_bytes_max = int(limit * OUTPUT_SHARE)
        self._work = budget.account("rows of a step")
        self._pairs = budget.account("pairs")
        self._read = budget.account("rows just read")
        self._numbers = NO_NUMBERS
        self._codes = NO_NUMBERS
        self._inverse = NO_NUMBERS
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._cursor: PairCursor | None = None

    @property
    def waiting_rows(self) -> int:
        """Stream rows admitted and not yet finished."""
        return len(self._numbers)

    def admit(self, rows: StreamRows) -> int:
        """Take the next rows once the last ones are finished."""
        if len(self._numbers):
            return 0
        rows = rows.first_part(self._rows_per_step)
        self._work.hold(len(rows) * WORK_BYTES_PER_ROW)
        self._numbers = rows.numbers
        self._codes, self._inverse = distinct(rows.codes)
        self._batches = self._relation.rows_for(self._codes, self._read_bytes_max)
        self.stats.rows += len(rows)
        self.stats.reads += 1
        self.stats.keys_read += len(self._codes)
        return len(rows)

    def step(self) -> StepOutput:
        """Pair the rows with one batch of the answer."""
        assert len(self._numbers), "the driver called step() with nothing waiting"
        if self._cursor is None:
            self._cursor = self._next_batch()
        if self._cursor is None:
            finished, self._numbers = self._numbers, NO_NUMBERS
            self._read.hold(0)
            return StepOutput((), finished)
        joined = self._pair(self._cursor)
        if self._cursor.left == 0:
            self._cursor = None
        return StepOutput((joined,))

    def _next_batch(self) -> PairCursor | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        self._read.hold(batch.nbytes + min(len(batch), self._rows_read_max) * self._scratch_bytes)
        self.stats.rows_read += batch.num_rows
        first, count = ranges_of(self._codes, codes_of(batch))
        return PairCursor(batch, self._numbers, first[self._inverse], count[self._inverse])

    def _pair(self, cursor: PairCursor) -> Joined:
        joined = cursor.next(self._pairs_max)
        self._pairs.hold(len(joined) * PAIR_BYTES)
        self.stats.outputs += len(joined)
        return joined
