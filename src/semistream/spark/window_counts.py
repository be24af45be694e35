"""Counts of a window join on their way from a worker through Spark to `progress.observedMetrics`; see `counts`."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING

from semistream.window.join import INDEX_NAMES

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(slots=True)
class WindowCounts:
    """What a worker counted since it last told."""

    carries_row: int = 1
    """0 for a row that exists only to carry counts."""
    rows_in_a: int = 0
    rows_in_b: int = 0
    null_keys: int = 0
    """Rows of both sides that can have no partner, because a key or their time is null or NaN."""
    candidates: int = 0
    """Pairs that an index found."""
    pairs: int = 0
    """Pairs that satisfy the whole condition."""
    unmatched: int = 0
    """Left joins: rows of a that left their window without a partner."""
    late: int = 0
    """Rows that were out of their window when they came."""
    shed: int = 0
    """Rows that are not held because memory is short."""
    probes_skipped: int = 0
    """Rows that did not look for partners because of `rate`."""
    held_rows: int = 0
    """Rows in the windows when the batch was done."""
    bytes_held: int = 0
    index_a: int = 0
    """The index of a's window, one bit for each of `INDEX_NAMES`; none where keys have windows of their own."""
    index_b: int = 0

    def as_list(self) -> list[int]:
        """The counts in the order of the fields."""
        return [int(count) for count in astuple(self)]


POSITIONS = {field.name: position for position, field in enumerate(fields(WindowCounts))}
"""Where each count stands in the list."""

_PEAKS = ("bytes_held",)
_INDEXES = ("index_a", "index_b")

SEVERAL = "several"
NO_INDEX = "none"
"""What is said of indexes where tasks took different ones, and where there was none."""


def is_row(counts: Column) -> Column:
    """Whether a row is one of the result and not there only to carry counts."""
    from pyspark.sql import functions as F

    return F.coalesce(counts[POSITIONS["carries_row"]], F.lit(1)) == 1


def _index_name(bits: Column) -> Column:
    from pyspark.sql import functions as F

    used = F.coalesce(F.bit_or(bits), F.lit(0))
    name = F.when(used == 0, NO_INDEX)
    for place, index in enumerate(INDEX_NAMES):
        name = name.when(used == 1 << place, index)
    return name.otherwise(SEVERAL)


def observed(counts: Column, *, parallelism: int, budget_bytes: int, tasks_at_a_time: int) -> list[Column]:
    """The aggregates that turn a column of counts into metrics."""
    from pyspark.sql import functions as F

    metrics = [
        F.coalesce(F.sum(counts[position]), F.lit(0)).alias(name)
        for name, position in POSITIONS.items()
        if name not in ("carries_row", *_PEAKS, *_INDEXES)
    ]
    # No more than this can be held at a time: what the worker with the most has held, in as many as run at a time.
    peak = F.coalesce(F.max(counts[POSITIONS["bytes_held"]]), F.lit(0)) * tasks_at_a_time
    metrics.append(peak.alias("bytes_held"))
    metrics += [_index_name(counts[POSITIONS[name]]).alias(name) for name in _INDEXES]
    metrics.append(F.count(F.when(is_row(counts), 1)).alias("rows_out"))
    # Numbers that do not change; an aggregate, because Spark observes nothing else.
    metrics.append(F.coalesce(F.max(F.lit(budget_bytes)), F.lit(budget_bytes)).alias("budget"))
    metrics.append(F.coalesce(F.max(F.lit(parallelism)), F.lit(parallelism)).alias("parallelism"))
    return metrics
