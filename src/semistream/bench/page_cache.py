"""The system's cache of file pages: filled or emptied before a contender starts, so that none inherits another's luck.

Pages belong to the memory cgroup that read them first. R that was just written lies in the cache on nobody's bill, and
a contender in a container of 300 MB would read gigabytes of it for nothing. So in a container everything starts cold;
without one, everything that fits starts warm.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

READ_BYTES = 8 << 20


def warm(path: Path) -> None:
    """Read a file, or all files of a folder, once."""
    for file in _files(path):
        with file.open("rb", buffering=0) as stream:
            while stream.read(READ_BYTES):
                pass


def chill(path: Path) -> None:
    """Put a file, or all files of a folder, out of the cache, where the system can do that."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in _files(path):
        descriptor = os.open(file, os.O_RDONLY)
        try:
            # Only what is on disk can be put out.
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    else:
        yield from (file for file in sorted(path.rglob("*")) if file.is_file())
