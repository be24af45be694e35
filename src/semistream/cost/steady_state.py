"""How many rows leave with each page, when the oldest waiting row decides which page is read.

This is the loop of HYBRIDJOIN and of everything built on it: H_S is filled to h_S rows; the page of the oldest waiting
row is read; all waiting rows of that page leave; the room is refilled from the stream. The papers leave open how many
leave (w, or w_S), or take an average over pages as if each were read equally often. It follows from h_S and the share
p_i of each page, as below. Time is counted in rows admitted to H_S, so page i receives p_i rows a unit of time.

**1. The life of a page.** Empty; after 1/p_i, on average, a row comes: the page's *head*. Heads are served first come,
first served. When the head's turn comes, T_i later, the head and the p_i T_i rows that came meanwhile leave together.
So a page is read r_i = 1 / (1/p_i + T_i) times a unit of time, n_i = 1 + p_i T_i rows leave with it, and

    w = 1 / sum_i r_i                                              (sum_i r_i n_i = sum_i p_i = 1)

**2. How long is T?** H_S is always refilled to h_S, but while a batch of n is being admitted it holds less: on average
over time h_S - sum_i r_i n_i^2 / 2. By Little's law that equals the mean wait of a row, which gives one equation for T:

    sum_i r_i (T_i + p_i T_i^2 / 2 + n_i^2 / 2) = h_S

Behind a cache that learns, rows of a page come rather at the end of T, and the second term is less (`PageShares.wait`).

If T were the same for all pages, this would be the end; it is, within 1 %, when no page has more than a tenth of the
stream. So the waiting rows are *not* distributed like the stream: a page hot enough to be asked for again at once is
read once in T like all the others, and holds p_i T / 2 rows on average instead of p_i T.

**3. One dominant page.** In frequency order the first page may hold half of the stream. Its read frees n_1 rows, and
n_1 new ones come in a burst during which nothing is read. Let A be its round: A = T_1, of which a share p_1 is the
burst and 1 - p_1 is the rest, the *trickle*. Page 1's new head stands at the very start of the burst. All heads of the
round stand behind it, and are served in the trickle of the next round. A head that came in the trickle, a fraction v
of it gone, is served when beta + (1 - beta) v of the next trickle is gone, where beta is the share of rows whose heads
came in bursts. So from round to round the page falls back by beta (1 - v) plus the time to its next head, an
exponential time of mean 1/p_i, until it falls behind page 1's head; that costs it a whole round. If it is read K_i
times between two such losses, then

    1/p_i + T_i = A (1 + 1/K_i)

K_i is b_i times (one read of a head that came in the burst, then those of the trickle after it) plus 1 - b_i times
(those of a whole trickle), with b_i = 1 - exp(-p_i p_1 A). The number of reads Phi within one trickle, with a heads
expected in it and a lag that shrinks by q = 1 - beta, obeys Phi'(v) = a (1 + Phi(q v) - Phi(v)). A closed form that is
exact for q = 1 and q = 0 and for small and large a is

    Phi = (1 - e^-a) (1 + ln(1 + a z q L) / L),   L = -ln q,   z = 1 / (1 - e^-a) - 1/a

For cold pages this gives T_i = A (1 + p_1 / 2): they meet the burst at a random moment. For hot ones T_i = A: they
settle right behind page 1 and are read once a round. With small p_1 all T are A and step 2 is all that counts.

**4. X-HYBRIDJOIN** lets pinned rows into H_S, where they stay one iteration. If a share p_N of the stream is pinned,
w p_N / (1 - p_N) of the h_S rows are pinned ones (w counting the others), and the equation of step 2 gets this term.

Bounds: against simulation the error of w is below 1 % while no page has more than a tenth of the stream, and below 6 %
in all cases tried, with page shares up to 0.98 (`tests/cost/test_steady_state.py`). All keys of the stream are assumed
to be in R; a row whose key is not there waits as long as the head of its page.

| symbol | name here           | unit           | meaning                                              |
|--------|---------------------|----------------|------------------------------------------------------|
| h_S    | `h_s_rows`          | rows           | stream rows in H_S when it is full                   |
| p_i    | `shares.share`      | -              | share of the admitted rows that belong to page i     |
| w_S    | `rows_leaving(...)` | rows/iteration | rows that leave with one page                        |
| T_i    | `residence`         | rows           | wait of a page's oldest row, in admitted rows        |
| A      | `round_rows`        | rows           | the same for the hottest page                        |
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from semistream.cost.pages import PageShares
from semistream.cost.zipf import Floats

STEPS_MAX = 60
"""Of the search for A or T; some ten are needed."""

RELATIVE_ERROR = 1e-9
"""Of h_S, at which the search for A ends; far below what the model is exact to."""

EVEN_RELATIVE_ERROR = 1e-6
"""The same for a T that all pages share, which is itself within 1 %."""

BURST_ROUNDS = 4
"""Rounds of the inner fixed point for beta in each step. It contracts, and begins where the last step ended."""

COLD_BELOW = 1e-4
"""Expected heads of a page in a round below which two terms of a series replace a difference of large numbers."""


def rows_leaving(shares: PageShares, h_s_rows: float, pinned_share: float = 0.0) -> float:
    """Return w_S: how many rows leave with a page, for pages of these shares and an H_S of `h_s_rows`.

    `pinned_share` of the stream passes through H_S within one iteration (X-HYBRIDJOIN); `shares` are of the rest.
    """
    assert h_s_rows >= 1, "H_S must have room for a row"
    assert 0 <= pinned_share < 1, "a share of pinned rows lies between 0 and 1"
    pinned_per_row = pinned_share / (1.0 - pinned_share)
    dominant = min(float(shares.share[0]), 1.0 - 1e-12)
    burst_share, w_s = dominant, 1.0

    def surplus(round_rows: float) -> float:
        nonlocal burst_share, w_s
        residence, burst_share = _residence(shares, dominant, round_rows, burst_share)
        rate = shares.share / (1.0 + shares.share * residence)
        w_s = 1.0 / float((shares.count * rate).sum())
        return _rows_held(shares, residence, rate) + pinned_per_row * w_s - h_s_rows

    _where_nothing_is_left(surplus, h_s_rows, RELATIVE_ERROR)
    return min(max(1.0, w_s), h_s_rows)


def even_residence(shares: PageShares, h_s_rows: float) -> float:
    """T if it were the same for all pages (step 2), in admitted rows; a hundred times cheaper than `rows_leaving`."""

    def surplus(residence_rows: float) -> float:
        residence = np.asarray(residence_rows)
        return _rows_held(shares, residence, shares.share / (1.0 + shares.share * residence)) - h_s_rows

    return _where_nothing_is_left(surplus, h_s_rows, EVEN_RELATIVE_ERROR)


def _where_nothing_is_left(surplus: Callable[[float], float], h_s_rows: float, relative_error: float) -> float:
    """The time at which just as many rows are held as H_S has room for; `surplus` says how many more are, by time.

    What is held grows with the time, by half of it at least, so that the root lies between 0 and 2 h_S. The search is
    regula falsi in its Illinois form: an end that stays for two steps counts half.
    """
    low, high, moved = 0.0, 2.0 * h_s_rows + 2.0, "none"
    low_surplus, high_surplus = -h_s_rows, h_s_rows
    for _ in range(STEPS_MAX):
        middle = (low * high_surplus - high * low_surplus) / (high_surplus - low_surplus)
        found = surplus(middle)
        if abs(found) <= relative_error * h_s_rows:
            break
        if found < 0:
            high_surplus /= 2.0 if moved == "low" else 1.0
            low, low_surplus, moved = middle, found, "low"
        else:
            low_surplus /= 2.0 if moved == "high" else 1.0
            high, high_surplus, moved = middle, found, "high"
    return middle


def _rows_held(shares: PageShares, residence: Floats, rate: Floats) -> float:
    """The left side of the equation of step 2: rows in a full H_S."""
    leaving = 1.0 + shares.share * residence
    wait = 1.0 if shares.wait is None else shares.wait
    per_cycle = residence + wait * shares.share * residence**2 / 2.0 + leaving**2 / 2.0
    return float((shares.count * rate * per_cycle).sum())


def _residence(shares: PageShares, dominant: float, round_rows: float, burst_share: float) -> tuple[Floats, float]:
    """T of every page for a round of this length, and the share of rows whose heads come in bursts (beta)."""
    expected = np.maximum(shares.share * round_rows, 1e-12)
    in_burst = -np.expm1(-dominant * expected)
    place = _mean_place(dominant * expected)
    others = shares.count * shares.share
    others[0] -= shares.share[0]
    for _ in range(BURST_ROUNDS):
        trickle = (1.0 - dominant) * expected
        after_burst = _reads_within(trickle * (1.0 - burst_share * place), burst_share)
        reads = in_burst * (1.0 + after_burst) + (1.0 - in_burst) * _reads_within(trickle, burst_share)
        if others.sum() > 0:
            burst_share = min(float((others * in_burst / reads).sum() / others.sum()), 1.0 - 1e-12)
    lag = np.where(expected < COLD_BELOW, dominant / 2.0, 1.0 / reads - 1.0 / expected)
    residence = round_rows * (1.0 + lag)
    if shares.count[0] == 1:
        residence[0] = round_rows
    return residence, burst_share


def _mean_place(expected: Floats) -> Floats:
    """Where, between 0 and 1, the first of `expected` events in an interval happens, given that one does."""
    cold = expected < COLD_BELOW
    safe = np.where(cold, 1.0, np.minimum(expected, 500.0))
    return np.where(cold, 0.5 - expected / 12.0, 1.0 / safe - 1.0 / np.expm1(safe))


def _reads_within(expected: Floats, burst_share: float) -> Floats:
    """Phi: reads of a page within one trickle in which `expected` heads would come if each were read at once."""
    at_least_one = -np.expm1(-expected)
    weight = 1.0 - _mean_place(expected)
    decay = -np.log1p(-burst_share)
    further: Floats = expected * (1.0 - burst_share) * weight
    if decay > 0:
        further = np.log1p(decay * further) / decay
    return at_least_one * (1.0 + further)
