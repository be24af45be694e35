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
  let go by the uses it had in one passage of the queue, the time that a row waits on average. The printed algorithm
  counts over ten iterations and divides by ten, another time base: keys that were just let in would leave at once.
  Uses are averaged over passages, half of the weight on the last.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.balanced_store import BalancedStore
from semistream.joins.base import NO_NUMBERS, JoinResources
from semistream.joins.disk_probing import Page
from semistream.joins.division import divide
from semistream.joins.hybridjoin import OldestKeyJoin
from semistream.relations.base import PageByKey

PASSAGE_ITERATIONS_MIN = 10
"""Evictions are not closer to each other than this."""


class MemoryOptimalIndexJoin(OldestKeyJoin):
    """MOIJ: every key lies where it takes less memory."""

    def __init__(self, relation: PageByKey, resources: JoinResources) -> None:
        division = divide(relation, resources)
        self._store = BalancedStore(relation, resources, division.store_bytes)
        super().__init__(relation, resources, division, self._store.waiting)
        self.held = self._store.held
        self._cheaper = NO_NUMBERS
        self._sizes = NO_NUMBERS
        self._uses = NO_NUMBERS
        self._passage_began = 0
        self._left_before = 0

    def _consider(self, page: Page) -> None:
        """Apply the cache inequality to the keys of the page that rows wait for."""
        store = self._store
        if not store.held.can_hold:
            return
        uses = self.waiting.count(page.codes)
        asked = np.flatnonzero(uses)
        sizes = store.held.bytes_of(page.batch, page.first[asked], page.count[asked])
        self.stats.inequality_tests += len(page.codes)
        cheaper = store.held_bytes_of(sizes) < uses[asked] * store.waiting_row_bytes
        self._cheaper, self._sizes, self._uses = asked[cheaper], sizes[cheaper], uses[asked[cheaper]]

    def _remember(self, page: Page) -> None:
        # Twice the rows that waited: the sum of a series of averages with half of the weight on the last.
        self._store.hold(page, self._cheaper, self._sizes, 2 * self._uses)
        self._cheaper = NO_NUMBERS

    def _end_iteration(self) -> None:
        iterations = self.stats.iterations - self._passage_began
        left = self.stats.left - self._left_before
        # Little's law: a row waits for as many iterations as it takes for all that wait now to leave.
        if iterations >= PASSAGE_ITERATIONS_MIN and left >= len(self.waiting):
            self._evict()
            self._passage_began, self._left_before = self.stats.iterations, self.stats.left

    def _evict(self) -> None:
        """Let go who takes more memory than the rows that ask for it in one passage of the queue would take."""
        held = self._store.held
        self.stats.eviction_tests += len(held)
        stays = self._store.held_bytes_of(held.sizes) <= held.uses / 2 * self._store.waiting_row_bytes
        if not stays.all():
            self._store.keep(stays)
        held.uses[:] >>= 1
        self.stats.evicted = held.evicted

    def forget(self) -> None:
        """Drop everything that is remembered."""
        self._store.keep(np.zeros(len(self._store.held), np.bool_))
