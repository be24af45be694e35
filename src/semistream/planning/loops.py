"""c_loop on the real clock: what an iteration takes of the processor, beside what its cost model says.

The unit costs of `measuring` are those of whole pages. An iteration also has a price of its own: some hundred calls
from Python into compiled code, however few rows it serves. So an algorithm has two constants more, found in the same
run from iterations of some sizes and tried on others:

    c_loop = fixed + factor * (sum of the model's counts at their unit costs + lettings * price of one)

Letting keys of a page into H_R is again some hundred calls, for a handful of keys. The papers' equations do not count
it, and it is not fixed: in a cache at rest keys come in with one read in six or with nearly every one, by sizes and
skew. So models count the reads with which keys come in (`Counts.lettings`), and what one takes is measured in the same
run (`measuring.letting_s`).

Counts are the model's, from sizes and Zipf's law alone; nothing of the run that is predicted goes into the prediction.
Reading R is the I/O term of c_loop and is left out: time inside the relation does not count.

Time is the processor's (`CpuClock`), so that a busy machine disturbs less. What is left of the disturbance (a neighbour
in the caches, a slower clock) makes iterations longer by up to a half, for seconds or for minutes. So all sizes go on
side by side, each for a small part of a stretch before it is the next one's turn: what happens meanwhile hits all of
them. A size is compared with the others of its stretch, the median of `STRETCHES` such comparisons counts, and the
fastest stretch says how long iterations are in all.

Models speak of the steady state, so nothing is timed before it. A threshold moves by at most one in a round of R, and
a cache that was just filled lets in many more than one at rest: hence `WARM_UP_ROUNDS`. SSBJ's H_R may take fifty
rounds to grow into what H_S gives up, and rebuilds its tables as long: so a join warms up again until what it remembers
has come to rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from semistream.clock import Clock, VirtualClock
from semistream.cost.symbols import UnitCosts
from semistream.cost.zipf import Floats
from semistream.joins.base import SemiStreamJoin, StepOutput, StreamRows
from semistream.joins.registry import ALGORITHMS
from semistream.keys import KeyCodec
from semistream.planning.capacities import Room, predict_for, workload_of
from semistream.planning.measuring import letting_s
from semistream.relations.base import Codes, Relation
from semistream.relations.memory import MemoryRelation
from semistream.relations.wrapping import WrappedRelation
from semistream.structures.gather import Part, gather

LOOPING = ("meshjoin", "r-meshjoin", "hybridjoin", "x-hybridjoin", "cachejoin", "sscj", "ssbj", "moij")
"""Algorithms with a loop in the papers' sense, and a model of it."""

TEXT_BYTES = 100
OFFERED_ROWS = 8192
WARM_UP_ROUNDS, WARM_UP_TURNS = 8, 3
"""How long a join warms up before it is looked at: rounds of R by the model, or rows that fit into the memory,
whichever is more."""

WARM_UPS_MAX, GROWTH_AT_REST = 12, 0.02
"""How often it warms up at most, and by which share it remembers more keys than before if it has to do so again."""

STRETCHES, STRETCH_ITERATIONS = 12, 200
"""How often each size is timed, and for how long by the model: some tenths of a second."""

PARTS = 10
"""Of a stretch, each worked on without a break: some tens of milliseconds, in which processor caches are soon warm."""

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
    """The model's counts at their unit costs, and its lettings at their price."""
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
    price_s = letting_s(clock)
    for algorithm in algorithms:
        if on_algorithm is not None:
            on_algorithm(algorithm)
        points = _timed(algorithm, (*fitted, *tried), unit_costs, price_s, clock)
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


def _timed(
    algorithm: str, sizes: Sequence[LoopSize], unit_costs: UnitCosts, letting_s: float, clock: Clock
) -> list[LoopPoint]:
    """All sizes side by side: what the machine does meanwhile shall hit all of them."""
    runs = [_Run(_Setting.of(algorithm, size, unit_costs, letting_s), clock) for size in sizes]
    for run in runs:
        run.warm_up()
    measured_s = _undisturbed(np.array([_stretch(runs) for _ in range(STRETCHES)]))
    said_s = [run.setting.unit_costs_s for run in runs]
    return [LoopPoint(*point, predicted_s=0.0) for point in zip(sizes, measured_s.tolist(), said_s, strict=True)]


def _stretch(runs: Sequence[_Run]) -> Floats:
    """Let all runs go on, in turn; return what an iteration of each took."""
    taken = np.zeros((len(runs), 2))
    for _ in range(PARTS):
        taken += [run.go_on(run.setting.part_rows) for run in runs]
    seconds: Floats = taken[:, 0] / np.maximum(1.0, taken[:, 1])
    return seconds


