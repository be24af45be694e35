"""The external sort against NumPy's stable sort, with budgets that force runs, cascades and giant codes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from semistream.relations.base import CODE_COLUMN
from semistream.relations.building import external_sort
from semistream.relations.building.external_sort import ExternalSort, split_to_bytes, stable_order
from semistream.relations.building.partitioned_sort import PartitionedSort
from semistream.relations.partitioned import partition_of

SCHEMA = pa.schema(
    [
        pa.field(CODE_COLUMN, pa.int64(), nullable=False),
        ("arrival", pa.int64()),
        ("name", pa.string()),
        ("flag", pa.bool_()),
        ("tags", pa.list_(pa.int16())),
    ]
)


def table_of(codes: npt.NDArray[np.int64], rng: np.random.Generator) -> pa.Table:
    """Rows that remember in which order they came, with nulls and strings of very different lengths."""
    count = len(codes)
    lengths = np.where(rng.random(count) < 0.001, 5_000, rng.integers(0, 30, count))
    return pa.table(
        [
            pa.array(codes),
            pa.array(np.arange(count)),
            pa.array([None if length == 7 else "x" * int(length) for length in lengths], pa.string()),
            pa.array(rng.random(count) < 0.5, mask=rng.random(count) < 0.1),
            pa.array([[1] * int(length % 4) for length in lengths], pa.list_(pa.int16())),
        ],
        schema=SCHEMA,
    )


def plain_table(codes: npt.NDArray[np.int64]) -> pa.Table:
    """Rows of 32 bytes, made without a loop."""
    arrivals = pa.array(np.arange(len(codes)))
    return pa.table({CODE_COLUMN: pa.array(codes), "arrival": arrivals, "a": arrivals, "b": arrivals})


def sorted_by_numpy(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.argsort(table.column(0).to_numpy(), kind="stable"))).combine_chunks()


def add_all(sort: ExternalSort, table: pa.Table, batch_rows: int) -> None:
    for batch in table.to_batches(max_chunksize=batch_rows):
        sort.add(batch)


def assert_sorted_like_numpy(sort: ExternalSort, table: pa.Table) -> None:
    batches = list(sort.sorted_batches())
    assert all(batch.num_rows > 0 for batch in batches)
    assert pa.Table.from_batches(batches, table.schema).combine_chunks().equals(sorted_by_numpy(table))


@pytest.mark.parametrize("seed", range(12))
def test_rows_leave_in_the_order_of_a_stable_sort(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    row_count = int(rng.integers(1, 20_000))
    distinct = int(rng.choice([1, 2, 50, 5_000, 2**62]))
    table = table_of(rng.integers(-distinct, distinct, row_count), rng)
    memory_bytes = int(rng.integers(20_000, 1_000_000))
    sort = ExternalSort(table.schema, tmp_path, memory_bytes=memory_bytes)
    add_all(sort, table, int(rng.integers(1, 2_000)) + row_count // 200)
    print(f"seed {seed}: {row_count} rows, {distinct} codes, {memory_bytes} bytes, {sort.spilled_run_count} runs")
    assert sort.row_count == row_count
    assert_sorted_like_numpy(sort, table)
    assert list(tmp_path.iterdir()) == [], "a run that was read is deleted"


def test_rows_that_fit_into_memory_never_touch_the_disk(tmp_path: Path) -> None:
    table = plain_table(np.random.default_rng(0).permutation(10_000))
    sort = ExternalSort(table.schema, tmp_path / "is never made", memory_bytes=2_000_000)
    add_all(sort, table, 1_000)
    assert_sorted_like_numpy(sort, table)
    assert sort.spilled_run_count == 0


def test_nothing_added_is_nothing_sorted(tmp_path: Path) -> None:
    sort = ExternalSort(SCHEMA, tmp_path, memory_bytes=1_000)
    sort.add(pa.record_batch([[], [], [], [], []], schema=SCHEMA))
    assert list(sort.sorted_batches()) == []


def test_more_runs_than_can_be_merged_at_once_are_merged_in_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_sort, "_FAN_IN", 3)
    rng = np.random.default_rng(1)
    table = plain_table(rng.integers(0, 3_000, 40_000))
    sort = ExternalSort(table.schema, tmp_path, memory_bytes=150_000)
    add_all(sort, table, 500)
    collected_runs = sort.spilled_run_count
    assert collected_runs > 9, "two steps of merging are wanted"
    assert_sorted_like_numpy(sort, table)
    assert sort.spilled_run_count > collected_runs + 3


@pytest.mark.parametrize("share", [1.0, 0.9, 0.4])
def test_a_code_with_more_rows_than_memory_passes_in_order(share: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    codes = rng.integers(-1_000, 1_000, 60_000)
    codes[rng.random(60_000) < share] = 17
    table = plain_table(codes)
    sort = ExternalSort(table.schema, tmp_path, memory_bytes=300_000)
    add_all(sort, table, 700)
    assert sort.spilled_run_count > 10
    assert_sorted_like_numpy(sort, table)


@pytest.mark.parametrize("codes_of", ["random", "ascending", "descending", "one", "few"])
def test_what_arrow_allocates_stays_within_the_memory_given(codes_of: str, tmp_path: Path) -> None:
    row_count, memory_bytes = 500_000, 3_000_000
    rng = np.random.default_rng(3)
    codes = {
        "random": rng.integers(-(2**62), 2**62, row_count),
        "ascending": np.arange(row_count),
        "descending": np.arange(row_count)[::-1].copy(),
        "one": np.full(row_count, 5),
        "few": rng.integers(0, 7, row_count),
    }[codes_of]
    table = plain_table(codes)
    assert table.nbytes > 5 * memory_bytes
    sort = ExternalSort(table.schema, tmp_path, memory_bytes=memory_bytes)
    before = pa.total_allocated_bytes()
    peak_bytes = rows_seen = 0
    for batch in table.to_batches(max_chunksize=2_000):
        sort.add(batch.take(pa.array(np.arange(batch.num_rows))))  # a copy, so that what is collected counts as well
        peak_bytes = max(peak_bytes, pa.total_allocated_bytes() - before)
    for batch in sort.sorted_batches():
        rows_seen += batch.num_rows
        peak_bytes = max(peak_bytes, pa.total_allocated_bytes() - before)
    assert rows_seen == row_count
    assert peak_bytes <= memory_bytes


@pytest.mark.parametrize("partition_count", [2, 50])
def test_sorting_by_partition_stays_within_the_memory_given(partition_count: int, tmp_path: Path) -> None:
    row_count, memory_bytes = 500_000, 3_000_000
    table = plain_table(np.random.default_rng(4).integers(0, 300_000, row_count))
    sort = PartitionedSort(table.schema, tmp_path, partition_count=partition_count, memory_bytes=memory_bytes)
    before = pa.total_allocated_bytes()
    peak_bytes = rows_seen = 0
    for batch in table.to_batches(max_chunksize=2_000):
        sort.add(batch.take(pa.array(np.arange(batch.num_rows))))
        peak_bytes = max(peak_bytes, pa.total_allocated_bytes() - before)
    for number, batches in enumerate(sort.sorted_partitions()):
        for batch in batches:
            assert set(partition_of(batch.column(0).to_numpy(), partition_count).tolist()) == {number}
            rows_seen += batch.num_rows
            peak_bytes = max(peak_bytes, pa.total_allocated_bytes() - before)
    assert rows_seen == row_count
    assert peak_bytes <= memory_bytes


def test_a_few_huge_rows_do_not_make_huge_batches(tmp_path: Path) -> None:
    names = ["x" * 100_000 if number < 20 else "x" for number in range(5_000)]
    codes = np.random.default_rng(4).permutation(5_000)
    codes[:20] = np.arange(20)
    schema = pa.schema([(CODE_COLUMN, pa.int64()), ("name", pa.string())])
    table = pa.table([pa.array(codes), pa.array(names)], schema=schema)
    sort = ExternalSort(schema, tmp_path, memory_bytes=1_500_000)
    add_all(sort, table, 10)
    batches = list(sort.sorted_batches())
    assert sum(batch.num_rows for batch in batches) == 5_000
    assert max(batch.nbytes for batch in batches) < 250_000


def test_a_merge_that_is_broken_off_closes_and_deletes_its_runs(tmp_path: Path) -> None:
    table = plain_table(np.random.default_rng(5).permutation(20_000))
    sort = ExternalSort(table.schema, tmp_path, memory_bytes=300_000)
    add_all(sort, table, 500)
    batches = sort.sorted_batches()
    next(batches)
    batches.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_rows_is_that_of_a_stable_argsort(seed: int) -> None:
    rng = np.random.default_rng(seed)
    distinct = int(rng.choice([2, 100, 10_000, 2**62]))
    codes = rng.integers(-distinct, distinct, 30_000)
    print(f"seed {seed}: {distinct} codes")
    assert np.array_equal(stable_order(codes), np.argsort(codes, kind="stable"))


def test_a_batch_is_cut_into_slices_by_bytes_not_by_rows() -> None:
    names = ["long" * 1_000 if number % 10 == 0 else "s" for number in range(100)]
    batch = pa.record_batch([pa.array(names)], names=["name"])
    slices = list(split_to_bytes(batch, 5_000))
    assert pa.Table.from_batches(slices).column("name").to_pylist() == names
    assert all(part.nbytes <= 5_000 or part.num_rows == 1 for part in slices)
    assert max(part.num_rows for part in slices) > 1
