"""The figure of `bench window`: rows a second, a bar for each contender."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from semistream.bench.plots import BAR_INCHES, MARGIN_INCHES, OTHERS, OURS, PANEL_INCHES, new_figure
from semistream.bench.window_race import WindowResult
from semistream.bench.window_streams import BAND_WINDOW_ROWS

LABEL_ROOM = 1.3
"""Times the longest bar, so that its label stays inside."""


def draw_windows(results: Sequence[WindowResult], path: Path) -> Path:
    """Draw the results of one join and write them as PNG."""
    plan = results[0].plan
    figure = new_figure(PANEL_INCHES, len(results) * BAR_INCHES + MARGIN_INCHES)
    axes = figure.add_subplot()
    rates = [result.rows_per_second for result in results]
    for place, (result, rate) in enumerate(zip(results, rates, strict=True)):
        axes.barh(place, rate or 0.0, color=OURS if result.contender == "semistream" else OTHERS, height=0.7)
        label = f"{rate:,.0f}" if rate is not None else "too slow" if result.status == "stopped" else "died"
        axes.annotate(label, (rate or 0.0, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, max([rate or 0.0 for rate in rates] + [1.0]) * LABEL_ROOM)
    axes.ticklabel_format(axis="x", style="plain")
    axes.set_yticks(range(len(results)), [result.contender for result in results], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("rows of both streams a second (more is better)", fontsize=9)
    window = f"windows of {BAND_WINDOW_ROWS:,} rows" if plan.kind == "band" else f"within {plan.window_s:g} s"
    axes.set_title(f"{plan.kind} join, {window}, {plan.batch_rows:,} rows a batch and side", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
