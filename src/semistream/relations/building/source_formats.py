"""How the files of one format are read: Parquet, CSV and Arrow, each as a bounded stream of batches.

The format is told by the suffix of a file, otherwise by its first bytes.

CSV has no types. They are inferred from the first block of the first file and hold for all that follows; a later value
that does not fit is an error, never a null. As in Spark, an empty cell is null and a quoted empty one is an empty
string. Beware of codes with leading zeros, which look like numbers: keep such a column in a Parquet file.

Memory: some pages of each Parquet column, a few CSV blocks, or one decompressed Arrow batch. An uncompressed Arrow file
is mapped, for it may be one enormous batch, and its pages are given back as reading goes on; it must not be cut short
while it is read.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from semistream.budget import KIB, MIB
from semistream.errors import InvalidOption
from semistream.relations.building.external_sort import split_to_bytes

BATCH_BYTES = 4 * MIB
"""Batches handed on are about this large: enough for vectorised work, little beside any sensible budget."""

_PARQUET_ROWS_MAX = 32 * 1024
"""Parquet is asked for rows, not bytes, and long strings may hide behind short dictionary numbers."""

_INSTANT = pa.timestamp("us", "UTC")

_PARQUET_BUFFER_BYTES = 256 * KIB
"""Read-ahead of each column; without it Parquet holds whole column chunks in memory."""

_CSV_BLOCK_BYTES = 4 * MIB
"""Also how much of a CSV file its types are inferred from."""

_CSV_COMPRESSIONS = (".gz", ".bz2", ".zst")

_ARROW_FILE_MAGIC = b"ARROW1"


class Format(Protocol):
    """Reads the files of one format; `schema` is what the first file of a source has."""

    def schema(self, path: str) -> pa.Schema:
        """Return the columns of a file."""
        ...

    def row_count(self, path: str) -> int | None:
        """Return the rows of a file where that can be told without reading them."""
        ...

    def batches(self, path: str, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file; columns the file lacks may be missing in the batches, too."""
        ...


