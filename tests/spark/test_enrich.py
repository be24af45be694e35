"""`enrich` on batch DataFrames, compared with DuckDB's join; on classic Spark and on Spark Connect."""

from __future__ import annotations

import datetime
import decimal
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import semistream as ss
from semistream.errors import BudgetExceeded
from semistream.joins.reference import reference_join
from semistream.joins.registry import ALGORITHMS
from semistream.relations.handle import RelationHandle
from semistream.spark.environment import is_connect
from tests.support.frames import assert_same_table, crossings, frame_of, physical_plan
from tests.support.oracle import assert_same_rows, duckdb_join

Publish = Callable[..., RelationHandle]
Setting = Callable[[str, str], None]

DAY = datetime.date(2024, 2, 27)
NOON = datetime.datetime(2024, 3, 9, 12, 0, 0, 250)
BERLIN = pa.timestamp("us", tz="Europe/Berlin")
TEXTS = ["", "a", "ß", "pear", "x" * 40]

KEY_COLUMNS: dict[str, tuple[Callable[[int], Any], pa.DataType, pa.DataType]] = {
    "int64": (lambda i: i * 10**12, pa.int64(), pa.int64()),
    "int32 and int64": (lambda i: i - 10, pa.int32(), pa.int64()),
    "int64 and int8": (lambda i: i - 10, pa.int64(), pa.int8()),
    "string": (lambda i: TEXTS[i % 5] + str(i), pa.string(), pa.string()),
    "binary": (lambda i: bytes([i, 0, i]), pa.binary(), pa.binary()),
    "bool": (lambda i: i % 2 == 0, pa.bool_(), pa.bool_()),
    "date": (lambda i: DAY + datetime.timedelta(days=i), pa.date32(), pa.date32()),
    "timestamp": (lambda i: NOON + datetime.timedelta(hours=i), pa.timestamp("us"), pa.timestamp("us")),
    "instant": (lambda i: NOON.astimezone(datetime.UTC) + datetime.timedelta(hours=i), BERLIN, BERLIN),
    "decimal": (lambda i: decimal.Decimal(i) / 4, pa.decimal128(10, 2), pa.decimal128(10, 2)),
    "narrow and wide decimal": (lambda i: decimal.Decimal(i) / 4, pa.decimal128(10, 2), pa.decimal128(30, 2)),
}
"""By name: the i-th key, and its type in the stream and in the relation."""


def keys_at(kind: str, numbers: Sequence[int | None], *, in_stream: bool) -> pa.Array:
    make, stream_type, relation_type = KEY_COLUMNS[kind]
    return pa.array([None if i is None else make(i) for i in numbers], stream_type if in_stream else relation_type)


def numbers_with_nulls(rng: np.random.Generator, count: int) -> list[int | None]:
    return [None if i >= 40 else int(i) for i in rng.integers(0, 44, count)]


# ---------------------------------------------------------------------------------------------------------------------
# Keys
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KEY_COLUMNS)
def test_every_type_of_key_joins_like_duckdb(session: SparkSession, publish: Publish, kind: str) -> None:
    rng = np.random.default_rng(7)
    numbers = numbers_with_nulls(rng, 200)
    stream = pa.table({"row": range(200), "k": keys_at(kind, numbers, in_stream=True)})
    known = [0, 1] if kind == "bool" else list(range(0, 40, 2))
    unique = pa.table({"key": keys_at(kind, known, in_stream=False), "u": [f"u{i}" for i in known]})
    repeated_numbers = [i for i in known for _ in range(i % 3 + 1)]
    repeated = pa.table(
        {"key": keys_at(kind, repeated_numbers, in_stream=False), "r": [f"r{n}" for n in range(len(repeated_numbers))]}
    )
    df = frame_of(session, stream)

    one = ss.enrich(df, publish(unique, "key", "unique"), on="k")
    assert crossings(one) == ["ArrowEvalPython"]
    assert_same_table(one, duckdb_join(stream, unique, ["k"], ["key"]))

    many = ss.enrich(df, publish(repeated, "key", "repeated"), on="k")
    assert crossings(many) == ["MapInArrow"]
    assert_same_table(many, duckdb_join(stream, repeated, ["k"], ["key"]))


