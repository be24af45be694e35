"""Bad input is refused before a query starts, in words that say what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import semistream as ss
from semistream.errors import (
    BudgetExceeded,
    ColumnCollision,
    ColumnNotFound,
    DuplicateKey,
    InvalidOption,
    KeyMismatch,
    RelationCorrupt,
    RelationNotFound,
    SemistreamError,
)
from semistream.relations.handle import RelationHandle
from tests.support.frames import frame_of

Publish = Callable[..., RelationHandle]


@pytest.fixture
def sales(session: SparkSession) -> DataFrame:
    return frame_of(session, pa.table({"product_id": [1, 2], "store": ["a", "b"], "amount": [1.5, 2.5]}))


def refusal(call: Callable[[], Any], kind: type[SemistreamError]) -> str:
    """What the error says."""
    with pytest.raises(kind) as refused:
        call()
    return str(refused.value)


# ---------------------------------------------------------------------------------------------------------------------
# The relation's files
# ---------------------------------------------------------------------------------------------------------------------


def test_a_path_without_a_relation_is_named(tmp_path: Path) -> None:
    message = refusal(lambda: ss.relation(tmp_path / "nowhere"), RelationNotFound)
    assert str(tmp_path / "nowhere") in message
    assert "semistream index" in message


def test_what_is_not_a_relation_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "data.parquet")
    for path in (tmp_path, tmp_path / "data.parquet"):
        message = refusal(lambda path=path: ss.relation(path), RelationCorrupt)
        assert "this is not a relation" in message
        assert str(path) in message


@pytest.fixture
def pages(publish: Publish) -> RelationHandle:
    """Enough rows for several pages; it was opened once and found to be sound."""
    rows = 20_000
    return publish(pa.table({"id": range(rows), "name": [f"name {i}" * 3 for i in range(rows)]}), "id", "pages")


def damaged_copy(handle: RelationHandle, damage: Callable[[Path], None], suffix: str) -> Path:
    """The relation at another place, where it was never looked at, with a file of it damaged."""
    place = Path(handle.path).with_name("damaged")
    place.mkdir()
    for file in Path(handle.path).iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    (file,) = (path for path in place.iterdir() if path.name.endswith(suffix))
    damage(file)
    return place


FILES = ["001.arrow", ".index.arrow", ".json", "CURRENT"]


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_truncated_relation_is_refused(pages: RelationHandle, suffix: str, kept: float) -> None:
    place = damaged_copy(
        pages, lambda file: file.write_bytes(file.read_bytes()[: int(file.stat().st_size * kept)]), suffix
    )
    message = refusal(lambda: ss.relation(place), RelationCorrupt)
    assert str(place) in message or "damaged" in message


@pytest.mark.parametrize("suffix", FILES)
@pytest.mark.parametrize("where", [0.0, 0.3, 0.6, 0.999])
def test_a_relation_with_one_bit_flipped_is_refused(pages: RelationHandle, suffix: str, where: float) -> None:
    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[int(len(content) * where)] ^= 0b100
        file.write_bytes(content)

    message = refusal(lambda: ss.relation(damaged_copy(pages, flip, suffix)), SemistreamError)
    assert "damaged" in message


def test_the_key_one_believes_in_is_compared_with_the_relation_s(products: RelationHandle) -> None:
    message = refusal(lambda: ss.relation(products.path, key="product_id"), InvalidOption)
    assert message.startswith("relation 'products' has another key; given: product_id; allowed: id.")
    assert ss.relation(products.path, key="id").key == ss.relation(products.path, key=["id"]).key == ("id",)


@pytest.mark.parametrize("option", ["key", "columns"])
@pytest.mark.parametrize("wrong", [5, [5], {"id"}])
def test_columns_of_the_relation_are_named_by_strings(products: RelationHandle, option: str, wrong: Any) -> None:
    message = refusal(lambda: ss.relation(products.path, **{option: wrong}), InvalidOption)
    assert message.startswith(f"`{option}` does not name columns of the relation; given: {wrong!r}")


@pytest.mark.parametrize("wrong", [5, ["product_id"]])
def test_columns_of_the_stream_are_named_by_strings(products: RelationHandle, wrong: Any) -> None:
    message = refusal(lambda: products.on(wrong), InvalidOption)
    assert f"a column of the stream is not named by a string; given: {wrong!r}" in message


def test_the_stream_s_key_and_the_prefix_are_names(sales: DataFrame, products: RelationHandle) -> None:
    assert "`on` does not name columns" in refusal(lambda: ss.enrich(sales, products, on=[]), InvalidOption)
    message = refusal(lambda: ss.enrich(sales, products, on="product_id", prefix=5), InvalidOption)  # type: ignore[arg-type]
    assert "`prefix` is not a string; given: 5" in message


def test_an_unknown_column_of_the_relation_is_refused(products: RelationHandle) -> None:
    message = refusal(lambda: ss.relation(products.path, columns=["nmae"]), ColumnNotFound)
    assert "relation 'products' has no column 'nmae'" in message
    assert "did you mean 'name'?" in message


# ---------------------------------------------------------------------------------------------------------------------
# Keys
# ---------------------------------------------------------------------------------------------------------------------


def test_a_key_column_that_the_stream_lacks_is_named(sales: DataFrame, products: RelationHandle) -> None:
    message = refusal(lambda: ss.enrich(sales, products, on="produkt_id"), ColumnNotFound)
    assert message.startswith("the stream has no column 'produkt_id', which should hold the key of 'products'")
    assert "did you mean 'product_id'?" in message
    message = refusal(lambda: ss.enrich(sales, products), ColumnNotFound)
    assert "the stream has no column 'id'" in message


def test_key_types_that_differ_are_both_named(sales: DataFrame, products: RelationHandle) -> None:
    message = refusal(lambda: ss.enrich(sales, products, on="store"), KeyMismatch)
    assert "the stream's 'store' cannot be compared with the relation's 'id'" in message
    assert "string" in message
    assert "int64" in message
    message = refusal(lambda: ss.enrich(sales, products, on="amount"), KeyMismatch)
    assert "the stream's 'amount' has a type that cannot be a key; given: double" in message


def test_instants_and_times_without_a_zone_are_not_mixed_up(session: SparkSession, publish: Publish) -> None:
    relation = publish(pa.table({"at": pa.array([0, 1], pa.timestamp("us")), "n": [1, 2]}), "at")
    stream = frame_of(session, pa.table({"at": pa.array([0, 1], pa.timestamp("us", tz="UTC"))}))
    assert "timestamp with zone" in refusal(lambda: ss.enrich(stream, relation), KeyMismatch)


@pytest.mark.parametrize("on", [["product_id"], ["product_id", "store", "amount"]])
def test_the_number_of_stream_columns_must_be_that_of_the_key(
    sales: DataFrame, publish: Publish, on: list[str]
) -> None:
    weather = publish(pa.table({"place": ["a"], "hour": [1], "rain": [0.5]}), ["place", "hour"], "weather")
    message = refusal(lambda: ss.enrich(sales, weather, on=on), InvalidOption)
    assert message.startswith("relation 'weather' has a key of 2 columns")
    assert f"given: {len(on)} columns" in message
    assert "one for each of place, hour" in message


def test_the_stream_s_columns_are_given_once(sales: DataFrame, products: RelationHandle) -> None:
    bound = products.on("product_id")
    assert "given twice" in refusal(lambda: ss.enrich(sales, bound, on="product_id"), InvalidOption)
    message = refusal(lambda: ss.enrich(sales, [bound], on="product_id"), InvalidOption)
    assert "`on` and `prefix` are for a single relation" in message


# ---------------------------------------------------------------------------------------------------------------------
# Names
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["name", "Name"])
def test_columns_that_collide_are_refused_whatever_their_case(
    sales: DataFrame, products: RelationHandle, name: str
) -> None:
    stream = sales.withColumnRenamed("store", name)
    message = refusal(lambda: ss.enrich(stream, products, on="product_id"), ColumnCollision)
    assert message.startswith(f"the column 'name' of relation 'products' collides with {name!r} of the stream")
    assert "prefix='products_'" in message
    both = [products.on("product_id"), products.on("product_id")]
    message = refusal(lambda: ss.enrich(sales, both), ColumnCollision)
    assert "collides with 'name' of relation 'products'" in message


@pytest.mark.parametrize("name", ["__semistream", "__semistream_counts"])
def test_names_used_inside_are_refused(sales: DataFrame, publish: Publish, products: RelationHandle, name: str) -> None:
    stream = sales.withColumnRenamed("store", name)
    message = refusal(lambda: ss.enrich(stream, products, on="product_id"), ColumnCollision)
    assert f"{name!r}, a name that is used inside" in message
    relation = publish(pa.table({"id": [1], name.title(): [1]}), "id", "odd")
    message = refusal(lambda: ss.enrich(sales, relation, on="product_id"), ColumnCollision)
    assert "collides with a name that is used inside" in message


def test_two_stream_columns_of_one_name_are_refused(sales: DataFrame, products: RelationHandle) -> None:
    doubled = sales.select("product_id", "store", sales["amount"].alias("store"))
    message = refusal(lambda: ss.enrich(doubled, products, on="product_id"), ColumnCollision)
    assert "the stream has several columns 'store'" in message


# ---------------------------------------------------------------------------------------------------------------------
# Options
# ---------------------------------------------------------------------------------------------------------------------

WRONG_OPTIONS: list[tuple[dict[str, Any], type[SemistreamError], list[str]]] = [
    ({"algorithm": "adaptiv"}, InvalidOption, ["`algorithm` has an unknown value", "did you mean 'adaptive'?"]),
    ({"on_miss": "nul"}, InvalidOption, ["`on_miss` has an unknown value", "null, drop", "did you mean 'null'?"]),
    ({"memory": "lots"}, InvalidOption, ["lots"]),
    ({"memory": 0}, InvalidOption, ["0"]),
    ({"memory": 50}, BudgetExceeded, ["too small for one row of relation 'products'", "memory of at least"]),
    ({"on_miss": "default"}, InvalidOption, ['on_miss="default" needs `defaults`', "name, price"]),
    ({"on_miss": "default", "defaults": {}}, InvalidOption, ['on_miss="default" needs `defaults`']),
    ({"defaults": {"name": "?"}}, InvalidOption, ["`defaults` are given but never used", 'on_miss="default"']),
    (
        {"on_miss": "default", "defaults": {"nane": "?"}},
        ColumnNotFound,
        ["a default for 'nane', which no relation adds", "did you mean 'name'?"],
    ),
    (
        {"on_miss": "default", "defaults": {"name": 7}},
        InvalidOption,
        ["the default for 'name' has the wrong type", "given: 7", "allowed: string"],
    ),
    (
        {"on_miss": "default", "defaults": {"price": "cheap"}},
        InvalidOption,
        ["the default for 'price' has the wrong type", "'cheap'", "double"],
    ),
]


@pytest.mark.parametrize(("options", "kind", "words"), WRONG_OPTIONS, ids=lambda value: str(value)[:40])
def test_wrong_options_are_refused(
    sales: DataFrame, products: RelationHandle, options: dict[str, Any], kind: type[SemistreamError], words: list[str]
) -> None:
    messages = [
        refusal(lambda: ss.enrich(sales, products, on="product_id", **options), kind),
        refusal(lambda: ss.lookup(products, "product_id", **options), kind),
    ]
    for message in messages:
        assert [word for word in words if word not in message] == []


def test_a_column_that_cannot_cross_to_python_is_named(sales: DataFrame, offers: RelationHandle) -> None:
    df = sales.withColumn("span", F.expr("interval '2' year"))
    message = refusal(lambda: ss.enrich(df, offers, on="product_id"), InvalidOption)
    assert "the stream's column 'span' has a type that cannot cross to Python" in message
    assert "interval year" in message


def test_two_enrichments_of_one_name_are_told_apart_by_name(
    classic_session: SparkSession, products: RelationHandle
) -> None:
    df = frame_of(classic_session, pa.table({"a": [1], "b": [2]}))
    name, price = (ss.relation(products.path, columns=[column]) for column in ("name", "price"))
    once = ss.enrich(df, name, on="a")
    message = refusal(lambda: ss.enrich(once, price, on="b"), InvalidOption)
    assert "metrics of this name already; given: enrich_products" in message
    assert ss.enrich(once, price, on="b", name="prices").toArrow().to_pylist() == [
        {"a": 1, "b": 2, "name": "ant", "price": 2.5}
    ]


def test_something_that_is_not_a_relation_is_refused(sales: DataFrame, products: RelationHandle) -> None:
    for wrong in (products.path, [products.path], [products.on("product_id"), None], None):
        for options in ({}, {"on": "product_id"}):
            message = refusal(lambda wrong=wrong, options=options: ss.enrich(sales, wrong, **options), InvalidOption)
            assert "not a relation" in message
            assert "semistream.relation" in message
    table = pa.table({"product_id": [1]})
    assert "not a DataFrame of Spark; given: Table" in refusal(lambda: ss.enrich(table, products), InvalidOption)
    assert "nothing to enrich with" in refusal(lambda: ss.enrich(sales, []), InvalidOption)


def test_a_relation_is_not_built_from_what_it_cannot_be_built_from(
    session: SparkSession, sales: DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "built"
    message = refusal(lambda: ss.build_relation(sales, key="product", out=out), ColumnNotFound)
    assert message.startswith("the DataFrame has no column 'product'")
    assert "did you mean 'product_id'?" in message
    refusal(lambda: ss.build_relation(sales, key="store", columns=["amuont"], out=out), ColumnNotFound)
    message = refusal(lambda: ss.build_relation(sales.union(sales), key="store", unique=True, out=out), DuplicateKey)
    assert "store=" in message
    twice = sales.toDF("store", "same", "same")
    assert "several columns 'same'" in refusal(lambda: ss.build_relation(twice, key="store", out=out), InvalidOption)
    for sql in ("interval '2' day", "array(interval '2' year)", "parse_json('1')", "time'10:00:00'"):
        changed = sales.withColumn("odd", F.expr(sql))
        message = refusal(lambda df=changed: ss.build_relation(df, key="store", out=out), InvalidOption)
        assert "the column 'odd' of the DataFrame has a type that does not survive" in message
        assert "columns=" in message
    stream = session.readStream.format("rate").load()
    assert "a streaming DataFrame" in refusal(lambda: ss.build_relation(stream, key="value", out=out), InvalidOption)
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == [], "a folder in between is left"
