"""Our own join beside the best of all others, in every figure that shows how well a join does.

Equal memory, equal disks: a series that has more memory than the setting gives is left out, and a join on two nodes is
compared with ours on two nodes. A ratio above 1 says that ours is better, whatever the axis shows: rows a second, or
bytes or seconds, of which fewer are better. Figures of the cost of an iteration compare a model with a measurement, and
no join with another: they have no ratio. Nor has a part of a figure, in which the best other may not have been run.

A ratio is that of two means. Where the 95 % intervals of both part as well, ours is *clearly* the best.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from semistream.lab.experiment import Experiment, Lines, Point

OURS = ("adaptive", "auto")
"""Our join of a stream with a relation, and our choice of indexes for a join of two windows."""

NEARLY = 0.95
"""Within 5 % of the best."""


@dataclass(frozen=True, slots=True)
class BesideBest:
    """Ratios of our join to the best other at each point."""

    measured: dict[str, float]
    """By a name that says what was compared, and where."""
    clearly_best_at: int = 0
    """Points at which ours is the best, and the intervals part."""

    @property
    def is_near_everywhere(self) -> bool:
        """Whether ours is the best or within 5 % of it at every point."""
        return all(ratio >= NEARLY for ratio in self.measured.values())

    @property
    def best_at(self) -> int:
        """Points at which ours is the best."""
        return sum(ratio >= 1 for ratio in self.measured.values())

    def as_json(self) -> dict[str, Any]:
        """A summary; empty where nothing was compared."""
        if not self.measured:
            return {}
        return {
            "within_5_percent": self.is_near_everywhere,
            "best_at": self.best_at,
            "clearly_best_at": self.clearly_best_at,
            "points": len(self.measured),
            "least": min(self.measured.values()),
        }


def beside_best(experiment: Experiment, lines: Lines) -> BesideBest:
    """Compare at every point."""
    measured: dict[str, float] = {}
    clearly_best_at = 0
    if experiment.measure == "loop" or experiment.is_part:
        return BesideBest(measured)
    for ours in experiment.series:
        if ours.algorithm not in OURS:
            continue
        rivals = [
            lines[series.label]
            for series in experiment.series
            if series.algorithm not in OURS
            and not series.is_model
            and series.nodes == ours.nodes
            and series.memory_times == ours.memory_times
        ]
        larger_is_better = experiment.measure == "rate"
        for point, ratio in _ratios(lines[ours.label], rivals, larger_is_better=larger_is_better):
            measured[f"{ours.label} : best other at {point.x:g}"] = round(ratio, 3)
        clearly_best_at += sum(
            all(_is_clearly_better(point, other, larger_is_better=larger_is_better) for other in others)
            for point, *others in zip(lines[ours.label], *rivals, strict=True)
        )
    return BesideBest(measured, clearly_best_at)


def _is_clearly_better(ours: Point, other: Point, *, larger_is_better: bool) -> bool:
    return ours.low > other.high if larger_is_better else ours.high < other.low


def _ratios(
    ours: tuple[Point, ...], rivals: list[tuple[Point, ...]], *, larger_is_better: bool
) -> Iterator[tuple[Point, float]]:
    for place, point in enumerate(ours):
        others = [line[place].y for line in rivals]
        best = max(others) if larger_is_better else min(others)
        over, under = (point.y, best) if larger_is_better else (best, point.y)
        if over == under and (over == math.inf or (larger_is_better and over == 0)):
            # No join has got anywhere: there is no best.
            continue
        if over == under:
            yield point, 1.0
        else:
            yield point, over / under if under else math.inf
