"""Figures: the measured series with their intervals, the paper's claim below them.

Every figure says which disk it was metered on and at which size it was run, because neither is the paper's. matplotlib
is an extra and is imported when the first figure is drawn.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from semistream.errors import EnvironmentUnfit
from semistream.lab.experiment import MEASURE_LABELS
from semistream.lab.run import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_INCHES, HEIGHT_INCHES = 8.0, 5.4
CAPTION_CHARACTERS = 110


def draw(result: Result) -> Figure:
    """Draw the figure of a result."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentUnfit(
            "figures are drawn by matplotlib, which is not installed", hint="pip install 'semistream[plots]'"
        ) from None
    experiment = result.experiment
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    axes = figure.add_subplot()
    models = {series.label for series in experiment.series if series.is_model}
    for label, points in result.lines.items():
        shown = [point for point in points if math.isfinite(point.y)]
        below = [max(0.0, point.y - point.low) for point in shown]
        above = [point.high - point.y if math.isfinite(point.high) else 0.0 for point in shown]
        axes.errorbar(
            [point.x for point in shown],
            [point.y for point in shown],
            yerr=[below, above],
            label=label,
            marker="x" if label in models else "o",
            linestyle="--" if label in models else "-",
            capsize=3,
        )
    if all(point.y > 0 for points in result.lines.values() for point in points):
        axes.set_yscale("log")
    axes.set_xlabel(experiment.x_label)
    axes.set_ylabel(MEASURE_LABELS[experiment.measure])
    axes.set_title(f"{experiment.id}: {experiment.fixed}", fontsize="medium")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
    figure.supxlabel(_caption(result), fontsize="small")
    return figure


def _caption(result: Result) -> str:
    conditions = result.conditions
    claim = fill(f"The paper: {result.experiment.claim}.", CAPTION_CHARACTERS)
    return (
        f"{claim}\nio {conditions.io}, size {result.size}, memory {conditions.memory_model}, seed {conditions.seed}, "
        f"95 % intervals. The claim {'holds' if result.verdict.holds else 'does not hold'}."
    )


def write_svg(result: Result, directory: Path) -> Path:
    """Write the figure as `directory/<id>.svg`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.experiment.id}.svg"
    path.write_text(svg(result), encoding="utf-8")
    return path


def svg(result: Result) -> str:
    """Return the figure as an SVG element."""
    written = io.StringIO()
    # Without a date the same result gives the same file.
    draw(result).savefig(written, format="svg", metadata={"Date": None})
    text = written.getvalue()
    return text[text.index("<svg") :]
