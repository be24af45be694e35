"""Run an experiment: every series at every point, then the claim.

Points are run one after another; a progress callback hears of each before it begins. The same seed gives the same keys
to all series of a point, so that they are compared on one stream.

For figures of *memory needed*, the rate is measured at several memories. The interval in which the wanted rate is
reached is halved, on a logarithmic scale, down to `MEMORY_PRECISION`, and the rates at its ends are interpolated; its
ends are what such a point has in place of a 95 % interval (`BARS`). An algorithm that does not reach the rate with a
memory as large as R gets infinity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from semistream.errors import BudgetExceeded, check_choice
from semistream.lab import at_paper_size
from semistream.lab.bench import Seen, observe
from semistream.lab.beside_best import BesideBest, beside_best
from semistream.lab.claims import AT_FLOOR, NotJudged
from semistream.lab.conditions import Conditions
from semistream.lab.experiment import (
    SIZES,
    Experiment,
    Lines,
    Measure,
    Point,
    Series,
    Setting,
    Verdict,
    WindowSetting,
    values_by_name,
)
from semistream.lab.feasible import stream_in, under
from semistream.lab.modelled import prediction, rows_per_loop
from semistream.lab.page_tuning import in_own_pages
from semistream.lab.window_bench import window_point

MEMORY_PRECISION = 1.3
"""Memory for a rate is interpolated between two that differ by at most this factor."""

MEMORY_LEAST_SHARE = 1 / 64
"""The least memory that is tried, as a share of R."""

BARS: Mapping[Measure, str] = {
    "rate": "95 % intervals",
    "memory": "bars from a memory that is too small to one that is enough",
    "processing": "95 % intervals of the rate as bars",
    "waiting": "95 % intervals of the rate as bars",
    "loop": "95 % intervals of the rate as bars",
    "cost": "95 % intervals",
    "output": "95 % intervals",
    "held": "counted, without intervals",
}
"""What lies between `low` and `high` of a point, by measure. Times have the relative interval of the rate."""

Progress = Callable[[str, int, int], None]
"""Told what is run now, how many runs are done, and how many there are."""


@dataclass(frozen=True)
class Result:
    """An experiment that was run."""

    experiment: Experiment
    size: str
    conditions: Conditions
    lines: dict[str, tuple[Point, ...]]
    verdict: Verdict
    ours: BesideBest
    """`adaptive` beside the best of all others."""

    @property
    def run_with(self) -> str:
        """Under which conditions, in words."""
        conditions = self.conditions
        if self.experiment.is_timed_here:
            return f"size {self.size}, processor time of this machine, seed {conditions.seed}"
        run_with = f"io {conditions.io}, size {self.size}, memory {conditions.memory_model}, seed {conditions.seed}"
        return ", ".join(filter(None, (run_with, self.changed)))

    @property
    def changed(self) -> str:
        """What of the data is not the figure's own; empty where nothing is."""
        return changed_data(self.experiment, self.conditions)

    def as_json(self) -> dict[str, Any]:
        """One line for a program, in which every number is finite."""
        answer = {
            "id": self.experiment.id,
            "size": self.size,
            "io": self.conditions.io,
            "memory_model": self.conditions.memory_model,
            "seed": self.conditions.seed,
            "data": self.changed or "as in the figure",
            "series": {label: [point.as_json() for point in points] for label, points in self.lines.items()},
            "claim": self.experiment.claim,
            "holds": self.verdict.holds,
            "reason": self.verdict.reason,
            "measured": {**self.verdict.measured, **self.ours.measured},
            "adaptive": self.ours.as_json(),
            "settings": [setting.as_json() for _, setting in self.experiment.settings(self.size)],
        }
        return {name: _finite(value) for name, value in answer.items()}


