"""A join against the clock: every row has its times, and the verdict is that of the rates."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.joins.base import JoinResources, JoinStats
from semistream.joins.registry import ALGORITHMS
from semistream.joins.timed import Seconds, TimedRun, run_timed
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import IoProfile, MeteredRelation

pytestmark = pytest.mark.long


KEYS, PAGE_ROWS = 1000, 50
SLOW = IoProfile("slow", seek_s=0.01, bytes_per_s=1e12)
"""Ten milliseconds a read, whatever its size: a hundred reads a second."""


def run(
    name: str,
    rows: int,
    arrival_rows_per_s: float,
    *,
    charge_s: float = 0.0,
    seed: int = 0,
    window: tuple[int, int] | None = None,
    arrived_s: Seconds | None = None,
) -> TimedRun:
    """Uniform keys at a constant rate, unless they are told when to come."""
    clock = VirtualClock()
    table = pa.table({"k": np.arange(KEYS), "payload": np.arange(KEYS)})
    relation = MeteredRelation(MemoryRelation.from_table(table, ["k"], page_rows=PAGE_ROWS), SLOW, clock)
    join = ALGORITHMS[name].build(relation, JoinResources(MemoryBudget(1 << 20), clock, 1000, 20))
    codes = np.random.default_rng(seed).integers(0, KEYS, rows)

    def charge(before: JoinStats, after: JoinStats) -> float:
        return (after.outputs - before.outputs + after.rows - before.rows) * charge_s

    if arrived_s is None:
        arrived_s = np.arange(rows) / arrival_rows_per_s
    return run_timed(join, codes, arrived_s, clock, charge, window=window)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("arrival_rows_per_s", [10.0, 1e9])
def test_no_row_waits_for_ever_and_time_goes_forward(name: str, arrival_rows_per_s: float) -> None:
    timed = run(name, 500, arrival_rows_per_s)
    assert np.isfinite(timed.finished_s).all()
    assert (timed.waiting_s >= 0).all()
    assert (timed.processing_s >= 0).all()


def test_a_slow_stream_never_waits_in_the_buffer() -> None:
    timed = run("inlj", 50, arrival_rows_per_s=10)
    assert timed.keeps_up
    assert timed.buffered_rows_max == 1
    assert timed.processing_s.max() == pytest.approx(0.01)


def test_a_stream_that_is_too_fast_is_found_out_and_piles_up() -> None:
    # Reading all twenty pages once takes 0.2 s and serves as many rows as wait, some thousands.
    timed = run("hybridjoin", 30_000, arrival_rows_per_s=1e6)
    assert not timed.keeps_up
    assert timed.service_rows_per_s < 1e6
    assert timed.buffered_rows_max > 10_000
    assert timed.waiting_s[-1] > timed.waiting_s[len(timed.waiting_s) // 2]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("burst_rows", [400, 2500])
def test_bursts_that_are_served_before_the_next_one_comes_are_kept_up_with(name: str, burst_rows: int) -> None:
    # Admitting a burst takes several turns and some time, in which nothing is finished; that is not its rate.
    arrived_s = np.repeat(np.arange(5) * 60.0, burst_rows)
    timed = run(name, 5 * burst_rows, 0, charge_s=1e-6, arrived_s=arrived_s)
    assert (timed.finished_s - arrived_s).max() < 30, "the scene is meant to have bursts that are served in time"
    assert timed.keeps_up


def test_what_piled_up_while_a_join_was_cold_is_not_held_against_it() -> None:
    arrived_s = np.arange(1000.0)
    laters_s = (arrived_s[500:] + 401, 900 + 2 * arrived_s[:500])
    cold, slow = (np.concatenate([np.full(500, 900.0), later_s]) for later_s in laters_s)
    assert TimedRun(arrived_s, cold, cold, 500).keeps_up
    assert not TimedRun(arrived_s, slow, slow, 500).keeps_up
    assert TimedRun(arrived_s, slow, slow, 500).service_rows_per_s == pytest.approx(0.5, rel=0.01)
    # A run that ends early has no times for what came behind it.
    assert TimedRun(arrived_s, np.where(arrived_s < 800, arrived_s, np.nan), arrived_s, 500).keeps_up


def test_bursts_that_pile_up_are_not_kept_up_with() -> None:
    arrived_s = np.repeat(np.arange(5) * 0.1, 20_000)
    timed = run("hybridjoin", 100_000, 0, charge_s=1e-6, arrived_s=arrived_s)
    assert timed.waiting_s[-1] > timed.waiting_s[20_000]
    assert not timed.keeps_up


def test_operations_take_the_time_they_are_charged() -> None:
    free, charged = (run("inlj", 2000, 1e9, charge_s=charge_s) for charge_s in (0.0, 0.001))
    # Each of the rows comes in and is put out.
    assert charged.finished_s.max() == pytest.approx(free.finished_s.max() + 2 * 2000 * 0.001)


def test_the_rate_between_two_moments_is_rows_over_seconds() -> None:
    finished_s = np.array([4.0, 1.0, 2.0, 3.0])
    timed = TimedRun(np.zeros(4), np.zeros(4), finished_s, 4)
    assert timed.rate_between(1, 4) == pytest.approx(3 / 3)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_run_that_ends_behind_its_window_has_seen_in_it_what_a_run_to_the_end_sees(name: str) -> None:
    first_row, last_row = 10_000, 20_000
    whole, part = (run(name, 40_000, 1e9, charge_s=1e-6, window=window) for window in (None, (first_row, last_row)))
    begin_s, end_s = whole.admitted_s[first_row], whole.admitted_s[last_row]
    assert (part.admitted_s[first_row], part.admitted_s[last_row]) == (begin_s, end_s)
    inside, seen = ((run.finished_s > begin_s) & (run.finished_s <= end_s) for run in (whole, part))
    assert inside.any()
    assert np.array_equal(inside, seen)
    assert np.array_equal(whole.finished_s[inside], part.finished_s[inside])
    assert np.isnan(part.finished_s).any()


def test_a_window_in_which_nothing_is_finished_lets_a_run_go_on_to_its_end() -> None:
    # All rows find room in H_S before the first page is read.
    timed = run("hybridjoin", 500, 1e9, window=(100, 400))
    assert np.isfinite(timed.finished_s).all()


def test_counters_are_copied_and_not_shared() -> None:
    stats = JoinStats(rows=3, eviction_tests=5)
    before = stats.copy()
    stats.rows += 1
    assert before == JoinStats(rows=3, eviction_tests=5)
