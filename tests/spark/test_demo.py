"""The demo from end to end, small, and every number of it recomputed by DuckDB from the files alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

SALES_ROWS = 20_000
BUDGET_BYTES = 16_000_000

# In a process of its own: the demo starts and ends a Spark, and this one may hold another.
RUN = f"""
import json, sys
from semistream.demo.run import run_demo
from semistream.lab.workloads.retail import ShopSize
size = ShopSize(products=30_000, stores=40, customers=2_000)
print(json.dumps(run_demo({SALES_ROWS}, {BUDGET_BYTES}, sys.argv[1], seed=50, size=size).as_json()))
"""

EXPECTED_FACT = """
    SELECT sale_id,
           CAST(strftime(sold_at AT TIME ZONE 'UTC', '%Y%m%d') AS INTEGER) AS date_key,
           COALESCE(product_key, -1) AS product_key,
           COALESCE(store_key, -1) AS store_key,
           COALESCE(customer_key, -1) AS customer_key,
           quantity, unit_price, quantity * unit_price AS revenue, quantity * unit_cost AS cost
    FROM '{root}/stream/*.parquet'
    LEFT JOIN '{root}/sources/products.parquet' USING (product_id)
    LEFT JOIN '{root}/sources/stores.parquet' USING (store_id)
    LEFT JOIN '{root}/sources/customers.parquet' USING (customer_id)
"""

FACT = "SELECT * FROM '{root}/warehouse/sales_fact/*.parquet'"

EXPECTED_TOP = """
    SELECT strftime(sold_at AT TIME ZONE 'UTC', '%Y-%m') AS month, COALESCE(product_name, 'Unknown') AS product_name,
           COALESCE(category, 'Unknown') AS category, SUM(quantity) AS units, SUM(quantity * unit_price) AS revenue
    FROM '{root}/stream/*.parquet' LEFT JOIN '{root}/sources/products.parquet' USING (product_id)
    GROUP BY month, product_key, product_name, category
    QUALIFY ROW_NUMBER() OVER (PARTITION BY month ORDER BY revenue DESC, product_key NULLS FIRST) <= 2
    ORDER BY month, revenue DESC, product_key NULLS FIRST
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "run"


@pytest.fixture(scope="module")
def result(root: Path) -> dict[str, Any]:
    finished = subprocess.run(
        [sys.executable, "-c", RUN, str(root)], capture_output=True, text=True, timeout=110, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == "", "Spark's chatter reached the user"
    answer: dict[str, Any] = json.loads(finished.stdout)
    return answer


def query(sql: str, root: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        return connection.sql(sql.format(root=root)).fetchall()


def test_every_count_agrees(result: dict[str, Any]) -> None:
    assert result["rows_in"] == result["rows_out"] == SALES_ROWS
    assert result["balanced"] is True
    assert 0 < result["hit_rate"] < 1
    assert 0 < result["peak_bytes"] <= result["budget_bytes"] == BUDGET_BYTES
    assert result["rows_per_second"] > 0
    assert result["batches"] == 12


def test_the_fact_is_what_duckdb_joins(result: dict[str, Any], root: Path) -> None:
    assert query(f"({FACT}) EXCEPT ALL ({EXPECTED_FACT})", root) == []
    assert query(f"({EXPECTED_FACT}) EXCEPT ALL ({FACT})", root) == []


def test_unknown_articles_and_guests_point_to_the_unknown_member(result: dict[str, Any], root: Path) -> None:
    counted = query(f"SELECT count_if(product_key = -1), count_if(customer_key = -1) FROM ({FACT})", root)
    assert counted == [(result["unknown_products"], result["guests"])]
    assert result["unknown_products"] > 0
    assert result["guests"] > 0


@pytest.mark.parametrize("dimension", ["product", "store", "customer"])
def test_a_dimension_has_every_member_once_and_the_unknown_one(
    result: dict[str, Any], root: Path, dimension: str
) -> None:
    key = f"{dimension}_key"
    table = f"'{{root}}/warehouse/{dimension}_dim/*.parquet'"
    source = f"'{{root}}/sources/{dimension}s.parquet'"
    assert query(f"SELECT {dimension}_name FROM {table} WHERE {key} = -1", root) == [("Unknown",)]
    assert query(f"(FROM {table} WHERE {key} <> -1) EXCEPT ALL (FROM {source})", root) == []
    assert query(f"(FROM {source}) EXCEPT ALL (FROM {table})", root) == []
    assert query(f"SELECT count(*) FROM ({FACT}) ANTI JOIN {table} USING ({key})", root) == [(0,)]


def test_every_sale_has_its_day(result: dict[str, Any], root: Path) -> None:
    days = "'{root}/warehouse/date_dim/*.parquet'"
    assert query(f"SELECT count(*) FROM ({FACT}) ANTI JOIN {days} USING (date_key)", root) == [(0,)]
    wrong = (
        "strftime(date, '%Y%m%d')::INT <> date_key OR isodow(date) <> weekday OR (isodow(date) > 5) <> is_weekend "
        "OR quarter(date) <> quarter OR strftime(date, '%Y-%m') <> month OR year(date) <> year"
    )
    assert query(f"SELECT count(*), count_if({wrong}) FROM {days}", root) == [(365, 0)]


def test_the_top_products_are_what_duckdb_finds(result: dict[str, Any], root: Path) -> None:
    expected = query(EXPECTED_TOP, root)
    assert len(expected) == 24
    found = [
        (top["month"], top["product_name"], top["category"], top["units"], top["revenue"])
        for top in result["top_products"]
    ]
    assert found == [(*row[:3], int(row[3]), float(row[4])) for row in expected]
