"""Where everything of a hot set stands: in each of its files, and in memory when all of them are mapped side by side.

A hot set is cut into *segments* by the upper bits of a key's hash, each a file of its own. A file is a sequence of
*regions*: a header, an index, a counter of uses for each row, and for each column its validity, offsets and values, in
Arrow's own layout. In memory, region by region, those of all segments lie side by side, so that each column of the
whole hot set is one array and the whole hot set one record batch: row `r` of segment `s` is row
`s * rows_stride + r`. Behind the last segment there is one more place, where a segment is built that will take
another's.

For that every segment has the same number of rows, and it is such that each region is a whole number of pages, one bit
a row included. Most of these rows never exist: files are sparse and take only the pages that were written, of which
`segment_bytes` is the most.

Memory: all segments and the one that is built stay within `bytes_max` together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from semistream.structures.address_space import PAGE, whole_pages
from semistream.structures.columns import OFFSET_MAX, Layout, layout_of
from semistream.structures.hash_multimap import slots_for
from semistream.structures.row_arena import can_be_kept, fixed_bytes_per_row

SEGMENTS_MIN, SEGMENTS_MAX = 8, 128
"""Powers of two. Each worker has a file open for each segment."""

SEGMENT_BYTES = 8 << 20
"""A segment that is built anew takes its time, and the room for it is taken from all others; more are made rather than
larger ones."""

MAPS_MAX = 16_384
"""Parts of files that are mapped; the system has a limit for a process, usually 65 530."""

ENTRIES_MIN = 256
"""A segment for fewer keys is mostly air."""

SLOT_BYTES, USES_BYTES = 16, 4

# Words of a segment's header, before two for each column: whether it has nulls, and the bytes of its strings.
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


@dataclass(frozen=True, slots=True)
class ColumnRegions:
    """The regions of one column; what its layout does not need has no bytes."""

    validity: Region
    offsets: Region
    values: Region


@dataclass(frozen=True)
class HotLayout:
    """How the files and the memory of a hot set are divided."""

    schema: pa.Schema
    segments: int
    segment_bytes: int
    """The most that the pages of one segment take."""
    rows_bytes_max: int
    """What of that is for rows and their uses."""
    slots: int
    entries_max: int
    rows_max: int
    rows_stride: int

    @classmethod
    def of(cls, schema: pa.Schema, bytes_max: int, row_bytes_mean: float, row_count: int) -> HotLayout | None:
        """Divide so many bytes for rows of this kind; None where they are too few, or of types that cannot be kept."""
        if not can_be_kept(schema):
            return None
        regions = 3 + sum(3 if layout_of(field.type) is Layout.VARIABLE else 2 for field in schema)
        segments = SEGMENTS_MIN
        while (
            2 * segments <= SEGMENTS_MAX
            and bytes_max > 2 * segments * SEGMENT_BYTES
            and 2 * segments * regions <= MAPS_MAX
        ):
            segments *= 2
        segment_bytes = bytes_max // (segments + 1)
        if any(layout_of(field.type) is Layout.VARIABLE for field in schema):
            # Offsets of strings have 32 bits, for all segments together.
            segment_bytes = min(segment_bytes, OFFSET_MAX // (segments + 1) - PAGE)
        # A region's last page is rarely full.
        body_bytes = segment_bytes - _header_bytes(schema) - regions * PAGE
        row_bytes = fixed_bytes_per_row(schema) + USES_BYTES
        # Some segments get more of the keys than others.
        most = int(row_count / segments * 1.25) + 1000
        entries_max = _most_entries(body_bytes, max(row_bytes_mean + USES_BYTES, row_bytes), most)
        if entries_max < ENTRIES_MIN:
            return None
        slots = slots_for(entries_max)
        rows_bytes_max = body_bytes - slots * SLOT_BYTES
        rows_max = rows_bytes_max // row_bytes
        # One more than there are rows, for the offset behind the last; a bit for each must fill whole pages.
        rows_stride = -(-(rows_max + 1) // (8 * PAGE)) * 8 * PAGE
        return cls(schema, segments, segment_bytes, rows_bytes_max, slots, entries_max, rows_max, rows_stride)

    @property
    def places(self) -> int:
        """Segments that can be mapped: all of them, and one that is being built."""
        return self.segments + 1

    @property
    def row_bytes(self) -> int:
        """What a row takes besides its strings."""
        return fixed_bytes_per_row(self.schema) + USES_BYTES

    @property
    def heap_stride(self) -> int:
        """Addresses for the strings of one column in each segment."""
        return whole_pages(self.rows_bytes_max)

    @cached_property
    def header(self) -> Region:
        """What identifies a segment, and how much of it is filled."""
        return self._all[0]

    @cached_property
    def slots_region(self) -> Region:
        """The index."""
        return self._all[1]

    @cached_property
    def uses(self) -> Region:
        """How often each row was asked for; of a key with several rows, the first."""
        return self._all[2]

    @cached_property
    def columns(self) -> tuple[ColumnRegions, ...]:
        """The regions of each column."""
        return tuple(ColumnRegions(*self._all[i : i + 3]) for i in range(3, len(self._all), 3))

    @cached_property
    def file_bytes(self) -> int:
        """The length of a segment's file, holes included."""
        return sum(region.stride for region in self._all)

    @cached_property
    def memory_bytes(self) -> int:
        """Addresses for all segments."""
        return self.places * self.file_bytes

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        """All regions that have any bytes."""
        return tuple(region for region in self._all if region.stride)

    def fixed_bytes(self) -> int:
        """What a segment takes however few rows are in it."""
        return _header_bytes(self.schema) + whole_pages(self.slots * SLOT_BYTES)

    @cached_property
    def _all(self) -> tuple[Region, ...]:
        strides = [_header_bytes(self.schema), whole_pages(self.slots * SLOT_BYTES), USES_BYTES * self.rows_stride]
        for field in self.schema:
            strides += self._strides_of(field.type)
        begins = np.concatenate(([0], np.cumsum(strides)))[:-1].tolist()
        return tuple(Region(stride, begin, begin * self.places) for stride, begin in zip(strides, begins, strict=True))

    def _strides_of(self, data_type: pa.DataType) -> list[int]:
        layout, bits = layout_of(data_type), self.rows_stride // 8
        if layout is Layout.VARIABLE:
            return [bits, 4 * self.rows_stride, self.heap_stride]
        return [bits, 0, bits if layout is Layout.BITS else self.rows_stride * data_type.bit_width // 8]


def _header_bytes(schema: pa.Schema) -> int:
    return whole_pages(8 * (COLUMNS + 2 * len(schema)))


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
