"""`semistream bench cache`: the share of lookups that memory answers, beside other policies in the same bytes.

Ours is the real operator, `adaptive`, over a relation in memory. Its budget has parts that any operator needs (batches
in hand, output); what it holds for remembering, that is rows with their index, counts of frequencies and absent keys,
is what the others get, too. An entry of theirs takes what an entry takes with us, and what they hold beside the rows is
taken off: the sketch of W-TinyLFU, the ghosts of S3-FIFO. LRU and the best fixed choice hold nothing else.

The best fixed choice knows the law of the stream and holds the keys that are expected most often in the part that is
measured. No policy beats it for long on a steady stream; where the hot set moves it is no bound, but it has seen where
the hot set will go.

It also need not learn. With Zipf's exponent 0.5 a key at the border of what fits is asked for once in 100 000 accesses,
so whoever chooses by exact counts of all keys, kept for nothing, needs millions to come within 1 %. What a policy comes
to on a steady stream is therefore measured behind a warm-up, the same for all. The default is where ours hardly changes
any more; `docs/internals/adaptive.md` has the course it takes. A stream that moves never settles, and its warm-up is no
longer than what is measured.

One thing is against us: a key that is missed twice in one step is two misses for an operator that works on a hundred
rows at a time, and one for a policy that is asked row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.bench.policies import Policy
from semistream.bench.policies.lru import Lru
from semistream.bench.policies.s3_fifo import S3Fifo
from semistream.bench.policies.w_tiny_lfu import CountSketch, WTinyLfu
from semistream.budget import MemoryBudget
from semistream.clock import RealClock
from semistream.joins.adaptive import AdaptiveJoin, remembering_bytes
from semistream.joins.base import JoinResources, StreamRows
from semistream.lab.workloads.key_stream import Drift, KeyStream, key_order
from semistream.lab.workloads.zipf import Zipf
from semistream.relations.memory import MemoryRelation

KEYS = 200_000
TEXT_BYTES = 92
MEMORY_SHARE = 0.1
"""What is held for remembering, as a share of R: small enough that there is something to choose."""

ROWS_PER_STEP = 100
"""As many for the memory here as Spark's Arrow batches of ten thousand are for a usual one."""

MOVES = 4
"""How often the hot set moves in the measured part of a stream that is about moving, and as often before."""

CHUNK_KEYS = 1 << 20
"""Keys that are Python's integers at a time: each takes four times what it takes in an array."""

WARM_UP, MEASURED = 16_000_000, 4_000_000
"""Accesses before anything is measured, where the stream is steady, and those that count."""

SLIDE_KEYS = int(KEYS * MEMORY_SHARE / 2)
OURS, BEST = "semistream", "best-fixed"
EXPONENTS = (0.5, 0.8, 1.0, 1.2)
GHOST_BYTES = 8
"""A name in S3-FIFO's ghost queue: a key and nothing else, less than anyone could build."""

Integers = npt.NDArray[np.int64]
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class CacheWorkload:
    """A stream of keys."""

    name: str
    exponent: float
    moves: bool = False


WORKLOADS = (
    *(CacheWorkload(f"Zipf {exponent:g}", exponent) for exponent in EXPONENTS),
    CacheWorkload("Zipf 1, moving", 1.0, moves=True),
)


