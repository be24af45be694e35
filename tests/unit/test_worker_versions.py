"""Which version of a relation a worker reads in a new micro-batch."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.errors import RelationRefused
from semistream.relations.building.build import build_relation
from semistream.relations.handle import open_handle
from semistream.spark.plan import LookupPlan
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
