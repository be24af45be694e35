"""The figures of the benchmarks; matplotlib is an extra and is imported when the first is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.bench.results import Result, Setting
from semistream.errors import EnvironmentUnfit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_PER_ROW = 3
PANEL_INCHES, BAR_INCHES, MARGIN_INCHES = 6.4, 0.32, 1.3
OURS, LIMITS, OTHERS = "#d64545", "#c9b458", "#7b8794"
TICKS = (1.0, 2.0, 5.0)
WHOLE_SECONDS_FROM = 10.0
LABEL_ROOM = 4.0
"""Times the longest bar, so that its label stays inside."""


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """An empty figure, or what to install."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentUnfit(
            "figures are drawn by matplotlib, which is not installed", hint="pip install 'semistream[plots]'"
        ) from None
    return Figure(figsize=(width_inches, height_inches), layout="constrained")


def draw_race(results: Sequence[Result], path: Path) -> Path:
    """Draw seconds per micro-batch, a panel for each setting, and write them as PNG."""
    settings = list(dict.fromkeys(result.setting for result in results))
    columns = min(PANELS_PER_ROW, len(settings))
    rows = -(-len(settings) // columns)
    bars = len({result.contender for result in results})
    figure = new_figure(columns * PANEL_INCHES, rows * (bars * BAR_INCHES + MARGIN_INCHES))
    for number, setting in enumerate(settings):
        axes = figure.add_subplot(rows, columns, number + 1)
        _draw_panel(axes, setting, [result for result in results if result.setting == setting])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _draw_panel(axes: Axes, setting: Setting, results: Sequence[Result]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    seconds = [result.seconds_per_batch for result in results]
    least, most = _bounds(results)
    least /= 2
    for place, (result, value) in enumerate(zip(results, seconds, strict=True)):
        if value is not None:
            axes.barh(place, value - least, left=least, color=_colour(result.contender), height=0.7)
        axes.annotate(
            _label(result), (value or least, place), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=TICKS))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(least, most * LABEL_ROOM)
    axes.set_yticks(range(len(results)), [result.contender for result in results], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("seconds per micro-batch (less is better)", fontsize=9)
    axes.set_title(
        f"R {setting.relation_rows:,} rows, micro-batches of {setting.batch_rows:,}, Zipf {setting.skew:g}", fontsize=10
    )
    axes.spines[["top", "right"]].set_visible(False)


def _label(result: Result) -> str:
    if result.seconds_per_batch is None:
        return "too slow" if result.status == "stopped" else "died"
    return _in_seconds(result.seconds_per_batch)


def _in_seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= WHOLE_SECONDS_FROM else f"{seconds:.2g} s"


def draw_growth(results: Sequence[Result], path: Path) -> Path:
    """Draw how seconds per micro-batch grow with R, a panel for each other setting, and write them as PNG."""
    others = list(dict.fromkeys((result.setting.batch_rows, result.setting.skew) for result in results))
    figure = new_figure(PANEL_INCHES * 1.2 * len(others), PANEL_INCHES * 0.62)
    for number, (batch_rows, skew) in enumerate(others):
        axes = figure.add_subplot(1, len(others), number + 1)
        here = [r for r in results if (r.setting.batch_rows, r.setting.skew) == (batch_rows, skew)]
        _draw_growth_panel(axes, here)
        axes.set_title(f"Micro-batches of {batch_rows:,} rows, Zipf {skew:g}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _bounds(results: Sequence[Result]) -> tuple[float, float]:
    """The least and the most seconds that were measured."""
    known = [result.seconds_per_batch for result in results if result.seconds_per_batch is not None] or [1.0]
    return min(known), max(known)


def _draw_growth_panel(axes: Axes, results: Sequence[Result]) -> None:
    for contender in dict.fromkeys(result.contender for result in results):
        points = sorted(
            (result.setting.relation_rows, result.seconds_per_batch)
            for result in results
            if result.contender == contender and result.seconds_per_batch is not None
        )
        if not points:
            continue
        axes.plot(*zip(*points, strict=True), color=_colour(contender), marker="o", linewidth=2)
        for place in points:
            axes.annotate(_in_seconds(place[1]), place, (0, 6), textcoords="offset points", ha="center", fontsize=8)
        axes.annotate(contender, points[-1], (10, -3), textcoords="offset points", fontsize=9, color=_colour(contender))
    axes.set_xscale("log")
    axes.set_yscale("log")
    # The names stand behind the last points.
    axes.set_xlim(right=axes.get_xlim()[1] * LABEL_ROOM**2)
    sizes = sorted({result.setting.relation_rows for result in results})
    axes.set_xticks(sizes, [f"{rows:,}" for rows in sizes])
    axes.set_yticks([10.0**power for power in range(-1, 4)], [f"{10.0**power:g}" for power in range(-1, 4)])
    axes.set_ylim(*(bound * factor for bound, factor in zip(_bounds(results), (0.7, 1.6), strict=True)))
    axes.minorticks_off()
    axes.set_xlabel("rows of R", fontsize=9)
    axes.set_ylabel("seconds per micro-batch", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def _colour(contender: str) -> str:
    if contender.startswith("semistream"):
        return OURS
    return LIMITS if contender in ("empty", "nothing") else OTHERS


def draw_soak(seconds: Sequence[float], series: Mapping[str, Sequence[float]], path: Path) -> Path:
    """Draw what was sampled, a panel for each series over the same minutes, and write them as PNG."""
    figure = new_figure(PANEL_INCHES * 1.4, 1.8 * len(series))
    first: Any = None
    for number, (name, values) in enumerate(series.items()):
        axes = figure.add_subplot(len(series), 1, number + 1, sharex=first)
        first = first or axes
        unit = 1e6 if name.endswith("_bytes") else 1.0
        levels = [value / unit for value in values]
        axes.plot([second / 60 for second in seconds], levels, color=OURS, linewidth=1.2)
        axes.set_ylim(0, max([*levels, 1]) * 1.2)
        axes.set_title(name.replace("_bytes", ", MB"), fontsize=10, loc="left")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    first.figure.axes[-1].set_xlabel("minutes")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
