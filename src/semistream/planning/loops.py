"""c_loop on the real clock: what an iteration takes of the processor, beside what its cost model says.

The unit costs of `measuring` are those of whole pages. An iteration also has a price of its own: some hundred calls
from Python into compiled code, however few rows it serves; and where rows are remembered they are copied, which the
papers' equations do not count. So an algorithm has two constants more, found in the same run from iterations of some
sizes and tried on others:

    c_loop = fixed + factor * (sum of the model's counts at their unit costs)

Counts are the model's, from sizes and Zipf's law alone; nothing of the run that is predicted goes into the prediction.
Reading R is the I/O term of c_loop and is left out: time inside the relation does not count.

Time is the processor's (`CpuClock`), so that a busy machine disturbs less. What is left of the disturbance (a neighbour
in the caches, a slower clock) only ever makes an iteration longer, so each size is run `RUNS` times, the sizes in turn,
and the fastest run counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from semistream.clock import Clock, VirtualClock
from semistream.cost.symbols import UnitCosts
from semistream.joins.base import SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.registry import ALGORITHMS
from semistream.keys import KeyCodec
from semistream.planning.capacities import Room, predict_for, workload_of
from semistream.relations.base import Codes, Relation
from semistream.relations.memory import MemoryRelation
from semistream.relations.wrapping import WrappedRelation
from semistream.structures.gather import Part, gather

LOOPING = ("meshjoin", "r-meshjoin", "hybridjoin", "x-hybridjoin", "cachejoin", "sscj", "ssbj", "moij")
"""Algorithms with a loop in the papers' sense, and a model of it."""

TEXT_BYTES = 100
OFFERED_ROWS = 8192
TURNS, ITERATIONS_MIN = 5, 400
"""Length of the stream, in rows that fit into the memory and in iterations by the model, whichever is more; the first
half warms up."""

RUNS = 8
BYTES_PER_WAITING_ROW = 70
SEED = 7


@dataclass(frozen=True, slots=True)
class LoopSize:
    """A setting in which iterations are timed."""

    r_rows: int
    page_rows: int
    memory_bytes: int
    zipf_exponent: float = 1.0


FITTED = (
    LoopSize(40_000, 256, 1_000_000),
    LoopSize(100_000, 1024, 4_000_000),
    LoopSize(200_000, 4096, 8_000_000),
    LoopSize(100_000, 512, 2_500_000, 0.5),
)
TRIED = (
    LoopSize(100_000, 1024, 2_500_000),
    LoopSize(200_000, 2048, 6_000_000),
    LoopSize(100_000, 1024, 4_000_000, 0.5),
    LoopSize(200_000, 1024, 2_400_000),
)
"""Sizes from which the two constants are found, and others on which they are tried: M is a tenth to a third of R. Where
all of R nearly fits, a cache that learns does little else, and no one runs such a join."""


@dataclass(frozen=True, slots=True)
class LoopPoint:
    """One size: what was measured and what is said, in seconds of an iteration."""

    size: LoopSize
    measured_s: float
    unit_costs_s: float
    """The model's counts at their unit costs."""
    predicted_s: float

    @property
    def deviation(self) -> float:
        """The prediction beside the measurement, as a share of it."""
        return self.predicted_s / self.measured_s - 1.0


@dataclass(frozen=True, slots=True)
class LoopCosts:
    """What an algorithm's loop costs on this machine."""

    algorithm: str
    fixed_s: float
    factor: float
    tried: tuple[LoopPoint, ...]


def measure_loops(
    unit_costs: UnitCosts,
    clock: Clock,
    algorithms: Sequence[str] = LOOPING,
    fitted: Sequence[LoopSize] = FITTED,
    tried: Sequence[LoopSize] = TRIED,
    on_algorithm: Callable[[str], None] | None = None,
) -> Iterator[LoopCosts]:
    """Find the constants of each algorithm and try them; `on_algorithm` is told of each before it is measured."""
    for algorithm in algorithms:
        if on_algorithm is not None:
            on_algorithm(algorithm)
        points = _timed(algorithm, (*fitted, *tried), unit_costs, clock)
        fixed_s, factor = _fit(points[: len(fitted)])
        said = [replace(p, predicted_s=fixed_s + factor * p.unit_costs_s) for p in points[len(fitted) :]]
        yield LoopCosts(algorithm, fixed_s, factor, tuple(said))


def _fit(points: Sequence[LoopPoint]) -> tuple[float, float]:
    """The two constants, neither negative, with the least relative errors."""
    measured = np.array([point.measured_s for point in points])
    counted = np.array([point.unit_costs_s for point in points])
    weights = np.stack([1.0 / measured, counted / measured], axis=1)
    (fixed_s, factor), *_ = np.linalg.lstsq(weights, np.ones(len(points)), rcond=None)
    if factor < 0:
        return float(1.0 / np.mean(1.0 / measured)), 0.0
    if fixed_s < 0:
        return 0.0, float((counted / measured).sum() / ((counted / measured) ** 2).sum())
    return float(fixed_s), float(factor)


