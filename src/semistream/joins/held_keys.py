"""H_R: keys of the relation that are held in memory, each with all of its rows.

What is held is a key with all of its rows, or nothing of it: half a key would give half an answer. This is the
mechanics that every algorithm with a cache shares; which keys come and which go is its own choice. `probe` counts the
uses of a key, because every choice is made by them.

An entry is a key. Its rows stand together in an arena, in the order of entries, so that letting keys go is one move
of what stays.

Memory: an index and four counters an entry, and the arena's bytes for its rows, all within `bytes_max`. The index is
as large as it will ever have to be, or as `resize_index` says. Everything that is done to many entries is done to
`part_entries` of them at a time, so that what it takes in passing stays below `WORK_SHARE` of that, however many there
are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.base import Numbers
from semistream.joins.matching import PairCursor, codes_of
from semistream.structures.columns import rows_of
from semistream.structures.compiled import READ_I32, READ_I64, VOID, WRITE_I32, WRITE_I64, Array, kernel
from semistream.structures.hash_multimap import ROWS_LIMIT, HashMultimap
from semistream.structures.row_arena import RowArena, can_be_kept

WORK_SHARE = 1 / 16
"""What adding and letting go may take in passing, as a share of `bytes_max`."""

_WORK_BYTES_PER_ENTRY = 64
"""What is taken in passing for an entry or a row: row numbers, places, lengths, sizes."""

_PART_ENTRIES_MIN, _PART_ENTRIES_MAX = 256, 16_384
"""Below, steps would be too many; above, they gain nothing."""

ENTRY_BYTES = 4 * 4
"""Per entry, beside its place in the index: first row, row count, bytes, uses. Its code stands in its first row."""

USES_MAX = 2**30
"""Uses stop counting here, far from where 32 bits would turn over."""

Counters = npt.NDArray[np.int32]


@kernel(VOID(READ_I64, READ_I32, READ_I32, WRITE_I32, WRITE_I64, WRITE_I64))
def _look_up(entries: Array, first: Array, count: Array, uses: Array, out_first: Array, out_count: Array) -> None:
    for i in range(entries.size):
        entry = entries[i]
        if entry >= 0:
            out_first[i] = first[entry]
            out_count[i] = count[entry]
            if uses[entry] < USES_MAX:
                uses[entry] += 1
        else:
            out_first[i] = 0
            out_count[i] = 0


def most_entries(bytes_max: int, row_bytes_mean: float) -> int:
    """The most entries whose index and rows, at the mean size, fit together."""
    low, high = 0, min(ROWS_LIMIT, int(bytes_max / (row_bytes_mean + ENTRY_BYTES)))
    while low < high:
        middle = (low + high + 1) // 2
        if HashMultimap.bytes_for(middle) + middle * (ENTRY_BYTES + row_bytes_mean) <= bytes_max:
            low = middle
        else:
            high = middle - 1
    return low


def _not_held(codes: int) -> Numbers:
    """The entries of so many codes that have none."""
    return np.full(codes, -1, np.int64)


class HeldKeys:
    """Keys of a relation with their rows, inside `bytes_max`."""

    def __init__(
        self, schema: pa.Schema, bytes_max: int, row_bytes_mean: float, entries_max: int | None = None
    ) -> None:
        self._row_bytes_mean = row_bytes_mean
        most = most_entries(bytes_max, row_bytes_mean) if can_be_kept(schema) else 0
        self.entries_max = most if entries_max is None else min(most, entries_max)
        self._first, self._count, self._bytes, self._uses = (np.zeros(self.entries_max, np.int32) for _ in range(4))
        fitting = int(bytes_max * WORK_SHARE) // _WORK_BYTES_PER_ENTRY
        self.part_entries = min(max(fitting, _PART_ENTRIES_MIN), _PART_ENTRIES_MAX)
        self._entry_count = 0
        self.evicted = 0
        """Keys that were held and are no more."""
        self.lettings = 0
        """How often keys came, however many."""
        self._index_bytes = 0
        self._arena: RowArena | None = None
        if self.entries_max:
            self._index = HashMultimap(self.entries_max)
            self._index_bytes = self.index_bytes_for(self.entries_max)
            self._arena = RowArena(schema, bytes_max - self._index_bytes)
        self._rows_bytes_max = self._arena.bytes_max if self._arena else 0

    @property
    def can_hold(self) -> bool:
        """Whether there is memory for anything, and the rows are of types that can be kept."""
        return self._arena is not None

    @property
    def used_bytes(self) -> int:
        """Bytes held now: the whole index and the rows in the arena."""
        return self._index_bytes + self.rows_bytes

    @property
    def rows_bytes(self) -> int:
        """Bytes of the rows alone."""
        return self._arena.used_bytes if self._arena else 0

    @property
    def rows_bytes_max(self) -> int:
        """The most that the rows alone can take."""
        return self._rows_bytes_max

    def __len__(self) -> int:
        return self._entry_count

    @property
    def uses(self) -> Counters:
        """How often each key was found, by entry; a view that may be written."""
        return self._uses[: self._entry_count]

    @property
    def sizes(self) -> Counters:
        """Bytes of the rows of each key, by entry; a view."""
        return self._bytes[: self._entry_count]

    @property
    def counts(self) -> Counters:
        """Rows of each key, by entry; a view."""
        return self._count[: self._entry_count]

    @property
    def codes(self) -> Numbers:
        """The code of each key, by entry."""
        assert self._arena is not None, "nothing is held in an empty memory"
        return codes_of(self._arena.batch)[self._first[: self._entry_count]]

    @property
    def rows(self) -> tuple[pa.RecordBatch, Numbers, Numbers]:
        """All rows, and by entry the first and the number of those of each key; valid until something changes."""
        assert self._arena is not None, "nothing is held in an empty memory"
        first, count = (array[: self._entry_count].astype(np.int64) for array in (self._first, self._count))
        return self._arena.batch, first, count

    # Probing ---------------------------------------------------------------------------------------------------------

    def probe(self, codes: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first held row of each code and how many there are; 0 for a code that is not held."""
        return self._used(self.entries_of(codes))

    def entries_of(self, codes: Numbers) -> Numbers:
        """The entry of each code, or -1; no use of it."""
        return self._index.first(codes) if self._entry_count else _not_held(len(codes))

    def probe_until(self, codes: Numbers, misses_max: int) -> tuple[Numbers, Numbers]:
        """As `probe`, but only until so many codes were not found; the answers are as long as that took."""
        if self._entry_count == 0:
            return self._used(_not_held(min(len(codes), misses_max)))
        return self._used(self._index.first_until(codes, misses_max))

    def _used(self, entries: Numbers) -> tuple[Numbers, Numbers]:
        """Count a use of each entry; return its first row and how many there are."""
        first, count = np.empty(len(entries), np.int64), np.empty(len(entries), np.int64)
        _look_up(entries, self._first, self._count, self._uses, first, count)
        return first, count

    def pairs(self, numbers: Numbers, first: Numbers, count: Numbers) -> PairCursor:
        """Pair stream rows with what `probe` found for them."""
        assert self._arena is not None, "nothing can be found in an empty memory"
        return PairCursor(self._arena.batch, numbers, first, count)

    # Coming and going ------------------------------------------------------------------------------------------------

    def bytes_of(self, batch: pa.RecordBatch, first: Numbers, count: Numbers) -> Numbers:
        """What the rows of each key would take."""
        assert self._arena is not None, "an arena is needed to measure rows"
        if (any_row_bytes := self._arena.row_bytes) is not None:
            return count * any_row_bytes
        sizes = np.empty(len(count), np.int64)
        for part in self._parts(count):
            rows = rows_of(first[part], count[part])
            row_bytes = self._arena.bytes_of(batch, rows)
            if len(rows) == part.stop - part.start:
                sizes[part] = row_bytes
            else:
                np.add.reduceat(row_bytes, np.cumsum(count[part]) - count[part], out=sizes[part])
        return sizes

    def fitting(self, sizes: Numbers) -> int:
        """How many of these keys, from the first on, there is room for."""
        by_bytes = int(np.searchsorted(np.cumsum(sizes), self.rows_bytes_max - self.rows_bytes, side="right"))
        return min(by_bytes, self.entries_max - self._entry_count)

    def add(
        self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, sizes: Numbers, uses: Numbers
    ) -> None:
        """Hold these keys, which are not held and fit, with all of their rows in `batch`."""
        self.lettings += len(codes) > 0
        for part in self._parts(count):
            self._add(batch, codes[part], first[part], count[part], sizes[part], uses[part])

    def _add(
        self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, sizes: Numbers, uses: Numbers
    ) -> None:
        assert self._arena is not None, "an arena is needed to hold rows"
        begin = self._arena.append(batch, rows_of(first, count))
        new = slice(self._entry_count, self._entry_count + len(codes))
        self._first[new] = begin + np.cumsum(count) - count
        self._count[new] = count
        self._bytes[new] = sizes
        self._uses[new] = np.minimum(uses, USES_MAX)
        self._index.insert(codes, np.arange(new.start, new.stop, dtype=np.int64))
        self._entry_count = new.stop

    def keep(self, stays: npt.NDArray[np.bool_]) -> None:
        """Let all entries go that do not stay."""
        if self._arena is None or bool(stays.all()):
            # SSCJ asks even where no newcomer is worth more than who is held; nothing need move then.
            return
        self._arena.keep_parts(self._rows_staying(stays))
        for array in (self._count, self._bytes, self._uses):
            kept = self._close_gaps(array, stays)
        self.evicted += self._entry_count - kept
        self._entry_count = kept
        np.cumsum(self._count[:kept], dtype=np.int32, out=self._first[:kept])
        self._first[:kept] -= self._count[:kept]
        self._index.clear()
        self._index_entries()

    def clear(self) -> None:
        """Let everything go."""
        self.keep(np.zeros(self._entry_count, np.bool_))

    def index_bytes_for(self, entries_max: int) -> int:
        """What the index and the counters of so many entries take."""
        return HashMultimap.bytes_for(entries_max) + entries_max * ENTRY_BYTES

    def resize_index(self, entries_max: int) -> None:
        """Change how many keys can be held; those that are held stay."""
        assert entries_max >= max(1, self._entry_count), f"{self._entry_count} keys shall fit into {entries_max}"
        arrays = []
        for array in (self._first, self._count, self._bytes, self._uses):
            resized = np.zeros(entries_max, np.int32)
            resized[: self._entry_count] = array[: self._entry_count]
            arrays.append(resized)
        self._first, self._count, self._bytes, self._uses = arrays
        self.entries_max = entries_max
        del self._index
        self._index = HashMultimap(entries_max)
        self._index_bytes = self.index_bytes_for(entries_max)
        self._index_entries()

    def resize(self, bytes_max: int) -> None:
        """Change what may be held in all, but not to more than at first; what is held must fit."""
        if self._arena is None:
            return
        self.resize_index(max(1, most_entries(bytes_max, self._row_bytes_mean)))
        self._rows_bytes_max = min(self._arena.bytes_max, max(0, bytes_max - self._index_bytes))
        assert self.rows_bytes <= self._rows_bytes_max, "rows that are held shall not fit"

    def _index_entries(self) -> None:
        assert self._arena is not None, "an arena is needed to index rows"
        codes = codes_of(self._arena.batch)
        for part in self._slices(self._entry_count):
            entries = np.arange(part.start, part.stop, dtype=np.int64)
            self._index.insert(codes[self._first[part]], entries)

    def _rows_staying(self, stays: npt.NDArray[np.bool_]) -> Iterator[Numbers]:
        for part in self._parts(self.counts):
            yield rows_of(self._first[part][stays[part]], self._count[part][stays[part]])

    def _close_gaps(self, array: Counters, stays: npt.NDArray[np.bool_]) -> int:
        """Move what stays to the front; return how many stay."""
        end = 0
        for part in self._slices(len(stays)):
            kept = array[part][stays[part]]
            array[end : end + len(kept)] = kept
            end += len(kept)
        return end

    def _slices(self, entry_count: int) -> Iterator[slice]:
        """Cut entries into parts, whatever their rows."""
        for begin in range(0, entry_count, self.part_entries):
            yield slice(begin, min(begin + self.part_entries, entry_count))

    def _parts(self, count: npt.NDArray[np.integer[Any]]) -> Iterator[slice]:
        """Cut entries with these numbers of rows into parts of few rows; an entry is never cut."""
        if 0 < int(count.sum()) <= self.part_entries:
            # Those of a page, as a rule, which come in after every read.
            yield slice(0, len(count))
            return
        begin = 0
        while begin < len(count):
            until = np.cumsum(count[begin : begin + self.part_entries], dtype=np.int64)
            end = begin + max(1, int(np.searchsorted(until, self.part_entries, side="right")))
            yield slice(begin, end)
            begin = end
