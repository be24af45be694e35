"""`semistream bench cache`: the share of lookups that memory answers, beside other policies in the same bytes.

Ours is the real operator, `adaptive`, over a relation in memory. Its budget has parts that any operator needs (batches
in hand, output); what it holds for remembering, that is rows with their index, counts of frequencies and absent keys,
is what the others get, too. An entry of theirs takes what an entry takes with us, and what they hold beside the rows is
taken off: the sketch of W-TinyLFU, the ghosts of S3-FIFO. LRU and the best fixed choice hold nothing else.

The best fixed choice knows the law of the stream and holds the keys that are expected most often in the part that is
measured. No policy beats it for long on a steady stream; where the hot set moves it is no bound, but it has seen where
the hot set will go.

It also need not learn. With Zipf's exponent 0.5 a key at the border of what fits is asked for once in 100 000 accesses:
in the second half of eight million, whoever chooses by exact counts of all keys, every half a million anew, and keeps
those counts for nothing, has 99 % of its hits. Ours, 4.6 % off by then, is still learning; how near a policy comes in
the end is seen with 32 million.

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

MOVES = 8
"""How often the hot set moves during a run that is about moving."""

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
class HitRates:
    """Shares of the second half of a stream that each policy answered from memory."""

    workload: str
    memory_bytes: int
    """What each could hold for remembering."""
    hit_rates: dict[str, float]

    def as_json(self) -> dict[str, object]:
        """The result as plain JSON values."""
        return {"workload": self.workload, "memory_bytes": self.memory_bytes, **self.hit_rates}


def compare(accesses: int, seed: int, tell: Tell) -> Iterator[HitRates]:
    """Yield the hit rates for each workload."""
    relation = _relation()
    for workload in WORKLOADS:
        yield _compare_one(relation, workload, accesses, seed, tell)


def _relation() -> MemoryRelation:
    texts = pa.array(["y" * TEXT_BYTES]).take(pa.array(np.zeros(KEYS, np.int64)))
    return MemoryRelation.from_table(pa.table({"k": np.arange(KEYS), "text": texts}), ["k"], page_rows=KEYS)


def _compare_one(relation: MemoryRelation, workload: CacheWorkload, accesses: int, seed: int, tell: Tell) -> HitRates:
    every_rows = max(1, accesses // MOVES)
    # Half of the keys that fit are new after a move.
    drift = Drift(every_rows, slide_keys=int(KEYS * MEMORY_SHARE / 2)) if workload.moves else None
    stream = KeyStream(Zipf(KEYS, workload.exponent), "shuffled", seed, drift)
    keys = stream.keys(np.random.default_rng(seed), 0, accesses)
    measured_from = accesses // 2

    ours = Ours(relation)
    tell("semistream", 0, accesses)
    hits = {"semistream": ours.hit_rate(keys, measured_from)}
    for name, policy in _others(ours).items():
        tell(name, 0, accesses)
        hits[name] = hit_rate(policy, keys, measured_from)
    best = fixed_choice(workload, seed, accesses, drift, int(ours.memory_bytes / ours.entry_bytes))
    hits["best-fixed"] = float(np.mean(best[keys[measured_from:]]))
    return HitRates(workload.name, ours.memory_bytes, {name: round(share, 4) for name, share in hits.items()})


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
    for key in keys[:measured_from].tolist():
        policy.ask(key)
    return sum(map(policy.ask, keys[measured_from:].tolist())) / max(1, len(keys) - measured_from)


def fixed_choice(
    workload: CacheWorkload, seed: int, accesses: int, drift: Drift | None, keys_max: int
) -> npt.NDArray[np.bool_]:
    """Whether each key is among those expected most often in the second half of the stream."""
    popularity = np.arange(1, KEYS + 1) ** -workload.exponent
    expected = popularity
    if drift is not None and drift.slide_keys is not None:
        periods = range(accesses // 2 // drift.every_rows, -(-accesses // drift.every_rows))
        expected = sum((np.roll(popularity, period * drift.slide_keys) for period in periods), np.zeros(KEYS))
    hottest_places = np.argsort(-expected, kind="stable")[:keys_max]
    chosen = np.zeros(KEYS, np.bool_)
    chosen[key_order("shuffled", KEYS, seed)(hottest_places)] = True
    return chosen
