"""One pair of indexes at one point of a figure of window joins, by formula or timed on this machine.

*Costs* are processor time of this machine, as in the paper. Both windows are filled, then arrivals come in the
proportion of the two rates, in random order, with keys that are all equally frequent. All sixteen pairs are given the
same arrivals and take turns, a piece each, so that what disturbs the machine for longer than a piece disturbs all of
them: a turn's times are divided by the median of the turn, and the median of that over all turns, with its interval,
stands for a pair. Seconds are those of the fastest turn. A pair that took `TOO_SLOW` times the fastest in its
`FIRST_TURNS` has no further ones.

*Outputs* need no clock: pairs are counted, and a second is as many arrivals as the two rates say. Short of processor
time, rows probe with the share that the strategy gives their stream; short of memory, windows have the rows that it
gives them, and one without any rows is not probed. Beside it stand the full windows in memory for so many rows: then
the join sheds, and holds a random part of each window, about four fifths of what would fit.

*Memory* is what the join charges for a window and its index, a row.
"""

from __future__ import annotations

from functools import lru_cache
from typing import get_args

import numpy as np

from semistream.budget import MIB, MemoryBudget
from semistream.clock import CpuClock
from semistream.cost.calibrate import Measured, median_interval
from semistream.cost.window_join import PAIRS, IndexCosts, Pair, TouchedTuples, WindowWorkload, join_cost
from semistream.joins.base import Numbers
from semistream.lab.conditions import Conditions
from semistream.lab.experiment import Measure, Point, Series, WindowSetting
from semistream.planning.window_calibrate import WindowCalibration, calibrate_windows
from semistream.planning.window_choice import choose_pair
from semistream.window.allocation import Allocation, Demand, Strategy, allocate, nothing_short
from semistream.window.join import OUTPUT_PART, WindowJoin, side_indexes
from semistream.window.pieces import Arrivals
from semistream.window.side import side_bytes
from semistream.window.windows import rows

CHOSEN, BY_EQUATIONS, BEST = "auto", "equations", "best"
"""Instead of two indexes: those that the curves of this machine name, those that the paper's equations name with this
machine's weights, and those that were the fastest."""

FORMULA, RUN, SHED = "formula", "run", "shed"
"""Of outputs: what equation 12 gives for a strategy, what was counted in windows of the rows that it gives, and what
was counted in the full windows with memory for no more."""

TURNS = 25
T_95_TURNS = 2.064
"""Student's t for 95 % and `TURNS` - 1 degrees of freedom."""

FIRST_TURNS = 3
TOO_SLOW = 1.5
MS = 1000.0

BUDGET_BYTES = 64 * MIB
"""More than any window here needs: what is short is decided by the strategies."""

Sides = np.ndarray[tuple[int], np.dtype[np.int8]]


def series_of_pair(label: str, pair: Pair, *, is_model: bool) -> Series:
    """The line of a pair of indexes."""
    return Series(label, "/".join(pair), is_model=is_model)


def window_point(measure: Measure, series: Series, x: float, setting: WindowSetting, conditions: Conditions) -> Point:
    """Find one point."""
    if measure == "cost":
        return _cost_point(series, x, setting, conditions.seed)
    if measure == "output":
        return _output_point(series, x, setting, conditions.seed)
    assert measure == "held", f"no window join is measured by {measure}"
    return _held_point(series, x, setting, conditions.seed)


# Costs ----------------------------------------------------------------------------------------------------------------


