"""The files of one version, opened and checked as far as can be done without reading rows.

A file is believed only as far as it was checked: its length, the index and the bytes around the pages when it is
opened, each page when it is first touched. Damage raises `RelationCorrupt`; it never gives wrong rows.

Several relations may read one open file, such as all hash partitions of a version: they share the descriptor, the map
or the disk buffer, and what is known to be sound. It is closed when the last of them is gone.
"""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa

from semistream.errors import RelationCorrupt
from semistream.keys import CODE_VERSION
from semistream.relations.arrow_file.checksum import checksum_around, checksum_bytes
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.manifest import REBUILD, Manifest
from semistream.relations.arrow_file.page_index import PageIndex
from semistream.relations.arrow_file.page_source import open_pages
from semistream.structures.raw_memory import OVERHANG_BYTES

_MAGIC_BYTES = 8
"""What stands before the schema in an Arrow file: "ARROW1" and two zeros."""


class OpenFile:
    """The data file and the index file of one version; for `access` see `ArrowFileRelation`."""

    def __init__(self, directory: RelationDirectory, version: int, access: str, disk_buffer_bytes: int) -> None:
        self.name = directory.name
        self.manifest = manifest = directory.manifest(version)
        _check_codes(self.name, manifest)
        self._path = directory.data_path(version)
        self._index_path = directory.index_path(version)
        self._descriptor = _open(self._path)
        weakref.finalize(self, os.close, self._descriptor)
        _check_length(self._path, os.fstat(self._descriptor).st_size, manifest.data_bytes)
        index_batch = _read_index(self._index_path, manifest)
        self.schema = self._read_schema(index_batch)
        """All columns, the code first."""
        self.index = PageIndex.from_batch(index_batch, self.schema)
        self.pages = open_pages(
            access, self._descriptor, self._path, self.index, manifest.data_bytes, disk_buffer_bytes
        )

    def verify_all(self) -> None:
        """Look at every byte of the version; raise `RelationCorrupt` if one is not as it was written."""
        _check_length(self._path, self._path.stat().st_size, self.manifest.data_bytes)
        self._read_schema(_read_index(self._index_path, self.manifest))
        windows = self.pages.windows(np.arange(len(self.index)))
        for window, ahead in zip(windows, [*windows[1:], None], strict=False):
            self.pages.hold(window, ahead)

    def _read_schema(self, index_batch: pa.RecordBatch) -> pa.Schema:
        """Check the bytes before the first and after the last page, and read the schema that stands there."""
        data_bytes = self.manifest.data_bytes
        begin = end = 0
        if len(index_batch):
            begin = index_batch.column("offset")[0].as_py()
            end = index_batch.column("offset")[-1].as_py() + index_batch.column("length")[-1].as_py()
        checksum = checksum_around(self._descriptor, begin, end, data_bytes)
        if checksum != self.manifest.data_rest_checksum or data_bytes - end < OVERHANG_BYTES:
            raise RelationCorrupt(
                f"{str(self._path)!r} is damaged outside its pages",
                given="bytes whose checksum is not the one in the manifest",
                hint=f"copy the file again if it was copied, or {REBUILD}",
            )
        before_pages = os.pread(self._descriptor, begin or data_bytes, 0)
        return pa.ipc.read_schema(pa.py_buffer(before_pages[_MAGIC_BYTES:]))


def _check_codes(name: str, manifest: Manifest) -> None:
    """Codes that were made in another way would be looked for and not be found."""
    if manifest.code_version != CODE_VERSION:
        raise RelationCorrupt(
            f"relation {name!r} was built with another definition of key codes",
            given=f"code version {manifest.code_version}",
            allowed=f"code version {CODE_VERSION}",
            hint="build it anew with `semistream index`",
        )


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
