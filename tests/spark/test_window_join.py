"""`window_join` on Spark: the same pairs as DuckDB or brute force, over restarts and replays, and what it reports."""

from __future__ import annotations

import datetime
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from semistream.budget import parse_bytes
from semistream.spark import window_worker
from semistream.spark.window_join import window_join
from semistream.window.windows import arrivals, rows, seconds
from tests.support.frames import frame_of, observed

pytestmark = pytest.mark.long

FIRST_FILE_S = 1_700_000_000
START = datetime.datetime(2024, 5, 1, 12)
COLUMNS = "n long, k string, x double, ts timestamp_ntz"


def table(first: int, keys: list[str | None], at_s: list[float], x: list[float] | None = None) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(first, first + len(keys)), pa.int64()),
            "k": pa.array(keys, pa.string()),
            "x": pa.array(x or [float(i) for i in range(len(keys))], pa.float64()),
            "ts": pa.array([START + datetime.timedelta(seconds=s) for s in at_s], pa.timestamp("us")),
        }
    )


A = [
    table(0, ["ant", "bee", None, "cow"], [0, 1, 1, 2]),
    table(4, ["ant", "ant", "bee"], [5, 5, 6]),
    table(7, ["cow"], [30]),
    table(8, ["ant", "bee", "cow", "dog"], [31, 32, 33, 33]),
]
B = [
    table(100, ["bee", "ant", None], [0, 2, 2]),
    table(103, ["ant", "dog"], [4, 9]),
    table(105, [], []),
    table(105, ["cow", "cow", "ant"], [30, 34, 31]),
]
"""Batches of both streams: equal times, nulls, a batch in which one of them is silent."""


