"""MOIJ's two theorems: the placement it settles on is the smallest, and a page is never read in vain."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.joins.base import JoinResources, StreamRows
from semistream.joins.moij import MemoryOptimalIndexJoin
from semistream.lab.workloads.zipf import Zipf
from semistream.relations.base import CODE_COLUMN
from semistream.relations.memory import MemoryRelation

pytestmark = pytest.mark.long


KEYS, MEMORY_BYTES, STREAM_ROW_BYTES = 20_000, 2_000_000, 20
COLUMNS = 13
ROW_BYTES = 8 * (COLUMNS + 1)
"""About as long as the papers' rows of R, which have 120 bytes."""

WARM_UP_ROWS, MEASURED_ROWS, BATCH_ROWS = 600_000, 100_000, 5_000


@dataclass
class Scene:
    """A join that is fed with keys of known probabilities."""

    join: MemoryOptimalIndexJoin
    budget: MemoryBudget
    probabilities: np.ndarray[tuple[int], np.dtype[np.float64]]
    exponent: float
    rng: np.random.Generator
    numbered: int = 0
    turned_by: int = 0

    def feed(self, rows: int) -> float:
        """Join so many rows and return the share that memory has answered."""
        hits = self.join.stats.hits
        ranks = Zipf(KEYS, self.exponent)
        for _ in range(rows // BATCH_ROWS):
            numbers = np.arange(self.numbered, self.numbered + BATCH_ROWS)
            left = StreamRows(numbers, (ranks.sample(self.rng, BATCH_ROWS) + self.turned_by) % KEYS)
            self.numbered += BATCH_ROWS
            while len(left):
                taken = self.join.admit(left)
                left = StreamRows(left.numbers[taken:], left.codes[taken:])
                while not self.join.wants_rows:
                    self.join.step()
        return (self.join.stats.hits - hits) / rows


def scene(exponent: float, rows_per_key: int, memory_bytes: int = MEMORY_BYTES, seed: int = 1) -> Scene:
    keys = np.repeat(np.arange(KEYS), rows_per_key)
    table = pa.table({CODE_COLUMN: keys} | {f"p{i}": keys for i in range(COLUMNS)})
    relation = MemoryRelation(table, ["p0"], page_rows=100 * rows_per_key)
    budget = MemoryBudget(memory_bytes)
    join = MemoryOptimalIndexJoin(relation, JoinResources(budget, VirtualClock(), 10_000, STREAM_ROW_BYTES))
    weights = np.arange(1, KEYS + 1) ** -exponent
    return Scene(join, budget, weights / weights.sum(), exponent, np.random.default_rng(seed))


@pytest.mark.parametrize(("exponent", "rows_per_key"), [(1.0, 1), (1.0, 3), (0.5, 1)])
def test_the_placement_needs_the_memory_of_the_brute_force_minimum(exponent: float, rows_per_key: int) -> None:
    fed = scene(exponent, rows_per_key)
    fed.feed(WARM_UP_ROWS)
    hit_share = fed.feed(MEASURED_ROWS)
    store = fed.join._store
    # Little's law: so many stream rows come while one waits.
    passage_rows = len(fed.join.waiting) / (1 - hit_share)
    in_h_s = passage_rows * fed.probabilities * store.waiting_row_bytes
    in_h_r = store.held_bytes_of(np.full(KEYS, store.held.sizes.mean()))
    least_bytes = float(np.minimum(in_h_s, in_h_r).sum())
    used_bytes = float(store.held_bytes_of(store.held.sizes).sum()) + len(fed.join.waiting) * store.waiting_row_bytes
    print(f"{used_bytes:.0f} bytes where {least_bytes:.0f} are the least; {len(store.held)} keys are held")
    assert used_bytes <= 1.05 * least_bytes
    assert fed.budget.peak_bytes <= MEMORY_BYTES


@pytest.mark.parametrize("share_of_r", [0.02, 0.1, 0.2])
def test_without_skew_nothing_is_remembered(share_of_r: float) -> None:
    fed = scene(exponent=0.0, rows_per_key=1, memory_bytes=int(share_of_r * KEYS * ROW_BYTES))
    fed.feed(300_000)
    assert fed.join.stats.hits == 0
    assert len(fed.join._store.held) == 0


def test_without_skew_chance_lets_in_some_where_memory_is_nearly_as_large_as_r() -> None:
    # As many rows wait for a key as its row in R weighs, so that a lucky sample looks like popularity.
    fed = scene(exponent=0.0, rows_per_key=1, memory_bytes=int(0.9 * KEYS * ROW_BYTES))
    fed.feed(WARM_UP_ROWS)
    assert fed.feed(MEASURED_ROWS) < 0.05


def test_every_read_for_a_key_that_is_there_yields_output() -> None:
    rows_per_key = 2
    fed = scene(exponent=0.8, rows_per_key=rows_per_key)
    original, outputs_of_reads = fed.join.read_page, []

    def watched(code: int) -> object:
        # Hits are put out between two reads as well: what is left are outputs of pages.
        outputs_of_reads.append(fed.join.stats.outputs - rows_per_key * fed.join.stats.hits)
        return original(code)

    fed.join.read_page = watched  # type: ignore[method-assign,assignment]
    fed.feed(100_000)
    assert len(outputs_of_reads) > 100
    assert (np.diff(outputs_of_reads) > 0).all()


def test_it_follows_a_stream_that_changes() -> None:
    fed = scene(exponent=1.0, rows_per_key=1)
    fed.feed(WARM_UP_ROWS)
    before = fed.feed(MEASURED_ROWS)
    fed.turned_by = 7_777
    at_once = fed.feed(2 * BATCH_ROWS)
    fed.feed(WARM_UP_ROWS)
    after = fed.feed(MEASURED_ROWS)
    assert at_once < before / 2
    assert after > 0.95 * before
