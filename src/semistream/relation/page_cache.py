"""What the operating system's page cache holds, and how to ask it for more before it is needed.

A map makes a read look like a memory access, and a cold one then waits for the device, 4 KiB at a time and alone. So
what is about to be read is looked up (`mincore`) and what is missing is announced (`posix_fadvise`): the reads of
many pages are in flight together, each as one request.

`mincore` tells the truth only about files we own or may write; about others it says that everything is there, so
that nobody can watch what others read. Then, and where the system has no such calls, `resident` is None: not known.
Where there is no `posix_fadvise`, nothing is announced and a cold page is read as it is touched.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

_CAN_ANNOUNCE = hasattr(os, "posix_fadvise")


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


def announce(descriptor: int, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
    """Say that these ranges of a file will be read soon; ranges that touch are announced as one."""
    if not _CAN_ANNOUNCE:
        return
    for begin, end in contiguous_runs(offsets, lengths):
        length = int(offsets[end - 1] + lengths[end - 1] - offsets[begin])
        os.posix_fadvise(descriptor, int(offsets[begin]), length, os.POSIX_FADV_WILLNEED)


def contiguous_runs(offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Group ranges that follow each other without a gap; return the groups as (first, one after the last)."""
    if len(offsets) == 0:
        return []
    breaks = np.flatnonzero(offsets[1:] != offsets[:-1] + lengths[:-1]) + 1
    ends = [*breaks.tolist(), len(offsets)]
    return list(zip([0, *ends[:-1]], ends, strict=True))
