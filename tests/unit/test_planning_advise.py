"""Advice on memory: the simulated policy hits as often as the operator does, and the best choice is a bound."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.clock import VirtualClock
from semistream.errors import BudgetExceeded, InvalidOption
from semistream.joins.adaptive import least_memory_bytes
from semistream.joins.base import Numbers
from semistream.joins.registry import ALGORITHMS
from semistream.joins.timed import run_timed
from semistream.lab.workloads.zipf import Shuffle, Zipf
from semistream.planning import advise as advising
from semistream.planning import key_sample
from semistream.planning.advise import BISECTIONS, Advice, advise, of_one_process
from semistream.planning.capacities import Room
from semistream.planning.charging import charge_of, typical
from semistream.planning.key_sample import KeySample
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import NVME, MeteredRelation

pytestmark = pytest.mark.long


KEYS, ROWS = 10_000, 100_000
SIZES = [200_000, 400_000, 800_000]
RELATION = MemoryRelation.from_table(
    pa.table({"k": np.arange(KEYS), "text": np.full(KEYS, "x" * 80)}), ["k"], page_rows=50
)
CAPACITIES = of_one_process(RELATION, Room(1))


def stream(exponent: float = 1.0) -> Numbers:
    return Shuffle(KEYS, 1)(Zipf(KEYS, exponent).sample(np.random.default_rng(1), ROWS))


def advice(codes: Numbers, sizes: list[int] = SIZES, **options: Any) -> Advice:
    return advise(codes, RELATION, sizes, CAPACITIES, typical(NVME), **options)


@pytest.mark.parametrize("exponent", [0.8, 1.0])
def test_the_simulated_policy_is_that_of_the_operator(exponent: float) -> None:
    codes = stream(exponent)
    for point in advice(codes, SIZES[:2]).points:
        clock = VirtualClock()
        relation = MeteredRelation(RELATION, NVME, clock)
        join: Any = ALGORITHMS["adaptive"].build(relation, Room(point.memory_bytes).resources(clock))
        # Sweeps are left out of the advice.
        join._sweeps = None
        half, costs = ROWS // 2, charge_of(typical(NVME))
        run_timed(join, codes[:half], np.zeros(half), clock, costs)
        hits, began_s = join.stats.hits, clock.now_s()
        run_timed(join, codes[half:], np.zeros(half), clock, costs)
        assert point.hit_share == pytest.approx((join.stats.hits - hits) / half, abs=0.03)
        # The operator learns its paths by trying them.
        assert point.service_rows_per_s == pytest.approx(half / (clock.now_s() - began_s), rel=0.2)


def test_no_policy_beats_the_best_choice_and_more_memory_helps() -> None:
    points = advice(stream()).points
    for point in points:
        assert point.best_hit_share - 0.08 <= point.hit_share <= point.best_hit_share
    for name in ("hit_share", "best_hit_share", "service_rows_per_s"):
        values = [getattr(point, name) for point in points]
        assert values == sorted(values), name


def test_a_sample_says_about_the_same_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = stream()
    whole = advice(codes, [800_000])
    monkeypatch.setattr(key_sample, "SAMPLED_KEYS_MAX", KEYS // 4)
    sample = advice(codes, [800_000])
    assert whole.sampled_share == 1
    assert sample.sampled_share < 0.3
    assert sample.points[0].hit_share == pytest.approx(whole.points[0].hit_share, abs=0.04)


def test_the_least_memory_for_a_rate_lies_between_two_sizes_of_the_table() -> None:
    codes = stream()
    first, second, _ = advice(codes).points
    wanted = (first.service_rows_per_s + second.service_rows_per_s) / 2
    found = advice(codes, wanted_rows_per_s=wanted)
    assert found.least is not None
    assert first.memory_bytes < found.least.memory_bytes < second.memory_bytes
    assert found.least.service_rows_per_s >= wanted
    assert "are enough" in found.as_text()


def test_the_least_memory_for_a_rate_may_lie_below_the_table() -> None:
    codes = stream()
    small, large = advice(codes, [60_000, 120_000]).points
    wanted = (small.service_rows_per_s + large.service_rows_per_s) / 2
    least = advice(codes, SIZES, wanted_rows_per_s=wanted).least
    assert least is not None
    assert small.memory_bytes < least.memory_bytes < large.memory_bytes
    assert least.service_rows_per_s >= wanted
    # As near as between two sizes, of which one is twice the other.
    nearer = advice(codes, [int(least.memory_bytes * (1 - 2 / 2**BISECTIONS))]).points[0]
    assert nearer.service_rows_per_s < wanted


def test_a_rate_that_any_memory_reaches_needs_the_least_that_the_join_can_work_with() -> None:
    least_bytes = least_memory_bytes(RELATION.info.row_bytes_max)
    for smallest in (200_000, least_bytes + 1, least_bytes):
        least = advice(stream(), [smallest, 400_000], wanted_rows_per_s=1.0).least
        assert least is not None
        assert least.memory_bytes == least_bytes


def test_a_part_of_a_long_stream_says_about_the_same_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = stream()
    whole = advice(codes, wanted_rows_per_s=100_000).least
    monkeypatch.setattr(advising, "STEPS_SEARCHED", 100)
    part = advice(codes, wanted_rows_per_s=100_000).least
    assert whole is not None and part is not None
    assert part.memory_bytes == pytest.approx(whole.memory_bytes, rel=0.15)
    assert part.hit_share == pytest.approx(whole.hit_share, abs=0.05)


def test_a_rate_that_no_size_reaches_is_said_so() -> None:
    found = advice(stream(), wanted_rows_per_s=1e12)
    assert found.least is None
    assert "more than" in found.as_text()
    assert json.loads(json.dumps(found.as_json()))["points"][0]["memory_bytes"] == SIZES[0]


def test_where_everything_fits_a_key_is_read_once() -> None:
    codes = stream()
    new = np.setdiff1d(codes[ROWS // 2 :], codes[: ROWS // 2])
    point = advice(codes, [20_000_000]).points[0]
    assert point.best_hit_share == 1
    # New keys share pages, and a new key may come several times within its first step.
    assert point.reads_per_row * ROWS / 2 <= len(new) <= round((1 - point.hit_share) * ROWS / 2)


def test_an_empty_stream_gets_no_advice() -> None:
    with pytest.raises(InvalidOption, match="needs a stream"):
        advice(np.zeros(0, np.int64))


def test_memory_that_holds_no_row_is_refused() -> None:
    with pytest.raises(BudgetExceeded, match="too small to hold one row"):
        advice(stream(), [100])


def test_batches_as_they_come_give_the_same_advice_as_the_whole_stream() -> None:
    codes = stream()
    whole = advice(codes, [400_000])
    batches = (codes[begin : begin + 777] for begin in range(0, ROWS, 777))
    assert advise(batches, RELATION, [400_000], CAPACITIES, typical(NVME)) == whole
    sample = KeySample()
    for begin in range(0, ROWS, 10_000):
        sample.add(codes[begin : begin + 10_000])
    assert advise(sample, RELATION, [400_000], CAPACITIES, typical(NVME)) == whole


def test_every_size_that_was_played_is_told() -> None:
    told: list[tuple[int, int]] = []
    advice(stream(), SIZES, on_point=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
