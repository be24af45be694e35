"""The two streams of `bench window`: a folder of Parquet files for each, of which every contender reads the same.

Event times are evenly spaced, and a micro-batch lasts `BATCH_S` of them on both sides. Keys are uniform, out of as many
as a window has room for, so that a row has one partner on average, before or behind it. Times never go back from one
micro-batch to the next: nothing is late for anyone, and a watermark without delay lets Spark drop all that it can.

A micro-batch is as many files as there are cores, because Spark reads a small file in one task. Spark takes files in
order of the time at which they were changed, so that time is set by hand. Memory: a micro-batch of one stream.

The band join has its rows in one file a stream. `n` numbers the rows of a stream; `before` tells how many rows of the
other stream came before a row, so `n + before` is its place in the one sequence of both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from semistream.bench.workload import Tell

SIDES = ("a", "b")
EVENTS = pa.schema(
    [("n", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("amount", pa.float64())]
)
OUTPUT_COLUMNS = ("n", "k", "ts", "amount", "b_n", "b_ts", "b_amount")
"""Of a pair; the key is put out once."""

BATCH_S = 10
"""Seconds of event time in a micro-batch."""

BEGIN_S = 1_700_000_000
"""When the first event happened, in seconds of the epoch; any moment does."""

BAND = pa.schema([("n", pa.int64()), ("before", pa.int64()), ("x", pa.int64())])
BAND_WINDOW_ROWS = 5_000
BAND_WIDTH = 1_000
"""Partners differ by no more than this in `x`."""

BAND_VALUES = BAND_WINDOW_ROWS * (2 * BAND_WIDTH + 1)
"""So many values can `x` have: a row finds one partner in a full window, on average."""


def keys_for(batch_rows: int, window_s: float) -> int:
    """How many keys there are, for one partner a row within `window_s` before and behind it."""
    return max(1, round(2 * window_s * batch_rows / BATCH_S))


def write_events(
    folder: Path, batch_rows: int, batches: int, files_per_batch: int, window_s: float, seed: int, tell: Tell
) -> None:
    """Write both streams, `a` and `b`, each into a folder of its name."""
    keys = keys_for(batch_rows, window_s)
    for number, side in enumerate(SIDES):
        (folder / side).mkdir(parents=True)
        for batch in range(batches):
            rng = np.random.default_rng([seed, number, batch])
            rows = _events(batch * batch_rows, batch_rows, keys, rng)
            for part, (begin, end) in enumerate(_cuts(batch_rows, files_per_batch)):
                path = folder / side / f"batch-{batch:05}-{part:03}.parquet"
                pq.write_table(pa.Table.from_batches([rows.slice(begin, end - begin)]), path)
                place_s = BEGIN_S + batch * files_per_batch + part
                os.utime(path, (place_s, place_s))
            done = (number * batches + batch + 1) * batch_rows
            tell("events", done, len(SIDES) * batches * batch_rows)


def _events(first: int, count: int, keys: int, rng: np.random.Generator) -> pa.RecordBatch:
    n = np.arange(first, first + count)
    times_us = BEGIN_S * 1_000_000 + n * (BATCH_S * 1_000_000) // count
    columns = [
        pa.array(n),
        pa.array(rng.integers(0, keys, count)),
        pa.array(times_us).cast(EVENTS.field("ts").type),
        pa.array(rng.random(count) * 100),
    ]
    return pa.record_batch(columns, schema=EVENTS)


def _cuts(rows: int, parts: int) -> Iterator[tuple[int, int]]:
    places = np.linspace(0, rows, parts + 1).astype(int).tolist()
    return pairwise(places)


def write_band(folder: Path, batch_rows: int, batches: int, seed: int, tell: Tell) -> None:
    """Write both streams of the band join, `a.parquet` and `b.parquet`; every batch has as many rows of each."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng([seed, len(SIDES)])
    one_batch = np.repeat(np.array([0, 1], np.int8), batch_rows)
    sequence = np.concatenate([rng.permutation(one_batch) for _ in range(batches)])
    for number, side in enumerate(SIDES):
        is_here = sequence == number
        rows = pa.record_batch(
            [
                pa.array(np.arange(batches * batch_rows)),
                pa.array(np.cumsum(~is_here)[is_here]),
                pa.array(rng.integers(0, BAND_VALUES, batches * batch_rows)),
            ],
            schema=BAND,
        )
        pq.write_table(pa.Table.from_batches([rows]), folder / f"{side}.parquet")
        tell("rows", (number + 1) * batches * batch_rows, len(SIDES) * batches * batch_rows)
