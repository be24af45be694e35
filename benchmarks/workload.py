"""The data of the benchmarks: a relation of products and a Zipf-skewed stream of sales."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss
from semistream.lab.workloads.zipf import Shuffle, Zipf

CHUNK_ROWS = 1_000_000


def product_batches(rows: int, seed: int) -> Iterator[pa.RecordBatch]:
    """Products with six columns beside the key, two of them strings; about 74 bytes a row."""
    rng = np.random.default_rng(seed)
    for begin in range(0, rows, CHUNK_ROWS):
        ids = np.arange(begin, min(begin + CHUNK_ROWS, rows))
        yield pa.record_batch(
            {
                "product_id": ids,
                "product_key": ids.astype(np.int32),
                "name": pa.array(np.char.add("product-", ids.astype(str))),
                "category": pa.array(np.char.add("category-", (ids % 97).astype(str))),
                "price": rng.random(len(ids)),
                "weight_g": ids * 3,
                "listed_on": pa.array((ids % 20_000).astype(np.int32), pa.date32()),
            }
        )


def write_products(folder: Path, rows: int, seed: int) -> None:
    """The products as a Parquet file, `products.parquet`, and as a relation, `products`."""
    batches = product_batches(rows, seed)
    first = next(batches)
    with pq.ParquetWriter(folder / "products.parquet", first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
    ss.build_relation(folder / "products.parquet", key="product_id", out=folder / "products", unique=True)


def write_sales(folder: Path, relation_rows: int, files: int, rows_per_file: int, exponent: float, seed: int) -> None:
    """Sales as Parquet files in `sales`, one of them a micro-batch; popular products are spread over the key range."""
    rng = np.random.default_rng(seed)
    popular = Zipf(relation_rows, exponent)
    spread = Shuffle(relation_rows, seed)
    (folder / "sales").mkdir()
    for i in range(files):
        keys = spread(popular.sample(rng, rows_per_file))
        sales = pa.table({"sale_id": np.arange(rows_per_file), "product_id": keys, "quantity": keys % 7})
        pq.write_table(sales, folder / "sales" / f"part-{i:04}.parquet")
