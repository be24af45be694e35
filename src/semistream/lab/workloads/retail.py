"""A retail shop: master data of products, stores and customers, and a year of sales at its tills.

The shop behaves like a real one where it matters to a join. A few products and customers make most of the sales
(Zipf); popular products are strewn over the catalogue; a part of the sales follows the fashion of the month, so what
is worth remembering drifts; some tills sell articles the master data does not know; guests have no customer number;
and sales come in bursts.

Everything is a function of a seed. `Shop` fixes what both sides must agree on (identifiers and prices); the
functions below it make rows. Each takes its own `Generator`, so the tables do not depend on the order in which they
are made.

Memory: 8 bytes a product for the shop itself, one chunk of master data (`CHUNK_ROWS`) or one burst of sales at a
time for the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from semistream.lab.workloads import retail_words as words
from semistream.lab.workloads.arrivals import burst_sizes
from semistream.lab.workloads.zipf import Shuffle, Zipf

Integers = npt.NDArray[np.int64]

CHUNK_ROWS = 1 << 17
"""Rows of master data made and written at a time: some 20 MB of strings."""

PRODUCT_ID_FIRST = 100_000_007
PRODUCT_ID_STEP = 7
"""Article numbers have gaps; a number inside a gap is one that the master data does not know."""

CUSTOMER_ID_FIRST = 5_000_000

PRODUCT_SKEW = 1.0
CUSTOMER_SKEW = 0.8
STORE_SKEW = 0.4
"""Zipf exponents. Around 1 is what shops report for articles; customers and stores differ less."""

TREND_SHARE = 0.5
"""Share of the sales that follows the fashion of the month instead of the popularity of the year."""

UNKNOWN_PRODUCT_SHARE = 0.005
GUEST_SHARE = 0.02

YEAR = 2025
YEAR_START_S = int(np.datetime64(f"{YEAR}-01-01", "s").astype(np.int64))
YEAR_SECONDS = int(np.datetime64(f"{YEAR + 1}-01-01", "s").astype(np.int64)) - YEAR_START_S

MONEY = pa.decimal128(10, 2)

SALES_SCHEMA = pa.schema(
    [
        ("sale_id", pa.int64()),
        ("sold_at", pa.timestamp("us", tz="UTC")),
        ("product_id", pa.int64()),
        ("store_id", pa.int32()),
        ("customer_id", pa.int64()),
        ("quantity", pa.int32()),
        ("unit_price", MONEY),
    ]
)


@dataclass(frozen=True, slots=True)
class ShopSize:
    """Rows of the three tables of master data."""

    products: int = 1_000_000
    stores: int = 500
    customers: int = 100_000


@dataclass(frozen=True, slots=True)
class SalesWritten:
    """What was put into the stream: the numbers that the far end has to account for."""

    rows: int
    bursts: int
    unknown_products: int
    guests: int


class Shop:
    """What tills and master data must agree on: identifiers and prices."""

    def __init__(self, size: ShopSize, seed: int) -> None:
        self.size = size
        self.seed = seed
        self._article_numbers = Shuffle(size.products, seed)
        self._popularity = Shuffle(size.products, seed + 1)
        self.price_cents = _price_cents(self.rng("prices"), size.products)

    def rng(self, purpose: str) -> np.random.Generator:
        """A generator of its own for each purpose, so that no table depends on another having been made."""
        return np.random.default_rng([self.seed, *purpose.encode()])

    def product_ids(self, rows: Integers) -> Integers:
        """The article numbers of these rows of the catalogue."""
        return PRODUCT_ID_FIRST + PRODUCT_ID_STEP * self._article_numbers(rows)

    def popular_products(self, ranks: Integers, shift: Integers) -> Integers:
        """The row of the catalogue at each rank of popularity; `shift` turns the catalogue for a fashion."""
        return (self._popularity(ranks) + shift) % self.size.products


def _price_cents(rng: np.random.Generator, count: int) -> Integers:
    cents = rng.lognormal(mean=7.4, sigma=0.9, size=count).astype(np.int64)
    return np.clip(cents, 49, 99_999) // 10 * 10 + 9  # prices end in 9, as prices do


# Master data


def product_batches(shop: Shop) -> Iterator[pa.RecordBatch]:
    """Yield the catalogue, in the order of the surrogate key; article numbers are in no order."""
    rng = shop.rng("products")
    for rows in _chunks(shop.size.products):
        noun = rng.integers(0, len(words.NOUNS), len(rows))
        name = pc.binary_join_element_wise(
            _pick(rng, words.ADJECTIVES, len(rows)),
            _pick(rng, words.MATERIALS, len(rows)),
            words.NOUNS.take(pa.array(noun)),
            pa.array(rng.integers(10, 1000, len(rows))).cast(pa.string()),
            " ",
        )
        price = shop.price_cents[rows]
        yield pa.record_batch(
            {
                "product_id": shop.product_ids(rows),
                "product_key": (rows + 1).astype(np.int32),
                "product_name": name,
                "category": words.NOUN_CATEGORIES.take(pa.array(noun)),
                "brand": _pick(rng, words.BRANDS, len(rows)),
                "vendor": _pick(rng, words.VENDORS, len(rows)),
                "list_price": _money(price),
                "unit_cost": _money(price * rng.integers(45, 80, len(rows)) // 100),
            }
        )


def store_batches(shop: Shop) -> Iterator[pa.RecordBatch]:
    """Yield the stores."""
    rng = shop.rng("stores")
    for rows in _chunks(shop.size.stores):
        city = rng.integers(0, len(words.CITIES), len(rows))
        number = pa.array(rows + 1).cast(pa.string())
        yield pa.record_batch(
            {
                "store_id": (rows + 1).astype(np.int32),
                "store_key": (rows + 1).astype(np.int32),
                "store_name": pc.binary_join_element_wise(words.CITIES.take(pa.array(city)), number, " "),
                "store_city": words.CITIES.take(pa.array(city)),
                "region": words.CITY_REGIONS.take(pa.array(city)),
                "floor_m2": rng.integers(80, 4000, len(rows)).astype(np.int32),
            }
        )


def customer_batches(shop: Shop) -> Iterator[pa.RecordBatch]:
    """Yield the customers."""
    rng = shop.rng("customers")
    for rows in _chunks(shop.size.customers):
        first, last = _pick(rng, words.FIRST_NAMES, len(rows)), _pick(rng, words.LAST_NAMES, len(rows))
        joined_day = np.datetime64(f"{YEAR - 10}-01-01", "D") + rng.integers(0, 3650, len(rows))
        yield pa.record_batch(
            {
                "customer_id": rows + CUSTOMER_ID_FIRST,
                "customer_key": (rows + 1).astype(np.int32),
                "customer_name": pc.binary_join_element_wise(first, last, " "),
                "segment": _pick(rng, words.SEGMENTS, len(rows)),
                "customer_city": _pick(rng, words.CITIES, len(rows)),
                "joined_on": pa.array(joined_day),
            }
        )


def write_parquet(batches: Iterator[pa.RecordBatch], path: Path) -> int:
    """Write master data to one Parquet file, a row group a batch, and return its rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    first = next(batches)
    written = int(first.num_rows)
    with pq.ParquetWriter(path, first.schema, store_decimal_as_integer=True) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)
            written += batch.num_rows
    return written


