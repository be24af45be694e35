"""What a probe and an update of each index cost on a machine, as curves over the size of the window.

The paper's equations (`semistream.cost.window_join`) multiply tuples touched by a weight, so they know no cost that
does not depend on the tuples: the call, the hash, the first miss in the cache, a branch that was guessed wrong. In 2003
these were small beside an interpreted comparison. In compiled code on a processor of today they are most of a probe,
and one weight for windows of 100 and of 20 000 rows is wrong by a factor at one of the ends. Here nothing is assumed:
the two operations are measured at several sizes (`semistream.planning.window_calibrate`), and between them the
logarithm of the seconds is a line in the logarithm of the rows. A constant, a logarithm and a multiple of the rows are
all nearly straight there. Beyond the ends the last line goes on.

The directions stay independent, as in the paper, so everything that `window_join` does with costs is done with these,
too: pairs, crossovers, the best.

| symbol     | name here         | unit | meaning                                          |
|------------|-------------------|------|--------------------------------------------------|
| probe(W)   | `probes[index]`   | s    | one search in a window of W rows                 |
| update(W)  | `updates[index]`  | s    | one insert and the invalidation that goes with it|
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from semistream.cost.window_join import IndexName
from semistream.errors import InvalidOption

POINTS_MIN = 2
"""Fewer make no line."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds over rows, by straight lines between measured points on logarithmic axes.

    Example:
        >>> curve = Curve((100.0, 1000.0, 10_000.0), (1e-6, 2e-6, 20e-6))
        >>> curve.at(1000.0), round(curve.at(100_000.0) * 1e6)
        (2e-06, 200)
    """

    rows: tuple[float, ...]
    """Growing."""
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        grows = all(one < other for one, other in zip(self.rows, self.rows[1:], strict=False))
        positive = min((*self.rows, *self.seconds), default=0.0) > 0
        if len(self.rows) < POINTS_MIN or len(self.rows) != len(self.seconds) or not grows or not positive:
            raise InvalidOption(
                "a curve of costs needs growing windows with a time each",
                given=f"{self.rows} rows, {self.seconds} s",
                allowed="two points or more, all above 0",
            )

    def at(self, rows: float) -> float:
        """Seconds at a window of so many rows."""
        rows = max(1.0, rows)
        right = min(max(1, bisect_left(self.rows, rows)), len(self.rows) - 1)
        if rows == self.rows[right]:
            return self.seconds[right]
        low, high = self.rows[right - 1], self.rows[right]
        share = math.log(rows / low) / math.log(high / low)
        return self.seconds[right - 1] * math.pow(self.seconds[right] / self.seconds[right - 1], share)


@dataclass(frozen=True)
class MeasuredCurves:
    """The costs of a machine, by index."""

    probes: Mapping[IndexName, Curve]
    updates: Mapping[IndexName, Curve]

    def probe(self, index: IndexName, window_rows: float) -> float:
        """One search, in seconds."""
        return self.probes[index].at(window_rows)

    def update(self, index: IndexName, window_rows: float) -> float:
        """One insert and one invalidation, in seconds."""
        return self.updates[index].at(window_rows)
