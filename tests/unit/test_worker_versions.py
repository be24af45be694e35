"""Which version of a relation a worker reads in a new micro-batch."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.clock import RealClock
from semistream.errors import RelationCorrupt, RelationRefused
from semistream.keys import CODE_VERSION
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.leases import pin_version
from semistream.relations.building.build import build_relation
from semistream.relations.handle import open_handle
from semistream.spark.plan import LookupPlan
from semistream.spark.seats import NO_SEAT
from semistream.spark.served_lookup import ServedLookup
from semistream.spark.versions import newest_fitting_version, renewed
from tests.support.plans import planned

MEMORY_BYTES = 1 << 20


def published(out: Path, table: pa.Table) -> LookupPlan:
    build_relation(table, key="id", out=out)
    handle = open_handle(out, None, None, verify=True)
    plan = planned(handle.on(), memory_bytes=8 * MEMORY_BYTES)
    return plan.lookups[0]


def test_a_version_with_a_row_too_large_for_the_memory_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = published(tmp_path / "products", pa.table({"id": [1], "name": ["ant"]}))
    build_relation(pa.table({"id": [1], "name": ["x" * MEMORY_BYTES]}), key="id", out=tmp_path / "products")
    with caplog.at_level(logging.ERROR):
        assert newest_fitting_version(plan, MEMORY_BYTES) == 1
    assert "version 2 of relation 'products' is refused: its largest row has 1.0 MiB" in caplog.text
    build_relation(pa.table({"id": [1], "name": ["asp"]}), key="id", out=tmp_path / "products")
    assert newest_fitting_version(plan, MEMORY_BYTES) == 3


def test_another_relation_under_the_old_number_is_looked_at_and_refused(tmp_path: Path) -> None:
    plan = published(tmp_path / "products", pa.table({"id": [1], "name": ["ant"]}))
    shutil.rmtree(tmp_path / "products")
    build_relation(pa.table({"id": ["1"], "name": ["ant"]}), key="id", out=tmp_path / "products")
    with pytest.raises(RelationRefused, match="version 1: its column 'id' is string, not int64"):
        newest_fitting_version(plan, MEMORY_BYTES)


def test_a_handle_is_renewed_to_the_newest_version_that_keeps_its_promises(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handle = published(tmp_path / "products", pa.table({"id": [1], "name": ["ant"]})).lookup.relation
    assert renewed(handle) is handle
    for name in ("ape", "asp", "auk"):
        build_relation(pa.table({"id": [1, 2], "name": [name, "bee"]}), key="id", out=tmp_path / "products")
    newest = renewed(handle)
    assert (newest.info.version, newest.info.row_count, newest.columns) == (4, 2, ("name",))
    assert newest == open_handle(tmp_path / "products", None, None, verify=False)
    build_relation(pa.table({"id": [1], "name": [7]}), key="id", out=tmp_path / "products")
    with caplog.at_level(logging.ERROR):
        assert renewed(handle) == newest
    assert "version 5 of relation 'products' is refused: its column 'name' is int64, not string" in caplog.text


def test_a_version_that_cannot_be_opened_is_passed_over_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "products"
    plan = published(out, pa.table({"id": [1], "name": ["ant"]}))
    with monkeypatch.context() as patched:
        patched.setattr("semistream.relations.building.build.CODE_VERSION", CODE_VERSION + 1)
        build_relation(pa.table({"id": [1], "name": ["ape"]}), key="id", out=out)
    with caplog.at_level(logging.ERROR):
        assert renewed(plan.lookup.relation).info.version == newest_fitting_version(plan, MEMORY_BYTES) == 1
    assert "version 2 of relation 'products' is refused" in caplog.text
    assert "another definition of key codes" in caplog.text
    with pytest.raises(RelationCorrupt, match="another definition of key codes"):
        open_handle(out, None, None, verify=False)


def test_a_current_version_without_its_manifest_is_not_passed_over_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "products"
    first = published(out, pa.table({"id": [1], "name": ["ant"]}))
    second = published(out, pa.table({"id": [1], "name": ["ape"]}))
    RelationDirectory(out).manifest_path(2).unlink()
    with caplog.at_level(logging.ERROR):
        assert newest_fitting_version(first, MEMORY_BYTES) == 1
    assert "version 2 of relation 'products' is refused: version 2 of the relation 'products' has no" in caplog.text
    # Who was planned with it does not fall back to what came before.
    assert newest_fitting_version(second, MEMORY_BYTES) == 2
    with pytest.raises(RelationCorrupt, match=r"Hint: build the relation again"):
        second.open(2)
    published(out, pa.table({"id": [1], "name": ["asp"]}))
    with pytest.raises(RelationCorrupt, match=r"Hint: newer versions have taken its place"):
        second.open(2)


def test_a_renewed_handle_promises_no_more_than_before(tmp_path: Path) -> None:
    handle = published(tmp_path / "products", pa.table({"id": [1, 1], "name": ["ant", "ape"]})).lookup.relation
    build_relation(pa.table({"id": [1], "name": ["ant"]}), key="id", out=tmp_path / "products")
    newest = renewed(handle)
    assert (newest.info.version, newest.unique) == (2, False)


def test_a_version_that_was_leased_before_is_refused_where_it_breaks_a_promise(tmp_path: Path) -> None:
    out = tmp_path / "products"
    published(out, pa.table({"id": [1, 1], "name": ["ant", "ape"]}))
    pin_version(RelationDirectory(out), "query", 0, lambda: 1)
    plan = planned(published(out, pa.table({"id": [1], "name": ["ant"]})).lookup)
    served = ServedLookup(plan, 0, NO_SEAT, rows_may_wait=False, clock=RealClock())
    with pytest.raises(RelationRefused, match=r"has begun with version 1 .*; given: its keys are no longer unique"):
        served.begin_task("query", "0")
    served.begin_task("query", "1")
    served.close()
