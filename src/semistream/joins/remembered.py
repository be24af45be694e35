"""The rows that are remembered: those with the greatest benefit per byte.

What is remembered is a key with all of its rows, or nothing of it: half a key would give half an answer. A key's
benefit is how often it was asked for lately; what a miss costs is the same for every key of one relation and cancels
out, so keys compete by *uses per byte*. That is the cache inequality of the many-to-many joins with the price of
reading put in.

Uses age: they are halved after every `AGING_PERIODS` times as many probes as there are entries, so that a key that was
hot yesterday makes room. While there is room everything is let in. Once full, the lowest eighth (by bytes) has a
price, its highest uses per byte; who does not exceed that price is turned away without any sorting, and who does makes
the lowest eighth leave.

Memory: index and counters a key, and the arena's bytes for its rows, all within `bytes_max`. Everything that is done
to many entries is done to `_part_entries` of them at a time, so that what it takes in passing stays below
`WORK_SHARE` of that, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.base import Numbers
from semistream.joins.matching import PairCursor, codes_of
from semistream.structures.compiled import (
    F64,
    I64,
    READ_I32,
    READ_I64,
    VOID,
    WRITE_BOOL,
    WRITE_I32,
    WRITE_I64,
    Array,
    kernel,
)
from semistream.structures.hash_multimap import HashMultimap
from semistream.structures.row_arena import RowArena, can_be_kept

AGING_PERIODS = 20
"""Probes for each entry before uses are halved. Measured on Zipf 1 with room for a tenth of the keys: 10, 20 and 30 hit
74.7, 75.9 and 76.6 % of a steady stream, and 72.1, 71.3 and 70.3 % where the hot set moves every 50 probes an entry."""

EVICTED_SHARE = 1 / 8
"""Share of what is held that is freed at once: the arena is moved as a whole, so moving must be rare."""

WORK_SHARE = 1 / 16
"""What adding and evicting may take in passing, as a share of `bytes_max`."""

_WORK_BYTES_PER_ENTRY = 64
"""What is taken in passing for an entry or a row: row numbers, places, lengths, sizes."""

_PART_ENTRIES_MIN, _PART_ENTRIES_MAX = 256, 16_384
"""Below, steps would be too many; above, they gain nothing."""

_GOLDEN_RATIO = (5**0.5 - 1) / 2

_ARRAY_BYTES = 4 * 4
"""Per entry, beside its place in the index: first row, row count, bytes, uses. Its code stands in its first row."""

USES_MAX = 2**30
"""Uses stop counting here, far from where 32 bits would turn over."""


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


@kernel(VOID(READ_I32, READ_I32, F64, I64, I64, WRITE_BOOL))
def _mark_leaving(uses: Array, sizes: Array, price: float, entries_min: int, bytes_min: int, stays: Array) -> None:
    """Let go who is below the price, and of those at the price, the oldest first, as many as the least demands."""
    for at_price in range(2):
        for i in range(stays.size):
            score = uses[i] / sizes[i]
            if at_price == 1 and (score != price or (entries_min <= 0 and bytes_min <= 0)):
                continue
            if at_price == 1 or score < price:
                stays[i] = False
                entries_min -= 1
                bytes_min -= sizes[i]


def _most_entries(bytes_max: int, row_bytes_mean: float) -> int:
    """The most entries whose index and rows, at the mean size, fit together; the index grows in powers of two."""
    low, high = 0, int(bytes_max / (row_bytes_mean + _ARRAY_BYTES))
    while low < high:
        middle = (low + high + 1) // 2
        if HashMultimap.bytes_for(middle) + middle * (_ARRAY_BYTES + row_bytes_mean) <= bytes_max:
            low = middle
        else:
            high = middle - 1
    return low


class RememberedRows:
    """Keys of a relation with their rows, inside `bytes_max`."""

    def __init__(self, schema: pa.Schema, bytes_max: int, row_bytes_mean: float) -> None:
        self._entries_max = _most_entries(bytes_max, row_bytes_mean) if can_be_kept(schema) else 0
        self._first, self._count, self._bytes, self._uses = (np.zeros(self._entries_max, np.int32) for _ in range(4))
        fitting = int(bytes_max * WORK_SHARE) // _WORK_BYTES_PER_ENTRY
        self._part_entries = min(max(fitting, _PART_ENTRIES_MIN), _PART_ENTRIES_MAX)
        self._entry_count = 0
        self._floor = 0.0
        self._probes_to_aging = AGING_PERIODS * self._entries_max
        self.evicted = 0
        """Keys that were remembered and are no more."""
        self._index_bytes = 0
        self._arena: RowArena | None = None
        if self._entries_max:
            self._index = HashMultimap(self._entries_max)
            self._index_bytes = self._index.nbytes + self._entries_max * _ARRAY_BYTES
            self._arena = RowArena(schema, bytes_max - self._index_bytes)

    @property
    def used_bytes(self) -> int:
        """Bytes held now: the whole index and the rows in the arena."""
        return self._index_bytes + (self._arena.used_bytes if self._arena else 0)

    def __len__(self) -> int:
        return self._entry_count

    # Probing ---------------------------------------------------------------------------------------------------------

    def probe(self, codes: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first remembered row of each code and how many there are; 0 for a code that is not remembered."""
        first, count = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        entries = self._index.first(codes) if self._entry_count else np.full(len(codes), -1, np.int64)
        _look_up(entries, self._first, self._count, self._uses, first, count)
        self._probes_to_aging -= len(codes)
        return first, count

    def pairs(self, numbers: Numbers, first: Numbers, count: Numbers) -> PairCursor:
        """Pair stream rows with what `probe` found for them."""
        assert self._arena is not None, "nothing can be found in an empty memory"
        return PairCursor(self._arena.batch, numbers, first, count)

    @property
    def is_due_for_aging(self) -> bool:
        """Whether enough was probed since uses were last halved."""
        return self._entries_max > 0 and self._probes_to_aging <= 0

    def age(self) -> None:
        """Halve all uses, and the price of room with them."""
        self._uses >>= 1
        self._floor /= 2
        self._probes_to_aging = AGING_PERIODS * self._entries_max

    # Remembering -----------------------------------------------------------------------------------------------------

    def offer(self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, uses: Numbers) -> None:
        """Offer keys that are not remembered, each with all of its rows in `batch`; the best of them stay."""
        if self._arena is None or len(codes) == 0:
            return
        sizes = self._bytes_of(batch, first, count)
        score = uses / sizes
        # Who can never fit must not make others leave.
        wanted = np.flatnonzero((score > self._floor) & (sizes <= self._arena.bytes_max))
        if not self._has_room(sizes[wanted]):
            self._make_room(score[wanted])
            wanted = wanted[score[wanted] > self._floor]
            wanted = wanted[np.argsort(-score[wanted], kind="stable")]
            wanted = np.sort(wanted[: self._fitting(sizes[wanted])])
        for part in self._parts(count[wanted]):
            added = wanted[part]
            self._add(batch, codes[added], first[added], count[added], sizes[added], uses[added])

    def clear(self) -> None:
        """Forget everything."""
        if self._arena is not None:
            self._keep(np.zeros(self._entry_count, np.bool_))
        self._floor = 0.0

    def _parts(self, count: npt.NDArray[np.integer[Any]]) -> Iterator[slice]:
        """Cut entries with these numbers of rows into parts of few rows; an entry is never cut."""
        begin = 0
        while begin < len(count):
            until = np.cumsum(count[begin : begin + self._part_entries], dtype=np.int64)
            end = begin + max(1, int(np.searchsorted(until, self._part_entries, side="right")))
            yield slice(begin, end)
            begin = end

    def _bytes_of(self, batch: pa.RecordBatch, first: Numbers, count: Numbers) -> Numbers:
        assert self._arena is not None, "an arena is needed to measure rows"
        sizes = np.empty(len(count), np.int64)
        for part in self._parts(count):
            starts = np.cumsum(count[part]) - count[part]
            row_bytes = self._arena.bytes_of(batch, _rows_of(first[part], count[part]))
            np.add.reduceat(row_bytes, starts, out=sizes[part])
        return sizes

    def _free_bytes(self) -> int:
        assert self._arena is not None, "an arena is needed to have room"
        return self._arena.bytes_max - self._arena.used_bytes

    def _has_room(self, sizes: Numbers) -> bool:
        return self._fitting(sizes) == len(sizes)

    def _fitting(self, sizes: Numbers) -> int:
        by_bytes = int(np.searchsorted(np.cumsum(sizes), self._free_bytes(), side="right"))
        return min(by_bytes, self._entries_max - self._entry_count)

    def _make_room(self, score: npt.NDArray[np.float64]) -> None:
        """Set the price of room, and let the cheapest entries leave if anyone pays more."""
        if self._entry_count == 0:
            return
        self._floor = self._price()
        if bool(np.any(score > self._floor)):
            self._keep(self._staying())

    def _price(self) -> float:
        """The highest uses per byte in the lowest eighth, by bytes or by entries, whichever is more; from a sample."""
        assert self._arena is not None, "an arena is needed to have a price"
        sample = self._sample()
        bytes_held = self._bytes[sample]
        held = self._uses[sample] / bytes_held
        order = np.argsort(held, kind="stable")
        freed_bytes = np.cumsum(bytes_held[order], dtype=np.int64) * (self._entry_count / len(sample))
        by_bytes = int(np.searchsorted(freed_bytes, self._arena.used_bytes * EVICTED_SHARE, side="left")) + 1
        leaving = min(max(by_bytes, int(len(sample) * EVICTED_SHARE)), len(sample))
        return float(held[order[leaving - 1]])

    def _sample(self) -> Numbers:
        """All entries if they are few, otherwise some that are spread evenly and without a period."""
        if self._entry_count <= self._part_entries:
            return np.arange(self._entry_count, dtype=np.int64)
        places = np.arange(self._part_entries) * _GOLDEN_RATIO % 1
        return (places * self._entry_count).astype(np.int64)

    def _staying(self) -> npt.NDArray[np.bool_]:
        assert self._arena is not None, "an arena is needed to have a price"
        stays = np.ones(self._entry_count, np.bool_)
        entries, bytes_ = int(self._entry_count * EVICTED_SHARE), int(self._arena.used_bytes * EVICTED_SHARE)
        _mark_leaving(self._uses, self._bytes, self._floor, entries, bytes_, stays)
        return stays

    def _keep(self, stays: npt.NDArray[np.bool_]) -> None:
        assert self._arena is not None, "an arena is needed to forget rows"
        self._arena.keep_parts(self._rows_staying(stays))
        for array in (self._count, self._bytes, self._uses):
            kept = self._close_gaps(array, stays)
        self.evicted += self._entry_count - kept
        self._entry_count = kept
        np.cumsum(self._count[:kept], dtype=np.int32, out=self._first[:kept])
        self._first[:kept] -= self._count[:kept]
        self._index.clear()
        codes = codes_of(self._arena.batch)
        for part in self._slices(kept):
            entries = np.arange(part.start, part.stop, dtype=np.int64)
            self._index.insert(codes[self._first[part]], entries)

    def _rows_staying(self, stays: npt.NDArray[np.bool_]) -> Iterator[Numbers]:
        for part in self._parts(self._count[: self._entry_count]):
            yield _rows_of(self._first[part][stays[part]], self._count[part][stays[part]])

    def _close_gaps(self, array: npt.NDArray[np.int32], stays: npt.NDArray[np.bool_]) -> int:
        """Move what stays to the front; return how many stay."""
        end = 0
        for part in self._slices(len(stays)):
            kept = array[part][stays[part]]
            array[end : end + len(kept)] = kept
            end += len(kept)
        return end

    def _slices(self, entry_count: int) -> Iterator[slice]:
        """Cut entries into parts, whatever their rows."""
        for begin in range(0, entry_count, self._part_entries):
            yield slice(begin, min(begin + self._part_entries, entry_count))

    def _add(
        self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, sizes: Numbers, uses: Numbers
    ) -> None:
        assert self._arena is not None, "an arena is needed to remember rows"
        begin = self._arena.append(batch, _rows_of(first, count))
        entries = np.arange(self._entry_count, self._entry_count + len(codes), dtype=np.int64)
        self._first[entries] = begin + np.cumsum(count) - count
        self._count[entries] = count
        self._bytes[entries] = sizes
        self._uses[entries] = np.minimum(uses, USES_MAX)
        self._index.insert(codes, entries)
        self._entry_count += len(codes)


def _rows_of(first: npt.NDArray[np.integer[Any]], count: npt.NDArray[np.integer[Any]]) -> Numbers:
    """All row numbers of ranges, one range after the other."""
    if len(count) == 0 or int(count.max()) == 1:
        return np.ascontiguousarray(first, dtype=np.int64)
    ends = np.cumsum(count, dtype=np.int64)
    rows: Numbers = np.arange(int(ends[-1]), dtype=np.int64) + np.repeat(first - (ends - count), count)
    return rows
