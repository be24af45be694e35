"""CACHEJOIN: popular rows of R answer the stream on arrival; the rest waits for its page, as in HYBRIDJOIN.

Naeem, Dobbie, Weber: A lightweight stream-based join with limited resource consumption (DaWaK 2012), in the symbols
that PCSRJ and SSCJ print it with:

    M      = b v_R + h_R v_R + alpha (M - (b + h_R) v_R) + (1 - alpha)(M - (b + h_R) v_R)
    c_loop = c_IO(b) + b (c_H + c_F) + w_S (c_O + c_E + c_S + c_A) + w_N (c_H + c_O + c_S)
    mu     = (w_N + w_S) / c_loop

SSCJ adds 8 h_R bytes for its frequency recorder to M; see `semistream.cost.sscj`.

The papers take w_N and w_S from measurement. Here they follow from what the cache learns
(`semistream.cost.learned_cache`). A key comes in when at least `threshold` rows wait for it, and goes when h_R others
have come in after it: all keys stay equally long, L. Room is made for a sixteenth of the cache at once, so that a page
with more keys that want to come in, the first of R in order of popularity, lets in no more at a read. The threshold
rises when more than half of the cache was replaced in a round, which eight sixteenths are, since by then a little less
is held than fits. One busy round is enough, and it hardly ever comes down. So it rests where seven sixteenths are not
exceeded even by a round with two standard deviations more keys than the mean, and L is more than two rounds. w_S is the
steady state of what is let through, and w_N = w_S p / (1 - p) for a hit share p, because the stream phase lasts until
H_S is full again.

Beside what the equation prices, `Counts.lettings` has the share of the iterations that let keys into the cache.

| symbol | name here    | unit           | meaning                                           |
|--------|--------------|----------------|---------------------------------------------------|
| b      | `page_rows`  | rows           | disk buffer                                       |
| h_R    | `h_r_rows`   | rows           | rows of R in the cache                            |
| w_N    | `w_n`        | rows/iteration | rows answered by the cache                        |
| w_S    | `w_s`        | rows/iteration | rows answered by the page that is read            |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.learned_cache import Loop, rows_until_let_in, settle, share_of_lettings, sharing_places
from semistream.cost.symbols import Counts, UnitCosts
from semistream.cost.zipf import Floats

FILLED_SHARE = 31 / 32
"""How full H_R is on average: when it is full, a sixteenth makes room at once."""

REPLACED_SHARE = 1 / 16
"""Of the cache, which makes room at once; more than that no read lets in."""

CHURN_SHARE = 1 / 2
"""More of the cache than this replaced in a round, and the threshold rises."""

BUSY_DEVIATIONS = 2.0
"""Above the mean, of the keys that come in a round: one round in forty has more."""

THRESHOLD_MAX = 1024
"""Where the search for the threshold ends; a small cache beside a long queue comes to rest at some ten."""

Sharing = Callable[[Loop, Floats, int, float], Floats]
"""How keys share the places of a cache: their occupancy, from the loop, the rows until each comes in, the threshold and
the number of places."""


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Disk buffer, cache, H_S and queue; nothing for the frequencies, as PCSRJ prints it."""
    return {"H_R": sizes.h_r_rows * workload.v_r_bytes, **waiting_memory(workload, sizes, sizes.h_s_rows)}


def c_loop_s(unit_costs: UnitCosts, v_r_bytes: float, *, b: float, w_n: float, w_s: float) -> float:
    """The printed equation, in seconds."""
    return (
        unit_costs.io.read_s(b * v_r_bytes, sequential=False)
        + b * (unit_costs.c_h + unit_costs.c_f)
        + w_s * (unit_costs.c_o + unit_costs.c_e + unit_costs.c_s + unit_costs.c_a)
        + w_n * (unit_costs.c_h + unit_costs.c_o + unit_costs.c_s)
    )


def learned(workload: Workload, sizes: Sizes) -> Loop:
    """The loop behind the cache, under the threshold that it comes to rest at."""
    return at_rest(workload, sizes, _longest_held_go)


def resting_threshold(workload: Workload, sizes: Sizes) -> int:
    """The threshold that the cache comes to rest at."""
    return threshold_of(at_rest(workload, sizes, _longest_held_go), workload, sizes, _longest_held_go)


