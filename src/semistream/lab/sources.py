"""Where the rows of an experiment come from: R as a relation, the codes that the stream asks for, and when they come.

Synthetic data has Zipf's law and R in the order of popularity, key = rank, as in the papers. The other kinds are either
read from generated tables (`Setting.from_tables`), keys and how many rows each has in R, and the stream's keys in the
order of the table; or drawn by the law that these tables follow, for sizes at which making them takes too long:

- `customer-orders`, `partsupp-lineitem`: orders ask evenly for two of three customers, line items evenly for all parts,
  every part has four suppliers. Tables come from `semistream.lab.workloads.tpch`.
- `weather`: stations of an invented world report evenly in time, so the stream asks for a longitude as often as
  stations stand on it and report. Tables come from `semistream.lab.workloads.weather_stations`: a few days of April and
  August as R, December as the stream. Drawn, every longitude has the mean number of rows.

Of tables only the keys are kept: on a virtual clock a row is as long as the setting says, whatever it tells.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from semistream.joins.base import Numbers
from semistream.joins.timed import Seconds
from semistream.lab.bare_relation import BareRelation
from semistream.lab.conditions import Arrivals, Generator, StreamKind
from semistream.lab.experiment import Data, Setting
from semistream.lab.weather_archive import codes_of, longitudes_in
from semistream.lab.workloads.arrivals import (
    PUBLISHED_STEP_S,
    bursty_arrivals,
    constant_arrivals,
    intermittent_arrivals,
    published_arrivals,
)
from semistream.lab.workloads.key_stream import KeyStream
from semistream.lab.workloads.tpch import CUSTOMER_ORDERS, PARTSUPP_LINEITEM, write_tpch
from semistream.lab.workloads.weather_stations import (
    JOIN_KEY,
    MASTER_MONTHS,
    STATION_COUNT,
    STREAM_MONTHS,
    month_reports,
    stations,
)
from semistream.lab.workloads.zipf import PUBLISHED_EXPONENTS, IntegralZipf, RankSampler, Zipf

SKIPPED_CUSTOMER = 3
"""Every third customer of TPC-H has no orders."""

REPORT_YEAR = 1986

AS_IN_FIGURES = StreamKind()

ARRIVALS_SEED = 1
"""Beside the seed of the keys: who changes how rows come changes no key."""

BURSTS = 100
"""Bursts of a stream, or times with rows and without: enough of them in the window that is looked at."""


@dataclass(frozen=True)
class _Tables:
    """What a join notices of two tables."""

    keys: Numbers
    """Distinct keys of R, ascending."""
    rows_per_key: Numbers
    stream: Numbers
    """Keys of the stream, in its order."""


def distinct_keys(setting: Setting) -> Numbers:
    """All keys of R, ascending."""
    if setting.from_tables:
        return _tables(setting.data, setting.r_rows, setting.reports).keys
    if setting.data == "weather":
        return np.unique(_world(setting)[0])
    return np.arange(max(2, setting.r_rows // setting.rows_per_key), dtype=np.int64)


def relation_of(setting: Setting, keys: Numbers) -> BareRelation:
    """R, or the part of R that has these keys."""
    rows_per_key: int | Numbers = setting.rows_per_key
    if setting.from_tables:
        tables = _tables(setting.data, setting.r_rows, setting.reports)
        rows_per_key = tables.rows_per_key[np.searchsorted(tables.keys, keys)]
    return BareRelation(keys, page_rows=setting.page_rows, row_bytes=setting.row_bytes, rows_per_key=rows_per_key)


def stream_codes(setting: Setting, rows: int, seed: int, stream: StreamKind = AS_IN_FIGURES) -> Numbers:
    """The codes that so many stream rows ask for."""
    rng = np.random.default_rng(seed)
    if setting.from_tables:
        return _cut_of(_tables(setting.data, setting.r_rows, setting.reports).stream, rows, seed)
    if setting.data == "weather":
        longitudes, shares = _world(setting)
        return longitudes[rng.choice(len(longitudes), rows, p=shares)]
    keys = max(2, setting.r_rows // setting.rows_per_key)
    if setting.data == "customer-orders":
        # Counted from 1, and none that 3 divides: 1, 2, 4, 5, 7 ...
        asked = rng.integers(0, max(1, keys * (SKIPPED_CUSTOMER - 1) // SKIPPED_CUSTOMER), rows)
        return asked + asked // (SKIPPED_CUSTOMER - 1)
    return KeyStream(_ranks(keys, setting.skew, stream.generator), stream.order, seed, stream.drift).keys(rng, 0, rows)


def _ranks(keys: int, skew: float, generator: Generator) -> RankSampler:
    if generator == "exact":
        return Zipf(keys, skew)
    # The published generator knows some exponents, and has its slips with two of them.
    return IntegralZipf.as_published(keys, skew) if skew in PUBLISHED_EXPONENTS else IntegralZipf(keys, skew)


def arrival_times(setting: Setting, rows: int, seed: int, arrivals: Arrivals = "constant") -> Seconds:
    """When so many rows come: all at once unless the setting has a rate."""
    rate = setting.arrival_rows_per_s
    if rate is None:
        return np.zeros(rows)
    rng = np.random.default_rng([seed, ARRIVALS_SEED])
    if arrivals == "bursty":
        return bursty_arrivals(rng, rows, rate, BURSTS)
    if arrivals == "intermittent":
        turn_s = rows / rate / BURSTS
        return intermittent_arrivals(rng, rows, rate, on_s=turn_s / 2, off_s=turn_s / 2)
    if arrivals == "published":
        times_s = published_arrivals(rng, rows)
        # As the others: stretched, so that the mean rate is what the figure says.
        stretched_s: Seconds = times_s * (rows / rate / (times_s[-1] + PUBLISHED_STEP_S))
        return stretched_s
    return constant_arrivals(rows, rate)


def _world(setting: Setting) -> tuple[Numbers, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """The longitudes of all stations, and the share of reports that each sends."""
    count = int(np.clip(setting.r_rows // setting.rows_per_key, 2, STATION_COUNT))
    world = stations(count, seed=0)
    sent = world.report_share.sum(axis=1)
    return world.lon_hundredths, sent / sent.sum()


# Tables ---------------------------------------------------------------------------------------------------------------


def _cut_of(stream: Numbers, rows: int, seed: int) -> Numbers:
    """So many rows in their order, from a place that the seed decides; a table that is too short begins again."""
    begin = (seed - 1) * rows % len(stream)
    return np.take(stream, np.arange(begin, begin + rows), mode="wrap")


@lru_cache(maxsize=3)
def _tables(data: Data, r_rows: int, reports: tuple[Path, ...]) -> _Tables:
    if reports:
        archive = longitudes_in(reports)
        master, stream = archive.master, archive.stream
    else:
        master, stream = _weather_keys(r_rows) if data == "weather" else _tpch_keys(data, r_rows)
    keys, rows_per_key = np.unique(master, return_counts=True)
    return _Tables(keys, rows_per_key, stream)


def _tpch_keys(data: Data, r_rows: int) -> tuple[Numbers, Numbers]:
    join = {"customer-orders": CUSTOMER_ORDERS, "partsupp-lineitem": PARTSUPP_LINEITEM}[data]
    with tempfile.TemporaryDirectory(prefix="semistream-lab-") as directory:
        files = write_tpch(join, r_rows / join.master.rows_at_scale_1, Path(directory))
        master = pq.read_table(files.master, columns=[join.master.key])
        stream = pq.read_table(files.stream, columns=[join.stream.key])
    return codes_of(master[join.master.key]), codes_of(stream[join.stream.key])


def _weather_keys(r_rows: int) -> tuple[Numbers, Numbers]:
    """As many reports of each month of R, from its first day on; of the stream's month as many as R has."""
    world = stations(STATION_COUNT, seed=0)

    def longitudes(month: int, rows: int) -> Iterator[Numbers]:
        for day in month_reports(world, REPORT_YEAR, month):
            if rows <= 0:
                return
            yield codes_of(day[JOIN_KEY])[:rows]
            rows -= len(day)

    master = [part for month in MASTER_MONTHS for part in longitudes(month, r_rows // len(MASTER_MONTHS))]
    stream = [part for month in STREAM_MONTHS for part in longitudes(month, r_rows)]
    return np.concatenate(master), np.concatenate(stream)
