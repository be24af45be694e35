"""The synthetic data of the papers: master rows of 120 bytes, stream rows of 20, and nothing in them but a key.

The papers use 30 and 5 integers of 4 bytes. Here a master row is an 8-byte key and one binary value of 108 bytes with
its 4-byte offset: 120 bytes as Arrow counts them, in one payload column instead of 29, so that an experiment measures
the join and not the number of columns. A stream row is a key, the row's number and 4 bytes to fill up.

Every master row can be told from every other: its payload begins with its row number, 8 bytes, little-endian. What
follows is taken from a small pool of random bytes, because drawing fresh ones would take longer than most joins.

Ranks 0 … keys - 1 become keys by `key_order`, the same way as in a `KeyStream`; rows lie in order of rank, all rows of
a key together. With more than one row a key the join is many-to-many; how many may be constant or, `geometric`, vary
around a mean: most keys have few rows, some have many.

Memory: one batch of about `CHUNK_ROWS` rows (8 MB) at a time, whatever the size of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import InvalidOption, check_choice
from semistream.lab.workloads.key_stream import KeyOrder, KeyStream, key_order

Integers = npt.NDArray[np.int64]

MASTER_ROW_BYTES = 120
STREAM_ROW_BYTES = 20

CHUNK_ROWS = 1 << 16
"""Rows made at a time: 8 MB of master data."""

POOL_ROWS = 1 << 12
"""Payloads that differ in more than their number: half a megabyte, which a CPU's cache can hold."""

ROWS_PER_KEY_MAX = 1 << 20
"""All rows of a key are in one batch, and the binary column of a batch cannot be longer than 2 GiB."""

KEY_BYTES = 8
OFFSET_BYTES = 4
PAYLOAD_BYTES = MASTER_ROW_BYTES - KEY_BYTES - OFFSET_BYTES
ROW_NUMBER_BYTES = 8

MASTER_SCHEMA = pa.schema([("key", pa.int64()), ("payload", pa.binary())])
STREAM_SCHEMA = pa.schema([("key", pa.int64()), ("row", pa.int64()), ("filler", pa.int32())])

Spread = Literal["constant", "geometric"]
"""Whether all keys have the same number of rows, or a number around a mean, at least one."""


@dataclass(frozen=True, slots=True)
class MasterData:
    """What the master data looks like; `master_batches` makes it.

    Example:
        >>> MasterData(keys=1000, rows_per_key=4).rows
        4000
    """

    keys: int
    rows_per_key: float = 1
    spread: Spread = "constant"
    order: KeyOrder = "frequency"
    seed: int = 0

    def __post_init__(self) -> None:
        check_choice("spread", self.spread, get_args(Spread))
        if self.keys < 1:
            raise InvalidOption("master data needs at least one key", given=str(self.keys), allowed="1 or more")
        if not 1 <= self.rows_per_key <= ROWS_PER_KEY_MAX:
            raise InvalidOption(
                "`rows_per_key` is out of range", given=str(self.rows_per_key), allowed=f"1 to {ROWS_PER_KEY_MAX}"
            )
        if self.spread == "constant" and self.rows_per_key != int(self.rows_per_key):
            raise InvalidOption(
                "a constant number of rows a key is a whole number",
                given=str(self.rows_per_key),
                hint='spread="geometric" takes any mean',
            )

    @property
    def rows(self) -> int:
        """Rows of the whole data; for a spread that varies they are drawn and added up, a second for 50 M keys."""
        if self.spread == "constant":
            return self.keys * int(self.rows_per_key)
        return sum(int(self.rows_of(ranks).sum()) for ranks in self.chunks())

    def chunks(self) -> Iterator[Integers]:
        """Yield the ranks, as many at a time as have about `CHUNK_ROWS` rows."""
        ranks_per_chunk = max(int(CHUNK_ROWS // self.rows_per_key), 1)
        for start in range(0, self.keys, ranks_per_chunk):
            yield np.arange(start, min(start + ranks_per_chunk, self.keys), dtype=np.int64)

    def rows_of(self, ranks: Integers) -> Integers:
        """Return how many rows each of the ranks of one chunk has."""
        if self.spread == "constant":
            return np.full(len(ranks), int(self.rows_per_key), dtype=np.int64)
        # The seed of a chunk is its first rank, so that a chunk can be made without those before it.
        drawn = np.random.default_rng([self.seed, int(ranks[0])]).geometric(1 / self.rows_per_key, len(ranks))
        return np.minimum(drawn, ROWS_PER_KEY_MAX)


def master_batches(data: MasterData) -> Iterator[pa.RecordBatch]:
    """Yield the master data in batches of `MASTER_SCHEMA`, all rows of a key in one batch.

    Example:
        >>> pa.Table.from_batches(master_batches(MasterData(keys=3, rows_per_key=2)))["key"].to_pylist()
        [0, 0, 1, 1, 2, 2]
    """
    key_of = key_order(data.order, data.keys, data.seed)
    pool = np.random.default_rng(data.seed).integers(0, 256, (POOL_ROWS, PAYLOAD_BYTES), dtype=np.uint8)
    first_row = 0
    for ranks in data.chunks():
        keys = np.repeat(key_of(ranks), data.rows_of(ranks))
        row_numbers = np.arange(first_row, first_row + len(keys), dtype=np.dtype("<i8"))
        yield pa.record_batch([pa.array(keys), _payload(row_numbers, pool)], schema=MASTER_SCHEMA)
        first_row += len(keys)


def _payload(row_numbers: Integers, pool: npt.NDArray[np.uint8]) -> pa.BinaryArray:
    rows = len(row_numbers)
    values = np.tile(pool, (-(-rows // len(pool)), 1))[:rows]
    values[:, :ROW_NUMBER_BYTES] = row_numbers.view(np.uint8).reshape(rows, ROW_NUMBER_BYTES)
    offsets = np.arange(rows + 1, dtype=np.int32) * PAYLOAD_BYTES
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def stream_batches(stream: KeyStream, rows: int, seed: int, batch_rows: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield `rows` stream rows in batches of `STREAM_SCHEMA`; the column `row` counts them from 0."""
    if rows < 0:
        raise InvalidOption("a stream cannot have fewer than no rows", given=str(rows), allowed="0 or more")
    if batch_rows < 1:
        raise InvalidOption("a batch has at least one row", given=str(batch_rows), allowed="1 or more")
    rng = np.random.default_rng(seed)
    for first_row in range(0, rows, batch_rows):
        count = min(batch_rows, rows - first_row)
        row = np.arange(first_row, first_row + count, dtype=np.int64)
        yield pa.record_batch(
            [
                pa.array(stream.keys(rng, first_row, count)),
                pa.array(row),
                pa.array(row.astype(np.int32)),  # the lower half of the number, as good as anything
            ],
            schema=STREAM_SCHEMA,
        )
