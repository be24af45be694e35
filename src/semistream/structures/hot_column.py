"""One column of a hot set: its values in all segments, in Arrow's own layout.

The regions of a column lie side by side in memory, segment by segment (`hot_layout`), so that its values in all
segments are one Arrow array, of which nothing is copied. Rows are written behind those that are there, at the place of
a segment or at the one where a segment is built; the offsets of strings are in both cases those of the segment's own
place.

Before anything is written, room for it is allocated in the file: a write through the map that finds the device full
would end the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.structures.address_space import AddressSpace
from semistream.structures.columns import (
    WORD_BY_WIDTH,
    Layout,
    Rows,
    add_lengths,
    copy_bits,
    copy_fixed,
    copy_strings,
    layout_of,
    offsets_from_lengths,
    set_bits,
    view_of,
)
from semistream.structures.hot_layout import ColumnRegions, HotLayout, Region

Allocate = Callable[[int, int], None]
"""Makes sure that bytes of a file, from here to there, can be written."""


class HotColumn:
    """One column of all segments, in Arrow's layout."""

    def __init__(self, space: AddressSpace, layout: HotLayout, regions: ColumnRegions, data_type: pa.DataType) -> None:
        self.layout = layout_of(data_type)
        self.type = data_type
        self._regions = regions
        self._rows_stride = layout.rows_stride
        self._length = layout.segments * layout.rows_stride
        self._heap_stride = layout.heap_stride
        self._space = space
        self._places = layout.places
        self._validity = self._array(np.uint8, regions.validity)
        self._offsets = self._array(np.int32, regions.offsets)
        if self.layout is Layout.FIXED:
            self._values = self._array(WORD_BY_WIDTH[data_type.bit_width // 8], regions.values)
        else:
            self._values = self._array(np.uint8, regions.values)

    def _array(self, dtype: npt.DTypeLike, region: Region) -> npt.NDArray[Any]:
        return self._space.array(dtype, region.in_memory, self._places * region.stride)

    def array(self, has_nulls: bool) -> pa.Array:
        """All values, without a copy."""
        regions = [self._regions.validity if has_nulls else None]
        if self.layout is Layout.VARIABLE:
            regions.append(self._regions.offsets)
        regions.append(self._regions.values)
        buffers = [r and self._space.buffer(r.in_memory, self._places * r.stride) for r in regions]
        # The number of nulls must be given: whoever counts them reads, and so allocates, what is no row.
        return pa.Array.from_buffers(self.type, self._length, buffers, null_count=int(has_nulls))

    def begin(self, place: int, segment: int) -> None:
        """Write what must stand before the first row."""
        if self.layout is Layout.VARIABLE:
            self._offsets[place * self._rows_stride] = segment * self._heap_stride

    def allocate(self, allocate: Allocate, begin: int, end: int, heap_begin: int, heap_end: int) -> None:
        """Make sure that rows from `begin` to before `end` can be written, and their strings."""
        regions = self._regions
        validity, offsets, values = regions.validity.in_file, regions.offsets.in_file, regions.values.in_file
        allocate(validity + begin // 8, validity + end // 8 + 1)
        if self.layout is Layout.VARIABLE:
            allocate(offsets + 4 * begin, offsets + 4 * (end + 1))
            allocate(values + heap_begin, values + heap_end)
        elif self.layout is Layout.BITS:
            allocate(values + begin // 8, values + end // 8 + 1)
        else:
            width = self.type.bit_width // 8
            allocate(values + width * begin, values + width * end)

    def append(
        self, column: pa.Array, rows: Rows, place: int, segment: int, at: int, heap_used: int
    ) -> tuple[bool, int]:
        """Write these values of a column as rows from `at` on; return whether it has nulls, and the strings' bytes."""
        view = view_of(column, self.layout)
        first = place * self._rows_stride + at
        places = np.arange(first, first + len(rows), dtype=np.int64)
        if view.validity is None:
            set_bits(places, self._validity)
        else:
            copy_bits(view.validity, view.first_bit, rows, places, self._validity)
        if self.layout is Layout.VARIABLE:
            heap_used = self._append_strings(view, rows, places, place, segment, heap_used)
        elif self.layout is Layout.BITS:
            copy_bits(view.data, view.first_bit, rows, places, self._values)
        else:
            copy_fixed(view, self.type.bit_width // 8, rows, places, self._values)
        return view.validity is not None, heap_used

    def _append_strings(self, view: Any, rows: Rows, places: Rows, place: int, segment: int, heap_used: int) -> int:
        lengths = np.zeros(len(rows), np.int64)
        add_lengths(view.offsets, rows, lengths)
        # Kernels check no bounds: this must be known before they write.
        assert heap_used + int(lengths.sum()) <= self._heap_stride, "more bytes than a segment has room for"
        begin = segment * self._heap_stride
        end: int = offsets_from_lengths(lengths, self._offsets[int(places[0]) :], begin + heap_used)
        # Offsets are those of the segment's own place, also while it is built at another.
        target = self._values[(place - segment) * self._heap_stride :]
        copy_strings(view.offsets, view.data, rows, places, self._offsets, target)
        return end - begin
