"""The pieces of `semistream bench`: its data, its results, and what it sees of processes and cgroups."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.bench import container as containers
from semistream.bench import processes, watch
from semistream.bench.container import Container, container
from semistream.bench.contend import as_many_as_needed
from semistream.bench.contenders import CONTENDERS, USUAL, contenders_named
from semistream.bench.page_cache import chill, warm
from semistream.bench.plots import draw_growth, draw_race, draw_soak
from semistream.bench.processes import can_be_seen, end_tree, held_bytes, open_files, resident_bytes, tree_of
from semistream.bench.results import Batch, Result, Setting, check_agreement
from semistream.bench.soak import Samples
from semistream.bench.workload import KEY, PRODUCTS, SALES, Workload
from semistream.clock import RealClock
from semistream.errors import BalanceBroken, EnvironmentUnfit, InvalidOption

needs_proc = pytest.mark.skipif(not can_be_seen(), reason="needs Linux")


def silent(what: str, done: int, total: int) -> None:
    pass


# Data


def test_all_forms_of_the_products_have_the_same_rows(tmp_path: Path) -> None:
    products = Workload(tmp_path, seed=3).products(2_000)
    table = pq.read_table(products.make("parquet", silent))
    assert table.schema.equals(PRODUCTS)
    assert table[KEY].to_pylist() == list(range(2_000))
    assert ss.relation(products.make("relation", silent)).info.row_count == 2_000
    with sqlite3.connect(products.make("sqlite", silent)) as connection:
        row = connection.execute("SELECT * FROM products WHERE product_id = 1234").fetchone()
    connection.close()
    (expected,) = table.slice(1234, 1).to_pylist()
    assert row == (*(str(value) if name == "listed_on" else value for name, value in expected.items()),)


def test_a_row_of_the_relation_has_about_97_bytes(tmp_path: Path) -> None:
    relation = ss.relation(Workload(tmp_path, seed=1).products(5_000).make("relation", silent))
    assert 92 <= relation.info.row_bytes_mean <= 102


def test_sales_ask_for_products_that_are_there_in_the_order_of_their_batches(tmp_path: Path) -> None:
    sales = Workload(tmp_path, seed=3).sales(500, batch_rows=90, skew=1.0, batches=3, files_per_batch=4)
    files = sorted(sales.make(silent).iterdir(), key=lambda path: path.stat().st_mtime)
    tables = [pq.read_table(path) for path in files]
    assert len(files) == 12
    assert all(table.schema.equals(SALES) for table in tables)
    assert np.concatenate([table["sale_id"].to_numpy() for table in tables]).tolist() == list(range(270))
    keys = np.concatenate([table[KEY].to_numpy() for table in tables])
    assert (keys.min() >= 0, keys.max() < 500) == (True, True)
    assert np.bincount(keys).argmax() != 0, "the most popular product stands at the start"


def test_data_is_made_once_and_an_interrupted_attempt_is_replaced(tmp_path: Path) -> None:
    workload = Workload(tmp_path, seed=3)
    (tmp_path / "sales-empty-2x1-seed3.unfinished").mkdir()
    first = workload.sales(500, 0, 1.0, 2, 1).make(silent)
    made_ns = first.stat().st_mtime_ns
    assert [pq.read_table(path).num_rows for path in first.iterdir()] == [0, 0]
    assert workload.sales(500, 0, 1.0, 2, 1).make(silent).stat().st_mtime_ns == made_ns


def test_files_can_be_put_into_the_cache_and_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"x" * 10_000)
    for path in (tmp_path, tmp_path / "folder" / "file"):
        warm(path)
        chill(path)


# Contenders


def test_the_usual_contenders_are_those_that_users_know_by_name() -> None:
    assert set(USUAL) == {
        "spark-sort-merge",
        "spark-shuffled-hash",
        "spark-broadcast",
        "spark-broadcast-persisted",
        "spark-broadcast-stream",
        "spark-semi-join",
        "lru-by-hand",
        "empty",
        "nothing",
        "semistream",
    }
    assert set(CONTENDERS) - set(USUAL) == {"semistream-inlj", "semistream-three"}


def test_a_contender_is_taken_once_and_an_unknown_one_gets_a_hint() -> None:
    assert [one.name for one in contenders_named(["semistream", "empty", "semistream"])] == ["semistream", "empty"]
    with pytest.raises(InvalidOption, match="did you mean 'spark-broadcast'"):
        contenders_named(["spark-brodcast"])


# Results


def result(name: str = "semistream", *batches: tuple[float, int, int], **changes: object) -> Result:
    facts = {
        "contender": name,
        "setting": Setting(1_000, 100, 1.0),
        "status": "ok",
        "note": "",
        "is_compared": True,
        "batches": tuple(Batch(*batch) for batch in batches),
        "warm_up_batches": 1,
        "checked_batches": 4,
        "peak_bytes": None,
    }
    return Result(**{**facts, **changes})  # type: ignore[arg-type]


def test_medians_leave_the_warm_up_out() -> None:
    answer = result("a", (9.0, 100, 1), (2.0, 100, 2), (1.0, 100, 3), (4.0, 100, -7)).as_json()
    assert (answer["seconds_per_batch"], answer["rows_per_second"]) == (2.0, 50.0)
    assert answer["checksum"] == "ffffffffffffffff"


def test_a_contender_without_measured_batches_has_no_speed_and_no_checksum() -> None:
    answer = result("a", (9.0, 100, 1), status="died", note="exit code 1").as_json()
    assert [answer[name] for name in ("seconds_per_batch", "rows_per_second", "checksum")] == [None, None, None]
    assert answer["note"] == "exit code 1"


def test_contenders_agree_as_far_as_they_came() -> None:
    whole, stopped = result("a", (1, 5, 1), (1, 5, 2)), result("b", (1, 5, 1), status="stopped")
    check_agreement([whole, stopped, result("nothing", (1, 5, 99), (1, 5, 99), is_compared=False)])


@pytest.mark.parametrize("other", [(1.0, 5, 3), (1.0, 6, 2)], ids=["checksum", "rows"])
def test_contenders_that_disagree_are_named_with_the_batch(other: tuple[float, int, int]) -> None:
    with pytest.raises(BalanceBroken, match=r"batch 1; given: a: 5 rows, 0+2, b: "):
        check_agreement([result("a", (1, 5, 1), (1, 5, 2)), result("b", (1, 5, 1), other)])


def test_figures_show_also_those_that_died(tmp_path: Path) -> None:
    results = [result("semistream", (1, 5, 1), (1, 5, 2)), result("spark-broadcast", status="died"), result("empty")]
    assert draw_race(results, tmp_path / "figures" / "race.png").stat().st_size > 1_000
    assert draw_growth(results, tmp_path / "figures" / "growth.png").stat().st_size > 1_000
    assert draw_soak([0.0, 1.0], {"files": [3, 4], "disk_bytes": [0, 0]}, tmp_path / "soak.png").stat().st_size > 1_000


# Soak


def test_growth_is_seen_and_a_start_is_not() -> None:
    samples = Samples()
    for i in range(300):
        start = max(0, 50 - i) * 1e6
        samples.add(i * 6.0, {"workers_bytes": 500e6 - start + i % 7 * 1e6, "disk_bytes": 1e9 + i * 1e6, "files": 40})
    assert {name: one.is_flat for name, one in samples.trends().items()} == {
        "workers_bytes": True,
        "disk_bytes": False,
        "files": True,
    }
    assert samples.trends()["disk_bytes"].per_hour == pytest.approx(600e6)


# Processes and cgroups


@needs_proc
def test_a_tree_of_processes_is_seen_and_ended() -> None:
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(7, flush=True); input()'])"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "7\n"
        pids = tree_of(process.pid)
        assert len(pids) == 2
        assert all(held_bytes(pid) > 100_000 and open_files(pid) >= 3 for pid in pids)
        assert all(resident_bytes(pid) >= held_bytes(pid) for pid in pids)
        end_tree(process.pid)
    assert process.returncode < 0
    assert tree_of(process.pid) == []


@needs_proc
def test_the_end_of_a_tree_is_awaited_and_nobody_need_have_asked_for_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed: list[int] = []
    pauses: list[float] = []

    def paused(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            process.kill()
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    with subprocess.Popen(["sleep", "60"]) as process, monkeypatch.context() as patched:
        patched.setattr(processes, "os", SimpleNamespace(kill=lambda pid, how: killed.append(pid)))
        patched.setattr(processes, "time", SimpleNamespace(sleep=paused))
        end_tree(process.pid)
        process.kill()
    assert killed == [process.pid]
    assert len(pauses) == 3
    assert process.returncode == -signal.SIGKILL


@needs_proc
def test_what_processes_hold_together_is_added_up_only_when_more_is_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    """To add it up goes through all pages that are mapped, in the time of whoever is watched."""
    resident, looks = iter([100, 200, 201, 150, 300]), []
    monkeypatch.setattr(watch, "tree_of", lambda pid: [pid])
    monkeypatch.setattr(watch, "resident_bytes", lambda pid: next(resident))
    monkeypatch.setattr(watch, "held_bytes", lambda pid: looks.append(pid) or 10 * len(looks))
    watched = watch.Watch(1, 1.0, RealClock())
    peaks = []
    for _ in range(5):
        watched._look(SimpleNamespace(pid=7))
        peaks.append(watched.peak_bytes)
    assert peaks == [10, 20, 20, 20, 30]


@pytest.mark.parametrize("kind", ["v1", "v2"])
def test_a_container_is_a_cgroup_with_a_limit(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "LEAVE_TRIES", 0)  # a plain folder with files in it cannot be removed
    if kind == "v1":
        (tmp_path / "memory").mkdir()
    else:
        (tmp_path / "cgroup.subtree_control").write_text("cpu")
    with container("race", 4096, tmp_path) as made:
        limit = "memory.limit_in_bytes" if kind == "v1" else "memory.max"
        assert (made.path / limit).read_text() == "4096"
        made.enter()
        assert (made.path / "cgroup.procs").read_text() == str(os.getpid())
        (made.path / "cgroup.procs").write_text("")  # whoever is left inside at the end is killed
        events = "memory.oom_control" if kind == "v1" else "memory.events"
        (made.path / events).write_text("low 0\noom_kill 2\n")
        assert Container(made.path, 4096).kills() == 2


def test_where_there_are_no_cgroups_an_error_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfit, match=r"allowed: Linux with memory cgroups, as root"):
        with container("race", 4096, tmp_path / "nowhere"):
            pass


def test_as_many_batches_are_measured_as_asked_for_once_the_warm_up_has_taken_its_time() -> None:
    seconds = (3, 1, 1, 1, 1, 1, 1)
    batches: list[Any] = [
        SimpleNamespace(batchId=i, durationMs={"triggerExecution": 1000 * s}) for i, s in enumerate(seconds)
    ]
    assert len(list(as_many_as_needed(iter(batches), 2, 5.0, 2))) == 5
    assert len(list(as_many_as_needed(iter(batches), 2, 0.0, 2))) == 4
    assert len(list(as_many_as_needed(iter(batches), 2, 99.0, 2))) == 7
