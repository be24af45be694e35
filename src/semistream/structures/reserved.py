"""Memory for what grows and shrinks: address space at once, memory as it is used.

An array that is allocated anew whenever it changes its size leaves holes behind that fit nothing else, and the process
grows by them although no account does. So the address space for the largest size is reserved at once; the system gives
memory page by page as it is written, and takes it back when told.

The system counts in pages: each piece of address space takes up to a page more than is used of it. Many small ones lie
side by side in one piece, so that all of them together have one page too many at most, however many they are.

The C library keeps what it is given back for the next who asks. Where the next will not ask it, `return_free_memory`
makes it return that to the system.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

WORD_BYTES = 8
"""Whatever is reserved begins and ends at a whole word."""


class Reserved:
    """Address space that takes memory only where it is written, and gives it back when told."""

    def __init__(self, count_bytes: int, space: mmap.mmap | None = None, begin: int = 0) -> None:
        self._space = _address_space(count_bytes) if space is None else space
        self._begin = begin
        end = begin + _in_words(count_bytes)
        # The last page may be the first one of who lies behind.
        self._pages_end = len(self._space) if space is None else end // mmap.PAGESIZE * mmap.PAGESIZE
        whole: Bytes = np.frombuffer(self._space, np.uint8)
        self.bytes: Bytes = whole[begin:end]

    @classmethod
    def side_by_side(cls, sizes: Sequence[int]) -> list[Reserved]:
        """One of each size, in one piece of address space."""
        begins = np.cumsum([0, *(_in_words(size) for size in sizes)]).tolist()
        space = _address_space(begins[-1])
        return [cls(size, space, begin) for size, begin in zip(sizes, begins[:-1], strict=True)]

    def release_from(self, begin: int) -> None:
        """Give back the memory of every whole page from this byte on; it reads as zeros afterwards."""
        page = mmap.PAGESIZE
        first = -(-(self._begin + begin) // page) * page
        if first < self._pages_end:
            self._space.madvise(mmap.MADV_DONTNEED, first, self._pages_end - first)


def _in_words(count_bytes: int) -> int:
    return -(-count_bytes // WORD_BYTES) * WORD_BYTES


def _address_space(count_bytes: int) -> mmap.mmap:
    space = mmap.mmap(-1, max(count_bytes, 1) + 8, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        # Huge pages would take up to 2 MiB behind the last row of each column. A kernel may not know them.
        with contextlib.suppress(OSError):
            space.madvise(mmap.MADV_NOHUGEPAGE)
    return space


def return_free_memory() -> None:
    """Return what the C library has kept to the system, where it can; takes about a millisecond."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
