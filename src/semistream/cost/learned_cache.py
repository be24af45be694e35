"""Which keys a cache holds that learns them from the stream.

A perfect cache holds the most popular keys. The papers' caches do not know which those are: a key comes in when enough
rows wait for it at the moment its page is read, and goes by a rule of its own. Both are partly chance, so a key of rank
k is in the cache for a share o_k of the time, between 1 for the hottest and 0 for the coldest. Keys come and go on
their own, so

    o = (rows a key stays) / (rows a key stays + rows until it comes in)

in rows of the stream. The hit share is the sum of share times o, and what is let through asks for pages with shares
times (1 - o): less skewed than the stream, more skewed than behind a perfect cache of the same size.

**Coming in** depends on when pages are read; see `semistream.cost.letting_in`. A page with rate P (what is let through
for its keys, with the key in question out of the cache) is read every 1/P + T rows: somebody must come first, and then
waits T (`semistream.cost.steady_state`). T is a number of rows that are let through, and a key that is out lets more
through: for a key that a fifth of the stream asks for, T is half as many rows of the stream as for others
(`residence_while_out_rows`).

A read of a page with a share q of what is let through empties as much of H_S, and a burst of rows fills it, during
which no page is read and no key goes. Keys of the page go in the rest of T, in which pages are read (`trickle_share`),
and a row of it waits already, unless none came in the burst and since (`empty_share`). So what is left of T is
u (1 - q) T on average, with u any part of it (`until_first_read`).

For the same reason rows of a key that comes back at once wait less than others: rows that come evenly during T wait T/2
on average, those that come during the last u T wait u T/2, and since more come in a larger part, all in all T/3.
A page whose keys are mostly in the cache takes less of H_S than its rows would otherwise, and T is longer for all
(`PageShares.wait`).

**Going** is each algorithm's own; see `cachejoin`, `sscj` and `moij`. Where the cache has a fixed number of places, how
fast keys go follows from their sum: `o` must add up to the places (`sharing_places`).

o decides T and P, and they decide o; `settle` repeats the two until they agree, with one T for all pages, and only the
w_S of the end is that of `rows_leaving`. Ranks are taken in groups, the first
`SINGLE_RANKS` one by one, so that a relation of a hundred million keys costs as much as one of a thousand.

Assumes that keys of one group lie on pages like the others', that R has all keys of the stream, a stream that does
not change, and that a loop is the same at all times. It is not where a cache with a low threshold is replaced within
the T of the hottest page: after each read of it hits are many and keys go slowly, so that its keys stay longer than
others, and more rows are hits than this model says.

| symbol | name here        | unit | meaning                                                          |
|--------|------------------|------|------------------------------------------------------------------|
| o      | `occupancy`      | -    | share of the time in which a key of the group is in the cache    |
| s      | `share`          | -    | share of the stream that asks for a key of the group             |
| P      | `page_rate`      | -    | share of the stream that its page gets while it is out           |
| T      | `residence_rows` | rows | of the stream, from the first waiting row of a page to its read  |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from semistream.cost.base import Workload
from semistream.cost.pages import PageShares, page_shares_behind
from semistream.cost.poisson import LEAST_CHANCE
from semistream.cost.steady_state import even_residence, rows_leaving
from semistream.cost.zipf import Floats, Popularity

SINGLE_RANKS = 256
"""Hottest ranks that stand alone."""

GROUP_GROWTH = 1.03
"""Further ranks stand together in groups whose ends grow by this."""

ROUNDS_MAX = 20
"""Of the search for an occupancy that agrees with itself; eight are usual. More would only swing about a threshold."""

RELATIVE_ERROR = 2e-3
"""Of hits, rows let through and w_S, at which the search ends; a tenth of what the model is exact to, or less."""

LEAST_SHARE = 1e-3
"""Of hits: fewer need not be known as exactly."""

GROUPED = 8
"""Laws of popularity whose groups are kept; a tuner asks hundreds of times about one."""

HALVINGS = 24
"""Of the bracket for the pace at which keys go, in the logarithm: to some millionths."""


@dataclass(frozen=True)
class Loop:
    """The steady state of a disk phase behind a cache with some occupancy; arrays are by group of ranks."""

    count: Floats
    """Keys of each group."""
    share: Floats
    occupancy: Floats
    page_rate: Floats
    page: Floats | None
    """The page of the keys of each group, counted from the hottest; None where R is in no order."""
    shares: PageShares
    """Of the pages in what is let through."""
    hit_share: float
    w_s: float
    waiting_rows: float
    """h_S."""
    residence_rows: float
    pages: int
    keys_per_page: float
    wait: Floats
    """How long the rows of a key wait (`PageShares.wait`)."""

    @cached_property
    def residence_while_out_rows(self) -> Floats:
        """T while a key of each group is out: its rows are let through then, and fill H_S the sooner."""
        let_through = 1.0 - self.hit_share
        longer: Floats = self.residence_rows * let_through / (let_through + self.share * self.occupancy)
        return longer

    @cached_property
    def between_reads_rows(self) -> Floats:
        """Between two reads of the page of a key that is out."""
        between: Floats = 1.0 / self.page_rate + self.residence_while_out_rows
        return between

    @cached_property
    def trickle_share(self) -> Floats:
        """In which share of T pages are read; in the rest H_S fills again behind the read of a key's page."""
        on_page = (self.page_rate - self.share * self.occupancy) / (1.0 - self.hit_share)
        share: Floats = np.clip(1.0 - on_page, LEAST_CHANCE, 1.0)
        return share

    @cached_property
    def empty_share(self) -> Floats:
        """The probability that no row waits for the page of a key that goes."""
        trickle_rows = self.trickle_share * self.residence_while_out_rows
        burst_rows = self.residence_while_out_rows - trickle_rows
        empty_rows = np.exp(-self.page_rate * burst_rows) / self.page_rate
        share: Floats = empty_rows / (empty_rows + trickle_rows)
        return share

    @property
    def let_through_while_in(self) -> Floats:
        """What is let through while a key of each group is in, as a share of what is let through on average."""
        of_this_key: Floats = self.share * (1.0 - self.occupancy) / (1.0 - self.hit_share)
        return np.maximum(1.0 - of_this_key, LEAST_CHANCE)

    @property
    def cached_keys(self) -> float:
        """Keys in the cache, on average."""
        return float((self.count * self.occupancy).sum())

    @property
    def rows_per_iteration(self) -> float:
        """w_N + w_S."""
        return self.w_s / (1.0 - self.hit_share)

    @property
    def round_rows(self) -> float:
        """Rows of the stream in as many iterations as R has pages."""
        return self.pages * self.rows_per_iteration

    @property
    def passage_rows(self) -> float:
        """Rows of the stream that come while a row waits, on average: Little's law."""
        return self.waiting_rows / (1.0 - self.hit_share)


