"""The best split of a memory budget for a workload: by the model, and by measurement, side by side.

What can be chosen is few: how large a page is, and for some algorithms how much of the memory holds rows of R
(`planning.settings`). The *model* is asked on a fine grid: a prediction takes some milliseconds, of a cache that learns
a tenth of a second. *Measurement* runs the operator on a virtual clock, with a metered relation and the unit costs
charged, on a coarse grid and at the model's optimum. Both speak of the same operator, because the model's sizes are the
operator's (`planning.capacities`).

The rate that is measured is that of the second half of the run, from when half of the rows are finished to when the
last row is admitted; what comes after is the end of the stream, where fewer and fewer rows share a read. So what
waits must be exchanged several times (`PASSAGES_MIN`); a stream that is shorter is refused, for it would be a
measurement of filling H_S. Splits that the model puts far below its best (`HOPELESS_SHARE`) are not run: they take the
longest, and the model is not wrong by that much.

Why both: the model assumes a cache that holds the most popular rows, and a stream that follows Zipf's law. Where the
two optima differ, `Tuning.shortfall` says what it would cost to believe the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from semistream.budget import format_bytes
from semistream.clock import VirtualClock
from semistream.cost.base import Workload
from semistream.cost.symbols import UnitCosts
from semistream.errors import BudgetExceeded, InvalidOption, check_choice
from semistream.joins.base import Numbers
from semistream.joins.registry import ALGORITHMS
from semistream.joins.timed import run_timed
from semistream.planning.capacities import Room, Settings, predict_for, sizes_of
from semistream.planning.charging import charge_of, typical
from semistream.planning.settings import SETTINGS, best_setting, values_of
from semistream.relations.base import Relation
from semistream.relations.metered import IoProfile, MeteredRelation
from semistream.relations.partitioned import partition_of, partitions_of

MEASURED_POINTS = 7
"""Values of a setting that are run."""

PASSAGES_MIN = 6
"""How often all rows that can wait must have been exchanged in a run; the first half of them is not counted."""

HOPELESS_SHARE = 0.5
"""Of the best predicted rate, below which a split is not run."""

RelationOf = Callable[[int], Relation]
"""The relation with pages of so many rows."""

Stream = Numbers | Callable[[int], Numbers]
"""Codes, or a function that draws so many of them: each split needs a stream of its own length."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One split, with what the model and, if it was run, the clock say."""

    page_rows: int
    settings: dict[str, float]
    h_s_rows: float
    h_r_rows: float
    hit_share: float
    """Of the stream, by the model."""
    predicted_rows_per_s: float
    measured_rows_per_s: float | None = None


@dataclass(frozen=True)
class Tuning:
    """The best split by the model and the best by measurement."""

    algorithm: str
    by_model: Trial
    """With its measurement."""
    by_measurement: Trial
    trials: list[Trial]
    """All that were measured, in order of page size and setting."""

    @property
    def shortfall(self) -> float:
        """What is lost by believing the model: 0.05 means 5 % less than the best that was measured."""
        believed, best = self.by_model.measured_rows_per_s, self.by_measurement.measured_rows_per_s
        assert believed is not None and best is not None, "both optima are measured"
        return 1.0 - believed / best

    def as_json(self) -> dict[str, Any]:
        """For one line of JSON."""
        return {**asdict(self), "shortfall": self.shortfall}

    def as_text(self) -> str:
        """A table with a line for each trial; the two optima are marked."""
        lines = [f"{'page rows':>9}  {'setting':<22} {'h_S':>9} {'h_R':>9} {'model rows/s':>13} {'run rows/s':>13}"]
        for trial in self.trials:
            setting = ", ".join(f"{name}={value:.3g}" for name, value in trial.settings.items())
            marks = [
                word for word, best in (("model", self.by_model), ("measured", self.by_measurement)) if trial == best
            ]
            lines.append(
                f"{trial.page_rows:>9}  {setting:<22} {trial.h_s_rows:>9.0f} {trial.h_r_rows:>9.0f}"
                f" {trial.predicted_rows_per_s:>13,.0f} {trial.measured_rows_per_s or 0:>13,.0f}"
                f"  {' and '.join(marks) and '<- best, ' + ' and '.join(marks)}".rstrip()
            )
        lines.append(f"the model's choice is {100 * self.shortfall:.1f} % below the best that was measured")
        return "\n".join(lines)


