"""Two joins of TPC-H, at any scale factor: customers with their orders, and suppliers of parts with line items.

The tables are made by tpchgen-cli, a program of its own that writes the rows of the reference generator; it comes with
`pip install 'semistream[lab]'`. Master data keeps all its columns, for they are what the join fetches; of the stream
only keys and measures are kept.

Know what these keys are before you read a result. They are uniform, not skewed: orders skip every third customer
and draw evenly from the others, line items draw evenly from all parts. And every part has exactly four suppliers, so
the join of `PARTSUPP_LINEITEM` is many-to-many with a constant four.

A table is made in parts of about `PART_ROWS` rows, each of which is stripped of unwanted columns and deleted before the
next begins: disk space is needed for the result and one part. Ask for `stream_rows_max`, and parts that are not needed
are never made; orders and line items are in no order of their foreign key, so a beginning is a fair sample.
"""

from __future__ import annotations

import itertools
import math
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import EnvironmentUnfit, InvalidOption

PROGRAM = "tpchgen-cli"

PART_ROWS = 20_000_000
"""Rows of a part: 1 to 3 GB, and few enough starts of the program (over a second each) not to matter."""

BATCH_ROWS = 1 << 17


@dataclass(frozen=True, slots=True)
class TpchTable:
    """A table and what is kept of it."""

    name: str
    key: str
    columns: tuple[str, ...]
    rows_at_scale_1: int
    """Line items are only about this many, the others exactly."""


@dataclass(frozen=True, slots=True)
class TpchJoin:
    """Master data, a stream, and the key of each."""

    master: TpchTable
    stream: TpchTable


CUSTOMER_ORDERS = TpchJoin(
    TpchTable(
        "customer",
        "c_custkey",
        (
            "c_custkey",
            "c_name",
            "c_address",
            "c_nationkey",
            "c_phone",
            "c_acctbal",
            "c_mktsegment",
            "c_comment",
        ),
        150_000,
    ),
    TpchTable("orders", "o_custkey", ("o_orderkey", "o_custkey", "o_orderdate", "o_totalprice"), 1_500_000),
)

PARTSUPP_LINEITEM = TpchJoin(
    TpchTable(
        "partsupp",
        "ps_partkey",
        ("ps_partkey", "ps_suppkey", "ps_availqty", "ps_supplycost", "ps_comment"),
        800_000,
    ),
    TpchTable(
        "lineitem",
        "l_partkey",
        ("l_orderkey", "l_linenumber", "l_partkey", "l_suppkey", "l_quantity", "l_extendedprice"),
        6_000_000,
    ),
)


@dataclass(frozen=True, slots=True)
class TpchFiles:
    """What was written."""

    master: Path
    master_rows: int
    stream: Path
    stream_rows: int


def write_tpch(
    join: TpchJoin, scale_factor: float, directory: Path, *, stream_rows_max: int | None = None
) -> TpchFiles:
    """Write master data and stream as `directory/<table>.parquet`, replacing what is there.

    Args:
        join: `CUSTOMER_ORDERS` or `PARTSUPP_LINEITEM`.
        scale_factor: 1 is 150 000 customers or 800 000 rows of partsupp; fractions are allowed.
        directory: is created if need be; also holds one unfinished part at a time.
        stream_rows_max: rows of the stream to stop at.

    Raises:
        EnvironmentUnfit: if tpchgen-cli is not installed, or fails.
        InvalidOption: if a number is out of range.
    """
    if not (scale_factor > 0 and math.isfinite(scale_factor)):
        raise InvalidOption("a TPC-H scale factor must be above 0", given=str(scale_factor), allowed="> 0, such as 0.1")
    if stream_rows_max is not None and stream_rows_max < 1:
        raise InvalidOption("`stream_rows_max` leaves no stream", given=str(stream_rows_max), allowed="1 or more")
    program = _program()
    directory.mkdir(parents=True, exist_ok=True)
    master, stream = directory / f"{join.master.name}.parquet", directory / f"{join.stream.name}.parquet"
    master_rows = _write_table(program, join.master, scale_factor, master, None)
    stream_rows = _write_table(program, join.stream, scale_factor, stream, stream_rows_max)
    return TpchFiles(master, master_rows, stream, stream_rows)


def _program() -> str:
    # An environment that was not activated has the program beside its Python, but not on the path.
    found = shutil.which(PROGRAM, path=sysconfig.get_path("scripts")) or shutil.which(PROGRAM)
    if found is None:
        raise EnvironmentUnfit(
            f"TPC-H tables are made by the program {PROGRAM}, which is not installed",
            hint=f"pip install 'semistream[lab]', or: pip install {PROGRAM}",
        )
    return found


def _write_table(program: str, table: TpchTable, scale_factor: float, target: Path, rows_max: int | None) -> int:
    written = 0
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{table.name}-") as scratch:
        unfinished = Path(scratch) / "unfinished.parquet"
        kept = _kept_rows(program, table, scale_factor, Path(scratch), rows_max)
        first = next(kept, None)
        if first is None:
            raise InvalidOption(f"the scale factor leaves no row of the table {table.name}", given=str(scale_factor))
        with pq.ParquetWriter(unfinished, first.schema, store_decimal_as_integer=True) as writer:
            for rows in itertools.chain([first], kept):
                writer.write_table(rows)
                written += rows.num_rows
        # Only a finished table gets its name: whoever finds the file can use it.
        unfinished.replace(target)
    return written


def _kept_rows(
    program: str, table: TpchTable, scale_factor: float, scratch: Path, rows_max: int | None
) -> Iterator[pa.Table]:
    """Yield the columns that are kept, part after part, until the rows are enough."""
    parts = max(math.ceil(table.rows_at_scale_1 * scale_factor / PART_ROWS), 1)
    rows_left = sys.maxsize if rows_max is None else rows_max
    for part in range(1, parts + 1):
        made = _make_part(program, table, scale_factor, part, parts, scratch)
        with pq.ParquetFile(made) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(table.columns)):
                rows = _plain(batch.slice(0, rows_left))
                yield rows
                rows_left -= rows.num_rows
                if rows_left == 0:
                    return
        made.unlink()


def _make_part(program: str, table: TpchTable, scale_factor: float, part: int, parts: int, directory: Path) -> Path:
    command = [program, "parquet", "--quiet", f"--tables={table.name}", f"--output-dir={directory}"]
    # Not in exponent notation, which the program might not read.
    command += [f"--scale-factor={scale_factor:.9f}", f"--parts={parts}", f"--part={part}", "--compression=LZ4_RAW"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    made = sorted((directory / table.name).glob("*.parquet"))
    if finished.returncode != 0 or len(made) != 1:
        raise EnvironmentUnfit(
            f"{PROGRAM} could not make the table {table.name}",
            given=" ".join(command[1:]),
            hint=finished.stderr.strip() or f"it ended with code {finished.returncode} and wrote {len(made)} files",
        )
    return made[0]


def _plain(batch: pa.RecordBatch) -> pa.Table:
    """The same rows with strings instead of string views, which not every reader of Parquet takes yet."""
    schema = pa.schema(
        [(field.name, pa.string() if pa.types.is_string_view(field.type) else field.type) for field in batch.schema]
    )
    return pa.Table.from_batches([batch]).cast(schema)
