"""Where everything of a hot set stands: in each of its files, and in memory when all of them are mapped side by side.

A hot set is cut into *segments* by the upper bits of a key's hash, each a file of its own. A file has four *regions*: a
header; an index from codes to row numbers; a directory, which says of each row where it stands and how often it was
used; and a heap of packed rows (`packed_rows`), one behind the other. In memory, region by region, those of all
segments lie side by side, so that the directory of the whole hot set is one array, and one the heap: row `r` of segment
`s` is row `s * rows_stride + r`. Behind the last segment there is one more place, where a segment is built that will
take another's.

For that every segment has the same number of rows, and each region is a whole number of pages. Most of these rows never
exist: files are sparse and take only the pages that were written, of which `segment_bytes` is the most.

Memory: all segments and the one that is built stay within `bytes_max` together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from semistream.structures.address_space import PAGE, whole_pages
from semistream.structures.hash_multimap import slots_for
from semistream.structures.packed_rows import ROW_UNIT_BYTES, RowFormat
from semistream.structures.raw_memory import OVERHANG_BYTES
from semistream.structures.row_arena import can_be_kept

SEGMENTS_MIN, SEGMENTS_MAX = 8, 128
"""Powers of two. Each worker has a file open for each segment."""

SEGMENT_BYTES = 8 << 20
"""A segment that is built anew takes its time, and the room for it is taken from all others; more are made rather than
larger ones."""

HEAPS_BYTES_MAX = ROW_UNIT_BYTES << 32
"""What a place of 32 bits in the directory can reach, all segments together."""

ENTRIES_MIN = 256
"""A segment for fewer keys is mostly air."""

SLOT_BYTES, CODE_BYTES = 16, 8

DIRECTORY_BYTES = 8
"""For each row, 32 bits each for its place in all heaps and for its uses."""

# Words of a segment's header, before one for each column: whether it has nulls.
MAGIC, FINGERPRINT, SEGMENT, CHECK, ROWS, ENTRIES, APPENDING, FLOOR = range(8)
COLUMNS = 8


@dataclass(frozen=True, slots=True)
class Region:
    """A part of each segment's file."""

    stride: int
    """Its bytes in each segment, whole pages."""
    in_file: int
    """Where it begins in a file."""
    in_memory: int
    """Where it begins in memory, for the first segment."""


@dataclass(frozen=True)
class HotLayout:
    """How the files and the memory of a hot set are divided."""

    schema: pa.Schema
    segments: int
    segment_bytes: int
    """The most that the pages of one segment take."""
    rows_bytes_max: int
    """What of that is for rows and the directory."""
    slots: int
    entries_max: int
    rows_max: int
    rows_stride: int

    @classmethod
    def of(cls, schema: pa.Schema, bytes_max: int, row_bytes_mean: float, row_count: int) -> HotLayout | None:
        """Divide so many bytes for rows of this kind; None where they are too few, or of types that cannot be kept."""
        if not can_be_kept(schema):
            return None
        segments = SEGMENTS_MIN
        while 2 * segments <= SEGMENTS_MAX and bytes_max > 2 * segments * SEGMENT_BYTES:
            segments *= 2
        segment_bytes = min(bytes_max // (segments + 1), HEAPS_BYTES_MAX // (segments + 1) - PAGE)
        # The last page of each region is rarely full, and who reads a little behind the last row may touch another.
        body_bytes = segment_bytes - _header_bytes(schema) - 4 * PAGE
        row_format = _row_format(schema)
        row_bytes = row_format.row_bytes_min + DIRECTORY_BYTES
        # A packed row has a bitmap, and half a unit behind it that it does not fill, but no code.
        packed_bytes_mean = row_bytes_mean - CODE_BYTES + row_format.bitmap_bytes + ROW_UNIT_BYTES / 2
        packed_bytes_mean += DIRECTORY_BYTES
        # Some segments get more of the keys than others.
        most = int(row_count / segments * 1.25) + 1000
        entries_max = _most_entries(body_bytes, max(packed_bytes_mean, row_bytes), most)
        if entries_max < ENTRIES_MIN:
            return None
        slots = slots_for(entries_max)
        rows_bytes_max = body_bytes - slots * SLOT_BYTES
        rows_max = rows_bytes_max // row_bytes
        # One more than there are rows, for the end of the last.
        rows_stride = whole_pages((rows_max + 1) * DIRECTORY_BYTES) // DIRECTORY_BYTES
        return cls(schema, segments, segment_bytes, rows_bytes_max, slots, entries_max, rows_max, rows_stride)

    @property
    def places(self) -> int:
        """Segments that can be mapped: all of them, and one that is being built."""
        return self.segments + 1

    @cached_property
    def row_format(self) -> RowFormat:
        """What rows look like."""
        return _row_format(self.schema)

    @cached_property
    def header(self) -> Region:
        """What identifies a segment, and how much of it is filled."""
        return self._all[0]

    @cached_property
    def slots_region(self) -> Region:
        """The index."""
        return self._all[1]

    @cached_property
    def directory(self) -> Region:
        """Where each row stands, and how often it was asked for; of a key with several rows, the first."""
        return self._all[2]

    @cached_property
    def heap(self) -> Region:
        """The rows themselves."""
        return self._all[3]

    @cached_property
    def file_bytes(self) -> int:
        """The length of a segment's file, holes included."""
        return sum(region.stride for region in self._all)

    @cached_property
    def memory_bytes(self) -> int:
        """Addresses for all segments."""
        return self.places * self.file_bytes

    @property
    def regions(self) -> tuple[Region, ...]:
        """All of them."""
        return self._all

    @cached_property
    def fixed_bytes(self) -> int:
        """What a segment takes however few rows are in it."""
        return _header_bytes(self.schema) + whole_pages(self.slots * SLOT_BYTES)

    @cached_property
    def _all(self) -> tuple[Region, ...]:
        strides = [
            _header_bytes(self.schema),
            whole_pages(self.slots * SLOT_BYTES),
            self.rows_stride * DIRECTORY_BYTES,
            # Who copies strings reads a little behind the last row.
            whole_pages(self.rows_bytes_max + OVERHANG_BYTES),
        ]
        begins = np.concatenate(([0], np.cumsum(strides)))[:-1].tolist()
        return tuple(Region(stride, begin, begin * self.places) for stride, begin in zip(strides, begins, strict=True))


def _row_format(schema: pa.Schema) -> RowFormat:
    """Rows without their codes, which stand first: the index has them."""
    return RowFormat(schema.remove(0))


def _header_bytes(schema: pa.Schema) -> int:
    return whole_pages(8 * (COLUMNS + len(schema)))


def _most_entries(bytes_max: int, entry_bytes: float, most: int) -> int:
    """The most keys whose index and rows, at the mean size, fit together."""
    low, high = 0, min(most, max(0, int(bytes_max / entry_bytes)))
    while low < high:
        middle = (low + high + 1) // 2
        if slots_for(middle) * SLOT_BYTES + middle * entry_bytes <= bytes_max:
            low = middle
        else:
            high = middle - 1
    return low
