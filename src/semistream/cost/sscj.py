"""SSCJ, the semi-stream cache join: CACHEJOIN with a frequency recorder that has a place in the memory equation.

Naeem, Weber, Dobbie, Lutteroth: SSCJ: a semi-stream cache join using a front-stage cache module. Its
Equations 1 to 3 are CACHEJOIN's (see there for symbols and for w_N and w_S), apart from memory:

    M = d v_R + h_R v_R + 8 h_R + alpha (..) + (1 - alpha)(..),   the rest being M - d v_R - h_R v_R - 8 h_R

Who makes room is the key with the fewest recorded uses. Records are halved every round, so a record is a Markov chain,
r' = floor((r + uses of a round) / 2), and what is found at any moment is r and the uses since. Rounding makes it forget
more than half where uses are few: of half a use a round next to nothing is left (`recorded_at_most`). A newcomer, who
brings the rows that waited for it, is safe until they have been halved away. The sixteenth of the cache with the fewest
goes, and of equally few uses anybody (`found_leaving`).

| symbol | name here   | unit | meaning                 |
|--------|-------------|------|-------------------------|
| d      | `page_rows` | rows | disk buffer             |
| 8 h_R  | `frequency recorder` | bytes | a counter for each cached row |
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np

from semistream.cost import cachejoin
from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload
from semistream.cost.learned_cache import Loop, sharing_places
from semistream.cost.poisson import poisson_moves
from semistream.cost.symbols import UnitCosts
from semistream.cost.zipf import Floats

RECORDER_BYTES_PER_ROW = 8.0
"""The paper's: a counter per row of H_R."""

LEAVING_SHARE = 1 / 16
"""Of the cache, which makes room at once."""

FEWEST_MAX = 32
"""Where the search for how few uses are few ends."""

USES_STATES = 4 * FEWEST_MAX
"""Records up to here are told apart; as many again is never few."""

RATES = np.concatenate([[0.0], np.geomspace(0.01, 2.0 * FEWEST_MAX, 63)])
"""Uses of a round for which records are found; between them they are nearly straight."""

HALVINGS = 16
"""After which a record does not depend on what it was."""

MOMENTS = 4
"""Between two halvings, which stand for all."""


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Equation 1."""
    recorder_bytes = RECORDER_BYTES_PER_ROW * sizes.h_r_rows
    return {"frequency recorder": recorder_bytes, **cachejoin.memory_bytes(workload, sizes)}


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """CACHEJOIN's loop, with another rule for who goes, in SSCJ's memory."""
    told = cachejoin.predict_with(LEAST_USED_GO, workload, sizes, unit_costs)
    return replace(told, memory_bytes=memory_bytes(workload, sizes))


def resting_threshold(workload: Workload, sizes: Sizes) -> int:
    """The threshold that the cache comes to rest at."""
    return cachejoin.most_of_the_time(cachejoin.resting(workload, sizes, LEAST_USED_GO))


def _least_used_go(loop: Loop, until_in: Floats, threshold: int, places: float) -> Floats:
    """Keys stay the longer the more they are used."""
    fewest, evictable = found_leaving(loop)
    # The record is halved at the end of a round, and a newcomer comes in the middle of one.
    sure_rows = (math.log2(threshold) + 0.5) * loop.round_rows if fewest == 0 else 0.0
    return sharing_places(loop, until_in, evictable, sure_rows, places)


LEAST_USED_GO = cachejoin.Going(_least_used_go, popular_share=0.0)


def found_leaving(loop: Loop) -> tuple[int, Floats]:
    """How few uses are few when room is made, and the probability that a key of each group is one of those that go."""
    uses_a_round = loop.share * loop.round_rows
    held = loop.count * loop.occupancy
    leaving = LEAVING_SHARE * float(held.sum())
    fewer, are_fewer = np.zeros_like(held), 0.0
    for fewest in range(FEWEST_MAX):
        few = recorded_at_most(fewest, uses_a_round)
        are_few = float((held * few).sum())
        if are_few >= leaving > 0.0:
            # All with fewer uses go, and as many of those with just so few as are lacking.
            return fewest, fewer + (few - fewer) * (leaving - are_fewer) / (are_few - are_fewer)
        fewer, are_fewer = few, are_few
    return FEWEST_MAX - 1, fewer


def recorded_at_most(fewest: int, uses_a_round: Floats) -> Floats:
    """The probability that the record of a key with so many uses in a round is this or less, at any moment."""
    return np.interp(uses_a_round, RATES, _at_most()[:, fewest])


@cache
def _at_most() -> Floats:
    """For each of the `RATES`, how probable a record of so much or less is."""
    record = np.zeros((len(RATES), USES_STATES))
    record[:, 0] = 1.0
    of_a_round = poisson_moves(RATES, USES_STATES)
    for _ in range(HALVINGS):
        before = np.einsum("ri,rij->rj", record, of_a_round)
        record[:, : USES_STATES // 2] = before.reshape(len(RATES), -1, 2).sum(axis=2)
        record[:, USES_STATES // 2 :] = 0.0
    found = np.zeros_like(record)
    for moment in range(MOMENTS):
        since = poisson_moves(RATES * (moment + 0.5) / MOMENTS, USES_STATES)
        found += np.einsum("ri,rij->rj", record, since) / MOMENTS
    at_most: Floats = np.cumsum(found, axis=1)
    return at_most