@pytest.mark.parametrize("repeats", [1, 3], ids=["unique", "repeated"])
def test_composite_keys_join_under_other_names_and_not_where_one_part_is_null(
    session: SparkSession, publish: Publish, repeats: int
) -> None:
    rng = np.random.default_rng(8)
    kinds = {"a": "int32 and int64", "b": "string", "c": "date", "d": "decimal"}
    numbers = {name: [int(i) for i in rng.integers(0, 3, 300)] for name in kinds}
    stream = pa.table(
        {
            name: keys_at(kind, [None if rng.random() < 0.03 else i for i in numbers[name]], in_stream=True)
            for name, kind in kinds.items()
        }
    )
    combinations = [(i, j, k, 0) for i in range(3) for j in range(3) for k in range(2)] * repeats
    relation = pa.table(
        {
            f"key {name}": keys_at(kind, [c[at] for c in combinations], in_stream=False)
            for at, (name, kind) in enumerate(kinds.items())
        }
        | {"found": [f"{c} {n}" for n, c in enumerate(combinations)]}
    )
    key = [f"key {name}" for name in kinds]
    enriched = ss.enrich(frame_of(session, stream), publish(relation, key), on=list(kinds))
    assert_same_table(enriched, duckdb_join(stream, relation, list(kinds), key))


def test_the_stream_s_columns_need_not_have_the_key_s_names(session: SparkSession, products: RelationHandle) -> None:
    df = frame_of(session, pa.table({"sku": [2, 9], "id": ["mine", "yours"]}))
    expected = pa.table({"sku": [2, 9], "id": ["mine", "yours"], "name": ["bee", None], "price": [2.5, None]})
    assert_same_table(ss.enrich(df, products, on="sku"), expected)
    assert_same_table(ss.enrich(df, products.on("sku")), expected)


# ---------------------------------------------------------------------------------------------------------------------
# Several relations
# ---------------------------------------------------------------------------------------------------------------------


def test_several_relations_are_joined_in_one_pass(session: SparkSession, publish: Publish) -> None:
    rng = np.random.default_rng(9)
    stream = pa.table({"row": range(250), "p": rng.integers(0, 30, 250), "s": [f"s{i % 7}" for i in range(250)]})
    prices = pa.table({"id": range(20), "price": [i / 2 for i in range(20)]})
    stores = pa.table({"store": [f"s{i}" for i in range(5)], "city": [f"city {i}" for i in range(5)]})
    offers = pa.table({"id": [i for i in range(0, 30, 3) for _ in range(2)], "offer": [f"o{i}" for i in range(20)]})
    df = frame_of(session, stream, partitions=3)
    with_prices = duckdb_join(stream, prices, ["p"], ["id"])
    with_stores = duckdb_join(with_prices, stores, ["s"], ["store"])

    lookups = [publish(prices, "id", "prices").on("p"), publish(stores, "store", "stores").on("s")]
    enriched = ss.enrich(df, lookups)
    assert crossings(enriched) == ["ArrowEvalPython"]
    assert_same_table(enriched, with_stores)

    enriched = ss.enrich(df, [*lookups, publish(offers, "id", "offers").on("p")])
    assert crossings(enriched) == ["MapInArrow"]
    assert_same_table(enriched, duckdb_join(with_stores, offers, ["p"], ["id"]))

    enriched = ss.enrich(df, lookups, on_miss="drop")
    inner = duckdb_join(duckdb_join(stream, prices, ["p"], ["id"], how="inner"), stores, ["s"], ["store"], how="inner")
    assert_same_table(enriched, inner)


def test_one_relation_can_play_two_roles(session: SparkSession, products: RelationHandle) -> None:
    df = frame_of(session, pa.table({"bought": [1, 2], "returned": [3, 1]}))
    named = ss.relation(products.path, columns=["name"])
    expected = pa.table({"bought": [1, 2], "returned": [3, 1], "b_name": ["ant", "bee"], "r_name": ["cat", "ant"]})
    bought, returned = named.on("bought", prefix="b_"), named.on("returned", prefix="r_")
    assert_same_table(ss.enrich(df, [bought, returned]), expected)
    assert_same_table(ss.enrich(ss.enrich(df, bought), returned), expected)


