"""With what a micro-batch is joined: an index for each window, who may probe, and who gets memory.

Everything follows from what the windows held before the batch, from the rows of the batch and from the counters. These
are the same in every try at the batch, so a replay keeps the same sample. Rates of single batches in the past are not:
runs that hold them may have been merged meanwhile.

*Indexes* are built anew for every batch, so the choice counts what building costs. Where rows are shed the choice is
left alone: another index would need other memory, and what is shed for its sake does not come back.

*Probes* (`rate`) go where they find most (`semistream.window.allocation`): from the smaller window's stream into the
larger window, each stream having its least share.

*Memory*, where it is short, goes to the slower stream for the same reason. What is shed for one batch is missed by the
next ones, so the rates are those of all rows so far, which do not follow every swing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semistream.planning.window_choice import choose_for_batch, typical_costs
from semistream.spark.window_held import Restored
from semistream.spark.window_plan import WindowPlan
from semistream.spark.window_sequence import RowSequence
from semistream.window.allocation import Demand, allocate
from semistream.window.join import side_indexes
from semistream.window.run_file import NO_CLOCK, Counters
from semistream.window.side import side_bytes
from semistream.window.windows import MICROSECONDS

PRICED_ROWS = 1024
"""What a row takes is taken from a window of so many."""


@dataclass(frozen=True, slots=True)
class Means:
    """What a batch is joined with; the first of every pair belongs to `a`."""

    indexes: tuple[str, str]
    probe_shares: tuple[float, float]
    memory_parts: tuple[float, float]


def means_of(
    plan: WindowPlan, restored: Restored, sequence: RowSequence, before: Counters, windows_bytes: int
) -> Means:
    """Decide for one batch."""
    held = len(restored.kept[0]), len(restored.kept[1])
    arriving = len(sequence.keys[0]), len(sequence.keys[1])
    if restored.is_sample:
        chosen: tuple[str, str] = ("hash", "hash") if plan.is_equality else ("t-tree", "t-tree")
    else:
        chosen = choose_for_batch(typical_costs(), held, arriving, equality=plan.is_equality)
    indexes = plan.indexes_or(chosen)
    if plan.shed != "sample":
        return Means(indexes, (1.0, 1.0), (0.5, 0.5))
    windows = _window_rows(plan, restored, sequence, 0), _window_rows(plan, restored, sequence, 1)
    held_rows, parts = _memory(plan, windows, sequence.after, indexes, windows_bytes)
    return Means(indexes, _probe_shares(plan, held_rows, sequence, before), parts)


def _window_rows(plan: WindowPlan, restored: Restored, sequence: RowSequence, side: int) -> float:
    """The rows of a full window when the batch is done, about."""
    window = plan.windows[side]
    arriving = float(len(sequence.keys[side]))
    if window.is_time and arriving:
        span_us = int(np.ptp(sequence.arrivals.time_us))
        arriving *= min(1.0, (window.span + plan.lateness_us) / max(1, span_us))
    rows = restored.full_rows(side) + arriving
    return rows if window.rows_max is None else min(rows, float(window.rows_max))


def _memory(
    plan: WindowPlan, windows: tuple[float, float], after: Counters, indexes: tuple[str, str], windows_bytes: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """How many rows each side will hold, about, and its part of the memory."""
    known = side_indexes()
    row_bytes = [
        side_bytes(window, known[index], PRICED_ROWS) / PRICED_ROWS
        for window, index in zip(plan.windows, indexes, strict=True)
    ]
    needed = windows[0] * row_bytes[0] + windows[1] * row_bytes[1]
    if needed <= windows_bytes:
        return windows, (0.5, 0.5)
    demand = Demand(float(after.rows[0]), float(after.rows[1]), *windows)
    given = allocate(demand, held_rows=windows_bytes / (needed / sum(windows)))
    part_a = given.window_a * row_bytes[0] / (given.window_a * row_bytes[0] + given.window_b * row_bytes[1])
    return (given.window_a, given.window_b), (part_a, 1 - part_a)


def _probe_shares(
    plan: WindowPlan, windows: tuple[float, float], sequence: RowSequence, before: Counters
) -> tuple[float, float]:
    """With what probability rows of each side probe, so that no more do than the rate allows."""
    if plan.probes_per_s is None or not len(sequence.arrivals):
        return 1.0, 1.0
    passed_s = _passed_s(sequence, before)
    rate_a, rate_b = (len(keys) / passed_s for keys in sequence.keys)
    given = allocate(Demand(rate_a, rate_b, *windows), probes_per_s=plan.probes_per_s / plan.partitions)
    return given.probe_shares


def _passed_s(sequence: RowSequence, before: Counters) -> float:
    """How long the rows of the batch took to come, in stream time; a batch that took no time is taken for a second."""
    if before.clock_us == NO_CLOCK:
        passed_us = int(np.ptp(sequence.arrivals.time_us))
    else:
        passed_us = sequence.after.clock_us - before.clock_us
    return passed_us / MICROSECONDS if passed_us > 0 else 1.0
