"""A worker that joins by hash partition: which rows go where, and that a task reads the partition of its rows alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MIB
from semistream.joins import pcsrj
from semistream.joins.reference import reference_join
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.building.build import build_relation
from semistream.relations.handle import RelationHandle, open_handle
from semistream.relations.partitioned import partition_of
from semistream.spark import sharing_out, worker
from semistream.spark.counts import ROWS_IN, position_of
from semistream.spark.plan import EnrichPlan
from semistream.spark.versions import newest_fitting_version
from tests.support.oracle import assert_same_rows
from tests.support.plans import planned

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("fresh_worker")]

PARTITIONS = 4
MASTER = pa.table({"id": np.arange(400) // 2, "name": [f"n{i}" for i in range(400)]})


STREAM = pa.schema([("id", pa.int64()), ("row", pa.int64())])


def planned_by_partition(handle: RelationHandle, memory_bytes: int = 4 * MIB) -> EnrichPlan:
    return planned(handle.on(), stream=STREAM, memory_bytes=memory_bytes, batch_rows=100, algorithm="pcsrj")


@pytest.fixture
def plan(tmp_path: Path) -> EnrichPlan:
    build_relation(MASTER, key="id", out=tmp_path / "r", partitions=PARTITIONS, page_bytes=1024)
    return planned_by_partition(open_handle(tmp_path / "r", None, None, verify=True))


def stream_of(rows: int) -> pa.Table:
    rng = np.random.default_rng(rows)
    return pa.table({"id": pa.array(rng.integers(0, 250, rows), mask=rng.random(rows) < 0.1), "row": range(rows)})


def numbered(stream: pa.Table, plan: EnrichPlan) -> pa.Table:
    keys = stream.column("id").combine_chunks()
    (numbers,) = sharing_out.partition_numbers(plan)(iter([keys]))
    return stream.append_column("partition", numbers)


def joined(plan: EnrichPlan, batches: list[pa.RecordBatch]) -> list[dict[str, object]]:
    """What comes out, without the rows that only carry counts, and without the counts."""
    pieces = list(worker.rows_by_partition(plan)(iter(batches)))
    rows = [row for piece in pieces for row in piece.to_pylist()]
    return [{name: row[name] for name in ("id", "row", "name")} for row in rows if row["row"] is not None]


def test_rows_are_numbered_by_the_partition_of_their_key(plan: EnrichPlan) -> None:
    stream = numbered(stream_of(300), plan)
    with_key = stream.filter(pa.compute.is_valid(stream["id"]))
    assert with_key["partition"].to_pylist() == partition_of(with_key["id"].to_numpy(), PARTITIONS).tolist()
    assert stream["partition"].null_count == 0
    assert set(stream["partition"].to_pylist()) == set(range(PARTITIONS))


def test_a_task_reads_the_pages_of_its_partition_alone(plan: EnrichPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    segment = ArrowFileRelation.segment

    def noted(self: ArrowFileRelation, number: int) -> pa.RecordBatch:
        read.append(self._first_page + number)
        return segment(self, number)

    monkeypatch.setattr(ArrowFileRelation, "segment", noted)
    stream = numbered(stream_of(600), plan)
    first_pages = plan.lookups[0].open(1)._file.manifest.partition_first_pages
    for number in range(PARTITIONS):
        read.clear()
        own = stream.filter(pa.array(stream["partition"].to_numpy() == number))
        found = joined(plan, own.combine_chunks().to_batches(max_chunksize=50))
        assert_same_rows(found, reference_join(own.drop_columns("partition"), MASTER, ["id"], ["id"]))
        end = first_pages[number + 1] if number + 1 < PARTITIONS else 1 << 30
        assert read, "nothing was read"
        assert all(first_pages[number] <= page < end for page in read)


def test_tasks_that_were_put_together_are_joined_partition_by_partition(plan: EnrichPlan) -> None:
    stream = numbered(stream_of(500), plan)
    expected = reference_join(stream.drop_columns("partition"), MASTER, ["id"], ["id"])
    in_order = stream.sort_by("partition")
    for table in (stream, in_order):
        pieces = list(worker.rows_by_partition(plan)(iter(table.combine_chunks().to_batches(max_chunksize=90))))
        rows = [row for piece in pieces for row in piece.to_pylist()]
        assert_same_rows([{k: r[k] for k in ("id", "row", "name")} for r in rows if r["row"] is not None], expected)
        counts = np.sum([row["counts"] for row in rows if row["counts"] is not None], axis=0)
        nulls = stream["id"].null_count
        matched, unmatched, null_keys = (counts[position_of(n)] for n in ("matched", "unmatched", "null_keys"))
        assert counts[ROWS_IN] == 500
        assert matched + unmatched + null_keys == 500
        assert null_keys == nulls


def test_a_task_without_rows_puts_nothing_out(plan: EnrichPlan) -> None:
    assert list(worker.rows_by_partition(plan)(iter([]))) == []


def test_what_a_failed_task_left_waiting_is_dropped(plan: EnrichPlan) -> None:
    stream = numbered(stream_of(400), plan)
    own = stream.filter(pa.array(stream["partition"].to_numpy() == 1)).combine_chunks()
    broken_off = worker.rows_by_partition(plan)(iter(own.to_batches(max_chunksize=10)))
    next(broken_off)
    broken_off.close()
    assert_same_rows(
        joined(plan, own.to_batches()), reference_join(own.drop_columns("partition"), MASTER, ["id"], ["id"])
    )


def test_a_worker_needs_the_memory_of_one_partition(plan: EnrichPlan) -> None:
    lookup = plan.lookups[0]
    whole = lookup.open(1)
    assert lookup.least_memory_bytes(1) < pcsrj.least_memory_bytes(whole, lookup.stream_row_bytes) / (PARTITIONS - 1)


def test_a_version_in_another_number_of_partitions_is_passed_over(plan: EnrichPlan, tmp_path: Path) -> None:
    build_relation(MASTER, key="id", out=tmp_path / "r", partitions=PARTITIONS + 1, page_bytes=1024)
    assert newest_fitting_version(plan.lookups[0], 1 << 20) == 1
    build_relation(MASTER, key="id", out=tmp_path / "r", partitions=PARTITIONS, page_bytes=1024)
    assert newest_fitting_version(plan.lookups[0], 1 << 20) == 3
