"""The loop of HYBRIDJOIN and its heirs, played out row by row. It knows nothing of the models and of the operators.

H_S is filled to h_S rows; the aligned page of the oldest waiting row is read; all waiting rows of that page leave; the
room is filled again from a Zipf stream. A cache of the hottest keys may stand in front (CACHEJOIN), or pinned keys may
take their rows out of H_S in every iteration (X-HYBRIDJOIN).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

DRAWS_AT_ONCE = 1 << 14
OUTSIDE = -1
"""The page of a key that is cached or pinned."""


@dataclass(frozen=True)
class Setting:
    """What is played."""

    keys: int
    keys_per_page: int
    h_s_rows: int
    exponent: float
    layout: str
    hottest_keys: int = 0
    """Keys that are cached; or pinned, as the first keys of R, which in a shuffled R are not the hottest."""
    pinned: bool = False
    """Whether the hottest keys probe H_S, instead of being probed by the stream."""
    seed: int = 1


@dataclass(frozen=True)
class Seen:
    """What happened, per iteration, after the warm-up."""

    w_n: float
    w_s: float

    @property
    def hit_share(self) -> float:
        return self.w_n / (self.w_n + self.w_s)


def play(setting: Setting, rows: int) -> Seen:
    """Play until `rows` rows have left with a page, after a warm-up of ten times h_S of them."""
    stream = _Pages(setting)
    draw = chain.from_iterable(stream.chunks()).__next__
    waiting: deque[tuple[int, int]] = deque()
    """(arrival, page), oldest first; rows of a page that was read since are skipped when they come to the front."""
    rows_on_page, last_read = [0] * stream.pages, [-1] * stream.pages
    room, outside, arrival = setting.h_s_rows, 0, 0
    iterations = hits = left = left_in_warm_up = 0
    warm_up = 10 * setting.h_s_rows
    while left < warm_up + rows:
        counted = left >= warm_up
        in_cache = 0
        while room > 0:
            page = draw()
            arrival += 1
            if page == OUTSIDE and not setting.pinned:
                in_cache += 1
                continue
            room -= 1
            if page == OUTSIDE:
                outside += 1
            else:
                waiting.append((arrival, page))
                rows_on_page[page] += 1
        while waiting[0][0] <= last_read[waiting[0][1]]:
            waiting.popleft()
        page = waiting[0][1]
        leaving, rows_on_page[page], last_read[page] = rows_on_page[page], 0, arrival
        room += leaving + outside
        left += leaving
        if counted:
            iterations, hits = iterations + 1, hits + in_cache + outside
        else:
            left_in_warm_up = left
        outside = 0
    return Seen(hits / iterations, (left - left_in_warm_up) / iterations)


class _Pages:
    """The pages that an endless stream asks for."""

    def __init__(self, setting: Setting) -> None:
        weights = np.arange(1, setting.keys + 1) ** -float(setting.exponent)
        self._cumulative = np.cumsum(weights / weights.sum())
        self._rng = np.random.default_rng(setting.seed)
        place = np.arange(setting.keys)
        if setting.layout == "shuffled":
            place = self._rng.permutation(setting.keys)
        self._page_of = place // setting.keys_per_page
        self.pages = int(self._page_of.max()) + 1
        if setting.pinned and setting.layout == "shuffled":
            # The first pages are pinned, whatever is on them.
            self._page_of[self._page_of < setting.hottest_keys // setting.keys_per_page] = OUTSIDE
        else:
            self._page_of[: setting.hottest_keys] = OUTSIDE

    def chunks(self) -> Iterator[list[int]]:
        while True:
            uniform = self._rng.random(DRAWS_AT_ONCE)
            ranks = np.minimum(np.searchsorted(self._cumulative, uniform), len(self._cumulative) - 1)
            yield self._page_of[ranks].tolist()