def at_rest(workload: Workload, sizes: Sizes, sharing: Sharing) -> Loop:
    """The loop under the least threshold for which the cache is not replaced too fast."""
    places = _places(workload, sizes)

    def occupancy(loop: Loop) -> Floats:
        if places < 1.0:
            return np.zeros_like(loop.share)
        threshold = threshold_of(loop, workload, sizes, sharing)
        return sharing(loop, rows_until_let_in(loop, threshold, _room_keys(places)), threshold, places)

    return settle(workload, sizes.page_rows, lambda _: sizes.h_s_rows, occupancy)


def threshold_of(loop: Loop, workload: Workload, sizes: Sizes, sharing: Sharing) -> int:
    """The least threshold for which the cache of this loop is not replaced too fast."""
    places = _places(workload, sizes)
    if places < 1.0:
        return 1
    low, high = 0, 1
    while high < THRESHOLD_MAX and not _is_at_rest(loop, high, sharing, places):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _is_at_rest(loop, middle, sharing, places):
            high = middle
        else:
            low = middle
    return high


def _lettings(loop: Loop, workload: Workload, sizes: Sizes, sharing: Sharing) -> float:
    """Iterations in which keys come in; none does where there is no place."""
    places = _places(workload, sizes)
    if places < 1.0:
        return 0.0
    threshold = threshold_of(loop, workload, sizes, sharing)
    return share_of_lettings(loop, rows_until_let_in(loop, threshold, _room_keys(places)))


def _places(workload: Workload, sizes: Sizes) -> float:
    """Keys that the cache holds. The last key never is: a cache of all of R would leave nothing to predict."""
    return min(FILLED_SHARE * sizes.h_r_rows / workload.rows_per_key, workload.keys - 1.0)


def _is_at_rest(loop: Loop, threshold: int, sharing: Sharing, places: float) -> bool:
    """Whether hardly any round replaces half of the cache."""
    until_in = rows_until_let_in(loop, threshold, _room_keys(places))
    out = 1.0 - sharing(loop, until_in, threshold, places)
    replaced = float((loop.count * out / until_in).sum()) * loop.round_rows
    return replaced + BUSY_DEVIATIONS * math.sqrt(replaced) <= (CHURN_SHARE - REPLACED_SHARE) * places


def _room_keys(places: float) -> int:
    """Keys that a read can let in: those for which room is made at once, and what was free before, on average."""
    return max(1, round((REPLACED_SHARE + 1.0 - FILLED_SHARE) * places))


def _longest_held_go(loop: Loop, until_in: Floats, threshold: int, places: float) -> Floats:
    del threshold
    return sharing_places(loop, until_in, np.ones_like(until_in), 0.0, places)


def phase_counts(workload: Workload, sizes: Sizes, *, w_n: float, w_s: float) -> Counts:
    """Operations of a stream phase and a disk phase, without tests of any cache rule."""
    return Counts(
        pages_read=1.0,
        bytes_read=sizes.page_rows * workload.v_r_bytes,
        seeks=1.0,
        probes=sizes.page_rows + w_n + w_s,
        outputs=(w_n + w_s) * workload.rows_per_key,
        deletions=w_s,
        stream_reads=w_n + w_s,
        appends=w_s,
    )


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """Hits on arrival, and the misses that leave with a page."""
    return predict_with(_longest_held_go, workload, sizes, unit_costs)


def predict_with(sharing: Sharing, workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """What a loop behind a cache of fixed size costs, whose keys share its places like that."""
    loop = at_rest(workload, sizes, sharing)
    w_s, w_n = loop.w_s, loop.w_s * loop.hit_share / (1.0 - loop.hit_share)
    counts = replace(
        phase_counts(workload, sizes, w_n=w_n, w_s=w_s),
        frequency_tests=sizes.page_rows,
        lettings=_lettings(loop, workload, sizes, sharing),
    )
    return predicted(
        w_n,
        w_s,
        counts,
        memory_bytes(workload, sizes),
        unit_costs,
        waiting_rows=sizes.h_s_rows,
        remembered_rows=sizes.h_r_rows,
    )