@dataclass(frozen=True, slots=True)
class Length:
    """How long a stream is."""

    warm_up: int = WARM_UP
    """Accesses before those that count."""
    measured: int = MEASURED
    """Accesses that count."""

    @property
    def accesses(self) -> int:
        """All of them."""
        return self.warm_up + self.measured

    def of(self, workload: CacheWorkload) -> Length:
        """The length for one workload: what moves need not settle, for it never does."""
        return Length(min(self.warm_up, self.measured), self.measured) if workload.moves else self

    @property
    def moved_every(self) -> int:
        """Accesses between two moves, if the stream moves."""
        return max(1, self.measured // MOVES)


@dataclass(frozen=True, slots=True)
class HitRates:
    """Shares of the measured part of a stream that each policy answered from memory."""

    workload: str
    memory_bytes: int
    """What each could hold for remembering."""
    length: Length
    hit_rates: dict[str, float]

    @property
    def below_best(self) -> float:
        """The part of the best fixed choice's hits that ours lacks; negative where ours has more."""
        return 1 - self.hit_rates[OURS] / self.hit_rates[BEST]

    def as_json(self) -> dict[str, object]:
        """The result as plain JSON values."""
        return {
            "workload": self.workload,
            "memory_bytes": self.memory_bytes,
            "warm_up": self.length.warm_up,
            "accesses": self.length.measured,
            **{name: round(share, 4) for name, share in self.hit_rates.items()},
            "below-best": round(self.below_best, 4),
        }


def compare(length: Length, seed: int, tell: Tell) -> Iterator[HitRates]:
    """Yield the hit rates for each workload."""
    relation = _relation()
    for workload in WORKLOADS:
        yield _compare_one(relation, workload, length.of(workload), seed, tell)


def _relation() -> MemoryRelation:
    texts = pa.array(["y" * TEXT_BYTES]).take(pa.array(np.zeros(KEYS, np.int64)))
    return MemoryRelation.from_table(pa.table({"k": np.arange(KEYS), "text": texts}), ["k"], page_rows=KEYS)


def _compare_one(relation: MemoryRelation, workload: CacheWorkload, length: Length, seed: int, tell: Tell) -> HitRates:
    stream = KeyStream(Zipf(KEYS, workload.exponent), "shuffled", seed, drift_of(workload, length))
    keys = stream.keys(np.random.default_rng(seed), 0, length.accesses)

    ours = Ours(relation)
    tell(OURS, 0, length.accesses)
    hits = {OURS: ours.hit_rate(keys, length.warm_up)}
    for name, policy in _others(ours).items():
        tell(name, 0, length.accesses)
        hits[name] = hit_rate(policy, keys, length.warm_up)
    best = fixed_choice(workload, seed, length, int(ours.memory_bytes / ours.entry_bytes))
    hits[BEST] = float(np.mean(best[keys[length.warm_up :]]))
    return HitRates(workload.name, ours.memory_bytes, length, hits)


def drift_of(workload: CacheWorkload, length: Length) -> Drift | None:
    """How popularity moves: half of the keys that fit are new after a move."""
    return Drift(length.moved_every, slide_keys=SLIDE_KEYS) if workload.moves else None


class Ours:
    """The operator itself, with a budget whose part for remembering is `MEMORY_SHARE` of R."""

    def __init__(self, relation: MemoryRelation) -> None:
        wanted_bytes = int(relation.info.row_count * relation.info.row_bytes_mean * MEMORY_SHARE)
        self._resources = _resources_with(relation, wanted_bytes)
        self.memory_bytes = remembering_bytes(relation, self._resources)
        self._join = AdaptiveJoin(relation, self._resources)

    @property
    def entry_bytes(self) -> float:
        """What a remembered key takes, with its row and its part of the index."""
        remembered = self._join.knowledge.remembered
        return remembered.used_bytes / max(1, len(remembered))

    def hit_rate(self, keys: Integers, measured_from: int) -> float:
        """Put all keys through the operator; return the share of hits among those behind the warm-up."""
        hits_before = rows_before = 0
        for begin in range(0, len(keys), ROWS_PER_STEP):
            if begin <= measured_from:
                hits_before, rows_before = self._join.stats.hits, self._join.stats.rows
            self._put_through(keys[begin : begin + ROWS_PER_STEP], begin)
        return (self._join.stats.hits - hits_before) / (self._join.stats.rows - rows_before)

    def _put_through(self, codes: Integers, first: int) -> None:
        rows = StreamRows(np.arange(first, first + len(codes)), codes)
        while len(rows):
            admitted = self._join.admit(rows)
            rows = StreamRows(rows.numbers[admitted:], rows.codes[admitted:])
            while self._join.waiting_rows:
                self._join.step()


def _resources_with(relation: MemoryRelation, wanted_bytes: int) -> JoinResources:
    """The budget that leaves about this much for remembering; found by halving, for its division has many rules."""
    low, high = wanted_bytes, 64 * wanted_bytes
    while high - low > wanted_bytes // 100:
        middle = (low + high) // 2
        if remembering_bytes(relation, _resources(middle)) < wanted_bytes:
            low = middle
        else:
            high = middle
    return _resources(high)


def _resources(budget_bytes: int) -> JoinResources:
    return JoinResources(MemoryBudget(budget_bytes), RealClock(), ROWS_PER_STEP, rows_may_wait=False)


def _others(ours: Ours) -> dict[str, Policy]:
    entry_bytes = ours.entry_bytes
    return {
        "lru": Lru(int(ours.memory_bytes / entry_bytes)),
        "w-tinylfu": WTinyLfu(int(ours.memory_bytes / (entry_bytes + CountSketch.bytes_for(1)))),
        "s3-fifo": S3Fifo(int(ours.memory_bytes / (entry_bytes + GHOST_BYTES))),
    }


def hit_rate(policy: Policy, keys: Integers, measured_from: int) -> float:
    """Ask a policy for all keys; return the share of hits among those behind the warm-up."""
    _hits(policy, keys[:measured_from])
    return _hits(policy, keys[measured_from:]) / max(1, len(keys) - measured_from)


def _hits(policy: Policy, keys: Integers) -> int:
    return sum(sum(map(policy.ask, keys[at : at + CHUNK_KEYS].tolist())) for at in range(0, len(keys), CHUNK_KEYS))


def fixed_choice(workload: CacheWorkload, seed: int, length: Length, keys_max: int) -> npt.NDArray[np.bool_]:
    """Whether each key is among those expected most often in the measured part of the stream."""
    popularity = np.arange(1, KEYS + 1) ** -workload.exponent
    expected = popularity
    if workload.moves:
        periods = range(length.warm_up // length.moved_every, -(-length.accesses // length.moved_every))
        expected = sum((np.roll(popularity, period * SLIDE_KEYS) for period in periods), np.zeros(KEYS))
    hottest_places = np.argsort(-expected, kind="stable")[:keys_max]
    chosen = np.zeros(KEYS, np.bool_)
    chosen[key_order("shuffled", KEYS, seed)(hottest_places)] = True
    return chosen