# ---------------------------------------------------------------------------------------------------------------------
# Rows without a partner
# ---------------------------------------------------------------------------------------------------------------------

SALES = pa.table({"id": pa.array([1, 2, 9, None, 1]), "n": [10, 20, 30, 40, 50]})


@pytest.mark.parametrize("options", [{}, {"on_miss": "drop"}, {"on_miss": "default", "defaults": {"name": "?"}}])
@pytest.mark.parametrize("keys", [[1, 2, 3], [1, 1, 2]], ids=["unique", "repeated"])
def test_on_miss_says_what_becomes_of_rows_without_a_partner(
    session: SparkSession, publish: Publish, keys: list[int], options: dict[str, Any]
) -> None:
    relation = pa.table({"id": keys, "name": ["ant", "bee", "cat"], "price": [1.5, None, 3.5]})
    enriched = ss.enrich(frame_of(session, SALES), publish(relation, "id"), **options)
    assert_same_rows(enriched.toArrow(), reference_join(SALES, relation, ["id"], ["id"], **options))


def test_on_miss_error_stops_the_query_and_names_the_key(
    session: SparkSession, products: RelationHandle, offers: RelationHandle
) -> None:
    # A failed task is tried four times, in a new worker each time: one way on each kind of session is enough.
    relation = products if is_connect(session) else offers
    sales = frame_of(session, pa.table({"id": [1, 404]}))
    with pytest.raises(PythonException, match=r"UnmatchedKey: 1 stream rows .* no partner.*\(404\)"):
        ss.enrich(sales, relation, on_miss="error").toArrow()
    fine = ss.enrich(sales.where("id < 100"), relation, on_miss="error").toArrow()
    assert set(fine["id"].to_pylist()) == {1}


@pytest.mark.parametrize("on_miss", ["null", "drop"])
def test_an_empty_relation_and_an_empty_stream_work(
    session: SparkSession, publish: Publish, products: RelationHandle, offers: RelationHandle, on_miss: str
) -> None:
    nothing = pa.table({"id": pa.array([], pa.int64()), "word": pa.array([], pa.string())})
    empty = publish(nothing, "id", "empty")
    how = "left" if on_miss == "null" else "inner"
    enriched = ss.enrich(frame_of(session, SALES), empty, on_miss=on_miss)
    assert_same_table(enriched, duckdb_join(SALES, nothing, ["id"], ["id"], how=how))
    for relation, added in ((products, ["name", "price"]), (offers, ["shop"])):
        enriched = ss.enrich(frame_of(session, SALES.slice(0, 0)), relation, on_miss=on_miss)
        assert enriched.toArrow().num_rows == 0
        assert enriched.columns == ["id", "n", *added]


# ---------------------------------------------------------------------------------------------------------------------
# Columns
# ---------------------------------------------------------------------------------------------------------------------


def test_columns_can_be_chosen_and_prefixed(session: SparkSession, products: RelationHandle) -> None:
    df = frame_of(session, pa.table({"id": [1, 9], "name": ["mine", "yours"]}))
    chosen = ss.relation(products.path, columns=["name", "id"])
    expected = {"id": [1, 9], "name": ["mine", "yours"], "product_name": ["ant", None], "product_id": [1, None]}
    assert_same_table(ss.enrich(df, chosen, prefix="product_"), pa.table(expected))
    assert_same_table(ss.enrich(df, [chosen.on("id", prefix="product_")]), pa.table(expected))
    nothing = ss.relation(products.path, columns=[])
    assert_same_table(ss.enrich(df, nothing, on_miss="drop"), pa.table({"id": [1], "name": ["mine"]}))


ODD_NAMES = ["counts", "r0", "c1", "a.b", "`", "a`b.c", "two words", "ß", "id.name"]


