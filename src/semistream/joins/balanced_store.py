"""H_S and H_R in one piece of memory: each key lies where it takes less of it.

The cache inequality of SSBJ and MOIJ. A key with m rows in R, for which n stream rows would wait, takes m·v_R bytes if
it is remembered and n·v_S bytes if its rows wait. Placing every key where it takes less makes the whole as small as it
can be; or, with a memory that is given, lets as many rows wait as possible.

So the two tables grow at each other's expense. What H_R needs is taken from the capacity of H_S, as far as no row waits
there; what H_R gives up goes back. Tables are rebuilt when they change size, so they change in steps: up to twice
`SLACK` of the memory is neither of the one nor of the other. Small steps, because what neither has serves nobody.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.joins.base import JoinResources, Numbers
from semistream.joins.disk_probing import Page
from semistream.joins.division import OUTPUT_SLACK, Division
from semistream.joins.held_keys import HeldKeys
from semistream.joins.waiting import WaitingRows
from semistream.relations.base import Relation

SLACK = 1 / 64
"""Part of the memory that is kept free for H_R's next keys when H_S makes room for them."""

ENTRIES_MIN = 64
"""Keys that H_R has room for at first."""

GROWTH = 33 / 32
"""How much the index of H_R grows at a time. It stays as large as it once was, and what it has beyond the keys that
are held is room for rows that stays empty: with rows as short as its entries, an eighth at a time cost a fiftieth of
those that wait."""


class BalancedStore:
    """Rows that wait and keys that are remembered, together within `store_bytes`."""

    def __init__(self, relation: Relation, resources: JoinResources, division: Division) -> None:
        info, store_bytes = relation.info, division.store_bytes
        self._store_bytes = store_bytes
        self._output_bytes = int(OUTPUT_SLACK * division.output_bytes_max)
        self._stream_row_bytes = resources.stream_row_bytes
        self.held = HeldKeys(relation.schema, store_bytes, info.row_bytes_mean, ENTRIES_MIN)
        self.waiting = WaitingRows(max(1, self._waiting_rows_fitting(0)))
        self._held_account = resources.budget.account("remembered rows")
        self._waiting_account = resources.budget.account("waiting rows")
        self._charge()

    @property
    def waiting_row_bytes(self) -> float:
        """v_S: what a stream row takes while it waits, with its part of the tables."""
        return self.waiting.nbytes / self.waiting.rows_max + self._stream_row_bytes

    @property
    def used_bytes(self) -> float:
        """What the placement takes: the keys that are remembered and the rows that wait now."""
        return self.held.used_bytes + len(self.waiting) * self.waiting_row_bytes

    @property
    def index_entry_bytes(self) -> float:
        """What a key takes in H_R beside its rows: its part of the index."""
        return self.held.index_bytes_for(self.held.entries_max) / max(1, self.held.entries_max)

    def held_bytes_of(self, sizes: npt.NDArray[np.integer]) -> npt.NDArray[np.float64]:
        """m·v_R: what keys with rows of these sizes take in H_R, with their part of the index."""
        return np.asarray(sizes + self.index_entry_bytes)

    # Coming and going ------------------------------------------------------------------------------------------------

    def hold(self, page: Page, wanted: Numbers, sizes: Numbers, uses: Numbers) -> int:
        """Move these keys of a page to H_R, the first of them that there is room for; return how many."""
        if not self.held.can_hold or len(wanted) == 0:
            return 0
        self._make_room(int(sizes.sum()), len(wanted))
        # Rows that wait may be larger than was expected, and have taken what others were to get.
        free_bytes = min(self._free_bytes, self._held_account.free_bytes - self._output_bytes)
        fitting = min(self.held.fitting(sizes), int(np.searchsorted(np.cumsum(sizes), free_bytes, "right")))
        part = wanted[:fitting]
        self.held.add(page.batch, page.codes[part], page.first[part], page.count[part], sizes[:fitting], uses[:fitting])
        self._charge()
        return fitting

    def keep(self, stays: npt.NDArray[np.bool_]) -> None:
        """Let the other keys go."""
        self.held.keep(stays)
        self._charge()

    def give_back(self) -> None:
        """Give to rows that wait what H_R has given up, if that is more than H_S would leave free again."""
        if self._free_bytes > 2 * SLACK * self._store_bytes:
            rows_max = self._waiting_rows_fitting(0)
            if rows_max > self.waiting.rows_max:
                self.waiting.resize(rows_max)
                self._charge()

    def _make_room(self, rows_bytes: int, entries: int) -> None:
        entries_max = self.held.entries_max
        grown = (
            max(int(GROWTH * entries_max), len(self.held) + entries)
            if len(self.held) + entries > entries_max
            else entries_max
        )
        index_bytes = self.held.index_bytes_for(grown) - self.held.index_bytes_for(entries_max)
        if rows_bytes + index_bytes > self._free_bytes:
            wanted = self._waiting_rows_fitting(rows_bytes + index_bytes + int(SLACK * self._store_bytes))
            rows_max = max(wanted, len(self.waiting), 1)
            if rows_max < self.waiting.rows_max:
                self.waiting.resize(rows_max)
        if grown > entries_max and index_bytes <= self._free_bytes:
            self.held.resize_index(grown)

    @property
    def _free_bytes(self) -> int:
        return self._store_bytes - self.held.used_bytes - self._waiting_bytes(self.waiting.rows_max)

    def _waiting_bytes(self, rows_max: int) -> int:
        return WaitingRows.bytes_for(rows_max) + rows_max * self._stream_row_bytes

    def _waiting_rows_fitting(self, reserved_bytes: int) -> int:
        left = self._store_bytes - self.held.used_bytes - reserved_bytes
        return WaitingRows.rows_fitting(left, self._stream_row_bytes) if left > 0 else 0

    def _charge(self) -> None:
        # Who has become smaller first, or both together could seem to be too large.
        accounts = [(self._held_account, self.held.used_bytes), (self._waiting_account, self.waiting.nbytes)]
        for account, held_bytes in sorted(accounts, key=lambda pair: pair[1] - pair[0].used_bytes):
            account.hold(held_bytes)
