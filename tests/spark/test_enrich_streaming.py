"""`enrich` in streaming queries: the rows, the balance of every micro-batch, and relations that change under way."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import semistream as ss
from semistream.budget import parse_bytes
from semistream.errors import RelationCorrupt
from semistream.relations.handle import RelationHandle
from tests.support.frames import observed
from tests.support.oracle import assert_same_rows, duckdb_join

Publish = Callable[..., RelationHandle]

PRODUCTS = pa.table({"id": [1, 2, 3], "name": ["ant", "bee", "cat"], "price": [1.5, 2.5, 3.5]})
OFFERS = pa.table({"id": [1, 1, 2], "shop": ["north", "south", "north"]})
BATCHES = [
    pa.table({"n": [0, 1, 2, 3, 4], "id": pa.array([1, 2, 3, None, 1])}),
    pa.table({"n": [5, 6, 7], "id": pa.array([9, 8, 9])}),
    pa.table({"n": [8, 9, 10, 11], "id": pa.array([1, 1, None, 7])}),
    pa.table({"n": [12, 13], "id": pa.array([1, 2])}),
]
"""All fates of a row; nothing but unknown keys; and nothing but known ones."""


FIRST_FILE_S = 1_700_000_000
"""Age of the first file of a stream, in seconds since 1970."""


class Stream:
    """A folder of files, each of which becomes a micro-batch, and a query that writes to another."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session = session
        self.folder = folder
        self.incoming = folder / "in"
        self.incoming.mkdir()
        self._count = 0

    def send(self, *batches: pa.Table) -> None:
        for batch in batches:
            # Written aside and renamed, so that a running query never sees half a file; a second younger than the one
            # before, because Spark takes files in the order of their age.
            unfinished = self.folder / "half a file"
            pq.write_table(batch, unfinished)
            os.utime(unfinished, (FIRST_FILE_S + self._count,) * 2)
            unfinished.rename(self.incoming / f"{self._count:03d}.parquet")
            self._count += 1

    def read(self) -> DataFrame:
        source = self.session.readStream.schema("n long, id long").option("maxFilesPerTrigger", 1)
        return source.parquet(str(self.incoming))

    def start(self, df: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = df.writeStream.option("checkpointLocation", str(self.folder / "checkpoint"))
        return (writer.trigger(**trigger) if trigger else writer).start(str(self.folder / "out"))

    def run(self, df: DataFrame) -> list[Any]:
        """Everything there is, to the end; returns the progress report of each micro-batch that had rows."""
        query = self.start(df, availableNow=True)
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress.numInputRows]

    def written(self) -> pa.Table:
        return self.session.read.parquet(str(self.folder / "out")).toArrow()


@pytest.fixture
def stream(session: SparkSession, tmp_path: Path) -> Stream:
    return Stream(session, tmp_path)


def fates(batch: pa.Table, known: set[int]) -> dict[str, int]:
    keys = batch["id"].to_pylist()
    return {
        "matched": sum(key in known for key in keys),
        "unmatched": sum(key is not None and key not in known for key in keys),
        "null_keys": keys.count(None),
    }


# ---------------------------------------------------------------------------------------------------------------------
# Rows and metrics
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_miss", ["null", "drop"])
@pytest.mark.parametrize(("relation", "known"), [(PRODUCTS, {1, 2, 3}), (OFFERS, {1, 2})], ids=["unique", "repeated"])
def test_every_micro_batch_is_joined_and_balances(
    stream: Stream, publish: Publish, relation: pa.Table, known: set[int], on_miss: str
) -> None:
    stream.send(*BATCHES)
    how = "left" if on_miss == "null" else "inner"
    reports = stream.run(ss.enrich(stream.read(), publish(relation, "id", "master"), memory="8MB", on_miss=on_miss))
    joined = [duckdb_join(batch, relation, ["id"], ["id"], how=how) for batch in BATCHES]
    assert_same_rows(stream.written(), pa.concat_tables(joined))

    assert len(reports) == len(BATCHES)
    for batch, rows, report in zip(BATCHES, joined, reports, strict=True):
        metrics = observed(report, "enrich_master")
        assert {name: metrics[name] for name in ("matched", "unmatched", "null_keys")} == fates(batch, known)
        assert metrics["rows_in"] == report.numInputRows == batch.num_rows
        assert metrics["rows_out"] == rows.num_rows
        assert observed(report, "enrich_master_in") == {"rows_in": batch.num_rows}
        assert 0 < metrics["bytes_held"] <= parse_bytes("8MB")
        assert metrics["hits"] <= metrics["matched"] + metrics["unmatched"]
    # The first batch read what the last one asks for again.
    assert observed(reports[0], "enrich_master")["reads"] > 0