@pytest.mark.parametrize("keys", [[1, 2], [1, 1]], ids=["unique", "repeated"])
def test_any_column_name_works_in_the_stream_and_in_the_relation(
    session: SparkSession, publish: Publish, keys: list[int]
) -> None:
    stream = pa.table({name: [1, 9] for name in ODD_NAMES})
    for key in (["a.b"], ["`", "two words", "counts"]):
        relation = pa.table(dict.fromkeys(key, keys) | {f"{name} 2": ["p", "q"] for name in ODD_NAMES})
        enriched = ss.enrich(frame_of(session, stream), publish(relation, key, f"by {len(key)}"))
        assert_same_table(enriched, duckdb_join(stream, relation, key, key))


def test_added_columns_may_have_the_names_that_are_used_inside_the_answer(
    session: SparkSession, publish: Publish
) -> None:
    stream = pa.table({"id": [1, 9]})
    for keys in ([1, 2], [1, 1]):
        relation = pa.table({"id": keys, "counts": [5, 6], "r0": [7, 8]})
        enriched = ss.enrich(frame_of(session, stream), publish(relation, "id"))
        assert_same_table(enriched, duckdb_join(stream, relation, ["id"], ["id"]))


NESTED = pa.table(
    {
        "id": [1, 2, 3],
        "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
        "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
        "structs": pa.array(
            [[{"t": NOON.replace(tzinfo=datetime.UTC)}], None, []], pa.list_(pa.struct([("t", BERLIN)]))
        ),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "instant": pa.array([NOON.replace(tzinfo=datetime.UTC), None, None], BERLIN),
        "clock": pa.array([NOON, None, None], pa.timestamp("us")),
        "day": pa.array([DAY, None, None]),
        "money": pa.array([decimal.Decimal("1.25"), None, None], pa.decimal128(20, 2)),
        "bytes": pa.array([b"\0x", None, b""]),
        "flag": pa.array([True, None, False]),
        "small": pa.array([1, None, -1], pa.int8()),
        "float": pa.array([0.1, None, float("nan")], pa.float32()),
    }
)


@pytest.mark.parametrize("repeats", [1, 2], ids=["unique", "repeated"])
def test_values_of_every_type_arrive_as_they_are(session: SparkSession, publish: Publish, repeats: int) -> None:
    stream = pa.table({"id": [3, 1, 2, 4]})
    relation = pa.concat_tables([NESTED] * repeats)
    enriched = ss.enrich(frame_of(session, stream), publish(relation, "id"))
    assert_same_rows(enriched.toArrow(), reference_join(stream, relation, ["id"], ["id"]))
    # As Spark shows it, in the zone of the session: noon in Greenwich is seven in New York.
    shown = enriched.select(F.date_format("instant", "HH").alias("i"), F.date_format("clock", "HH").alias("c"))
    assert shown.where("i is not null").toArrow().to_pylist() == [{"i": "07", "c": "12"}] * repeats


@pytest.mark.parametrize("keys", [["1", "2"], ["1", "1"]], ids=["unique", "repeated"])
def test_large_strings_on_the_way_to_python_change_nothing(
    session: SparkSession, publish: Publish, setting: Setting, keys: list[str]
) -> None:
    setting("spark.sql.execution.arrow.useLargeVarTypes", "true")
    stream = pa.table({"id": ["1", "9", None], "word": ["x", "y", "z"]})
    relation = pa.table({"id": keys, "name": ["p", "q"], "parts": [["a"], ["b"]]})
    enriched = ss.enrich(frame_of(session, stream), publish(relation, "id"))
    assert_same_rows(enriched.toArrow(), reference_join(stream, relation, ["id"], ["id"]))


def test_columns_that_arrow_does_not_know_stay_in_spark(session: SparkSession, products: RelationHandle) -> None:
    df = frame_of(session, pa.table({"id": [1, 9]})).withColumn("span", F.expr("interval '2' year"))
    enriched = ss.enrich(df, products).where("span = interval '2' year").select("id", "name")
    assert_same_table(enriched, pa.table({"id": [1, 9], "name": ["ant", None]}))


