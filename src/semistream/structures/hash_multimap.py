"""A hash table from int64 codes to row numbers: the waiting rows (H_S), or an index of what is remembered.

The table knows neither rows nor columns. A row number names a place in somebody else's columns; it lies in
[0, `rows_max`) and stands in the map at most once, so the map can be full but never too full.

Layout. Open addressing with linear probing. A slot is two neighbouring int64 words, so
that a probe usually touches one cache line: the code, and an *entry* that packs the oldest row of the code (upper
half) with the number of its rows (lower half). The entry `EMPTY` (no head, no rows) marks a free
slot, whose code word is then never read, and so every int64 is a legal code. The rows of one code form a ring through
`_next` and `_previous`, oldest first: appending at its end and taking a row out of its middle are O(1), and so is
the count, however many rows one hot code has. A code's last row takes its slot with it: later slots of the cluster
move back over the hole, there are no tombstones, and the table never slows down with age.

Memory: 16 bytes a slot and 8 bytes a row. There are 10/7 slots for each row, whatever their number, which makes 31
bytes a row at every size. With slots that double, rows would take from 31 to 54, and who weighs rows of two tables
against each other (the cache inequality) would decide by how full its tables happen to be.

Traps. The hash is fixed, so that runs repeat; it spreads counters, strides and bit patterns, but somebody who
chooses codes against it can make probing slow (never wrong). It must also differ from the hash that partitions a
stream, or the codes of one partition would share their high bits and crowd into a fraction of the slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.structures.compiled import (
    I64,
    READ_I32,
    READ_I64,
    VOID,
    WRITE_I32,
    WRITE_I64,
    Array,
    inlined,
    kernel,
)
from semistream.structures.raw_memory import FETCH_AHEAD_ROWS, fetch

Int64s = npt.NDArray[np.int64]

EMPTY = -1 << 32
"""The entry of a free slot: head -1, count 0."""

SLOTS_MIN = 2

ABSENT = -1
"""What `_next` holds for a row number that is not in the map."""

ROWS_LIMIT = 2**31 - 1
"""Row numbers and counts are kept in 32 bits."""

_COUNT_BITS = 0xFFFFFFFF
_WORD_BYTES = 8
_SLOT_BYTES = 2 * _WORD_BYTES
_LINK_BYTES = 8  # next and previous, int32 each


def slots_for(codes_max: int) -> int:
    """Return the least number of slots that `codes_max` codes fill to at most 7/10.

    Beyond 0.7 a probe for an absent code passes six slots and more; far below it, memory grows for little speed.
    """
    return max(SLOTS_MIN, -(-10 * codes_max // 7))


def even_slots_for(codes_max: int) -> int:
    """The same, rounded up to a power of two, for `home_slot`."""
    return 1 << (slots_for(codes_max) - 1).bit_length()


def codes_in(slots: int) -> int:
    """Return how many codes a table of `slots` may hold."""
    return 7 * slots // 10


@inlined
def mixed(code: Any) -> Any:
    """Return a 64-bit hash of a code: a bijection in which every input bit reaches every output bit."""
    bits = np.uint64(code)
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return bits ^ (bits >> np.uint64(32))


@inlined
def home_slot(code: Any, mask: Any) -> Any:
    """Return the slot at which probing for a code begins, where slots are a power of two."""
    return np.int64(mixed(code) & np.uint64(mask))


@inlined
def scaled_slot(code: Any, slot_count: Any) -> Any:
    """Return the slot at which probing for a code begins, for any number of slots below 2^32: no division."""
    return np.int64(((mixed(code) >> np.uint64(32)) * np.uint64(slot_count)) >> np.uint64(32))


@inlined
def _after(slot: Any, slot_count: Any) -> Any:
    return slot + 1 if slot + 1 < slot_count else 0


@inlined
def _steps(begin: Any, end: Any, slot_count: Any) -> Any:
    """Slots from one to another, onwards and round the end."""
    return end - begin if end >= begin else end - begin + slot_count


class HashMultimap:
    """Codes, each with its row numbers in order of insertion.

    Example:
        >>> waiting = HashMultimap(rows_max=100)
        >>> waiting.insert(np.array([7, 9, 7]), np.array([0, 1, 2]))
        >>> waiting.first(np.array([9, 8, 7])).tolist()
        [1, -1, 0]
        >>> positions, rows = waiting.matches(np.array([8, 7]))
        >>> positions.tolist(), rows.tolist()
        ([1, 1], [0, 2])
    """

    def __init__(self, rows_max: int) -> None:
        assert 1 <= rows_max <= ROWS_LIMIT, f"a multimap for {rows_max} rows; 1 to {ROWS_LIMIT} can be numbered"
        self.rows_max = rows_max
        self._slots = np.empty(2 * slots_for(rows_max), dtype=np.int64)
        self._next = np.empty(rows_max, dtype=np.int32)
        self._previous = np.empty(rows_max, dtype=np.int32)
        self.clear()

    @staticmethod
    def bytes_for(rows_max: int) -> int:
        """Return what a map for `rows_max` rows allocates."""
        return _SLOT_BYTES * slots_for(rows_max) + _LINK_BYTES * rows_max

    @property
    def nbytes(self) -> int:
        """Bytes really allocated."""
        return self._slots.nbytes + self._next.nbytes + self._previous.nbytes

    def __len__(self) -> int:
        """Return the number of rows in the map."""
        return self._rows

    @property
    def distinct(self) -> int:
        """Codes that have at least one row."""
        return self._distinct

    def clear(self) -> None:
        """Forget everything; O(capacity)."""
        self._slots[1::2] = EMPTY
        self._next.fill(ABSENT)
        self._rows = 0
        self._distinct = 0

    def insert(self, codes: Int64s, rows: Int64s) -> None:
        """Append each row to the rows of its code."""
        assert len(codes) == len(rows), f"{len(codes)} codes were given for {len(rows)} rows"
        result = _insert(self._slots, self._next, self._previous, codes, rows)
        assert result >= 0, (
            f"row number {rows[-1 - result]} is already in the map, or not below its capacity of {self.rows_max} rows"
        )
        self._rows += len(rows)
        self._distinct += result

    def first(self, codes: Int64s) -> Int64s:
        """Return the oldest row of each code, or -1."""
        heads = self._entries(codes)
        heads >>= 32
        return heads

    def first_until(self, codes: Int64s, absent_max: int) -> Int64s:
        """As `first`, but only until so many codes were absent; the answer is as long as that took."""
        assert absent_max > 0, "probing that shall end before it begins"
        heads = np.empty(len(codes), dtype=np.int64)
        return heads[: _find_until(self._slots, codes, absent_max, heads)]

    def count(self, codes: Int64s) -> Int64s:
        """Return the number of rows of each code; O(1) for each, however many they are."""
        counts = self._entries(codes)
        counts &= _COUNT_BITS
        return counts

    def matches(self, codes: Int64s, pairs_max: int | None = None, *, pairs_skip: int = 0) -> tuple[Int64s, Int64s]:
        """Return (position in `codes`, row) for every row of every code, by position and then by age.

        One hot code can have more matches than fit into memory. `pairs_max` and `pairs_skip` cut a window out of the
        list of all pairs: fewer than `pairs_max` pairs are the last ones, and otherwise the next window begins where
        this one ended.
        """
        assert pairs_skip >= 0, "a window of matches cannot begin before the first"
        return self._pairs(self._entries(codes), pairs_max, pairs_skip)

    def remove_codes(self, codes: Int64s) -> Int64s:
        """Remove all rows of these codes and return them, by position of the code and then by age.

        A code that has no rows, or no longer has any because it was named before, is passed over.
        """
        entries = np.empty(len(codes), dtype=np.int64)
        self._distinct -= _take_entries(self._slots, codes, entries)
        _, freed = self._pairs(entries, pairs_max=None, pairs_skip=0)
        self._next[freed] = ABSENT
        self._rows -= len(freed)
        assert self._rows >= self._distinct >= 0, "the map counts more codes than rows"
        return freed

    def remove_rows(self, codes: Int64s, rows: Int64s) -> None:
        """Remove exactly these rows; `codes` are the codes they were inserted with."""
        assert len(codes) == len(rows), f"{len(codes)} codes were given for {len(rows)} rows"
        result = _remove_rows(self._slots, self._next, self._previous, codes, rows)
        assert result >= 0, f"row {rows[-1 - result]} does not wait under the code {codes[-1 - result]}"
        self._rows -= len(rows)
        self._distinct -= result
        assert self._rows >= self._distinct >= 0, "the map counts more codes than rows"

    def _entries(self, codes: Int64s) -> Int64s:
        entries = np.empty(len(codes), dtype=np.int64)
        _find(self._slots, codes, entries)
        return entries

    def _pairs(self, entries: Int64s, pairs_max: int | None, pairs_skip: int) -> tuple[Int64s, Int64s]:
        pairs = max(0, int((entries & _COUNT_BITS).sum()) - pairs_skip)
        if pairs_max is not None:
            pairs = min(pairs, pairs_max)
        positions = np.empty(pairs, dtype=np.int64)
        rows = np.empty(pairs, dtype=np.int64)
        _write_pairs(self._next, entries, pairs_skip, positions, rows)
        return positions, rows


@inlined
def _slot_of(slots: Array, code: Any, slot_count: Any) -> Any:
    """Return the slot that holds the code, or the free slot where it would stand."""
    slot = scaled_slot(code, slot_count)
    while slots[2 * slot + 1] >= 0 and slots[2 * slot] != code:
        slot = _after(slot, slot_count)
    return slot


@inlined
def _fetch_ahead(slots: Array, codes: Array, i: Any, slot_count: Any) -> None:
    """Ask for the slot of a code that is looked up a little later: a large table lies outside of every cache."""
    ahead = codes[min(i + FETCH_AHEAD_ROWS, codes.size - 1)]
    fetch(slots, 2 * scaled_slot(ahead, slot_count))


@inlined
def _free_slot(slots: Array, slot: Any, slot_count: Any) -> None:
    """Empty a slot, moving back those behind it that it would cut off from their homes."""
    hole = slot
    scan = _after(slot, slot_count)
    while slots[2 * scan + 1] >= 0:
        steps_from_home = _steps(scaled_slot(slots[2 * scan], slot_count), scan, slot_count)
        if steps_from_home >= _steps(hole, scan, slot_count):
            slots[2 * hole] = slots[2 * scan]
            slots[2 * hole + 1] = slots[2 * scan + 1]
            hole = scan
        scan = _after(scan, slot_count)
    slots[2 * hole + 1] = EMPTY


@kernel(VOID(READ_I64, READ_I64, WRITE_I64))
def _find(slots: Array, codes: Array, entries: Array) -> None:
    slot_count = slots.size // 2
    for i in range(codes.size):
        _fetch_ahead(slots, codes, i, slot_count)
        entries[i] = slots[2 * _slot_of(slots, codes[i], slot_count) + 1]


@kernel(I64(READ_I64, READ_I64, I64, WRITE_I64))
def _find_until(slots: Array, codes: Array, absent_max: int, heads: Array) -> int:
    """Write the oldest row of each code, or -1, up to and with the last absent one; return how many were looked up."""
    slot_count = slots.size // 2
    for i in range(codes.size):
        _fetch_ahead(slots, codes, i, slot_count)
        heads[i] = slots[2 * _slot_of(slots, codes[i], slot_count) + 1] >> 32
        if heads[i] < 0:
            absent_max -= 1
            if absent_max == 0:
                return i + 1
    return int(codes.size)


@kernel(I64(WRITE_I64, WRITE_I32, WRITE_I32, READ_I64, READ_I64))
def _insert(slots: Array, next_row: Array, previous_row: Array, codes: Array, rows: Array) -> int:
    """Return the number of new codes, or -1 - the position of a row that cannot be inserted."""
    slot_count = slots.size // 2
    codes_new = 0
    for i in range(codes.size):
        _fetch_ahead(slots, codes, i, slot_count)
        row = rows[i]
        if row < 0 or row >= next_row.size or next_row[row] != ABSENT:
            return -1 - i
        slot = _slot_of(slots, codes[i], slot_count)
        entry = slots[2 * slot + 1]
        if entry < 0:
            slots[2 * slot] = codes[i]
            slots[2 * slot + 1] = (row << 32) | 1
            next_row[row] = row
            previous_row[row] = row
            codes_new += 1
        else:
            head = entry >> 32
            tail = previous_row[head]
            next_row[tail] = row
            previous_row[row] = tail
            next_row[row] = head
            previous_row[head] = row
            slots[2 * slot + 1] = entry + 1
    return codes_new


@kernel(VOID(READ_I32, READ_I64, I64, WRITE_I64, WRITE_I64))
def _write_pairs(next_row: Array, entries: Array, pairs_skip: int, positions: Array, rows: Array) -> None:
    written = 0
    for i in range(entries.size):
        count = entries[i] & _COUNT_BITS
        if count <= pairs_skip:
            pairs_skip -= count
            continue
        row = entries[i] >> 32
        for _ in range(pairs_skip):
            row = np.int64(next_row[row])
        for _ in range(min(count - pairs_skip, rows.size - written)):
            positions[written] = i
            rows[written] = row
            written += 1
            row = np.int64(next_row[row])
        pairs_skip = 0
        if written == rows.size:
            return


@kernel(I64(WRITE_I64, READ_I64, WRITE_I64))
def _take_entries(slots: Array, codes: Array, entries: Array) -> int:
    """Free the slots of these codes, handing over their entries; return how many codes there were."""
    slot_count = slots.size // 2
    codes_removed = 0
    for i in range(codes.size):
        slot = _slot_of(slots, codes[i], slot_count)
        entries[i] = slots[2 * slot + 1]
        if entries[i] >= 0:
            _free_slot(slots, slot, slot_count)
            codes_removed += 1
    return codes_removed


@kernel(I64(WRITE_I64, WRITE_I32, WRITE_I32, READ_I64, READ_I64))
def _remove_rows(slots: Array, next_row: Array, previous_row: Array, codes: Array, rows: Array) -> int:
    """Return the number of codes that lost their last row, or -1 - the position of a row that is not there."""
    slot_count = slots.size // 2
    codes_removed = 0
    for i in range(codes.size):
        row = rows[i]
        slot = _slot_of(slots, codes[i], slot_count)
        entry = slots[2 * slot + 1]
        if row < 0 or row >= next_row.size or next_row[row] == ABSENT or entry < 0:
            return -1 - i
        after = np.int64(next_row[row])
        if (after == row) != (entry & _COUNT_BITS == 1):
            return -1 - i
        if after == row:
            _free_slot(slots, slot, slot_count)
            codes_removed += 1
        else:
            before = previous_row[row]
            next_row[before] = after
            previous_row[after] = before
            head = entry >> 32
            if head == row:
                head = after
            slots[2 * slot + 1] = (head << 32) | ((entry & _COUNT_BITS) - 1)
        next_row[row] = ABSENT
    return codes_removed