def settle(
    workload: Workload,
    page_rows: int,
    waiting_rows: Callable[[float], float],
    occupancy: Callable[[Loop], tuple[Floats, Floats | None]],
    begin: Loop | None = None,
) -> Loop:
    """Find the occupancy that agrees with the loop it makes.

    `waiting_rows` says how many rows may wait beside so many cached keys, `occupancy` what a loop makes of the cache.
    The search begins with the loop of another cache of the same workload, if there is one, or with an empty cache.
    """
    groups = _groups(workload.popularity)
    held, wait = (begin.occupancy, begin.wait) if begin else (np.zeros_like(groups.share), np.ones_like(groups.share))
    loop = _loop(workload, page_rows, groups, held, wait, waiting_rows)
    for _ in range(ROUNDS_MAX):
        # Half of the way: the whole of it would swing, because an empty cache lets in what a full one keeps out.
        share_held, until_in = occupancy(loop)
        held = (held + share_held) / 2.0
        if until_in is not None:
            wait = (wait + _waits(loop, until_in)) / 2.0
        before, loop = loop, _loop(workload, page_rows, groups, held, wait, waiting_rows)
        smaller_share = max(min(loop.hit_share, 1.0 - loop.hit_share), LEAST_SHARE)
        moved = abs(loop.hit_share - before.hit_share) / smaller_share
        if max(moved, abs(loop.w_s / before.w_s - 1.0)) <= RELATIVE_ERROR:
            break
    return replace(loop, w_s=rows_leaving(loop.shares, loop.waiting_rows))


def until_first_read(loop: Loop, empty: Floats, residence_rows: Floats) -> Floats:
    """Rows from when a key goes to the next read of its page, for which no row waits with such a probability."""
    waited_for = loop.trickle_share * residence_rows / 2.0
    until: Floats = empty * (1.0 / loop.page_rate + residence_rows) + (1.0 - empty) * waited_for
    return until


