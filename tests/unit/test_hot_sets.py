"""Where hot sets lie, who may use them, and that nothing of them is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.bench import standalone as standalone_cluster
from semistream.bench.child_process import running
from semistream.bench.standalone import standalone
from semistream.budget import MIB
from semistream.relations.building.build import build_relation
from semistream.relations.handle import RelationHandle, open_handle
from semistream.relations.memory import MemoryRelation
from semistream.spark import hot_sets, worker
from semistream.spark.counts import BYTES_HELD, position_of
from semistream.spark.hot_sets import HotSets, executor_name, remove_hot_sets_of_executor, remove_hot_sets_of_query
from semistream.spark.memory_parts import HOT_BYTES_MIN
from semistream.spark.plan import EnrichPlan
from semistream.structures.hot_removal import STATE, remove_hot_set
from tests.support.plans import planned
from tests.support.workers import forget_worker

pytestmark = pytest.mark.usefixtures("fresh_worker")

ROWS = 60_000
HOT_BYTES = 8 * MIB


@pytest.fixture(scope="module")
def relation() -> MemoryRelation:
    table = pa.table({"id": np.arange(ROWS), "text": [f"the text of {n}" for n in range(ROWS)]})
    return MemoryRelation.from_table(table, ["id"], page_rows=100)


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folders in place of the shared memory and the temporary directory of this machine."""
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(hot_sets, "SHARED_MEMORY", tmp_path / "memory")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "disk"))
    return tmp_path


def states(places: Path) -> list[Path]:
    return sorted(places.rglob(STATE))


def open_one(
    relation: MemoryRelation, name: str = "plan", version: int = 1, query_id: str | None = None, plan_id: str = "id"
) -> Any:
    hot = HotSets(name, plan_id, 0, HOT_BYTES).open(relation, version, (version, 100), query_id)
    if hot is not None:
        hot.begin()
    return hot


def test_a_hot_set_lies_in_shared_memory_for_this_user_alone(relation: MemoryRelation, places: Path) -> None:
    assert open_one(relation) is not None
    (state,) = states(places)
    assert state.is_relative_to(places / "memory" / f"semistream-hot-{os.getuid()}" / executor_name())
    for folder in state.parents:
        if folder == places / "memory":
            break
        assert folder.stat().st_mode & 0o777 == 0o700
    assert state.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("obstacle", ["absent", "full", "open to others", "a link"])
