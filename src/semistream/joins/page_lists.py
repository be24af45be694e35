"""A list of waiting stream rows for each page of R.

Where HYBRIDJOIN finds waiting rows by their key, SSIJ, the partition join and the sweeps of `adaptive` find them by
their page: which page has rows, and all of them once it is there. A key's page is known without reading it, so a row
joins the list of its page when it comes, and the page answers the whole list, also the rows whose key it lacks.

Pages are numbered without gaps, so no hash table is needed: a page has the slots of its first and its last row, and a
row has the slot of the next one. Free slots are a list, too. That makes a waiting row three times smaller than in
`WaitingRows`, and what waits decides how many rows share a read.

A page's list is emptied as a whole, so one number for a page, `since`, tells how long its oldest row has waited.

Capacity moves, because what is remembered competes for the same memory; memory is taken only as slots are used.

Memory: 20 bytes a row for number, code and link, a byte for a change of capacity, and 16 bytes a page.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.base import Numbers, StreamRows
from semistream.structures.compiled import I64, READ_I64, WRITE_BOOL, WRITE_I32, WRITE_I64, Array, kernel
from semistream.structures.reserved import Reserved

ROW_BYTES_MOVED = 1
"""When the capacity shrinks: whether a slot is used."""

PAGE_BYTES = 4 * 4
"""For a page: its first and its last row, the length and the age of its list."""

_SLOT_BYTES = 8 + 8 + 4
_NONE = -1


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

    def __init__(self, page_count: int, rows_max: int, rows_limit: int | None = None) -> None:
        self.lengths = np.zeros(max(1, page_count), np.int32)
        """Rows that wait for each page."""
        self.since = np.zeros(max(1, page_count), np.int32)
        """The `now` at which the oldest row of each list came; without meaning where none waits."""
        self._first, self._last = (np.full(max(1, page_count), _NONE, np.int32) for _ in range(2))
        self.rows_max = rows_max
        self._rows_limit = rows_limit or rows_max
        """What the capacity will never exceed."""
        self._row_count = 0
        self._reserved = [Reserved(self._rows_limit * width) for width in (8, 8, 4)]
        self._numbers, self._codes = (reserved.bytes.view(np.int64) for reserved in self._reserved[:2])
        self._next = self._reserved[2].bytes.view(np.int32)
        self._free = _NONE
        """The first of the free slots."""
        self._link_free_from(0)

    @staticmethod
    def bytes_for(rows_max: int) -> int:
        """What the rows' part of the tables takes."""
        return (_SLOT_BYTES + ROW_BYTES_MOVED) * rows_max

    @staticmethod
    def rows_fitting(bytes_max: int, stream_row_bytes: int) -> int:
        """The most rows whose tables and columns fit into `bytes_max` together; 0 if not even one."""
        return max(0, bytes_max // (_SLOT_BYTES + ROW_BYTES_MOVED + stream_row_bytes))

    @property
    def nbytes(self) -> int:
        """Bytes of the rows' part of the tables, and of moving them."""
        return self.bytes_for(self.rows_max)

    def __len__(self) -> int:
        return self._row_count

    @property
    def room(self) -> int:
        """Rows that can still come."""
        return self.rows_max - self._row_count

    def push(self, rows: StreamRows, pages: Numbers, now: int) -> None:
        """Let each of these rows wait for its page."""
        assert len(rows) <= self.room, f"{len(rows)} rows shall wait where there is room for {self.room}"
        self.since[pages[self.lengths[pages] == 0]] = now
        slots = (self._numbers, self._codes, self._next)
        lists = (self._first, self._last, self.lengths)
        self._free = _push(rows.numbers, rows.codes, pages, *slots, *lists, self._free)
        self._row_count += len(rows)

    def take(self, page: int, rows_max: int) -> StreamRows:
        """Take the rows that wait for a page, the oldest first, at most `rows_max`; fewer are all of them."""
        count = min(int(self.lengths[page]), rows_max)
        numbers, codes = np.empty(count, np.int64), np.empty(count, np.int64)
        slots = (self._numbers, self._codes, self._next)
        self._free = _take(page, numbers, codes, *slots, self._first, self.lengths, self._free)
        self._row_count -= count
        return StreamRows(numbers, codes)

    def resize(self, rows_max: int) -> None:
        """Change the capacity; what waits goes on waiting."""
        assert rows_max >= max(1, len(self)), f"{len(self)} rows wait and shall fit into {rows_max}"
        assert rows_max <= self._rows_limit, f"{rows_max} rows shall wait where {self._rows_limit} was the limit"
        grown_from = self.rows_max
        if rows_max < self.rows_max:
            is_used = np.zeros(self.rows_max, np.bool_)
            slots = (self._numbers, self._codes, self._next)
            self._free = _crowd(rows_max, *slots, self._first, self._last, is_used)
            for reserved, width in zip(self._reserved, (8, 8, 4), strict=True):
                reserved.release_from(rows_max * width)
        self.rows_max = rows_max
        if rows_max > grown_from:
            self._link_free_from(grown_from)

    def _link_free_from(self, begin: int) -> None:
        """Put all slots from `begin` on in front of the free ones."""
        if begin < self.rows_max:
            self._next[begin : self.rows_max - 1] = np.arange(begin + 1, self.rows_max)
            self._next[self.rows_max - 1] = self._free
            self._free = begin


@kernel(I64(READ_I64, READ_I64, READ_I64, WRITE_I64, WRITE_I64, WRITE_I32, WRITE_I32, WRITE_I32, WRITE_I32, I64))
def _push(
    new_numbers: Array,
    new_codes: Array,
    pages: Array,
    numbers: Array,
    codes: Array,
    following: Array,
    first: Array,
    last: Array,
    lengths: Array,
    free: int,
) -> int:
    """Append rows to the lists of their pages; return the first slot that is still free."""
    for i in range(pages.size):
        slot, page = free, pages[i]
        free = int(following[slot])
        numbers[slot], codes[slot], following[slot] = new_numbers[i], new_codes[i], _NONE
        if lengths[page] == 0:
            first[page] = slot
        else:
            following[last[page]] = slot
        last[page] = slot
        lengths[page] += 1
    return free


@kernel(I64(I64, WRITE_I64, WRITE_I64, WRITE_I64, WRITE_I64, WRITE_I32, WRITE_I32, WRITE_I32, I64))
def _take(
    page: int,
    out_numbers: Array,
    out_codes: Array,
    numbers: Array,
    codes: Array,
    following: Array,
    first: Array,
    lengths: Array,
    free: int,
) -> int:
    """Take the first rows of a list; return the first slot that is free then."""
    slot = int(first[page])
    for i in range(out_numbers.size):
        out_numbers[i], out_codes[i] = numbers[slot], codes[slot]
        after = int(following[slot])
        following[slot] = free
        free, slot = slot, after
    first[page] = slot
    lengths[page] -= out_numbers.size
    return free


@kernel(I64(I64, WRITE_I64, WRITE_I64, WRITE_I32, WRITE_I32, WRITE_I32, WRITE_BOOL))
def _crowd(
    rows_max: int, numbers: Array, codes: Array, following: Array, first: Array, last: Array, is_used: Array
) -> int:
    """Move all rows to slots before `rows_max`; return the first slot that is free then."""
    for page in range(first.size):
        slot = first[page]
        while slot >= 0:
            is_used[slot] = True
            slot = following[slot]
    place = 0
    for page in range(first.size):
        before, slot = np.int64(-1), np.int64(first[page])
        while slot >= 0:
            if slot >= rows_max:
                while is_used[place]:
                    place += 1
                numbers[place], codes[place], following[place] = numbers[slot], codes[slot], following[slot]
                is_used[place] = True
                if before < 0:
                    first[page] = place
                else:
                    following[before] = place
                slot = place
            before, slot = slot, np.int64(following[slot])
        if before >= 0:
            last[page] = before
    free = -1
    for slot in range(rows_max - 1, -1, -1):
        if not is_used[slot]:
            following[slot] = free
            free = slot
    return free
