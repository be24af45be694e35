"""Rows for a hot set, in columns of every layout that can be kept, and how they get there."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.matching import codes_of, ranges_of
from semistream.structures.gather import columns_at
from semistream.structures.hot_layout import HotLayout
from semistream.structures.hot_set import HotSet

Int64s = npt.NDArray[np.int64]

SCHEMA = pa.schema(
    [
        ("__code", pa.int64()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("small", pa.int16()),
        ("wide", pa.decimal128(20, 2)),
        ("bytes", pa.binary()),
    ]
)
BYTES_MAX = 4 << 20
COUNTERS = 1000


def rows(codes: Int64s, rng: np.random.Generator, nulls: float) -> pa.RecordBatch:
    """One row for each of these codes, which ascend; columns of every layout that can be kept."""
    length = len(codes)

    def some(values: list[object]) -> list[object]:
        return [None if rng.random() < nulls else value for value in values]

    texts = some([f"row {i} of {code} " + "x" * int(rng.integers(0, 40)) for i, code in enumerate(codes)])
    return pa.record_batch(
        [
            pa.array(codes),
            pa.array(texts, pa.string()),
            pa.array(some([bool(b) for b in rng.random(length) < 0.5]), pa.bool_()),
            pa.array(some(rng.integers(-999, 999, length).tolist()), pa.int16()),
            pa.array(some([Decimal(v) for v in range(length)]), SCHEMA.field("wide").type),
            pa.array(some([b"\x00" * int(n) for n in rng.integers(0, 9, length)]), pa.binary()),
        ],
        schema=SCHEMA,
    )


def layout(bytes_max: int = BYTES_MAX) -> HotLayout:
    found = HotLayout.of(SCHEMA, bytes_max, 80.0, 10**6)
    assert found is not None
    return found


def opened(folder: Path, identity: str = "version 1") -> HotSet:
    hot = HotSet(folder, layout(), COUNTERS, identity)
    hot.begin()
    return hot


def add(hot: HotSet, batch: pa.RecordBatch, codes: Int64s | None = None) -> Int64s:
    """Add these keys, or all of the batch, as far as there is room; return what was added."""
    codes = np.unique(codes_of(batch)) if codes is None else codes
    added = []
    with hot.writing() as writer:
        assert writer is not None, "another writes"
        segments = hot.table.segments_of(codes)
        for segment in np.unique(segments).tolist():
            own = codes[segments == segment]
            first, count = ranges_of(own, codes_of(batch))
            room_bytes, room_keys = writer.room(segment)
            fits = np.cumsum(hot.table.sizes_of(batch, first, count)) <= room_bytes
            fits[room_keys:] = False
            if fits.any():
                writer.append(segment, batch, own[fits], first[fits], count[fits], np.ones(int(fits.sum()), np.int64))
                added.append(own[fits])
    return np.concatenate(added) if added else np.zeros(0, np.int64)


def taken(hot: HotSet, rows: Int64s) -> pa.RecordBatch:
    """These rows as a batch of their own."""
    columns, places = columns_at(hot.table.rows, rows, SCHEMA.names[1:])
    assert (places == np.arange(len(rows))).all()
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.remove(0))
