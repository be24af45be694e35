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

A key that is remembered is tested once a round, with the uses it had in that round.

Deviates where the printed algorithm was not at hand. The loop is MESHJOIN's, with its exact expiry, and the rule is as
MOIJ's paper tells it:
- v_R and v_S are what rows take here, with their part of the tables. The paper's would move keys that then take more.
- A key moves only if there is room, which H_S gives up as far as no row waits there. Rows that wait cannot be dropped.
- Rows that wait for a key that is moved leave with their cell, and not at once: cells are what expiry counts in.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.balanced_store import BalancedStore
from semistream.joins.base import JoinResources
from semistream.joins.disk_probing import Page
from semistream.joins.division import divide
from semistream.joins.scan_probing import ScanProbingJoin
from semistream.relations.base import CyclicScan


class SemiStreamBalancedJoin(ScanProbingJoin):
    """SSBJ: every key lies where it takes less memory."""

    def __init__(self, relation: CyclicScan, resources: JoinResources) -> None:
        division = divide(relation, resources)
        self._store = BalancedStore(relation, resources, division)
        super().__init__(relation, resources, division, self._store.waiting)
        self.held = self._store.held

    def _remember(self, page: Page) -> None:
        store = self._store
        if store.held.can_hold:
            uses = self.waiting.count(page.codes)
            asked = np.flatnonzero(uses)
            sizes = store.held.bytes_of(page.batch, page.first[asked], page.count[asked])
            self.stats.inequality_tests += len(page.codes)
            cheaper = store.held_bytes_of(sizes) < uses[asked] * store.waiting_row_bytes
            store.hold(page, asked[cheaper], sizes[cheaper], uses[asked[cheaper]])
            self.stats.lettings = store.held.lettings
        if (self.stats.iterations + 1) % max(1, self.iterations_per_round) == 0:
            self._evict()

    def _evict(self) -> None:
        """Let go who takes more memory than the rows that asked for it in this round would have taken."""
        held = self._store.held
        self.stats.eviction_tests += len(held)
        stays = self._store.held_bytes_of(held.sizes) <= held.uses * self._store.waiting_row_bytes
        if not stays.all():
            self._store.keep(stays)
        held.uses[:] = 0
        self.stats.evicted = held.evicted

    def forget(self) -> None:
        """Drop everything that is remembered, and begin the scan anew."""
        super().forget()
        self._store.keep(np.zeros(len(self._store.held), np.bool_))
