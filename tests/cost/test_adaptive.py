"""The two ways of adaptive: what the model says of them, beside a run of the operator on a metered disk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.clock import VirtualClock
from semistream.cost import adaptive
from semistream.cost.base import Sizes, Workload
from semistream.cost.pages import Layout
from semistream.cost.symbols import IoProfile, UnitCosts
from semistream.joins.registry import ALGORITHMS
from semistream.joins.timed import run_timed
from semistream.lab.workloads.zipf import Shuffle, Zipf
from semistream.planning.capacities import Room, predict_for, sizes_of, workload_of
from semistream.planning.charging import charge_of, typical
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, NVME, MeteredRelation

COSTS = UnitCosts(1e-7, 2e-7, 3e-7, 4e-7, 5e-7, 6e-7, 7e-7, 8e-7, IoProfile(seek_s=0.01, bytes_per_s=1e8))
WORKLOAD = Workload(r_rows=200_000, layout="shuffled")
SIZES = Sizes(
    page_rows=500,
    h_r_rows=5000,
    rows_per_step=1000,
    sweep_splits=((20_000.0, 0.0), (15_000.0, 2000.0), (100.0, 5000.0)),
)


def test_the_cheaper_way_is_taken() -> None:
    slow, fast = COSTS, replace(COSTS, io=IoProfile(seek_s=0.0, bytes_per_s=1e8))
    assert adaptive.predict(WORKLOAD, SIZES, slow) == adaptive.predict_sweeping(WORKLOAD, SIZES, slow)
    assert adaptive.predict(WORKLOAD, SIZES, fast) == adaptive.predict_at_once(WORKLOAD, SIZES, fast)


def test_without_memory_for_a_page_keys_are_read_one_by_one() -> None:
    told = adaptive.predict_at_once(WORKLOAD, replace(SIZES, page_fits=False), COSTS)
    assert told.counts.seeks == pytest.approx(adaptive.distinct_misses(WORKLOAD, SIZES))
    table = pa.table({"k": np.arange(1000), "text": np.full(1000, "x" * 80)})
    fitting = [
        sizes_of("adaptive", MemoryRelation.from_table(table, ["k"], page_rows=rows), Room(200_000)).page_fits
        for rows in (10, 1000)
    ]
    assert fitting == [True, False]


def test_a_sweep_balances_and_serves_twice_what_waits() -> None:
    told = adaptive.predict_sweeping(WORKLOAD, SIZES, COSTS)
    rows = told.w_n + told.w_s
    assert told.waiting_rows == 15_000, "the split with the most rows in a round"
    assert told.w_s == 2 * told.waiting_rows == told.counts.appends == told.counts.deletions
    assert told.hit_share == pytest.approx(WORKLOAD.popularity.share_of_hottest(2000))
    assert told.counts.stream_reads == pytest.approx(rows)
    assert told.counts.probes == pytest.approx(rows + told.w_s)


@pytest.mark.parametrize("layout", ("frequency", "shuffled"))
@pytest.mark.parametrize(("misses", "seek_s"), [(100, 0.001), (300, 0.003), (300, 0.0), (4000, 0.002)])
def test_pages_and_seeks_of_a_round_are_those_of_a_drawn_one(layout: Layout, misses: int, seek_s: float) -> None:
    rng = np.random.default_rng(5)
    weights = np.arange(1, 20_001) ** -0.8
    place = np.arange(20_000) if layout == "frequency" else rng.permutation(20_000)
    io = IoProfile(seek_s, bytes_per_s=50 * 120 / 0.0004)
    through = int((seek_s + 0.0004) / 0.0004) - 1
    pages, seeks = [], []
    for _ in range(40):
        missed = rng.choice(20_000, size=3 * misses + 2000, p=weights / weights.sum())
        wanted = np.unique(place[missed[missed >= 400][:misses]] // 50)
        gaps = np.diff(wanted) - 1
        pages.append(len(wanted) + gaps[gaps <= through].sum())
        seeks.append(1 + (gaps > through).sum())
    workload = Workload(20_000, 0.8, layout=layout)
    told = adaptive.round_reads(workload, 50, 400, misses, io)
    assert told.pages_read == pytest.approx(np.mean(pages), rel=0.04)
    assert told.seeks == pytest.approx(np.mean(seeks), rel=0.1, abs=1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("exponent", "layout", "memory_bytes"),
    [
        (1.0, "shuffled", 400_000),
        (1.0, "frequency", 400_000),
        (0.8, "shuffled", 1_000_000),
        (0.5, "frequency", 400_000),
        (0.0, "shuffled", 400_000),
    ],
)
def test_the_operator_sweeps_as_predicted(exponent: float, layout: Layout, memory_bytes: int) -> None:
    keys, rows = 20_000, 800_000 if exponent else 100_000
    table = pa.table({"k": np.arange(keys), "text": np.full(keys, "x" * 80)})
    relation = MemoryRelation.from_table(table, ["k"], page_rows=200)
    codes = Zipf(keys, exponent).sample(np.random.default_rng(1), rows)
    codes = Shuffle(keys, 1)(codes) if layout == "shuffled" else codes
    room, clock = Room(memory_bytes), VirtualClock()
    told = predict_for(
        "adaptive", relation, room, workload_of(relation, room, zipf_exponent=exponent, layout=layout), typical(HDD)
    )
    join: Any = ALGORITHMS["adaptive"].build(MeteredRelation(relation, HDD, clock), room.resources(clock))
    seen: list[tuple[int, int]] = []
    run = run_timed(
        join,
        codes,
        np.zeros(rows),
        clock,
        charge_of(typical(HDD)),
        lambda _: seen.append((join.stats.rows, join.stats.hits)),
    )
    assert join.is_sweeping
    # What is remembered takes half of the run to settle; at its end fewer and fewer rows share a page.
    begin, end = (next(pair for pair in seen if pair[0] >= share * rows) for share in (0.6, 0.95))
    assert (end[1] - begin[1]) / (end[0] - begin[0]) == pytest.approx(told.hit_share, rel=0.1, abs=0.02)
    assert run.rate_between(int(0.6 * rows), int(0.95 * rows)) == pytest.approx(told.mu_rows_per_s, rel=0.1)


@pytest.mark.parametrize("memory_bytes", [200_000, 1_000_000, 5_000_000])
def test_sweeps_are_planned_with_the_rows_that_the_operator_can_let_wait(memory_bytes: int) -> None:
    codes = np.arange(20_000)
    relation = MemoryRelation.from_table(pa.table({"k": codes, "a": codes, "b": codes}), ["k"], page_rows=50)
    room = Room(memory_bytes)
    join: Any = ALGORITHMS["adaptive"].build(relation, room.resources())
    join._begin_to_sweep(join._sweeps)
    splits = sizes_of("adaptive", relation, room).sweep_splits
    # What is set aside for absent keys holds some rows where there are none.
    join.knowledge.resize(0)
    assert splits[0] == pytest.approx((join._way._rows_beside(0), join.knowledge.remembered.entries_max), rel=0.02)
    assert [waiting for waiting, _ in splits] == sorted((waiting for waiting, _ in splits), reverse=True)


def test_a_relation_with_one_page_or_too_little_memory_is_never_swept() -> None:
    table = pa.table({"k": np.arange(1000), "text": np.full(1000, "x" * 80)})
    whole = MemoryRelation.from_table(table, ["k"], page_rows=1000)
    assert sizes_of("adaptive", whole, Room(1_000_000)).sweep_splits == ()
    paged = MemoryRelation.from_table(table, ["k"], page_rows=100)
    assert sizes_of("adaptive", paged, Room(20_000)).sweep_splits == ()
    told = predict_for(
        "adaptive", paged, Room(20_000), workload_of(paged, Room(20_000), zipf_exponent=1.0), typical(NVME)
    )
    assert told.mu_rows_per_s > 0