def test_each_of_several_relations_is_counted(stream: Stream, publish: Publish) -> None:
    stream.send(*BATCHES)
    lookups = [publish(PRODUCTS, "id", "products"), publish(OFFERS, "id", "offers")]
    reports = stream.run(ss.enrich(stream.read(), lookups, name="sales"))
    with_products = duckdb_join(pa.concat_tables(BATCHES), PRODUCTS, ["id"], ["id"])
    assert_same_rows(stream.written(), duckdb_join(with_products, OFFERS, ["id"], ["id"]))
    for batch, report in zip(BATCHES, reports, strict=True):
        metrics = observed(report, "sales")
        assert metrics["rows_in"] == observed(report, "sales_in")["rows_in"] == batch.num_rows
        for name, known in (("products", {1, 2, 3}), ("offers", {1, 2})):
            own = metrics["relations"][name]
            assert {fate: own[fate] for fate in ("matched", "unmatched", "null_keys")} == fates(batch, known), name
            assert own["hits"] <= own["matched"] + own["unmatched"]
        for count in ("matched", "reads"):
            assert metrics[count] == sum(own[count] for own in metrics["relations"].values())


def test_what_one_batch_has_read_the_next_finds_in_memory(stream: Stream, publish: Publish) -> None:
    same = pa.table({"n": [1, 2], "id": [1, 2]})
    batches = 10
    stream.send(*[same] * batches)
    reports = stream.run(ss.enrich(stream.read(), publish(PRODUCTS, "id")))
    metrics = [observed(report, "enrich_products") for report in reports]
    # Spark hands tasks to its idle workers in turn, so each of them has to read once; a session has four at most, two
    # for each Python node of a stage.
    assert sum(m["reads"] for m in metrics) <= 4
    assert sum(m["hits"] for m in metrics) >= 2 * (batches - 4)


def test_a_query_without_rows_reports_nothing_wrong(stream: Stream, publish: Publish) -> None:
    stream.send(BATCHES[0].slice(0, 0))
    for progress in stream.run(ss.enrich(stream.read(), publish(OFFERS, "id"))):
        assert observed(progress, "enrich_products")["rows_out"] == 0
    assert stream.written().num_rows == 0


def test_the_memory_sink_and_an_aggregation_behind_it_work(stream: Stream, publish: Publish) -> None:
    stream.send(*BATCHES[:2])
    totals = ss.enrich(stream.read(), publish(PRODUCTS, "id")).groupBy("name").count()
    query = totals.writeStream.format("memory").queryName("totals").outputMode("complete").start()
    try:
        query.processAllAvailable()
        found = stream.session.table("totals").toArrow()
    finally:
        query.stop()
    assert_same_rows(found, pa.table({"name": ["ant", "bee", "cat", None], "count": [2, 1, 1, 4]}))


# ---------------------------------------------------------------------------------------------------------------------
# A relation that changes
# ---------------------------------------------------------------------------------------------------------------------


def _named(*names: str) -> pa.Table:
    return pa.table({"id": range(1, len(names) + 1), "name": list(names)})


@pytest.mark.parametrize("repeats", [1, 2], ids=["unique", "repeated"])
def test_a_relation_published_anew_is_seen_from_the_next_batch_on(
    stream: Stream, publish: Publish, repeats: int
) -> None:
    def version(*names: str) -> pa.Table:
        return pa.concat_tables([_named(*names)] * repeats)

    relation = publish(version("ant", "bee"), "id")
    query = stream.start(ss.enrich(stream.read(), relation))
    try:
        for number, table in enumerate([None, version("ape"), version("asp", "bat")]):
            if table is not None:
                publish(table, "id")
            stream.send(pa.table({"n": [number, number], "id": [1, 2]}))
            query.processAllAvailable()
    finally:
        query.stop()
    found = {(row["n"], row["id"], row["name"]) for row in stream.written().to_pylist()}
    assert found == {(0, 1, "ant"), (0, 2, "bee"), (1, 1, "ape"), (1, 2, None), (2, 1, "asp"), (2, 2, "bat")}
    assert stream.written().num_rows == 6 * repeats - (repeats - 1), "an absent key is one row, a present one many"


