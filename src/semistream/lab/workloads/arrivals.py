"""When rows come: evenly, in bursts, or with silence in between, because real streams are never even.

`burst_sizes` cuts a stream into bursts of log-normal size: most are near the middle, some are several times larger.
The sizes always add up to exactly the rows that were asked for, so that whoever counts at the far end can demand
equality.

The arrival functions return the second at which each row comes, in order, from 0 on. `rows_per_s` is the mean over the
whole stream, and exact: the parts of the stream are drawn at random and then stretched to fit, so two kinds of arrival
with the same mean rate differ in nothing but their evenness.

`published_arrivals` repeats the stream source of the HYBRIDJOIN family of papers: six sources of 1, 2, 4 … 32 rows a
step of 15 ms that turn on and off by themselves. It cannot give more than 63 rows a step (4 200 rows/s) and gives half
of that on average; for another rate change the length of the step. That durations follow Zipf's law is known, their
exponent and longest duration are not: `DURATION_EXPONENT` and `DURATION_STEPS_MAX` are our choice.

Memory: 8 bytes a row for the times, and a few arrays as long while they are made.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidOption
from semistream.lab.workloads.zipf import Zipf

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BURST_SPREAD = 0.7
"""Standard deviation of the logarithm of a burst: one burst in forty is four times the median."""

PUBLISHED_STEP_S = 0.015
PUBLISHED_SOURCES_ROWS_PER_STEP = (1, 2, 4, 8, 16, 32)

DURATION_EXPONENT = 1.0
DURATION_STEPS_MAX = 1000
"""Durations of 15 ms to 15 s, 2 s on average: long enough to fill a stream buffer, short enough to come often."""

BLOCK_STEPS = 1 << 15
"""Steps made at a time (8 minutes of the published source, a million rows); sources are drawn anew for each block."""


def burst_sizes(rng: np.random.Generator, rows: int, bursts: int, spread: float = BURST_SPREAD) -> Integers:
    """Return the rows of each burst; they add up to `rows`, and no burst is empty.

    With fewer rows than bursts there are as many bursts as rows. A spread of 0 makes all bursts equal, give or take
    a row.

    Example:
        >>> sizes = burst_sizes(np.random.default_rng(7), rows=1000, bursts=8)
        >>> len(sizes), int(sizes.sum())
        (8, 1000)
    """
    _check_rows(rows)
    if bursts < 1:
        raise InvalidOption("a stream needs at least one burst", given=str(bursts), allowed="1 or more")
    bursts = min(bursts, rows)
    if bursts == 0:
        return np.zeros(0, dtype=np.int64)
    weights = rng.lognormal(mean=0.0, sigma=spread, size=bursts)
    # One row each, and the rest by weight: rounding the running sum instead of each share keeps the total exact.
    ends = np.rint(np.cumsum(weights) / weights.sum() * (rows - bursts)).astype(np.int64)
    sizes: Integers = np.diff(ends, prepend=np.int64(0)) + 1
    assert int(sizes.sum()) == rows, "rounding lost or added a row"
    return sizes


def constant_arrivals(rows: int, rows_per_s: float) -> Floats:
    """Return arrival times that are evenly spaced.

    Example:
        >>> constant_arrivals(rows=4, rows_per_s=2.0).tolist()
        [0.0, 0.5, 1.0, 1.5]
    """
    _check_rows(rows)
    _check_positive("an arrival rate", rows_per_s)
    return np.arange(rows) / rows_per_s


def bursty_arrivals(
    rng: np.random.Generator, rows: int, rows_per_s: float, bursts: int, spread: float = BURST_SPREAD
) -> Floats:
    """Return arrival times whose rate changes from burst to burst; all bursts last equally long.

    Example:
        >>> times = bursty_arrivals(np.random.default_rng(7), rows=1000, rows_per_s=100.0, bursts=20)
        >>> len(times), bool(times[-1] < 10.0)
        (1000, True)
    """
    _check_positive("an arrival rate", rows_per_s)
    sizes = burst_sizes(rng, rows, bursts, spread)
    if rows == 0:
        return np.zeros(0)
    burst = np.repeat(np.arange(len(sizes)), sizes)
    place_in_burst = np.arange(rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return (burst + place_in_burst / sizes[burst]) * (rows / rows_per_s / len(sizes))


def intermittent_arrivals(rng: np.random.Generator, rows: int, rows_per_s: float, on_s: float, off_s: float) -> Floats:
    """Return arrival times with silence in between: rows come evenly for a while, then none for a while.

    How long is exponentially distributed, around `on_s` and `off_s`. While rows come, they come faster than
    `rows_per_s` by (on_s + off_s) / on_s. The stream ends with a silence.

    Example:
        >>> times = intermittent_arrivals(np.random.default_rng(7), rows=1000, rows_per_s=100.0, on_s=1.0, off_s=1.0)
        >>> len(times), bool(np.diff(times).max() > 0.1)
        (1000, True)
    """
    _check_rows(rows)
    _check_positive("an arrival rate", rows_per_s)
    _check_positive("a time with rows", on_s)
    _check_positive("a time without rows", off_s)
    all_s = rows / rows_per_s
    busy_s = all_s * on_s / (on_s + off_s)
    turns = max(round(busy_s / on_s), 1)
    on_end_s = _stretched_ends(rng, turns, busy_s)
    off_end_s = _stretched_ends(rng, turns, all_s - busy_s)
    row_busy_s = np.arange(rows) / max(rows, 1) * busy_s
    silences_before = np.searchsorted(on_end_s[:-1], row_busy_s, side="right")
    times_s: Floats = row_busy_s + np.append(0.0, off_end_s)[silences_before]
    return times_s


def published_arrivals(rng: np.random.Generator, rows: int, step_s: float = PUBLISHED_STEP_S) -> Floats:
    """Return arrival times of the papers' own stream source; the rows of a step come together, at its start.

    Example:
        >>> times = published_arrivals(np.random.default_rng(7), rows=10_000)
        >>> len(times), int(np.unique(times, return_counts=True)[1].max()) <= 63
        (10000, True)
    """
    _check_rows(rows)
    _check_positive("a step of the stream source", step_s)
    steps: list[Integers] = []
    made_rows = 0
    while made_rows < rows:
        rows_of_step = np.zeros(BLOCK_STEPS, dtype=np.int64)
        for rows_per_step in PUBLISHED_SOURCES_ROWS_PER_STEP:
            rows_of_step += rows_per_step * _on_or_off(rng, BLOCK_STEPS)
        first_step = len(steps) * BLOCK_STEPS
        steps.append(np.repeat(np.arange(first_step, first_step + BLOCK_STEPS), rows_of_step)[: rows - made_rows])
        made_rows += len(steps[-1])
    return np.concatenate([*steps, np.zeros(0, dtype=np.int64)]) * step_s


def _on_or_off(rng: np.random.Generator, steps: int) -> Integers:
    """1 for each step in which the source sends, 0 for the others; both last as long as Zipf's law says."""
    # As many durations as there are steps always suffice, for none is shorter than a step.
    durations = Zipf(DURATION_STEPS_MAX, DURATION_EXPONENT).sample(rng, steps) + 1
    enough = int(np.searchsorted(np.cumsum(durations), steps)) + 1
    turns = (np.arange(enough) + rng.integers(2)) % 2
    return np.repeat(turns, durations[:enough])[:steps]


def _stretched_ends(rng: np.random.Generator, count: int, total_s: float) -> Floats:
    """The ends of `count` exponentially distributed durations that last `total_s` together."""
    ends = np.cumsum(rng.exponential(size=count))
    stretched: Floats = ends / ends[-1] * total_s
    return stretched


def _check_rows(rows: int) -> None:
    if rows < 0:
        raise InvalidOption("a stream cannot have fewer than no rows", given=str(rows), allowed="0 or more")


def _check_positive(what: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise InvalidOption(f"{what} must be a number above 0", given=str(value), allowed="> 0")
