"""What an experiment is: a figure of a paper as data, and its claim as a function.

An experiment names the figure, the quantity on its x axis *in the paper's own terms* (R in millions of rows, M in MB or
as a share of R), a function from such a value to a setting that can be run, the series (an algorithm with its
settings), what is measured, and a claim. The claim looks at what was measured and answers whether it holds, with the
ratios and a reason.

Three sizes: `paper` is the published size, `default` and `small` are scaled down. Scaling divides the rows of R and the
bytes of M by one factor, so that M stays the same share of R; rows keep their lengths. What one read serves is
w = h_S·b/R times what skew makes of it, so it depends on the page alone, and with it the rate. Pages therefore shrink
much less than R: rates are lower than at the papers' size by the ratio of the pages, and R has fewer pages. Ratios
between algorithms are what survives, and what claims are about. What a page holds in bytes matters to scans, which pay
for bytes, and hardly to seeks: at reduced size scans look better than they would at the papers'.

"Memory" has two meanings, and a run says which one it used. `actual` is what this program allocates. `jvm` charges
`JVM_WAITING_ROW_BYTES` for a waiting row, as the papers' prototypes did.

Window joins of two streams have a setting of their own. Their windows are the paper's at every size; what is scaled is
the number of arrivals that are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from semistream.errors import check_choice

Size = Literal["small", "default", "paper"]
SIZES: tuple[Size, ...] = ("small", "default", "paper")

Measure = Literal["rate", "memory", "processing", "waiting", "loop", "cost", "output", "held"]
"""What the y axis shows: rows a second served, bytes needed for a wanted rate, seconds of a row in the join, seconds of
a row in the stream buffer, or seconds of one iteration; of window joins the time that arrivals take, pairs found a
second, or bytes of a window with its index."""

MEASURE_LABELS: Mapping[Measure, str] = {
    "rate": "service rate (rows/s)",
    "memory": "memory needed (bytes)",
    "processing": "processing time (s/row)",
    "waiting": "waiting time (s/row)",
    "loop": "cost of an iteration (s)",
    "cost": "cost of the arrivals (ms)",
    "output": "pairs found (1/s)",
    "held": "window and index (bytes/row)",
}

JVM_WAITING_ROW_BYTES = 204
"""What a 20-byte stream row takes in hash table and queue of the papers' prototypes."""

