"""The segments of a hot set in memory: probing them, and adding rows to one of them.

Whoever maps a segment sees rows being added to it by others. So a segment tells in its header how many of its rows are
complete, readers look at that number once (`look`), and from then on an entry of the index whose rows are not below it
does not exist for them, whether it was there already, is written at this moment or will be. Rows once complete never
change. All this needs no lock; who writes holds one.

The index is a hash table with linear probing. A slot is two words: the code, and the first row (upper half) with the
number of rows (lower half), which is never 0, so that a slot of zeros is free. The upper bits of a code's hash choose
the segment and the lower ones the slot.

Rows are packed (`packed_rows`) and lie one behind the other in the heap of their segment. The directory has two words
of 32 bits for each: where it stands in all heaps, counted in units of eight bytes, and how often it was used. Behind
the last row the directory says where it ends.

Uses are counted in the shared pages themselves, by all processes at once and without any order among them: now and
then a count gets lost, which does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.structures.address_space import AddressSpace
from semistream.structures.columns import Rows, rows_of
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
from semistream.structures.hash_multimap import mixed
from semistream.structures.hot_layout import (
    APPENDING,
    COLUMNS,
    DIRECTORY_BYTES,
    ENTRIES,
    FLOOR,
    ROWS,
    SLOT_BYTES,
    HotLayout,
    Region,
)
from semistream.structures.packed_rows import ROW_UNIT_BYTES, PackedRows, RowSource
from semistream.structures.raw_memory import FETCH_AHEAD_ROWS, OVERHANG_BYTES, fetch

Allocate = Callable[[int, int], None]
"""Makes sure that bytes of a file, from here to there, can be written: a write through the map that finds the device
full would end the process."""

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
def _count_uses(directory: Array, first: Array, count: Array) -> None:
    """Count a use of the rows that were found; apart from finding them, because these lines can be fetched ahead."""
    for i in range(first.size):
        fetch(directory, 2 * first[min(i + FETCH_AHEAD_ROWS, first.size - 1)])
        place = np.uint64(2 * first[i] + 1)
        if count[i] > 0 and directory[place] < USES_MAX:
            directory[place] += 1


@kernel(VOID(READ_I32, READ_I64, I64, WRITE_I64))
def _find_rows(directory: Array, rows: Array, heaps: int, out: Array) -> None:
    """Write the address of each row; the heaps begin at another."""
    for i in range(rows.size):
        fetch(directory, 2 * rows[min(i + FETCH_AHEAD_ROWS, rows.size - 1)])
        out[i] = heaps + np.int64(np.uint32(directory[np.uint64(2 * rows[i])])) * ROW_UNIT_BYTES


@kernel(VOID(READ_I32, READ_I64, READ_I64, WRITE_I64))
def _measure_rows(directory: Array, first: Array, count: Array, out: Array) -> None:
    """Write the bytes of so many rows from each first one on."""
    for i in range(first.size):
        begin, end = directory[2 * first[i]], directory[2 * (first[i] + count[i])]
        out[i] = (np.int64(np.uint32(end)) - np.int64(np.uint32(begin))) * ROW_UNIT_BYTES


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
        self._directory: npt.NDArray[np.int32] = self._array(np.int32, layout.directory)
        self._heaps: npt.NDArray[np.uint8] = self._array(np.uint8, layout.heap)
        self._visible = np.zeros(layout.segments, np.int64)
        self._used_bytes: int | None = None
        """What all segments take, once somebody has asked for it and as long as nothing has changed."""
        self.rows = self._rows_with((False,) * len(layout.row_format.schema))
        """All rows of all segments, by number."""

    def _array(self, dtype: npt.DTypeLike, region: Region) -> npt.NDArray[Any]:
        return self._space.array(dtype, region.in_memory, self.layout.places * region.stride)

    def _rows_with(self, has_nulls: tuple[bool, ...]) -> PackedRows:
        # Functions of the arrays, not of this object: a cycle would keep its addresses until garbage is collected.
        addresses_of = partial(_addresses_of, self._directory, self._heaps)
        return PackedRows(self.layout.row_format, has_nulls, addresses_of, partial(_bytes_of, self._directory))

    # Maps ------------------------------------------------------------------------------------------------------------

    def map(self, place: int, descriptor: int) -> None:
        """Let a place be this file."""
        self._used_bytes = None
        for region in self.layout.regions:
            self._space.map_file(region.in_memory + place * region.stride, descriptor, region.in_file, region.stride)

    def unmap(self, place: int) -> None:
        """Let a place be empty."""
        self._used_bytes = None
        for region in self.layout.regions:
            self._space.unmap(region.in_memory + place * region.stride, region.stride)

    def look(self) -> None:
        """See what is there now; it stays so until the next look, whatever is added."""
        headers = self.headers[: self.layout.segments]
        rows = self._row_counts(slice(0, self.layout.segments))
        if not np.array_equal(rows, self._visible):
            self._used_bytes = None
        self._visible[:] = rows
        has_nulls = tuple((headers[:, COLUMNS : COLUMNS + len(self.rows.has_nulls)].max(axis=0) > 0).tolist())
        if has_nulls != self.rows.has_nulls:
            self.rows = self._rows_with(has_nulls)

    def _row_counts(self, places: slice) -> Rows:
        """The rows of some places, as far as their headers can be believed."""
        return np.clip(self.headers[places, ROWS], 0, self.layout.rows_max)

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
        """The first row of each code and how many there are, 0 for one that is not there."""
        first, count = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        layout = self.layout
        strides = layout.slots_region.stride // SLOT_BYTES, layout.rows_stride
        _probe(self._slots, self._visible, codes, layout.slots, *strides, first, count)
        return first, count

    def use(self, first: Rows, count: Rows) -> None:
        """Count a use of each key that `probe` has found."""
        _count_uses(self._directory, first, count)

    def uses_of(self, first: Rows) -> npt.NDArray[np.int32]:
        """How often keys with these first rows were used."""
        return self._directory[2 * first + 1]

    def halve_uses(self, segment: int, times: int) -> None:
        """Halve the uses of all keys of a segment."""
        begin = 2 * segment * self.layout.rows_stride
        end = begin + 2 * int(self.headers[segment, ROWS])
        self._directory[begin + 1 : end : 2] >>= times

    def entries(self, place: int) -> tuple[Rows, Rows, Rows]:
        """The codes of all keys of a place, their first rows, ascending, and how many rows each has."""
        codes, entries = self._slots_of(place).reshape(-1, 2).T
        # Without those whose rows are not complete; a free slot is none, whatever its number.
        taken = np.flatnonzero((entries != 0) & (entries >> 32 < self.headers[place, ROWS]))
        taken = taken[np.argsort(entries[taken])]
        codes, entries = codes[taken], entries[taken]
        return codes, (entries >> 32) + place * self.layout.rows_stride, entries & _COUNT_BITS

    def sizes_of(self, source: RowSource, first: Rows, count: Rows) -> Rows:
        """What the rows of each key take, in the heap and in the directory."""
        directory_bytes = DIRECTORY_BYTES * np.asarray(count, np.int64)
        if isinstance(source, PackedRows):
            return _bytes_of(self._directory, first, np.ascontiguousarray(count, np.int64)) + directory_bytes
        sizes = np.empty(len(count), np.int64)
        for part in parts_of(count):
            row_bytes = self.layout.row_format.sizes_of(source, rows_of(first[part], count[part]))
            np.add.reduceat(row_bytes, np.cumsum(count[part]) - count[part], out=sizes[part])
        return sizes + directory_bytes

    def rows_bytes(self, places: slice) -> Rows:
        """What the rows of some places take, in the heap and in the directory."""
        rows = self._row_counts(places)
        first = np.arange(self.layout.places)[places] * self.layout.rows_stride
        return _bytes_of(self._directory, first, rows) + rows * DIRECTORY_BYTES

    def used_bytes(self) -> int:
        """What all segments take that are mapped now, as far as was looked."""
        if self._used_bytes is None:
            segments = slice(0, self.layout.segments)
            filled = int(np.count_nonzero(self.headers[segments, ROWS]))
            self._used_bytes = filled * self.layout.fixed_bytes + int(self.rows_bytes(segments).sum())
        return self._used_bytes

    # Writing ---------------------------------------------------------------------------------------------------------

    def begin_segment(self, place: int, segment: int, allocate: Allocate) -> None:
        """Prepare an empty file, mapped at a place, for the rows of a segment."""
        in_file = self.layout.directory.in_file
        allocate(in_file, in_file + DIRECTORY_BYTES)
        self._directory[2 * place * self.layout.rows_stride] = _as_int32(self._first_unit(segment))

    def append(
        self,
        place: int,
        segment: int,
        allocate: Allocate,
        source: RowSource,
        codes: Rows,
        first: Rows,
        count: Rows,
        uses: npt.NDArray[Any],
    ) -> None:
        """Add keys that are not there and fit, each with all of its rows in `source`, to a segment at a place."""
        header = self.headers[place]
        begin = int(header[ROWS])
        rows_total = int(count.sum())
        assert begin + rows_total <= self.layout.rows_max, "more rows than a segment has room for"
        heap_end = self._allocate(allocate, place, segment, self.sizes_of(source, first, count), begin, rows_total)
        header[APPENDING] = 1
        local = begin + np.cumsum(count) - count
        for part in parts_of(count):
            rows = rows_of(first[part], count[part])
            self._write_rows(header, place, segment, source, rows, int(local[part][0]))
        assert self._heap_end(place, segment, begin + rows_total) == heap_end, "rows have another size than was said"
        self._directory[2 * (place * self.layout.rows_stride + local) + 1] = np.minimum(uses, USES_MAX)
        written = _insert(self._slots_of(place), codes, local, np.ascontiguousarray(count, np.int64))
        assert written == len(codes), "the index of a segment is full"
        header[ENTRIES] += len(codes)
        header[ROWS] = begin + rows_total
        header[APPENDING] = 0

    def _allocate(self, allocate: Allocate, place: int, segment: int, sizes: Rows, begin: int, rows_total: int) -> int:
        """Make sure that rows from `begin` on can be written; return where in the heap they will end."""
        layout = self.layout
        heap_begin = self._heap_end(place, segment, begin)
        heap_end = heap_begin + int(sizes.sum()) - rows_total * DIRECTORY_BYTES
        # Kernels check no bounds: this must be known before they write.
        assert heap_end <= layout.rows_bytes_max, "more bytes than a segment has room for"
        directory = layout.directory.in_file + DIRECTORY_BYTES * begin
        allocate(directory, directory + DIRECTORY_BYTES * (rows_total + 1))
        # Who copies strings reads a little behind the last row, and to read what is not allocated allocates it.
        allocate(layout.heap.in_file + heap_begin, layout.heap.in_file + heap_end + OVERHANG_BYTES)
        return heap_end

    def _write_rows(self, header: Rows, place: int, segment: int, source: RowSource, rows: Rows, at: int) -> None:
        """Write rows behind those that are there, the first as row `at`, and where each of them ends."""
        is_packed = isinstance(source, PackedRows)
        sizes = source.sizes_of(rows) if is_packed else self.layout.row_format.sizes_of(source, rows)
        ends = self._heap_end(place, segment, at) + np.cumsum(sizes)
        addresses = self._heaps.ctypes.data + place * self.layout.heap.stride + ends - sizes
        if is_packed:
            source.copy(rows, addresses)
            has_nulls = np.array(source.has_nulls, np.bool_)
        else:
            has_nulls = self.layout.row_format.pack(source, rows, addresses)
        header[COLUMNS : COLUMNS + len(has_nulls)] |= has_nulls
        entries = 2 * (place * self.layout.rows_stride + at + 1 + np.arange(len(rows)))
        self._directory[entries] = _as_int32(self._first_unit(segment) + ends // ROW_UNIT_BYTES)

    def _first_unit(self, segment: int) -> int:
        """Where the heap of a segment begins, also while it is built at another place."""
        return segment * self.layout.heap.stride // ROW_UNIT_BYTES

    def _heap_end(self, place: int, segment: int, rows: int) -> int:
        """Bytes of the first so many rows of a place."""
        unit = int(self._directory[2 * (place * self.layout.rows_stride + rows)]) % 2**32
        return (unit - self._first_unit(segment)) * ROW_UNIT_BYTES

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


def _addresses_of(directory: npt.NDArray[np.int32], heaps: npt.NDArray[np.uint8], rows: Rows) -> Rows:
    addresses = np.empty(len(rows), np.int64)
    _find_rows(directory, rows, heaps.ctypes.data, addresses)
    return addresses


def _bytes_of(directory: npt.NDArray[np.int32], first: Rows, count: Rows | None = None) -> Rows:
    """What so many rows from each first one on take in a heap, or one of them."""
    sizes = np.empty(len(first), np.int64)
    _measure_rows(directory, first, np.ones(len(first), np.int64) if count is None else count, sizes)
    return sizes


def _as_int32(units: Any) -> npt.NDArray[np.int32]:
    """Places of 32 bits without a sign, in an array with one."""
    return np.asarray(units, np.uint32).view(np.int32)
