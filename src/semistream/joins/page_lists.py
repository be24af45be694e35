"""A list of waiting stream rows for each page of R.

Where HYBRIDJOIN finds waiting rows by their key, SSIJ and the partition join find them by their page: which page has
the most of them, and all of them once it is there. A key's page is known without reading it, so a row joins the list
of its page when it comes, and the page answers the whole list, also the rows whose key it lacks.

A page's list is emptied as a whole, so one number for a page, `since`, tells how long its oldest row has waited.

Memory: `HashMultimap` with pages for codes, 20 bytes a row for number, code and the stack of free slots,
`ROW_BYTES_MOVED` for a change of capacity, and 8 bytes a page.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from semistream.joins.base import Numbers, StreamRows
from semistream.structures.hash_multimap import HashMultimap

ROW_BYTES_MOVED = 24
"""A row that is carried from one table to the next: its number, its code and its page."""

_SLOT_BYTES = 8 + 8 + 4


class PageLists:
    """Stream rows that wait, by page.

    Example:
        >>> lists = PageLists(page_count=3, rows_max=10)
        >>> lists.push(StreamRows(np.array([0, 1, 2]), np.array([70, 20, 71])), np.array([2, 0, 2]), now=5)
        >>> lists.lengths.tolist(), lists.since.tolist()
        ([1, 0, 2], [5, 0, 5])
        >>> lists.take(2, rows_max=10).codes.tolist(), len(lists)
        ([70, 71], 1)
    """

    def __init__(self, page_count: int, rows_max: int) -> None:
        self.lengths = np.zeros(max(1, page_count), np.int32)
        """Rows that wait for each page."""
        self.since = np.zeros(max(1, page_count), np.int32)
        """The `now` at which the oldest row of each list came; without meaning where none waits."""
        self._allocate(rows_max)

    def _allocate(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self._row_count = 0
        self._by_page = HashMultimap(rows_max)
        self._numbers = np.empty(rows_max, np.int64)
        self._codes = np.empty(rows_max, np.int64)
        self._free_slots = np.arange(rows_max - 1, -1, -1, dtype=np.int32)

    @staticmethod
    def bytes_for(rows_max: int) -> int:
        """What the tables for so many rows take."""
        return HashMultimap.bytes_for(rows_max) + (_SLOT_BYTES + ROW_BYTES_MOVED) * rows_max

    @staticmethod
    def rows_fitting(bytes_max: int, stream_row_bytes: int) -> int:
        """The most rows whose tables and columns fit into `bytes_max` together; 0 if not even one."""

        def bytes_with_columns(rows: int) -> int:
            return PageLists.bytes_for(rows) + rows * stream_row_bytes if rows else 0

        most = max(0, bytes_max // (_SLOT_BYTES + stream_row_bytes))
        return bisect_right(range(most + 1), bytes_max, key=bytes_with_columns) - 1 if bytes_max > 0 else 0

    @property
    def nbytes(self) -> int:
        """Bytes of the tables, and of moving them."""
        return self.bytes_for(self.rows_max)

    def __len__(self) -> int:
        return self._row_count

    @property
    def room(self) -> int:
        """Rows that can still come."""
        return self.rows_max - self._row_count

    def push(self, rows: StreamRows, pages: Numbers, now: int) -> None:
        """Let each of these rows wait for its page."""
        self.since[pages[self.lengths[pages] == 0]] = now
        np.add.at(self.lengths, pages, 1)
        self._insert(rows, pages)

    def _insert(self, rows: StreamRows, pages: Numbers) -> None:
        assert len(rows) <= self.room, f"{len(rows)} rows shall wait where there is room for {self.room}"
        slots = self._free_slots[self.room - len(rows) : self.room].astype(np.int64)
        self._numbers[slots], self._codes[slots] = rows.numbers, rows.codes
        self._by_page.insert(pages, slots)
        self._row_count += len(rows)

    def take(self, page: int, rows_max: int) -> StreamRows:
        """Take the rows that wait for a page, the oldest first, at most `rows_max`; fewer are all of them."""
        _, slots = self._by_page.matches(np.array([page]), rows_max)
        self._by_page.remove_rows(np.full(len(slots), page, np.int64), slots)
        self._free_slots[self.room : self.room + len(slots)] = slots
        self._row_count -= len(slots)
        self.lengths[page] -= len(slots)
        return StreamRows(self._numbers[slots], self._codes[slots])

    def resize(self, rows_max: int) -> None:
        """Change the capacity; what waits goes on waiting."""
        assert rows_max >= max(1, len(self)), f"{len(self)} rows wait and shall fit into {rows_max}"
        waited_for = np.flatnonzero(self.lengths)
        positions, slots = self._by_page.matches(waited_for)
        rows, pages = StreamRows(self._numbers[slots], self._codes[slots]), waited_for[positions]
        del self._by_page, self._numbers, self._codes, self._free_slots, positions, slots
        self._allocate(rows_max)
        self._insert(rows, pages)