# Sales


def sales_bursts(shop: Shop, rows: int, bursts: int) -> Iterator[pa.RecordBatch]:
    """Yield a year of sales in order of time, a burst at a time.

    The year is cut into equal parts and each part is one burst; so a large burst is a busy time.
    """
    rng = shop.rng("sales")
    sizes = burst_sizes(rng, rows, bursts)
    edges = YEAR_START_S + YEAR_SECONDS * np.arange(len(sizes) + 1) // max(len(sizes), 1)
    sale_id = 1
    for size, start_s, end_s in zip(sizes.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        sold_at_us = np.sort(rng.integers(start_s * 1_000_000, end_s * 1_000_000, size))
        yield _burst(shop, rng, sale_id, sold_at_us)
        sale_id += size


def _burst(shop: Shop, rng: np.random.Generator, first_sale_id: int, sold_at_us: Integers) -> pa.RecordBatch:
    count = len(sold_at_us)
    month = sold_at_us.astype("datetime64[us]").astype("datetime64[M]").astype(np.int64)
    # Each month the fashion moves a thirteenth of the catalogue on (a twelfth would bring December to where
    # the year's own favourites are), and only some buyers follow it.
    shift = np.where(rng.random(count) < TREND_SHARE, (month % 12 + 1) * (shop.size.products // 13), 0)
    product = shop.popular_products(Zipf(shop.size.products, PRODUCT_SKEW).sample(rng, count), shift)
    unknown = rng.random(count) < UNKNOWN_PRODUCT_SHARE
    discount_percent = rng.choice(np.array([0, 5, 10, 20]), size=count, p=[0.7, 0.1, 0.1, 0.1])
    customer = CUSTOMER_ID_FIRST + Zipf(shop.size.customers, CUSTOMER_SKEW).sample(rng, count)
    return pa.record_batch(
        [
            pa.array(np.arange(first_sale_id, first_sale_id + count)),
            pa.array(sold_at_us).cast(pa.timestamp("us", tz="UTC")),
            pa.array(shop.product_ids(product) + unknown),
            pa.array((Zipf(shop.size.stores, STORE_SKEW).sample(rng, count) + 1).astype(np.int32)),
            pa.array(customer, mask=rng.random(count) < GUEST_SHARE),
            pa.array(np.minimum(rng.geometric(0.6, count), 12).astype(np.int32)),
            _money(shop.price_cents[product] * (100 - discount_percent) // 100),
        ],
        schema=SALES_SCHEMA,
    )


def write_sales(shop: Shop, rows: int, bursts: int, directory: Path) -> SalesWritten:
    """Write the stream, one Parquet file a burst, and return what a reader must find."""
    directory.mkdir(parents=True, exist_ok=True)
    written_rows = written_bursts = unknown_products = guests = 0
    for burst in sales_bursts(shop, rows, bursts):
        path = directory / f"burst-{written_bursts:05d}.parquet"
        pq.write_table(pa.Table.from_batches([burst]), path, store_decimal_as_integer=True)
        # A file source takes files by age, and files written in one instant would have none.
        os.utime(path, times=(YEAR_START_S + written_bursts, YEAR_START_S + written_bursts))
        written_rows += burst.num_rows
        written_bursts += 1
        article_offset = burst.column("product_id").to_numpy() - PRODUCT_ID_FIRST
        unknown_products += int(np.count_nonzero(article_offset % PRODUCT_ID_STEP))
        guests += burst.column("customer_id").null_count
    assert written_rows == rows, "the bursts do not add up to the stream"
    return SalesWritten(written_rows, written_bursts, unknown_products, guests)


# Columns


def _chunks(count: int) -> Iterator[Integers]:
    # An empty table is one empty chunk: its file still needs a schema.
    for start in range(0, max(count, 1), CHUNK_ROWS):
        yield np.arange(start, min(start + CHUNK_ROWS, count), dtype=np.int64)


def _pick(rng: np.random.Generator, choices: pa.StringArray, count: int) -> pa.StringArray:
    return choices.take(pa.array(rng.integers(0, len(choices), count)))


def _money(cents: Integers) -> pa.Array:
    """Whole cents as decimal(10, 2), by laying out its 128 bits: a cast would go through text or floats."""
    assert len(cents) == 0 or int(cents.min()) >= 0, "negative money would need the sign in its upper half"
    halves = np.zeros((len(cents), 2), dtype=np.int64)
    halves[:, 0] = cents
    return pa.Array.from_buffers(MONEY, len(cents), [None, pa.py_buffer(halves)])
