"""Rows that all workers of an executor remember together: they outlive the workers, and nothing of them is left."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from semistream.lab.workloads.zipf import Shuffle, Zipf
from tests.support.frames import observed
from tests.support.oracle import assert_same_rows, duckdb_join
from tests.support.processes import hot_set_files, python_workers, start_script

SCRIPT = Path(__file__).parent / "scripts" / "left_behind.py"
KEYS, FILE_ROWS, FILES_PER_BATCH = 200_000, 25_000, 2
MEMORY = "32MB"
WAIT_S = 60

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def master(edition: int = 1, rows_per_key: int = 1) -> pa.Table:
    keys = np.repeat(np.arange(KEYS // rows_per_key), rows_per_key)
    texts = [f"edition {edition}, row {row}" for row in range(len(keys))]
    return pa.table({"id": keys, "text": texts, "edition": np.full(len(keys), edition)})


class Stream:
    """A folder of files; a few of them at a time become a micro-batch."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session, self.folder = session, folder
        (folder / "in").mkdir(parents=True)
        self._count = 0
        self._rng = np.random.default_rng(7)

    def keys(self) -> npt.NDArray[np.int64]:
        keys: npt.NDArray[np.int64] = Shuffle(KEYS, seed=1)(Zipf(KEYS, exponent=1.0).sample(self._rng, FILE_ROWS))
        return keys

    def send(self, batches: int = 1) -> pa.Table:
        """Add the files of so many micro-batches; return their rows."""
        sent = []
        for _ in range(batches * FILES_PER_BATCH):
            rows = self._count * FILE_ROWS + np.arange(FILE_ROWS)
            sent.append(pa.table({"n": rows, "id": self.keys()}))
            pq.write_table(sent[-1], self.folder / "half a file")
            os.utime(self.folder / "half a file", (1e9 + self._count,) * 2)
            (self.folder / "half a file").rename(self.folder / "in" / f"{self._count:03d}.parquet")
            self._count += 1
        return pa.concat_tables(sent)

    def start(self, relation: Path, **options: Any) -> StreamingQuery:
        source = self.session.readStream.schema("n long, id long").option("maxFilesPerTrigger", FILES_PER_BATCH)
        # Two files are two tasks.
        enriched = ss.enrich(source.parquet(str(self.folder / "in")), ss.relation(relation), on="id", **options)
        writer = enriched.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        return writer.start(str(self.folder / "out"))

    def written(self) -> pa.Table:
        return self.session.read.parquet(str(self.folder / "out")).toArrow()


@pytest.fixture
def stream(classic_session: SparkSession, tmp_path: Path) -> Stream:
    return Stream(classic_session, tmp_path / "stream")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """What a query has remembered is gone once it has ended."""
    yield
    deadline_s = time.monotonic() + WAIT_S
    while hot_set_files() and time.monotonic() < deadline_s:
        time.sleep(0.1)
    assert hot_set_files() == []


def hit_rates(query: StreamingQuery, name: str = "enrich_products") -> list[float]:
    reports = [observed(progress, name) for progress in query.recentProgress if progress.numInputRows]
    return [report["hits"] / report["rows_in"] for report in reports]


def kill_workers() -> int:
    killed = python_workers()
    for pid in killed:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(killed)


def test_after_all_workers_were_killed_the_hit_rate_is_soon_what_it_was(stream: Stream, tmp_path: Path) -> None:
    ss.build_relation(master(), key="id", out=tmp_path / "products")
    sent = [stream.send(8)]
    query = stream.start(tmp_path / "products", memory=MEMORY)
    try:
        query.processAllAvailable()
        assert kill_workers() >= 1
        sent.append(stream.send(3))
        query.processAllAvailable()
        rates = hit_rates(query)
        assert hot_set_files()
        peaks = [observed(p, "enrich_products")["bytes_held"] for p in query.recentProgress if p.numInputRows]
    finally:
        query.stop()
    print([round(rate, 3) for rate in rates])
    before, after = rates[7], rates[9]
    assert after > 0.98 * before
    assert max(peaks) <= 32_000_000
    assert_same_rows(stream.written(), duckdb_join(pa.concat_tables(sent), master(), ["id"], ["id"]))


