"""Where the bytes of pages come from: a map of the data file, or reads into a private buffer.

Both answer the same two questions. `hold(window)` makes many pages readable at once for the gather kernels and says
where each lies; `message(page)` gives one page as the bytes of an Arrow message, for as
long as somebody refers to them. Both verify a page's checksum the first time it is touched, and never again while the
relation is open.

A map costs no private memory and nothing per read once it is warm. It has to fit into the address space, and in a
container that counts mapped pages it competes with everything else. Reading costs a system call and a copy for each
page, and exactly `disk_buffer_bytes` of memory, whatever is read.

Pages are handed out in windows: what a call needs is split so that the pages of one window fit into the disk buffer,
or, for a map with cold pages, into `COLD_WINDOW_BYTES`. This window and the next are announced to the operating
system before this one is used, so that many reads are in flight, without threads. A map whose pages are all warm is
one window.
"""

from __future__ import annotations

import abc
import errno
import mmap
import os
import resource
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MIB, format_bytes
from semistream.errors import BudgetExceeded, RelationCorrupt
from semistream.relations.arrow_file.checksum import WORD_BYTES, first_damaged
from semistream.relations.arrow_file.manifest import REBUILD
from semistream.relations.arrow_file.page_cache import Announcer, PageCache, contiguous_runs
from semistream.relations.arrow_file.page_index import NO_BUFFER, Int64s, PageIndex
from semistream.structures.raw_memory import OVERHANG_BYTES

COLD_WINDOW_BYTES = 16 * MIB
"""Some hundred reads in flight: enough for any device's queue, little enough for a small container's page cache."""