class Streams:
    """Two folders of files, a file of each a micro-batch, and a query that writes to a third."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self.sent = 0
        for side in "ab":
            (folder / side).mkdir()

    def send(self, *batches: tuple[pa.Table, pa.Table]) -> None:
        for batch in batches:
            for side, rows_ in zip("ab", batch, strict=True):
                unfinished = self.folder / "half a file"
                pq.write_table(rows_, unfinished)
                os.utime(unfinished, (FIRST_FILE_S + self.sent,) * 2)
                unfinished.rename(self.folder / side / f"{self.sent:03d}.parquet")
            self.sent += 1

    def read(self, side: str) -> DataFrame:
        source = self.session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return source.parquet(str(self.folder / side))

    def joined(self, **options: Any) -> DataFrame:
        return window_join(
            self.read("a"),
            self.read("b"),
            prefix_b="b_",
            memory="8MB",
            state=(self.folder / "state").as_uri(),
            **options,
        )

    def run(self, df: DataFrame) -> list[Any]:
        """Everything there is, to the end; returns the progress report of each micro-batch that had rows."""
        writer = df.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        query: StreamingQuery = writer.trigger(availableNow=True).start(str(self.folder / "out"))
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress.numInputRows]

    def written(self) -> Counter[Any]:
        found = self.session.read.parquet(str(self.folder / "out")).select("n", "b_n").toArrow()
        return Counter(zip(found["n"].to_pylist(), found["b_n"].to_pylist(), strict=True))


@pytest.fixture
def streams(classic_session: SparkSession, tmp_path: Path) -> Streams:
    return Streams(classic_session, tmp_path)


@pytest.fixture
def streams_anywhere(session: SparkSession, tmp_path: Path) -> Streams:
    """On classic Spark, then on Spark Connect."""
    return Streams(session, tmp_path)


BATCHES = list(zip(A, B, strict=True))
# In one piece: Spark makes no rows of what follows an empty one.
ALL_A, ALL_B = pa.concat_tables(A).combine_chunks(), pa.concat_tables(B).combine_chunks()


def by_duckdb(condition: str, how: str = "") -> Counter[Any]:
    with duckdb.connect() as connection:
        connection.register("a", ALL_A)
        connection.register("b", ALL_B)
        found = connection.sql(f"select a.n, b.n from a {how} join b on {condition}").fetchall()
    return Counter(found)


TIMES = "a.ts - b.ts between interval (-5) seconds and interval 5 seconds"


def test_a_time_window_of_equal_keys_has_the_pairs_of_duckdb(streams_anywhere: Streams) -> None:
    streams = streams_anywhere
    streams.send(*BATCHES)
    reports = streams.run(streams.joined(on="k", within=seconds(5), time="ts", partitions=2))
    expected = by_duckdb(f"a.k = b.k and {TIMES}")
    assert streams.written() == expected
    metrics = [observed(report, "window_join") for report in reports]
    assert sum(m["pairs"] for m in metrics) == sum(m["rows_out"] for m in metrics) == expected.total()
    for m, report, (a, b) in zip(metrics, reports, BATCHES, strict=True):
        assert observed(report, "window_join_in") == {"rows_in_a": a.num_rows, "rows_in_b": b.num_rows}
        assert (m["rows_in_a"], m["rows_in_b"]) == (a.num_rows, b.num_rows)
        assert m["null_keys"] == a["k"].null_count + b["k"].null_count
        assert m["parallelism"] == 2
        assert {m["index_a"], m["index_b"]} <= {"scan", "hash", "several"}
        assert m["late"] == m["shed"] == m["probes_skipped"] == m["unmatched"] == 0
        assert 0 < m["bytes_held"] <= m["budget"] == parse_bytes("8MB")


def test_a_query_that_is_stopped_goes_on_with_its_windows(streams_anywhere: Streams) -> None:
    streams = streams_anywhere
    streams.send(*BATCHES[:2])
    streams.run(streams.joined(on="k", within=seconds(5), time="ts", partitions=2))
    streams.send(*BATCHES[2:])
    # How many partitions there are is read from the state.
    streams.run(streams.joined(on="k", within=seconds(5), time="ts"))
    assert streams.written() == by_duckdb(f"a.k = b.k and {TIMES}")


def test_a_batch_that_is_replayed_gives_the_same_rows(streams: Streams) -> None:
    options: dict[str, Any] = {"on": "k", "window_a": rows(3), "window_b": rows(2), "order_by": "n"}
    streams.send(*BATCHES)
    streams.run(streams.joined(**options))
    before = streams.written()
    newest = max((streams.folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (newest, newest.with_name(f".{newest.name}.crc")):
        path.unlink(missing_ok=True)
    # The sink remembers which batches it has, so the replayed one must go elsewhere to be seen.
    log = streams.folder / "out" / "_spark_metadata"
    for path in (log / newest.name, log / f".{newest.name}.crc"):
        path.unlink(missing_ok=True)
    streams.run(streams.joined(**options))
    assert streams.written() == before


def test_a_killed_worker_costs_no_row_and_puts_none_out_twice(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, mark = window_worker.rows, str(streams.folder / "killed")

    def rows_of_a_victim(*arguments: Any) -> Any:
        body = real(*arguments)

        def run(batches: Any) -> Any:
            import os
            import signal

            from pyspark import TaskContext

            for output in body(batches):
                yield output
                if TaskContext.get().getLocalProperty("streaming.sql.batchId") == "1" and not os.path.exists(mark):
                    os.mkdir(mark)
                    os.kill(os.getpid(), signal.SIGKILL)

        return run

    monkeypatch.setattr(window_worker, "rows", rows_of_a_victim)
    streams.send(*BATCHES)
    streams.run(streams.joined(on="k", within=seconds(5), time="ts", partitions=2))
    assert Path(mark).exists()
    assert streams.written() == by_duckdb(f"a.k = b.k and {TIMES}")


def test_left_puts_rows_out_alone_when_they_have_left(streams: Streams) -> None:
    far = table(200, ["end"], [1000]), table(300, ["end"], [1000])
    streams.send(*BATCHES, far)
    reports = streams.run(streams.joined(on="k", within=seconds(5), time="ts", how="left", partitions=1))
    expected = by_duckdb(f"a.k = b.k and {TIMES}", "left") + Counter([(200, 300)])
    assert streams.written() == expected
    alone = sum(count for (_, b), count in expected.items() if b is None)
    assert sum(observed(report, "window_join")["unmatched"] for report in reports) == alone


def count_window_pairs(n_a: int, n_b: int) -> Counter[Any]:
    """Pairs of equal keys, each with the last rows of the other stream, in the order of `n` within a batch."""
    pairs: Counter[Any] = Counter()
    accepted: tuple[list[Any], list[Any]] = [], []
    for batch in BATCHES:
        both = [(row["n"], side, row["k"]) for side in (0, 1) for row in batch[side].to_pylist()]
        for n, side, k in sorted(both):
            window = accepted[1 - side][-(n_b if side == 0 else n_a) :]
            pairs.update((n, m) if side == 0 else (m, n) for m, other in window if k is not None and k == other)
            accepted[side].append((n, k))
    return pairs


def test_count_windows_are_joined_by_one_task_that_says_so(streams: Streams, caplog: pytest.LogCaptureFixture) -> None:
    streams.send(*BATCHES)
    with caplog.at_level(logging.WARNING):
        df = streams.joined(on="k", window_a=rows(4), window_b=rows(2), order_by="n")
    assert "joined by one task at a time: a window that counts rows" in caplog.text
    reports = streams.run(df)
    assert streams.written() == count_window_pairs(4, 2)
    assert {observed(report, "window_join")["parallelism"] for report in reports} == {1}


def test_arrivals_and_a_residual_condition(streams: Streams) -> None:
    streams.send(*BATCHES)
    streams.run(streams.joined(condition="a.k = b.k AND a.n != 5", within=arrivals(1000), order_by="n"))
    assert streams.written() == by_duckdb("a.k = b.k and a.n != 5")


def test_a_band_is_joined_within_time(streams: Streams) -> None:
    streams.send(*BATCHES)
    streams.run(streams.joined(condition="abs(a.x - b.x) <= 1.5", within=seconds(5), time="ts"))
    assert streams.written() == by_duckdb(f"abs(a.x - b.x) <= 1.5 and {TIMES}")


def test_rows_accepted_in_one_batch_meet_whatever_their_own_times(streams: Streams) -> None:
    streams.send((pa.concat_tables(A), pa.concat_tables(B)))
    streams.run(streams.joined(on="k", within=seconds(3600)))
    assert streams.written() == by_duckdb("a.k = b.k")


def test_windows_of_single_keys_are_shared_out(streams: Streams) -> None:
    streams.send(*BATCHES)
    reports = streams.run(
        streams.joined(on="k", window_a=rows(100), window_b=rows(100), order_by="n", per_key=True, partitions=2)
    )
    assert streams.written() == by_duckdb("a.k = b.k")
    assert {observed(report, "window_join")["parallelism"] for report in reports} == {2}


def test_batch_frames_need_no_state(session: SparkSession) -> None:
    a, b = frame_of(session, ALL_A), frame_of(session, ALL_B)
    joined = window_join(a, b, on="k", within=seconds(5), time="ts", how="left", prefix_b="b_")
    found = joined.select("n", "b_n").toArrow()
    pairs = Counter(zip(found["n"].to_pylist(), found["b_n"].to_pylist(), strict=True))
    assert pairs == by_duckdb(f"a.k = b.k and {TIMES}", "left")
    assert joined.columns == ["n", "k", "x", "ts", "b_n", "b_x", "b_ts"]


def test_rows_without_a_key_are_spread_over_all_tasks(classic_session: SparkSession) -> None:
    count = 400
    whole = pa.table({"k": pa.nulls(count, pa.string()), "n": range(count)})
    a, b = frame_of(classic_session, whole), frame_of(classic_session, whole.slice(0, 0))
    joined = window_join(a, b, on="k", within=seconds(5), how="left", prefix_b="b_", partitions=4)
    assert joined.count() == count
    per_task = joined.groupBy(F.spark_partition_id()).count().toArrow()["count"].to_pylist()
    assert len(per_task) == 4
    assert max(per_task) < count / 2


def test_maps_anywhere_inside_a_row_are_no_obstacle(classic_session: SparkSession) -> None:
    rows_ = "stack(2, 1, map('x', 1), 2, map('y', 2)) as (n, m)"
    nested = ["n", "m", "struct(m as inner, n as k) as s", "array(m, m) as l", "map('o', m) as deep"]
    a = classic_session.range(1).selectExpr(rows_).selectExpr(*nested)
    joined = window_join(a, a, on="n", window_a=rows(5), window_b=rows(5), order_by="n", prefix_b="b_")
    assert sorted(row["s"]["inner"].popitem() for row in joined.collect()) == [("x", 1), ("y", 2)]


def test_a_sample_carries_its_weights(classic_session: SparkSession) -> None:
    count = 4_000
    whole = pa.table({"k": [i % 200 for i in range(count)], "n": range(count)})
    a, b = frame_of(classic_session, whole), frame_of(classic_session, whole)
    options: dict[str, Any] = {"on": "k", "within": seconds(5), "prefix_b": "b_", "memory": "200kB", "shed": "sample"}
    found = window_join(a, b, partitions=1, **options).toArrow()
    estimate = sum(sample["weight"] for sample in found["sample"].to_pylist())
    assert found.num_rows < 80_000
    assert estimate == pytest.approx(80_000, rel=0.2)
