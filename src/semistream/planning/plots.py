"""The table of `advise` as a picture: the miss-ratio curves above, the service rate below, memory from left to right.

matplotlib is an extra and is imported when a picture is drawn.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from semistream.budget import MIB, format_bytes
from semistream.errors import EnvironmentUnfit, InvalidOption, check_choice, did_you_mean_beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from semistream.planning.advise import Advice

WIDTH_INCHES, HEIGHT_INCHES = 8.0, 7.0
FORMATS = ("png", "svg", "pdf")


def draw(advice: Advice) -> Figure:
    """Draw the table."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise EnvironmentUnfit(
            "figures are drawn by matplotlib, which is not installed", hint="pip install 'semistream[plots]'"
        ) from None
    figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    memory_mib = [point.memory_bytes / MIB for point in advice.points]
    above.plot(memory_mib, [1 - point.hit_share for point in advice.points], marker="o", label="adaptive")
    above.plot(
        memory_mib,
        [1 - point.best_hit_share for point in advice.points],
        marker="x",
        linestyle="--",
        label="best choice",
    )
    above.set_ylabel("miss ratio")
    above.set_ylim(bottom=0)
    above.legend()
    below.plot(memory_mib, [point.service_rows_per_s for point in advice.points], marker="o")
    if advice.wanted_rows_per_s is not None:
        below.axhline(advice.wanted_rows_per_s, color="gray", linestyle=":", label="wanted")
        if advice.least is not None:
            least = format_bytes(advice.least.memory_bytes)
            below.axvline(advice.least.memory_bytes / MIB, color="gray", linestyle="-.", label=f"{least} are enough")
        below.legend()
    below.set_ylabel("service rate [rows/s]")
    below.set_ylim(bottom=0)
    below.set_xlabel("memory [MiB]")
    below.set_xscale("log")
    below.set_xticks(memory_mib, [f"{size:.3g}" for size in memory_mib])
    below.minorticks_off()
    for axes in (above, below):
        axes.grid(alpha=0.3)
    figure.suptitle(f"{advice.stream_rows:,} rows of the stream, {advice.distinct_keys:,} keys", fontsize="medium")
    return figure


def write_plot(advice: Advice, path: Path) -> None:
    """Write the picture; the end of its name says in which format."""
    check_plot_name(path)
    figure = draw(advice)
    try:
        figure.savefig(path)
    except OSError as error:
        raise InvalidOption(
            "the picture cannot be written", given=str(path), hint=str(error.strerror or error)
        ) from None


def check_plot_name(path: Path) -> None:
    """Refuse a name whose format is unknown, or whose directory is not there, before anything is drawn."""
    check_choice("plot", path.suffix.removeprefix(".").lower(), FORMATS)
    if not path.parent.is_dir():
        raise InvalidOption(
            "there is no such directory for the plot",
            given=str(path.parent),
            allowed="a directory that is there",
            hint=did_you_mean_beside(path.parent, Path.is_dir),
        )
