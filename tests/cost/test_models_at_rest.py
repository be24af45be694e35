"""Joins that learn what they hold beside their models, over so many rounds of R that the threshold has come to rest.

Sizes are those at which `semistream calibrate --loops` times iterations, and others at which the threshold is hard to
tell: under 2 about as much comes in as is just not too much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.clock import VirtualClock
from semistream.cost.pages import Layout
from semistream.joins.base import StreamRows
from semistream.joins.registry import ALGORITHMS
from semistream.keys import KeyCodec
from semistream.lab.workloads.zipf import Shuffle, Zipf
from semistream.planning.capacities import Room, predict_for, workload_of
from semistream.planning.charging import charge_of, typical
from semistream.planning.loops import LoopSize
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, MeteredRelation

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

WARM_UP_ROUNDS, ROUNDS = 20, 150
OFFERED_ROWS, DRAWN_ROWS = 8192, 1 << 16

R_ROW_BYTES = 120
"""The papers'; those of these relations have some bytes more."""

R_SHARE_LEAST, R_SHARE_MOST, HELD_PAGES_LEAST = 0.01, 1 / 3, 10
"""The memory of a size that is drawn: so much of R, and so many pages."""

HIT_SHARE_ERROR = 0.002
"""A tenth of the least hit share that is told within ten per cent; below it what is off is this part of the stream."""

LEARNING = ["cachejoin", "moij", "ssbj", "sscj"]
PINNING = ["optimised-x-hybridjoin", "tuned-x-hybridjoin", "x-hybridjoin"]
"""Their models know R in the order of popularity: which popular keys the first pages hold otherwise is not told."""

DRAWN: list[tuple[int, Layout]] = [
    *((seed, "frequency") for seed in range(4)),
    (1, "shuffled"),
    (3, "shuffled"),
]
"""Seeds of sizes, and how R lies there. At seeds 0 and 2 skews are 0.02 and 0.11: one order is nearly as another."""


@dataclass(frozen=True)
class Counted:
    """What a join did behind the warm-up."""

    hit_share: float
    rows: float
    """Of an iteration."""
    lettings: float
    """Share of iterations that let keys in."""
    rate: float
    """Rows a second of the virtual clock: reads at the disk's price, operations at the usual machine's."""


