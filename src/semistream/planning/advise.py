"""How much memory: for a stream, the table *memory, hit rate, service rate*, and the least memory for a rate.

The stream is given as the codes of its keys: all at once, in batches as they come, or as a sample that was taken while
it passed by (`KeySample`; a long stream is sampled in any case). Two curves are drawn over the same sizes of memory:

- *best*: the hit share of the best fixed choice of keys, known afterwards. No policy that keeps what it has can do
  better, and it needs no simulation: the most frequent keys, counted.
- *ours*: what `adaptive` would remember. Its own policy (`RememberedRows`, with its frequency sketch) is run over the
  stream, with rows that consist of their code alone and as many of them as would fit if they were whole.

Only the second half of the stream counts; the first one fills the memory. From what is missed follows the service
rate: distinct missed keys of a step are read key by key or page by page, whichever is cheaper, with the pages on which
they really stand where the relation can tell, and all operations are priced as in the models. Scans and sweeps are left
out: they pay where seeks are dear, and advice should rather promise too little.

Of a sampled stream, memory and steps are made smaller by the share of keys that was kept. A popular key that happens to
be kept or lost would distort the hits, so it is misses that are counted, against the rows that were to be expected in
the sample.

Assumed: every key of the stream is in R, all keys have the mean number of rows, and rows are of the mean length.

What a memory has room for is the caller's to say (`Capacities`): one process divides it for itself
(`of_one_process`), the workers of a Spark executor in another way (`semistream.spark.advise`).

Memory: that of the sample, and one simulated memory at a time, of at most as many keys as the sample has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.budget import format_bytes
from semistream.cost.symbols import Counts, IoProfile, UnitCosts, io_seconds, seconds
from semistream.errors import BudgetExceeded, InvalidOption
from semistream.joins.adaptive import least_memory_bytes
from semistream.joins.base import Numbers
from semistream.joins.knowledge import NEVER, frequency_counters
from semistream.joins.remembered import RememberedRows
from semistream.planning.capacities import Room, entry_bytes, remembering_bytes, sizes_of
from semistream.planning.key_sample import KeySample
from semistream.relations.base import CODE_COLUMN, PageByKey, Relation
from semistream.structures.frequency import FrequencySketch
from semistream.structures.row_arena import fixed_bytes_per_row

BISECTIONS = 5
"""Of the interval between two sizes in which a wanted rate is reached: together a thirtieth of it. Below the smallest
size of the table the sizes are its halves."""

STEPS_SEARCHED = 2048
"""Steps of each half of the stream that the search for the least memory plays at most. A small memory has small steps,
and a long stream would have hundred thousands of them; what fits such a memory is known after far fewer rows."""

_SHADOW = pa.schema([pa.field(CODE_COLUMN, pa.int64(), nullable=False)])
"""A row that is only simulated."""

OnPoint = Callable[[int, int], None]
"""Told how many sizes of memory were played, and of how many."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a memory has room for."""

    keys: float
    """With all their rows."""
    counters: int
    """In each row of the sketch that counts other keys."""
    rows_per_step: int


@dataclass(frozen=True, slots=True)
class Capacities:
    """What memories of all sizes have room for."""

    least_bytes: int
    """With less the join cannot work."""
    at: Callable[[int], Capacity]
    """What so many bytes have room for."""


def of_one_process(relation: Relation, room: Room, rows_per_key: float = 1.0) -> Capacities:
    """What one process makes of its memory; of `room`, all but the memory counts."""

    def at(memory_bytes: int) -> Capacity:
        own = replace(room, memory_bytes=memory_bytes)
        sizes = sizes_of("adaptive", relation, own, rows_per_key=rows_per_key)
        counters = frequency_counters(relation.info, remembering_bytes(relation, own))
        return Capacity(sizes.h_r_rows / rows_per_key, counters, sizes.rows_per_step)

    return Capacities(least_memory_bytes(relation.info.row_bytes_max), at)