# ---------------------------------------------------------------------------------------------------------------------
# Batches, partitions, memory, algorithms
# ---------------------------------------------------------------------------------------------------------------------


def _shop(rows: int) -> tuple[pa.Table, pa.Table, pa.Table]:
    rng = np.random.default_rng(10)
    stream = pa.table({"row": range(rows), "id": pa.array(numbers_with_nulls(rng, rows), pa.int64())})
    names = ["n" * int(i) for i in rng.integers(0, 60, 30)]
    unique = pa.table({"id": range(30), "name": names})
    repeated = pa.table({"id": [i % 20 for i in range(30)], "offer": names})
    return stream, unique, repeated


@pytest.mark.parametrize("batch_rows", [1, 2, 7, 50])
def test_arrow_batches_of_any_size_give_the_same_rows(
    session: SparkSession, publish: Publish, setting: Setting, batch_rows: int
) -> None:
    setting("spark.sql.execution.arrow.maxRecordsPerBatch", str(batch_rows))
    stream, unique, repeated = _shop(100)
    df = frame_of(session, stream)
    first = publish(unique, "id", "unique")
    one = ss.enrich(df, first)
    assert_same_table(one, duckdb_join(stream, unique, ["id"], ["id"]))
    many = ss.enrich(df, [first, publish(repeated, "id", "repeated")], on_miss="drop")
    inner = duckdb_join(stream, unique, ["id"], ["id"], how="inner")
    assert_same_table(many, duckdb_join(inner, repeated, ["id"], ["id"], how="inner"))


@pytest.mark.parametrize("partitions", [3, 8])
def test_partitions_do_not_matter_not_even_empty_ones(session: SparkSession, publish: Publish, partitions: int) -> None:
    stream, unique, repeated = _shop(6 if partitions == 8 else 60)
    df = frame_of(session, stream, partitions=partitions)
    enriched = ss.enrich(df, [publish(unique, "id", "unique"), publish(repeated, "id", "repeated")])
    expected = duckdb_join(duckdb_join(stream, unique, ["id"], ["id"]), repeated, ["id"], ["id"])
    assert_same_table(enriched, expected)


@pytest.mark.parametrize("algorithm", ["adaptive", "inlj"])
def test_in_the_least_memory_rows_go_through_in_pieces_and_all_of_them_arrive(
    session: SparkSession, publish: Publish, algorithm: str
) -> None:
    stream, unique, repeated = _shop(400)
    for table, name in ((unique, "unique"), (repeated, "repeated")):
        relation = publish(table, "id", name)
        with pytest.raises(BudgetExceeded) as refused:
            ss.enrich(frame_of(session, stream), relation, memory=100, algorithm=algorithm)
        least_bytes = int(str(refused.value.allowed).split()[-2])
        enriched = ss.enrich(frame_of(session, stream), relation, memory=least_bytes, algorithm=algorithm)
        assert crossings(enriched) == ["MapInArrow"], "the answer to a whole batch cannot fit"
        assert_same_table(enriched, duckdb_join(stream, table, ["id"], ["id"]))


# ---------------------------------------------------------------------------------------------------------------------
# Inside a larger query
# ---------------------------------------------------------------------------------------------------------------------


def test_whatever_is_asked_of_the_result_python_is_asked_once(
    session: SparkSession, products: RelationHandle, offers: RelationHandle
) -> None:
    df = frame_of(session, SALES)
    for relation, word, kind in ((products, "name", "ArrowEvalPython"), (offers, "shop", "MapInArrow")):
        enriched = ss.enrich(df, relation)
        asked = [
            enriched.where(F.col(word) > "b").where(F.length(word) > 1),
            enriched.groupBy(word).agg(F.sum("n")).where(F.col(word).isNotNull()),
            enriched.select(F.upper(word).alias("x"), word).where("x like 'B%'"),
            enriched.orderBy(word).limit(2).select("n"),
        ]
        assert [crossings(query) for query in asked] == [[kind]] * len(asked)
    bees = ss.enrich(df, products).groupBy("name").agg(F.sum("n").alias("n")).where("name = 'ant'")
    assert bees.toArrow().to_pylist() == [{"name": "ant", "n": 60}]


