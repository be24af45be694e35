"""`advise` on Spark: what it says of a stream beside what `enrich` does with it, live and in batches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import semistream as ss
from semistream.errors import BudgetExceeded, InvalidOption, KeyMismatch
from semistream.lab.workloads.zipf import Shuffle, Zipf
from semistream.relations.handle import RelationHandle
from tests.support.frames import observed

Publish = Callable[..., RelationHandle]

KEYS = 200_000
TABLE = pa.table({"id": np.arange(KEYS), "text": np.full(KEYS, "x" * 100)})


def sales(session: SparkSession, folder: Path, rows: int, exponent: float = 1.0) -> Any:
    keys = Shuffle(KEYS, 1)(Zipf(KEYS, exponent).sample(np.random.default_rng(1), rows))
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(keys, 8)):
        pq.write_table(pa.table({"n": np.arange(len(part)), "product": part}), folder / f"{number}.parquet")
    return session.read.parquet(str(folder))


def live(session: SparkSession, folder: Path, files_per_batch: int) -> Any:
    files = session.readStream.schema("n LONG, product LONG").option("maxFilesPerTrigger", files_per_batch)
    return files.parquet(str(folder))


def assert_nothing_is_left(session: SparkSession) -> None:
    assert not [table for table in session.catalog.listTables() if "semistream" in table.name]
    assert not session.streams.active


@pytest.mark.slow
def test_the_advice_is_about_what_enrich_does(classic_session: SparkSession, publish: Publish, tmp_path: Path) -> None:
    products = publish(TABLE, "id")
    df = sales(classic_session, tmp_path / "sales", 800_000)
    point = ss.advise(df, products, on="product", memory="24MB", rows=800_000).points[0]

    # Two micro-batches: the advice is about the second half of a stream whose first has filled the memory.
    enriched = ss.enrich(live(classic_session, tmp_path / "sales", 4), products, on="product", memory="24MB", name="e")
    query = enriched.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    counts = [observed(progress, "e") for progress in query.recentProgress if progress.numInputRows][1]
    hit_share = counts["hits"] / counts["rows_in"]
    print(f"told {point.hit_share:.3f}, counted {hit_share:.3f}")
    assert point.hit_share == pytest.approx(hit_share, abs=0.03)
    assert point.hit_share <= point.best_hit_share


def test_a_live_stream_is_watched_until_enough_rows_have_come(
    session: SparkSession, publish: Publish, tmp_path: Path
) -> None:
    products = publish(TABLE, "id")
    sales(session, tmp_path / "sales", 20_000)
    # What is filtered out does not count.
    stream = live(session, tmp_path / "sales", 2).where("n % 2 = 0")
    found = ss.advise(stream, products.on("product"), memory=["4MB", "40MB"], rate=1.0, rows=8_000, seconds=60)
    assert found.stream_rows == 8_000
    assert [point.memory_bytes for point in found.points] == [4_000_000, 40_000_000]
    assert found.points[0].remembered_keys < found.points[1].remembered_keys
    assert found.least is not None
    assert found.least.memory_bytes < 4_000_000
    assert_nothing_is_left(session)
    assert "are enough" in str(found)
    assert json.loads(json.dumps(found.as_json()))["stream_rows"] == 8_000
    found.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 0


def test_keys_of_several_columns_that_repeat(classic_session: SparkSession, publish: Publish) -> None:
    weather = publish(
        pa.table({"city": ["Ahe", "Bor", "Bor", "Cem"], "hour": [1, 1, 1, 2], "degrees": [3.5, 4.5, 5.5, 6.5]}),
        ["city", "hour"],
    )
    rows = [("Bor", 1), ("Bor", 1), ("Ahe", 1), (None, 1), ("Cem", None), ("Bor", 1), ("Bor", 1)]
    flights = classic_session.createDataFrame(rows, "origin STRING, hour INT")
    found = ss.advise(flights, weather, on=["origin", "hour"], memory="16MB")
    # A null in a key never has a partner.
    assert (found.stream_rows, found.distinct_keys) == (5, 2)
    # Of the second half, "Ahe" is new and "Bor" is not.
    assert found.points[0].hit_share == pytest.approx(2 / 3)


def test_a_stream_that_does_not_flow_is_not_watched_for_ever(session: SparkSession, products: RelationHandle) -> None:
    still = session.readStream.format("rate").option("rowsPerSecond", 1).load().where("value < 0")
    with pytest.raises(InvalidOption, match=r"no row with a key has come.*1 s for a streaming"):
        ss.advise(still.withColumnRenamed("value", "id"), products, seconds=1)


def test_a_query_that_fails_says_why(session: SparkSession, products: RelationHandle) -> None:
    rate = session.readStream.format("rate").option("rowsPerSecond", 10).load()
    failing = rate.selectExpr("CAST(raise_error('the source is broken') AS LONG) AS id")
    with pytest.raises(Exception, match="the source is broken"):
        ss.advise(failing, products, seconds=30)
    assert_nothing_is_left(session)


def test_mistakes_are_refused_before_anything_runs(classic_session: SparkSession, products: RelationHandle) -> None:
    numbers = classic_session.readStream.format("rate").load().withColumnRenamed("value", "id")
    texts = numbers.selectExpr("CAST(id AS STRING) AS id")
    with pytest.raises(KeyMismatch):
        ss.advise(texts, products)
    with pytest.raises(InvalidOption, match="did you mean 'nvme'"):
        ss.advise(numbers, products, io="nvm")
    with pytest.raises(InvalidOption, match="one relation at a time"):
        ss.advise(numbers, [products, products.on(prefix="other_")])  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="no size of memory"):
        ss.advise(numbers, products, memory=[])
    wrong: tuple[dict[str, Any], ...] = (
        {"rows": 0},
        {"rows": 2.5},
        {"rows": "10"},
        {"seconds": float("nan")},
        {"seconds": "5"},
        {"rate": float("inf")},
        {"rate": -5},
        {"rate": "50k"},
    )
    for options in wrong:
        with pytest.raises(InvalidOption, match=rf"`{next(iter(options))}` must be a positive"):
            ss.advise(numbers, products, **options)
    with pytest.raises(InvalidOption, match="a memory size could not be read"):
        ss.advise(numbers, products, memory=None)  # type: ignore[arg-type]
    with pytest.raises(BudgetExceeded):
        ss.advise(numbers, products, memory=["64MB", "1KB"])
    assert not classic_session.streams.active