def _cost_point(series: Series, x: float, setting: WindowSetting, seed: int) -> Point:
    """Milliseconds for the arrivals of a second."""
    workload = _workload(setting)
    if series.is_model:
        paper = TouchedTuples(bucket_rows=setting.bucket_rows, node_rows=setting.node_rows)
        y = join_cost(paper, _pair_of(series), workload)
        return Point(x, y, y, y)
    timings = time_pairs(setting, seed)
    if series.algorithm in (CHOSEN, BY_EQUATIONS):
        here = calibrated(setting.bucket_rows, setting.node_rows)
        costs: IndexCosts = here.curves() if series.algorithm == CHOSEN else here.weights()
        pair = choose_pair(costs, workload, equality=True)
    elif series.algorithm == BEST:
        pair = min(timings, key=lambda pair: timings[pair].median_s)
    else:
        pair = _pair_of(series)
    arrivals_ms = MS * (setting.rate_a + setting.rate_b)
    timing = timings[pair]
    return Point(x, timing.median_s * arrivals_ms, timing.low_s * arrivals_ms, timing.high_s * arrivals_ms)


@lru_cache(maxsize=4)
def calibrated(bucket_rows: int, node_rows: int) -> WindowCalibration:
    """The costs of this machine, measured once a process."""
    return calibrate_windows(CpuClock(), bucket_rows=bucket_rows, node_rows=node_rows)


@lru_cache(maxsize=256)
def time_pairs(setting: WindowSetting, seed: int) -> dict[Pair, Measured]:
    """Seconds of one arrival, for all sixteen pairs on one sequence of arrivals."""
    clock = CpuClock()
    filling, *pieces = _sequence(setting, seed)
    joins = {pair: _join(setting, pair) for pair in PAIRS}
    for join in joins.values():
        _push(join, filling)
    turns: list[dict[Pair, float]] = []
    running = list(PAIRS)
    for piece in pieces:
        taken: dict[Pair, float] = {}
        for pair in running:
            begin_s = clock.now_s()
            _push(joins[pair], piece)
            taken[pair] = (clock.now_s() - begin_s) / len(piece)
        turns.append(taken)
        # Who went first goes last: none profits from its place.
        running.reverse()
        if len(turns) == FIRST_TURNS:
            least = {pair: min(turn[pair] for turn in turns) for pair in PAIRS}
            running = [pair for pair in running if least[pair] <= TOO_SLOW * min(least.values())]
    return _without_drift(turns, running)


def _without_drift(turns: list[dict[Pair, float]], contenders: list[Pair]) -> dict[Pair, Measured]:
    """The median of each pair beside those that ran in all turns, in seconds of the fastest turn."""
    paces = [float(np.median([turn[pair] for pair in contenders])) for turn in turns]
    found = {}
    for pair in PAIRS:
        beside = [turn[pair] / pace for turn, pace in zip(turns, paces, strict=True) if pair in turn]
        ratio, pace_s = median_interval(beside), min(paces)
        found[pair] = Measured(ratio.median_s * pace_s, ratio.low_s * pace_s, ratio.high_s * pace_s, ratio.samples)
    return found


