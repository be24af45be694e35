"""What the indexes of window joins cost on this machine, measured as the paper measured its own.

Each index is run alone, at several sizes of the window, with two workloads (section 4.2 of the paper, "Estimating the
Weight Factors"):

- *search only*: the window is full and stays as it is; rows of the other stream probe it, each finds one partner,
- *update only*: rows arrive in the window and the oldest leave; nobody probes it.

Both go through the join itself, in pieces of `PIECE_ROWS` arrivals, so that what is measured is what a run does. What
an arrival costs whatever the indexes are (taking it up, looking at a window that is empty, putting it into one without
an index) is the least of all runs, and is subtracted: pairs of indexes differ by the rest.

From the same numbers come two models. The paper's has one weight a structure and an operation, by least squares on the
relative error over all sizes, and knows of no cost of an arrival besides, so nothing is subtracted for it (`weights`).
The curves (`curves`) keep every size, and are what choices are made from; `semistream.cost.window_curves` says why.

A measurement is the least of `ROUNDS` turns: what disturbs a processor only ever makes it slower. All indexes and sizes
take turns, so that a disturbance that lasts does not hit one of them only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from semistream.budget import MIB, MemoryBudget
from semistream.clock import Clock
from semistream.cost.window_curves import Curve, MeasuredCurves
from semistream.cost.window_join import INDEX_NAMES, IndexName, TouchedTuples, Weight
from semistream.structures.window_state import Int64s
from semistream.window.join import HASH_BUCKET_ROWS, TREE_NODE_ROWS, WindowJoin
from semistream.window.pieces import Arrivals
from semistream.window.windows import rows

WINDOW_ROWS = (100, 300, 1000, 3000, 10_000, 30_000)
"""Sizes at which is measured."""

PIECE_ROWS = 4096
"""Arrivals that are pushed at once."""

ROUNDS = 25

COST_S_MIN = 1e-10
"""What is below the grain of the measurement costs something all the same."""

BUDGET_BYTES = 64 * MIB
SEED = 4


@dataclass(frozen=True)
class WindowCalibration:
    """What one probe and one update take, in seconds, by index and rows of the window."""

    probes_s: Mapping[IndexName, Mapping[int, float]]
    updates_s: Mapping[IndexName, Mapping[int, float]]
    arrival_s: float
    """What every arrival takes besides, whatever the indexes are."""
    bucket_rows: int
    node_rows: int

    def curves(self) -> MeasuredCurves:
        """The costs as curves, for choices."""
        return MeasuredCurves(
            {index: _curve(measured) for index, measured in self.probes_s.items()},
            {index: _curve(measured) for index, measured in self.updates_s.items()},
        )

    def weights(self) -> TouchedTuples:
        """The paper's model with the weights of this machine, in seconds for each tuple touched."""
        model = TouchedTuples(bucket_rows=self.bucket_rows, node_rows=self.node_rows)
        weights = {
            index: Weight(
                _weight([(model.touched_by_probe(index, size), s + self.arrival_s) for size, s in probes.items()]),
                _weight([(model.touched_by_update(index, size), s + self.arrival_s) for size, s in updates.items()]),
            )
            for index, probes, updates in (
                (index, self.probes_s[index], self.updates_s[index]) for index in INDEX_NAMES
            )
        }
        return TouchedTuples(weights, self.bucket_rows, self.node_rows)


def calibrate_windows(
    clock: Clock,
    *,
    window_rows: tuple[int, ...] = WINDOW_ROWS,
    bucket_rows: int = HASH_BUCKET_ROWS,
    node_rows: int = TREE_NODE_ROWS,
    on_round: Callable[[int, int], None] | None = None,
) -> WindowCalibration:
    """Measure both operations of all indexes; `on_round` is told the turns that are done and how many there are."""
    runs = [
        _Run(index, size, operation, bucket_rows, node_rows)
        for index in INDEX_NAMES
        for size in window_rows
        for operation in ("probe", "update")
    ]
    for done in range(ROUNDS):
        for run in runs:
            run.take_turn(clock)
        if on_round is not None:
            on_round(done + 1, ROUNDS)

    arrival_s = min(run.least_s for run in runs)

    def costs(index: IndexName, operation: str) -> dict[int, float]:
        return {
            run.window_rows: max(COST_S_MIN, run.least_s - arrival_s)
            for run in runs
            if (run.index, run.operation) == (index, operation)
        }

    return WindowCalibration(
        {index: costs(index, "probe") for index in INDEX_NAMES},
        {index: costs(index, "update") for index in INDEX_NAMES},
        arrival_s,
        bucket_rows,
        node_rows,
    )


class _Run:
    """One index of one size with one of the two workloads; the window in question is B's."""

    def __init__(self, index: IndexName, window_rows: int, operation: str, bucket_rows: int, node_rows: int) -> None:
        self.index = index
        self.window_rows = window_rows
        self.operation = operation
        self.least_s = float("inf")
        """Of one arrival, in the fastest turn so far."""
        self._join = WindowJoin(
            rows(1),
            rows(window_rows),
            budget=MemoryBudget(BUDGET_BYTES),
            index_a="scan",
            index_b=index,
            hash_bucket_rows=bucket_rows,
            tree_node_rows=node_rows,
        )
        self._rng = np.random.default_rng((SEED, window_rows))
        self._keys = self._rng.permutation(window_rows).astype(np.int64)
        self._arrived = 0
        _push(self._join, _arrivals(1, self._keys))

    def take_turn(self, clock: Clock) -> None:
        arrivals = self._next_arrivals()
        begin_s = clock.now_s()
        _push(self._join, arrivals)
        self.least_s = min(self.least_s, (clock.now_s() - begin_s) / PIECE_ROWS)

    def _next_arrivals(self) -> Arrivals:
        """As many for all runs: each pays the same share of what a piece costs."""
        if self.operation == "probe":
            return _arrivals(0, self._rng.integers(0, self.window_rows, PIECE_ROWS))
        # The order goes on where it ended, so that every key is in the window once.
        places = np.arange(self._arrived, self._arrived + PIECE_ROWS)
        self._arrived += PIECE_ROWS
        return _arrivals(1, np.take(self._keys, places, mode="wrap"))


def _arrivals(side: int, keys: Int64s) -> Arrivals:
    count = len(keys)
    return Arrivals(
        np.full(count, side, np.int8), keys, keys, keys, np.ones(count, np.bool_), np.zeros(count, np.int64)
    )


def _push(join: WindowJoin, arrivals: Arrivals) -> None:
    for _ in join.push(arrivals):
        pass


def _curve(measured: Mapping[int, float]) -> Curve:
    return Curve(tuple(float(size) for size in measured), tuple(measured.values()))


def _weight(measured: list[tuple[float, float]]) -> float:
    """The weight that makes the sum of squared relative errors least, from tuples touched and seconds."""
    shares = np.array([touched / seconds for touched, seconds in measured])
    return float(shares.sum() / (shares**2).sum())
