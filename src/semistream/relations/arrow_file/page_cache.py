"""What the operating system's page cache holds, and how to ask it for more before it is needed.

A map makes a read look like a memory access, and a cold one then waits for the device, 4 KiB at a time and alone. So
what is about to be read is looked up (`mincore`) and what is missing is announced (`posix_fadvise`): the reads of
many pages are in flight together, each as one request.

`mincore` tells the truth only about files we own or may write; about others it says that everything is there, so
that nobody can watch what others read. Then, and where the system has no such calls, `resident` is None: not known.
Where there is no `posix_fadvise`, nothing is announced and a cold page is read as it is touched.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

_CAN_ANNOUNCE = hasattr(os, "posix_fadvise")
_READ_AHEAD_BYTES_DEFAULT = 128 * 1024
_ANNOUNCED_BYTES_MAX = 1024 * 1024
"""One announcement is one request to the device; beyond this a larger one is not faster."""


def _find_mincore() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).mincore
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    function.restype = ctypes.c_int
    return function


_mincore = _find_mincore()


class PageCache:
    """The page cache's view of one file, which is mapped at `address`."""

    def __init__(self, descriptor: int, path: Path, address: int) -> None:
        self._descriptor = descriptor
        self._address = address
        is_ours = os.fstat(descriptor).st_uid == os.geteuid() or os.access(path, os.W_OK)
        self.knows = _mincore is not None and is_ours
        """Whether `resident` has an answer."""

    def resident(self, offset: int, length: int) -> bool | None:
        """Return whether these bytes of the file are in memory; None when that is not known."""
        if not self.knows or _mincore is None:
            return None
        begin = offset // mmap.PAGESIZE * mmap.PAGESIZE
        count = -(-(offset + length - begin) // mmap.PAGESIZE)
        states = np.empty(count, np.uint8)
        if _mincore(self._address + begin, offset + length - begin, states.ctypes.data) != 0:
            return None
        return bool(np.all(states & 1))


class Announcer:
    """Says which bytes of one file will be read soon.

    Linux reads of one announcement no more than the read-ahead of the device and forgets the rest without a word, so
    what is larger is announced in pieces.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._piece_bytes = min(_ANNOUNCED_BYTES_MAX, _read_ahead_bytes(os.fstat(descriptor).st_dev))

    def announce(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Announce ranges, given in ascending order; those that touch are announced as one."""
        if not _CAN_ANNOUNCE:
            return
        for begin, end in contiguous_runs(offsets, lengths):
            stop = int(offsets[end - 1] + lengths[end - 1])
            # A piece that did not begin with a page of the system would touch one page more than is read.
            aligned = int(offsets[begin]) // mmap.PAGESIZE * mmap.PAGESIZE
            for offset in range(aligned, stop, self._piece_bytes):
                length = min(self._piece_bytes, stop - offset)
                os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_WILLNEED)


def _read_ahead_bytes(device: int) -> int:
    """Return how far the device's read-ahead goes; of a partition it is that of its disk."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for place in (f"class/bdi/{number}", f"dev/block/{number}/queue", f"dev/block/{number}/../queue"):
        with contextlib.suppress(OSError, ValueError):
            kib = int(Path("/sys", place, "read_ahead_kb").read_text())
            return max(mmap.PAGESIZE, kib * 1024)
    return _READ_AHEAD_BYTES_DEFAULT


def contiguous_runs(offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Group ranges that follow each other without a gap; return the groups as (first, one after the last)."""
    if len(offsets) == 0:
        return []
    breaks = np.flatnonzero(offsets[1:] != offsets[:-1] + lengths[:-1]) + 1
    ends = [*breaks.tolist(), len(offsets)]
    return list(zip([0, *ends[:-1]], ends, strict=True))
