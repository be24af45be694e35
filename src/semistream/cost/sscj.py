"""SSCJ, the semi-stream cache join: CACHEJOIN with a frequency recorder that has a place in the memory equation.

Naeem, Weber, Dobbie, Lutteroth: SSCJ: a semi-stream cache join using a front-stage cache module. Its
Equations 1 to 3 are CACHEJOIN's (see there for symbols and for w_N and w_S), apart from memory:

    M = d v_R + h_R v_R + 8 h_R + alpha (..) + (1 - alpha)(..),   the rest being M - d v_R - h_R v_R - 8 h_R

Who makes room is the key with the fewest recorded uses. Records are halved every round, so a key's record is a Poisson
number of about `RECORDED_ROUNDS` rounds of uses, and a newcomer, who brings the rows that waited for it, is safe until
that has been halved away. Those with the fewest, a sixteenth of the cache or more, can go.

| symbol | name here   | unit | meaning                 |
|--------|-------------|------|-------------------------|
| d      | `page_rows` | rows | disk buffer             |
| 8 h_R  | `frequency recorder` | bytes | a counter for each cached row |
"""

from __future__ import annotations

import math
from dataclasses import replace

from semistream.cost import cachejoin
from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload
from semistream.cost.learned_cache import Loop, at_least, sharing_places
from semistream.cost.symbols import UnitCosts
from semistream.cost.zipf import Floats

RECORDER_BYTES_PER_ROW = 8.0
"""The paper's: a counter per row of H_R."""

RECORDED_ROUNDS = 1.5
"""Rounds of uses that a record holds: 1 just after a halving, 2 just before."""

LEAVING_SHARE = 1 / 16
"""Of the cache, which makes room at once."""

FEWEST_MAX = 64
"""Where the search for how few uses are few ends."""


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Equation 1."""
    recorder_bytes = RECORDER_BYTES_PER_ROW * sizes.h_r_rows
    return {"frequency recorder": recorder_bytes, **cachejoin.memory_bytes(workload, sizes)}


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """CACHEJOIN's loop, with another rule for who goes, in SSCJ's memory."""
    told = cachejoin.predict_with(least_used_go, workload, sizes, unit_costs)
    return replace(told, memory_bytes=memory_bytes(workload, sizes))


def resting_threshold(workload: Workload, sizes: Sizes) -> int:
    """The threshold that the cache comes to rest at."""
    at_rest = cachejoin.resting(workload, sizes, least_used_go)
    return max(at_rest, key=lambda threshold: at_rest[threshold].weight)


def least_used_go(loop: Loop, until_in: Floats, threshold: int, places: float) -> Floats:
    """Keys stay the longer the more they are used."""
    recorded = RECORDED_ROUNDS * loop.share * loop.round_rows
    held = loop.count * loop.occupancy
    for fewest in range(FEWEST_MAX):
        evictable = 1.0 - at_least(recorded, fewest + 1)
        if float((held * evictable).sum()) >= LEAVING_SHARE * held.sum():
            break
    # The record is halved at the end of a round, and a newcomer comes in the middle of one.
    sure_rows = (math.log2(threshold) + 0.5) * loop.round_rows if fewest == 0 else 0.0
    return sharing_places(loop, until_in, evictable, sure_rows, places)
