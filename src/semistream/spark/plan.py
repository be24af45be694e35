"""From what a user asked for to what the workers must do; every mistake that can be seen now is refused now.

No Spark object appears here. The stream's columns come in as an Arrow schema, and out comes an `EnrichPlan` of plain
values that can be sent to workers.

Two ways lead through Python, and the plan says which:

- **answers**: only key columns cross to Python and one struct a row comes back. Needs unique keys, memory for the
  answers to an Arrow batch at once, or to many of its rows, however large they turn out to be, and an algorithm that
  lets no row wait.
- **rows**: whole rows cross both ways and any number may come back, in pieces as small as the memory requires.

`algorithm="auto"` is decided here as well, for each relation on its own, and so is `shuffle="auto"`:
`semistream.planning.auto` and `semistream.planning.shuffle` say how.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa

from semistream.budget import format_bytes
from semistream.errors import BudgetExceeded, InvalidOption, check_choice
from semistream.joins.at_once import OUTPUT_SHARE
from semistream.joins.driver import OPEN_ROW_BYTES
from semistream.joins.output import ON_MISS, OnMiss
from semistream.joins.registry import AUTO, algorithm_named
from semistream.joins.x_hybridjoin import require_unique
from semistream.keys import KeyCodec
from semistream.planning.auto import choose_blindly
from semistream.planning.capacities import Room
from semistream.planning.shuffle import ShuffleChoice, choose_shuffle
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.handle import Lookup, payload_schema
from semistream.relations.partitioned import partitions_of
from semistream.spark.memory_parts import MemoryParts, memory_parts, remembered_keys, rows_per_step
from semistream.spark.plan_checks import BY_PARTITION, check_key, check_names, check_partitions, checked_defaults

VARIABLE_BYTES = 24
"""What a string or a nested value in a stream is taken for."""

ANSWERED_ROWS_MIN = 10_000
"""Rows whose answers must fit the memory together; of a larger Arrow batch they are put out in pieces."""

SHUFFLE = ("auto", "always", "never")

Way = Literal["answers", "rows"]
"""How rows cross to Python and back."""


@dataclass(frozen=True, slots=True)
class LookupPlan:
    """One lookup, ready to be carried out."""

    lookup: Lookup
    algorithm: str
    on_miss: OnMiss
    defaults: Mapping[str, Any]
    """By output name."""
    memory_share: float
    """Its part of a worker's memory."""
    stream_key_types: tuple[pa.DataType, ...]
    """Types of the stream's key columns."""
    stream_row_bytes: int
    """About what a stream row takes that waits here, with what lookups before this one have added."""
    least_bytes: int = 0
    """The least memory with which a worker can join the version that was planned with, once the algorithm is chosen.
    Workers divide what they have by it, and may begin when that version is gone."""

    @property
    def codec(self) -> KeyCodec:
        """How the stream's keys become codes."""
        return KeyCodec(self.stream_key_types, self.lookup.on)

    @property
    def verify_key(self) -> tuple[str, ...]:
        """Relation columns to compare with the stream's key, unless codes are exact on both sides."""
        relation = self.lookup.relation
        exact = self.codec.exact and KeyCodec(relation.key_types, relation.key).exact
        return () if exact else relation.key

    @property
    def is_by_partition(self) -> bool:
        """Whether each task joins rows of one hash partition, and reads that one only."""
        return self.algorithm == BY_PARTITION

    def open(self, version: int) -> ArrowFileRelation:
        """Open a version of the relation as it will be read, with the key where that is verified."""
        return self.lookup.relation.open(version, with_key=bool(self.verify_key))

    def least_memory_bytes(self, version: int) -> int:
        """The least memory with which a worker can join this version."""
        whole, algorithm = self.open(version), algorithm_named(self.algorithm)
        parts = partitions_of(whole) if self.is_by_partition else (whole,)
        return max(algorithm.least_memory_bytes(part, self.stream_row_bytes) for part in parts)

    def measured(self) -> LookupPlan:
        """The same with its least memory."""
        return replace(self, least_bytes=self.least_memory_bytes(self.lookup.relation.info.version))

    @property
    def payload(self) -> pa.Schema:
        """Columns it adds, under their names in the relation."""
        return payload_schema(self.lookup.relation)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Rows with the same key go to the same task, or, where they are many, to all tasks."""

    lookup: int
    """The lookup whose key decides."""
    tasks: int


@dataclass(frozen=True, slots=True)
class EnrichPlan:
    """What a worker must know."""

    id: str
    """Names this enrichment among all that a worker may serve."""
    family: str
    """The same for plans that differ in nothing but what a relation was like when they were made."""
    lookups: tuple[LookupPlan, ...]
    memory_bytes: int
    """For all workers of an executor together."""
    workers: int
    """How many of them share it; 0 when only the worker can find out."""
    batch_rows: int
    """Rows of an Arrow batch that Spark sends."""
    way: Way
    shuffle: Shuffle | None
    """How rows are shared out by key before they cross; None where they are left as they come."""
    reasons: tuple[str, ...]
    """Why this way, this sharing out and, where that was left to us, these algorithms; sentences without full stops."""

    @property
    def drops_misses(self) -> bool:
        """Whether a row is left out for which one of the lookups finds nothing."""
        return self.lookups[0].on_miss == "drop"

    def parts_of(self, plan: LookupPlan) -> MemoryParts:
        """How the memory for one of its lookups is divided among the workers of an executor."""
        return _parts_of(plan, self.memory_bytes, self.workers or os.cpu_count() or 1, self.batch_rows)

    @property
    def shares_rows(self) -> bool:
        """Whether workers remember rows of any of its relations together."""
        return any(self.parts_of(plan).shares(plan.lookup.relation.info) for plan in self.lookups)


def _parts_of(plan: LookupPlan, memory_bytes: int, workers: int, batch_rows: int) -> MemoryParts:
    return memory_parts(
        int(memory_bytes * plan.memory_share),
        workers,
        batch_rows,
        plan.lookup.relation.info,
        algorithm=plan.algorithm,
        least_bytes=plan.least_bytes,
    )


def make_plan(
    stream: pa.Schema,
    lookups: Sequence[Lookup],
    *,
    memory_bytes: int,
    workers: int,
    batch_rows: int,
    tasks: int,
    algorithm: str,
    on_miss: str,
    defaults: Mapping[str, Any] | None,
    shuffle: str,
) -> EnrichPlan:
    """Check everything and decide how to carry it out; `tasks` is how many Spark makes behind a shuffle."""
    check_choice("on_miss", on_miss, ON_MISS)
    check_choice("shuffle", shuffle, SHUFFLE)
    chosen = algorithm_named(algorithm)
    if not lookups:
        raise InvalidOption("there is nothing to enrich with", given="an empty list", allowed="one or more relations")
    check_names(stream, lookups)
    for lookup in lookups:
        check_key(stream, lookup)
    if chosen.name == BY_PARTITION:
        check_partitions(lookups)
    checked = checked_defaults(lookups, on_miss, defaults)
    shares = _memory_shares(lookups, memory_bytes)
    for lookup in lookups:
        if not chosen.many_to_many:
            require_unique(lookup.relation.info, chosen.name)
    plans = tuple(
        LookupPlan(
            lookup,
            chosen.name,
            on_miss,  # type: ignore[arg-type]
            checked,
            share,
            tuple(stream.field(column).type for column in lookup.on),
            _stream_row_bytes(stream, lookups[:i]),
        )
        for i, (lookup, share) in enumerate(zip(lookups, shares, strict=True))
    )
    # Executors mostly run on machines like this one.
    probable_workers = workers or os.cpu_count() or 1
    choices: list[str] = []
    if algorithm == AUTO:
        plans, choices = _choose_algorithms(plans, memory_bytes // probable_workers, batch_rows)
    plans = tuple(plan.measured() for plan in plans)
    for plan in plans:
        _check_memory(plan, memory_bytes, probable_workers)
    way, why = _choose_way(plans, memory_bytes // probable_workers, batch_rows)
    shared_out, why_shared_out = _choose_shuffle(
        plans, shuffle, lambda plan: _remembered_keys(plan, memory_bytes, probable_workers, batch_rows), tasks
    )
    reasons = (why, why_shared_out, *choices)
    identity = _digest(plans, memory_bytes, workers, batch_rows)
    family = _digest([(lookup.relation.path, lookup.on, lookup.output_names) for lookup in lookups], memory_bytes)
    return EnrichPlan(identity, family, plans, memory_bytes, workers, batch_rows, way, shared_out, reasons)


def _choose_shuffle(
    plans: Sequence[LookupPlan], wanted: str, remembered_by: Callable[[LookupPlan], float], tasks: int
) -> tuple[Shuffle | None, str]:
    """Decide for the relation whose rows take most; the others are looked up wherever a row happens to be."""
    if plans[0].is_by_partition:
        if wanted == "never":
            raise InvalidOption(
                f"{BY_PARTITION} joins each hash partition in a task of its own, for which it shuffles the stream",
                given='shuffle="never"',
                allowed='"auto" or "always"',
                hint="use another algorithm",
            )
        return None, f"{BY_PARTITION} shares rows out by hash partition"
    if wanted == "never":
        return None, 'rows are looked up in the tasks in which they come, because shuffle="never"'
    infos = [plan.lookup.relation.info for plan in plans]
    number = max(range(len(plans)), key=lambda i: infos[i].row_count * infos[i].row_bytes_mean)
    shuffle = Shuffle(number, tasks)
    name = infos[number].name
    if wanted == "always":
        return shuffle, f'rows are shared out by the key of {name!r} to {tasks} tasks, because shuffle="always"'
    algorithm = algorithm_named(plans[number].algorithm)
    if algorithm.needs == "scan":
        choice = ShuffleChoice(False, f"{algorithm.name} reads all of {name!r}, whichever keys rows have")
    else:
        choice = choose_shuffle(infos[number], remembered_by(plans[number]), tasks)
    if choice.pays:
        return shuffle, f"rows are shared out by the key of {name!r} to {tasks} tasks: {choice.reason}"
    return None, f"rows are looked up in the tasks in which they come, a shuffle does not pay: {choice.reason}"


def _remembered_keys(plan: LookupPlan, memory_bytes: int, workers: int, batch_rows: int) -> float:
    stored = plan.open(plan.lookup.relation.info.version)
    parts = _parts_of(plan, memory_bytes, workers, batch_rows)
    return remembered_keys(plan.algorithm, stored, parts, plan.stream_row_bytes, batch_rows)


def _choose_algorithms(
    plans: Sequence[LookupPlan], worker_bytes: int, batch_rows: int
) -> tuple[tuple[LookupPlan, ...], list[str]]:
    """The same plans with the algorithm that suits each relation best, and why."""
    fitting_plans, choices = [], []
    for plan in plans:
        info = plan.lookup.relation.info
        room = Room(int(worker_bytes * plan.memory_share), plan.stream_row_bytes, rows_per_step(batch_rows))
        choice = choose_blindly(plan.open(info.version), room)
        # A worker without a seat has half (see `_check_memory`); what then has too little for a page is not for it.
        fitting = replace(plan, algorithm=choice.algorithm)
        if 2 * fitting.least_memory_bytes(info.version) > room.memory_bytes:
            fitting = plan
            choice = replace(choice, reason=f"{plan.algorithm} is taken, for the memory is too small for others")
        fitting_plans.append(fitting)
        choices.append(f"for {info.name!r} {choice.reason}")
    return tuple(fitting_plans), choices


def _digest(*parts: object) -> str:
    """A name that is the same for the same, so that what is planned again, as in `foreachBatch`, is warm at once.

    Another number of workers, or of rows that cross at a time, divides the memory in another way: what is remembered
    then has another shape, and lies apart.
    """
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def in_words(plan: EnrichPlan) -> str:
    """A plan as a person reads it."""
    workers = plan.workers or "as many workers as an executor has cores"
    told = [f"memory: {format_bytes(plan.memory_bytes)} in each executor, for {workers} workers"]
    for lookup in plan.lookups:
        info = lookup.lookup.relation.info
        size = f"{info.row_count:,} rows, {format_bytes(info.row_count * info.row_bytes_mean)}"
        key = f"{', '.join(info.key)} from {', '.join(lookup.lookup.on)}"
        told.append(f"{info.name}: {size}, by {key}, {lookup.algorithm}, {lookup.memory_share:.0%} of the memory")
    crossing = "keys cross to Python and answers come back" if plan.way == "answers" else "whole rows cross to Python"
    told.append(f"{crossing}: {plan.reasons[0]}")
    return "\n".join([*told, *plan.reasons[1:]])


def metric_names(lookups: Sequence[Lookup]) -> list[str]:
    """A name for the metrics of each lookup: its prefix and its relation's name, numbered if that is not enough."""
    names = [lookup.prefix + lookup.relation.name for lookup in lookups]
    return [name if names.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(names, start=1)]


