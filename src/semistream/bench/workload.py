"""The data of `bench enrich`: products, and sales that ask for them, made once and used by all contenders.

R has seven columns, two of them strings: about 97 bytes a row. Keys are numbers from 0 on. Popularity follows Zipf's
law, and a permutation spreads it over the keys, so that what is popular stands nowhere in particular. Every key of the
stream is in R: inner and left joins have the same output, and one checksum serves both.

The stream is a folder of Parquet files. A micro-batch is as many files as there are cores, because Spark reads a small
file in one task: with one file, one core would have all the work, whoever does it. Spark takes files in order of the
time at which they were changed, so that time is set by hand.

Everything is named by what it was made of and lies where the user said; a second run finds it there. What is being
made has another name until it is whole. Memory: a chunk of R at a time, about 300 MB.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss
from semistream.lab.workloads.zipf import Shuffle, Zipf

KEY = "product_id"

PRODUCTS = pa.schema(
    [
        (KEY, pa.int64()),
        ("product_key", pa.int64()),
        ("vendor_id", pa.int64()),
        ("cost", pa.float64()),
        ("listed_on", pa.date32()),
        ("name", pa.string()),
        ("category", pa.string()),
    ]
)
SALES = pa.schema(
    [
        ("sale_id", pa.int64()),
        ("sold_at", pa.timestamp("us", tz="UTC")),
        ("store_id", pa.int32()),
        (KEY, pa.int64()),
        ("quantity", pa.int32()),
        ("unit_price", pa.float64()),
    ]
)
OUTPUT_COLUMNS = (*SALES.names, *(name for name in PRODUCTS.names if name != KEY))

CHUNK_ROWS = 1_000_000
"""Rows of R made at a time, and rows of a row group of its Parquet file."""

NAME_BYTES, CATEGORY_BYTES = (12, 42), (8, 44)
VENDORS, STORES, QUANTITY_MAX, DAYS = 100_000, 1_000, 9, (10_000, 20_000)
SALES_BEGIN_S = 1_700_000_000
"""When the first sale was made, in seconds of the epoch; any moment does."""

Form = Literal["parquet", "relation", "sqlite"]
"""The forms in which R can be had: for Spark's joins, for ours, and for the one who writes his own."""

NAMES: dict[Form, str] = {"parquet": "products.parquet", "relation": "products", "sqlite": "products.sqlite"}

Tell = Callable[[str, int, int], None]
"""Called with what is being made, the rows done and all rows."""


@dataclass(frozen=True, slots=True)
class Products:
    """Where one size of R lies, in the forms that contenders read."""

    folder: Path
    rows: int
    seed: int

    def make(self, form: Form, tell: Tell) -> Path:
        """Make one form unless it is there; return where it is."""
        path = self.folder / NAMES[form]
        if path.exists():
            return path
        source = None if form == "parquet" else self.make("parquet", tell)
        with _whole_or_not_at_all(path) as unfinished:
            if source is None:
                self._write_parquet(unfinished, tell)
            else:
                write = _write_relation if form == "relation" else _write_sqlite
                write(source, unfinished, self.rows, tell)
        return path

    def _write_parquet(self, path: Path, tell: Tell) -> None:
        """All rows, sorted by key; the other forms are made of them."""
        with pq.ParquetWriter(path, PRODUCTS) as writer:
            for begin in range(0, self.rows, CHUNK_ROWS):
                end = min(begin + CHUNK_ROWS, self.rows)
                writer.write_batch(product_batch(begin, end, self.seed))
                tell("products", end, self.rows)


@dataclass(frozen=True, slots=True)
class Sales:
    """Where a stream lies, one micro-batch after the other."""

    folder: Path
    relation_rows: int
    batch_rows: int
    skew: float
    batches: int
    files_per_batch: int
    seed: int

    def make(self, tell: Tell) -> Path:
        """Write the files unless they are there; return their folder."""
        if self.folder.exists():
            return self.folder
        popular, spread = Zipf(self.relation_rows, self.skew), Shuffle(self.relation_rows, self.seed)
        with _whole_or_not_at_all(self.folder) as unfinished:
            unfinished.mkdir()
            for number in range(self.batches):
                rng = np.random.default_rng([self.seed, number])
                keys = spread(popular.sample(rng, self.batch_rows))
                self._write_batch(unfinished, number, sales_batch(keys, number * self.batch_rows, rng))
                tell("sales", (number + 1) * self.batch_rows, self.batches * self.batch_rows)
        return self.folder

    def _write_batch(self, folder: Path, number: int, rows: pa.RecordBatch) -> None:
        begins = np.linspace(0, len(rows), self.files_per_batch + 1).astype(int).tolist()
        for part in range(self.files_per_batch):
            path = folder / f"batch-{number:05}-{part:03}.parquet"
            piece = rows.slice(begins[part], begins[part + 1] - begins[part])
            pq.write_table(pa.Table.from_batches([piece]), path)
            place_s = SALES_BEGIN_S + number * self.files_per_batch + part
            os.utime(path, (place_s, place_s))


