"""Files of weather reports: fixed-length records, plain or compressed, and the CSV form of single stations.

The collections come as one file a month, `SEP85L` for the land stations of September 1985, packed by Unix compress
(`.Z`) or gzip. Copies of EECRA in circulation also come as CSV, a file a station, in real units: there a longitude
is in degrees and west is negative. Both are read into the same columns, so that everything behind this module sees
one kind of report.

Memory: `BLOCK_LINES` reports at a time (some 40 MB while they are read), however long the file.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pacsv

from semistream.errors import ColumnNotFound, EnvironmentUnfit, InvalidOption, RelationNotFound, did_you_mean_beside
from semistream.lab.workloads.weather import (
    FORMATS,
    NDP_026B,
    NDP_026C_1997,
    OBSERVED_AT,
    Field,
    Origin,
    RecordFormat,
    column_of,
    format_records,
    parse_records,
    time_column,
)

BLOCK_LINES = 1 << 16

MONTH_NAMES = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")

LONGITUDE_TURN = 36000
"""Hundredths of a degree once round the globe."""


def month_file_name(year: int, month: int) -> str:
    """Return what the collection calls the land reports of a month.

    Example:
        >>> month_file_name(1985, 9)
        'SEP85L'
    """
    return f"{MONTH_NAMES[month - 1]}{year % 100:02d}L"


def read_reports(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
    """Yield the reports of a file.

    A name that ends in `.csv` or `.csv.gz` is read as CSV; any other as records whose format the first line tells,
    after unpacking if it ends in `.gz` or `.Z`.

    Args:
        path: The file.
        columns: Columns to read, in this order; None reads all.

    Raises:
        RelationNotFound: if there is no such file.
        ColumnNotFound: if the format has no such column.
        InvalidOption: naming the line, if the file is not what its format demands.
        EnvironmentUnfit: if a `.Z` file needs a program that is not there.
    """
    if not path.is_file():
        raise RelationNotFound(
            "there is no file of weather reports at this place",
            given=repr(str(path)),
            hint=did_you_mean_beside(path),
        )
    if path.name.lower().endswith((".csv", ".csv.gz")):
        yield from _csv_batches(path, columns)
        return
    try:
        with _opened(path) as lines:
            yield from _record_batches(lines, path.name, columns)
    except (gzip.BadGzipFile, EOFError, zlib.error) as problem:
        raise _not_unpacked(path, str(problem)) from None


def write_reports(batches: Iterator[pa.RecordBatch], path: Path, record: RecordFormat = NDP_026B) -> int:
    """Write reports as records, packed by gzip if the name ends in `.gz`; return how many."""
    written = 0
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as target:
        for batch in batches:
            target.write(format_records(batch, record))
            written += batch.num_rows
    return written


# Records


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    if path.suffix == ".Z":
        with tempfile.TemporaryFile() as lines:
            _unpack(path, lines)
            yield lines
    elif path.suffix == ".gz":
        with gzip.GzipFile(path) as unpacked, io.BufferedReader(unpacked) as lines:
            yield lines
    else:
        with path.open("rb") as lines:
            yield lines


def _unpack(path: Path, target: IO[bytes]) -> None:
    """Let `gzip` unpack a file by Unix compress, which Python itself cannot read."""
    try:
        ended = subprocess.run(["gzip", "-dc", "--", path], stdout=target, stderr=subprocess.PIPE, check=False)
    except FileNotFoundError:
        raise EnvironmentUnfit(
            "a file packed by Unix compress is unpacked by the program gzip, which is not installed",
            given=path.name,
            hint="unpack the file elsewhere, or install gzip",
        ) from None
    if ended.returncode != 0:
        raise _not_unpacked(path, ended.stderr.decode(errors="replace").strip())
    target.seek(0)


def _not_unpacked(path: Path, reason: str) -> InvalidOption:
    return InvalidOption(f"the weather reports in {path.name} cannot be unpacked", given=reason)


def _record_batches(lines: IO[bytes], name: str, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    first = lines.readline()
    if not first:
        raise InvalidOption(f"there are no weather reports in {name}", given="an empty file")
    ending = b"\r\n" if first.endswith(b"\r\n") else b"\n"
    record = _format_of(len(first.rstrip(b"\r\n")), name)
    stride = record.record_bytes + len(ending)
    line = 1
    block = first + lines.read(stride * BLOCK_LINES - len(first))
    while block:
        if len(block) % stride == record.record_bytes:
            block += ending  # the last line of a file may lack its end
        matrix = _matrix(block, record, ending, Origin(name, line))
        yield parse_records(matrix, record, Origin(name, line), columns)
        line += len(matrix)
        block = lines.read(stride * BLOCK_LINES)


def _format_of(record_bytes: int, name: str) -> RecordFormat:
    if record_bytes not in FORMATS:
        raise InvalidOption(
            f"line 1 of {name} has a length that no format of weather reports has",
            given=f"{record_bytes} characters",
            allowed=", ".join(f"{length} ({record.name})" for length, record in FORMATS.items()),
        )
    return FORMATS[record_bytes]


def _matrix(block: bytes, record: RecordFormat, ending: bytes, origin: Origin) -> npt.NDArray[np.uint8]:
    """The lines of a block as a matrix of bytes, once it is sure that all have the length of the first."""
    stride = record.record_bytes + len(ending)
    whole = len(block) // stride
    matrix = np.frombuffer(block, dtype=np.uint8, count=whole * stride).reshape(whole, stride)
    ends_well = (matrix[:, record.record_bytes :] == np.frombuffer(ending, dtype=np.uint8)).all(axis=1)
    ends_well &= ~(matrix[:, : record.record_bytes] == ord("\n")).any(axis=1)
    row = whole if ends_well.all() else int(np.argmin(ends_well))
    if row * stride < len(block):
        found_bytes = len(block[row * stride :].split(b"\n", 1)[0].rstrip(b"\r"))
        raise InvalidOption(
            f"line {origin.first_line + row} of {origin.name} has another length than the lines before it",
            given=f"{found_bytes} characters",
            allowed=f"{record.record_bytes} ({record.name}), and the same end of line throughout",
        )
    return matrix


# CSV


def _csv_batches(path: Path, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    record = NDP_026C_1997
    chosen = record.chosen(columns)
    times = record.time_fields
    fields = [field for field in record.fields if field.name in chosen]
    needed = {field.name: pa.float64() for field in (*times, *fields)}
    line = 2  # behind the header
    try:
        reader = pacsv.open_csv(
            path,
            # An empty value is a mistake here: the collection writes missing ones as numbers.
            convert_options=pacsv.ConvertOptions(include_columns=list(needed), column_types=needed, null_values=[]),
        )
        for batch in reader:
            origin = Origin(path.name, line)
            made = {field.name: column_of(_csv_numbers(batch, field, origin), field) for field in fields}
            year, month, day, hour = (_csv_numbers(batch, field, origin) for field in times)
            made[OBSERVED_AT] = time_column(year, month, day, hour, origin)
            schema = pa.schema([record.schema.field(name) for name in chosen])
            yield pa.record_batch([made[name] for name in chosen], schema=schema)
            line += batch.num_rows
    except KeyError as problem:
        raise ColumnNotFound(f"the weather reports in {path.name} lack a column", given=str(problem)) from None
    except (pa.ArrowInvalid, OSError) as problem:
        raise InvalidOption(f"the weather reports in {path.name} cannot be read", given=str(problem)) from None


def _csv_numbers(batch: pa.RecordBatch, field: Field, origin: Origin) -> npt.NDArray[np.int64]:
    """The numbers as a record would hold them: in its unit, and with longitudes that go east only."""
    values = batch.column(field.name).to_numpy()
    fits = np.abs(values * field.per_unit) < 10**field.width
    if not fits.all():
        row = int(np.argmin(fits))
        raise InvalidOption(
            f"line {origin.first_line + row} of {origin.name} has a number that its field {field.name!r} cannot hold",
            given=str(values[row]),
            allowed=f"a number of {field.width} characters, in steps of 1/{field.per_unit}",
        )
    numbers: npt.NDArray[np.int64] = np.rint(values * field.per_unit).astype(np.int64)
    return numbers % LONGITUDE_TURN if field.name == "lon" else numbers