Data = Literal["synthetic", "customer-orders", "partsupp-lineitem", "weather"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One point of a figure, ready to run."""

    r_rows: int
    """Rows of R."""
    memory_bytes: int
    """M."""
    page_rows: int
    """Rows of a page."""
    skew: float = 1.0
    """Zipf's exponent."""
    row_bytes: int = 120
    """v_R."""
    stream_row_bytes: int = 20
    """v_S."""
    rows_per_key: int = 1
    """Rows of R for each key."""
    data: Data = "synthetic"
    """Where keys come from."""
    from_tables: bool = False
    """Whether they are read from tables, or drawn by the law that those follow."""
    reports: tuple[Path, ...] = ()
    """Files of weather reports that are the tables; generated ones where there are none."""
    arrival_rows_per_s: float | None = None
    """λ; None when all rows are there at once, which shows the service rate."""
    wanted_rows_per_s: float | None = None
    """The rate for which memory is sought."""
    cached_rows: int = 0
    """H_R of the rivals as published, in rows."""
    pinned_rows: int = 0
    """Non-swappable part of X-HYBRIDJOIN, for series that are told it; whole pages are pinned, one at least."""
    turns: float = 6.0
    """Length of the stream, in rows that fit into M."""

    def as_json(self) -> dict[str, Any]:
        """What a reader needs to run it again."""
        told = {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}
        return told | {"reports": [path.name for path in self.reports]}


@dataclass(frozen=True, slots=True)
class WindowSetting:
    """One point of a figure of window joins."""

    rate_a: float
    """lambda_a, rows/s."""
    rate_b: float
    window_a: int
    """A, rows."""
    window_b: int
    arrivals: int
    """Rows of both streams that are timed or counted, behind those that fill the windows."""
    keys: int
    """Distinct keys, all equally frequent: the selectivity is one over this."""
    bucket_rows: int = 10
    node_rows: int = 100
    strategy: str | None = None
    """Who gets what of scarce resources, by a word of `semistream.window.allocation`."""
    probes_per_s: float | None = None
    """mu, where processor time is short."""
    held_rows: int | None = None
    """M, where memory is short."""

    def as_json(self) -> dict[str, Any]:
        """What a reader needs to run it again."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}


@dataclass(frozen=True, slots=True)
class Series:
    """A line of the figure."""

    label: str
    algorithm: str
    """A join of the registry; of window joins the indexes of A and B, as in `t-tree/scan`."""
    options: str = "plain"
    """How its settings are found, by a name of `semistream.lab.options`."""
    is_model: bool = False
    """Predicted by the cost model from sizes and skew, not run."""
    nodes: int = 1
    """Nodes with a part of R, a part of the memory and a disk each."""
    memory_times: int = 1
    """How many times the memory of the setting it has; what has more is not compared with what has not."""
    queries_segments: bool = False
    """Every segment of a scan is a query with a seek of its own, as in the papers' prototypes."""
    tunes_page: bool = False
    """R has pages of the size that its model finds best, not of the figure's; see `semistream.lab.page_tuning`."""


@dataclass(frozen=True, slots=True)
class Point:
    """A measured value with its 95 % interval; `extra` has what else was seen."""

    x: float
    y: float
    low: float
    high: float
    extra: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain numbers."""
        return {"x": self.x, "y": self.y, "low": self.low, "high": self.high, **self.extra}


Lines = Mapping[str, tuple[Point, ...]]
"""The points of each series, by its label."""


def values_by_name(lines: Lines) -> dict[str, float]:
    """Every measured value by a name that says of what, and where."""
    return {f"{label} at {point.x:g}": point.y for label, points in lines.items() for point in points}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a claim."""

    holds: bool | None
    """None where it cannot be judged: what it speaks of was not run."""
    reason: str
    measured: dict[str, float]
    """The numbers that decided, by name."""
    found: str = ""
    """What was found, in a few words, for a table."""
    published: str = ""
    """The same in the paper."""

    @property
    def in_words(self) -> str:
        """What a claim does, as the end of a sentence."""
        return {True: "holds", False: "does not hold", None: "was not judged"}[self.holds]


@dataclass(frozen=True)
class Experiment:
    """A figure of a paper."""

    id: str
    paper: str
    figure: str
    claim: str
    """What the paper says of the figure."""
    x_label: str
    values: Mapping[Size, tuple[float, ...]]
    """Values of the independent variable, in the paper's terms."""
    setting: Callable[[Size, float], Setting | WindowSetting]
    fixed: str
    """What does not vary, in the paper's terms."""
    series: tuple[Series, ...]
    judge: Callable[[Lines], Verdict]
    measure: Measure = "rate"
    modelled: tuple[Series, Series] | None = None
    """Winner and rival whose models say what the ratio would be at the paper's size; None where they cannot."""
    note: str = ""
    """How this differs from what the paper did, and why that matters."""
    archive: str = ""
    """Where its rows come from, if not from what the laboratory makes; see `semistream.lab.weather_archive`."""
    is_part: bool = False
    """Whether points or series of the figure were left out; see `semistream.lab.part`."""

    @property
    def is_timed_here(self) -> bool:
        """Whether this machine's clock decides, and no metered disk."""
        return isinstance(self.settings("small")[0][1], WindowSetting)

    def settings(self, size: str) -> list[tuple[float, Setting | WindowSetting]]:
        """The points of the x axis at a size."""
        check_choice("size", size, SIZES)
        chosen: Size = next(known for known in SIZES if known == size)
        return [(value, self.setting(chosen, value)) for value in self.values[chosen]]
