"""`pcsrj` on Spark: each hash partition of the relation is joined in a task of its own, which reads nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import semistream as ss
from semistream.errors import InvalidOption
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.handle import RelationHandle
from semistream.relations.partitioned import partition_of
from tests.support.frames import assert_same_table, frame_of, observed
from tests.support.oracle import assert_same_rows, duckdb_join

pytestmark = pytest.mark.long

PARTITIONS = 5
Indexed = Callable[..., RelationHandle]


@pytest.fixture
def indexed(tmp_path: Path) -> Indexed:
    """A function that puts a table on disk in hash partitions, and opens it."""

    def build(table: pa.Table, key: str | list[str] = "id", partitions: int = PARTITIONS, **options: Any) -> Any:
        ss.build_relation(table, key=key, out=tmp_path / "master", partitions=partitions)
        return ss.relation(tmp_path / "master", **options)

    return build


def master_of(repeats: int) -> pa.Table:
    return pa.table({"id": np.repeat(np.arange(200), repeats), "name": [f"n{i}" for i in range(200 * repeats)]})


def stream_of(seed: int, rows: int = 500) -> pa.Table:
    """Keys that are there, keys that are not, and nulls."""
    rng = np.random.default_rng(seed)
    return pa.table({"id": pa.array(rng.integers(0, 250, rows), mask=rng.random(rows) < 0.1), "row": range(rows)})


@pytest.mark.parametrize("on_miss", ["null", "drop"])
@pytest.mark.parametrize("repeats", [1, 3], ids=["unique", "repeated"])
def test_the_rows_are_those_of_any_other_join(
    session: SparkSession, indexed: Indexed, repeats: int, on_miss: str
) -> None:
    stream, master = stream_of(1), master_of(repeats)
    df = frame_of(session, stream, partitions=3)
    enriched = ss.enrich(df, indexed(master), algorithm="pcsrj", memory="16MB", on_miss=on_miss)
    assert_same_table(
        enriched, duckdb_join(stream, master, ["id"], ["id"], how="left" if on_miss == "null" else "inner")
    )


def test_keys_of_several_columns_and_types_find_their_partition(session: SparkSession, indexed: Indexed) -> None:
    rng = np.random.default_rng(2)
    master = pa.table({"k": [f"w{i // 7}" for i in range(70)], "l": [i % 7 for i in range(70)], "v": range(70)})
    stream = pa.table(
        {
            "the word": [f"w{i}" for i in rng.integers(0, 12, 300)],
            "n": pa.array(rng.integers(0, 8, 300), pa.int16(), mask=rng.random(300) < 0.1),
        }
    )
    relation = indexed(master, ["k", "l"]).on("the word", "n")
    enriched = ss.enrich(frame_of(session, stream), relation, algorithm="pcsrj", memory="16MB")
    assert_same_table(enriched, duckdb_join(stream, master, ["the word", "n"], ["k", "l"]))


def test_each_partition_is_joined_in_a_task_of_its_own(classic_session: SparkSession, indexed: Indexed) -> None:
    stream = stream_of(3).filter(pa.compute.is_valid(pa.compute.field("id")))
    enriched = ss.enrich(frame_of(classic_session, stream), indexed(master_of(1)), algorithm="pcsrj", memory="16MB")
    assert enriched.rdd.getNumPartitions() == PARTITIONS
    placed = enriched.select("id", F.spark_partition_id().alias("task")).toArrow()
    assert placed["task"].to_pylist() == partition_of(placed["id"].to_numpy(), PARTITIONS).tolist()


def test_a_task_reads_its_own_partition_only(classic_session: SparkSession, indexed: Indexed) -> None:
    handle = indexed(master_of(1))
    # Every page but those of one partition is spoilt; whoever touches one is told so.
    directory = RelationDirectory(handle.path)
    stored = ArrowFileRelation(directory, 1)
    sound = 2
    pages, first_pages = stored._file.index, [*directory.manifest(1).partition_first_pages, stored.segment_count]
    content = bytearray(directory.data_path(1).read_bytes())
    for page in set(range(stored.segment_count)) - set(range(first_pages[sound], first_pages[sound + 1])):
        content[int(pages.offset[page] + pages.length[page] // 2)] ^= 1
    directory.data_path(1).write_bytes(content)
    handle = ss.relation(handle.path, verify=False)

    keys = np.arange(250)
    of_sound = partition_of(keys, PARTITIONS) == sound
    stream = pa.table({"id": keys[of_sound]})
    enriched = ss.enrich(frame_of(classic_session, stream), handle, algorithm="pcsrj", memory="16MB")
    assert_same_rows(enriched.toArrow(), duckdb_join(stream, master_of(1), ["id"], ["id"]))
    others = frame_of(classic_session, pa.table({"id": keys[~of_sound]}))
    with pytest.raises(PythonException, match="is damaged"):
        ss.enrich(others, handle, algorithm="pcsrj", memory="16MB").toArrow()


def test_partitions_without_rows_on_either_side_do_no_harm(classic_session: SparkSession, indexed: Indexed) -> None:
    master = pa.table({"id": [3, 4], "name": ["cat", "dog"]})
    handle = indexed(master, partitions=8)
    for keys in ([3], [4, 99], list(range(40)), [None, None], []):
        stream = pa.table({"id": pa.array(keys, pa.int64())})
        for on_miss, how in (("null", "left"), ("drop", "inner")):
            df = frame_of(classic_session, stream)
            enriched = ss.enrich(df, handle, algorithm="pcsrj", memory="64MB", on_miss=on_miss)
            assert_same_table(enriched, duckdb_join(stream, master, ["id"], ["id"], how=how))


def test_micro_batches_are_joined_counted_and_see_new_versions_in_as_many_partitions(
    classic_session: SparkSession, indexed: Indexed, tmp_path: Path
) -> None:
    handle = indexed(master_of(1))
    stream = stream_of(4, rows=60)
    (tmp_path / "in").mkdir()

    def planned() -> DataFrame:
        incoming = classic_session.readStream.schema("id long, row long").parquet(str(tmp_path / "in"))
        return ss.enrich(incoming, handle, algorithm="pcsrj", memory="16MB")

    def run(number: int, enriched: DataFrame) -> Any:
        pq.write_table(stream, tmp_path / "half a file")
        os.utime(tmp_path / "half a file", (1_700_000_000 + number,) * 2)
        (tmp_path / "half a file").rename(tmp_path / "in" / f"{number}.parquet")
        query = enriched.writeStream.option("checkpointLocation", str(tmp_path / "state")).trigger(availableNow=True)
        started = query.start(str(tmp_path / "out"))
        started.awaitTermination()
        return observed(started.lastProgress, "enrich_master")

    newer = pa.table({"id": range(200), "name": [f"new{i}" for i in range(200)]})
    expected = []
    enriched = planned()
    # A plan has as many partitions as it was made for; one that is made anew has as many as there are.
    versions = [
        (None, PARTITIONS, master_of(1)),
        (newer, PARTITIONS, newer),
        (master_of(1), 3, newer),
        (None, 3, master_of(1)),
    ]
    for number, (published, partitions, seen) in enumerate(versions):
        if published is not None:
            ss.build_relation(published, key="id", out=handle.path, partitions=partitions)
        metrics = run(number, enriched if number < len(versions) - 1 else planned())
        expected.append(duckdb_join(stream, seen, ["id"], ["id"]))
        assert metrics["rows_in"] == metrics["rows_out"] == 60
        assert metrics["null_keys"] == stream["id"].null_count
        assert metrics["matched"] + metrics["unmatched"] + metrics["null_keys"] == 60
        assert partitions <= metrics["reads"] <= 60
    written = classic_session.read.parquet(str(tmp_path / "out")).toArrow()
    assert_same_rows(written, pa.concat_tables(expected))


def test_a_dataframe_can_be_put_on_disk_in_partitions(classic_session: SparkSession, tmp_path: Path) -> None:
    df = frame_of(classic_session, master_of(1))
    report = ss.build_relation(df, key="id", out=tmp_path / "r", partitions=3)
    assert (report.partitions, report.row_count) == (3, 200)
    with pytest.raises(InvalidOption, match="from 1 to 1024"):
        ss.build_relation(df, key="id", out=tmp_path / "r", partitions=0)
    assert [entry.name for entry in tmp_path.iterdir()] == ["r"]


def test_what_cannot_be_joined_by_partition_is_refused_in_words(
    classic_session: SparkSession, indexed: Indexed, tmp_path: Path
) -> None:
    df = frame_of(classic_session, stream_of(5))
    whole = indexed(master_of(1), partitions=1)
    with pytest.raises(InvalidOption, match=r"(?s)relation 'master' is not in partitions.*--partitions N"):
        ss.enrich(df, whole, algorithm="pcsrj")
    split = indexed(master_of(1), partitions=2)
    with pytest.raises(InvalidOption, match="by the key of one relation; given: 2 relations"):
        ss.enrich(df, [split.on("id"), split.on("id", prefix="other_")], algorithm="pcsrj")
    with pytest.raises(InvalidOption, match="a lookup cannot send rows"):
        ss.lookup(split, "id", algorithm="pcsrj")


@pytest.mark.parametrize("algorithm", ["adaptive", "moij", "ssbj"])
def test_every_other_algorithm_reads_a_relation_in_partitions_as_a_whole(
    classic_session: SparkSession, indexed: Indexed, algorithm: str
) -> None:
    stream, master = stream_of(6), master_of(2)
    enriched = ss.enrich(frame_of(classic_session, stream), indexed(master), algorithm=algorithm, memory="16MB")
    assert_same_rows(enriched.toArrow(), duckdb_join(stream, master, ["id"], ["id"]))
