"""The rows that are remembered: those with the greatest benefit per byte.

What is remembered is a key with all of its rows, or nothing of it: half a key would give half an answer. A key's
benefit is how often it was asked for lately; what a miss costs is the same for every key of one relation and cancels
out, so keys compete by *uses per byte*. That is the cache inequality of the many-to-many joins with the price of
reading put in.

Uses age: they are halved after every `AGING_PERIODS` times as many probes as there are entries, so that a key that was
hot yesterday makes room. While there is room everything is let in. Once full, the lowest eighth (by bytes) has a
price, its highest uses per byte; who does not exceed that price is turned away without any sorting, and who does makes
the lowest eighth leave.

Memory: index and counters a key, and the arena's bytes for its rows, all within `bytes_max`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.base import NO_NUMBERS, Numbers
from semistream.joins.matching import PairCursor, codes_of
from semistream.structures.compiled import READ_I32, READ_I64, VOID, WRITE_I32, WRITE_I64, Array, kernel
from semistream.structures.hash_multimap import HashMultimap
from semistream.structures.row_arena import RowArena, can_be_kept

AGING_PERIODS = 10
"""Probes an entry must be seen in, on average, before uses are halved; the sample size W-TinyLFU found good."""

EVICTED_SHARE = 1 / 8
"""Share of the arena that is freed at once: the arena is moved as a whole, so moving must be rare."""

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


def _most_entries(bytes_max: int, row_bytes_mean: float) -> int:
    """The most entries whose index and rows, at the mean size, fit together; the index grows in powers of two."""
    best = 0
    rows = 1
    while HashMultimap.bytes_for(rows) < bytes_max:
        by_index = int(HashMultimap.rows_fitting(HashMultimap.bytes_for(rows)))
        link_bytes = HashMultimap.bytes_for(by_index) - HashMultimap.bytes_for(by_index - 1) if by_index > 1 else 0
        slots_bytes = HashMultimap.bytes_for(by_index) - link_bytes * by_index
        by_bytes = int((bytes_max - slots_bytes) // (link_bytes + _ARRAY_BYTES + row_bytes_mean))
        best = max(best, min(by_index, by_bytes))
        rows *= 2
    return best


class RememberedRows:
    """Keys of a relation with their rows, inside `bytes_max`."""

    def __init__(self, schema: pa.Schema, bytes_max: int, row_bytes_mean: float) -> None:
        self._entries_max = _most_entries(bytes_max, row_bytes_mean) if can_be_kept(schema) else 0
        self._first, self._count, self._bytes, self._uses = (np.zeros(self._entries_max, np.int32) for _ in range(4))
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
        wanted = np.flatnonzero(score > self._floor)
        if not self._has_room(sizes[wanted]):
            self._make_room(sizes[wanted], score[wanted])
            wanted = wanted[score[wanted] > self._floor]
            wanted = wanted[np.argsort(-score[wanted], kind="stable")]
            wanted = np.sort(wanted[: self._fitting(sizes[wanted])])
        self._add(batch, codes[wanted], first[wanted], count[wanted], sizes[wanted], uses[wanted])

    def clear(self) -> None:
        """Forget everything."""
        if self._arena is not None:
            self._keep(np.zeros(self._entry_count, np.bool_))
        self._floor = 0.0

    def _bytes_of(self, batch: pa.RecordBatch, first: Numbers, count: Numbers) -> Numbers:
        assert self._arena is not None, "an arena is needed to measure rows"
        if len(count) == 0:
            return NO_NUMBERS
        starts = np.concatenate(([0], np.cumsum(count)[:-1]))
        sizes: Numbers = np.add.reduceat(self._arena.bytes_of(batch, _rows_of(first, count)), starts)
        return sizes

    def _free_bytes(self) -> int:
        assert self._arena is not None, "an arena is needed to have room"
        return self._arena.bytes_max - self._arena.used_bytes

    def _has_room(self, sizes: Numbers) -> bool:
        return self._fitting(sizes) == len(sizes)

    def _fitting(self, sizes: Numbers) -> int:
        by_bytes = int(np.searchsorted(np.cumsum(sizes), self._free_bytes(), side="right"))
        return min(by_bytes, self._entries_max - self._entry_count)

    def _make_room(self, sizes: Numbers, score: npt.NDArray[np.float64]) -> None:
        """Set the price of room, and let the cheapest entries leave if anyone pays more."""
        assert self._arena is not None, "an arena is needed to make room"
        live = slice(0, self._entry_count)
        held = self._uses[live] / self._bytes[live]
        order = np.argsort(held, kind="stable")
        freed_bytes = np.cumsum(self._bytes[live][order], dtype=np.int64)
        share_bytes = int(self._arena.bytes_max * EVICTED_SHARE)
        by_bytes = int(np.searchsorted(freed_bytes, share_bytes, side="left")) + 1
        leaving = min(max(by_bytes, int(self._entry_count * EVICTED_SHARE)), self._entry_count)
        if leaving == 0:
            return
        self._floor = float(held[order[leaving - 1]])
        if bool(np.any(score > self._floor)):
            stays = np.ones(self._entry_count, np.bool_)
            stays[order[:leaving]] = False
            self._keep(stays)

    def _keep(self, stays: npt.NDArray[np.bool_]) -> None:
        self.evicted += self._entry_count - int(stays.sum())
        kept = np.flatnonzero(stays)
        assert self._arena is not None, "an arena is needed to forget rows"
        self._arena.keep(_rows_of(self._first[kept], self._count[kept]))
        for array in (self._count, self._bytes, self._uses):
            array[: len(kept)] = array[kept]
        self._first[: len(kept)] = np.cumsum(self._count[: len(kept)]) - self._count[: len(kept)]
        self._entry_count = len(kept)
        self._index.clear()
        self._index.insert(codes_of(self._arena.batch)[self._first[: len(kept)]], np.arange(len(kept), dtype=np.int64))

    def _add(
        self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, sizes: Numbers, uses: Numbers
    ) -> None:
        if len(codes) == 0:
            return
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
