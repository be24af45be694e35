"""One range of addresses, filled piece by piece with parts of files.

What is shared between processes lies in many files that are replaced one at a time, and kernels want arrays in one
piece. So addresses for all of it are reserved at once, and parts of files are mapped into them
side by side: neighbouring parts then read as one array. A part can be exchanged for one of another file while nobody
reads it; the addresses stay, and with them every view.

Reserved addresses read as zeros and take no memory. Python's own `mmap` cannot be told where to map, so the C
library is called. Where it refuses (a limit on addresses, no such call) there is an `OSError`, and the caller does
without.

Trap: a page that was never written costs nothing until it is read through a map; in a file of a tmpfs, reading it
allocates it. And a write where the file system has no room left ends the process: allocate before writing
(`allocate`).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

PAGE = mmap.PAGESIZE

_MAP_FIXED = 0x10  # The same on Linux and macOS; Python does not name it.
_FAILED = ctypes.c_void_p(-1).value


def whole_pages(count_bytes: int) -> int:
    """The bytes of as many pages as hold so many bytes."""
    return -(-count_bytes // PAGE) * PAGE


def allocate(descriptor: int, begin: int, end: int) -> None:
    """Make sure that these bytes of a file can be written through a map; `OSError` when there is no room."""
    if end > begin and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, begin, end - begin)


def _library() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *([ctypes.c_int] * 3), ctypes.c_int64]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return library


_c = _library()


def _mapped(address: int | None, count_bytes: int, protection: int, flags: int, descriptor: int, offset: int) -> int:
    found = _c.mmap(address, count_bytes, protection, flags, descriptor, offset)
    if found == _FAILED:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(found)


class AddressSpace:
    """Addresses for so many bytes, given back when nothing refers to them any more."""

    def __init__(self, count_bytes: int) -> None:
        self.nbytes = whole_pages(max(1, count_bytes))
        anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._address = _mapped(None, self.nbytes, mmap.PROT_READ, anonymous, -1, 0)
        weakref.finalize(self, _c.munmap, self._address, self.nbytes)

    def map_file(self, at: int, descriptor: int, offset: int, count_bytes: int) -> None:
        """Let these whole pages be those of a file, shared with everybody who maps it."""
        assert at % PAGE == offset % PAGE == count_bytes % PAGE == 0, "only whole pages can be mapped"
        assert 0 <= at and at + count_bytes <= self.nbytes, "mapped outside of what was reserved"
        protection = mmap.PROT_READ | mmap.PROT_WRITE
        _mapped(self._address + at, count_bytes, protection, mmap.MAP_SHARED | _MAP_FIXED, descriptor, offset)

    def unmap(self, at: int, count_bytes: int) -> None:
        """Let these whole pages read as zeros again."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
        _mapped(self._address + at, count_bytes, mmap.PROT_READ, flags, -1, 0)

    def array(self, dtype: npt.DTypeLike, at: int, count_bytes: int) -> npt.NDArray[Any]:
        """These bytes as an array. Only what is mapped may be written."""
        raw = (ctypes.c_uint8 * count_bytes).from_address(self._address + at)
        raw._owner = self  # type: ignore[attr-defined] # Addresses live as long as their last view.
        return np.frombuffer(memoryview(raw), dtype)
