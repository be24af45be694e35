"""Where the rows of an experiment come from: R as a relation, and the codes that the stream asks for.

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
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.joins.base import Numbers
from semistream.lab.bare_relation import BareRelation
from semistream.lab.experiment import Data, Setting
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
from semistream.lab.workloads.zipf import Zipf

SKIPPED_CUSTOMER = 3
"""Every third customer of TPC-H has no orders."""

REPORT_YEAR = 1986


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
        return _tables(setting.data, setting.r_rows).keys
    if setting.data == "weather":
        return np.unique(_world(setting)[0])
    return np.arange(max(2, setting.r_rows // setting.rows_per_key), dtype=np.int64)


def relation_of(setting: Setting, keys: Numbers) -> BareRelation:
    """R, or the part of R that has these keys."""
    rows_per_key: int | Numbers = setting.rows_per_key
    if setting.from_tables:
        tables = _tables(setting.data, setting.r_rows)
        rows_per_key = tables.rows_per_key[np.searchsorted(tables.keys, keys)]
    return BareRelation(keys, page_rows=setting.page_rows, row_bytes=setting.row_bytes, rows_per_key=rows_per_key)


def stream_codes(setting: Setting, rows: int, seed: int) -> Numbers:
    """The codes that so many stream rows ask for."""
    rng = np.random.default_rng(seed)
    if setting.from_tables:
        return _cut_of(_tables(setting.data, setting.r_rows).stream, rows, seed)
    if setting.data == "weather":
        longitudes, shares = _world(setting)
        return longitudes[rng.choice(len(longitudes), rows, p=shares)]
    keys = max(2, setting.r_rows // setting.rows_per_key)
    if setting.data == "customer-orders":
        # Counted from 1, and none that 3 divides: 1, 2, 4, 5, 7 ...
        asked = rng.integers(0, max(1, keys * (SKIPPED_CUSTOMER - 1) // SKIPPED_CUSTOMER), rows)
        return asked + asked // (SKIPPED_CUSTOMER - 1)
    return KeyStream(Zipf(keys, setting.skew)).keys(rng, 0, rows)


def _world(setting: Setting) -> tuple[Numbers, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """The longitudes of all stations, and the share of reports that each sends."""
    count = int(np.clip(setting.r_rows // setting.rows_per_key, 2, STATION_COUNT))
    world = stations(count, seed=0)
    sent = world.report_share.sum(axis=1)
    return world.lon_hundredths, sent / sent.sum()


# Generated tables -----------------------------------------------------------------------------------------------------


def _cut_of(stream: Numbers, rows: int, seed: int) -> Numbers:
    """So many rows in their order, from a place that the seed decides; a table that is too short begins again."""
    begin = (seed - 1) * rows % len(stream)
    return np.take(stream, np.arange(begin, begin + rows), mode="wrap")


@lru_cache(maxsize=3)
def _tables(data: Data, r_rows: int) -> _Tables:
    master, stream = _weather_keys(r_rows) if data == "weather" else _tpch_keys(data, r_rows)
    keys, rows_per_key = np.unique(master, return_counts=True)
    return _Tables(keys, rows_per_key, stream)


def _tpch_keys(data: Data, r_rows: int) -> tuple[Numbers, Numbers]:
    join = {"customer-orders": CUSTOMER_ORDERS, "partsupp-lineitem": PARTSUPP_LINEITEM}[data]
    with tempfile.TemporaryDirectory(prefix="semistream-lab-") as directory:
        files = write_tpch(join, r_rows / join.master.rows_at_scale_1, Path(directory))
        master = pq.read_table(files.master, columns=[join.master.key])
        stream = pq.read_table(files.stream, columns=[join.stream.key])
    return _codes(master[join.master.key]), _codes(stream[join.stream.key])


def _weather_keys(r_rows: int) -> tuple[Numbers, Numbers]:
    """As many reports of each month of R, from its first day on; of the stream's month as many as R has."""
    world = stations(STATION_COUNT, seed=0)

    def longitudes(month: int, rows: int) -> Iterator[Numbers]:
        for day in month_reports(world, REPORT_YEAR, month):
            if rows <= 0:
                return
            yield _codes(day[JOIN_KEY])[:rows]
            rows -= len(day)

    master = [part for month in MASTER_MONTHS for part in longitudes(month, r_rows // len(MASTER_MONTHS))]
    stream = [part for month in STREAM_MONTHS for part in longitudes(month, r_rows)]
    return np.concatenate(master), np.concatenate(stream)


def _codes(column: pa.Array | pa.ChunkedArray) -> Numbers:
    codes: Numbers = column.to_numpy().astype(np.int64)
    return codes
