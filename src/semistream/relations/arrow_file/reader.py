"""R in an Arrow file: the embedded store, and the fastest way to find many rows by key.

The data file is sorted by code and cut into pages (see `writer`); the index says which code each page begins with and
where each buffer of it stands. A lookup finds the page of every code, then the row on the page, then copies column by
column straight from the bytes of the file (see `gather_pages`); no Arrow object is made for a page. A page is
contiguous, so a cold key costs one read of the device, not one for each column.

A version in several hash partitions is sorted by partition first, and read as a whole or one partition at a time:
`partitions` are relations of their own, each a range of the pages. In the whole, codes ascend within each partition
only.

Memory: with `access="map"` nothing but what is returned and a bit for each page; with `access="read"` the disk buffer
too. `rows_for` takes 40 bytes for each code it is asked for, with `"read"` 48, besides the batch it is making; of a
version in partitions about 100, which finding the pages needs for a moment.

Not for several threads at a time: open the relation once in each. Only pages may be read side by side, one thread a
partition.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from semistream.budget import MIB
from semistream.errors import ColumnCollision, ColumnNotFound, check_choice, did_you_mean
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.gather_pages import find_pages, list_rows, locate
from semistream.relations.arrow_file.open_file import OpenFile
from semistream.relations.arrow_file.page_columns import FoundRows, RowGatherer
from semistream.relations.arrow_file.page_index import Int64s, PageIndex
from semistream.relations.arrow_file.page_source import Window
from semistream.relations.base import CODE_COLUMN, Codes, RelationInfo
from semistream.relations.partitioned import partition_of

Access = Literal["map", "read"]
"""How pages are read: from a map of the file, or with reads into a private buffer."""


class ArrowFileRelation:
    """One version of a relation directory, opened for reading.

    Args:
        directory: Where the relation lives.
        version: Which version to read.
        columns: User columns that are read, in this order; all of them when None. Key columns only if named.
        access: `"map"`, or `"read"` where the file must not be mapped. A map that does not fit into the address
            space becomes `"read"` by itself.
        disk_buffer_bytes: What `"read"` may hold; at least one page.
    """

    def __init__(
        self,
        directory: RelationDirectory,
        version: int,
        columns: Sequence[str] | None = None,
        access: Access = "map",
        disk_buffer_bytes: int = 1 * MIB,
    ) -> None:
        check_choice("access", access, get_args(Access))
        self._file = OpenFile(directory, version, access, disk_buffer_bytes)
        self.schema = _wanted_schema(self._file.schema, columns)
        self._gatherer = RowGatherer(self.schema, self._file.schema, self._file.index)
        self.info = _info(self._file, self.schema.names)
        self._set_pages(range(len(self._file.index)))
        self.partitions: tuple[ArrowFileRelation, ...] = ()
        """The hash partitions, if there are several; they share the open file."""
        if self.info.partition_count > 1:
            first_pages = self._file.manifest.partition_first_pages
            ends = [*first_pages[1:], len(self._file.index)]
            self.partitions = tuple(map(self._partition, map(range, first_pages, ends)))

    def _set_pages(self, pages: range) -> None:
        """Read these pages of the file only; they are numbered from 0."""
        self._first_page = pages.start
        self._first_code = self._file.index.first_code[pages.start : pages.stop]
        self._page_reads = 0

    def _partition(self, pages: range) -> ArrowFileRelation:
        """The rows on these pages as a relation of its own."""
        part = copy.copy(self)
        part._set_pages(pages)
        part.info = _info_of_pages(self.info, self._file.index, pages)
        return part

    @property
    def page_reads(self) -> int:
        """Pages touched so far; a page that two calls touch counts twice."""
        return self._page_reads + sum(part.page_reads for part in self.partitions)

    # PageByKey and CyclicScan

    @property
    def segment_count(self) -> int:
        """Number of pages."""
        return len(self._first_code)

    def segment(self, number: int) -> pa.RecordBatch:
        """Return a page; from a map, nothing is copied."""
        assert 0 <= number < self.segment_count, "a segment that does not exist"
        self._page_reads += 1
        page = pa.ipc.read_record_batch(self._file.pages.message(self._first_page + number), self._file.schema)
        wanted = page.select(self.schema.names)
        if self._file.pages.is_map or wanted.num_columns == page.num_columns:
            return wanted
        # A column keeps all alive that was read with it, and whoever holds a page pays for what he asked for.
        return pa.ipc.read_record_batch(wanted.serialize(memory_pool=pa.system_memory_pool()), self.schema)

    def page_for(self, code: int) -> pa.RecordBatch:
        """Return the page on which rows of `code` stand, or would stand."""
        if self.segment_count == 0:
            return pa.RecordBatch.from_pylist([], self.schema)
        return self.segment(int(self.page_numbers(np.array([code]))[0]))

    def page_numbers(self, codes: Codes) -> Codes:
        """Return for each code the number of the page on which its rows stand, or would stand."""
        if self.partitions:
            return self._page_numbers_by_partition(codes)
        return np.maximum(np.searchsorted(self._first_code, codes, side="right") - 1, 0)

    def _page_numbers_by_partition(self, codes: Codes) -> Codes:
        """The last page of each code's partition that does not begin behind it, or else the first."""
        first_pages = np.array([*self._file.manifest.partition_first_pages, self.segment_count])
        partitions = partition_of(codes, len(self.partitions))
        first, end = first_pages[partitions], first_pages[partitions + 1]
        low, high = first, end
        for _ in range(int(np.diff(first_pages).max()).bit_length()):
            middle = (low + high) >> 1
            is_behind = (low < high) & (self._first_code[np.minimum(middle, self.segment_count - 1)] <= codes)
            low, high = np.where(is_behind, middle + 1, low), np.where(is_behind, high, middle)
        # In an empty partition nothing can stand: any page shows that a key of it is absent.
        return np.where(first < end, np.maximum(low - 1, first), 0)

    # KeyBatch

    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows whose code is among `codes`, ascending by code; see `KeyBatch`."""
        assert bool(np.all(codes[1:] > codes[:-1])), "codes must be sorted and distinct"
        if self.segment_count == 0:
            return
        codes = np.require(codes, np.int64, ["C", "A"])
        if self.partitions:
            collected = _Collector(max(1, bytes_max // 2))
            for batch in self._rows_by_partition(codes, max(1, bytes_max // 2)):
                yield from collected.add(batch)
            yield from collected.rest()
            return
        # What is smaller than the first code of the first page stands nowhere.
        codes = codes[np.searchsorted(codes, self._first_code[0]) :]
        pages, distinct_pages = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        page_count = find_pages(self._first_code, codes, self._first_page, pages, distinct_pages)
        windows = self._file.pages.windows(distinct_pages[:page_count])
        self._page_reads += page_count
        if len(windows) == 1:
            yield from self._rows_in_window(windows[0], None, codes, pages, bytes_max)
            return
        # Small windows would make small batches; they are put together, which takes their bytes twice.
        half_bytes = max(1, bytes_max // 2)
        collected = _Collector(half_bytes)
        begin = 0
        for window, ahead in zip(windows, [*windows[1:], None], strict=False):
            end = int(np.searchsorted(pages, window.pages[-1], side="right"))
            for batch in self._rows_in_window(window, ahead, codes[begin:end], pages[begin:end], half_bytes):
                yield from collected.add(batch)
            begin = end
        yield from collected.rest()

    def _rows_by_partition(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """All rows of ascending codes, whose pages do not ascend: of so many at a time that one window holds them."""
        pages = self.page_numbers(codes)
        distinct_pages = np.unique(pages)
        windows = self._file.pages.windows(distinct_pages)
        if len(windows) > 1:
            half = len(codes) // 2
            yield from self._rows_by_partition(codes[:half], bytes_max)
            yield from self._rows_by_partition(codes[half:], bytes_max)
        elif windows:
            self._page_reads += len(distinct_pages)
            yield from self._rows_in_window(windows[0], None, codes, pages, bytes_max)

    def _rows_in_window(
        self, window: Window, ahead: Window | None, codes: Codes, pages: Int64s, bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        """All rows of some codes, given the page of each, which are those of one window."""
        held = self._file.pages.hold(window, ahead)
        slots = held.slots(pages)
        rows, counts = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        index = self._file.index
        starts, is_unique = held.starts(index.buffers[0][1]), self.info.rows_per_code_max == 1
        locate(held.i64, starts, slots, index.row_count, index.first_code, is_unique, codes, pages, rows, counts)
        rows_until = np.cumsum(counts)
        row_count = int(rows_until[-1])
        row_bytes = max(self._gatherer.row_bytes_min, self.info.row_bytes_mean)
        done = 0
        while done < row_count:
            # A few more rows than will fit: too many are looked up again, too few make a smaller batch.
            candidates = min(row_count - done, int(bytes_max / row_bytes * 1.1) + 16)
            found = FoundRows(*(np.empty(candidates, np.int64) for _ in range(3)))
            list_rows(codes, slots, rows, rows_until, done, found.codes, found.slots, found.rows)
            # Whoever reads between two batches may have changed what the disk buffer holds.
            held = self._file.pages.hold(window, ahead) if done else held
            batch = self._gatherer.gather(held, found, bytes_max)
            done += len(batch)
            if done < row_count:
                row_bytes = max(self._gatherer.row_bytes_min, batch.nbytes / len(batch))
            yield batch

    # ChangeFeed

    def changed_since(self, version: int) -> Codes | None:
        """Nothing changed since this very version; of others nothing is known."""
        return np.zeros(0, np.int64) if version == self.info.version else None

    # Checking

    def verify_all(self) -> None:
        """Look at every byte of the version; raise `RelationCorrupt` if one is not as it was written."""
        self._file.verify_all()


class _Collector:
    """Puts small batches together to larger ones."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[pa.RecordBatch] = []
        self._part_bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Take a batch; yield what was collected when this one does not fit any more."""
        if self._part_bytes + batch.nbytes > self._bytes_max:
            yield from self.rest()
        self._parts.append(batch)
        self._part_bytes += batch.nbytes

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield what was collected, if anything was."""
        if self._parts:
            # Not from Arrow's own pool, which keeps a megabyte and more of what it was given back.
            pool = pa.system_memory_pool()
            yield self._parts[0] if len(self._parts) == 1 else pa.concat_batches(self._parts, memory_pool=pool)
        self._parts, self._part_bytes = [], 0


