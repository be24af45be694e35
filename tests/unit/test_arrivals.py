"""Bursts that add up, and arrival times that keep their mean rate however uneven they are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.errors import InvalidOption
from semistream.lab.workloads.arrivals import (
    BLOCK_STEPS,
    PUBLISHED_STEP_S,
    burst_sizes,
    bursty_arrivals,
    constant_arrivals,
    intermittent_arrivals,
    published_arrivals,
)


@pytest.mark.parametrize(("rows", "bursts"), [(1, 1), (1000, 7), (1_000_000, 24), (24, 24), (25, 24)])
def test_bursts_add_up_to_the_rows_and_none_is_empty(rows: int, bursts: int) -> None:
    sizes = burst_sizes(np.random.default_rng(29), rows, bursts)
    assert (len(sizes), int(sizes.sum())) == (bursts, rows)
    assert sizes.min() >= 1


def test_bursts_are_uneven_unless_the_spread_is_nothing() -> None:
    bursty = burst_sizes(np.random.default_rng(30), 1_000_000, 50)
    even = burst_sizes(np.random.default_rng(30), 1_000_000, 50, spread=0.0)
    assert bursty.max() > 2 * np.median(bursty)
    assert even.max() - even.min() <= 1


def test_fewer_rows_than_bursts_give_a_row_a_burst() -> None:
    assert burst_sizes(np.random.default_rng(31), 3, 24).tolist() == [1, 1, 1]
    assert burst_sizes(np.random.default_rng(31), 0, 24).tolist() == []


@pytest.mark.parametrize(("rows", "bursts"), [(-1, 1), (1, 0)])
def test_an_impossible_stream_is_refused(rows: int, bursts: int) -> None:
    with pytest.raises(InvalidOption, match="stream"):
        burst_sizes(np.random.default_rng(32), rows, bursts)


KINDS: dict[str, Callable[[np.random.Generator, int, float], np.ndarray]] = {
    "constant": lambda _, rows, rate: constant_arrivals(rows, rate),
    "bursty": lambda rng, rows, rate: bursty_arrivals(rng, rows, rate, bursts=17),
    "intermittent": lambda rng, rows, rate: intermittent_arrivals(rng, rows, rate, on_s=0.5, off_s=1.5),
    "published": lambda rng, rows, rate: published_arrivals(rng, rows, step_s=31.5 / rate),
}


@given(
    kind=st.sampled_from(list(KINDS)), seed=st.integers(0, 2**32), rows=st.integers(0, 3000), rate=st.floats(0.01, 1e6)
)
def test_every_row_comes_once_in_order_from_the_start(kind: str, seed: int, rows: int, rate: float) -> None:
    times = KINDS[kind](np.random.default_rng(seed), rows, rate)
    assert times.dtype == np.float64
    assert len(times) == rows
    assert np.all(np.diff(times) >= 0)
    assert np.all(times >= 0)
    again = KINDS[kind](np.random.default_rng(seed), rows, rate)
    assert np.array_equal(times, again), "the same seed gives the same times"


@given(
    kind=st.sampled_from(["constant", "bursty", "intermittent"]),
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 3000),
    rate=st.floats(0.01, 1e6),
)
def test_the_mean_rate_is_kept(kind: str, seed: int, rows: int, rate: float) -> None:
    times = KINDS[kind](np.random.default_rng(seed), rows, rate)
    assert times[-1] <= rows / rate * (1 + 1e-9), "the stream lasts as long as its mean rate says"


def rows_in_each(times: np.ndarray, slots: int, end_s: float) -> np.ndarray:
    return np.histogram(times, bins=slots, range=(0.0, end_s))[0]


def test_kinds_differ_in_nothing_but_evenness() -> None:
    rows, rate = 100_000, 1000.0
    spread = {}
    for kind in ("constant", "bursty", "intermittent"):
        times = KINDS[kind](np.random.default_rng(41), rows, rate)
        counts = rows_in_each(times, 200, rows / rate)
        assert counts.sum() == rows
        spread[kind] = counts.std() / counts.mean()
    assert spread["constant"] < 0.01
    assert 0.3 < spread["bursty"] < 1.5
    assert spread["intermittent"] > 1.0


def test_a_stream_is_silent_for_the_share_of_time_it_should_be() -> None:
    rows, rate = 200_000, 1000.0
    times = intermittent_arrivals(np.random.default_rng(42), rows, rate, on_s=0.5, off_s=1.5)
    gaps = np.diff(np.append(times, rows / rate))
    silence = gaps[gaps > 2 / (4 * rate)]
    assert silence.sum() / (rows / rate) == pytest.approx(0.75, abs=0.01)
    assert silence.mean() == pytest.approx(1.5, rel=0.2)
    assert len(silence) == pytest.approx(100, abs=10)


def test_the_published_source_sends_63_rows_a_step_at_most_and_half_of_that_on_average() -> None:
    times = published_arrivals(np.random.default_rng(43), 1_500_000)
    steps = np.rint(times / PUBLISHED_STEP_S).astype(np.int64)
    assert np.allclose(steps * PUBLISHED_STEP_S, times), "rows come at the start of a step"
    counts = np.bincount(steps)
    assert counts.max() == 63
    assert counts.mean() == pytest.approx(31.5, rel=0.2)
    assert len(counts) > BLOCK_STEPS, "more than one block was needed"
    # Sources stay on or off for a while: neighbouring steps are alike.
    assert np.mean(counts[1:] == counts[:-1]) > 0.8


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("kind", KINDS)
def test_an_impossible_rate_is_refused(kind: str, rate: float) -> None:
    if kind == "published":
        with pytest.raises(InvalidOption, match="a step of the stream source"):
            published_arrivals(np.random.default_rng(44), 10, step_s=rate)
    else:
        with pytest.raises(InvalidOption, match="an arrival rate"):
            KINDS[kind](np.random.default_rng(44), 10, rate)


@pytest.mark.parametrize("kind", KINDS)
def test_fewer_rows_than_none_are_refused(kind: str) -> None:
    with pytest.raises(InvalidOption, match="fewer than no rows"):
        KINDS[kind](np.random.default_rng(45), -1, 10.0)


@pytest.mark.parametrize(("on_s", "off_s"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (1.0, float("nan"))])
def test_an_impossible_silence_is_refused(on_s: float, off_s: float) -> None:
    with pytest.raises(InvalidOption, match="time with"):
        intermittent_arrivals(np.random.default_rng(46), 10, 10.0, on_s, off_s)