def _timed(algorithm: str, sizes: Sequence[LoopSize], unit_costs: UnitCosts, clock: Clock) -> list[LoopPoint]:
    """All sizes in turn, again and again: what the machine does meanwhile shall hit all of them."""
    settings = [_Setting.of(algorithm, size, unit_costs) for size in sizes]
    fastest_s = np.full(len(sizes), np.inf)
    for seed in range(SEED, SEED + RUNS):
        taken_s = [_loop_s(algorithm, setting, clock, seed) for setting in settings]
        fastest_s = np.minimum(fastest_s, taken_s)
    said_s = [setting.unit_costs_s for setting in settings]
    return [LoopPoint(*point, predicted_s=0.0) for point in zip(sizes, fastest_s.tolist(), said_s, strict=True)]


@dataclass(frozen=True, slots=True)
class _Setting:
    """All that a run needs."""

    size: LoopSize
    relation: MemoryRelation
    room: Room
    unit_costs_s: float
    stream_rows: int

    @classmethod
    def of(cls, algorithm: str, size: LoopSize, unit_costs: UnitCosts) -> _Setting:
        relation, room = _relation(size), Room(size.memory_bytes)
        workload = workload_of(relation, room, zipf_exponent=size.zipf_exponent, layout="frequency")
        told = predict_for(algorithm, relation, room, workload, unit_costs)
        turns_rows = TURNS * size.memory_bytes // BYTES_PER_WAITING_ROW
        return cls(size, relation, room, told.cpu_s, max(turns_rows, int(ITERATIONS_MIN * told.counts.stream_reads)))


def _relation(size: LoopSize) -> MemoryRelation:
    numbers = np.arange(size.r_rows)
    table = pa.table({"key": numbers, "number": numbers, "text": np.full(size.r_rows, "x" * TEXT_BYTES)})
    return MemoryRelation.from_table(table, ["key"], page_rows=size.page_rows)


class _UntimedReads(WrappedRelation):
    """A relation that knows how long it was read."""

    def __init__(self, inner: Relation, clock: Clock) -> None:
        super().__init__(inner)
        self._clock = clock
        self.reading_s = 0.0

    def _read_page(self, code: int) -> pa.RecordBatch:
        return self._timed(lambda: super(_UntimedReads, self)._read_page(code))

    def _read_segment(self, number: int) -> pa.RecordBatch:
        return self._timed(lambda: super(_UntimedReads, self)._read_segment(number))

    def _timed(self, read: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        begun_s = self._clock.now_s()
        batch = read()
        self.reading_s += self._clock.now_s() - begun_s
        return batch


def _loop_s(algorithm: str, setting: _Setting, clock: Clock, seed: int) -> float:
    """Processor seconds of one iteration in the steady state, reads left out."""
    relation, rows = setting.relation, setting.stream_rows
    timed = _UntimedReads(relation, clock)
    join: SemiStreamJoin = ALGORITHMS[algorithm].build(timed, setting.room.resources(VirtualClock()))
    keys = pa.array(_drawn(setting.size, rows, seed))
    codec = KeyCodec([pa.int64()])
    begun: tuple[float, int] | None = None
    admitted = 0
    while admitted < rows:
        if begun is None and admitted >= rows // 2:
            begun = clock.now_s() - timed.reading_s, join.stats.iterations
        if join.wants_rows:
            codes = codec.encode([keys.slice(admitted, OFFERED_ROWS)]).codes
            admitted += join.admit(StreamRows(np.arange(admitted, admitted + len(codes), dtype=np.int64), codes))
        else:
            _put_out(join.step(), relation.schema)
    assert begun is not None, "half of the stream was never reached"
    return (clock.now_s() - timed.reading_s - begun[0]) / max(1, join.stats.iterations - begun[1])


def _put_out(step: StepOutput, schema: pa.Schema) -> None:
    """What c_O is the price of."""
    ends = np.cumsum([0, *(len(joined) for joined in step.joined)])
    parts = [
        Part(joined.relation, joined.relation_rows, np.arange(begin, begin + len(joined)))
        for joined, begin in zip(step.joined, ends.tolist(), strict=False)
    ]
    gather(parts, schema, int(ends[-1]))


def _drawn(size: LoopSize, rows: int, seed: int) -> Codes:
    """Keys by Zipf's law, the most popular first in R."""
    shares = np.cumsum((np.arange(size.r_rows) + 1.0) ** -size.zipf_exponent)
    uniform = np.random.default_rng(seed).random(rows) * shares[-1]
    keys: Codes = np.minimum(np.searchsorted(shares, uniform), size.r_rows - 1).astype(np.int64)
    return keys
