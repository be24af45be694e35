"""The window join finds the pairs of its definition, whatever the windows, the indexes and the cuts.

Random interleavings with few keys, so that there are many partners; null keys, late and equal times, a stream that
falls silent. Every example is cut into pieces at random; between two of them the indexes may change, and the join may
be replaced by another one that starts from its snapshot.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.budget import MIB, MemoryBudget
from semistream.window.join import INDEX_NAMES, WindowJoin
from semistream.window.pieces import Arrivals
from semistream.window.reference import reference_join
from semistream.window.windows import Window, arrivals, rows, seconds

INT64 = np.iinfo(np.int64)


@dataclass(frozen=True)
class Case:
    """A sequence, the windows it is joined over, and how it is cut."""

    piece: Arrivals
    windows: tuple[Window, Window]
    lateness_us: int
    cuts: list[int]
    pairs_per_piece: int
    seed: int


def any_window(rng: np.random.Generator) -> Window:
    kind = rng.integers(3)
    if kind == 0:
        return rows(int(rng.integers(1, 40)))
    if kind == 1:
        return arrivals(int(rng.integers(1, 60)))
    return seconds(int(rng.integers(1, 120)) / 1_000_000)


def any_times(rng: np.random.Generator, count: int) -> np.ndarray:
    kind = rng.integers(4)
    steps = np.cumsum(rng.integers(0, 4, count))
    if kind == 0:
        return steps
    if kind == 1:
        return steps + rng.integers(-30, 31, count)
    if kind == 2:
        return rng.integers(0, 100, count)
    # Near the ends of int64, where sums overflow.
    return np.where(rng.random(count) < 0.5, INT64.min + steps, INT64.max - steps[::-1])


def any_intervals(rng: np.random.Generator, codes: np.ndarray, *, ranges: bool) -> tuple[np.ndarray, np.ndarray]:
    if not ranges:
        return codes, codes
    kind = rng.integers(3)
    if kind == 0:
        return codes - 2, codes + 1
    if kind == 1:
        return codes + 1, np.full(len(codes), INT64.max)
    return np.full(len(codes), INT64.min), codes - rng.integers(0, 3, len(codes))


def any_case(seed: int, *, ranges: bool) -> Case:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 250))
    side = (rng.random(count) < rng.choice([0.05, 0.5, 0.9])).astype(np.int8)
    if rng.random() < 0.3:
        side[count // 3 :] = rng.integers(2)
    codes = rng.integers(0, int(rng.choice([2, 10, 100])), count)
    low, high = any_intervals(rng, codes, ranges=ranges)
    piece = Arrivals(side, codes, low, high, rng.random(count) < rng.choice([1.0, 0.7]), any_times(rng, count))
    return Case(
        piece=piece,
        windows=(any_window(rng), any_window(rng)),
        lateness_us=int(rng.choice([0, 20])),
        cuts=[0, *sorted(rng.integers(0, count + 1, int(rng.integers(0, 5))).tolist()), count],
        pairs_per_piece=int(rng.choice([1, 3, 50, 10_000])),
        seed=seed,
    )


def part(piece: Arrivals, begin: int, end: int) -> Arrivals:
    return Arrivals(*(column[begin:end] for column in piece.columns()))


class Run:
    """A case joined from its first to its last piece."""

    def __init__(self, case: Case, indexes: tuple[str, str], *, outer: bool, changing: bool) -> None:
        self.case, self.indexes, self.outer = case, indexes, outer
        self.pairs: list[tuple[int, int, bool]] = []
        self.unmatched: list[int] = []
        rng = np.random.default_rng(case.seed + 1)
        join = self.new_join()
        for begin, end in zip(case.cuts[:-1], case.cuts[1:], strict=True):
            self.collect(join.push(part(case.piece, begin, end)))
            if changing and rng.random() < 0.5:
                names = [name for name in INDEX_NAMES if name != "hash" or "hash" in indexes]
                join.change_indexes(*rng.choice(names, 2))
            if changing and rng.random() < 0.5:
                snapshot = join.snapshot()
                join = self.new_join()
                join.restore(snapshot)
        self.counts = join.counts
        self.collect(join.drain())

    def new_join(self) -> WindowJoin:
        case = self.case
        return WindowJoin(
            *case.windows,
            index_a=self.indexes[0],
            index_b=self.indexes[1],
            budget=MemoryBudget(64 * MIB),
            outer=self.outer,
            lateness_us=case.lateness_us,
            tree_node_rows=4,
            hash_bucket_rows=1 + case.seed % 3,
            pairs_per_piece=case.pairs_per_piece,
        )

    def collect(self, pieces) -> None:
        for pairs in pieces:
            assert len(pairs) <= self.case.pairs_per_piece
            assert pairs.weight is None
            self.pairs += zip(pairs.row_a.tolist(), pairs.row_b.tolist(), pairs.a_is_later.tolist(), strict=True)
            self.unmatched += pairs.unmatched_a.tolist()


def check(seed: int, indexes: tuple[str, str], *, outer: bool, changing: bool) -> None:
    case = any_case(seed, ranges="hash" not in indexes)
    expected, alone = reference_join(case.piece, *case.windows, lateness_us=case.lateness_us)
    run = Run(case, indexes, outer=outer, changing=changing)
    assert Counter(run.pairs) == Counter(expected)
    assert sorted(run.unmatched) == (alone if outer else [])
    assert run.counts[0].arrivals + run.counts[1].arrivals == len(case.piece)
    assert run.counts[0].pairs + run.counts[1].pairs == len(expected)


@pytest.mark.parametrize("index_b", INDEX_NAMES)
@pytest.mark.parametrize("index_a", INDEX_NAMES)
@given(seed=st.integers(0, 2**32), outer=st.booleans())
def test_the_pairs_are_those_of_the_definition(index_a: str, index_b: str, seed: int, outer: bool) -> None:
    check(seed, (index_a, index_b), outer=outer, changing=False)


@given(seed=st.integers(0, 2**32), outer=st.booleans(), indexes=st.tuples(*[st.sampled_from(INDEX_NAMES)] * 2))
def test_neither_a_change_of_indexes_nor_a_restart_loses_or_repeats_a_pair(
    seed: int, outer: bool, indexes: tuple[str, str]
) -> None:
    check(seed, indexes, outer=outer, changing=True)
