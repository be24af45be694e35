"""PCSRJ and relations in parts: rows go where their keys are, and the parts work side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.joins.base import JoinResources
from semistream.joins.pcsrj import ParallelCacheJoin
from semistream.joins.reference import reference_join
from semistream.joins.registry import ALGORITHMS
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.building.build import build_relation
from semistream.relations.counting import CountingRelation
from semistream.relations.failing import FailingRelation
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, MeteredRelation
from semistream.relations.partitioned import PartitionedRelation, partition_of, split_in_memory
from semistream.relations.wrapping import WrappedRelation
from semistream.structures.hash_multimap import HashMultimap
from tests.support.oracle import assert_same_rows
from tests.support.running import run_join

pytestmark = pytest.mark.long


MASTER = pa.table({"k": np.arange(300) * 2, "value": np.arange(300)})
CODES = {
    "counters": lambda: np.arange(100_000),
    "even": lambda: np.arange(100_000) * 2,
    "strides": lambda: np.arange(100_000) * 4096,
    "random": lambda: np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 100_000),
}


def stream_of(seed: int, rows: int = 2000) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table({"s": np.minimum(rng.zipf(1.2, rows), 700), "row": np.arange(rows)})


def in_parts(partition_count: int) -> PartitionedRelation:
    return split_in_memory(MemoryRelation.from_table(MASTER, ["k"]), partition_count, page_rows=10)


@pytest.mark.parametrize("draw", CODES.values(), ids=list(CODES))
@pytest.mark.parametrize("partition_count", [1, 2, 3, 8])
def test_keys_of_any_kind_are_shared_out_evenly(draw: Callable[[], np.ndarray], partition_count: int) -> None:
    shares = np.bincount(partition_of(draw(), partition_count), minlength=partition_count) / 100_000
    assert len(shares) == partition_count
    assert np.abs(shares - 1 / partition_count).max() < 0.01


def test_the_codes_of_one_part_do_not_crowd_in_a_hash_table() -> None:
    codes = np.arange(20_000)
    part = codes[partition_of(codes, 16) == 3]
    table = HashMultimap(len(part))
    table.insert(part, np.arange(len(part)))
    slots = table._slots[1::2] >= 0
    # With the hash of the table, one part of sixteen would fill a sixteenth of its home slots.
    assert min(part_of_slots.mean() for part_of_slots in np.array_split(slots, 16)) > 0.5 * slots.mean()


@pytest.mark.parametrize("partition_count", [1, 2, 5])
def test_every_part_joins_its_own_rows(partition_count: int) -> None:
    relation, stream = in_parts(partition_count), stream_of(1)
    run = run_join(relation, stream, ["s"], algorithm="pcsrj", memory_bytes=1 << 18, batch_rows=300)
    assert_same_rows(run.table, reference_join(stream, MASTER, ["s"], ["k"]))
    assert run.budget.peak_bytes <= 1 << 18
    assert run.stats.rows == len(stream)


def test_each_part_has_its_share_of_the_budget() -> None:
    relation = in_parts(4)
    budget = MemoryBudget(1 << 20)
    join = ParallelCacheJoin(relation, JoinResources(budget, VirtualClock(), rows_per_step=100))
    assert len(join.joins) == 4
    parts = [used for name, used in budget.used_by_account().items() if name.startswith("part ")]
    assert len(parts) == 4
    assert all(0 < used <= 1 << 18 for used in parts)


class MeetingRelation(WrappedRelation):
    """Every read waits until the other part reads, too, as long as it does."""

    barrier = threading.Barrier(2)
    met = 0

    def _read_page(self, code: int) -> pa.RecordBatch:
        try:
            self.barrier.wait(timeout=0.2)
            type(self).met += 1
        except threading.BrokenBarrierError:
            self.barrier.reset()
        return super()._read_page(code)


def test_two_parts_read_at_the_same_time() -> None:
    relation = PartitionedRelation([MeetingRelation(part) for part in in_parts(2).partitions])
    stream = pa.table({"s": np.arange(0, 600, 60), "row": np.arange(10)})
    run_join(relation, stream, ["s"], algorithm="pcsrj")
    assert type(relation.partitions[0]).met >= 2


@pytest.mark.parametrize("stored", ["memory", "file"])
def test_parts_are_joined_by_themselves_behind_wrappers_too(stored: str, tmp_path: Path) -> None:
    inner: Any = in_parts(3)
    if stored == "file":
        build_relation(MASTER, key="k", out=tmp_path / "r", partitions=3, page_bytes=512)
        inner = ArrowFileRelation(RelationDirectory(tmp_path / "r"), 1)
    relation = CountingRelation(MeteredRelation(inner, HDD, VirtualClock()))
    stream = stream_of(4)
    run = run_join(relation, stream, ["s"], algorithm="pcsrj", memory_bytes=1 << 18)
    assert_same_rows(run.table, reference_join(stream, MASTER, ["s"], ["k"]))
    calls = [part.by_page.calls for part in relation.partitions]
    assert min(calls) > 0
    assert sum(calls) == relation.counts.calls == run.stats.reads


def test_whichever_read_of_a_part_fails_the_error_comes_out_once() -> None:
    stream = stream_of(5, rows=300)
    sound = FailingRelation(in_parts(2), nth=10**9)
    run_join(sound, stream, ["s"], algorithm="pcsrj")
    for nth in (1, sound.reads // 2, sound.reads):
        failing = FailingRelation(in_parts(2), nth)
        with pytest.raises(OSError, match="made to fail"):
            run_join(failing, stream, ["s"], algorithm="pcsrj")
        run = run_join(failing, stream, ["s"], algorithm="pcsrj")
        assert_same_rows(run.table, reference_join(stream, MASTER, ["s"], ["k"]))


def test_an_error_in_one_part_comes_out() -> None:
    class Broken(WrappedRelation):
        def _read_page(self, code: int) -> pa.RecordBatch:
            raise OSError("gone")

    first, second = in_parts(2).partitions
    with pytest.raises(OSError, match="gone"):
        run_join(PartitionedRelation([first, Broken(second)]), stream_of(2), ["s"], algorithm="pcsrj")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("memory_bytes", [1 << 16, 1 << 20])
def test_every_algorithm_reads_a_relation_in_parts_as_if_it_were_one(algorithm: str, memory_bytes: int) -> None:
    relation, stream = in_parts(3), stream_of(3, rows=700)
    options = {"memory_bytes": memory_bytes, "batch_rows": 100, "rows_per_step": 80}
    run = run_join(relation, stream, ["s"], algorithm=algorithm, **options)
    assert_same_rows(run.table, reference_join(stream, MASTER, ["s"], ["k"]))
    assert run.budget.peak_bytes <= memory_bytes
