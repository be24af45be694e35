"""Where the rows of an experiment come from: R as a relation, and the codes that the stream asks for.

Synthetic data has Zipf's law and R in the order of popularity, key = rank, as in the papers. The other kinds keep what
a join notices and leave out what it does not:

- `customer-orders`, `partsupp-lineitem`: the key law of TPC-H. Orders draw evenly from two of three customers, line
  items evenly from all parts, every part has four suppliers. Rows have the papers' lengths. The tables themselves, with
  their texts, are made by `semistream.lab.workloads.tpch`; on a virtual clock they would give the same figure.
- `weather`: stations of an invented world (`semistream.lab.workloads.weather_stations`) report evenly in time, so the
  stream asks for a longitude as often as stations stand on it and report, and R has as many rows of it. Here every
  longitude has the mean number of rows, because a bare relation has one number for all keys.
"""

from __future__ import annotations

import numpy as np

from semistream.joins.base import Numbers
from semistream.lab.bare_relation import BareRelation
from semistream.lab.experiment import Setting
from semistream.lab.workloads.key_stream import KeyStream
from semistream.lab.workloads.weather_stations import STATIONS_MAX, stations
from semistream.lab.workloads.zipf import Zipf

SKIPPED_CUSTOMER = 3
"""Every third customer of TPC-H has no orders."""


def distinct_keys(setting: Setting) -> Numbers:
    """All keys of R, ascending."""
    if setting.data == "weather":
        return np.unique(_world(setting)[0])
    return np.arange(max(2, setting.r_rows // setting.rows_per_key), dtype=np.int64)


def relation_of(setting: Setting, keys: Numbers) -> BareRelation:
    """R, or the part of R that has these keys."""
    return BareRelation(
        keys, page_rows=setting.page_rows, row_bytes=setting.row_bytes, rows_per_key=setting.rows_per_key
    )


def stream_codes(setting: Setting, rows: int, seed: int) -> Numbers:
    """The codes that so many stream rows ask for."""
    rng = np.random.default_rng(seed)
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
    count = int(np.clip(setting.r_rows // setting.rows_per_key, 2, STATIONS_MAX))
    world = stations(count, seed=0)
    sent = world.report_share.sum(axis=1)
    return world.lon_hundredths, sent / sent.sum()