def test_the_version_that_a_query_was_planned_with_may_be_gone_before_its_first_row(
    stream: Stream, publish: Publish
) -> None:
    relation = publish(_named("ant"), "id")
    enriched = ss.enrich(stream.read(), relation)
    for name in ("ape", "asp", "auk"):
        publish(_named(name), "id")
    with pytest.raises(RelationCorrupt):
        relation.open(relation.info.version, with_key=False)
    stream.send(pa.table({"n": [0], "id": [1]}))
    stream.run(enriched)
    assert [row["name"] for row in stream.written().to_pylist()] == ["auk"]


def test_in_foreach_batch_one_handle_does_for_all_versions(
    stream: Stream, publish: Publish, session: SparkSession
) -> None:
    relation = publish(_named("ant"), "id")
    out = str(stream.folder / "out")

    def write(batch: DataFrame, number: int) -> None:
        ss.enrich(batch, relation, name=f"batch_{number}").write.mode("append").parquet(out)

    folder = str(stream.folder / "checkpoint")
    query = stream.read().writeStream.foreachBatch(write).option("checkpointLocation", folder).start()
    try:
        for number, name in enumerate(["ant", "ape", "asp", "auk"]):
            if number:
                publish(_named(name), "id")
            stream.send(pa.table({"n": [number], "id": [1]}))
            query.processAllAvailable()
    finally:
        query.stop()
    assert [row["name"] for row in sorted(stream.written().to_pylist(), key=lambda row: row["n"])] == [
        "ant",
        "ape",
        "asp",
        "auk",
    ]


def test_a_directory_removed_and_built_anew_is_read_anew(stream: Stream, publish: Publish) -> None:
    relation = publish(_named("ant"), "id")
    query = stream.start(ss.enrich(stream.read(), relation))
    try:
        for number, name in enumerate(["ant", "asp"]):
            # As many rows as before and, each time, version 1.
            shutil.rmtree(relation.path)
            publish(_named(name), "id")
            stream.send(pa.table({"n": [number], "id": [1]}))
            query.processAllAvailable()
    finally:
        query.stop()
    expected = [{"n": 0, "id": 1, "name": "ant"}, {"n": 1, "id": 1, "name": "asp"}]
    assert_same_rows(stream.written(), expected)


BROKEN = {
    "keys that repeat": (pa.table({"id": [1, 1], "name": ["x", "y"]}), "id"),
    "another type": (pa.table({"id": [1], "name": [7]}), "id"),
    "a column less": (pa.table({"id": [1], "other": ["x"]}), "id"),
    "another type of key": (pa.table({"id": ["1"], "name": ["x"]}), "id"),
    "another key": (pa.table({"id": [1], "name": ["x"]}), "name"),
    "a row that does not fit the memory": (pa.table({"id": [1], "name": ["x" * 1_000_000]}), "id"),
}


def test_a_version_that_breaks_a_promise_is_refused_and_the_last_good_one_stays(
    stream: Stream, publish: Publish
) -> None:
    query = stream.start(ss.enrich(stream.read(), publish(_named("ant"), "id"), memory="4MB"))
    sent = pa.table({"n": [0], "id": [1]})
    try:
        for table, key in BROKEN.values():
            publish(table, key)
            stream.send(sent)
            query.processAllAvailable()
        publish(pa.table({"more": [1], "id": [1], "name": ["asp"]}), "id")
        stream.send(sent)
        query.processAllAvailable()
    finally:
        query.stop()
    names = [row["name"] for row in stream.written().to_pylist()]
    assert sorted(names) == ["ant"] * len(BROKEN) + ["asp"], "a further column breaks nothing"
