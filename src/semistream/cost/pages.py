"""How a skewed stream spreads over the pages of R.

An index join reads pages, so what counts is the share of the stream that falls on each. There are two layouts:

- `frequency`: R is stored hottest key first, as in all the papers' experiments. Page shares are differences of Zipf
  sums at the page edges, exact.
- `shuffled`: popularity has nothing to do with the place. One placement is drawn with a fixed seed: the hottest keys
  (up to `PLACED_KEYS`) get places, the rest is spread evenly, because no single one of them can be seen.

Pages are aligned: page i holds the keys from i * d to (i + 1) * d. (The authors' prototype reads d rows *from the
oldest key on*; a page then has no identity and its share no meaning.) A relation has far more pages than different
shares, so pages of almost one share are counted together: `PageShares` holds a share and how many pages have it.

A cache in front takes keys out of the stream, the hottest ones if it is perfect, and shares are of what is left.

Memory: a few arrays of at most `PLACED_KEYS` numbers while shuffled shares are made; results are some thousand
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from semistream.cost.zipf import Floats, Popularity

Layout = Literal["frequency", "shuffled"]
"""Whether R stands in order of popularity, or in an order that has nothing to do with it."""

SINGLE_PAGES = 256
"""Pages that keep their own share; these are the hot ones, where neighbours differ."""

GROUP_GROWTH = 1.02
"""Further pages are counted together in groups whose ends grow by this: shares inside differ by 2 % times s."""

PLACED_KEYS = 1 << 16
"""Hottest keys of a shuffled relation that get a place of their own. At exponent 1 the next one has a millionth of the
stream, which no page can feel."""

SHUFFLE_SEED = 20_110_507


@dataclass(frozen=True)
class PageShares:
    """Shares of the stream behind the cache, hottest page first; they sum to 1 over all pages."""

    share: Floats
    """Share of one page."""
    count: Floats
    """How many pages have this share."""
    wait: Floats | None = None
    """How long rows that follow the first one of a page wait, on average, in halves of the time that the first waits.
    None is 1 for all pages: rows come evenly. Where a page's rows come rather at the end, it is less."""

    @property
    def pages(self) -> float:
        """All pages that are ever asked for."""
        return float(self.count.sum())


@lru_cache(maxsize=64)
def page_shares(popularity: Popularity, layout: Layout, keys_per_page: float, cached_keys: float = 0.0) -> PageShares:
    """Shares of the pages in the stream that a perfect cache of the hottest `cached_keys` lets through."""
    _check(popularity, keys_per_page, cached_keys)

    def let_through(ranks: Floats) -> Floats:
        return popularity.cumulative(np.maximum(ranks, cached_keys))

    return page_shares_behind(let_through, popularity.keys, layout, keys_per_page)


def page_shares_behind(
    let_through: Callable[[Floats], Floats],
    keys: int,
    layout: Layout,
    keys_per_page: float,
    waited: Callable[[Floats], Floats] | None = None,
) -> PageShares:
    """Shares of the pages in what a cache lets through: `let_through` sums it up over the hottest keys.

    `waited` sums up the same rows, each times its wait (`PageShares.wait`).
    """
    if layout == "frequency":
        edges = _page_edges(keys, keys_per_page)
        pages = np.diff(edges)
        waits = None if waited is None else np.diff(waited(edges * keys_per_page)) / pages
        return _sorted(np.diff(let_through(edges * keys_per_page)) / pages, pages, waits)
    waits = None if waited is None else _shuffled(waited, keys, keys_per_page)
    return _gathered(_shuffled(let_through, keys, keys_per_page), waits)


def without_first_keys(
    popularity: Popularity, layout: Layout, keys_per_page: float, first_keys: float
) -> tuple[float, PageShares]:
    """The share of the stream that asks for the first keys of R, and how the rest spreads over pages.

    In order of popularity these are the hottest keys. In a shuffled R they are keys like any others, and their share
    is that of their number; which of them happen to be popular is not to be known.
    """
    _check(popularity, keys_per_page, first_keys)
    if layout == "frequency":
        rest = page_shares(popularity, layout, keys_per_page, first_keys)
        return popularity.share_of_hottest(first_keys), rest
    taken = min(first_keys / keys_per_page, math.ceil(popularity.keys / keys_per_page) - 1.0)
    others = _shuffled(popularity.cumulative, popularity.keys, keys_per_page)[int(taken) :]
    others[0] *= 1.0 - taken % 1.0
    return taken * keys_per_page / popularity.keys, _gathered(others)


