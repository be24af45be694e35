"""HYBRIDJOIN: read the page of the oldest waiting key, and answer everything that waits for that page.

Paper: Naeem, Dobbie, Weber. HYBRIDJOIN for near-real-time data warehousing. IJDWM 7(4), 2011.
Reads:     the page of the oldest waiting key, found through the index on R.
Remembers: nothing.
Waits:     a row until the page of its key is read, for its own sake or for that of an older row.

Assumes an index on R. Good where neighbours in R are asked for together, as in a table sorted by popularity.

Memory: M = b·v_R (disk buffer) + h_S·v_S (H_S and its queue; here with the tables' real overhead).

Deviates: rows whose key R lacks leave as soon as their page shows it, with their slots, which the pseudo-code of its
heirs loses. A page is an aligned page of the store, not the b rows that begin with the key, so that the same rows are
always read together and a file can be read as it lies.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.base import JoinResources, Numbers
from semistream.joins.disk_probing import DiskProbingJoin, Page
from semistream.joins.division import divide, waiting_rows_within
from semistream.relations.base import PageByKey


class OldestKeyJoin(DiskProbingJoin):
    """Each iteration reads the page of the oldest waiting key."""

    _oldest_code = 0

    def _next_page(self) -> Page:
        self._oldest_code = self.waiting.oldest_code()
        return self.read_page(self._oldest_code)

    def _without_partner(self, page: Page) -> Numbers:
        place = int(np.searchsorted(page.codes, self._oldest_code))
        if place < len(page.codes) and page.codes[place] == self._oldest_code:
            return np.zeros(0, np.int64)
        asked = np.array([self._oldest_code])
        gone = []
        while len(numbers := self.waiting.take_codes(asked, self._division.rows_per_step)[1]):
            self.stats.left += len(numbers)
            gone.append(numbers)
        return np.concatenate(gone) if gone else np.zeros(0, np.int64)


class HybridJoin(OldestKeyJoin):
    """HYBRIDJOIN: all memory is for rows that wait."""

    def __init__(self, relation: PageByKey, resources: JoinResources) -> None:
        division = divide(relation, resources)
        waiting = waiting_rows_within(division.store_bytes, resources)
        super().__init__(relation, resources, division, waiting)