def test_counts_are_observed_as_a_column_of_their_own(session: SparkSession, products: RelationHandle) -> None:
    plan = physical_plan(ss.enrich(frame_of(session, SALES), products))
    # A field of a struct would be taken out by Spark's interpreter, row by row.
    assert "collect_list(__semistream_counts#" in plan


def test_a_batch_query_sees_the_version_it_was_planned_with(
    session: SparkSession, publish: Publish, products: RelationHandle
) -> None:
    df = frame_of(session, pa.table({"id": [1]}))
    before = ss.enrich(df, products).select("name")
    publish(pa.table({"id": [1], "name": ["new ant"], "price": [9.9]}), "id")
    after = ss.enrich(df, ss.relation(products.path)).select("name")
    assert before.toArrow().to_pylist() == [{"name": "ant"}]
    assert after.toArrow().to_pylist() == [{"name": "new ant"}]


def test_a_directory_removed_and_built_anew_is_read_anew(session: SparkSession, publish: Publish) -> None:
    df = frame_of(session, pa.table({"id": [1]}))
    for name in ("ant", "asp"):
        relation = publish(pa.table({"id": [1], "name": [name]}), "id")
        assert relation.info.version == 1
        assert ss.enrich(df, relation).toArrow().to_pylist() == [{"id": 1, "name": name}]
        shutil.rmtree(relation.path)


# ---------------------------------------------------------------------------------------------------------------------
# Relations from DataFrames
# ---------------------------------------------------------------------------------------------------------------------


def test_a_relation_is_built_from_a_dataframe(session: SparkSession, tmp_path: Any) -> None:
    source = frame_of(session, NESTED).withColumn("clock", F.col("clock").cast("timestamp_ntz"))
    before = session.conf.get("spark.sql.parquet.outputTimestampType")
    report = ss.build_relation(source, key="id", out=tmp_path / "nested", unique=True)
    assert session.conf.get("spark.sql.parquet.outputTimestampType") == before
    assert (report.row_count, report.unique) == (3, True)
    assert [path.name for path in tmp_path.iterdir()] == ["nested"], "the folder in between is left"
    stream = pa.table({"id": [3, 1, 2, 4]})
    enriched = ss.enrich(frame_of(session, stream), ss.relation(tmp_path / "nested"))
    assert_same_rows(enriched.toArrow(), reference_join(stream, NESTED, ["id"], ["id"]))


def test_instants_of_a_dataframe_can_be_a_key(session: SparkSession, tmp_path: Any) -> None:
    events = pa.table({"at": keys_at("instant", [1, 2, 3], in_stream=True), "a.b": ["x", "y", "z"], "n": [1, 2, 3]})
    ss.build_relation(frame_of(session, events), key="at", out=tmp_path / "events", columns=["a.b"])
    enriched = ss.enrich(frame_of(session, events.select(["at"])), ss.relation(tmp_path / "events"))
    assert_same_table(enriched, events.select(["at", "a.b"]))


ELSEWHERE = ("adaptive", "inlj", "pcsrj")
"""Above, or, for a relation in hash partitions, in `test_enrich_partitions`."""


@pytest.mark.parametrize("algorithm", [name for name in ALGORITHMS if name not in ELSEWHERE])
def test_every_algorithm_of_the_papers_joins_on_spark(
    classic_session: SparkSession, publish: Publish, algorithm: str
) -> None:
    rng = np.random.default_rng(len(algorithm))
    repeats = 2 if ALGORITHMS[algorithm].many_to_many else 1
    master = pa.table({"id": np.repeat(np.arange(200), repeats), "name": [f"n{i}" for i in range(200 * repeats)]})
    stream = pa.table({"id": pa.array(rng.integers(0, 250, 500), mask=rng.random(500) < 0.1), "row": range(500)})
    enriched = ss.enrich(
        classic_session.createDataFrame(stream), publish(master, "id"), algorithm=algorithm, memory="16MB"
    )
    assert_same_rows(enriched.toArrow(), duckdb_join(stream, master, ["id"], ["id"]))