def _wanted_schema(file_schema: pa.Schema, columns: Sequence[str] | None) -> pa.Schema:
    names = file_schema.names[1:]
    if columns is None:
        return file_schema
    for name in columns:
        if name not in names:
            raise ColumnNotFound(
                "the relation has no such column",
                given=repr(name),
                allowed=", ".join(names),
                hint=did_you_mean(name, names),
            )
    if len(set(columns)) < len(columns):
        raise ColumnCollision("a column of the relation is asked for twice", given=", ".join(columns))
    return pa.schema([file_schema.field(name) for name in (CODE_COLUMN, *columns)])


def _info(file: OpenFile, columns_read: Sequence[str]) -> RelationInfo:
    manifest = file.manifest
    # The largest values of all columns need not stand in one row, and no row is larger than the largest.
    largest_together = sum(manifest.column_bytes_max[name] for name in columns_read)
    return RelationInfo(
        name=file.name,
        key=manifest.key,
        schema=file.schema.remove(0),
        version=manifest.version,
        row_count=manifest.row_count,
        unique=manifest.unique,
        rows_per_code_max=manifest.rows_per_code_max,
        row_bytes_mean=sum(manifest.column_bytes_mean[name] for name in columns_read),
        row_bytes_max=min(manifest.row_bytes_max, math.ceil(largest_together)),
        page_count=manifest.page_count,
        page_bytes_max=manifest.page_bytes_max,
        partition_count=len(manifest.partition_first_pages),
    )


def _info_of_pages(whole: RelationInfo, index: PageIndex, pages: range) -> RelationInfo:
    """What the index knows of these pages; of single rows and keys it is what holds for the whole."""
    own = slice(pages.start, pages.stop)
    return replace(
        whole,
        row_count=int(index.row_count[own].sum()),
        rows_per_code_max=whole.rows_per_code_max if pages else 0,
        page_count=len(pages),
        page_bytes_max=int(index.length[own].max(initial=0)),
        partition_count=1,
    )