class _Parquet:
    def schema(self, path: str) -> pa.Schema:
        with self._open(path) as file:
            return _schema_with_instants(file)

    def row_count(self, path: str) -> int | None:
        with self._open(path) as file:
            return int(file.metadata.num_rows)

    def batches(self, path: str, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._open(path) as file:
            groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
            row_bytes = max((group.total_byte_size / max(1, group.num_rows) for group in groups), default=1.0)
            batch_rows = max(1, min(_PARQUET_ROWS_MAX, int(BATCH_BYTES / max(1.0, row_bytes))))
            with_instants = _schema_with_instants(file)
            for batch in file.iter_batches(batch_rows, columns=list(columns)):
                # Asked for a column named `a.b`, Parquet also gives the part `b` of a struct named `a`.
                asked = [name for name in columns if name in batch.schema.names]
                yield batch.select(asked).cast(pa.schema([with_instants.field(name) for name in asked]))

    def _open(self, path: str) -> pq.ParquetFile:
        # INT96, Spark's default for timestamps, would be read as nanoseconds, in which the year 9999 becomes 1816.
        return pq.ParquetFile(
            path, buffer_size=_PARQUET_BUFFER_BYTES, pre_buffer=False, coerce_int96_timestamp_unit="us"
        )


def _schema_with_instants(file: pq.ParquetFile) -> pa.Schema:
    """The columns, with a zone for what Spark wrote as INT96: instants, although neither Parquet nor Arrow says so."""
    parquet = file.schema
    # Arrow's types and Parquet's columns have the same leaves in the same order, however deep.
    is_instant = iter([parquet.column(i).physical_type == "INT96" for i in range(len(parquet))])
    return pa.schema([field.with_type(_with_instants(field.type, is_instant)) for field in file.schema_arrow])


def _with_instants(data_type: pa.DataType, is_instant: Iterator[bool]) -> pa.DataType:
    if pa.types.is_struct(data_type):
        return pa.struct([field.with_type(_with_instants(field.type, is_instant)) for field in data_type])
    if pa.types.is_map(data_type):
        key = _with_instants(data_type.key_type, is_instant)
        return pa.map_(key, _with_instants(data_type.item_type, is_instant))
    if pa.types.is_nested(data_type):
        value = _with_instants(data_type.value_type, is_instant)
        return data_type if value == data_type.value_type else pa.list_(value)
    return _INSTANT if next(is_instant) else data_type


class _Csv:
    def schema(self, path: str) -> pa.Schema:
        with self._open(path, None, {}) as reader:
            # A column without a value in the first block has the type null and would refuse all later values.
            return pa.schema([f.with_type(pa.string()) if pa.types.is_null(f.type) else f for f in reader.schema])

    def row_count(self, path: str) -> int | None:
        return None

    def batches(self, path: str, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._open(path, columns, {field.name: field.type for field in schema}) as reader:
            yield from reader

    def _open(
        self, path: str, columns: Sequence[str] | None, types: Mapping[str, pa.DataType]
    ) -> pyarrow.csv.CSVStreamingReader:
        return pyarrow.csv.open_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(block_size=_CSV_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                include_columns=columns,
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


class _Arrow:
    def schema(self, path: str) -> pa.Schema:
        return _open_arrow(_mapped(path))[0]

    def row_count(self, path: str) -> int | None:
        return None

    def batches(self, path: str, columns: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        mapped = _mapped(path)
        # Asked for some columns only, Arrow copies them out of the map, all rows of a batch at once; so it is asked for
        # all, and of what is not used no page is touched.
        for batch in _open_arrow(mapped)[1]:
            used = batch.select([column for column in columns if column in batch.schema.names])
            for part in split_to_bytes(used, BATCH_BYTES):
                yield part
                # Who still needs these pages gets them again from the system's cache; they stop counting as ours.
                mapped.madvise(mmap.MADV_DONTNEED)


def _open_arrow(mapped: mmap.mmap) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    content = pa.py_buffer(mapped)
    if mapped[: len(_ARROW_FILE_MAGIC)] == _ARROW_FILE_MAGIC:
        file = pa.ipc.open_file(content)
        return file.schema, (file.get_batch(i) for i in range(file.num_record_batches))
    stream = pa.ipc.open_stream(content)
    return stream.schema, iter(stream)


def _mapped(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise pa.ArrowInvalid("the file is empty")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


_PARQUET, _CSV, _ARROW = _Parquet(), _Csv(), _Arrow()

_BY_SUFFIX: Mapping[str, Format] = {
    ".parquet": _PARQUET,
    ".pq": _PARQUET,
    ".csv": _CSV,
    **{f".csv{compression}": _CSV for compression in _CSV_COMPRESSIONS},
    ".arrow": _ARROW,
    ".arrows": _ARROW,
    ".feather": _ARROW,
    ".ipc": _ARROW,
}

_BY_MAGIC: Mapping[bytes, Format] = {
    b"PAR1": _PARQUET,
    _ARROW_FILE_MAGIC: _ARROW,
    b"\xff\xff\xff\xff": _ARROW,  # what begins each message of an Arrow stream
}


def format_of(path: str) -> Format:
    """Tell the format of a file, or raise `InvalidOption`."""
    name = Path(path).name.lower()
    for suffix, by_suffix in _BY_SUFFIX.items():
        if name.endswith(suffix):
            return by_suffix
    with explained(repr(path)), open(path, "rb") as file:
        beginning = file.read(max(map(len, _BY_MAGIC)))
    for magic, by_magic in _BY_MAGIC.items():
        if beginning.startswith(magic):
            return by_magic
    raise InvalidOption(
        f"{path!r} has no format that can be read",
        given=f"a file that begins with {beginning!r}",
        allowed=f"Parquet, CSV, Arrow IPC file or stream ({', '.join(_BY_SUFFIX)})",
    )


@contextmanager
def explained(where: str, schema: pa.Schema | None = None) -> Iterator[None]:
    """Turn what goes wrong while a file is read into an `InvalidOption` that says `where`."""
    try:
        yield
    except (pa.ArrowException, OSError) as problem:
        in_csv = re.match(r"In CSV column #(\d+)", str(problem))
        column = f"column {schema.names[int(in_csv.group(1))]!r}: " if schema is not None and in_csv else ""
        raise InvalidOption(
            f"{where} could not be read",
            given=f"{column}{str(problem).splitlines()[0].rstrip('.')}",
            hint="the types of CSV columns are inferred from the beginning of the first file; Parquet states them"
            if in_csv
            else None,
        ) from problem