@dataclass(frozen=True, slots=True)
class Point:
    """One size of memory and what it gives."""

    memory_bytes: int
    remembered_keys: float
    """Keys with all their rows for which there is room."""
    hit_share: float
    """Of the stream, by our policy."""
    best_hit_share: float
    """By the best fixed choice of as many keys."""
    reads_per_row: float
    service_rows_per_s: float


@dataclass(frozen=True)
class Advice:
    """The table for a stream."""

    stream_rows: int
    distinct_keys: int
    sampled_share: float
    """Of the keys; 1 where all were followed."""
    points: list[Point]
    """Ascending by memory."""
    wanted_rows_per_s: float | None = None
    least: Point | None = None
    """The least memory with the wanted rate, down to the least that the join can work with; None where nothing is
    wanted or no size of the table is enough."""

    def as_json(self) -> dict[str, Any]:
        """For one line of JSON."""
        return asdict(self)

    def plot(self, path: str | Path) -> None:
        """Draw the curves into a file, whose name ends with png, svg or pdf."""
        from semistream.planning.plots import write_plot

        write_plot(self, Path(path))

    def __str__(self) -> str:
        return self.as_text()

    def as_text(self) -> str:
        """The table, and the answer to the question for a rate."""
        lines = [f"{'memory':>10} {'keys held':>12} {'hits':>7} {'best':>7} {'reads/row':>10} {'rows/s':>14}"]
        lines += [
            f"{format_bytes(point.memory_bytes):>10} {point.remembered_keys:>12,.0f} {point.hit_share:>7.1%}"
            f" {point.best_hit_share:>7.1%} {point.reads_per_row:>10.4f} {point.service_rows_per_s:>14,.0f}"
            for point in self.points
        ]
        if self.wanted_rows_per_s is not None:
            wanted = f"{self.wanted_rows_per_s:,.0f} rows/s"
            lines.append(
                f"{wanted}: {format_bytes(self.least.memory_bytes)} are enough"
                if self.least is not None
                else f"{wanted}: more than {format_bytes(self.points[-1].memory_bytes)}, or a faster device"
            )
        return "\n".join(lines)


def advise(
    stream: Numbers | Iterable[Numbers] | KeySample,
    relation: Relation,
    memory_bytes: Sequence[int],
    capacities: Capacities,
    unit_costs: UnitCosts,
    *,
    rows_per_key: float = 1.0,
    wanted_rows_per_s: float | None = None,
    on_point: OnPoint | None = None,
) -> Advice:
    """Make the table for a stream of key codes.

    Batches are read once and not held, so a live stream can be given as a generator that ends when enough was seen.
    """
    sample = _sampled(stream)
    if sample.stream_rows == 0 or len(memory_bytes) == 0:
        raise InvalidOption(
            "advice needs a stream and sizes of memory",
            given=f"{sample.stream_rows} rows, {len(memory_bytes)} sizes",
            allowed="one or more of each",
        )
    if min(memory_bytes) < capacities.least_bytes:
        raise BudgetExceeded(
            f"the memory is too small to hold one row of relation {relation.info.name!r}",
            given=f"{min(memory_bytes)} bytes, for rows of up to {relation.info.row_bytes_max} bytes",
            allowed=f"at least {capacities.least_bytes} bytes",
        )
    study = _Study(sample, relation, capacities, unit_costs, 1.0 if relation.info.unique else rows_per_key)
    points = []
    for size in sorted(memory_bytes):
        points.append(study.point(size))
        if on_point is not None:
            on_point(len(points), len(memory_bytes))
    least = None if wanted_rows_per_s is None else _least(study, points, wanted_rows_per_s, capacities.least_bytes)
    return Advice(sample.stream_rows, sample.distinct_keys, sample.share, points, wanted_rows_per_s, least)


