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
    known = [value for value in seconds if value is not None] or [1.0]
    least, most = min(known) / 2, max(known)
    for place, (result, value) in enumerate(zip(results, seconds, strict=True)):
        if value is not None:
            axes.barh(place, value - least, left=least, color=_colour(result.contender), height=0.7)
        label = (
            "died" if value is None and result.status == "died" else "too slow" if value is None else f"{value:.2g} s"
        )
        axes.annotate(label, (value or least, place), (4, 0), textcoords="offset points", va="center", fontsize=8)
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
    return f"{result.seconds_per_batch:.2g} s"


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
