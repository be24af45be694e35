"""Relations for tests: rows of every type, and a directory with a version of them."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.writer import ArrowFileWriter
from semistream.relations.base import CODE_COLUMN
from semistream.relations.partitioned import partition_of

_ONE_DAY = datetime.timedelta(days=1)


def random_codes(rng: np.random.Generator, row_count: int, *, distinct_max: int | None = None) -> npt.NDArray[np.int64]:
    """Sorted codes; many rows share one when `distinct_max` is small."""
    wide = rng.integers(-(2**62), 2**62, distinct_max or max(1, row_count))
    extremes = np.array([-(2**63), 2**63 - 1, -1, 0], np.int64)
    return np.sort(rng.choice(np.concatenate([wide, extremes]), row_count))


def rows_of_every_type(rng: np.random.Generator, codes: npt.NDArray[np.int64], nulls: float = 0.2) -> pa.RecordBatch:
    """Rows with these codes: the code is the key, and one column for each kind of layout."""
    count = len(codes)

    def column(values: Sequence[object], data_type: pa.DataType) -> pa.Array:
        missing = rng.random(count) < nulls
        return pa.array([None if is_null else value for is_null, value in zip(missing, values, strict=True)], data_type)

    words = ["", "a", "ß", "pear", "x" * 31, "y" * 32, "z" * 33, "long " * 40]
    texts = [words[i] for i in rng.integers(0, len(words), count)]
    numbers = rng.integers(-100, 100, count).tolist()
    columns = {
        CODE_COLUMN: pa.array(codes),
        "key": pa.array(codes),
        "int8": column(numbers, pa.int8()),
        "uint16": column([abs(n) for n in numbers], pa.uint16()),
        "float": column([n / 3 for n in numbers], pa.float32()),
        "double": pa.array([float(n) for n in numbers]),
        "flag": column([n > 0 for n in numbers], pa.bool_()),
        "whole flag": pa.array([n > 5 for n in numbers]),
        "day": column([datetime.date(2020, 1, 1) + n * _ONE_DAY for n in numbers], pa.date32()),
        "moment": column(numbers, pa.timestamp("us", tz="UTC")),
        "decimal": column([decimal.Decimal(n) / 4 for n in numbers], pa.decimal128(20, 2)),
        "wide decimal": column([decimal.Decimal(n) * 10**40 for n in numbers], pa.decimal256(60, 1)),
        "three bytes": column([bytes([i % 256] * 3) for i in range(count)], pa.binary(3)),
        "forty bytes": column([bytes([i % 256] * 40) for i in range(count)], pa.binary(40)),
        "text": column(texts, pa.string()),
        "whole text": pa.array(texts, pa.string()),
        "large text": column(texts, pa.large_string()),
        "bytes": column([text.encode() for text in texts], pa.binary()),
        "empty text": pa.array([""] * count, pa.string()),
        "no text": pa.array([None] * count, pa.string()),
        "nothing": pa.nulls(count),
        "list": column([list(range(abs(n) % 4)) for n in numbers], pa.list_(pa.int64())),
        "struct": column([{"n": n, "t": t} for n, t in zip(numbers, texts, strict=True)], STRUCT),
        "map": column([[(t, n)] for n, t in zip(numbers, texts, strict=True)], pa.map_(pa.string(), pa.int64())),
    }
    return pa.record_batch(columns)


STRUCT = pa.struct([("n", pa.int64()), ("t", pa.string())])
FLAT_COLUMNS = [
    *("key", "int8", "uint16", "float", "double", "flag", "whole flag", "day", "moment", "decimal", "wide decimal"),
    *("three bytes", "forty bytes", "text", "whole text", "large text", "bytes", "empty text", "no text"),
]


def publish_version(
    path: Path,
    rows: pa.RecordBatch,
    *,
    page_bytes: int = 4096,
    key: tuple[str, ...] = ("key",),
    append_rows: int = 1000,
    partitions: int = 1,
) -> RelationDirectory:
    """Write the rows as the next version of the relation at `path`."""
    directory = RelationDirectory(path)
    numbers = partition_of(rows.column(0).to_numpy(), partitions)
    with directory.begin_version() as staged, ArrowFileWriter(staged, rows.schema, page_bytes) as writer:
        for number in range(partitions):
            if number:
                writer.next_partition()
            own = rows if partitions == 1 else rows.take(pa.array(np.flatnonzero(numbers == number)))
            for begin in range(0, len(own), append_rows):
                writer.append(own.slice(begin, append_rows))
        written = writer.close()
        unique = written.rows_per_code_max <= 1
        directory.publish(staged, written.manifest(key=key, unique=unique, null_key_rows=0, code_version=1))
    return directory
