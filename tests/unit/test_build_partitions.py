"""Relations in hash partitions on disk: which rows stand where, and that they are published like any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import semistream as ss
from semistream.errors import DuplicateKey, InvalidOption, RelationCorrupt
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.base import CODE_COLUMN
from semistream.relations.building.build import BuildProgress, build_relation
from semistream.relations.handle import open_handle
from semistream.relations.partitioned import partition_of
from tests.unit.built import TINY, products, staging_of

pytestmark = pytest.mark.long


def opened(out: Path, version: int = 1) -> ArrowFileRelation:
    return ArrowFileRelation(RelationDirectory(out), version)


def all_rows(relation: Any) -> pa.Table:
    return pa.Table.from_batches([relation.segment(n) for n in range(relation.segment_count)], relation.schema)


@pytest.mark.parametrize("memory", [TINY, "512MB"])
@pytest.mark.parametrize("partitions", [2, 7, 64])
@pytest.mark.parametrize("distinct", [None, 37])
def test_each_partition_holds_its_rows_sorted_and_in_the_order_of_arrival(
    distinct: int | None, partitions: int, memory: str | int, tmp_path: Path
) -> None:
    table = products(15_000, distinct=distinct)
    report = build_relation(
        table, key="product_id", out=tmp_path / "r", memory=memory, partitions=partitions, page_bytes=4096
    )
    assert (report.partitions, report.row_count, report.unique) == (partitions, 15_000, distinct is None)
    relation = opened(tmp_path / "r")
    assert relation.info.partition_count == len(relation.partitions) == partitions
    numbers = partition_of(table.column("product_id").to_numpy(), partitions)
    for number, part in enumerate(relation.partitions):
        own = table.filter(pa.array(numbers == number)).sort_by([("product_id", "ascending"), ("arrival", "ascending")])
        assert all_rows(part).drop_columns(CODE_COLUMN).equals(own.cast(part.schema.remove(0)))
        assert part.info.row_count == len(own)
        assert part.info.partition_count == 1
    assert all_rows(relation).num_rows == 15_000


def test_a_key_is_found_in_its_partition_and_through_the_whole(tmp_path: Path) -> None:
    build_relation(products(5_000), key="product_id", out=tmp_path / "r", partitions=5, page_bytes=2048)
    relation = opened(tmp_path / "r")
    codes = np.arange(0, 6_000, 7)
    found = pa.Table.from_batches(list(relation.rows_for(codes, 10_000)))
    assert found.column("product_id").to_pylist() == codes[codes < 5_000].tolist()
    for number, part in enumerate(relation.partitions):
        own = codes[(partition_of(codes, 5) == number) & (codes < 5_000)]
        read = pa.Table.from_batches(list(part.rows_for(codes, 10_000)))
        assert read.column("product_id").to_pylist() == own.tolist()
        assert own[0] in part.page_for(int(own[0])).column("product_id").to_pylist()
    by_partition = sum(part.page_reads for part in relation.partitions)
    assert relation.page_reads > by_partition > 0


def test_a_partition_may_be_empty(tmp_path: Path) -> None:
    build_relation(pa.table({"id": [1, 2], "name": ["ant", "bee"]}), key="id", out=tmp_path / "r", partitions=16)
    relation = opened(tmp_path / "r")
    assert sorted(part.info.row_count for part in relation.partitions) == [0] * 14 + [1, 1]
    empty = next(part for part in relation.partitions if part.info.row_count == 0)
    assert (empty.segment_count, empty.info.page_count, empty.info.rows_per_code_max) == (0, 0, 0)
    assert len(empty.page_for(1)) == 0
    assert list(empty.rows_for(np.array([1, 2]), 1000)) == []


def test_no_rows_at_all_are_partitions_without_rows(tmp_path: Path) -> None:
    report = build_relation(pa.table({"id": pa.array([], pa.int64())}), key="id", out=tmp_path / "r", partitions=3)
    assert (report.partitions, report.row_count) == (3, 0)
    assert [part.info.row_count for part in opened(tmp_path / "r").partitions] == [0, 0, 0]


@pytest.mark.parametrize("partitions", [1, 2, 9])
@pytest.mark.parametrize("memory", [TINY, "512MB"])
def test_a_key_that_occurs_twice_is_found_in_any_partition(partitions: int, memory: str | int, tmp_path: Path) -> None:
    table = products(8_000)
    for repeated in (0, 4_321, 7_999):
        twice = pa.concat_tables([table, table.filter(pa.array(table.column("product_id").to_numpy() == repeated))])
        with pytest.raises(DuplicateKey, match=rf"product_id={repeated} in 2 rows"):
            build_relation(
                twice, key="product_id", out=tmp_path / "r", partitions=partitions, memory=memory, unique=True
            )
    assert staging_of(tmp_path / "r") == []


def test_the_number_of_partitions_may_change_from_version_to_version(tmp_path: Path) -> None:
    for version, partitions in enumerate([1, 4, 2], start=1):
        report = ss.build_relation(products(100), key="product_id", out=tmp_path / "r", partitions=partitions)
        assert (report.version, report.partitions) == (version, partitions)
        assert open_handle(tmp_path / "r", None, None, verify=True).info.partition_count == partitions
    assert opened(tmp_path / "r", 2).info.partition_count == 4


def test_partitions_that_are_not_read_are_not_looked_at_and_all_are_by_verifying(tmp_path: Path) -> None:
    build_relation(products(2_000), key="product_id", out=tmp_path / "r", partitions=2)
    data_path = RelationDirectory(tmp_path / "r").data_path(1)
    damaged = bytearray(data_path.read_bytes())
    damaged[-len(damaged) // 4] ^= 1
    data_path.write_bytes(damaged)
    relation = opened(tmp_path / "r")
    first, second = relation.partitions
    assert all_rows(first).num_rows == first.info.row_count
    with pytest.raises(RelationCorrupt, match="is damaged"):
        all_rows(second)
    with pytest.raises(RelationCorrupt, match="is damaged"):
        relation.verify_all()


def test_a_file_stays_open_as_long_as_a_partition_of_it(tmp_path: Path) -> None:
    build_relation(products(500), key="product_id", out=tmp_path / "r", partitions=2)
    part = opened(tmp_path / "r").partitions[1]
    assert all_rows(part).num_rows == part.info.row_count


@pytest.mark.parametrize("partitions", [0, -1, 1025, 2.0, "2", None])
def test_a_number_of_partitions_that_cannot_be_is_refused(partitions: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"`partitions`.*given: .*allowed: a whole number from 1 to 1024"):
        build_relation(products(10), key="product_id", out=tmp_path / "r", partitions=partitions)
    assert not (tmp_path / "r").exists()


def test_progress_goes_through_the_phases_and_never_back(tmp_path: Path) -> None:
    seen: list[BuildProgress] = []
    build_relation(
        products(5_000), key="product_id", out=tmp_path / "r", memory=TINY, partitions=5, on_progress=seen.append
    )
    phases = ["read", "sort", "merge", "publish"]
    assert [phases.index(now.phase) for now in seen] == sorted(phases.index(now.phase) for now in seen)
    assert {now.phase for now in seen} == set(phases)
    for phase in phases:
        done = [now.rows_done for now in seen if now.phase == phase]
        assert done == sorted(done)
        assert done[-1] == 5_000