@dataclass(frozen=True, slots=True)
class Workload:
    """The folder in which all data of a benchmark lies."""

    folder: Path
    seed: int

    def products(self, rows: int) -> Products:
        """R of this size."""
        folder = self.folder / f"products-{rows}-seed{self.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        return Products(folder, rows, self.seed)

    def sales(self, relation_rows: int, batch_rows: int, skew: float, batches: int, files_per_batch: int) -> Sales:
        """A stream that asks for R of this size; of empty batches if a batch shall have no rows."""
        what = f"{relation_rows}-{batch_rows}-zipf{skew:g}" if batch_rows else "empty"
        folder = self.folder / f"sales-{what}-{batches}x{files_per_batch}-seed{self.seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        return Sales(folder, relation_rows, batch_rows, skew, batches, files_per_batch, self.seed)


def product_batch(begin: int, end: int, seed: int) -> pa.RecordBatch:
    """The products with keys from `begin` to before `end`; they depend on where a chunk begins and on nothing else."""
    rng = np.random.default_rng([seed, begin])
    count = end - begin
    return pa.record_batch(
        [
            pa.array(np.arange(begin, end)),
            pa.array(rng.integers(0, 2**40, count)),
            pa.array(rng.integers(0, VENDORS, count)),
            pa.array(rng.random(count) * 100),
            pa.array(rng.integers(*DAYS, count).astype(np.int32)).cast(pa.date32()),
            _texts(rng, count, *NAME_BYTES),
            _texts(rng, count, *CATEGORY_BYTES),
        ],
        schema=PRODUCTS,
    )


def sales_batch(keys: npt.NDArray[np.int64], first_id: int, rng: np.random.Generator) -> pa.RecordBatch:
    """A sale for each of these keys."""
    ids = np.arange(first_id, first_id + len(keys))
    return pa.record_batch(
        [
            pa.array(ids),
            pa.array(SALES_BEGIN_S * 1_000_000 + ids * 1_000).cast(pa.timestamp("us", tz="UTC")),
            pa.array(rng.integers(0, STORES, len(keys)).astype(np.int32)),
            pa.array(keys),
            pa.array(rng.integers(1, QUANTITY_MAX + 1, len(keys)).astype(np.int32)),
            pa.array(rng.random(len(keys)) * 100),
        ],
        schema=SALES,
    )


def _texts(rng: np.random.Generator, count: int, bytes_min: int, bytes_max: int) -> pa.Array:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(rng.integers(bytes_min, bytes_max + 1, count), out=offsets[1:])
    letters = rng.integers(ord("a"), ord("z") + 1, offsets[-1], dtype=np.uint8)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(letters)])


def _write_relation(source: Path, target: Path, rows: int, tell: Tell) -> None:
    ss.build_relation(
        source, key=KEY, out=target, unique=True, on_progress=lambda made: tell("relation", made.rows_done, rows)
    )


def _write_sqlite(source: Path, target: Path, rows: int, tell: Tell) -> None:
    connection = sqlite3.connect(target)
    try:
        # It is made once and never changed: no journal is needed.
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            "CREATE TABLE products (product_id INTEGER PRIMARY KEY, product_key INTEGER, vendor_id INTEGER, "
            "cost REAL, listed_on TEXT, name TEXT, category TEXT)"
        )
        done = 0
        for batch in pq.ParquetFile(source).iter_batches(100_000):
            days = batch.column("listed_on").cast(pa.string())
            columns = [days if name == "listed_on" else batch.column(name) for name in PRODUCTS.names]
            values = zip(*(column.to_pylist() for column in columns), strict=True)
            connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?, ?, ?, ?)", values)
            done += len(batch)
            tell("SQLite table", done, rows)
        connection.commit()
    finally:
        connection.close()


@contextmanager
def _whole_or_not_at_all(path: Path) -> Iterator[Path]:
    """Give a name to write under; it becomes `path` when all went well, and what an earlier attempt left is removed."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    if unfinished.is_dir():
        shutil.rmtree(unfinished)
    unfinished.unlink(missing_ok=True)
    yield unfinished
    unfinished.rename(path)