def _sampled(stream: Numbers | Iterable[Numbers] | KeySample) -> KeySample:
    if isinstance(stream, KeySample):
        return stream
    sample = KeySample()
    for codes in [stream] if isinstance(stream, np.ndarray) else stream:
        sample.add(codes)
    return sample


def _least(study: _Study, points: list[Point], wanted_rows_per_s: float, least_bytes: int) -> Point | None:
    """The first point with the wanted rate, brought nearer to what is too little by halving what lies between."""
    enough = next((place for place, point in enumerate(points) if point.service_rows_per_s >= wanted_rows_per_s), None)
    if enough is None:
        return None
    if enough:
        found, too_little_bytes = points[enough], points[enough - 1].memory_bytes
    else:
        found, too_little_bytes = _halved(study, points[0], wanted_rows_per_s, least_bytes)
    for _ in range(BISECTIONS):
        if found.memory_bytes - too_little_bytes <= 1:
            break
        point = study.point((too_little_bytes + found.memory_bytes) // 2, STEPS_SEARCHED)
        if point.service_rows_per_s >= wanted_rows_per_s:
            found = point
        else:
            too_little_bytes = point.memory_bytes
    return found


def _halved(study: _Study, found: Point, wanted_rows_per_s: float, least_bytes: int) -> tuple[Point, int]:
    """Halve a memory that is enough until it no longer is; return the last that is, and a size that is too little."""
    while found.memory_bytes > least_bytes:
        point = study.point(max(least_bytes, found.memory_bytes // 2), STEPS_SEARCHED)
        if point.service_rows_per_s < wanted_rows_per_s:
            return found, point.memory_bytes
        found = point
    return found, least_bytes - 1


class _Study:
    """A stream, or a sample of it, that is played against memories of several sizes."""

    def __init__(
        self, sample: KeySample, relation: Relation, capacities: Capacities, unit_costs: UnitCosts, rows_per_key: float
    ) -> None:
        self._relation, self._capacities = relation, capacities
        self._unit_costs, self._rows_per_key = unit_costs, rows_per_key
        self._share = sample.share
        self._before, self._counted = sample.halves()
        self._second_half_rows = sample.sampled_rows - sample.sampled_rows // 2
        self._most_used = np.sort(np.unique(self._counted, return_counts=True)[1])[::-1]

    def point(self, memory_bytes: int, steps_max: float = math.inf) -> Point:
        """Play the stream, or so many steps of each half of it, against a memory of this size."""
        capacity = self._capacities.at(memory_bytes)
        memory = _SimulatedMemory(int(capacity.keys * self._share), max(1, int(capacity.counters * self._share)))
        step_rows = max(1, round(capacity.rows_per_step * self._share))
        for codes in _steps(self._before, step_rows, steps_max):
            memory.missed(codes)
        played_rows = missed_rows = 0
        read = _Reads(self._relation, self._rows_per_key, self._unit_costs.io, self._share)
        for codes in _steps(self._counted, step_rows, steps_max):
            rows_missed, missed_codes = memory.missed(codes)
            played_rows += len(codes)
            missed_rows += rows_missed
            read.add(missed_codes)
        # The rows of the stream for which those that were played stand.
        stream_rows = self._second_half_rows * played_rows / len(self._counted) if played_rows else 1.0
        # Counted from the rows that were to be expected, see above.
        miss_share = min(1.0, missed_rows / (stream_rows * self._share))
        return self._priced(memory_bytes, capacity.keys, miss_share, read.counts.times(1.0 / stream_rows))

    def _priced(self, memory_bytes: int, keys: float, miss_share: float, reads: Counts) -> Point:
        """`reads` are those of one stream row."""
        per_row_s = seconds(reads, self._unit_costs) + seconds(
            Counts(probes=1.0 + miss_share, outputs=self._rows_per_key, stream_reads=1.0), self._unit_costs
        )
        best_missed_rows = len(self._counted) - int(self._most_used[: int(keys * self._share)].sum())
        best = 1.0 - min(1.0, best_missed_rows / (self._second_half_rows * self._share))
        rate = 1.0 / per_row_s if per_row_s > 0 else math.inf
        return Point(memory_bytes, keys, 1.0 - miss_share, best, reads.pages_read, rate)


def _steps(codes: Numbers, step_rows: int, steps_max: float) -> Iterator[Numbers]:
    """Codes in steps; where these are too many, every n-th of them.

    A key that soon comes again may do so in a step that is left out, which promises too little rather than too much.
    """
    every = max(1, math.ceil(len(codes) / step_rows / steps_max))
    for begin in range(0, len(codes), every * step_rows):
        yield codes[begin : begin + step_rows]


class _SimulatedMemory:
    """The policy of `adaptive` over rows that are nothing but their code."""

    def __init__(self, keys: int, counters: int) -> None:
        row_bytes = fixed_bytes_per_row(_SHADOW)
        rows_bytes = math.ceil(keys * (entry_bytes(keys) + row_bytes)) if keys else 0
        self._memory = RememberedRows(_SHADOW, rows_bytes, row_bytes)
        self._frequency = FrequencySketch(counters, period=NEVER)

    def missed(self, codes: Numbers) -> tuple[int, Numbers]:
        """Play a step: how many of its rows were not answered, and which distinct codes had to be read."""
        memory = self._memory
        _, count = memory.probe(codes)
        missed, uses = np.unique(codes[count == 0], return_counts=True)
        self._frequency.add_counts(missed, uses)
        ones = np.ones(len(missed), np.int64)
        rows = pa.RecordBatch.from_arrays([pa.array(missed)], schema=_SHADOW)
        memory.offer(rows, missed, np.arange(len(missed)), ones, self._frequency.estimate(missed))
        if halvings := memory.halvings_due():
            memory.age(halvings)
            self._frequency.halve(halvings)
        return int(uses.sum()), missed


class _Reads:
    """What is read for the misses of many steps, each along its cheapest path."""

    def __init__(self, relation: Relation, rows_per_key: float, io: IoProfile, sampled_share: float) -> None:
        info = relation.info
        self._pages = relation if isinstance(relation, PageByKey) else None
        self._io, self._sampled_share = io, sampled_share
        self._key_bytes = info.row_bytes_mean * rows_per_key
        self._page_count = max(1, info.page_count)
        self._relation_bytes = info.row_bytes_mean * info.row_count
        self._pages_read = self._bytes_read = self._seeks = 0.0

    @property
    def counts(self) -> Counts:
        """Reads of all steps together."""
        return Counts(pages_read=self._pages_read, bytes_read=self._bytes_read, seeks=self._seeks)

    def add(self, codes: Numbers) -> None:
        """Read the rows of these distinct codes."""
        keys = len(codes) / self._sampled_share
        ways = [Counts(pages_read=keys, bytes_read=keys * self._key_bytes, seeks=keys)]
        if len(codes) and self._pages is not None:
            page_bytes = self._relation_bytes / self._page_count
            pages = self._pages_of_all(codes, keys)
            ways.append(Counts(pages_read=pages, bytes_read=pages * page_bytes, seeks=pages))
        cheapest = min(ways, key=lambda way: io_seconds(way, self._io))
        self._pages_read += cheapest.pages_read
        self._bytes_read += cheapest.bytes_read
        self._seeks += cheapest.seeks

    def _pages_of_all(self, codes: Numbers, keys: float) -> float:
        """Distinct pages of a step: counted where all keys are followed, else as for keys that lie anywhere."""
        assert self._pages is not None, "a relation without pages has no page of a key"
        if self._sampled_share == 1.0:
            return float(len(np.unique(self._pages.page_numbers(codes))))
        return -self._page_count * math.expm1(keys * math.log1p(-1.0 / (self._page_count + 1.0)))
