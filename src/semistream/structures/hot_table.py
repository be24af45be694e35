"""The segments of a hot set in memory: probing them, and adding rows to one of them.

Whoever maps a segment sees rows being added to it by others. So a segment tells in its header how many of its rows are
complete, readers look at that number once (`look`), and from then on an entry of the index whose rows are not below it
does not exist for them, whether it was there already, is written at this moment or will be. Rows once complete never
change. All this needs no lock; who writes holds one.

The index is a hash table with linear probing. A slot is two words: the code, and the first row (upper half) with the
number of rows (lower half), which is never 0, so that a slot of zeros is free. The upper bits of a code's hash choose
the segment and the lower ones the slot.

Uses are counted in the shared pages themselves, by all processes at once and without any order among them: now and
then a count gets lost, which does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.structures.address_space import AddressSpace
from semistream.structures.columns import (
    Layout,
    Rows,
    add_lengths,
    layout_of,
    rows_of,
    view_of,
)
from semistream.structures.compiled import I64, READ_I64, VOID, WRITE_I32, WRITE_I64, Array, inlined, kernel
from semistream.structures.hash_multimap import mixed
from semistream.structures.hot_column import Allocate, HotColumn
from semistream.structures.hot_layout import (
    APPENDING,
    COLUMNS,
    ENTRIES,
    FLOOR,
    ROWS,
    SLOT_BYTES,
    HotLayout,
    Region,
)
from semistream.structures.raw_memory import FETCH_AHEAD_ROWS, fetch

USES_MAX = 2**30
"""Uses stop counting here, far from where 32 bits would turn over."""

PART_ROWS = 16_384
"""Rows that are copied at a time: what that takes in passing is small."""

_COUNT_BITS = _LOWER_HALF = 0xFFFFFFFF


@inlined
def _slot(bits: Any, slot_count: Any) -> Any:
    """The slot at which probing begins, by the lower half of a hash: the upper one has chosen the segment."""
    return np.int64(((bits & np.uint64(_LOWER_HALF)) * np.uint64(slot_count)) >> np.uint64(32))


@kernel(VOID(READ_I64, I64, WRITE_I64))
def _segments_of(codes: Array, segments: int, out: Array) -> None:
    for i in range(codes.size):
        out[i] = np.int64((mixed(codes[i]) >> np.uint64(32)) & np.uint64(segments - 1))


@kernel(VOID(READ_I64, READ_I64, READ_I64, I64, I64, I64, WRITE_I64, WRITE_I64))
def _probe(
    slots: Array,
    visible: Array,
    codes: Array,
    slots_per_segment: int,
    slots_stride: int,
    rows_stride: int,
    out_first: Array,
    out_count: Array,
) -> None:
    segments_mask = np.uint64(visible.size - 1)
    for i in range(codes.size):
        ahead = mixed(codes[min(i + FETCH_AHEAD_ROWS, codes.size - 1)])
        ahead_segment = np.int64((ahead >> np.uint64(32)) & segments_mask)
        fetch(slots, 2 * (ahead_segment * slots_stride + _slot(ahead, slots_per_segment)))
        code = codes[i]
        bits = mixed(code)
        segment = np.int64((bits >> np.uint64(32)) & segments_mask)
        rows = visible[segment]
        out_first[i] = 0
        out_count[i] = 0
        slot = _slot(bits, slots_per_segment)
        begin = segment * slots_stride
        # A table that is all garbage ends, too.
        for _ in range(slots_per_segment if rows > 0 else 0):
            entry = slots[2 * (begin + slot) + 1]
            if entry == 0:
                break
            first = entry >> 32
            count = entry & _COUNT_BITS
            if slots[2 * (begin + slot)] == code and first >= 0 and first + count <= rows:
                out_first[i] = segment * rows_stride + first
                out_count[i] = count
                break
            slot = slot + 1 if slot + 1 < slots_per_segment else 0


@kernel(VOID(WRITE_I32, READ_I64, READ_I64))
def _count_uses(uses: Array, first: Array, count: Array) -> None:
    """Count a use of the rows that were found; apart from finding them, because these lines can be fetched ahead."""
    for i in range(first.size):
        fetch(uses, first[min(i + FETCH_AHEAD_ROWS, first.size - 1)])
        place = np.uint64(first[i])
        if count[i] > 0 and uses[place] < USES_MAX:
            uses[place] += 1


@kernel(I64(WRITE_I64, READ_I64, READ_I64, READ_I64))
def _insert(slots: Array, codes: Array, first: Array, count: Array) -> int:
    """Write entries into the slots of one segment; the codes are not there. Return how many were written."""
    slot_count = slots.size // 2
    for i in range(codes.size):
        slot = _slot(mixed(codes[i]), slot_count)
        passed = 0
        while slots[2 * slot + 1] != 0:
            slot = slot + 1 if slot + 1 < slot_count else 0
            passed += 1
            if passed > slot_count:
                return i
        slots[2 * slot] = codes[i]
        slots[2 * slot + 1] = (first[i] << 32) | count[i]
    return codes.size


class HotTable:
    """All segments of a layout, mapped side by side."""

    def __init__(self, layout: HotLayout) -> None:
        self.layout = layout
        self._space = AddressSpace(layout.memory_bytes)
        places = layout.places
        self.headers: npt.NDArray[np.int64] = self._array(np.int64, layout.header).reshape(places, -1)
        self._slots: npt.NDArray[np.int64] = self._array(np.int64, layout.slots_region)
        self.uses: npt.NDArray[np.int32] = self._array(np.int32, layout.uses)
        self._columns = [
            HotColumn(self._space, layout, regions, field.type)
            for regions, field in zip(layout.columns, layout.schema, strict=True)
        ]
        self._visible = np.zeros(layout.segments, np.int64)
        self._has_nulls: npt.NDArray[np.bool_] = np.zeros(len(layout.schema), np.bool_)
        self.batch = self._batch()

    def _array(self, dtype: npt.DTypeLike, region: Region) -> npt.NDArray[Any]:
        return self._space.array(dtype, region.in_memory, self.layout.places * region.stride)

    def _batch(self) -> pa.RecordBatch:
        """All rows of all segments, and much that is no row between them, as a view."""
        arrays = [column.array(bool(nulls)) for column, nulls in zip(self._columns, self._has_nulls, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.layout.schema)

    # Maps ------------------------------------------------------------------------------------------------------------

    def map(self, place: int, descriptor: int) -> None:
        """Let a place be this file."""
        for region in self.layout.regions:
            self._space.map_file(region.in_memory + place * region.stride, descriptor, region.in_file, region.stride)

    def unmap(self, place: int) -> None:
        """Let a place be empty."""
        for region in self.layout.regions:
            self._space.unmap(region.in_memory + place * region.stride, region.stride)

    def look(self) -> None:
        """See what is there now; it stays so until the next look, whatever is added."""
        headers = self.headers[: self.layout.segments]
        np.minimum(headers[:, ROWS], self.layout.rows_max, out=self._visible)
        has_nulls = np.asarray(headers[:, COLUMNS : COLUMNS + len(self._columns)].max(axis=0) > 0)
        if not np.array_equal(has_nulls, self._has_nulls):
            self._has_nulls = has_nulls
            self.batch = self._batch()

    # Reading ---------------------------------------------------------------------------------------------------------

    def segments_of(self, codes: Rows) -> Rows:
        """The segment of each code."""
        segments = np.empty(len(codes), np.int64)
        _segments_of(codes, self.layout.segments, segments)
        return segments

    @property
    def floors(self) -> npt.NDArray[np.float64]:
        """The price of room in each segment, as it was set last; a copy."""
        return self.headers[: self.layout.segments, FLOOR].copy().view(np.float64)

    def probe(self, codes: Rows) -> tuple[Rows, Rows]:
        """The first row of each code in `batch` and how many there are, 0 for one that is not there."""
        first, count = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        layout = self.layout
        strides = layout.slots_region.stride // SLOT_BYTES, layout.rows_stride
        _probe(self._slots, self._visible, codes, layout.slots, *strides, first, count)
        return first, count

    def use(self, first: Rows, count: Rows) -> None:
        """Count a use of each key that `probe` has found."""
        _count_uses(self.uses, first, count)

    def entries(self, place: int) -> tuple[Rows, Rows]:
        """The first rows of all keys of a place, ascending, and how many each has."""
        entries = self._slots_of(place)[1::2]
        entries = np.sort(entries[entries != 0])
        first = entries >> 32
        complete = first < self.headers[place, ROWS]
        return first[complete] + place * self.layout.rows_stride, (entries & _COUNT_BITS)[complete]

    def sizes_of(self, batch: pa.RecordBatch, first: Rows, count: Rows) -> Rows:
        """What the rows of each key take."""
        sizes = np.empty(len(count), np.int64)
        for part in parts_of(count):
            rows = rows_of(first[part], count[part])
            row_bytes = np.full(len(rows), self.layout.row_bytes, np.int64)
            for field in self.layout.schema:
                if layout_of(field.type) is Layout.VARIABLE:
                    add_lengths(view_of(batch.column(field.name), Layout.VARIABLE).offsets, rows, row_bytes)
            np.add.reduceat(row_bytes, np.cumsum(count[part]) - count[part], out=sizes[part])
        return sizes

    def rows_bytes(self, place: int) -> int:
        """What the rows of a place take, strings included."""
        header = self.headers[place]
        return int(header[ROWS]) * self.layout.row_bytes + int(self._heaps(header).sum())

    def used_bytes(self) -> int:
        """What all segments take that are mapped now."""
        headers = self.headers[: self.layout.segments]
        filled = int(np.count_nonzero(headers[:, ROWS]))
        rows, heaps_bytes = int(headers[:, ROWS].sum()), int(self._heaps(headers).sum())
        return filled * self.layout.fixed_bytes() + rows * self.layout.row_bytes + heaps_bytes

    # Writing ---------------------------------------------------------------------------------------------------------

    def begin_segment(self, place: int, segment: int) -> None:
        """Prepare an empty file, mapped at a place, for the rows of a segment."""
        for column in self._columns:
            column.begin(place, segment)

    def append(
        self,
        place: int,
        segment: int,
        allocate: Allocate,
        batch: pa.RecordBatch,
        first: Rows,
        count: Rows,
        uses: npt.NDArray[Any],
    ) -> None:
        """Add keys that are not there and fit, each with all of its rows in `batch`, to a segment at a place."""
        header = self.headers[place]
        begin = int(header[ROWS])
        rows_total = int(count.sum())
        assert begin + rows_total <= self.layout.rows_max, "more rows than a segment has room for"
        heaps = self._heaps(header)
        self._allocate(allocate, batch, first, count, begin, heaps)
        header[APPENDING] = 1
        codes = batch.column(0).to_numpy(zero_copy_only=True)[first]
        local = begin + np.cumsum(count) - count
        for part in parts_of(count):
            rows = rows_of(first[part], count[part])
            at = int(local[part][0])
            for i, field in enumerate(self.layout.schema):
                column = batch.column(field.name)
                has_nulls, heap_used = self._columns[i].append(column, rows, place, segment, at, int(heaps[i]))
                header[COLUMNS + i] |= has_nulls
                heaps[i] = heap_used
        self.uses[place * self.layout.rows_stride + local] = np.minimum(uses, USES_MAX)
        written = _insert(self._slots_of(place), codes, local, np.ascontiguousarray(count, np.int64))
        assert written == len(codes), "the index of a segment is full"
        header[ENTRIES] += len(codes)
        header[ROWS] = begin + rows_total
        header[APPENDING] = 0

    def _allocate(
        self, allocate: Allocate, batch: pa.RecordBatch, first: Rows, count: Rows, begin: int, heaps: Rows
    ) -> None:
        end = begin + int(count.sum())
        uses = self.layout.uses.in_file
        allocate(uses + 4 * begin, uses + 4 * end)
        for i, (column, field) in enumerate(zip(self._columns, self.layout.schema, strict=True)):
            heap_bytes = 0
            if column.layout is Layout.VARIABLE:
                offsets = view_of(batch.column(field.name), Layout.VARIABLE).offsets
                for part in parts_of(count):
                    rows = rows_of(first[part], count[part])
                    lengths = np.zeros(len(rows), np.int64)
                    add_lengths(offsets, rows, lengths)
                    heap_bytes += int(lengths.sum())
            column.allocate(allocate, begin, end, int(heaps[i]), int(heaps[i]) + heap_bytes)

    def _heaps(self, header: Rows) -> Rows:
        """The bytes of each column's strings."""
        begin = COLUMNS + len(self._columns)
        return header[..., begin : begin + len(self._columns)]

    def _slots_of(self, place: int) -> npt.NDArray[np.int64]:
        words = self.layout.slots_region.stride // 8
        return self._slots[place * words : place * words + self.layout.slots * SLOT_BYTES // 8]


def parts_of(count: npt.NDArray[Any]) -> Iterator[slice]:
    """Cut keys with these numbers of rows into parts of few rows; a key is never cut."""
    begin = 0
    while begin < len(count):
        until = np.cumsum(count[begin : begin + PART_ROWS], dtype=np.int64)
        end = begin + max(1, int(np.searchsorted(until, PART_ROWS, side="right")))
        yield slice(begin, end)
        begin = end
