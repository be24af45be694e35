"""Whatever breaks while a stream is enriched, what is committed is what an undisturbed run commits, once.

Each scenario is a process of its own. What it has committed is read through Spark and compared with an undisturbed run
and with DuckDB.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import semistream as ss
from tests.support.oracle import assert_same_rows, duckdb_join
from tests.support.processes import run_script, start_script

SCRIPT = Path(__file__).parent / "scripts" / "stream_queries.py"
FILES, FILE_ROWS, FILES_PER_BATCH = 6, 2_000, 2
KEYS = 3_000
NEWEST = 4
"""The newest edition of a relation that is published anew while a query is down."""

MEMORY_BYTES = 16_000_000
WAIT_S = 100

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def master(rows_per_key: int, edition: int = 1) -> pa.Table:
    """Two of three keys that the stream asks for, and texts that name the edition."""
    keys = np.repeat(np.arange(0, KEYS, 3), rows_per_key)
    keys = np.concatenate([keys, keys + 1])
    texts = [f"edition {edition}, row {row} of key {key}" for row, key in enumerate(keys)]
    return pa.table({"id": keys, "text": texts, "edition": np.full(len(keys), edition)})


MASTERS = {"answers": master(1), "rows": master(2)}
"""By the way that rows take through Python: where keys repeat, whole rows must."""


def stream_file(number: int) -> pa.Table:
    """Some keys that are null, some that the relation lacks; `row` is a number across all files."""
    rng = np.random.default_rng(number)
    keys = pa.array(rng.integers(0, KEYS, FILE_ROWS), mask=rng.random(FILE_ROWS) < 0.05)
    return pa.table({"id": keys, "row": number * FILE_ROWS + np.arange(FILE_ROWS)})


def stream_files(first: int, end: int) -> pa.Table:
    return pa.concat_tables([stream_file(number) for number in range(first, end)])


class Scene:
    """A folder with the files of a stream and the relations it is enriched from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "input").mkdir()
        for way, rows in MASTERS.items():
            ss.build_relation(rows, key="id", out=folder / way)

    def add_files(self, first: int, end: int) -> None:
        """Add files to the stream; Spark reads older ones first."""
        for number in range(first, end):
            path = self.folder / "input" / f"{number}.parquet"
            pq.write_table(stream_file(number), self.folder / "file")
            os.utime(self.folder / "file", (1e9 + number, 1e9 + number))
            (self.folder / "file").rename(path)

    def query(self, name: str, way: str, fault: str = "", **options: Any) -> dict[str, Any]:
        """A query as the script takes it."""
        common = {"input": str(self.folder / "input"), "memory_bytes": MEMORY_BYTES, "fault": fault}
        return {"relation": str(self.folder / way), "out": str(self.folder / name), **common, **options}

    def run(self, *queries: dict[str, Any]) -> None:
        """Run queries to their end; each takes the way through Python that its relation is named after."""
        ways = run_script(SCRIPT, json.dumps(queries), log=self.folder / "log")
        assert ways == {query["out"]: Path(query["relation"]).name for query in queries}

    def run_until_killed(self, appear: list[Path], *queries: dict[str, Any]) -> None:
        """Start queries and kill everything that belongs to them once these files are there."""
        driver = start_script(SCRIPT, json.dumps(queries), log=self.folder / "log")
        deadline_s = time.monotonic() + WAIT_S
        try:
            while not all(path.exists() for path in appear):
                assert driver.poll() is None, (self.folder / "log").read_text(errors="replace")[-4000:]
                assert time.monotonic() < deadline_s, f"the queries did not come as far as {appear}"
                time.sleep(0.05)
        finally:
            kill_with_children(driver.pid)
            driver.wait()

    def committed(self, name: str) -> pa.Table:
        """What the query has committed."""
        return feather.read_table(self.folder / f"{name}.arrow")

    def struck(self, name: str) -> bool:
        """Whether the fault has happened."""
        return (self.folder / f"{name}.struck").exists()

    def leases(self, way: str) -> dict[int, str]:
        """The version that each batch of the only query was pinned to."""
        (folder,) = (self.folder / way / "leases").iterdir()
        return {int(lease.name): lease.read_text().strip() for lease in folder.iterdir() if lease.name.isdecimal()}


def kill_with_children(pid: int) -> None:
    process = psutil.Process(pid)
    for victim in (process, *process.children(recursive=True)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Queries in one process: undisturbed, with a worker killed, and with a task that fails, each in both ways."""
    scene = Scene(tmp_path_factory.mktemp("disturbed"))
    scene.add_files(0, FILES)
    faults = {"undisturbed": "", "killed": "worker killed", "retried": "task fails"}
    scene.run(*(scene.query(f"{name} {way}", way, fault) for way in MASTERS for name, fault in faults.items()))
    return scene


@pytest.mark.parametrize("way", MASTERS)
def test_an_undisturbed_run_commits_the_rows_of_duckdb(way: str, disturbed: Scene) -> None:
    expected = duckdb_join(stream_files(0, FILES), MASTERS[way], ["id"], ["id"])
    assert_same_rows(disturbed.committed(f"undisturbed {way}"), expected)
    assert not disturbed.struck(f"undisturbed {way}")


@pytest.mark.parametrize("way", MASTERS)
def test_a_killed_worker_costs_no_row_and_commits_none_twice(way: str, disturbed: Scene) -> None:
    assert disturbed.struck(f"killed {way}")
    assert_same_rows(disturbed.committed(f"killed {way}"), disturbed.committed(f"undisturbed {way}"))


@pytest.mark.parametrize("way", MASTERS)
def test_a_task_that_fails_behind_the_join_is_tried_again(way: str, disturbed: Scene) -> None:
    assert disturbed.struck(f"retried {way}")
    assert_same_rows(disturbed.committed(f"retried {way}"), disturbed.committed(f"undisturbed {way}"))


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    """Two queries whose driver was killed, the one between two batches and the other within one, then started again.

    Meanwhile the relation of the second was published anew, so often that the version it had read is an old one.
    """
    scene = Scene(tmp_path_factory.mktemp("restarted"))
    scene.add_files(0, 4)
    between, within = scene.query("between", "rows", idles=True), scene.query("within", "answers", "hangs")
    scene.run_until_killed([scene.folder / "between.idle", scene.folder / "within.struck"], between, within)
    assert scene.leases("answers") == {0: "v000001", 1: "v000001"}
    for edition in (2, 3, NEWEST):
        ss.build_relation(master(1, edition), key="id", out=scene.folder / "answers")
    scene.add_files(4, FILES)
    scene.run(scene.query("between", "rows"), scene.query("within", "answers"))
    return scene


def test_a_driver_killed_between_two_batches_goes_on_from_its_checkpoint(restarted: Scene) -> None:
    expected = duckdb_join(stream_files(0, FILES), MASTERS["rows"], ["id"], ["id"])
    assert_same_rows(restarted.committed("between"), expected)
    assert restarted.leases("rows") == dict.fromkeys(range(FILES // FILES_PER_BATCH), "v000001")


def test_a_batch_is_replayed_with_the_version_it_has_read_and_the_next_reads_the_newest(restarted: Scene) -> None:
    before = duckdb_join(stream_files(0, 4), MASTERS["answers"], ["id"], ["id"])
    after = duckdb_join(stream_files(4, FILES), master(1, NEWEST), ["id"], ["id"])
    assert_same_rows(restarted.committed("within"), pa.concat_tables([before, after]))
    assert restarted.leases("answers") == {0: "v000001", 1: "v000001", 2: f"v{NEWEST:06d}"}
