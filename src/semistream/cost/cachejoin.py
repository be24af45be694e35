"""CACHEJOIN: popular rows of R answer the stream on arrival; the rest waits for its page, as in HYBRIDJOIN.

Naeem, Dobbie, Weber: A lightweight stream-based join with limited resource consumption (DaWaK 2012), in the symbols
that PCSRJ and SSCJ print it with:

    M      = b v_R + h_R v_R + alpha (M - (b + h_R) v_R) + (1 - alpha)(M - (b + h_R) v_R)
    c_loop = c_IO(b) + b (c_H + c_F) + w_S (c_O + c_E + c_S + c_A) + w_N (c_H + c_O + c_S)
    mu     = (w_N + w_S) / c_loop

SSCJ adds 8 h_R bytes for its frequency recorder to M; see `semistream.cost.sscj`.

The papers take w_N and w_S from measurement. Here they follow from what the cache learns
(`semistream.cost.learned_cache`). A key comes in when at least `threshold` rows wait for it, and goes when it is one of
the sixteenth that makes room at once, which is anybody: all keys stay equally long on average. A page of which more
keys want to come in, the first of R in order of popularity, lets in at a read what there was room for, up to a
sixteenth of the cache, and one sixteenth more. The threshold rises when more was replaced in `ROUNDS_WATCHED` rounds
than is held, which sixteen sixteenths are, since a little less is held than fits, and falls when no room had to be made
in them. The steady state under each threshold says how many keys come in in these rounds, and that where the threshold
rests, as a rule at one (`semistream.cost.threshold`): all that is said of an iteration is the mean over where it rests.
w_S is the steady state of what is let through, and w_N = w_S p / (1 - p) for a hit share p, because the stream phase
lasts until H_S is full again.

Beside what the equation prices, `Counts.lettings` has the share of the iterations that let keys into the cache.

| symbol | name here    | unit           | meaning                                           |
|--------|--------------|----------------|---------------------------------------------------|
| b      | `page_rows`  | rows           | disk buffer                                       |
| h_R    | `h_r_rows`   | rows           | rows of R in the cache                            |
| w_N    | `w_n`        | rows/iteration | rows answered by the cache                        |
| w_S    | `w_s`        | rows/iteration | rows answered by the page that is read            |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.learned_cache import Loop, settle, sharing_places
from semistream.cost.letting_in import RoomMaking, rows_until_let_in, share_of_lettings
from semistream.cost.symbols import Counts, UnitCosts
from semistream.cost.threshold import weights, what_is_held
from semistream.cost.zipf import Floats

FILLED_SHARE = 31 / 32
"""How full H_R is on average: when it is full, a sixteenth makes room at once."""

REPLACED_SHARE = 1 / 16
"""Of the cache, which makes room at once."""

ROUNDS_WATCHED = 4
"""If more is replaced in so many rounds than is held, the threshold rises; if nothing, it falls."""

REMEMBERED = 64
"""Answers that are kept: a steady state for each of some thresholds takes a tenth of a second, a tuner asks for twenty
sizes, and whoever has tuned asks for the threshold of the best."""


@dataclass(frozen=True)
class Going:
    """Who makes room."""

    occupancy: Callable[[Loop, Floats, int, float], Floats]
    """How keys share places: from the loop, the rows until each comes in, the threshold and the number of places."""
    popular_share: float
    """Of the popular keys that go at once."""


@dataclass(frozen=True)
class AtRest:
    """What is true under one of the thresholds that a cache rests at."""

    weight: float
    """For which share of the iterations."""
    held: float
    """For which share of them what it lets in is held."""
    loop: Loop
    lettings: float
    """Iterations in which keys come in."""


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
    """The loop behind the cache, under the threshold that it rests at most of the time."""
    at_rest = resting(workload, sizes, ANY_GO)
    return at_rest[most_of_the_time(at_rest)].loop


def resting_threshold(workload: Workload, sizes: Sizes) -> int:
    """The threshold that the cache rests at most of the time."""
    return most_of_the_time(resting(workload, sizes, ANY_GO))


def most_of_the_time(at_rest: Mapping[int, AtRest]) -> int:
    """Of some thresholds the one with the largest weight."""
    return max(at_rest, key=lambda threshold: at_rest[threshold].weight)


@lru_cache(maxsize=REMEMBERED)
def resting(workload: Workload, sizes: Sizes, going: Going) -> Mapping[int, AtRest]:
    """The thresholds that the cache rests at, and what it does under each."""
    places = _places(workload, sizes)
    if places < 1.0:
        return {1: AtRest(1.0, 1.0, _without_places(workload, sizes), 0.0)}
    part = _part_keys(places)
    under: dict[int, tuple[Loop, Floats]] = {}

    def parts_at(threshold: int) -> float:
        if threshold not in under:
            nearest = min(under, key=lambda known: abs(known - threshold), default=None)
            begin = under[nearest][0] if nearest is not None else None
            under[threshold] = _under(threshold, workload, sizes, going, begin)
        loop, until_in = under[threshold]
        keys_per_row = float((loop.count * (1.0 - loop.occupancy) / until_in).sum())
        return keys_per_row * ROUNDS_WATCHED * loop.round_rows / part

    parts = int(places / part)
    weight = weights(parts_at, parts, part)
    held = what_is_held(weight, parts_at, parts, part, ROUNDS_WATCHED)
    return {at: AtRest(weight[at], held[at], under[at][0], share_of_lettings(*under[at])) for at in weight}


def _without_places(workload: Workload, sizes: Sizes) -> Loop:
    """The loop behind a cache that holds nothing."""
    return settle(workload, sizes.page_rows, lambda _: sizes.h_s_rows, lambda loop: (np.zeros_like(loop.share), None))


def _under(threshold: int, workload: Workload, sizes: Sizes, going: Going, begin: Loop | None) -> tuple[Loop, Floats]:
    """The loop behind a cache whose threshold does not move, and the rows until a key comes in."""
    places = _places(workload, sizes)

    room_making = RoomMaking(_part_keys(places), going.popular_share)

    def occupancy(loop: Loop) -> tuple[Floats, Floats]:
        until_in = rows_until_let_in(loop, threshold, room_making)
        return going.occupancy(loop, until_in, threshold, places), until_in

    loop = settle(workload, sizes.page_rows, lambda _: sizes.h_s_rows, occupancy, begin)
    return loop, rows_until_let_in(loop, threshold, room_making)


def _places(workload: Workload, sizes: Sizes) -> float:
    """Keys that the cache holds. The last key never is: a cache of all of R would leave nothing to predict."""
    return min(FILLED_SHARE * sizes.h_r_rows / workload.rows_per_key, workload.keys - 1.0)


def _part_keys(places: float) -> int:
    """Keys for which room is made at once."""
    return max(1, int(REPLACED_SHARE * places / FILLED_SHARE))


def _any_go(loop: Loop, until_in: Floats, threshold: int, places: float) -> Floats:
    """All keys stay equally long, whoever they are."""
    del threshold
    return sharing_places(loop, until_in, loop.let_through_while_in, 0.0, places)


ANY_GO = Going(_any_go, REPLACED_SHARE)


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
    return predict_with(ANY_GO, workload, sizes, unit_costs)


def predict_with(going: Going, workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """What a loop behind a cache of fixed size costs, from which keys go like that."""
    at_rest = resting(workload, sizes, going).values()
    w_s = sum(one.held * one.loop.w_s for one in at_rest)
    w_n = sum(one.held * one.loop.w_s * one.loop.hit_share / (1.0 - one.loop.hit_share) for one in at_rest)
    counts = replace(
        phase_counts(workload, sizes, w_n=w_n, w_s=w_s),
        frequency_tests=sizes.page_rows,
        lettings=sum(one.weight * one.lettings for one in at_rest),
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
