"""Pages of R that stay in memory: SSIJ's cache of blocks, the partition join's join memory.

What comes and what goes is decided by a score of pages, which is the algorithm's own: how many stream rows have asked
for the page lately. A page takes the place of others only if each of them has a lower score.

Memory: the Arrow bytes of the pages and 24 bytes for each distinct code on them, within `bytes_max`; a byte for each
page of R.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from semistream.joins.base import Numbers
from semistream.joins.disk_probing import Page

Score = Callable[[Numbers], npt.NDArray[np.floating]]
"""The scores of pages with these numbers."""


def page_bytes(page: Page) -> int:
    """What a page takes, with the codes that were found on it."""
    return int(page.batch.nbytes + page.codes.nbytes + page.first.nbytes + page.count.nbytes)


class ResidentPages:
    """Pages by number, together within `bytes_max`."""

    def __init__(self, page_count: int, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.is_resident = np.zeros(max(1, page_count), np.bool_)
        self.used_bytes = 0
        self.evicted_keys = 0
        """Keys that were on pages which are here no more."""
        self._pages: dict[int, Page] = {}

    def __len__(self) -> int:
        return len(self._pages)

    def __getitem__(self, number: int) -> Page:
        return self._pages[number]

    @property
    def numbers(self) -> Numbers:
        """The numbers of all pages that are here."""
        return np.fromiter(self._pages, np.int64, len(self._pages))

    def offer(self, number: int, page: Page, score: Score, margin: float = 0.0) -> bool:
        """Keep a page if there is room, or if it beats by `margin` those that would have to go; say whether."""
        needed_bytes = page_bytes(page) - (self.bytes_max - self.used_bytes)
        if needed_bytes > 0:
            leaving = self._coldest(needed_bytes, score)
            beaten = score(leaving) * (1 + margin) < score(np.array([number]))
            if len(leaving) == 0 or not beaten.all():
                return False
            self._drop(leaving)
        self._pages[number] = page
        self.is_resident[number] = True
        self.used_bytes += page_bytes(page)
        return True

    def limit(self, bytes_max: int, score: Score) -> None:
        """Change the memory for pages; the coldest go if there are too many."""
        self.bytes_max = bytes_max
        if self.used_bytes > bytes_max:
            self._drop(self._coldest(self.used_bytes - bytes_max, score))

    def _coldest(self, least_bytes: int, score: Score) -> Numbers:
        """The pages with the lowest scores that take at least so many bytes together; none if all take less."""
        numbers = self.numbers
        numbers = numbers[np.argsort(score(numbers), kind="stable")]
        freed_bytes = np.cumsum([page_bytes(self._pages[number]) for number in numbers.tolist()])
        count = int(np.searchsorted(freed_bytes, least_bytes)) + 1
        return numbers[: count if count <= len(numbers) else 0]

    def _drop(self, numbers: Numbers) -> None:
        self.is_resident[numbers] = False
        for page in map(self._pages.pop, numbers.tolist()):
            self.used_bytes -= page_bytes(page)
            self.evicted_keys += len(page.codes)
