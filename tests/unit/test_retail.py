"""The shop's data: tills and master data agree, and what is odd about a sale is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from semistream.lab.workloads.retail import (
    SALES_SCHEMA,
    YEAR,
    SalesWritten,
    Shop,
    ShopSize,
    customer_batches,
    product_batches,
    sales_bursts,
    store_batches,
    write_parquet,
    write_sales,
)

SIZE = ShopSize(products=20_000, stores=50, customers=3_000)
SALES_ROWS = 60_000


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop(SIZE, seed=40)


@pytest.fixture(scope="module")
def sales(shop: Shop) -> pa.Table:
    return pa.Table.from_batches(sales_bursts(shop, SALES_ROWS, bursts=9))


def table(batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches)


@pytest.mark.parametrize("make", [product_batches, store_batches, customer_batches])
def test_keys_of_master_data_are_unique_and_complete(shop: Shop, make: object) -> None:
    master = table(make(shop))  # type: ignore[operator]
    for column in master.column_names[:2]:
        assert master[column].null_count == 0
        assert len(pc.unique(master[column])) == master.num_rows
    assert pc.min(master.column(1)).as_py() == 1, "surrogate keys start above the unknown member's"


def test_tables_have_the_size_that_was_asked_for(shop: Shop, tmp_path: Path) -> None:
    assert write_parquet(product_batches(shop), tmp_path / "products.parquet") == SIZE.products
    assert write_parquet(store_batches(shop), tmp_path / "stores.parquet") == SIZE.stores
    assert write_parquet(customer_batches(shop), tmp_path / "customers.parquet") == SIZE.customers
    assert pq.read_metadata(tmp_path / "products.parquet").num_rows == SIZE.products


def test_article_numbers_are_not_in_order(shop: Shop) -> None:
    ids = table(product_batches(shop))["product_id"].to_numpy()
    assert 0.4 < np.mean(np.diff(ids) > 0) < 0.6


def test_sales_run_through_the_year_in_order(sales: pa.Table) -> None:
    assert sales.schema == SALES_SCHEMA
    assert sales["sale_id"].to_pylist() == list(range(1, SALES_ROWS + 1))
    sold_at = sales["sold_at"].to_numpy()
    assert np.all(np.diff(sold_at) >= np.timedelta64(0))
    assert {str(month) for month in np.unique(sold_at.astype("datetime64[M]"))} == {
        f"{YEAR}-{month:02d}" for month in range(1, 13)
    }


def test_a_few_products_make_most_of_the_sales(sales: pa.Table) -> None:
    counts = np.sort(pc.value_counts(sales["product_id"]).field("counts").to_numpy())[::-1]
    assert counts[:200].sum() > 0.3 * SALES_ROWS


def test_popular_products_are_strewn_over_the_catalogue(shop: Shop, sales: pa.Table) -> None:
    counted = pc.value_counts(sales["product_id"])
    order = np.argsort(counted.field("counts").to_numpy())[::-1][:50]
    popular = np.sort(counted.field("values").to_numpy()[order])
    ids = np.sort(table(product_batches(shop))["product_id"].to_numpy())
    assert np.median(np.diff(np.searchsorted(ids, popular))) > 20


def test_till_prices_are_list_prices_less_a_discount(shop: Shop, sales: pa.Table) -> None:
    products = table(product_batches(shop)).select(["product_id", "list_price", "unit_cost"])
    joined = sales.join(products, "product_id", join_type="inner")
    ratio = pc.divide(joined["unit_price"].cast(pa.float64()), joined["list_price"].cast(pa.float64())).to_numpy()
    assert 0.7 < ratio.min() <= ratio.max() == 1.0
    assert pc.all(pc.less(joined["unit_cost"], joined["list_price"])).as_py()


def test_what_is_odd_about_the_sales_is_counted(shop: Shop, sales: pa.Table, tmp_path: Path) -> None:
    written = write_sales(shop, SALES_ROWS, bursts=9, directory=tmp_path / "sales")
    products, customers = table(product_batches(shop)), table(customer_batches(shop))
    unknown = pc.invert(pc.is_in(sales["product_id"], products["product_id"].combine_chunks()))
    assert written == SalesWritten(
        rows=SALES_ROWS, bursts=9, unknown_products=pc.sum(unknown).as_py(), guests=sales["customer_id"].null_count
    )
    assert 0.003 < written.unknown_products / SALES_ROWS < 0.007
    assert 0.015 < written.guests / SALES_ROWS < 0.025
    known = sales["customer_id"].drop_null()
    assert pc.all(pc.is_in(known, customers["customer_id"].combine_chunks())).as_py()


def test_a_burst_is_a_file_and_files_are_as_old_as_their_order(shop: Shop, sales: pa.Table, tmp_path: Path) -> None:
    write_sales(shop, SALES_ROWS, bursts=9, directory=tmp_path)
    by_age = sorted(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in by_age] == [f"burst-{number:05d}.parquet" for number in range(9)]
    assert len({path.stat().st_mtime for path in by_age}) == 9
    assert pa.concat_tables([pq.read_table(path) for path in by_age]).equals(sales)


def test_a_seed_makes_the_same_shop_again_and_another_seed_another(sales: pa.Table) -> None:
    again = table(sales_bursts(Shop(SIZE, seed=40), SALES_ROWS, bursts=9))
    other = table(sales_bursts(Shop(SIZE, seed=41), SALES_ROWS, bursts=9))
    assert again.equals(sales)
    assert not other.equals(sales)


def test_a_shop_with_one_of_each_still_sells() -> None:
    tiny = Shop(ShopSize(products=1, stores=1, customers=1), seed=42)
    assert table(sales_bursts(tiny, 5, bursts=2)).num_rows == 5
