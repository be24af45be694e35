"""MOIJ: HYBRIDJOIN's reading with the cache inequality. Many to many, with an index.

Paper: Naeem, Mirza, Khan, Sundaram, Jamil, Weber. Big data velocity management - from stream to warehouse via high
performance memory optimized index join. IEEE Access 8, 2020.
Reads:     the page of the oldest waiting key.
Remembers: keys whose rows in R take less memory than the stream rows that would wait for them.
Waits:     rows whose key is not remembered, until their page is read.

Assumes an index on R. A page never splits a key, so a key that is moved to H_R is moved with all of its rows.

Memory: M = b·v_R + Σ over keys of min(m·v_R, n·v_S), with n the rows of a key that are expected in the whole queue.
Every read of a page for a key that R has yields at least one output.

Deviates from the printed algorithm where that loses memory or contradicts its own theorem:
- Rows whose key R lacks leave with their slots, which the pseudo-code forgets.
- A key moves only if there is room, which rows that leave have made; the printed counter can fall below zero.
- The inequality speaks of the whole queue, and so do both tests here: a key is let in by the rows that wait for it, and
  let go by the uses it had per passage of the queue, the time that a row waits on average. The printed algorithm
  counts over ten iterations and divides by ten, another time base: keys that were just let in would leave at once.
- n is an expectation, and what waits now is one sample of it, so who is let in must exceed the border by `CERTAINTY`
  standard deviations of such a count: of many keys at the border some are lucky. Who is let go must fall short of the
  border and no more, because its uses are counted over several passages; a newcomer is safe for as long as the rows
  that waited for it last, which count as uses. H_R is therefore empty in a stream without skew as long as the memory is
  small beside R, up to a fifth of it with rows of 120 and 20 bytes; where it is nearly as large as R, so many rows wait
  for each key that now and then one is let in.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.balanced_store import BalancedStore
from semistream.joins.base import NO_NUMBERS, JoinResources
from semistream.joins.disk_probing import Page
from semistream.joins.division import divide
from semistream.joins.hybridjoin import OldestKeyJoin
from semistream.relations.base import PageByKey
from semistream.structures.compiled import F64, READ_I32, VOID, WRITE_BOOL, Array, kernel

ITERATIONS_PER_EVICTION = 10
"""As published."""

EVICTED_SHARE = 1 / 64
"""Keys are let go when they are this many of all, because all that stay are moved."""

CERTAINTY = 3.0
"""Standard deviations by which a count must differ from the border to be believed."""

PASSAGES_MIN, PASSAGES_MAX = 4.0, 8.0
"""Uses are counted over so many passages of the queue: from the one number to the other, when they are halved."""


@kernel(VOID(READ_I32, READ_I32, F64, F64, F64, WRITE_BOOL))
def _find_leaving(
    uses: Array, sizes: Array, entry_bytes: float, row_bytes: float, passages: float, leaves: Array
) -> None:
    """Find keys that take more memory than the rows that ask for them in one passage would.

    All keys that are held are tried after every few reads: one pass, and no division.
    """
    for i in range(uses.size):
        leaves[i] = uses[i] * row_bytes < (sizes[i] + entry_bytes) * passages


class MemoryOptimalIndexJoin(OldestKeyJoin):
    """MOIJ: every key lies where it takes less memory."""

    def __init__(self, relation: PageByKey, resources: JoinResources) -> None:
        division = divide(relation, resources)
        self._store = BalancedStore(relation, resources, division)
        super().__init__(relation, resources, division, self._store.waiting)
        self.held = self._store.held
        self._cheaper = NO_NUMBERS
        self._sizes = NO_NUMBERS
        self._uses = NO_NUMBERS
        self._passages = PASSAGES_MIN
        self._left_before = 0

    def _consider(self, page: Page) -> None:
        """Apply the cache inequality to the keys of the page that rows wait for."""
        store = self._store
        if not store.held.can_hold:
            return
        waiting = self.waiting.count(page.codes)
        asked = np.flatnonzero(waiting)
        sizes = store.held.bytes_of(page.batch, page.first[asked], page.count[asked])
        self.stats.inequality_tests += len(page.codes)
        border = store.held_bytes_of(sizes) / store.waiting_row_bytes
        cheaper = waiting[asked] > border + CERTAINTY * np.sqrt(border)
        self._cheaper, self._sizes = asked[cheaper], sizes[cheaper]
        self._uses = (waiting[asked[cheaper]] * self._passages).astype(np.int64)

    def _remember(self, page: Page) -> None:
        self._store.hold(page, self._cheaper, self._sizes, self._uses)
        self.stats.lettings = self._store.held.lettings
        self._cheaper = NO_NUMBERS

    def _end_iteration(self) -> None:
        # Little's law: when as many rows have left as wait, the queue has passed once. They are counted as they were
        # before this read, because a page may take half of them along.
        left = self.stats.left - self._left_before
        self._passages += left / max(1, len(self.waiting) + left)
        self._left_before = self.stats.left
        if self.stats.iterations % ITERATIONS_PER_EVICTION == 0:
            self._evict()
        if self._passages >= PASSAGES_MAX:
            self._passages /= PASSAGES_MAX / PASSAGES_MIN
            self._store.held.uses[:] //= int(PASSAGES_MAX / PASSAGES_MIN)

    def _evict(self) -> None:
        """Let go who takes more memory than the rows that ask for it in one passage of the queue would take."""
        held = self._store.held
        self.stats.eviction_tests += len(held)
        entry_bytes, row_bytes = self._store.index_entry_bytes, self._store.waiting_row_bytes
        leaves = np.empty(len(held), np.bool_)
        _find_leaving(held.uses, held.sizes, entry_bytes, row_bytes, self._passages, leaves)
        if np.count_nonzero(leaves) > EVICTED_SHARE * len(held):
            self._store.keep(~leaves)
            self._store.give_back()
        self.stats.evicted = held.evicted

    def forget(self) -> None:
        """Drop everything that is remembered."""
        self._store.keep(np.zeros(len(self._store.held), np.bool_))
        self._store.give_back()
