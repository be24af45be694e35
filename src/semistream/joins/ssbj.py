"""SSBJ: MESHJOIN with a cache, and the cache inequality to decide what is in it. Many to many, without an index.

Paper: Naeem, Weber, Lutteroth. A memory-optimal many-to-many semi-stream join. Distributed and Parallel Databases 37,
2018.
Reads:     the next segment of a cyclic scan.
Remembers: keys whose rows in R take less memory than the stream rows that would wait for them.
Waits:     rows whose key is not remembered, until all of R has passed by.

Assumes nothing of R: no index, no order. A segment never splits a key, so a key that is moved to H_R is moved with all
of its rows. Rows stay for exactly one round, so what waits for a key now *is* n, the number expected in the whole
queue.

Memory: M = b·v_P + Σ over keys of min(m·v_R, n·v_S).

A key is tested once a round, when its segment passes: with the rows that wait for it, or with its uses since the last
test. So each test has the rows of one round, and it does not matter where in R a key stands.

Deviates where the printed algorithm was not at hand. The loop is MESHJOIN's, with its exact expiry, and the rule is as
MOIJ's paper tells it:
- v_R and v_S are what rows take here, with their part of the tables. The paper's would move keys that then take more.
- A key moves only if there is room, which the oldest cell has made: rows that wait cannot be dropped. The next cell is
  smaller then, or empty, and after a round all are a little smaller.
- Rows that wait for a key that is moved leave with their cell, and not at once: cells are what expiry counts in.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.balanced_store import BalancedStore
from semistream.joins.base import NO_NUMBERS, JoinResources, Numbers
from semistream.joins.disk_probing import Page
from semistream.joins.division import divide
from semistream.joins.held_keys import USES_MAX
from semistream.joins.scan_probing import ScanProbingJoin
from semistream.relations.base import CyclicScan

EVICTED_SHARE = 1 / 64
"""Keys are let go when they are this many of all, because all that stay are moved; until then they answer."""

LEAVING = -USES_MAX
"""The uses of a key that shall go: fewer than none, however often it is still asked for."""


class SemiStreamBalancedJoin(ScanProbingJoin):
    """SSBJ: every key lies where it takes less memory."""

    def __init__(self, relation: CyclicScan, resources: JoinResources) -> None:
        division = divide(relation, resources)
        self._store = BalancedStore(relation, resources, division)
        super().__init__(relation, resources, division, self._store.waiting)
        self.held = self._store.held
        self._cheaper = NO_NUMBERS
        self._sizes = NO_NUMBERS

    @property
    def cell_rows_max(self) -> int:
        """w, a row more in some iterations than in others: H_S has any size here, and cells shall fill it."""
        cells, rows_max = max(1, self.iterations_per_round), self.waiting.rows_max
        place = self.stats.iterations % cells
        return max(1, (place + 1) * rows_max // cells - place * rows_max // cells)

    def _consider(self, page: Page) -> None:
        """Apply the cache inequality to the keys of the segment, with the rows that have asked for them in a round."""
        store = self._store
        if not store.held.can_hold:
            return
        entries = store.held.entries_of(page.codes)
        self._test_held(entries[entries >= 0])
        waiting = self.waiting.count(page.codes)
        asked = np.flatnonzero((waiting > 0) & (entries < 0))
        sizes = store.held.bytes_of(page.batch, page.first[asked], page.count[asked])
        self.stats.inequality_tests += len(page.codes)
        cheaper = store.held_bytes_of(sizes) < waiting[asked] * store.waiting_row_bytes
        self._cheaper, self._sizes = asked[cheaper], sizes[cheaper]

    def _test_held(self, entries: Numbers) -> None:
        """Begin a new round of uses for these keys; mark those that take more memory than their uses would have."""
        held = self._store.held
        self.stats.eviction_tests += len(entries)
        stays = self._store.held_bytes_of(held.sizes[entries]) <= held.uses[entries] * self._store.waiting_row_bytes
        held.uses[entries] = np.where(stays, 0, LEAVING)

    def _remember(self, page: Page) -> None:
        store = self._store
        leaves = store.held.uses < 0
        evicts = np.count_nonzero(leaves) > EVICTED_SHARE * len(store.held)
        if evicts:
            store.keep(~leaves)
        store.hold(page, self._cheaper, self._sizes, np.zeros(len(self._cheaper), np.int64))
        if evicts:
            # Newcomers first, or H_S would grow and shrink again.
            store.give_back()
        self._cheaper = NO_NUMBERS
        self.stats.lettings, self.stats.evicted = store.held.lettings, store.held.evicted

    def forget(self) -> None:
        """Drop everything that is remembered, and begin the scan anew."""
        super().forget()
        self._store.keep(np.zeros(len(self._store.held), np.bool_))
        self._store.give_back()
