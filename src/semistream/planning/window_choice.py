"""Which index for each of two windows, and when to change it while the join runs.

`choose_pair` answers once, for rates and windows that are known, with the costs of this machine
(`window_calibrate`) or those of a usual one (`typical_costs`); `choose_for_batch` does so where indexes live for one
micro-batch only, as on Spark. A stream's rates are not known: `IndexChooser` is asked every so often, with what arrived
since it was last asked, and says when a window should get another index.

*When to change.* A change has a price: the index is built anew from the rows of the window. Changing back and forth
around a crossover would pay it for nothing. So the chooser adds up what each index would have cost in the recent past,
and changes when another would have saved the price, and `MARGIN` on top, because models err. The past fades over
`HORIZON_WINDOWS` times as many arrivals as the window has rows: a window that is large costs more to index anew, and is
given longer to earn it. This memory is also what keeps a scan away from streams that swing: a scan saves little while
nobody probes and costs a thousand times more when somebody does, and one such time is remembered for long.

*Each window for itself.* The cost of a direction does not depend on the index of the other window (equation 2), so two
choices of four make the choice of sixteen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from semistream.cost.window_curves import Curve, MeasuredCurves
from semistream.cost.window_join import (
    INDEX_NAMES,
    IndexCosts,
    IndexName,
    Pair,
    WindowWorkload,
    best_pair,
    direction_cost,
)
from semistream.window.join import WindowJoin

FOR_EQUALITY: tuple[IndexName, ...] = INDEX_NAMES
FOR_RANGES: tuple[IndexName, ...] = ("scan", "b+tree", "t-tree")
"""An order is kept by trees, and a scan needs none."""

MARGIN = 1.1
"""How many times more the index in use must cost before another is worth the change: what the models err by."""

ASKED_EVERY_ROWS = 2048
"""Rates are those of so many arrivals at least; fewer are chance."""

HORIZON_WINDOWS = 10
"""Costs fade to a third over so many times the window's rows in arrivals."""


NS = 1e-9
_TYPICAL_ROWS = (100.0, 1000.0, 10_000.0, 30_000.0, 100_000.0, 1_000_000.0)
_TYPICAL_NS: dict[IndexName, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "scan": ((90, 240, 1900, 5600, 22_000, 280_000), (1, 1, 1, 1, 1, 1)),
    "hash": ((25, 27, 80, 220, 390, 810), (8, 10, 25, 60, 120, 190)),
    "b+tree": ((55, 75, 145, 270, 440, 1140), (60, 185, 250, 300, 430, 1200)),
    "t-tree": ((55, 70, 145, 240, 490, 1600), (60, 155, 210, 270, 510, 1330)),
}
"""A probe and an update at each size."""


def typical_costs() -> MeasuredCurves:
    """Costs of a usual machine, for choices that are to be made at once and come out the same everywhere.

    They are what `window_calibrate.calibrate_windows` found on one core of a cloud server, rounded. Another machine
    moves all of them by about one factor, and a choice follows from their ratios.
    """

    def curves(operation: int) -> dict[IndexName, Curve]:
        return {
            index: Curve(_TYPICAL_ROWS, tuple(NS * taken for taken in both[operation]))
            for index, both in _TYPICAL_NS.items()
        }

    return MeasuredCurves(probes=curves(0), updates=curves(1))


def choose_pair(costs: IndexCosts, workload: WindowWorkload, *, equality: bool) -> Pair:
    """The pair that costs the least; a predicate that is no equality is served by no hash."""
    return best_pair(costs, workload, FOR_EQUALITY if equality else FOR_RANGES)


def choose_for_batch(costs: IndexCosts, held: tuple[int, int], arriving: tuple[int, int], *, equality: bool) -> Pair:
    """The pair that costs the least where indexes are built for one batch and thrown away after it.

    Nothing has to be foretold: what the windows hold and what will probe them is known. A window that few rows will
    probe is not worth an index.

    Example:
        >>> choose_for_batch(typical_costs(), held=(100_000, 500), arriving=(10, 1000), equality=True)
        ('hash', 'scan')
    """
    allowed = FOR_EQUALITY if equality else FOR_RANGES

    def cheapest(side: int) -> IndexName:
        rows = held[side] + arriving[side] / 2

        def bill(index: IndexName) -> float:
            work = direction_cost(
                costs, index, probing_rate=arriving[1 - side], updating_rate=arriving[side], window_rows=rows
            )
            return _building_cost(costs, index, held[side]) + work

        return min(allowed, key=bill)

    return cheapest(0), cheapest(1)