def _sequence(setting: WindowSetting, seed: int) -> list[Arrivals]:
    """What fills the windows, and then a piece for each turn."""
    rng = np.random.default_rng(seed)
    filling = np.repeat(np.array([0, 1], np.int8), (setting.window_a, setting.window_b))
    share_b = setting.rate_b / (setting.rate_a + setting.rate_b)
    count = max(1, setting.arrivals // TURNS)
    pieces = [(rng.random(count) < share_b).astype(np.int8) for _ in range(TURNS)]
    return [_arrivals(sides, rng.integers(0, setting.keys, len(sides))) for sides in (filling, *pieces)]


# Outputs --------------------------------------------------------------------------------------------------------------


def _output_point(series: Series, x: float, setting: WindowSetting, seed: int) -> Point:
    """Pairs found a second."""
    given = _allocation(setting)
    if series.is_model:
        y = given.output_rows_per_s(1 / setting.keys)
        return Point(x, y, y, y)
    join = _shedding_join(setting, given, seed) if series.algorithm == SHED else _smaller_join(given, seed)
    filling, *pieces = _sequence(setting, seed)
    _push(join, filling)
    found, held = [], []
    for piece in pieces:
        found.append(_push(join, piece))
        held.append(join.held_rows)
    seconds = len(pieces[0]) / (setting.rate_a + setting.rate_b)
    rates = np.array(found) / seconds
    reach = T_95_TURNS * float(rates.std(ddof=1)) / TURNS**0.5
    y = float(rates.mean())
    rows_held = np.array(held).mean(axis=0)
    return Point(x, y, max(0.0, y - reach), y + reach, {"held_a": float(rows_held[0]), "held_b": float(rows_held[1])})


def _smaller_join(given: Allocation, seed: int) -> WindowJoin:
    """Windows of as many rows as the strategy gives; one of none is not probed."""
    window_a, window_b = (max(1, round(held)) for held in (given.window_a, given.window_b))
    probe_a, probe_b = given.probe_shares
    shares = (probe_a if given.window_b >= 1 else 0.0, probe_b if given.window_a >= 1 else 0.0)
    return WindowJoin(rows(window_a), rows(window_b), budget=MemoryBudget(BUDGET_BYTES), seed=seed, probe_share=shares)


def _shedding_join(setting: WindowSetting, given: Allocation, seed: int) -> WindowJoin:
    """The full windows, in memory for as many rows as the strategy gives."""
    windows = rows(setting.window_a), rows(setting.window_b)
    index = side_indexes()["hash"]
    need_a, need_b = (
        side_bytes(window, index, round(held))
        for window, held in zip(windows, (given.window_a, given.window_b), strict=True)
    )
    return WindowJoin(
        *windows,
        # What is left when the join has taken its part for output.
        budget=MemoryBudget((need_a + need_b) * OUTPUT_PART // (OUTPUT_PART - 1)),
        seed=seed,
        probe_share=given.probe_shares,
        allocation=(need_a / (need_a + need_b), need_b / (need_a + need_b)),
    )


def _allocation(setting: WindowSetting) -> Allocation:
    demand = Demand(setting.rate_a, setting.rate_b, setting.window_a, setting.window_b)
    if setting.strategy is None:
        return nothing_short(demand)
    strategy: Strategy = next(known for known in get_args(Strategy) if known == setting.strategy)
    # The paper gives a stream nothing at all where that finds the most.
    return allocate(
        demand,
        probes_per_s=setting.probes_per_s,
        held_rows=setting.held_rows,
        strategy=strategy,
        least_share=0.0,
    )


# Memory ---------------------------------------------------------------------------------------------------------------


def _held_point(series: Series, x: float, setting: WindowSetting, seed: int) -> Point:
    """Bytes of a window of A with its index, a row; beside it what the pair of this index with itself costs."""
    pair = _pair_of(series)
    join = _join(setting, pair)
    _push(join, _sequence(setting, seed)[0])
    y = join.held_bytes[0] / setting.window_a
    cost_us = time_pairs(setting, seed)[pair].median_s * 1e6
    return Point(x, y, y, y, {"us/arrival": cost_us})


# Both -----------------------------------------------------------------------------------------------------------------


def _pair_of(series: Series) -> Pair:
    index_a, index_b = series.algorithm.split("/")
    return next(pair for pair in PAIRS if pair == (index_a, index_b))


def _workload(setting: WindowSetting) -> WindowWorkload:
    return WindowWorkload(setting.rate_a, setting.rate_b, setting.window_a, setting.window_b)


def _join(setting: WindowSetting, pair: Pair) -> WindowJoin:
    return WindowJoin(
        rows(setting.window_a),
        rows(setting.window_b),
        budget=MemoryBudget(BUDGET_BYTES),
        index_a=pair[0],
        index_b=pair[1],
        hash_bucket_rows=setting.bucket_rows,
        tree_node_rows=setting.node_rows,
    )


def _arrivals(sides: Sides, keys: Numbers) -> Arrivals:
    return Arrivals(sides, keys, keys, keys, np.ones(len(keys), np.bool_), np.zeros(len(keys), np.int64))


def _push(join: WindowJoin, arrivals: Arrivals) -> int:
    """Pairs found."""
    return sum(len(pairs) for pairs in join.push(arrivals))
