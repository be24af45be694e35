"""The rows that wait: H_S, the stream rows by code, and Q, the same rows in the order in which they came.

The papers draw a multi-hash-map and a doubly linked queue that point at each other. Here both are arrays over the same
*slots*: a waiting row has a slot, its number stands there, and the map and the queue link slots. So a row is found by
its code, taken from the middle of the queue, or dropped as the oldest, each at O(1).

Capacity moves: the algorithms that remember rows let H_S and H_R grow at each other's expense. `resize` copies what
waits into tables of another size. It reads everything out before it lets go of the old tables, which is what
`ROW_BYTES_MOVED` is for.

Memory: `HashMultimap` and `RowQueue`, twelve bytes a slot for the number and the stack of free slots, and
`ROW_BYTES_MOVED`. The stream's own columns stay with the driver; what a row of them takes is added by whoever decides
on the capacity.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.base import Numbers, StreamRows
from semistream.structures.hash_multimap import HashMultimap
from semistream.structures.row_queue import ROWS_LIMIT, RowQueue

ROW_BYTES_MOVED = 16
"""A row that is carried from one table to the next: its number and its code."""

_SLOT_BYTES = 8 + 4


class WaitingRows:
    """Stream rows that wait for their page, by code and by age.

    Example:
        >>> waiting = WaitingRows(rows_max=10)
        >>> waiting.push(StreamRows(np.array([0, 1, 2]), np.array([7, 9, 7])))
        >>> waiting.oldest_code()
        7
        >>> positions, numbers = waiting.take_codes(np.array([7, 8]), rows_max=10)
        >>> positions.tolist(), numbers.tolist(), len(waiting)
        ([0, 0], [0, 2], 1)
    """

    def __init__(self, rows_max: int) -> None:
        self._allocate(rows_max)

    def _allocate(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self._by_code = HashMultimap(rows_max)
        self._by_age = RowQueue(rows_max)
        self._numbers = np.empty(rows_max, np.int64)
        self._free_slots = np.arange(rows_max - 1, -1, -1, dtype=np.int32)

    @staticmethod
    def bytes_for(rows_max: int) -> int:
        """What the tables for so many rows take."""
        row_bytes = _SLOT_BYTES + ROW_BYTES_MOVED
        return HashMultimap.bytes_for(rows_max) + RowQueue.bytes_for(rows_max) + row_bytes * rows_max

    @staticmethod
    def rows_fitting(bytes_max: int, stream_row_bytes: int) -> int:
        """The most rows whose tables and columns fit into `bytes_max` together; 0 if not even one."""
        low, high = 0, min(ROWS_LIMIT, max(0, bytes_max // (stream_row_bytes + _SLOT_BYTES)))
        while low < high:
            middle = (low + high + 1) // 2
            if WaitingRows.bytes_for(middle) + middle * stream_row_bytes <= bytes_max:
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def nbytes(self) -> int:
        """Bytes of the tables, and of moving them."""
        return self.bytes_for(self.rows_max)

    def __len__(self) -> int:
        return len(self._by_age)

    @property
    def room(self) -> int:
        """Rows that can still come."""
        return max(0, self.rows_max - len(self))

    def push(self, rows: StreamRows) -> None:
        """Let these rows wait behind the others."""
        assert len(rows) <= self.room, f"{len(rows)} rows shall wait where there is room for {self.room}"
        begin = len(self._free_slots) - len(self) - len(rows)
        slots = self._free_slots[begin : begin + len(rows)][::-1].astype(np.int64)
        self._numbers[slots] = rows.numbers
        self._by_code.insert(rows.codes, slots)
        self._by_age.push(rows.codes, slots)

    def oldest_code(self) -> int:
        """The code of the row that has waited longest."""
        return self._by_age.oldest()[0]

    def count(self, codes: Numbers) -> Numbers:
        """How many rows wait for each code."""
        return self._by_code.count(codes)

    def pairs(self, codes: Numbers, rows_max: int, rows_skip: int = 0) -> tuple[Numbers, Numbers]:
        """(Position in `codes`, number) of the rows that wait for these codes, and leave them there."""
        positions, slots = self._by_code.matches(codes, rows_max, pairs_skip=rows_skip)
        return positions, self._numbers[slots]

    def take_codes(self, codes: Numbers, rows_max: int) -> tuple[Numbers, Numbers]:
        """Take the rows that wait for these distinct codes, at most `rows_max`: (position in `codes`, number).

        Fewer than `rows_max` are all of them.
        """
        positions, slots = self._by_code.matches(codes, rows_max)
        self._by_code.remove_rows(codes[positions], slots)
        self._by_age.remove(slots)
        return positions, self._freed(slots)

    def take_oldest(self, rows_max: int) -> Numbers:
        """Take the rows that have waited longest, and no others, whatever their codes; return their numbers."""
        codes, slots = self._by_age.pop(rows_max)
        self._by_code.remove_rows(codes, slots)
        return self._freed(slots)

    def _freed(self, slots: Numbers) -> Numbers:
        used = len(self) + len(slots)
        end = len(self._free_slots) - used + len(slots)
        self._free_slots[end - len(slots) : end] = slots
        return self._numbers[slots]

    def resize(self, rows_max: int) -> None:
        """Change the capacity; what waits goes on waiting, in its order."""
        assert rows_max >= max(1, len(self)), f"{len(self)} rows wait and shall fit into {rows_max}"
        codes, slots = self._by_age.pop(len(self))
        rows = StreamRows(self._numbers[slots], codes)
        del self._by_code, self._by_age, self._numbers, self._free_slots, slots
        self._allocate(rows_max)
        self.push(rows)
