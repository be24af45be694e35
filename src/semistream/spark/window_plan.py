"""From what a user asked of a window join to what its tasks must do; every mistake that can be seen now is refused now.

No Spark object appears here: the streams come in as Arrow schemas, and out comes a `WindowPlan` of plain values that
can be sent to workers.

The plan also decides how many tasks join at a time, and says why:

- equality of columns with time windows is shared out by key, for a pair has one key and time is the same everywhere;
- with `per_key=True` every key has count windows of its own, so that is shared out by key, too;
- everything else is one sequence: a count window over a whole stream must see all of it in order, and the partners of
  an inequality may be anywhere. It is joined by one task.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import InvalidOption, check_choice
from semistream.spark.window_options import (
    AUTO,
    BY_KEY,
    Options,
    OutputColumn,
    check_names,
    check_per_key,
    check_sampling,
    equal_columns,
    indexes_of,
    key_columns,
    lateness_us_of,
    order_columns,
    output_columns,
    partitions_of,
    time_columns,
    windows_of,
)
from semistream.window.condition import Condition, from_columns, from_text
from semistream.window.join import WindowJoin
from semistream.window.predicate import Equality
from semistream.window.state import Reach
from semistream.window.windows import Window

Shed = Literal["error", "sample"]
"""What happens when windows do not fit the memory: the query fails, or a sample of their rows is kept."""

OUTPUT_PART = 1 / 8
JOIN_PART = {"error": 3 / 8, "sample": 1 / 4}
"""Of a worker's memory: for joined rows, and for the windows; what is left is for keys while windows are restored.

A window without an index takes 17 bytes a row at least, and 42 while it is restored where rows are sampled: whatever
fits the windows of a sample can be restored, so that nothing is shed between two batches."""

FORMAT = 1
"""Number of the layout of state."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What a worker must know."""

    name: str
    condition: Condition
    windows: tuple[Window, Window]
    lateness_us: int
    is_outer: bool
    per_key: bool
    indexes: tuple[str, str]
    """By name; `AUTO` where one is chosen while the query runs."""
    shed: Shed
    probes_per_s: float | None
    seed: int
    schemas: tuple[pa.Schema, pa.Schema]
    time: tuple[str, str] | None
    """Columns that hold the time of a row; None where that is when it was accepted."""
    order_by: tuple[tuple[str, ...], tuple[str, ...]]
    output: tuple[OutputColumn, ...]
    memory_bytes: int
    """For all workers of an executor together."""
    workers: int
    """How many of them share it; 0 when only the worker can find out."""
    partitions: int
    reason: str
    """Why so many partitions."""
    state: str | None
    retained_batches: int

    @property
    def reach(self) -> Reach:
        """How far back rows count."""
        return Reach(self.windows, self.lateness_us, self.per_key)

    @property
    def has_clock(self) -> bool:
        """Whether time matters for a window."""
        return any(window.is_time for window in self.windows)

    @property
    def needs_tie_break(self) -> bool:
        """Whether the order of rows that are otherwise equal matters: it must be the same in every try."""
        return self.shed == "sample" or not all(window.is_time for window in self.windows)

    @property
    def is_by_key(self) -> bool:
        """Whether rows can be shared out by key; if not, one task joins them all."""
        return self.reason == BY_KEY

    @property
    def parallel_keys(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """The columns by which rows are shared out; None where one task joins them all."""
        return key_columns(self.condition) if self.partitions > 1 else None

    @property
    def worker_bytes(self) -> int:
        """What one worker may hold."""
        return self.memory_bytes // (self.workers or os.cpu_count() or 1)

    @property
    def join_bytes(self) -> int:
        """What the windows and their indexes may take of it."""
        return max(1, int(self.worker_bytes * JOIN_PART[self.shed]))

    @property
    def is_equality(self) -> bool:
        """Whether the index is asked for equal keys; a hash finds no others."""
        return isinstance(self.condition.predicate, Equality)

    @property
    def identity(self) -> dict[str, object]:
        """What must not change while there is state."""
        return {
            "format": FORMAT,
            "name": self.name,
            "partitions": self.partitions,
            "columns of a": _described(self.schemas[0]),
            "columns of b": _described(self.schemas[1]),
            "windows": ", ".join(str(window) for window in self.windows),
            "lateness_us": self.lateness_us,
            "condition": str(self.condition),
            "how": "left" if self.is_outer else "inner",
            "time": list(self.time or ()),
            "order_by": [list(columns) for columns in self.order_by],
            "per_key": self.per_key,
            "seed": self.seed,
        }

    def seed_of(self, partition: int) -> int:
        """What decides which rows of a partition are shed.

        Rows draw by their numbers, and every partition numbers its own: with one seed for all, rows of the same number
        would come and go together, and estimates take partitions for independent.
        """
        return int(np.random.SeedSequence((self.seed, partition)).generate_state(1)[0])

    def make_join(
        self,
        budget: MemoryBudget,
        indexes: tuple[str, str],
        partition: int = 0,
        probe_share: tuple[float, float] = (1.0, 1.0),
        memory_parts: tuple[float, float] = (0.5, 0.5),
    ) -> WindowJoin:
        """An empty join."""
        return WindowJoin(
            *self.windows,
            budget=budget,
            index_a=indexes[0],
            index_b=indexes[1],
            lateness_us=self.lateness_us,
            seed=self.seed_of(partition),
            probe_share=probe_share,
            allocation=memory_parts,
        )

    def indexes_or(self, chosen: tuple[str, str]) -> tuple[str, str]:
        """The indexes that were asked for, and where none was, the chosen ones."""
        a, b = (mine if theirs == AUTO else theirs for mine, theirs in zip(chosen, self.indexes, strict=True))
        return a, b


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def make_plan(
    schemas: tuple[pa.Schema, pa.Schema],
    options: Options,
    *,
    is_streaming: bool,
    memory_bytes: int,
    workers: int,
    default_partitions: int,
    retained_batches: int,
) -> WindowPlan:
    """Check everything and decide how to carry it out."""
    check_choice("how", options.how, ("inner", "left"))
    check_choice("shed", options.shed, ("error", "sample"))
    check_names(schemas)
    windows = windows_of(options)
    on = equal_columns(options)
    condition = from_columns(on, *schemas) if on else from_text(str(options.condition), *schemas)
    time = time_columns(schemas, options, windows)
    order_by = order_columns(schemas, options, windows)
    check_per_key(options, condition, windows)
    check_sampling(options)
    if is_streaming and options.state is None:
        raise InvalidOption(
            "a streaming window join needs `state`",
            given="none",
            allowed="a directory that survives restarts, such as state='/data/state/clicks'",
            hint="Spark does not tell the workers where its checkpoint is; put it beside that",
        )
    partitions, reason = partitions_of(options, condition, windows, default_partitions)
    plan = WindowPlan(
        name=options.name,
        condition=condition,
        windows=windows,
        lateness_us=lateness_us_of(options, windows),
        is_outer=options.how == "left",
        per_key=options.per_key,
        indexes=indexes_of(options, condition),
        shed="sample" if options.shed == "sample" else "error",
        probes_per_s=options.rate,
        seed=options.seed,
        schemas=schemas,
        time=time,
        order_by=order_by,
        output=output_columns(schemas, on or {}, options),
        memory_bytes=memory_bytes,
        workers=workers,
        partitions=partitions,
        reason=reason,
        state=options.state,
        retained_batches=retained_batches,
    )
    # Refuses a budget that is too small for the least there must be.
    plan.make_join(MemoryBudget(plan.join_bytes), plan.indexes_or(("hash", "hash")))
    return plan
