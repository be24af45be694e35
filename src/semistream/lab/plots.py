"""Figures: the measured series with their intervals, the paper's claim below them.

Every figure says which disk it was metered on and at which size it was run, because neither is the paper's, and what
its bars are, because that depends on what was measured. matplotlib is an extra and is imported when the first figure is
drawn; `make_ready` asks for it, and for the directory, before anything is run.
"""

from __future__ import annotations

import io
import math
import os
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from semistream.errors import EnvironmentUnfit, InvalidOption
from semistream.lab.experiment import MEASURE_LABELS, Series
from semistream.lab.run import BARS, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_INCHES, HEIGHT_INCHES = 9.5, 5.4
CAPTION_CHARACTERS = 110

LOG_X_FROM = 15
"""An x axis that spans more than this factor is logarithmic."""


def make_ready(directory: Path) -> None:
    """Make the directory into which figures are drawn, or say why there will be none."""
    _figure_class()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        refused = None if os.access(directory, os.W_OK | os.X_OK) else "it must not be written to"
    except OSError as error:
        refused = error.strerror or str(error)
    if refused is not None:
        raise InvalidOption(
            f"`out` is no directory to write into: {refused}",
            given=repr(str(directory)),
            allowed="a directory, or a place where one can be made",
        )


def _figure_class() -> type[Figure]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentUnfit(
            "figures are drawn by matplotlib, which is not installed", hint="pip install 'semistream[plots]'"
        ) from None
    return Figure


def draw(result: Result) -> Figure:
    """Draw the figure of a result."""
    experiment = result.experiment
    figure = _figure_class()(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    axes = figure.add_subplot()
    colours: dict[Series, str] = {}
    for series in experiment.series:
        points = result.lines[series.label]
        # A model has the colour of what it predicts, and a join in pages of its own that of the join in the figure's.
        predicted = replace(series, label="", is_model=False, tunes_page=False)
        colour = colours.setdefault(predicted, f"C{len(colours)}")
        # Nothing was served where the memory is too small, and no memory is enough where it would be infinite.
        shown = [point for point in points if math.isfinite(point.y) and point.y > 0]
        below = [max(0.0, point.y - point.low) for point in shown]
        above = [point.high - point.y if math.isfinite(point.high) else 0.0 for point in shown]
        axes.errorbar(
            [point.x for point in shown],
            [point.y for point in shown],
            yerr=[below, above],
            label=series.label,
            color=colour,
            marker="x" if series.is_model else "s" if series.tunes_page else "o",
            linestyle="--" if series.is_model else ":" if series.tunes_page else "-",
            capsize=3,
        )
    axes.set_yscale("log")
    values = [x for x, _ in experiment.settings(result.size)]
    if min(values) > 0 and max(values) > LOG_X_FROM * min(values):
        axes.set_xscale("log")
        axes.set_xticks(values, [f"{x:g}" for x in values])
        axes.minorticks_off()
    axes.set_xlabel(experiment.x_label)
    axes.set_ylabel(MEASURE_LABELS[experiment.measure])
    axes.set_title(f"{experiment.id}, in the paper: {experiment.fixed}", fontsize="medium")
    # Beside the axes: with seven lines there is no corner that none of them crosses.
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.grid(alpha=0.3)
    figure.supxlabel(_caption(result), fontsize="small")
    return figure


def _caption(result: Result) -> str:
    claim = fill(f"The paper: {result.experiment.claim}.", CAPTION_CHARACTERS)
    return f"{claim}\n{result.run_with}, {BARS[result.experiment.measure]}. The claim {result.verdict.in_words}."


def write_svg(result: Result, directory: Path) -> Path:
    """Write the figure as `directory/<id>.svg`."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{result.experiment.id}.svg"
    path.write_text(svg(result), encoding="utf-8")
    return path


def svg(result: Result) -> str:
    """Return the figure as an SVG element."""
    from matplotlib import rc_context

    written = io.StringIO()
    # Without a date, and with names of its parts that are not drawn by lot, the same result gives the same file.
    with rc_context({"svg.hashsalt": "semistream"}):
        draw(result).savefig(written, format="svg", metadata={"Date": None})
    text = written.getvalue()
    return text[text.index("<svg") :]