def _memory_shares(lookups: Sequence[Lookup], memory_bytes: int) -> list[float]:
    """Split the memory: a relation that fits into an equal part gets what it needs, the others share what is left."""
    needs = [1.5 * lookup.relation.info.row_count * lookup.relation.info.row_bytes_mean for lookup in lookups]
    shares = [0.0] * len(lookups)
    left, open_lookups = 1.0, sorted(range(len(lookups)), key=lambda i: needs[i])
    while open_lookups:
        smallest = open_lookups.pop(0)
        # Even the smallest table gets a quarter of an equal part: its batches and output need memory, too.
        equal = left / (len(open_lookups) + 1)
        shares[smallest] = min(equal, max(equal / 4, needs[smallest] / memory_bytes)) if open_lookups else left
        left -= shares[smallest]
    return shares


def _stream_row_bytes(stream: pa.Schema, lookups_before: Sequence[Lookup]) -> int:
    """About what a row of the stream takes when it reaches a lookup; strings are not known before they come."""
    stream_bytes = sum(_value_bytes(data_type) for data_type in stream.types)
    added_bytes = sum(lookup.relation.info.row_bytes_mean for lookup in lookups_before)
    return int(stream_bytes + added_bytes) + 1 + OPEN_ROW_BYTES


def _value_bytes(data_type: pa.DataType) -> float:
    try:
        return float(data_type.bit_width) / 8
    except ValueError:
        return VARIABLE_BYTES