_SAMPLED_PAGES, _SAMPLED_PAGES_IF_WARM = 16, 1
"""Pages looked at before a map is taken for warm, and how many where it was warm the last time and nothing had to be
waited for since: a look costs some tens of microseconds, as much as reading as many rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Pages that are held together."""

    pages: Int64s
    """Their numbers, ascending."""
    is_warm: bool = False
    """All of them are verified and, as far as is known, in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldPages:
    """Bytes in which some pages can be read, viewed in every width a kernel needs.

    Each page has a *slot*, by which kernels name it. In a map pages stand as in the file and the slot is the number of
    the page, so that nothing is computed for a call.
    """

    u8: npt.NDArray[np.uint8]
    i16: npt.NDArray[np.int16]
    i32: npt.NDArray[np.int32]
    i64: npt.NDArray[np.int64]
    moved: _Moved | None

    def slots(self, pages: Int64s) -> Int64s:
        """Return the slots of pages that are held, in any order."""
        return pages if self.moved is None else np.searchsorted(self.moved.pages, pages)

    def starts(self, positions: Int64s) -> Int64s:
        """Return for each slot the byte at which a buffer begins, or `NO_BUFFER` where the page has none.

        `positions` are those of all pages in the file.
        """
        if self.moved is None:
            return positions
        starts = positions[self.moved.pages]
        return np.where(starts == NO_BUFFER, NO_BUFFER, starts + self.moved.shifts)

    def message(self, slot: int, index: PageIndex) -> pa.Buffer:
        """Return one of the pages as the bytes of an Arrow message; readable until the next `hold`."""
        page = slot if self.moved is None else self.moved.pages[slot]
        return pa.py_buffer(self.u8).slice(int(self.starts(index.offset)[slot]), int(index.length[page]))


@dataclass(frozen=True, slots=True, eq=False)
class _Moved:
    """Pages that stand elsewhere than in the file."""

    pages: Int64s
    """Their numbers, ascending."""
    shifts: Int64s
    """For each page, how far it stands behind its place in the file."""


def _held(content: npt.NDArray[np.uint8], moved: _Moved | None) -> HeldPages:
    whole = content[: len(content) // WORD_BYTES * WORD_BYTES]
    return HeldPages(content, whole.view(np.int16), whole.view(np.int32), whole.view(np.int64), moved)


class PageSource(abc.ABC):
    """The pages of one open data file."""

    is_map: bool
    """Whether pages are views of a map, which takes no memory of the process, or copies."""

    def __init__(self, descriptor: int, path: Path, index: PageIndex) -> None:
        self._descriptor = descriptor
        self._path = path
        self._index = index
        self._verified = np.zeros(len(index), np.bool_)
        self._announcer = Announcer(descriptor)
        self._announced: Window | None = None

    @abc.abstractmethod
    def windows(self, pages: Int64s) -> list[Window]:
        """Split ascending page numbers into groups that are held one at a time."""

    @abc.abstractmethod
    def hold(self, window: Window, ahead: Window | None) -> HeldPages:
        """Make the pages of a window readable until the next `hold`; those `ahead` will be wanted next."""

    @abc.abstractmethod
    def message(self, page: int) -> pa.Buffer:
        """Return one page as the bytes of an Arrow message."""

    def _split_by_bytes(self, pages: Int64s, bytes_max: int) -> list[Window]:
        until = np.cumsum(self._index.length[pages])
        windows = []
        begin = 0
        while begin < len(pages):
            before = int(until[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(until, before + bytes_max, side="right")))
            windows.append(Window(pages[begin:end]))
            begin = end
        return windows

    def _announce(self, pages: Int64s) -> None:
        self._announcer.announce(self._index.offset[pages], self._index.length[pages])

    def _unverified(self, pages: Int64s) -> Int64s:
        """Return those that were never checked before."""
        return pages[~self._verified[pages]]

    def _verify(self, pages: Int64s, held: HeldPages) -> None:
        """Check pages."""
        if len(pages) == 0:
            return
        starts = held.starts(self._index.offset)[held.slots(pages)] // WORD_BYTES
        damaged = first_damaged(held.i64, starts, self._index.length[pages] // WORD_BYTES, self._index.checksum[pages])
        if damaged >= 0:
            raise RelationCorrupt(
                f"page {pages[damaged]} of {str(self._path)!r} is damaged",
                given="bytes whose checksum is not the one in the index",
                hint=f"copy the file again if it was copied, or {REBUILD}",
            )
        self._verified[pages] = True


class MappedPages(PageSource):
    """Pages read from a map of the whole data file."""

    is_map = True

    def __init__(self, descriptor: int, path: Path, index: PageIndex, data_bytes: int) -> None:
        super().__init__(descriptor, path, index)
        # The length was checked before: touching a map behind the end of its file ends the process.
        self._map = mmap.mmap(descriptor, data_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
        if hasattr(mmap, "MADV_RANDOM"):
            # A fault shall not read what stands around it: pages are announced as a whole.
            self._map.madvise(mmap.MADV_RANDOM)
        self._buffer = pa.py_buffer(self._map)
        self._held = _held(np.frombuffer(self._map, np.uint8), None)
        self._page_cache = PageCache(descriptor, path, self._buffer.address)
        self._scan_announced = range(-1, -1)
        self._was_warm = False
        self._waits = 0
        self._looks = 0

    def windows(self, pages: Int64s) -> list[Window]:
        """One window when everything is warm, small ones otherwise."""
        if len(pages) and self._looks_warm(pages):
            return [Window(pages, is_warm=True)]
        return self._split_by_bytes(pages, COLD_WINDOW_BYTES)

    def hold(self, window: Window, ahead: Window | None) -> HeldPages:
        """Announce what is cold, and verify what was never verified."""
        new = self._unverified(window.pages)
        if window.is_warm:
            # They will be read from end to end, and a sample was warm, not each of them.
            self._announce(new)
        else:
            if window is not self._announced:
                self._announce_cold(window.pages)
            if ahead is not None:
                self._announce_cold(ahead.pages)
            self._announced = ahead
        self._verify(new, self._held)
        return self._held

    def message(self, page: int) -> pa.Buffer:
        """The page's part of the map; nothing is copied."""
        if page not in self._scan_announced:
            # One page where a key is looked for, many where pages are read in order.
            in_order = page == self._scan_announced.stop
            end = page + (max(1, int(COLD_WINDOW_BYTES // self._index.length[page])) if in_order else 1)
            self._scan_announced = range(page, min(end, len(self._index)))
            self._announce(np.array(self._scan_announced, np.int64))
        if not self._verified[page]:
            self._verify(np.array([page]), self._held)
        return self._buffer.slice(int(self._index.offset[page]), int(self._index.length[page]))

    def _looks_warm(self, pages: Int64s) -> bool:
        self._looks += 1
        # Whatever this process had to wait for: it need not have been this file, but it may.
        waits = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        is_calm = self._was_warm and waits == self._waits
        self._waits = waits
        stride = -(-len(pages) // (_SAMPLED_PAGES_IF_WARM if is_calm else _SAMPLED_PAGES))
        # Others each time.
        sample = pages[self._looks % stride :: stride]
        self._was_warm = all(self._is_resident(page) for page in sample.tolist())
        return self._was_warm

    def _is_resident(self, page: int) -> bool:
        return bool(self._page_cache.resident(int(self._index.offset[page]), int(self._index.length[page])))

    def _announce_cold(self, pages: Int64s) -> None:
        # Pages that were never verified will be read from end to end, so the question is not worth asking.
        cold = [page for page in pages.tolist() if not (self._verified[page] and self._is_resident(page))]
        self._announce(np.array(cold, np.int64))


class ReadPages(PageSource):
    """Pages read into a private buffer of a fixed size."""

    is_map = False

    def __init__(self, descriptor: int, path: Path, index: PageIndex, disk_buffer_bytes: int) -> None:
        super().__init__(descriptor, path, index)
        page_bytes_max = int(index.length.max(initial=0))
        if disk_buffer_bytes < page_bytes_max:
            raise BudgetExceeded(
                "the disk buffer is smaller than the largest page",
                given=format_bytes(disk_buffer_bytes),
                allowed=f"at least {page_bytes_max} bytes",
                hint="give the relation a larger disk buffer, or build it with smaller pages",
            )
        self._disk_buffer_bytes = disk_buffer_bytes
        words = -(-disk_buffer_bytes // WORD_BYTES) + OVERHANG_BYTES // WORD_BYTES
        self._content = np.zeros(words, np.int64).view(np.uint8)
        self._pages_now = np.zeros(0, np.int64)
        self._held_now = _held(self._content, None)

    def windows(self, pages: Int64s) -> list[Window]:
        """As many pages as fit into the disk buffer."""
        return self._split_by_bytes(pages, self._disk_buffer_bytes)

    def hold(self, window: Window, ahead: Window | None) -> HeldPages:
        """Read these pages, unless they are the ones in the buffer."""
        if np.array_equal(window.pages, self._pages_now):
            return self._held_now
        # A copy: they may be the beginning of an array with room for many more.
        pages = window.pages.copy()
        lengths = self._index.length[pages]
        places = np.cumsum(lengths) - lengths
        shifts = places - self._index.offset[pages]
        # Nobody may take half-read pages for held ones after an error.
        self._pages_now = pages[:0]
        if window is not self._announced:
            self._announce(pages)
        if ahead is not None:
            self._announce(ahead.pages)
        self._announced = ahead
        offsets = self._index.offset[pages]
        for begin, end in contiguous_runs(offsets, lengths):
            self._read(int(offsets[begin]), self._content[places[begin] : places[end - 1] + lengths[end - 1]])
        self._held_now = _held(self._content, _Moved(pages, shifts))
        self._verify(self._unverified(pages), self._held_now)
        self._pages_now = pages
        return self._held_now

    def message(self, page: int) -> pa.Buffer:
        """The page in memory of its own."""
        offset, length = int(self._index.offset[page]), int(self._index.length[page])
        words = np.empty(length // WORD_BYTES, np.int64)
        self._read(offset, words.view(np.uint8))
        pages = np.array([page])
        self._verify(self._unverified(pages), _held(words.view(np.uint8), _Moved(pages, np.array([-offset]))))
        return pa.py_buffer(words)

    def _read(self, offset: int, target: npt.NDArray[np.uint8]) -> None:
        done = 0
        while done < len(target):
            count = os.preadv(self._descriptor, [target[done:].data], offset + done)
            if count == 0:
                raise RelationCorrupt(
                    f"{str(self._path)!r} has become shorter while it was read",
                    given=f"it ends before byte {offset + len(target)}",
                    hint=REBUILD,
                )
            done += count


def open_pages(
    access: str, descriptor: int, path: Path, index: PageIndex, data_bytes: int, disk_buffer_bytes: int
) -> PageSource:
    """Open the pages of a data file; a map that does not fit into the address space becomes reads."""
    if access == "map":
        try:
            return MappedPages(descriptor, path, index, data_bytes)
        except OSError as problem:
            if problem.errno != errno.ENOMEM:
                raise
    return ReadPages(descriptor, path, index, disk_buffer_bytes)