def counted(join: Any, clock: VirtualClock, size: LoopSize, layout: Layout) -> Counted:
    """What a join counts at rest."""
    rng, codec = np.random.default_rng(11), KeyCodec([pa.int64()])
    zipf, shuffle = Zipf(size.r_rows, size.zipf_exponent), Shuffle(size.r_rows, 1)
    pages = -(-size.r_rows // size.page_rows)
    codes, admitted, begin, begin_s = np.empty(0, np.int64), 0, None, 0.0
    while join.stats.iterations < ROUNDS * pages:
        if not join.wants_rows:
            join.step()
        else:
            if len(codes) == 0:
                ranks = zipf.sample(rng, DRAWN_ROWS)
                codes = codec.encode([pa.array(shuffle(ranks) if layout == "shuffled" else ranks)]).codes
            offered = codes[:OFFERED_ROWS]
            rows = join.admit(StreamRows(np.arange(admitted, admitted + len(offered), dtype=np.int64), offered))
            admitted, codes = admitted + rows, codes[rows:]
        if begin is None and join.stats.iterations >= WARM_UP_ROUNDS * pages:
            begin, begin_s = join.stats.copy(), clock.now_s()
    assert begin is not None, "the warm-up is shorter than the run"
    end = join.stats
    rows, iterations = end.rows - begin.rows, end.iterations - begin.iterations
    took_s = clock.now_s() - begin_s + charge_of(typical(HDD))(begin, end)
    return Counted(
        hit_share=(end.hits - begin.hits) / rows,
        rows=rows / iterations,
        lettings=(end.lettings - begin.lettings) / iterations,
        rate=rows / took_s,
    )


@pytest.mark.parametrize(
    ("algorithm", "size"),
    [
        ("cachejoin", LoopSize(40_000, 256, 1_000_000)),
        ("cachejoin", LoopSize(100_000, 1024, 2_500_000)),
        ("cachejoin", LoopSize(100_000, 1024, 4_000_000)),
        ("cachejoin", LoopSize(200_000, 2048, 6_000_000)),
        ("cachejoin", LoopSize(200_000, 4096, 8_000_000)),
        ("cachejoin", LoopSize(200_000, 1024, 2_400_000)),
        ("cachejoin", LoopSize(100_000, 512, 2_500_000, 0.5)),
        ("cachejoin", LoopSize(100_000, 1024, 4_000_000, 0.5)),
        ("cachejoin", LoopSize(80_000, 1024, 1_500_000, 0.75)),
        ("cachejoin", LoopSize(40_000, 512, 600_000, 1.25)),
        ("cachejoin", LoopSize(50_000, 256, 1_500_000, 1.25)),
        # Where the most popular keys go with one part in sixteen, and what they let through is most of what is.
        ("cachejoin", LoopSize(60_000, 512, 2_000_000, 1.5)),
        ("cachejoin", LoopSize(60_000, 512, 800_000, 1.5)),
        # Where the threshold falls now and then, and what is held follows it slowly.
        ("cachejoin", LoopSize(18_530, 333, 530_000, 0.3)),
        ("cachejoin", LoopSize(18_530, 333, 561_874, 0.3)),
        ("sscj", LoopSize(18_530, 333, 530_000, 0.3)),
        ("moij", LoopSize(40_000, 256, 1_000_000)),
        ("moij", LoopSize(200_000, 4096, 8_000_000)),
        ("moij", LoopSize(60_000, 2048, 2_142_096, 0.6)),
        # Where every round a page takes more than half of all that waits along. While MOIJ counted passages of the
        # queue by what such a page leaves behind, the first of the two had 14 % fewer w_N than told, the second 7 %.
        ("moij", LoopSize(48_219, 1852, 1_180_719, 1.11)),
        ("moij", LoopSize(20_520, 155, 122_045, 1.32)),
        ("ssbj", LoopSize(40_000, 256, 1_000_000)),
        ("ssbj", LoopSize(200_000, 4096, 8_000_000)),
        ("ssbj", LoopSize(80_000, 1024, 1_500_000, 0.75)),
        ("ssbj", LoopSize(100_000, 1024, 4_000_000, 0.5)),
        ("sscj", LoopSize(40_000, 256, 1_000_000)),
        ("sscj", LoopSize(100_000, 1024, 2_500_000)),
        ("sscj", LoopSize(100_000, 512, 2_500_000, 0.5)),
        ("sscj", LoopSize(100_000, 1024, 4_000_000, 0.5)),
        ("sscj", LoopSize(60_000, 2048, 2_142_096, 0.6)),
        ("sscj", LoopSize(60_000, 512, 1_523_285, 0.3)),
    ],
)
def test_a_model_is_within_ten_per_cent_of_a_join_at_rest(algorithm: str, size: LoopSize) -> None:
    assert_told(algorithm, size)


@pytest.mark.parametrize("algorithm", LEARNING)
@pytest.mark.parametrize(("seed", "layout"), DRAWN)
def test_a_model_is_within_ten_per_cent_at_a_size_drawn_from_its_range(
    algorithm: str, seed: int, layout: Layout
) -> None:
    assert_told(algorithm, drawn(np.random.default_rng(seed)), layout)


@pytest.mark.parametrize(
    ("algorithm", "seed", "layout"),
    [
        (algorithm, seed, layout)
        for algorithm in ["hybridjoin", *PINNING]
        for seed, layout in DRAWN
        if seed < 2 and (layout == "frequency" or algorithm not in PINNING)
    ],
)
def test_so_is_one_of_a_join_that_learns_nothing(algorithm: str, seed: int, layout: Layout) -> None:
    assert_told(algorithm, drawn(np.random.default_rng(seed)), layout)


def drawn(rng: np.random.Generator) -> LoopSize:
    """A size in the range in which models are held to ten per cent."""

    def log_uniform(least: float, most: float) -> float:
        return float(np.exp(rng.uniform(np.log(least), np.log(most))))

    r_rows = round(log_uniform(20_000, 200_000))
    page_rows = round(log_uniform(64, min(2048, r_rows * R_SHARE_MOST / HELD_PAGES_LEAST / 1.5)))
    r_share = log_uniform(max(R_SHARE_LEAST, HELD_PAGES_LEAST * page_rows / r_rows), R_SHARE_MOST)
    return LoopSize(r_rows, page_rows, round(r_rows * R_ROW_BYTES * r_share), float(rng.uniform(0.0, 1.25)))


def assert_told(algorithm: str, size: LoopSize, layout: Layout = "frequency") -> None:
    """Assert that a model says what its join counts at rest."""
    numbers = np.arange(size.r_rows)
    table = pa.table({"key": numbers, "number": numbers, "text": np.full(size.r_rows, "x" * 100)})
    relation, room = MemoryRelation.from_table(table, ["key"], page_rows=size.page_rows), Room(size.memory_bytes)
    workload = workload_of(relation, room, zipf_exponent=size.zipf_exponent, layout=layout)
    told = predict_for(algorithm, relation, room, workload, typical(HDD))
    clock = VirtualClock()
    join = ALGORITHMS[algorithm].build(MeteredRelation(relation, HDD, clock), room.resources(clock))
    was = counted(join, clock, size, layout)
    print(
        f"{algorithm}, {size}, {layout}: hits {was.hit_share:.4f} (told {told.hit_share:.4f}), w {was.rows:.1f} "
        f"({told.w_n + told.w_s:.1f}), lettings {was.lettings:.3f} ({told.counts.lettings:.3f}), "
        f"mu {was.rate:.0f} ({told.mu_rows_per_s:.0f})"
    )
    assert was.hit_share == pytest.approx(told.hit_share, rel=0.1, abs=HIT_SHARE_ERROR)
    assert was.hit_share * was.rows == pytest.approx(told.w_n, rel=0.1, abs=HIT_SHARE_ERROR * was.rows)
    assert (1.0 - was.hit_share) * was.rows == pytest.approx(told.w_s, rel=0.1)
    assert was.rows == pytest.approx(told.w_n + told.w_s, rel=0.1)
    assert was.rate == pytest.approx(told.mu_rows_per_s, rel=0.1)
