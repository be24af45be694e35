"""What a window join does besides finding pairs: left rows with conditions, counts, options, memory in need."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.budget import KIB, MIB, MemoryBudget
from semistream.errors import BudgetExceeded, InvalidOption
from semistream.window.join import INDEX_NAMES, WindowJoin
from semistream.window.pieces import Arrivals, Pairs
from semistream.window.reference import reference_join
from semistream.window.shedding import SHARES
from semistream.window.windows import Window, arrivals, rows, seconds


def piece_of(sides: list[int] | np.ndarray, keys: list[int] | np.ndarray, times: np.ndarray | None = None) -> Arrivals:
    key = np.asarray(keys, np.int64)
    time_us = np.arange(len(key)) if times is None else times
    return Arrivals(np.asarray(sides, np.int8), key, key, key, np.ones(len(key), np.bool_), time_us)


def random_piece(seed: int, count: int, keys: int) -> Arrivals:
    rng = np.random.default_rng(seed)
    return piece_of(rng.integers(0, 2, count), rng.integers(0, keys, count))


def pairs_of(pieces: list[Pairs]) -> set[tuple[int, int]]:
    found = [pair for pairs in pieces for pair in zip(pairs.row_a.tolist(), pairs.row_b.tolist(), strict=True)]
    assert len(found) == len(set(found)), "a pair came twice"
    return set(found)


def test_every_row_that_leaves_a_left_join_unconfirmed_is_reported() -> None:
    piece = random_piece(3, 400, 20)
    wanted = {(a, b) for a, b, _ in reference_join(piece, rows(30), rows(30))[0] if (a + b) % 3 == 0}
    join = WindowJoin(rows(30), rows(30), budget=MemoryBudget(MIB), outer=True, confirming=True, pairs_per_piece=7)
    kept: set[tuple[int, int]] = set()
    unmatched: list[int] = []
    for pairs in join.push(piece):
        passed = (pairs.row_a + pairs.row_b) % 3 == 0
        join.confirm(pairs.row_a[passed])
        kept |= set(zip(pairs.row_a[passed].tolist(), pairs.row_b[passed].tolist(), strict=True))
        unmatched += np.setdiff1d(pairs.unmatched_a, pairs.row_a[passed]).tolist()
    unmatched += [row for pairs in join.drain() for row in pairs.unmatched_a.tolist()]
    assert kept == wanted
    rows_a = int((piece.side == 0).sum())
    assert sorted(unmatched) == sorted(set(range(rows_a)) - {a for a, _ in wanted})


def test_a_left_join_reports_nothing_twice_at_its_end() -> None:
    join = WindowJoin(rows(5), rows(5), budget=MemoryBudget(MIB), outer=True)
    list(join.push(piece_of([0, 0, 1], [1, 2, 2])))
    assert [pairs.unmatched_a.tolist() for pairs in join.drain()] == [[0]]
    assert sum(len(pairs.unmatched_a) for pairs in join.drain()) == 0


def test_counts_say_what_happened_to_the_rows_of_each_side() -> None:
    join = WindowJoin(rows(10), seconds(0.00001), budget=MemoryBudget(MIB))
    list(join.push(piece_of([0, 1, 1, 0], [1, 1, 1, 1], np.array([0, 100, 5, 100]))))
    count_a, count_b = join.counts
    assert (count_a.arrivals, count_a.pairs, count_a.probes) == (2, 1, 2)
    assert (count_b.arrivals, count_b.pairs, count_b.rows_late) == (2, 2, 1)
    assert join.held_rows == (2, 1)


@pytest.mark.parametrize("window", [rows(50), arrivals(100), seconds(0.0001)])
@pytest.mark.parametrize("index", INDEX_NAMES)
def test_a_snapshot_is_the_same_after_it_was_restored(window: Window, index: str) -> None:
    def new_join() -> WindowJoin:
        return WindowJoin(window, window, index_a=index, index_b=index, budget=MemoryBudget(MIB))

    first, second = new_join(), new_join()
    list(first.push(random_piece(1, 777, 10)))
    snapshot = first.snapshot()
    second.restore(snapshot)
    again = second.snapshot()
    assert (again.counts, again.arrived, again.clock_us) == (snapshot.counts, snapshot.arrived, snapshot.clock_us)
    for held, held_again in zip(snapshot.held, again.held, strict=True):
        for column in ("code", "row", "mark", "tag"):
            np.testing.assert_array_equal(getattr(held, column), getattr(held_again, column))


def test_a_row_with_more_partners_than_a_piece_of_output_has_them_all() -> None:
    join = WindowJoin(rows(1000), rows(1000), budget=MemoryBudget(MIB), pairs_per_piece=64)
    pieces = list(join.push(piece_of([0] * 1000 + [1], [5] * 1001)))
    assert max(len(pairs) for pairs in pieces) == 64
    assert pairs_of(pieces) == {(row, 0) for row in range(1000)}


def test_rows_that_do_not_probe_are_held_and_pairs_say_with_what_chance_they_were_seen() -> None:
    piece = random_piece(2, 4000, 10)
    everything = {(a, b): later for a, b, later in reference_join(piece, rows(20), rows(20))[0]}
    join = WindowJoin(rows(20), rows(20), budget=MemoryBudget(MIB), probe_share=(0.25, 1.0))
    pieces = list(join.push(piece))
    found = pairs_of(pieces)
    assert found <= everything.keys()
    assert {pair for pair, a_is_later in everything.items() if not a_is_later} <= found
    share = sum(everything[pair] for pair in found) / sum(everything.values())
    assert 0.15 < share < 0.35
    for pairs in pieces:
        assert pairs.weight is not None
        np.testing.assert_array_equal(pairs.weight, np.where(pairs.a_is_later, 4.0, 1.0))
    assert join.counts[0].probes_skipped > 0 == join.counts[1].probes_skipped


def shed(seed: int, index: str = "hash", *, seed_of_shedding: int = 0) -> tuple[WindowJoin, list[Pairs], Arrivals]:
    piece = random_piece(seed, 20_000, 1000)
    join = WindowJoin(
        *(rows(4000), rows(4000)),
        index_a=index,
        index_b=index,
        budget=MemoryBudget(96 * KIB),
        seed=seed_of_shedding,
    )
    return join, list(join.push(piece)), piece


@pytest.mark.parametrize("index", INDEX_NAMES)
def test_a_join_with_too_little_memory_finds_a_part_of_the_pairs_and_weighs_them(index: str) -> None:
    join, pieces, piece = shed(7, index)
    everything = reference_of(piece, 4000)
    found = pairs_of(pieces)
    assert found < everything
    assert join.counts[0].rows_shed > 1000 < join.counts[1].rows_shed
    weights = np.concatenate([np.ones(len(pairs)) if pairs.weight is None else pairs.weight for pairs in pieces])
    assert 0.8 < weights.sum() / len(everything) < 1.2


def reference_of(piece: Arrivals, window_rows: int) -> set[tuple[int, int]]:
    """The pairs of a join that has memory enough; it is tested against the definition elsewhere."""
    join = WindowJoin(rows(window_rows), rows(window_rows), budget=MemoryBudget(16 * MIB))
    return pairs_of(list(join.push(piece)))


def test_what_is_shed_depends_on_the_seed_alone() -> None:
    pairs = [pairs_of(shed(7, seed_of_shedding=seed)[1]) for seed in (1, 1, 2)]
    assert pairs[0] == pairs[1] != pairs[2]


def test_every_held_row_belongs_to_the_share_of_its_level() -> None:
    join, _, _ = shed(8)
    snapshot = join.snapshot()
    for held, level, share in zip(snapshot.held, snapshot.levels, join.held_share, strict=True):
        assert level > 0
        assert share == SHARES[level]
        assert set(held.tag.tolist()) == {level}, "shares have only fallen"
        assert len(held) <= 4000 * share * 1.3


def test_a_shed_join_goes_on_after_a_restart_with_the_shares_it_had() -> None:
    join, _, _ = shed(9)
    second = WindowJoin(rows(4000), rows(4000), budget=MemoryBudget(96 * KIB))
    second.restore(join.snapshot())
    assert second.held_share == join.held_share
    more = random_piece(10, 3000, 1000)
    assert pairs_of(list(second.push(more))) == pairs_of(list(join.push(more)))


def test_the_share_rises_again_when_the_window_has_become_small() -> None:
    join = WindowJoin(seconds(1), seconds(1), budget=MemoryBudget(96 * KIB))
    rng = np.random.default_rng(4)
    sides, keys = rng.integers(0, 2, 30_000), rng.integers(0, 100, 30_000)
    list(join.push(piece_of(sides, keys, np.arange(30_000) * 10)))
    assert max(join.held_share) < 1.0
    for second in range(1, 8):
        list(join.push(piece_of(sides[:100], keys[:100], second * 1_000_000 + np.arange(100) * 10_000)))
    assert join.held_share == (1.0, 1.0)
    pairs = next(iter(join.push(piece_of([0], [int(keys[sides == 1][0])], np.array([8_000_000])))), None)
    assert pairs is None or pairs.weight is not None, "a join that has shed keeps saying how sure it is"


def test_a_side_with_more_than_its_part_gives_way_to_the_other() -> None:
    join = WindowJoin(rows(100_000), rows(100_000), budget=MemoryBudget(256 * KIB))
    list(join.push(piece_of(np.zeros(50_000), np.arange(50_000))))
    alone_a, _ = join.held_bytes
    list(join.push(piece_of(np.ones(50_000), np.arange(50_000))))
    both_a, both_b = join.held_bytes
    assert both_a < 0.7 * alone_a
    assert 0.6 < both_a / both_b < 1.7


def test_a_left_join_that_does_not_fit_says_so() -> None:
    join = WindowJoin(rows(100_000), rows(10), budget=MemoryBudget(64 * KIB), outer=True)
    with pytest.raises(BudgetExceeded, match="cannot shed rows"):
        list(join.push(piece_of(np.zeros(50_000), np.arange(50_000))))


def test_a_left_join_cannot_skip_probes() -> None:
    with pytest.raises(InvalidOption, match="a left join cannot shed"):
        WindowJoin(rows(5), rows(5), budget=MemoryBudget(MIB), outer=True, probe_share=(0.5, 1.0))


def test_an_unknown_index_is_named_with_the_known_ones() -> None:
    with pytest.raises(InvalidOption, match=r"allowed: scan, hash, b\+tree, t-tree"):
        WindowJoin(rows(5), rows(5), budget=MemoryBudget(MIB), index_a="btree")


def test_a_budget_for_less_than_a_few_rows_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match="too small for the window of A"):
        WindowJoin(rows(5), rows(5), budget=MemoryBudget(200))


def test_an_interval_is_refused_by_a_hash_index() -> None:
    join = WindowJoin(rows(5), rows(5), budget=MemoryBudget(MIB))
    key = np.array([1, 1])
    interval = Arrivals(np.array([0, 1], np.int8), key, key, key + 1, np.ones(2, np.bool_), key)
    with pytest.raises(AssertionError, match="an interval of codes"):
        list(join.push(interval))


@pytest.mark.parametrize("option", ["hash_bucket_rows", "tree_node_rows"])
def test_buckets_and_nodes_of_no_rows_are_refused(option: str) -> None:
    with pytest.raises(InvalidOption, match="at least 1 row a bucket and 3 rows a node"):
        WindowJoin(rows(5), rows(5), budget=MemoryBudget(MIB), **{option: 0})
