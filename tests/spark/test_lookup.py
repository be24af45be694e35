"""`lookup` as a column: in `select`, in SQL and in a stream; on classic Spark and on Spark Connect."""

from __future__ import annotations

import decimal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import semistream as ss
from semistream.errors import InvalidOption
from semistream.relations.handle import RelationHandle
from tests.support.frames import frame_of
from tests.support.oracle import assert_same_rows, duckdb_join

Publish = Callable[..., RelationHandle]

SALES = pa.table({"id": pa.array([1, 2, 9, None], pa.int32()), "n": [10, 20, 30, 40]})


def test_a_unique_key_is_answered_by_a_struct(session: SparkSession, products: RelationHandle) -> None:
    df = frame_of(session, SALES, partitions=3).select("n", ss.lookup(products, "id").alias("p"))
    relation = pa.table({"id": [1, 2, 3], "name": ["ant", "bee", "cat"], "price": [1.5, 2.5, 3.5]})
    expected = duckdb_join(SALES, relation, ["id"], ["id"]).drop_columns(["id"])
    assert_same_rows(df.select("n", "p.name", "p.price").toArrow(), expected)
    assert df.where("p is null").count() == 2


def test_a_key_that_repeats_is_answered_by_an_array_of_structs(session: SparkSession, offers: RelationHandle) -> None:
    df = frame_of(session, SALES).select("n", ss.lookup(offers, F.col("id")).alias("o"))
    found = {row["n"]: sorted(offer["shop"] for offer in row["o"]) for row in df.toArrow().to_pylist()}
    assert found == {10: ["north", "south"], 20: ["north"], 30: [], 40: []}
    relation = pa.table({"id": [1, 1, 2], "shop": ["north", "south", "north"]})
    exploded = df.select("n", F.explode_outer("o.shop").alias("shop"))
    assert_same_rows(exploded.toArrow(), duckdb_join(SALES, relation, ["id"], ["id"]).drop_columns(["id"]))


def test_a_composite_key_takes_as_many_columns(session: SparkSession, publish: Publish) -> None:
    relation = pa.table({"place": ["x", "x", "y"], "hour": [1, 2, 1], "rain": [0.1, 0.2, 0.3]})
    weather = publish(relation, ["place", "hour"], "weather")
    stream = pa.table({"h": pa.array([2, 1, 3, None], pa.int16()), "p": ["x", "y", "x", "x"]})
    df = frame_of(session, stream).select("h", "p", ss.lookup(weather, "p", F.col("h")).alias("w"))
    expected = duckdb_join(stream, relation, ["p", "h"], ["place", "hour"])
    assert_same_rows(df.select("h", "p", "w.rain").toArrow(), expected)


def test_lookups_side_by_side_do_not_disturb_each_other(
    session: SparkSession, products: RelationHandle, offers: RelationHandle
) -> None:
    df = frame_of(session, pa.table({"a": [1, 2, 9], "b": [3, 9, 1]}))
    names = [ss.lookup(products, column)["name"].alias(column) for column in ("a", "b", "a")]
    shops = [F.size(ss.lookup(offers, column)).alias(column) for column in ("a", "b")]
    rows = [["ant", "cat", "ant", 2, 0], ["bee", None, "bee", 1, 0], [None, "ant", None, 0, 2]]
    found = df.select(*names, *shops).toDF(*"vwxyz").toArrow()
    assert_same_rows(found, [dict(zip("vwxyz", row, strict=True)) for row in rows])


def test_it_can_be_registered_for_sql(session: SparkSession, products: RelationHandle, offers: RelationHandle) -> None:
    session.udf.register("product_of", ss.lookup(products))
    session.udf.register("offers_of", ss.lookup(offers))
    frame_of(session, SALES).createOrReplaceTempView("sales")
    query = "SELECT n, product_of(id).name AS name, size(offers_of(id)) AS offers FROM sales WHERE n < 40"
    expected = pa.table({"n": [10, 20, 30], "name": ["ant", "bee", None], "offers": [2, 1, 0]})
    assert_same_rows(session.sql(query).toArrow(), expected)
    filtered = session.sql("SELECT n FROM sales WHERE product_of(id).price > 2 ORDER BY n")
    assert filtered.toArrow().to_pylist() == [{"n": 20}]
    joined = session.sql("SELECT n, o.shop FROM sales LATERAL VIEW explode(offers_of(id)) AS o WHERE n = 10")
    assert sorted(row["shop"] for row in joined.toArrow().to_pylist()) == ["north", "south"]


