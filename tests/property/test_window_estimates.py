"""A join that sheds, and what it says of the join that it could not do: the truth lies inside its intervals."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.budget import MemoryBudget
from semistream.structures.window_state import Int64s
from semistream.window.estimate import Estimates, SampledPairs, estimate
from semistream.window.join import WindowJoin
from semistream.window.pieces import Arrivals, Floats, Pairs
from semistream.window.windows import Window, rows, seconds

ROWS = 4000
PIECE_ROWS = 500
COVERED_OF_1000 = 930
ENOUGH_BYTES = 10_000_000
SMALL_BYTES = 24_000
"""Room for about half of the two windows."""


class Streams:
    """Two streams with skewed keys, and amounts of which no row has more than a small part."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        shares = np.arange(1, 201) ** -0.8
        self.side = (rng.random(ROWS) < 0.4).astype(np.int8)
        self.key = rng.choice(200, ROWS, p=shares / shares.sum()).astype(np.int64)
        self.time_us = np.arange(ROWS, dtype=np.int64) * 1000
        self.amount = [rng.gamma(2.0, 1.0, ROWS), rng.gamma(2.0, 1.0, ROWS)]

    def pieces(self) -> list[Arrivals]:
        return [
            Arrivals(
                self.side[part],
                self.key[part],
                self.key[part],
                self.key[part],
                np.ones(PIECE_ROWS, np.bool_),
                self.time_us[part],
            )
            for part in (slice(begin, begin + PIECE_ROWS) for begin in range(0, ROWS, PIECE_ROWS))
        ]

    def values(self, row_a: Int64s, row_b: Int64s) -> Floats:
        values: Floats = self.amount[0][row_a] + 2 * self.amount[1][row_b] - 1
        return values


def as_sample(found: list[Pairs], streams: Streams) -> SampledPairs:
    row_a, row_b, a_is_later = (
        np.concatenate([getattr(pairs, name) for pairs in found]) for name in ("row_a", "row_b", "a_is_later")
    )
    probe_share, held_share = (
        np.concatenate([np.ones(len(pairs)) if pairs.weight is None else getattr(pairs, name) for pairs in found])
        for name in ("probe_share", "held_share")
    )
    return SampledPairs(
        probe_row=np.where(a_is_later, row_a, row_b),
        held_row=np.where(a_is_later, row_b, row_a),
        probe_share=probe_share,
        held_share=held_share,
        a_is_later=a_is_later,
        value=streams.values(row_a, row_b),
    )


def estimates_of(
    streams: Streams, windows: tuple[Window, Window], memory_bytes: int, seed: int, probe_share: tuple[float, float]
) -> tuple[Estimates, int]:
    """What the join says, and how many rows it has shed."""
    budget = MemoryBudget(memory_bytes)
    join = WindowJoin(*windows, budget=budget, seed=seed, probe_share=probe_share, pairs_per_piece=50)
    found = [pairs for piece in streams.pieces() for pairs in join.push(piece)]
    assert budget.peak_bytes <= memory_bytes
    return estimate(as_sample(found, streams)), sum(counts.rows_shed for counts in join.counts)


def covered(
    seeds: range, windows: tuple[Window, Window], memory_bytes: int, probe_share: tuple[float, float]
) -> dict[str, int]:
    streams = Streams(1)
    truth, _ = estimates_of(streams, windows, ENOUGH_BYTES, 0, (1.0, 1.0))
    assert truth.count.high == truth.count.low > 5_000
    inside = {"count": 0, "sum": 0, "average": 0}
    for seed in seeds:
        found, rows_shed = estimates_of(streams, windows, memory_bytes, seed, probe_share)
        assert rows_shed > 0 or min(probe_share) < 1
        for name in inside:
            one = getattr(found, name)
            inside[name] += int(one.low <= getattr(truth, name).value <= one.high)
    return inside


def test_the_truth_lies_inside_the_interval_in_most_of_a_few_shed_runs() -> None:
    inside = covered(range(30), (rows(500), rows(500)), SMALL_BYTES, (0.8, 1.0))
    assert min(inside.values()) >= 25, inside


@pytest.mark.long
@pytest.mark.parametrize(
    ("windows", "memory_bytes", "probe_share"),
    [
        ((rows(500), rows(500)), SMALL_BYTES, (1.0, 1.0)),
        ((rows(500), rows(200)), SMALL_BYTES, (0.5, 0.7)),
        ((seconds(0.8), seconds(0.8)), SMALL_BYTES, (1.0, 0.6)),
        ((rows(500), rows(500)), ENOUGH_BYTES, (0.3, 0.3)),
    ],
    ids=["memory", "both", "time", "probes"],
)
def test_the_truth_lies_inside_the_interval_in_at_least_930_of_1000_shed_runs(
    windows: tuple[Window, Window], memory_bytes: int, probe_share: tuple[float, float]
) -> None:
    inside = covered(range(1000), windows, memory_bytes, probe_share)
    assert min(inside.values()) >= COVERED_OF_1000, inside