def test_queries_side_by_side_with_relations_that_change_put_out_the_right_rows(
    classic_session: SparkSession, tmp_path: Path
) -> None:
    masters = {"products": master(), "offers": master(rows_per_key=2)}
    streams = {name: Stream(classic_session, tmp_path / f"stream of {name}") for name in masters}
    queries, expected = {}, dict.fromkeys(masters, pa.table({}))
    for name, table in masters.items():
        ss.build_relation(table, key="id", out=tmp_path / name)
        sent = streams[name].send(3)
        expected[name] = duckdb_join(sent, table, ["id"], ["id"])
        queries[name] = streams[name].start(tmp_path / name, memory=MEMORY)
    try:
        for query in queries.values():
            query.processAllAvailable()
        for edition in (2, 3):
            newer = master(edition)
            ss.build_relation(newer, key="id", out=tmp_path / "products")
            sent = streams["products"].send(2)
            queries["products"].processAllAvailable()
            joined = duckdb_join(sent, newer, ["id"], ["id"])
            expected["products"] = pa.concat_tables([expected["products"], joined])
        # One version at a time.
        versions = {path.parent for path in hot_set_files() if path.name == "state"}
        assert len(versions) == len(masters)
    finally:
        for query in queries.values():
            query.stop()
    for name, one in streams.items():
        assert_same_rows(one.written(), expected[name])


@pytest.mark.parametrize("kind", ["plain", "foreachBatch", "lookup"])
def test_nothing_is_left_of_a_query_whichever_session_it_was_started_by(
    kind: str, classic_session: SparkSession, tmp_path: Path
) -> None:
    """The one of the rows that `foreachBatch` gets is none that anybody has started anything by."""
    ss.build_relation(master(), key="id", out=tmp_path / "products")
    products = ss.relation(tmp_path / "products")
    # A column function knows the active session only, which is that of the tests.
    session = classic_session if kind == "lookup" else classic_session.newSession()
    rows = session.readStream.format("rate").option("rowsPerSecond", 400_000).load()
    keys = rows.selectExpr(f"value % {KEYS} AS id")

    def write(batch: DataFrame, batch_id: int) -> None:
        ss.enrich(batch, products, on="id", memory=MEMORY).write.format("noop").mode("overwrite").save()

    if kind == "plain":
        query = ss.enrich(keys, products, on="id", memory=MEMORY).writeStream.format("noop").start()
    elif kind == "lookup":
        query = keys.select(ss.lookup(products, "id", memory=MEMORY)).writeStream.format("noop").start()
    else:
        query = keys.writeStream.foreachBatch(write).start()
    try:
        deadline_s = time.monotonic() + WAIT_S
        while not hot_set_files():
            assert time.monotonic() < deadline_s and query.isActive
            time.sleep(0.1)
    finally:
        query.stop()


def wait_for(path: Path, log: Path, process: Any) -> None:
    deadline_s = time.monotonic() + 2 * WAIT_S
    while not path.exists():
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        assert time.monotonic() < deadline_s, "the query did not come to its end"
        time.sleep(0.1)


def test_what_a_killed_application_left_is_removed_by_the_next_and_one_that_ends_leaves_nothing(tmp_path: Path) -> None:
    ss.build_relation(master(), key="id", out=tmp_path / "products")
    ready, log = tmp_path / "ready", tmp_path / "log"
    process = start_script(SCRIPT, tmp_path / "products", ready, log=log)
    try:
        wait_for(ready, log, process)
        left = hot_set_files(process.pid)
    finally:
        driver = psutil.Process(process.pid)
        for victim in (driver, *driver.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        process.wait()
    assert left and all(path.exists() for path in left)
    again = tmp_path / "again"
    process = start_script(SCRIPT, tmp_path / "products", again, "end", log=log)
    wait_for(again, log, process)
    own = hot_set_files(process.pid)
    assert process.wait(WAIT_S) == 0
    assert not any(path.exists() for path in (*left, *own))


@pytest.mark.parametrize("kind", ["streaming", "foreach"])
def test_an_application_that_ends_in_the_middle_of_a_query_leaves_nothing(kind: str, tmp_path: Path) -> None:
    ss.build_relation(master(), key="id", out=tmp_path / "products")
    ready, log = tmp_path / "ready", tmp_path / "log"
    process = start_script(SCRIPT, tmp_path / "products", ready, kind, log=log)
    wait_for(ready, log, process)
    own = hot_set_files(process.pid)
    assert own
    executor = own[0].parents[2]
    assert process.wait(WAIT_S) == 0
    assert "still running: 0" in log.read_text(errors="replace")
    assert not [path for path in executor.rglob("*") if path.is_file()]


def test_an_executor_that_is_killed_leaves_nothing_where_its_workers_are_forked_from_our_process(
    tmp_path: Path,
) -> None:
    ss.build_relation(master(), key="id", out=tmp_path / "products")
    ready, log = tmp_path / "ready", tmp_path / "log"
    process = start_script(SCRIPT, tmp_path / "products", ready, "configured", log=log)
    try:
        wait_for(ready, log, process)
        left = hot_set_files(process.pid)
        assert left and all(path.exists() for path in left)
    finally:
        driver = psutil.Process(process.pid)
        for victim in (driver, *(child for child in driver.children(recursive=True) if child.name() == "java")):
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        process.wait()
    deadline_s = time.monotonic() + WAIT_S
    while any(path.exists() for path in left):
        assert time.monotonic() < deadline_s, "the hot set of the dead executor is still there"
        time.sleep(0.1)