def test_it_answers_in_a_streaming_query(
    session: SparkSession, products: RelationHandle, offers: RelationHandle, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    for i in range(2):
        pq.write_table(SALES.slice(2 * i, 2), tmp_path / "in" / f"{i}.parquet")
    stream = session.readStream.schema("id int, n long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    answered = stream.select(
        "n", ss.lookup(products, "id")["name"].alias("name"), F.size(ss.lookup(offers, "id")).alias("offers")
    )
    query = (
        answered.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    expected = pa.table({"n": [10, 20, 30, 40], "name": ["ant", "bee", None, None], "offers": [2, 1, 0, 0]})
    assert_same_rows(session.read.parquet(str(tmp_path / "out")).toArrow(), expected)


def test_defaults_stand_in_for_what_is_missing(session: SparkSession, products: RelationHandle) -> None:
    found = ss.lookup(products, "id", on_miss="default", defaults={"name": "?"})
    df = frame_of(session, SALES).select("n", found["name"].alias("name"), found["price"].alias("price"))
    expected = pa.table({"n": [10, 20, 30, 40], "name": ["ant", "bee", "?", "?"], "price": [1.5, 2.5, None, None]})
    assert_same_rows(df.toArrow(), expected)


def test_the_key_and_odd_names_can_be_part_of_the_answer(session: SparkSession, publish: Publish) -> None:
    table = pa.table({"id": [1, 2], "a.b": ["x", "y"], "two words": [1, 2]})
    odd = ss.relation(publish(table, "id", "odd").path, columns=["id", "a.b", "two words"])
    df = frame_of(session, SALES).select("n", ss.lookup(odd, "id").alias("o")).where("o is not null")
    rows = [
        {"n": 10, "o": {"id": 1, "a.b": "x", "two words": 1}},
        {"n": 20, "o": {"id": 2, "a.b": "y", "two words": 2}},
    ]
    assert_same_rows(df.toArrow(), rows)
    assert "odd(id)" in frame_of(session, SALES).select(ss.lookup(odd, "id")).columns


@pytest.mark.parametrize(
    ("keys", "found"), [([1, 2], [{}, {}, None, None]), ([1, 1, 2], [[{}, {}], [{}], [], []])], ids=["once", "repeated"]
)
def test_a_relation_that_is_nothing_but_its_key_says_how_often_it_has_one(
    session: SparkSession, publish: Publish, keys: list[int], found: list[Any]
) -> None:
    members = publish(pa.table({"id": keys}), "id", "members")
    df = frame_of(session, SALES).select("n", ss.lookup(members, "id").alias("m"))
    assert sorted(df.toArrow().to_pylist(), key=lambda row: row["n"]) == [
        {"n": n, "m": m} for n, m in zip([10, 20, 30, 40], found, strict=True)
    ]


def test_arguments_may_be_narrower_or_wider_than_the_key(session: SparkSession, publish: Publish) -> None:
    keys = pa.array([decimal.Decimal("1.25"), decimal.Decimal("2.50")], pa.decimal128(10, 2))
    amounts = publish(pa.table({"amount": keys, "word": ["little", "more"]}), "amount", "amounts")
    wide = pa.array([decimal.Decimal("1.25"), decimal.Decimal(10) ** 30, None], pa.decimal128(38, 2))
    for given in (wide, pa.array([decimal.Decimal("1.25")], pa.decimal128(5, 2))):
        df = frame_of(session, pa.table({"x": given})).select(ss.lookup(amounts, "x")["word"].alias("w"))
        assert [row["w"] for row in df.toArrow().to_pylist() if row["w"]] == ["little"]


def test_arguments_that_cannot_be_the_key_are_refused(classic_session: SparkSession, products: RelationHandle) -> None:
    # Seen by a worker, which fails four times before the query does: once is enough.
    df = frame_of(classic_session, pa.table({"word": ["1"]}))
    with pytest.raises(PythonException, match=r"KeyMismatch: the stream's 'argument 1' cannot .* relation's 'id'"):
        df.select(ss.lookup(products, "word")).toArrow()


@pytest.mark.usefixtures("session")
def test_what_a_column_cannot_do_is_refused(products: RelationHandle, offers: RelationHandle) -> None:
    with pytest.raises(InvalidOption, match="a lookup cannot leave rows out"):
        ss.lookup(products, "id", on_miss="drop")
    with pytest.raises(InvalidOption, match=r"relation 'products' has a key of 1 columns; given: a lookup with 2"):
        ss.lookup(products, "id", "id")
    with pytest.raises(InvalidOption, match=r"relation 'offers', whose keys repeat, answers .* an empty array"):
        ss.lookup(offers, "id", on_miss="default", defaults={"shop": "?"})


def test_it_works_in_any_thread_of_a_program_with_a_session(session: SparkSession, products: RelationHandle) -> None:
    answers: list[Any] = []

    def look_up() -> None:
        df = frame_of(session, SALES).select(ss.lookup(products, "id")["name"].alias("name"))
        answers.append(sorted(row["name"] for row in df.where("name is not null").toArrow().to_pylist()))

    thread = threading.Thread(target=look_up)
    thread.start()
    thread.join()
    assert answers == [["ant", "bee"]]


def test_without_a_session_it_says_so(products: RelationHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None)
    with pytest.raises(InvalidOption, match="there is no active Spark session; given: none; allowed: a session"):
        ss.lookup(products)