@dataclass(frozen=True)
class Tuner:
    """What is tuned for: a relation in pages of any size, a workload, a room and a device."""

    relation_of: RelationOf
    workload: Workload
    room: Room
    io: IoProfile
    unit_costs: UnitCosts | None = None
    """Prices of the operations, reads included; by default those of a usual machine with this device."""

    @property
    def prices(self) -> UnitCosts:
        """What operations take, for the model and for the clock."""
        return self.unit_costs or typical(self.io)

    def predicted(self, algorithm: str, page_rows: int, settings: Settings) -> Trial | None:
        """What the model says of a split; None where it does not fit."""
        relation = self.relation_of(page_rows)
        try:
            sizes = sizes_of(algorithm, relation, self.room, settings, self.workload.rows_per_key)
        except BudgetExceeded:
            return None
        told = predict_for(algorithm, relation, self.room, self.workload, self.prices, settings)
        return Trial(page_rows, dict(settings), sizes.h_s_rows, sizes.h_r_rows, told.hit_share, told.mu_rows_per_s)

    def measured(self, trial: Trial, algorithm: str, stream: Stream) -> Trial:
        """The same with the rate of a run over a stream of these codes.

        The parts of PCSRJ are nodes: each has a disk, a clock and its part of the memory, and the stream is as fast as
        the part that falls behind first.
        """
        relation = self.relation_of(trial.page_rows)
        parts = partitions_of(relation) if algorithm == "pcsrj" else (relation,)
        needed = len(parts) * rows_needed(trial)
        codes = stream(needed) if callable(stream) else stream
        if len(codes) < needed:
            raise InvalidOption(
                "the stream is too short to measure a steady rate",
                given=f"{len(codes)} rows, of which {len(parts) * trial.h_s_rows:.0f} can wait",
                allowed=f"at least {needed} rows",
                hint="give a longer stream, or less memory",
            )
        room = replace(self.room, memory_bytes=self.room.memory_bytes // len(parts))
        numbers = partition_of(codes, len(parts))
        rates = []
        for number, part in enumerate(parts):
            own = codes[numbers == number]
            rates.append(self._rate(part, room, algorithm, trial, own) * len(codes) / len(own))
        return replace(trial, measured_rows_per_s=min(rates))

    def _rate(self, relation: Any, room: Room, algorithm: str, trial: Trial, codes: Numbers) -> float:
        """Rows a second of one operator in the steady state, on a clock of its own."""
        clock = VirtualClock()
        metered = MeteredRelation(relation, self.io, clock)
        join = ALGORITHMS[algorithm].build(metered, room.resources(clock), **trial.settings)
        timed = run_timed(join, codes, np.zeros(len(codes)), clock, charge_of(self.prices))
        end = len(codes) - int(trial.h_s_rows)
        return timed.rate_between(end // 2, end)


def rows_needed(trial: Trial) -> int:
    """Stream rows without which a run would only measure how memory is filled."""
    return int(PASSAGES_MIN * trial.h_s_rows / (1.0 - trial.hit_share)) + 1


def tune(
    algorithm: str,
    tuner: Tuner,
    stream: Stream,
    page_rows: Sequence[int],
    measured_points: int = MEASURED_POINTS,
    on_trial: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Find the best page size of these and the best setting, by the model and by runs over a stream.

    `on_trial` is told of every run before it begins: its number, and how many there are.
    """
    best = best_by_model(algorithm, tuner, page_rows)
    grid = [best]
    for size in page_rows:
        values = values_of(algorithm, tuner.relation_of(size), tuner.room, measured_points)
        trials = (tuner.predicted(algorithm, size, settings) for settings in values)
        grid += [trial for trial in trials if trial is not None and trial != best and _has_hope(trial, best)]
    measured = []
    for number, trial in enumerate(grid, start=1):
        if on_trial is not None:
            on_trial(number, len(grid))
        measured.append(tuner.measured(trial, algorithm, stream))
    fastest = max(measured, key=lambda trial: trial.measured_rows_per_s or 0.0)
    ordered = sorted(measured, key=lambda trial: (trial.page_rows, *trial.settings.values()))
    return Tuning(algorithm, measured[0], fastest, ordered)


def check_tunable(algorithm: str) -> None:
    """Refuse an algorithm that has nothing to choose, and a word that is none."""
    if algorithm in ALGORITHMS and algorithm not in SETTINGS:
        raise InvalidOption(
            f"{algorithm} has nothing to tune: it knows one split of its memory, or finds its own",
            given=repr(algorithm),
            allowed=", ".join(SETTINGS),
            hint="`semistream plan` shows what each algorithm would make of a memory",
        )
    check_choice("algorithm", algorithm, SETTINGS)


def best_by_model(algorithm: str, tuner: Tuner, page_rows: Sequence[int]) -> Trial:
    """The split with the highest rate that the model predicts."""
    check_tunable(algorithm)
    found = [_best_in_pages(algorithm, tuner, size) for size in page_rows]
    fitting = [trial for trial in found if trial is not None]
    if not fitting:
        raise BudgetExceeded(
            f"the memory is too small for {algorithm} with any of these pages",
            given=f"{format_bytes(tuner.room.memory_bytes)}, pages of {', '.join(map(str, page_rows))} rows",
            allowed=f"{format_bytes(_least_memory_bytes(algorithm, tuner, page_rows))} at least",
            hint="give it more memory, or smaller pages",
        )
    return max(fitting, key=lambda trial: trial.predicted_rows_per_s)


def _least_memory_bytes(algorithm: str, tuner: Tuner, page_rows: Sequence[int]) -> int:
    """What it can run in with the smallest of these pages."""
    relation = tuner.relation_of(min(page_rows))
    return ALGORITHMS[algorithm].least_memory_bytes(relation, tuner.room.stream_row_bytes)


def _best_in_pages(algorithm: str, tuner: Tuner, page_rows: int) -> Trial | None:
    def rate_at(settings: Settings) -> float:
        trial = tuner.predicted(algorithm, page_rows, settings)
        return trial.predicted_rows_per_s if trial is not None else 0.0

    best = best_setting(algorithm, tuner.relation_of(page_rows), tuner.room, rate_at)
    return tuner.predicted(algorithm, page_rows, best)


def _has_hope(trial: Trial, best: Trial) -> bool:
    return trial.predicted_rows_per_s >= HOPELESS_SHARE * best.predicted_rows_per_s
