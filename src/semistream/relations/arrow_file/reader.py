"""R in an Arrow file: the embedded store, and the fastest way to find many rows by key.

The data file is sorted by code and cut into pages (see `arrow_writer`); the index says which code each page begins
with and where each buffer of it stands. A lookup finds the page of every code, then the row on the page, then copies
column by column straight from the bytes of the file (see `gather_pages`); no Arrow object is made for a page. A page
is contiguous, so a cold key costs one read of the device, not one for each column.

A file is believed only as far as it was checked: its length, the index and the bytes around the pages when it is
opened, each page when it is first touched. Damage raises `RelationCorrupt`; it never gives wrong rows.

Memory: with `access="map"` nothing but what is returned and a bit for each page; with `access="read"` the disk buffer
too. `rows_for` takes 24 bytes for each code it is asked for, besides the batch it is making.

Not for several threads at a time: open the relation once in each.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow as pa

from semistream.budget import MIB
from semistream.errors import ColumnCollision, ColumnNotFound, RelationCorrupt, check_choice, did_you_mean
from semistream.relations.arrow_file.checksum import checksum_around, checksum_bytes
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.gather_pages import OVERHANG_BYTES, list_rows, locate
from semistream.relations.arrow_file.manifest import REBUILD, Manifest
from semistream.relations.arrow_file.page_columns import FoundRows, RowGatherer
from semistream.relations.arrow_file.page_index import Int64s, PageIndex
from semistream.relations.arrow_file.page_source import Window, open_pages
from semistream.relations.base import CODE_COLUMN, Codes, RelationInfo

Access = Literal["map", "read"]
"""How pages are read: from a map of the file, or with reads into a private buffer."""

_MAGIC_BYTES = 8
"""What stands before the schema in an Arrow file: "ARROW1" and two zeros."""

_CODE_BYTES_LOG2 = 3


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
        self._manifest = manifest = directory.manifest(version)
        self._path = directory.data_path(version)
        self._index_path = directory.index_path(version)
        self._descriptor = _open(self._path)
        weakref.finalize(self, os.close, self._descriptor)
        _check_length(self._path, os.fstat(self._descriptor).st_size, manifest.data_bytes)
        index_batch = _read_index(self._index_path, manifest)
        file_schema = self._read_file_schema(index_batch)
        self._index = PageIndex.from_batch(index_batch, file_schema)
        self._pages = open_pages(
            access, self._descriptor, self._path, self._index, manifest.data_bytes, disk_buffer_bytes
        )
        self._file_schema = file_schema
        self.schema = _wanted_schema(file_schema, columns)
        self.info = _info(directory, manifest, file_schema, self.schema.names)
        self.page_reads = 0
        """Pages touched so far; a page that two calls touch counts twice."""
        self._gatherer = RowGatherer(self.schema, file_schema, self._index)

    # PageByKey and CyclicScan

    @property
    def segment_count(self) -> int:
        """Number of pages."""
        return len(self._index)

    def segment(self, number: int) -> pa.RecordBatch:
        """Return a page; from a map, nothing is copied."""
        assert 0 <= number < len(self._index), "a segment that does not exist"
        self.page_reads += 1
        page = pa.ipc.read_record_batch(self._pages.message(number), self._file_schema)
        return page.select(self.schema.names)

    def page_for(self, code: int) -> pa.RecordBatch:
        """Return the page on which rows of `code` stand, or would stand."""
        if len(self._index) == 0:
            return pa.RecordBatch.from_pylist([], self.schema)
        return self.segment(int(self.page_numbers(np.array([code]))[0]))

    def page_numbers(self, codes: Codes) -> Codes:
        """Return for each code the number of the page on which its rows stand, or would stand."""
        return np.maximum(np.searchsorted(self._index.first_code, codes, side="right") - 1, 0)

    # KeyBatch

    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows whose code is among `codes`, ascending by code; see `KeyBatch`."""
        assert bool(np.all(codes[1:] > codes[:-1])), "codes must be sorted and distinct"
        if len(self._index) == 0:
            return
        # What is smaller than the first code of the first page stands nowhere.
        codes = np.require(codes[np.searchsorted(codes, self._index.first_code[0]) :], np.int64, ["C", "A"])
        page_of_code = np.searchsorted(self._index.first_code, codes, side="right") - 1
        begins_page = np.ones(len(codes), np.bool_)
        np.not_equal(page_of_code[1:], page_of_code[:-1], out=begins_page[1:])
        begins = np.flatnonzero(begins_page)
        slots = np.cumsum(begins_page) - 1
        windows = self._pages.windows(page_of_code[begins])
        self.page_reads += len(begins)
        if len(windows) == 1:
            yield from self._rows_in_window(windows[0], None, codes, slots, bytes_max)
            return
        # Small windows would make small batches; they are put together, which takes their bytes twice.
        half_bytes = max(1, bytes_max // 2)
        collected = _Collector(half_bytes)
        first_slot = 0
        for window, ahead in zip(windows, [*windows[1:], None], strict=False):
            end_slot = first_slot + len(window.pages)
            here = slice(begins[first_slot], begins[end_slot] if end_slot < len(begins) else len(codes))
            for batch in self._rows_in_window(window, ahead, codes[here], slots[here] - first_slot, half_bytes):
                yield from collected.add(batch)
            first_slot = end_slot
        yield from collected.rest()

    def _rows_in_window(
        self, window: Window, ahead: Window | None, codes: Codes, slots: Int64s, bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        held = self._pages.hold(window, ahead)
        rows, counts = np.empty(len(codes), np.int64), np.empty(len(codes), np.int64)
        code_starts = held.starts(self._index.buffers[0][1], _CODE_BYTES_LOG2)
        locate(held.i64, code_starts, self._index.row_count[window.pages], codes, slots, rows, counts)
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
            held = self._pages.hold(window, ahead) if done else held
            batch = self._gatherer.gather(held, found, bytes_max)
            done += len(batch)
            row_bytes = max(self._gatherer.row_bytes_min, batch.nbytes / len(batch))
            yield batch

    # ChangeFeed

    def changed_since(self, version: int) -> Codes | None:
        """Nothing changed since this very version; of others nothing is known."""
        return np.zeros(0, np.int64) if version == self.info.version else None

    # Checking

    def verify_all(self) -> None:
        """Look at every byte of the version; raise `RelationCorrupt` if one is not as it was written."""
        _check_length(self._path, self._path.stat().st_size, self._manifest.data_bytes)
        self._read_file_schema(_read_index(self._index_path, self._manifest))
        windows = self._pages.windows(np.arange(len(self._index)))
        for window, ahead in zip(windows, [*windows[1:], None], strict=False):
            self._pages.hold(window, ahead)

    def _read_file_schema(self, index_batch: pa.RecordBatch) -> pa.Schema:
        """Check the bytes before the first and after the last page, and read the schema that stands there."""
        data_bytes = self._manifest.data_bytes
        begin = end = 0
        if len(index_batch):
            begin = index_batch.column("offset")[0].as_py()
            end = index_batch.column("offset")[-1].as_py() + index_batch.column("length")[-1].as_py()
        checksum = checksum_around(self._descriptor, begin, end, data_bytes)
        if checksum != self._manifest.data_rest_checksum or data_bytes - end < OVERHANG_BYTES:
            raise RelationCorrupt(
                f"{str(self._path)!r} is damaged outside its pages",
                given="bytes whose checksum is not the one in the manifest",
                hint=f"copy the file again if it was copied, or {REBUILD}",
            )
        before_pages = os.pread(self._descriptor, begin or data_bytes, 0)
        return pa.ipc.read_schema(pa.py_buffer(before_pages[_MAGIC_BYTES:]))


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


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY)
    except FileNotFoundError as problem:
        raise RelationCorrupt("a file of the relation is missing", given=repr(str(path)), hint=REBUILD) from problem


def _check_length(path: Path, found_bytes: int, expected_bytes: int) -> None:
    if found_bytes != expected_bytes:
        raise RelationCorrupt(
            f"{str(path)!r} has the wrong length",
            given=f"{found_bytes} bytes",
            allowed=f"{expected_bytes} bytes",
            hint=f"copy the file again if it was copied, or {REBUILD}",
        )


def _read_index(path: Path, manifest: Manifest) -> pa.RecordBatch:
    """Map the index and check it."""
    descriptor = _open(path)
    try:
        _check_length(path, os.fstat(descriptor).st_size, manifest.index_bytes)
        try:
            content: mmap.mmap | bytes = mmap.mmap(
                descriptor, manifest.index_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ
            )
        except OSError:
            # No room in the address space: the index is small enough to be read.
            content = os.pread(descriptor, manifest.index_bytes, 0)
    finally:
        os.close(descriptor)
    if checksum_bytes(np.frombuffer(content, np.uint8)) != manifest.index_checksum:
        raise RelationCorrupt(
            f"{str(path)!r} is damaged",
            given="bytes whose checksum is not the one in the manifest",
            hint=f"copy the file again if it was copied, or {REBUILD}",
        )
    return pa.ipc.open_file(pa.py_buffer(content)).get_batch(0)


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


def _info(
    directory: RelationDirectory, manifest: Manifest, file_schema: pa.Schema, columns_read: Sequence[str]
) -> RelationInfo:
    # The largest values of all columns need not stand in one row, and no row is larger than the largest.
    largest_together = sum(manifest.column_bytes_max[name] for name in columns_read)
    return RelationInfo(
        name=directory.name,
        key=manifest.key,
        schema=file_schema.remove(0),
        version=manifest.version,
        row_count=manifest.row_count,
        unique=manifest.unique,
        rows_per_code_max=manifest.rows_per_code_max,
        row_bytes_mean=sum(manifest.column_bytes_mean[name] for name in columns_read),
        row_bytes_max=min(manifest.row_bytes_max, math.ceil(largest_together)),
        page_count=manifest.page_count,
        page_bytes_max=manifest.page_bytes_max,
    )