def run(
    experiment: Experiment,
    size: str = "default",
    conditions: Conditions | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run all points of all series and judge the claim."""
    check_choice("size", size, SIZES)
    conditions = conditions or Conditions()
    conditions = replace(conditions, stream=stream_in(experiment, size, conditions))
    experiment = under(experiment, conditions)
    settings = experiment.settings(size)
    lines: dict[str, tuple[Point, ...]] = {}
    done, total = 0, len(settings) * len(experiment.series)
    for series in experiment.series:
        points = []
        for x, setting in settings:
            if progress is not None:
                progress(f"{experiment.id}: {series.label} at {x:g}", done, total)
            if isinstance(setting, WindowSetting):
                points.append(window_point(experiment.measure, series, x, setting, conditions))
            else:
                points.append(_point(experiment, series, x, setting, conditions))
            done += 1
        lines[series.label] = tuple(points)
    verdict = judged(experiment, lines)
    changed = changed_data(experiment, conditions)
    if experiment.modelled is not None and size == at_paper_size.SIZE and not (changed or conditions.is_real):
        verdict = at_paper_size.with_models(experiment, size, conditions, verdict)
    verdict = _with_changes(verdict, changed, conditions)
    return Result(experiment, size, conditions, lines, verdict, beside_best(experiment, lines))


def judged(experiment: Experiment, lines: Lines) -> Verdict:
    """What the judge says; where he has not seen enough, that and what was measured."""
    try:
        return experiment.judge(lines)
    except NotJudged as why:
        measured = values_by_name(lines)
        found = ", ".join(f"{name} = {value:.4g}" for name, value in measured.items())
        return Verdict(None, f"Not judged: {why}. Measured: {found}.", measured, found=found)


def changed_data(experiment: Experiment, conditions: Conditions) -> str:
    """What of the data is not the figure's own, in words."""
    return ", ".join(filter(None, (experiment.archive, conditions.stream.in_words)))


def _with_changes(verdict: Verdict, changed: str, conditions: Conditions) -> Verdict:
    """The verdict, and what it was found on: reasons were tried on the figure's own data and on the metered disk."""
    if not changed and not conditions.is_real:
        return verdict
    found_on = ", ".join(filter(None, (changed, "this machine's disk and clock" if conditions.is_real else "")))
    said = f" Found on {found_on}; reasons speak of the figure's own data on a metered disk."
    return replace(verdict, reason=verdict.reason + said)


def _point(experiment: Experiment, series: Series, x: float, setting: Setting, conditions: Conditions) -> Point:
    try:
        return _fitting_point(experiment, series, x, setting, conditions)
    except BudgetExceeded:
        if experiment.measure != "rate":
            raise
        # What the memory is too small for serves no row.
        return Point(x, 0.0, 0.0, 0.0)


def _fitting_point(experiment: Experiment, series: Series, x: float, setting: Setting, conditions: Conditions) -> Point:
    if experiment.measure == "memory":
        return _memory_for_rate(series, x, setting, conditions)
    setting = in_own_pages(series, setting, conditions)
    if series.is_model:
        said = prediction(series, setting, conditions)
        y = said.seconds_per_iteration if experiment.measure == "loop" else said.mu_rows_per_s
        return Point(x, y, y, y, {"rows_per_loop": rows_per_loop(said), "hit_share": said.hit_share})
    seen = observe(series, setting, conditions)
    extra = {name: getattr(seen, name) for name in ("rate", "rows_per_loop", "hit_share")}
    if setting.arrival_rows_per_s is not None:
        extra |= {name: getattr(seen, name) for name in ("arrival_rows_per_s", "keeps_up")}
    extra |= {name: float(value) for name, value in seen.settings.items()}
    if series.tunes_page:
        extra["page_rows"] = float(setting.page_rows)
    return Point(x, *_measured(experiment, seen), extra)


def _measured(experiment: Experiment, seen: Seen) -> tuple[float, float, float]:
    """The value and its interval; times have that of the rate, from which they follow."""
    if experiment.measure == "rate":
        return seen.rate, seen.rate_low, seen.rate_high
    y = {"processing": seen.processing_s, "waiting": seen.waiting_s, "loop": seen.loop_s}[experiment.measure]
    high = y * seen.rate / seen.rate_low if seen.rate_low else math.inf
    return y, y * seen.rate / seen.rate_high, high


def _memory_for_rate(series: Series, x: float, setting: Setting, conditions: Conditions) -> Point:
    wanted = setting.wanted_rows_per_s
    assert wanted is not None, "a figure of memory needs a wanted rate"

    def rate_with(memory_bytes: int) -> float:
        try:
            tried = in_own_pages(series, replace(setting, memory_bytes=memory_bytes), conditions)
            return observe(series, tried, conditions).rate
        except BudgetExceeded:
            return 0.0

    high = setting.r_rows * setting.row_bytes
    low = int(high * MEMORY_LEAST_SHARE)
    rate_high, rate_low = rate_with(high), 0.0
    if rate_high < wanted:
        return Point(x, math.inf, float(high), math.inf)
    while high > low * MEMORY_PRECISION:
        middle = int(math.sqrt(low * high))
        rate = rate_with(middle)
        if rate >= wanted:
            high, rate_high = middle, rate
        else:
            low, rate_low = middle, rate
    share = 0.5
    if 0 < rate_low < rate_high < math.inf:
        share = math.log(wanted / rate_low) / math.log(rate_high / rate_low)
    extra = {} if rate_low > 0 else {AT_FLOOR: True}
    return Point(x, low * (high / low) ** share, float(low), float(high), extra)


def _finite(value: Any) -> Any:
    """JSON knows no infinity: None stands for what has no number, however deep it lies."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
