"""When a key that is out of a cache comes in: at the read of its page at which enough rows wait for it.

At a read, the rows that wait for a key of share s are those that came during T, a Poisson number of mean s T, and one
more if that key was the first, which has the probability s/P. The key comes in if they are `least_waiting` or more.
Symbols and what a read needs are those of `semistream.cost.learned_cache`.

**The first read** is another than those behind it. When a key goes, at any moment between two reads, rows wait for its
page already, and only those that come in what is left of T can be its own: a Poisson number of mean s u (1 - q) T.

**Room.** Where a cache that is full makes room for a part of it at once (`RoomMaking`), more is special:

- The page whose keys want room may be the key's own. It was just read, so all of T is ahead. That happens as often as
  keys that come in are of this page (`_of_own_page`): for the hottest page with every seventh to second part.
- Other keys go together with it. If a sixteenth of all popular keys go at once, what they let through fills H_S, and T
  is the shorter in rows of the stream (`rows_per_let_through`). The mean of what is let through would say too much:
  one time in sixteen the most popular key is among them, and T a twentieth.
- A page with more newcomers than fit lets in the first ones. How many that are is not known: between one part and two,
  because up to one was free (`_chance_of_room`).

Keys of a page come in together, so an iteration either lets some in or none: `share_of_lettings` is how many do. What
that costs is in none of the papers' equations.

Assumes that parts go at any moment of the trickle, and that keys that went together are out together until the read
that this is about.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from semistream.cost.learned_cache import Loop, until_first_read
from semistream.cost.poisson import LEAST_CHANCE, SURE_DEVIATIONS, at_least, at_least_in_a_part, short_of
from semistream.cost.zipf import Floats

ROOM_ROUNDS = 3
"""Of finding how many keys want to come in and how many of them can, which depend on each other."""

LAPLACE_POINTS = 64
"""At which the transform of what is let through is added up, evenly in the logarithm: to a thousandth."""


@dataclass(frozen=True)
class RoomMaking:
    """How a full cache makes room when keys of a page do not fit."""

    keys: int
    """So many go at once."""
    popular_share: float
    """And this share of the popular ones."""


@dataclass(frozen=True)
class _Wants:
    """The probability that a key that is out has enough rows to come in, at reads of its page."""

    residence_rows: Floats
    """T just behind its going."""
    at_first: Floats
    """If its rows were waited for when it went."""
    at_first_whole: Floats
    """If they were not, and all of T was ahead."""
    further: Floats


def rows_until_let_in(loop: Loop, least_waiting: int, room_making: RoomMaking | None = None) -> Floats:
    """How many rows of the stream pass, on average, until a key that goes finds this many rows waiting for it."""
    empty, chance = loop.empty_share, np.ones_like(loop.share)
    if room_making is None:
        return _until_let_in(loop, _wants(loop, least_waiting, loop.residence_while_out_rows), empty, chance)
    wants = _wants(loop, least_waiting, _residence_once_gone(loop, room_making.popular_share))
    until_in = _until_let_in(loop, wants, empty, chance)
    own = _of_own_page(loop, _coming(loop, until_in))
    empty = own + (1.0 - own) * empty
    until_in = _until_let_in(loop, wants, empty, chance)
    for _ in range(ROOM_ROUNDS):
        before = _before_on_page(loop, _coming(loop, until_in) * loop.between_reads_rows / chance)
        most = float(before.max())
        if most + SURE_DEVIATIONS * math.sqrt(most) < room_making.keys:
            break
        chance = _chance_of_room(before, room_making.keys)
        until_in = _until_let_in(loop, wants, empty, chance)
    return until_in


def _wants(loop: Loop, least_waiting: int, residence_rows: Floats) -> _Wants:
    comes_first = loop.share / loop.page_rate

    def of_whole(mean: Floats) -> Floats:
        return comes_first * at_least(mean, least_waiting - 1) + (1.0 - comes_first) * at_least(mean, least_waiting)

    return _Wants(
        residence_rows=residence_rows,
        at_first=at_least_in_a_part(loop.share * loop.trickle_share * residence_rows, least_waiting),
        at_first_whole=of_whole(loop.share * residence_rows),
        further=of_whole(loop.share * loop.residence_while_out_rows),
    )


def _until_let_in(loop: Loop, wants: _Wants, empty: Floats, room: Floats) -> Floats:
    """Rows until a key comes in that finds its page so empty when it goes, and room with such a probability."""
    at_first = empty * wants.at_first_whole + (1.0 - empty) * wants.at_first
    further_reads = (1.0 - room * at_first) / np.maximum(room * wants.further, LEAST_CHANCE)
    until_in: Floats = until_first_read(loop, empty, wants.residence_rows) + loop.between_reads_rows * further_reads
    return until_in


def _coming(loop: Loop, until_in: Floats) -> Floats:
    """Keys of each group that come in with a row of the stream."""
    coming: Floats = loop.count * (1.0 - loop.occupancy) / until_in
    return coming


def _residence_once_gone(loop: Loop, gone_share: float) -> Floats:
    """T of a key with which such a share of all keys has gone."""
    let_through = 1.0 - loop.hit_share
    # While a key is out more is let through, so it is out in a larger share of the iterations than of the rows.
    out = np.minimum((1.0 - loop.occupancy) * (1.0 + loop.share * loop.occupancy / let_through), 1.0)
    once_gone = 1.0 - (1.0 - out) * (1.0 - gone_share)
    residence: Floats = loop.residence_rows * let_through * rows_per_let_through(loop.count, loop.share, once_gone)
    return residence


def rows_per_let_through(count: Floats, share: Floats, out: Floats) -> Floats:
    """Rows of the stream for each that is let through, on average, while a key is out and others are by chance.

    What is let through is a sum X of shares of keys that are out on their own, and the mean of 1/X is the integral of
    the mean of exp(-z X) over z, which is a product over keys.
    """
    let_through = float((count * share * out).sum())
    z = np.geomspace(1e-3, 1e4 / let_through, LAPLACE_POINTS)[:, None]
    while_out = np.exp(-z * share)
    of_one = np.maximum(1.0 - out + out * while_out, LEAST_CHANCE)
    of_all = np.exp((count * np.log(of_one)).sum(axis=1))[:, None]
    steps = z * np.gradient(np.log(z), axis=0)
    rows: Floats = z[0] + (steps * of_all / of_one * while_out).sum(axis=0)
    return rows


def _of_own_page(loop: Loop, coming: Floats) -> Floats:
    """Of all keys that come in, the share that is of the page of a key."""
    if loop.page is None:
        return np.full_like(coming, 1.0 / loop.pages)
    _, page = np.unique(loop.page, return_inverse=True)
    # A large group stands on several pages, which are alike.
    pages = np.maximum(np.bincount(page, loop.count) / loop.keys_per_page, 1.0)
    of_page: Floats = np.bincount(page, coming) / pages / coming.sum()
    return of_page[page]


def share_of_lettings(loop: Loop, until_in: Floats) -> float:
    """In which share of the iterations at least one key comes in."""
    let_through = np.maximum(loop.page_rate - loop.share * loop.occupancy, LEAST_CHANCE)
    return share_with_some(loop, _coming(loop, until_in), 1.0 / (1.0 / let_through + loop.residence_rows))


def share_with_some(loop: Loop, coming: Floats, reads: Floats) -> float:
    """The share of reads with which keys come in, if so many of each group come and each of its pages is read so often.

    Keys come on their own, so those of a read are a Poisson number.
    """
    groups = loop.page if loop.page is not None else np.zeros_like(coming)
    _, page = np.unique(groups, return_inverse=True)
    # All keys of a page are read with it; a large group stands on several pages, which are alike.
    coming_of_page = np.bincount(page, coming)
    reads_of_page = np.bincount(page, loop.count * reads) / loop.keys_per_page
    with_some = reads_of_page * -np.expm1(-coming_of_page / reads_of_page)
    return float(with_some.sum() / reads_of_page.sum())


def _chance_of_room(before: Floats, part_keys: float) -> Floats:
    """The probability that there is room for a key behind so many others, a Poisson number.

    Room is made for a part of the cache when there is not enough, and up to a part was free already, any part of it.
    """
    chance = (short_of(before, 2.0 * part_keys) - short_of(before, part_keys)) / part_keys
    return np.clip(chance, LEAST_CHANCE, 1.0)


def _before_on_page(loop: Loop, keys: Floats) -> Floats:
    """Of so many keys of each group, how many stand on a page before a key of the group."""
    if loop.page is None:
        return np.full_like(keys, float(keys.sum()) / loop.pages / 2.0)
    before = np.cumsum(keys) - keys
    first_of_page = np.searchsorted(loop.page, loop.page)
    # A large group stands on several pages, and its keys are spread over them.
    on_page = keys * np.minimum(1.0, loop.keys_per_page / loop.count)
    in_order: Floats = before - before[first_of_page] + on_page / 2.0
    return in_order