def least_executor_bytes(plan: LookupPlan, workers: int) -> int:
    """The least memory of an executor in which so many workers can carry out a lookup."""
    # Twice, because a worker that has no seat must get through, too (see `worker`).
    return int(2 * plan.least_bytes * workers / plan.memory_share) + 1


def _check_memory(plan: LookupPlan, memory_bytes: int, workers: int) -> None:
    info = plan.lookup.relation.info
    least_bytes = least_executor_bytes(plan, workers)
    given = int(memory_bytes * plan.memory_share) // workers
    if memory_bytes < least_bytes:
        raise BudgetExceeded(
            f"the memory is too small for one row of relation {info.name!r}"
            if algorithm_named(plan.algorithm).needs == "keys"
            else f"the memory is too small for a page of relation {info.name!r}, which {plan.algorithm} reads",
            given=f"{format_bytes(memory_bytes)}, of which {format_bytes(given)} are for this relation in one of "
            f"{workers} workers; its largest row has {format_bytes(plan.open(info.version).info.row_bytes_max)}",
            allowed=f"memory of at least {least_bytes} bytes",
        )


def _choose_way(plans: Sequence[LookupPlan], worker_bytes: int, batch_rows: int) -> tuple[Way, str]:
    for plan in plans:
        info = plan.lookup.relation.info
        if algorithm_named(plan.algorithm).needs != "keys":
            return "rows", f"{plan.algorithm} lets rows wait beyond the end of an Arrow batch"
        if not info.unique:
            return "rows", f"keys of {info.name!r} repeat, so a row can have several partners"
        # Answers are put together from pieces where they do not come in one, so there must be room for them twice.
        room = int(worker_bytes * plan.memory_share * OUTPUT_SHARE) // 2
        if batch_rows <= 0:
            return "rows", "an Arrow batch may have any number of rows"
        needed = min(batch_rows, ANSWERED_ROWS_MIN) * info.row_bytes_max
        if needed > room:
            return "rows", (
                f"the answers to an Arrow batch could need {format_bytes(needed)} for {info.name!r}, "
                f"and {format_bytes(room)} are there"
            )
    return "answers", "keys are unique and the answers to enough rows at a time fit the memory"
