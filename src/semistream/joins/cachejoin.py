"""CACHEJOIN: rows of R that many stream rows waited for are kept in a cache that the stream probes first.

Paper: Naeem, Dobbie, Weber. A lightweight stream-based join with limited resource consumption. DaWaK 2012.
Reads:     the page of the oldest waiting key.
Remembers: keys for which at least `threshold` rows waited when their page was read, with all of their rows.
Waits:     only rows whose key is not remembered.

Assumes an index on R. R need not be sorted by popularity: the cache is of rows, not of pages.

Memory: M = b·v_R + h_R·v_R + h_S·v_S, with h_R fixed when the join starts.

The threshold is a flexible barrier. A *round* is as many iterations as R has pages. As soon as more was replaced within
four rounds than is held, the threshold rises by one, and what is replaced is counted anew; while nobody has asked for
room that was not there for four rounds, or ever, it falls by one a round. Single rounds differ by chance: where one
busy round was enough, the threshold came to rest a step above where the mean of rounds says, sooner or later. And from
a sixteenth of the cache in four rounds to all of it is further than one step of the threshold goes, as a rule: it rests
at one, and does not go to and fro.

Deviates: many rows a key are remembered together or not at all, so that it joins many to many. When the cache is full
a sixteenth of it makes room at once, because rows are kept together. Who is least frequent is not recorded, which is
what SSCJ adds, so every sixteenth key goes, in the order in which they came: if those went that were held longest,
popular keys of a page, which came in together, would go together and all be missing at once. The published threshold
falls while the cache is unfilled; here it also falls while a full cache turns everybody away at the door,
because one that was once too high would stay so, whatever becomes of the stream.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from semistream.joins.base import NO_NUMBERS, JoinResources, Numbers
from semistream.joins.disk_probing import Page
from semistream.joins.division import divide, waiting_rows_within
from semistream.joins.held_keys import HeldKeys
from semistream.joins.hybridjoin import OldestKeyJoin
from semistream.relations.base import PageByKey

CACHE_SHARE = 1 / 2
"""H_R's part of the memory for rows, unless the tuner says otherwise."""

REPLACED_SHARE = 1 / 16
"""What makes room at once when H_R is full."""

ROUNDS_WATCHED = 4
"""How many rounds say whether the cache churns, which is when all of it is replaced in them, or is quiet."""


class CacheJoin(OldestKeyJoin):
    """CACHEJOIN: frequent rows are answered from a cache of a fixed size."""

    held: HeldKeys

    def __init__(
        self,
        relation: PageByKey,
        resources: JoinResources,
        *,
        cache_share: float = CACHE_SHARE,
        threshold: int = 1,
    ) -> None:
        division = divide(relation, resources)
        cache_bytes = int(division.store_bytes * cache_share)
        waiting = waiting_rows_within(division.store_bytes - cache_bytes, resources)
        super().__init__(relation, resources, division, waiting)
        self.held = HeldKeys(relation.schema, cache_bytes, relation.info.row_bytes_mean)
        self._held_account = resources.budget.account("remembered rows", limit_bytes=max(1, cache_bytes))
        self._held_account.hold(self.held.used_bytes)
        self.threshold = threshold
        self._round_iterations = max(1, relation.info.page_count)
        self._evicted_before_round = 0
        self._frequent = NO_NUMBERS
        self._frequency = NO_NUMBERS
        self._is_full = False
        self._replaced: deque[int] = deque(maxlen=ROUNDS_WATCHED)
        # A cache that was never full is unfilled after its first round.
        self._quiet_rounds = ROUNDS_WATCHED

    def _consider(self, page: Page) -> None:
        """Choose the keys of the page for which enough rows wait."""
        waiting = self.waiting.count(page.codes)
        self.stats.frequency_tests += len(page.batch)
        self._frequent = np.flatnonzero(waiting >= max(1, self.threshold))
        self._frequency = waiting[self._frequent]

    def _remember(self, page: Page) -> None:
        if not self.held.can_hold or len(self._frequent) == 0:
            return
        first, count = page.first[self._frequent], page.count[self._frequent]
        sizes = self.held.bytes_of(page.batch, first, count)
        fits_at_all = sizes <= self.held.rows_bytes_max
        wanted = self._admissible(np.flatnonzero(fits_at_all), sizes)
        self.held.add(
            page.batch,
            page.codes[self._frequent[wanted]],
            first[wanted],
            count[wanted],
            sizes[wanted],
            self._frequency[wanted],
        )
        self._held_account.hold(self.held.used_bytes)
        self.stats.evicted, self.stats.lettings = self.held.evicted, self.held.lettings

    def _admissible(self, wanted: Numbers, sizes: Numbers) -> Numbers:
        """Make room where there is none; return those that fit."""
        fitting = self.held.fitting(sizes[wanted])
        if fitting < len(wanted):
            self._is_full = True
            self.held.keep(self._staying(self._frequency[wanted]))
            fitting = self.held.fitting(sizes[wanted])
        return wanted[:fitting]

    def _staying(self, frequency: Numbers) -> npt.NDArray[np.bool_]:
        """Who stays when newcomers with this frequency want room."""
        stays = np.ones(len(self.held), np.bool_)
        stays[self._spread(np.arange(len(self.held)), self._leaving)] = False
        return stays

    @property
    def _leaving(self) -> int:
        """How many keys make room at once."""
        return min(len(self.held), max(1, int(len(self.held) * REPLACED_SHARE)))

    def _spread(self, entries: Numbers, number: int) -> Numbers:
        """So many of the entries, evenly spread; where they begin moves on with what has gone, so that none is safe."""
        if number == 0:
            return NO_NUMBERS
        begin = self.held.evicted % len(entries)
        return entries[(begin + np.arange(number) * len(entries) // number) % len(entries)]

    def _end_iteration(self) -> None:
        if self.stats.iterations % self._round_iterations:
            return
        self._replaced.append(self.held.evicted - self._evicted_before_round)
        self._evicted_before_round = self.held.evicted
        self._quiet_rounds = 0 if self._is_full else self._quiet_rounds + 1
        self._is_full = False
        if sum(self._replaced) > len(self.held):
            self.threshold += 1
            self._replaced.clear()
        elif self._quiet_rounds >= ROUNDS_WATCHED:
            self.threshold = max(1, self.threshold - 1)

    def forget(self) -> None:
        """Drop everything that is remembered; that is no churn, and what comes finds an unfilled cache."""
        self.held.clear()
        self._replaced.clear()
        self._evicted_before_round = self.held.evicted
        self._held_account.hold(self.held.used_bytes)
