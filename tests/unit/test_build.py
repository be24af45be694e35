"""Building relations: the same rows as DuckDB's sort, and nothing published on failure."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from semistream.clock import VirtualClock
from semistream.errors import (
    DuplicateKey,
    EnvironmentUnfit,
    RelationRefused,
)
from semistream.keys import KeyCodec
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.writer import ArrowFileWriter
from semistream.relations.building import build as build_module
from semistream.relations.building.build import BuildProgress, Phase, build_relation
from semistream.relations.building.external_sort import ExternalSort
from tests.unit.built import TINY, assert_holds, current_rows, products, staging_of

# Sorting


@pytest.mark.parametrize("distinct", [None, 37, 5_000])
def test_runs_on_disk_give_the_same_relation_as_memory(distinct: int | None, tmp_path: Path) -> None:
    table = products(30_000, distinct=distinct)
    source = tmp_path / "rows.parquet"
    pq.write_table(table, source, row_group_size=4_000)
    report = build_relation(source, key="product_id", out=tmp_path / "out", memory=TINY)
    assert report.unique == (distinct is None)
    assert report.rows_per_code_max == int(np.bincount(table.column("product_id").to_numpy()).max())
    assert_holds(tmp_path / "out", table, "product_id")


@pytest.mark.parametrize("key", [("name",), ("product_id", "name"), ("day",), ("amount",), ("raw",), ("at",)], ids=str)
def test_keys_of_other_types_and_of_several_columns(key: tuple[str, ...], tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    ids = pa.array(rng.integers(0, 8_000, 10_000))
    table = pa.table(
        {
            "product_id": ids,
            "name": pa.array([f"n{number % 90}" for number in ids.to_pylist()]),
            "day": ids.cast(pa.int32()).cast(pa.date32()),
            "amount": ids.cast(pa.decimal128(30, 2)),
            "raw": ids.cast(pa.string()).cast(pa.binary()),
            "at": ids.cast(pa.timestamp("us")),
            "arrival": pa.array(np.arange(10_000)),
        }
    )
    report = build_relation(table, key=list(key), out=tmp_path / "out", memory=TINY)
    assert not report.unique
    assert_holds(tmp_path / "out", table, *key)


def test_one_key_with_nearly_all_rows(tmp_path: Path) -> None:
    table = products(50_000)
    ids = table.column("product_id").to_numpy().copy()
    ids[ids % 10 != 0] = 11
    table = table.set_column(0, "product_id", pa.array(ids))
    report = build_relation(table, key="product_id", out=tmp_path / "out", memory=TINY)
    assert report.rows_per_code_max == 45_000
    assert_holds(tmp_path / "out", table, "product_id")


def test_rows_with_a_null_in_the_key_are_counted_and_left_out(tmp_path: Path) -> None:
    table = pa.table({"a": [1, None, 3, None, 5], "b": ["x", "y", None, None, "z"], "value": [1, 2, 3, 4, 5]})
    report = build_relation(table, key=["a", "b"], out=tmp_path / "out", unique=True)
    assert (report.row_count, report.null_key_rows) == (2, 3)
    assert sorted(current_rows(tmp_path / "out").column("value").to_pylist()) == [1, 5]


# Uniqueness


def test_unique_refuses_a_duplicate_and_keeps_the_version_before(tmp_path: Path) -> None:
    build_relation(products(100), key="product_id", out=tmp_path / "out", unique=True)
    table = pa.concat_tables([products(30_000), *[products(30_000).filter(pa.array(np.arange(30_000) == 77))] * 2])
    twice = table.column("product_id")[77].as_py()
    with pytest.raises(DuplicateKey, match=rf"given: product_id={twice} in 3 rows; allowed: each key once"):
        build_relation(table, key="product_id", out=tmp_path / "out", unique=True, memory=TINY)
    assert_holds(tmp_path / "out", products(100), "product_id")
    assert staging_of(tmp_path / "out") == []
    assert build_relation(table, key="product_id", out=tmp_path / "out").unique is False


def test_the_last_key_of_all_is_counted_to_its_end(tmp_path: Path) -> None:
    table = pa.table({"id": np.concatenate([np.arange(10), np.full(40_000, 10)])})
    with pytest.raises(DuplicateKey, match="id=10 in 40000 rows"):
        build_relation(table, key="id", out=tmp_path / "out", unique=True, memory=TINY)


def test_a_collision_of_hashes_is_no_duplicate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collide_all_keys(monkeypatch)
    table = pa.table({"name": [f"n{number}" for number in range(50)]})
    report = build_relation(table, key="name", out=tmp_path / "out", unique=True)
    assert report.unique
    assert report.rows_per_code_max == 50


@pytest.mark.parametrize("memory", [1_000, "512MB"])
def test_a_duplicate_among_collisions_is_found(
    memory: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collide_all_keys(monkeypatch)
    table = pa.table({"name": [f"n{number % 40}" for number in range(50)]})
    assert build_relation(table, key="name", out=tmp_path / "a", memory=memory).unique is False
    with pytest.raises(DuplicateKey, match="name='n0' in 2 rows"):
        build_relation(table, key="name", out=tmp_path / "b", unique=True, memory=memory)


def collide_all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = KeyCodec.encode

    def encode_alike(self: KeyCodec, columns: list[pa.Array]) -> object:
        encoded = encode(self, columns)
        return type(encoded)(np.zeros_like(encoded.codes), encoded.null)

    monkeypatch.setattr(KeyCodec, "encode", encode_alike)


# Failures


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("owner", "method"),
    [(ExternalSort, "_spill"), (ArrowFileWriter, "append"), (ArrowFileWriter, "close"), (RelationDirectory, "publish")],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_a_full_disk_leaves_the_version_before_and_nothing_else(
    owner: type, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    build_relation(products(100), key="product_id", out=out)
    before = sorted(path.name for path in out.iterdir())
    monkeypatch.setattr(owner, method, full_disk)
    with pytest.raises(EnvironmentUnfit, match="No space left on device") as caught:
        build_relation(products(20_000), key="product_id", out=out, memory=TINY)
    assert "published before is untouched" in str(caught.value)
    assert sorted(path.name for path in out.iterdir()) == before
    assert_holds(out, products(100), "product_id")


@pytest.mark.parametrize("phase", get_args(Phase))
def test_an_interrupt_in_any_phase_removes_what_was_staged(phase: str, tmp_path: Path) -> None:
    def interrupt(progress: BuildProgress) -> None:
        # Only before the publish: afterwards there is nothing left to interrupt.
        if progress.phase == phase and (phase != "publish" or progress.rows_done == 0):
            raise KeyboardInterrupt

    build_relation(products(100), key="product_id", out=tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        build_relation(products(20_000), key="product_id", out=tmp_path / "out", memory=TINY, on_progress=interrupt)
    assert staging_of(tmp_path / "out") == []
    assert_holds(tmp_path / "out", products(100), "product_id")


def test_a_key_whose_rows_do_not_fit_on_a_page_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_module, "_CODE_BYTES_MAX", 100_000)
    table = pa.table({"id": pa.repeat(4, 20_000), "value": np.arange(20_000)})
    with pytest.raises(RelationRefused, match=r"more than 97\.7 KiB for id=4"):
        build_relation(table, key="id", out=tmp_path / "out", memory=TINY)


# Reports


@pytest.mark.parametrize("memory", [TINY, "512MB"])
def test_progress_goes_through_the_phases_and_never_back(memory: str | int, tmp_path: Path) -> None:
    seen: list[BuildProgress] = []
    pq.write_table(products(20_000), tmp_path / "rows.parquet", row_group_size=1_000)
    build_relation(
        tmp_path / "rows.parquet", key="product_id", out=tmp_path / "out", memory=memory, on_progress=seen.append
    )
    phases = get_args(Phase)
    places = [(phases.index(step.phase), step.rows_done) for step in seen]
    assert places == sorted(places)
    assert {step.phase for step in seen} == set(phases)
    assert all(step.rows_total == 20_000 for step in seen)
    for phase in phases:
        assert max(step.rows_done for step in seen if step.phase == phase) == 20_000


def test_the_report_says_what_was_built(tmp_path: Path) -> None:
    clock = VirtualClock()
    out = tmp_path / "out"
    build_relation(products(10), key="product_id", out=out)
    report = build_relation(
        products(1_000), key="product_id", out=out, clock=clock, on_progress=lambda _: clock.advance(0.5)
    )
    directory = RelationDirectory(out)
    files = (directory.data_path(2), directory.index_path(2))
    assert (report.path, report.version) == (out, 2)
    assert report.bytes_written == sum(path.stat().st_size for path in files)
    assert report.seconds >= 2.0
    manifest = directory.manifest(2)
    assert (manifest.key, manifest.unique, manifest.row_count) == (("product_id",), True, 1_000)
