"""Optimised X-HYBRIDJOIN: the pinned pages are probed by the stream, instead of probing the rows that wait.

Paper: Naeem, Dobbie, Weber. Optimised X-HYBRIDJOIN for near-real-time data warehousing. ADC 2012.
Reads:     the page of the oldest waiting key.
Remembers: the first pages of R, pinned, as a hash table.
Waits:     only rows whose key is not pinned.

Assumes what X-HYBRIDJOIN assumes: an index on R, unique keys, and R sorted by how often its rows are asked for.

Memory: M = b·v_R + h_R·v_R (pinned) + h_S·v_S; here with the overhead of the hash tables.

Deviates: the share of the memory that is pinned is given as a share, because a hash table holds rows and not pages.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.base import JoinResources, StreamRows
from semistream.joins.disk_probing import Page
from semistream.joins.division import divide, waiting_rows_within
from semistream.joins.held_keys import HeldKeys
from semistream.joins.hybridjoin import OldestKeyJoin
from semistream.joins.x_hybridjoin import PagesAndScan, require_unique

PINNED_SHARE = 1 / 4
"""What is pinned of the memory for rows, unless the tuner says otherwise."""


class OptimisedXHybridJoin(OldestKeyJoin):
    """Optimised X-HYBRIDJOIN: who asks for a pinned row is answered at once."""

    def __init__(self, relation: PagesAndScan, resources: JoinResources, *, pinned_share: float = PINNED_SHARE) -> None:
        require_unique(relation.info, "optimised-x-hybridjoin")
        division = divide(relation, resources)
        pinned_bytes = int(division.store_bytes * pinned_share)
        waiting = waiting_rows_within(division.store_bytes - pinned_bytes, resources)
        super().__init__(relation, resources, division, waiting)
        self._pages = relation
        self._pinned_account = resources.budget.account("remembered rows", limit_bytes=max(1, pinned_bytes))
        self.held = HeldKeys(relation.schema, pinned_bytes, relation.info.row_bytes_mean)
        self._is_pinned = False

    def admit(self, rows: StreamRows) -> int:
        """Pin the first pages before the first row is answered."""
        if not self._is_pinned:
            self._pin()
        return super().admit(rows)

    def _pin(self) -> None:
        assert self.held is not None, "there is nothing to pin pages in"
        self._is_pinned = True
        for number in range(self._pages.segment_count if self.held.can_hold else 0):
            page = Page.of(self._pages.segment(number))
            self.stats.reads += 1
            self.stats.rows_read += len(page.batch)
            sizes = self.held.bytes_of(page.batch, page.first, page.count)
            fitting = self.held.fitting(sizes)
            part = slice(fitting)
            unused = np.zeros(fitting, np.int64)
            self.held.add(page.batch, page.codes[part], page.first[part], page.count[part], sizes[part], unused)
            if fitting < len(page.codes):
                break
        self._pinned_account.hold(self.held.used_bytes)

    def forget(self) -> None:
        """Drop the pinned rows; they are read anew when the next row comes."""
        assert self.held is not None, "there is nothing to forget"
        self.held.clear()
        self._is_pinned = False