def _waits(loop: Loop, until_in: Floats) -> Floats:
    """How long the rows of a key wait (`PageShares.wait`), which are those that come while it is out."""
    empty, first = loop.empty_share, loop.trickle_share
    further = until_in - until_first_read(loop, empty, loop.residence_while_out_rows)
    whole = empty + np.maximum(further, 0.0) / loop.between_reads_rows
    waits: Floats = ((1.0 - empty) * first**2 / 3.0 + whole) / ((1.0 - empty) * first / 2.0 + whole)
    return waits


def sharing_places(loop: Loop, until_in: Floats, evictable: Floats, sure_rows: float, places: float) -> Floats:
    """The occupancy with which keys share a fixed number of places.

    A key stays for `sure_rows`, and then until it goes, which happens to all at one pace and to each as often as it is
    found `evictable`, a probability. The pace is that for which the places are just taken.
    """

    def occupancy(pace: float) -> Floats:
        stays = sure_rows + 1.0 / (pace * np.maximum(evictable, LEAST_CHANCE))
        shares: Floats = stays / (stays + until_in)
        return shares

    slow, fast = 1e-15, 1e6
    for _ in range(HALVINGS):
        middle = math.sqrt(slow * fast)
        if float((loop.count * occupancy(middle)).sum()) > places:
            slow = middle
        else:
            fast = middle
    return occupancy(fast)


@dataclass(frozen=True)
class _Groups:
    """Ranks that stand together."""

    edges: Floats
    """Ranks at which groups begin and end."""
    count: Floats
    share: Floats


def _edges(keys: int) -> Floats:
    """Ranks at which groups begin and end."""
    if keys <= SINGLE_RANKS:
        return np.arange(keys + 1.0)
    steps = math.ceil(math.log(keys / SINGLE_RANKS) / math.log(GROUP_GROWTH))
    further = np.unique(np.rint(np.geomspace(SINGLE_RANKS, keys, steps + 1)))
    return np.concatenate([np.arange(float(SINGLE_RANKS)), further])


@lru_cache(maxsize=GROUPED)
def _groups(popularity: Popularity) -> _Groups:
    edges = _edges(popularity.keys)
    count = np.diff(edges)
    return _Groups(edges, count, np.diff(popularity.cumulative(edges)) / count)


def _loop(
    workload: Workload,
    page_rows: int,
    groups: _Groups,
    occupancy: Floats,
    wait: Floats,
    waiting_rows: Callable[[float], float],
) -> Loop:
    edges, count, share = groups.edges, groups.count, groups.share
    hit_share = min(float((count * share * occupancy).sum()), 1.0 - 1e-9)
    sums = np.concatenate([[0.0], np.cumsum(count * share * (1.0 - occupancy))])
    keys_per_page = workload.keys_per_page(page_rows)
    pages = math.ceil(workload.keys / keys_per_page)

    def let_through(ranks: Floats) -> Floats:
        summed: Floats = np.interp(ranks, edges, sums)
        return summed

    waited_sums = np.concatenate([[0.0], np.cumsum(count * share * (1.0 - occupancy) * wait)])

    def waited(ranks: Floats) -> Floats:
        summed: Floats = np.interp(ranks, edges, waited_sums)
        return summed

    shares = page_shares_behind(let_through, workload.keys, workload.layout, keys_per_page, waited)
    waiting = waiting_rows(float((count * occupancy).sum()))
    residence = even_residence(shares, waiting)
    page = None
    if workload.layout == "frequency":
        page = np.floor((edges[:-1] + edges[1:]) / 2.0 / keys_per_page)
        on_page = let_through((page + 1.0) * keys_per_page) - let_through(page * keys_per_page)
        of_others = np.maximum(on_page - share * (1.0 - occupancy), 0.0)
    else:
        of_others = np.full_like(share, (1.0 - hit_share) / pages)
    return Loop(
        count=count,
        share=share,
        occupancy=occupancy,
        page_rate=share + of_others,
        page=page,
        hit_share=hit_share,
        shares=shares,
        w_s=1.0 / float((shares.count * shares.share / (1.0 + shares.share * residence)).sum()),
        waiting_rows=waiting,
        residence_rows=residence / (1.0 - hit_share),
        pages=pages,
        keys_per_page=keys_per_page,
        wait=wait,
    )