def _building_cost(costs: IndexCosts, index: IndexName, window_rows: int) -> float:
    """Every row of the window is inserted once; an update is an insert and an invalidation.

    Measured, an index over 10 000 to a million rows is built for 0.4 to 1.2 times that: trees are given sorted rows.
    """
    return window_rows * costs.update(index, window_rows) / 2


@dataclass(frozen=True, slots=True)
class Period:
    """What happened since the chooser was last asked."""

    arrived_a: int
    """Rows of A that came: each probed B's window and was inserted into A's."""
    arrived_b: int
    held_a: int
    """Rows in A's window now."""
    held_b: int


class IndexChooser:
    """Watches a running join and says when its indexes should change.

    Example:
        >>> from semistream.cost.window_join import TouchedTuples
        >>> chooser = IndexChooser(TouchedTuples(), ("hash", "hash"), equality=True)
        >>> even, slow_a = Period(500, 500, 5000, 5000), Period(10, 9990, 5000, 5000)
        >>> [chooser.consider(period) for period in (even, slow_a, slow_a)]
        [None, None, ('b+tree', 'hash')]
    """

    def __init__(self, costs: IndexCosts, in_use: Pair, *, equality: bool) -> None:
        allowed = FOR_EQUALITY if equality else FOR_RANGES
        self._a = _WindowChooser(costs, in_use[0], allowed)
        self._b = _WindowChooser(costs, in_use[1], allowed)

    @property
    def in_use(self) -> Pair:
        """What the chooser has said last."""
        return self._a.in_use, self._b.in_use

    def consider(self, period: Period) -> Pair | None:
        """The pair to change to, or None to go on as before."""
        before = self.in_use
        self._a.consider(probes=period.arrived_b, updates=period.arrived_a, window_rows=period.held_a)
        self._b.consider(probes=period.arrived_a, updates=period.arrived_b, window_rows=period.held_b)
        return self.in_use if self.in_use != before else None


class IndexKeeper:
    """Keeps the indexes of a running join the right ones: asked between two pieces, changes them where it pays.

    Nothing that the join holds is lost by a change, so the pairs do not depend on when it comes.
    """

    def __init__(self, join: WindowJoin, costs: IndexCosts, *, equality: bool) -> None:
        self._join = join
        index_a, index_b = (next(name for name in INDEX_NAMES if name == used) for used in join.index_names)
        self._chooser = IndexChooser(costs, (index_a, index_b), equality=equality)
        self._arrived = self._arrivals()

    def between_pieces(self) -> Pair | None:
        """Change the indexes if it pays; the new ones, or None where they stay."""
        arrived = self._arrivals()
        new_a, new_b = arrived[0] - self._arrived[0], arrived[1] - self._arrived[1]
        if new_a + new_b < ASKED_EVERY_ROWS:
            return None
        self._arrived = arrived
        changed = self._chooser.consider(Period(new_a, new_b, *self._join.held_rows))
        if changed is not None:
            self._join.change_indexes(*changed)
        return changed

    def _arrivals(self) -> tuple[int, int]:
        counts_a, counts_b = self._join.counts
        return counts_a.arrivals, counts_b.arrivals


class _WindowChooser:
    """The choice for one window."""

    def __init__(self, costs: IndexCosts, in_use: IndexName, allowed: tuple[IndexName, ...]) -> None:
        self._costs = costs
        self._allowed = allowed
        self.in_use = in_use
        self._recent: dict[IndexName, float] = dict.fromkeys(allowed, 0.0)
        """What each index would have cost in the recent past."""

    def consider(self, *, probes: int, updates: int, window_rows: int) -> None:
        fade = math.exp(-(probes + updates) / (HORIZON_WINDOWS * max(1, window_rows)))
        for index in self._allowed:
            bill = direction_cost(
                self._costs, index, probing_rate=probes, updating_rate=updates, window_rows=window_rows
            )
            self._recent[index] = fade * self._recent[index] + bill
        now = self._recent[self.in_use]
        best = min(self._allowed, key=lambda index: self._recent[index])
        if now > MARGIN * self._recent[best] + _building_cost(self._costs, best, window_rows):
            self.in_use = best