def distinct_expected(shares: PageShares, rows: float) -> float:
    """Expected number of different pages that `rows` stream rows ask for."""
    misses = np.exp(rows * np.log1p(-np.minimum(shares.share, 1.0 - 1e-15)))
    return float((shares.count * (1.0 - misses)).sum())


def _check(popularity: Popularity, keys_per_page: float, taken_keys: float) -> None:
    assert keys_per_page >= 1, "a page holds whole keys"
    assert 0 <= taken_keys < popularity.keys, "if memory holds every key there is nothing left to read"


@lru_cache(maxsize=8)
def _page_edges(keys: int, keys_per_page: float) -> Floats:
    """Page numbers at which groups begin and end, the first pages one by one."""
    pages = math.ceil(keys / keys_per_page)
    if pages <= SINGLE_PAGES:
        return np.arange(pages + 1, dtype=np.float64)
    steps = math.ceil(math.log(pages / SINGLE_PAGES) / math.log(GROUP_GROWTH))
    further = np.unique(np.rint(np.geomspace(SINGLE_PAGES, pages, steps + 1)))
    return np.concatenate([np.arange(SINGLE_PAGES, dtype=np.float64), further])


def _shuffled(let_through: Callable[[Floats], Floats], keys: int, keys_per_page: float) -> Floats:
    """The shares of all pages under one random placement."""
    pages = math.ceil(keys / keys_per_page)
    page = _placement(keys, keys_per_page)
    placed = len(page)
    sums = let_through(np.arange(placed + 1.0))
    shares: Floats = np.bincount(page, weights=np.diff(sums), minlength=pages).astype(np.float64)
    if keys > placed:
        room = np.full(pages, keys_per_page)
        room[-1] = keys - (pages - 1) * keys_per_page
        left = np.maximum(room - np.bincount(page, minlength=pages), 0.0)
        tail = float(let_through(np.asarray(float(keys))) - sums[-1])
        shares = shares + left * (tail / left.sum())
    return shares


@lru_cache(maxsize=8)
def _placement(keys: int, keys_per_page: float) -> npt.NDArray[np.int64]:
    """The page of each of the hottest keys, hottest first."""
    placed = min(keys, PLACED_KEYS)
    rng = np.random.default_rng(SHUFFLE_SEED)
    # A permutation while it is affordable; among many more places than keys, double use of one hardly matters.
    places = rng.permutation(keys)[:placed] if keys <= 16 * PLACED_KEYS else rng.integers(0, keys, placed)
    return (places / keys_per_page).astype(np.int64)


def _gathered(shares: Floats, waits: Floats | None = None) -> PageShares:
    """Count pages of about one share together."""
    order = np.argsort(-shares, kind="stable")
    edges = _page_edges(len(order), 1.0)
    starts, pages = edges[:-1].astype(np.int64), np.diff(edges)
    means = None if waits is None else np.add.reduceat(waits[order], starts) / pages
    return _sorted(np.add.reduceat(shares[order], starts) / pages, pages, means)


def _sorted(share: Floats, count: Floats, waits: Floats | None = None) -> PageShares:
    """Hottest first, without pages that nobody asks for unless all are such, and scaled to a sum of 1."""
    asked = (share > 0) & (count > 0)
    if not asked.any():
        # So little is let through that its digits have ended: no page can be told from another.
        share, asked = np.ones_like(share), count > 0
    order = np.flatnonzero(asked)[np.argsort(-share[asked], kind="stable")]
    wait = None if waits is None else waits[order] / share[order]
    share, count = share[order], count[order]
    return PageShares(share / float((share * count).sum()), count, wait)
