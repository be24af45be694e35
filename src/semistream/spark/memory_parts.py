"""How the memory of an executor is divided among its Python workers and what they hold together.

There are as many workers at work as the executor has task slots, and each needs memory of its own: for the rows of a
step, what it has just read, its output. What is left is for remembered rows. They are held once for all workers, in a
*hot set*, where there is enough for one; otherwise each worker gets its part of everything and remembers for itself.

Spark may start more workers than tasks run at a time. For each that works there may be one without a seat (`seats`),
which gets less, but never less than it needs for the largest row.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.budget import MIB
from semistream.joins.adaptive import bytes_wanted_for_steps
from semistream.joins.knowledge import hot_layout, whole_bytes_of
from semistream.joins.remembered import EVICTED_SHARE_MAX
from semistream.planning.advise import Capacity, of_one_process
from semistream.planning.auto import settings_for
from semistream.planning.capacities import Room, sizes_of
from semistream.relations.base import Relation, RelationInfo

SEATLESS_SHARE = 1 / 8
"""What a worker without a seat gets, as a share of what one with a seat has; more only where a row would not fit."""

HOT_ALGORITHM = "adaptive"

HOT_SHARE_MIN = 0.4
"""What remembered rows get of the memory at least where they are held together."""

HOT_BYTES_MIN = 8 * MIB
"""A hot set is cut into segments of whole pages, and room for one more is set aside: with fewer bytes they would be
mostly air."""

SMALL_SHARE = 1 / 4
"""A relation that fits into this part of a worker's own memory is remembered there: nothing is gained by sharing it."""

BATCH_ROWS = 10_000
"""Rows that are worked on at once where Spark sets no limit to its Arrow batches."""

SIZED_AS = {"moij": "sscj", "ssij": "sscj", "partition-join": "sscj", "derakhshan": "adaptive"}
"""Whose sizes stand for those of an algorithm that `sizes_of` has no number for. SSIJ and the partition join give half
of the memory for rows to pages, at least at first. MOIJ finds its split while it runs; with little memory it ends at
half as many keys. The join of Derakhshan et al. lets no row wait past a step, as `adaptive`, but holds what it reads
three times: with little memory its cache is a quarter of that. Where there is enough, all of them hold all of R."""


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Bytes for one lookup."""

    seat_bytes: int
    """For a worker that has a seat."""
    seatless_bytes: int
    """For one that has none."""
    hot_bytes: int
    """For what all of them remember together; 0 where each remembers for itself."""

    def shares(self, info: RelationInfo) -> bool:
        """Whether workers remember rows of such a relation together."""
        return self.hot_bytes > 0 and whole_bytes_of(info) > self.seat_bytes * SMALL_SHARE


def rows_per_step(batch_rows: int) -> int:
    """Rows that are worked on at once, for Arrow batches of so many; 0 or less where Spark sets no limit."""
    return batch_rows if batch_rows > 0 else BATCH_ROWS


def memory_parts(
    executor_bytes: int, workers: int, batch_rows: int, info: RelationInfo, *, algorithm: str, least_bytes: int
) -> MemoryParts:
    """Divide what an executor has for a lookup among its workers, none of which may have less than the least."""
    own_bytes = int(executor_bytes / workers)
    seatless_bytes = max(int(own_bytes * SEATLESS_SHARE), least_bytes)
    alone = MemoryParts(own_bytes - seatless_bytes, seatless_bytes, 0)
    if algorithm != HOT_ALGORITHM:
        return alone

    most_bytes = int(own_bytes * (1 - HOT_SHARE_MIN))
    seat_bytes = min(bytes_wanted_for_steps(info, rows_per_step(batch_rows)), int(most_bytes / (1 + SEATLESS_SHARE)))
    seatless_bytes = max(int(seat_bytes * SEATLESS_SHARE), least_bytes)
    hot_bytes = executor_bytes - workers * (seat_bytes + seatless_bytes)
    if seat_bytes < least_bytes or seat_bytes + seatless_bytes > most_bytes or hot_bytes < HOT_BYTES_MIN:
        return alone
    return MemoryParts(seat_bytes, seatless_bytes, hot_bytes)


def capacity(
    relation: Relation, parts: MemoryParts, stream_row_bytes: int, batch_rows: int, rows_per_key: float = 1.0
) -> Capacity:
    """How many keys `adaptive` remembers where a row of the stream is looked up."""
    step_rows = rows_per_step(batch_rows)
    shared = hot_layout(relation, parts.hot_bytes) if parts.shares(relation.info) else None
    if shared is None:
        room = Room(parts.seat_bytes, stream_row_bytes, step_rows)
        return of_one_process(relation, room, rows_per_key).at(parts.seat_bytes)
    layout, counters = shared
    # A segment that is full goes without a part of its keys, so half of that part is missing on average.
    keys = layout.segments * layout.entries_max * (1 - EVICTED_SHARE_MAX / 2)
    return Capacity(min(keys, relation.info.row_count / rows_per_key), counters, step_rows)


def remembered_keys(
    algorithm: str, relation: Relation, parts: MemoryParts, stream_row_bytes: int, batch_rows: int
) -> float:
    """How many keys an algorithm remembers where a row of the stream is looked up, if each has one row."""
    if algorithm == HOT_ALGORITHM:
        return capacity(relation, parts, stream_row_bytes, batch_rows).keys
    room = Room(parts.seat_bytes, stream_row_bytes, rows_per_step(batch_rows))
    settings = settings_for(algorithm, relation, room)
    # Pages count as if popular keys stood on them: who pins the first ones assumes it, for others it is the most.
    return sizes_of(SIZED_AS.get(algorithm, algorithm), relation, room, settings).h_r_rows
