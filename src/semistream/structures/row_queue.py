"""A queue of waiting rows that lets go of any of them at once: oldest first out, or out of the middle.

HYBRIDJOIN reads the page of the oldest waiting code and then removes every row which that page answered, wherever it
stands in the queue. So the queue is a doubly linked list. Its nodes are the row numbers themselves, which lie in
[0, `rows_max`) and stand in the queue at most once; nothing is ever moved, and no pattern of removals leaves holes.

One node more than there are rows, the *anchor*, closes the list to a ring: the oldest row follows it, the newest
precedes it, and neither end is a special case.

Memory: 16 bytes a row (the code, and two links of four bytes) and 8 for the anchor.

Trap: a walk follows links. It is fast while row numbers are handed out roughly in order of arrival and slows to the
speed of memory when they are not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.structures.compiled import (
    I64,
    READ_I64,
    VOID,
    WRITE_I32,
    WRITE_I64,
    Array,
    kernel,
)

Int64s = npt.NDArray[np.int64]

ABSENT = -1
"""What `_next` holds for a row number that is not in the queue."""

ROWS_LIMIT = 2**31 - 2
"""Links are kept in 32 bits, and the anchor needs a number too."""

_ROW_BYTES = 8 + 4 + 4
_ANCHOR_BYTES = 4 + 4


class RowQueue:
    """Row numbers and their codes, first in first out.

    Example:
        >>> waiting = RowQueue(rows_max=100)
        >>> waiting.push(np.array([70, 80, 90]), np.array([5, 6, 7]))
        >>> waiting.remove(np.array([6]))
        >>> waiting.oldest()
        (70, 5)
        >>> codes, rows = waiting.pop(10)
        >>> codes.tolist(), rows.tolist()
        ([70, 90], [5, 7])
    """

    def __init__(self, rows_max: int) -> None:
        assert 1 <= rows_max <= ROWS_LIMIT, f"a queue for {rows_max} rows; 1 to {ROWS_LIMIT} can be numbered"
        self.rows_max = rows_max
        self._anchor = rows_max
        self._codes = np.zeros(rows_max, dtype=np.int64)
        self._next = np.empty(rows_max + 1, dtype=np.int32)
        self._previous = np.empty(rows_max + 1, dtype=np.int32)
        self.clear()

    @staticmethod
    def bytes_for(rows_max: int) -> int:
        """Return what a queue for `rows_max` rows allocates."""
        return _ROW_BYTES * rows_max + _ANCHOR_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes really allocated."""
        return self._codes.nbytes + self._next.nbytes + self._previous.nbytes

    def __len__(self) -> int:
        """Return the number of rows in the queue."""
        return self._rows

    def clear(self) -> None:
        """Forget everything; O(capacity)."""
        self._next.fill(ABSENT)
        self._next[self._anchor] = self._anchor
        self._previous[self._anchor] = self._anchor
        self._rows = 0

    def push(self, codes: Int64s, rows: Int64s) -> None:
        """Append rows at the new end, in the order given."""
        assert len(codes) == len(rows), f"{len(codes)} codes were given for {len(rows)} rows"
        pushed = _push(self._codes, self._next, self._previous, codes, rows)
        assert pushed == len(rows), (
            f"row number {rows[pushed]} is already in the queue, or not below its capacity of {self.rows_max} rows"
        )
        self._rows += pushed

    def oldest(self) -> tuple[int, int]:
        """Return the code and the row that has waited longest, and leave it there."""
        assert self._rows > 0, "an empty queue has no oldest row"
        row = int(self._next[self._anchor])
        return int(self._codes[row]), row

    def pop(self, rows_max: int) -> tuple[Int64s, Int64s]:
        """Remove the oldest rows, `rows_max` or as many as there are; return their codes and numbers, oldest first."""
        assert rows_max >= 0, "popping a negative number of rows"
        rows = np.empty(min(rows_max, self._rows), dtype=np.int64)
        _pop(self._next, self._previous, rows)
        self._rows -= len(rows)
        return self._codes[rows], rows

    def remove(self, rows: Int64s) -> None:
        """Remove these rows, wherever they stand."""
        removed = _remove(self._next, self._previous, rows)
        assert removed == len(rows), f"row {rows[removed]} is not in the queue"
        self._rows -= removed
        assert self._rows >= 0, "the queue lost more rows than it had"

    def holds(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """Return for each row number whether it is in the queue."""
        if len(rows) == 0:
            return np.zeros(0, dtype=np.bool_)
        assert rows.min() >= 0, "a row number is negative"
        assert rows.max() < self.rows_max, f"a row number is not below the capacity of {self.rows_max} rows"
        return np.not_equal(self._next[rows], ABSENT)


@kernel(I64(WRITE_I64, WRITE_I32, WRITE_I32, READ_I64, READ_I64))
def _push(codes_by_row: Array, next_row: Array, previous_row: Array, codes: Array, rows: Array) -> int:
    """Return how many rows were appended before one that cannot be."""
    anchor = next_row.size - 1
    newest = np.int64(previous_row[anchor])
    pushed = 0
    for i in range(rows.size):
        row = rows[i]
        if row < 0 or row >= anchor or next_row[row] != ABSENT:
            break
        codes_by_row[row] = codes[i]
        next_row[newest] = row
        previous_row[row] = newest
        # Set at once, so that the same number twice in one call is noticed.
        next_row[row] = anchor
        newest = row
        pushed += 1
    previous_row[anchor] = newest
    return pushed


@kernel(VOID(WRITE_I32, WRITE_I32, WRITE_I64))
def _pop(next_row: Array, previous_row: Array, rows: Array) -> None:
    """Fill `rows` with the oldest; the caller knows that there are enough."""
    anchor = next_row.size - 1
    row = np.int64(next_row[anchor])
    for i in range(rows.size):
        rows[i] = row
        after = np.int64(next_row[row])
        next_row[row] = ABSENT
        row = after
    next_row[anchor] = row
    previous_row[row] = anchor


@kernel(I64(WRITE_I32, WRITE_I32, READ_I64))
def _remove(next_row: Array, previous_row: Array, rows: Array) -> int:
    """Return how many rows were removed before one that is not there."""
    anchor = next_row.size - 1
    for i in range(rows.size):
        row = rows[i]
        if row < 0 or row >= anchor or next_row[row] == ABSENT:
            return i
        before, after = previous_row[row], next_row[row]
        next_row[before] = after
        previous_row[after] = before
        next_row[row] = ABSENT
    return rows.size
