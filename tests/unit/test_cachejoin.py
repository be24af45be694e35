"""CACHEJOIN learns how many rows must wait for a key before it is remembered."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.joins.base import JoinResources, Numbers, StreamRows
from semistream.joins.cachejoin import CacheJoin
from semistream.joins.sscj import SemiStreamCacheJoin
from semistream.lab.workloads.zipf import Zipf
from semistream.relations.memory import MemoryRelation

KEYS, PAGE_ROWS, BATCH_ROWS = 5_000, 50, 5_000
ROUND = KEYS // PAGE_ROWS
"""Iterations in which as many pages are read as R has."""


def join_with(
    threshold: int, memory_bytes: int = 400_000, cache_share: float = 0.1, kind: type[CacheJoin] = CacheJoin
) -> CacheJoin:
    table = pa.table({"k": np.arange(KEYS), "text": np.full(KEYS, "x" * 80)})
    relation = MemoryRelation.from_table(table, ["k"], page_rows=PAGE_ROWS)
    resources = JoinResources(MemoryBudget(memory_bytes), VirtualClock(), BATCH_ROWS, 20)
    return kind(relation, resources, cache_share=cache_share, threshold=threshold)


def thresholds_of_rounds(join: CacheJoin, exponent: float, rounds: int) -> list[int]:
    """Feed a stream for so many rounds of R; return the threshold at the end of each."""
    rng, keys, seen = np.random.default_rng(2), Zipf(KEYS, exponent), []
    while len(seen) < rounds:
        left = StreamRows(np.arange(BATCH_ROWS), keys.sample(rng, BATCH_ROWS))
        while len(left):
            taken = join.admit(left)
            left = StreamRows(left.numbers[taken:], left.codes[taken:])
            while not join.wants_rows:
                join.step()
                if join.stats.iterations // ROUND > len(seen):
                    seen.append(join.threshold)
    return seen


@pytest.mark.parametrize("exponent", [0.3, 1.0])
def test_the_threshold_rises_while_the_cache_churns_and_then_rests(exponent: float) -> None:
    join = join_with(threshold=1)
    seen = thresholds_of_rounds(join, exponent, rounds=40)
    steps = np.diff([1, *seen])
    assert set(steps.tolist()) <= {-1, 0, 1}, "it moves by one a round"
    assert steps[:2].tolist() == [1, 1], "everybody who waits for a page is let in at first, and pushes others out"
    assert max(seen[-10:]) - min(seen[-10:]) <= 1, f"it has not come to rest: {seen}"


@pytest.mark.parametrize(
    ("replaced_shares", "expected"),
    [
        ([0.9, 0.0, 0.0, 0.0, 0.9], [2, 2, 2, 2, 2]),
        ([0.3, 0.3, 0.3, 0.3, 0.3], [2, 2, 2, 3, 3]),
        ([0.6, 0.6, 0.6, 0.6, 1.2], [2, 3, 3, 4, 5]),
        ([None, None, None, None, None, 0.1, None], [2, 2, 2, 1, 1, 1, 1]),
    ],
)
def test_four_rounds_say_whether_the_threshold_moves(replaced_shares: list[float | None], expected: list[int]) -> None:
    """None: a round in which nobody asks for room."""
    join = join_with(threshold=1)
    thresholds_of_rounds(join, 1.0, rounds=2)
    join.threshold, join._evicted_before_round, seen = 2, join.held.evicted, []
    join._replaced.clear()
    for share in replaced_shares:
        join.stats.iterations = ROUND
        join._is_full = share is not None
        join.held.evicted += int((share or 0.0) * len(join.held))
        join._end_iteration()
        seen.append(join.threshold)
    assert seen == expected


def test_iterations_that_let_keys_in_are_counted_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    join = join_with(threshold=2)
    added: list[int] = []
    add = join.held.add

    def seen(batch: pa.RecordBatch, codes: Numbers, *rest: Numbers) -> None:
        added.append(len(codes))
        add(batch, codes, *rest)

    monkeypatch.setattr(join.held, "add", seen)
    thresholds_of_rounds(join, 1.0, rounds=5)
    assert join.stats.lettings == sum(count > 0 for count in added)
    assert 0 < join.stats.lettings < join.stats.iterations


def test_nothing_is_moved_where_every_key_is_used_more_than_the_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    join = join_with(threshold=1, kind=SemiStreamCacheJoin)
    thresholds_of_rounds(join, 1.0, rounds=2)
    join.held.uses[:] = 100
    codes, moves = join.held.codes.tolist(), []
    assert join.held._arena is not None
    monkeypatch.setattr(join.held._arena, "keep_parts", moves.append)
    join.held.keep(join._staying(np.array([3, 100])))
    assert (moves, join.held.codes.tolist()) == ([], codes)
    assert not join._staying(np.array([3, 101])).all()


def test_the_threshold_falls_while_the_cache_stays_unfilled() -> None:
    join = join_with(threshold=200)
    seen = thresholds_of_rounds(join, 1.0, rounds=20)
    assert seen[:10] == list(range(199, 189, -1)), "few are asked for so often, so that each round lowers it"
    assert 0 < len(join.held) < 10


def test_a_fallen_threshold_fills_the_cache_again() -> None:
    join = join_with(threshold=30)
    seen = thresholds_of_rounds(join, 1.0, rounds=40)
    assert min(seen) < 30
    assert len(join.held) > 0
    assert join.stats.hits > 0