def _undisturbed(stretches_s: Floats) -> Floats:
    """What an iteration of each size takes, from stretches (rows) that were disturbed more or less."""
    paces = np.exp(np.log(stretches_s).mean(axis=1))
    seconds: Floats = np.median(stretches_s / paces[:, np.newaxis], axis=0) * paces.min()
    return seconds


@dataclass(frozen=True, slots=True)
class _Setting:
    """All that a run needs."""

    algorithm: str
    size: LoopSize
    relation: MemoryRelation
    room: Room
    unit_costs_s: float
    warm_up_rows: int
    part_rows: int

    @classmethod
    def of(cls, algorithm: str, size: LoopSize, unit_costs: UnitCosts, letting_s: float) -> _Setting:
        relation, room = _relation(size), Room(size.memory_bytes)
        workload = workload_of(relation, room, zipf_exponent=size.zipf_exponent, layout="frequency")
        told = predict_for(algorithm, relation, room, workload, unit_costs)
        loop_rows = told.counts.stream_reads
        turns_rows = WARM_UP_TURNS * size.memory_bytes // BYTES_PER_WAITING_ROW
        return cls(
            algorithm,
            size,
            relation,
            room,
            told.cpu_s + told.counts.lettings * letting_s,
            max(turns_rows, int(WARM_UP_ROUNDS * relation.info.page_count * loop_rows)),
            max(1, int(STRETCH_ITERATIONS * loop_rows / PARTS)),
        )


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


class _Run:
    """A join and its stream, which has no end."""

    def __init__(self, setting: _Setting, clock: Clock) -> None:
        self.setting = setting
        self._clock = clock
        self._relation = _UntimedReads(setting.relation, clock)
        build, resources = ALGORITHMS[setting.algorithm].build, setting.room.resources(VirtualClock())
        self._join: SemiStreamJoin = build(self._relation, resources)
        self._drawing = _Drawing(setting.size)
        self._codec = KeyCodec([pa.int64()])
        self._admitted = 0

    def warm_up(self) -> None:
        """Go on until what is remembered has come to rest."""
        for _ in range(WARM_UPS_MAX):
            before = self._keys_remembered
            self.go_on(self.setting.warm_up_rows)
            if self._keys_remembered <= (1.0 + GROWTH_AT_REST) * before:
                return

    @property
    def _keys_remembered(self) -> int:
        """Keys in H_R; 0 for a join that has none."""
        held = getattr(self._join, "held", None)
        return 0 if held is None else len(held)

    def go_on(self, rows: int) -> tuple[float, int]:
        """Join so many rows more: (processor seconds, reads and the drawing of keys left out; iterations)."""
        keys = pa.array(self._drawing.keys(rows + OFFERED_ROWS))
        first, iterations, begun_s = self._admitted, self._join.stats.iterations, self._without_reads_s()
        while self._admitted < first + rows:
            if self._join.wants_rows:
                self._admit(keys.slice(self._admitted - first, OFFERED_ROWS))
            else:
                _put_out(self._join.step(), self._relation.schema)
        return self._without_reads_s() - begun_s, self._join.stats.iterations - iterations

    def _admit(self, keys: pa.Array) -> None:
        codes, first = self._codec.encode([keys]).codes, self._admitted
        self._admitted += self._join.admit(StreamRows(np.arange(first, first + len(codes), dtype=np.int64), codes))

    def _without_reads_s(self) -> float:
        return self._clock.now_s() - self._relation.reading_s


def _put_out(step: StepOutput, schema: pa.Schema) -> None:
    """What c_O is the price of."""
    ends = np.cumsum([0, *(len(joined) for joined in step.joined)])
    parts = [
        Part(joined.relation, joined.relation_rows, np.arange(begin, begin + len(joined)))
        for joined, begin in zip(step.joined, ends.tolist(), strict=False)
    ]
    gather(parts, schema, int(ends[-1]))


class _Drawing:
    """Keys by Zipf's law, the most popular first in R."""

    def __init__(self, size: LoopSize) -> None:
        self._rng = np.random.default_rng(SEED)
        self._shares = np.cumsum((np.arange(size.r_rows) + 1.0) ** -size.zipf_exponent)

    def keys(self, rows: int) -> Codes:
        uniform = self._rng.random(rows) * self._shares[-1]
        keys: Codes = np.minimum(np.searchsorted(self._shares, uniform), len(self._shares) - 1).astype(np.int64)
        return keys