def test_where_shared_memory_cannot_be_used_the_temporary_directory_is(
    obstacle: str, relation: MemoryRelation, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = places / "memory" / f"semistream-hot-{os.getuid()}"
    if obstacle == "absent":
        monkeypatch.setattr(hot_sets, "SHARED_MEMORY", places / "nowhere")
    elif obstacle == "full":
        found = os.statvfs(places)
        little = type(found)((*found[:4], 100, *found[5:]))
        monkeypatch.setattr(os, "statvfs", lambda place: little if Path(place).name == "memory" else found)
    elif obstacle == "open to others":
        root.mkdir(mode=0o755)
    else:
        (places / "elsewhere").mkdir(mode=0o700)
        root.symlink_to(places / "elsewhere")
    assert open_one(relation) is not None
    (state,) = states(places)
    assert state.is_relative_to(places / "disk")


def test_another_version_takes_the_place_of_the_one_before_once_nobody_reads_it(
    relation: MemoryRelation, places: Path
) -> None:
    first = open_one(relation, version=1)
    with first.writing() as writer:
        writer.append(0, relation.segment(0), np.arange(50), np.arange(50), np.ones(50, np.int64), np.ones(50))
    assert open_one(relation, version=2) is None
    first.end()
    assert open_one(relation, version=2) is not None
    assert first.is_gone()
    assert [state.parent.name for state in states(places)] == ["v2-2-100"]


def test_enrichments_and_relations_side_by_side_have_hot_sets_of_their_own(
    relation: MemoryRelation, places: Path
) -> None:
    opened = [open_one(relation, name) for name in ("one", "two")]
    opened.append(HotSets("one", "id", 1, HOT_BYTES).open(relation, 1, (1, 100), None))
    assert None not in opened
    assert len(states(places)) == 3


def test_what_a_dead_executor_left_is_removed_when_the_next_hot_set_is_opened(
    relation: MemoryRelation, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        monkeypatch.setattr(os, "getppid", lambda: other.pid)
        monkeypatch.setattr(hot_sets, "ANCESTORS_MAX", 0)
        open_one(relation, "of another executor")
        monkeypatch.setattr(os, "getppid", os.getpid)
        open_one(relation, "ours")
        assert len(states(places)) == 2
        other.kill()
    open_one(relation, "ours")
    assert [state.parent.parent.name for state in states(places)] == ["ours-0-id"]


def test_what_a_dead_executor_left_can_be_removed_before_anybody_has_asked_for_its_exit_code(
    relation: MemoryRelation, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        monkeypatch.setattr(os, "getppid", lambda: other.pid)
        monkeypatch.setattr(hot_sets, "ANCESTORS_MAX", 0)
        open_one(relation, "of another executor")
        hot_sets.remove_hot_sets_of_the_dead()
        assert len(states(places)) == 1
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        hot_sets.remove_hot_sets_of_the_dead()
        assert not states(places)


def test_an_executor_of_the_same_number_that_began_later_is_another(relation: MemoryRelation, places: Path) -> None:
    open_one(relation, "ours")
    (executor,) = (places / "memory").glob("*/*")
    executor.rename(executor.with_name(executor.name + "1"))
    open_one(relation, "new")
    assert [state.parent.parent.name for state in states(places)] == ["new-0-id"]


def test_what_nobody_has_used_for_long_is_removed_by_another_enrichment(relation: MemoryRelation, places: Path) -> None:
    old = open_one(relation, "old")
    old.end()
    (state,) = states(places)
    os.utime(state, (1e9, 1e9))
    open_one(relation, "new")
    assert [state.parent.parent.name for state in states(places)] == ["new-0-id"]


def test_what_is_used_again_after_a_long_pause_is_as_warm_as_before(relation: MemoryRelation, places: Path) -> None:
    open_one(relation).end()
    (state,) = states(places)
    number = state.stat().st_ino
    os.utime(state, (1e9, 1e9))
    assert open_one(relation) is not None
    assert [state.stat().st_ino for state in states(places)] == [number]


def test_a_query_that_plans_again_and_again_has_one_hot_set(relation: MemoryRelation, places: Path) -> None:
    """As in `foreachBatch` with a relation that changes: each plan is another one, and has other rows."""
    first = open_one(relation, version=1, query_id="one", plan_id="1")
    with first.writing() as writer:
        writer.append(0, relation.segment(0), np.arange(50), np.arange(50), np.ones(50, np.int64), np.ones(50))
    assert open_one(relation, version=2, query_id="one", plan_id="2") is None, "somebody still reads the first"
    assert open_one(relation, version=2, query_id="two", plan_id="2") is not None, "another query has its own"
    first.end()
    third = open_one(relation, version=3, query_id="one", plan_id="3")
    assert third is not None
    assert first.is_gone()
    assert [state.parent.parent.name for state in states(places)] == ["plan-0-2", "plan-0-3"]


def test_where_shared_memory_has_become_full_others_use_the_temporary_directory(
    relation: MemoryRelation, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_one(relation, "first")
    found = os.statvfs(places)
    little = type(found)((*found[:4], 100, *found[5:]))
    monkeypatch.setattr(os, "statvfs", lambda place: little if Path(place).name == "memory" else found)
    open_one(relation, "second")
    open_one(relation, "first")
    lying = {state.parent.parent.name: state.relative_to(places).parts[0] for state in states(places)}
    assert lying == {"first-0-id": "memory", "second-0-id": "disk"}


def test_a_stray_file_is_in_nobodys_way(relation: MemoryRelation, places: Path) -> None:
    open_one(relation, "first")
    (places / "memory" / f"semistream-hot-{os.getuid()}" / "stray").touch()
    assert open_one(relation, "second") is not None


def test_the_end_of_a_query_removes_what_no_other_query_uses(relation: MemoryRelation, places: Path) -> None:
    for name, query_id in [("a", "one"), ("b", "one"), ("b", "two"), ("c", "two")]:
        hot = open_one(relation, name, query_id=query_id)
        hot.end()
    remove_hot_sets_of_query("one")
    assert [state.parent.parent.name for state in states(places)] == ["b-0-id", "c-0-id"]
    remove_hot_sets_of_query("two")
    assert states(places) == []


def test_the_end_of_a_query_waits_for_a_worker_that_is_about_to_cease(
    relation: MemoryRelation, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = open_one(relation, "a", query_id="one")
    pauses: list[float] = []

    def paused(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            hot.end()

    with hot.writing() as writer:
        writer.append(0, relation.segment(0), np.arange(50), np.arange(50), np.ones(50, np.int64), np.ones(50))
    monkeypatch.setattr("semistream.spark.hot_sets.time.sleep", paused)
    remove_hot_sets_of_query("one")
    assert len(pauses) == 3
    assert states(places) == []


def test_the_end_of_an_executor_and_of_its_query_do_not_get_into_each_others_way(
    relation: MemoryRelation, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a driver one thread stops the query, and another hears that it has ended."""
    hot = open_one(relation, "a", query_id="one")
    open_one(relation, "b").end()
    with hot.writing() as writer:
        writer.append(0, relation.segment(0), np.arange(50), np.arange(50), np.ones(50, np.int64), np.ones(50))

    def paused(seconds: float) -> None:
        hot.end()
        remove_hot_sets_of_query("one")
        assert "a-0-id" not in [state.parent.parent.name for state in states(places)]

    monkeypatch.setattr("semistream.spark.hot_sets.time.sleep", paused)
    remove_hot_sets_of_executor(int(executor_name().split("-")[1]))
    assert list((places / "memory").glob("*/*")) == []


def test_the_end_of_an_executor_removes_everything(relation: MemoryRelation, places: Path) -> None:
    for name in ("a", "b"):
        open_one(relation, name).end()
    remove_hot_sets_of_executor(int(executor_name().split("-")[1]))
    assert list((places / "memory").glob("*/*")) == []


# Benchmarks ----------------------------------------------------------------------------------------------------------


def leave_behind(pid: int, relation: MemoryRelation, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a hot set as a worker of this process would."""
    with monkeypatch.context() as patched:
        patched.setattr(os, "getppid", lambda: pid)
        patched.setattr(hot_sets, "ANCESTORS_MAX", 0)
        open_one(relation).end()


@pytest.mark.parametrize("end", ["killed by us", "by itself"])
def test_nothing_is_left_of_a_child_of_a_benchmark(
    end: str, relation: MemoryRelation, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (places / "child.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(places))
    with running("child", {}, places / "log", temporary=places) as child:
        leave_behind(child.pid, relation, monkeypatch)
        assert len(states(places)) == 1
        if end == "by itself":
            os.kill(child.pid, signal.SIGKILL)
            assert child.failure() is not None
    assert not states(places)


def test_nothing_is_left_of_the_workers_of_a_cluster(
    relation: MemoryRelation, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster of processes that do nothing, in place of Spark's."""
    start = places / "bin" / "spark-class"
    start.parent.mkdir()
    start.write_text("#!/bin/sh\nexec sleep 60\n")
    start.chmod(0o700)
    monkeypatch.setattr(standalone_cluster, "pyspark", SimpleNamespace(__file__=str(places / "__init__.py")))
    monkeypatch.setattr(standalone_cluster, "_await", lambda *about: None)
    with standalone(places / "cluster", workers=2) as cluster:
        for pid in cluster.worker_pids:
            leave_behind(pid, relation, monkeypatch)
        cluster.lose_a_worker()
        assert len(states(places)) == 2
    assert not states(places)


# In a worker ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def products(tmp_path: Path) -> RelationHandle:
    numbers = np.arange(ROWS)
    table = pa.table({"id": numbers, "name": [f"the name of product {n}" for n in numbers.tolist()]})
    build_relation(table, key="id", out=tmp_path / "products")
    return open_handle(tmp_path / "products", None, None, verify=True)


def planned_to_share(handle: RelationHandle, **changed: Any) -> EnrichPlan:
    options = {"memory_bytes": 32 * MIB, "batch_rows": 2_000, "algorithm": "adaptive", "tasks": 1, "shuffle": "never"}
    return planned(handle.on(), **{**options, **changed})


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("memory_bytes", [MIB, 24 * MIB, 256 * MIB, 4096 * MIB])
def test_all_parts_together_are_the_memory(workers: int, memory_bytes: int, products: RelationHandle) -> None:
    plan = planned_to_share(products, workers=workers, memory_bytes=memory_bytes, batch_rows=10_000)
    parts = plan.parts_of(plan.lookups[0])
    total = parts.hot_bytes + workers * (parts.seat_bytes + parts.seatless_bytes)
    assert total <= memory_bytes <= total + workers
    assert parts.hot_bytes == 0 or parts.hot_bytes >= max(HOT_BYTES_MIN, 0.4 * memory_bytes)
    assert (parts.hot_bytes > 0) == (memory_bytes >= 24 * MIB)


def test_algorithms_of_the_papers_remember_for_themselves(products: RelationHandle) -> None:
    assert not planned_to_share(products, algorithm="cachejoin").shares_rows
    assert planned_to_share(products).shares_rows


def test_a_relation_that_fits_into_each_worker_is_not_shared(tmp_path: Path) -> None:
    build_relation(pa.table({"id": range(100)}), key="id", out=tmp_path / "small")
    assert not planned_to_share(open_handle(tmp_path / "small", None, None, verify=True)).shares_rows


def answered(plan: EnrichPlan, keys: np.ndarray) -> tuple[list[str], dict[str, int]]:
    (answer,) = worker.answers(plan)(iter([pa.array(keys)]))
    names = answer.field("c0").to_pylist()
    counts = answer.field("counts")[0].as_py()
    return names, {"hits": counts[position_of("hits")], "bytes_held": counts[BYTES_HELD]}


def test_a_worker_that_comes_later_answers_from_what_others_have_read(products: RelationHandle, places: Path) -> None:
    plan = planned_to_share(products)
    keys = np.random.default_rng(1).choice(ROWS, 2_000, replace=False)
    expected = [f"the name of product {n}" for n in keys.tolist()]
    for _ in range(12):
        answered(plan, np.random.default_rng(2).choice(ROWS, 2_000))
    assert answered(plan, keys)[0] == expected
    for begin in range(0, ROWS, 2_000):
        answered(plan, np.arange(begin, begin + 2_000))
    forget_worker()
    assert len(states(places)) == 1
    names, counts = answered(plan, keys)
    assert names == expected
    assert counts["hits"] > 1_500
    assert 0 < counts["bytes_held"] <= plan.memory_bytes


def test_a_worker_knows_what_reading_a_key_costs(products: RelationHandle) -> None:
    plan = planned_to_share(products)
    for seed in range(4):
        answered(plan, np.random.default_rng(seed).choice(ROWS, 2_000))
    (served,) = worker._served.values()
    remembered = served._lookups[0].driver.join.knowledge.remembered
    assert 0 < remembered.read_key_s < 0.01


def test_rows_of_an_older_version_are_never_put_out(products: RelationHandle, tmp_path: Path, places: Path) -> None:
    keys = np.arange(2_000)
    for number in range(4):
        for _ in range(3):
            answered(planned_to_share(open_handle(tmp_path / "products", None, None, verify=True)), keys)
        table = pa.table({"id": np.arange(ROWS), "name": [f"name {number} of product {n}" for n in range(ROWS)]})
        build_relation(table, key="id", out=tmp_path / "products")
        newest = planned_to_share(open_handle(tmp_path / "products", None, None, verify=True))
        for _ in range(3):
            assert answered(newest, keys)[0] == [f"name {number} of product {n}" for n in keys.tolist()]


def test_after_a_long_break_in_which_the_hot_set_was_removed_there_is_another(
    products: RelationHandle, places: Path
) -> None:
    plan = planned_to_share(products)
    answered(plan, np.arange(2_000))
    (state,) = states(places)
    assert remove_hot_set(state.parent)
    for _ in range(2):
        assert answered(plan, np.arange(2_000))[0][-1] == "the name of product 1999"
    assert states(places) == [state]


def test_a_task_that_fails_holds_nothing_that_others_wait_for(products: RelationHandle, places: Path) -> None:
    plan = planned_to_share(products)

    def broken() -> Iterator[pa.Array]:
        yield pa.array(np.arange(2_000))
        raise RuntimeError("the task is lost")

    with pytest.raises(RuntimeError, match="lost"):
        list(worker.answers(plan)(broken()))
    (served,) = worker._served.values()
    assert served._lookups[0]._hot is not None
    assert not served._lookups[0]._hot.is_open
