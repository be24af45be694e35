"""Memory for what grows and shrinks: address space at once, memory as it is used.

An array that is allocated anew whenever it changes its size leaves holes behind that fit nothing else, and the process
grows by them although no account does. So the address space for the largest size is reserved at once; the system gives
memory page by page as it is written, and takes it back when told.

The C library keeps what it is given back for the next who asks. Where the next will not ask it, `return_free_memory`
makes it return that to the system.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class Reserved:
    """Address space that takes memory only where it is written, and gives it back when told."""

    def __init__(self, count_bytes: int) -> None:
        self._map = mmap.mmap(-1, max(count_bytes, 1) + 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            # Huge pages would take up to 2 MiB behind the last row of each column. A kernel may not know them.
            with contextlib.suppress(OSError):
                self._map.madvise(mmap.MADV_NOHUGEPAGE)
        whole: Bytes = np.frombuffer(self._map, np.uint8)
        self.bytes: Bytes = whole[: (count_bytes + 7) // 8 * 8]

    def release_from(self, begin: int) -> None:
        """Give back the memory of every whole page from this byte on; it reads as zeros afterwards."""
        page = mmap.PAGESIZE
        first = -(-begin // page) * page
        if first < len(self._map):
            self._map.madvise(mmap.MADV_DONTNEED, first, len(self._map) - first)


def return_free_memory() -> None:
    """Return what the C library has kept to the system, where it can; takes about a millisecond."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
