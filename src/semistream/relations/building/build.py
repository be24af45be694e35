"""Builds a relation: rows from anywhere, sorted by the code of their key, published as a new version.

The steps, each in bounded memory:

1. *Read.* Batches of the selected columns, in the types that are stored; the key's code is put in front. A row with a
   null in its key can never match: it is counted and left out.
2. *Sort* by code, on disk where memory does not suffice (`external_sort`); a relation in hash partitions by partition
   first (`partitioned_sort`).
3. *Merge.* The sorted rows go to the file of the new version, and on the way we look whether a key occurs twice
   (`key_watch`).
4. *Publish.* One rename makes the version current.

Whatever goes wrong before step 4, an interrupt included, leaves the version that was current before, and nothing else.

Memory: `memory` is for the rows that the sort holds. Beside it the source and the file need a few MiB, and Arrow's
allocator keeps some tens of MiB for its threads. A code is never split over pages, so a key with very many rows costs
the file writer several times their bytes.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from semistream.budget import GIB, format_bytes, parse_bytes
from semistream.clock import Clock, RealClock
from semistream.errors import (
    ColumnNotFound,
    EnvironmentUnfit,
    InvalidOption,
    RelationRefused,
    SemistreamError,
    did_you_mean,
)
from semistream.keys import CODE_VERSION, KeyCodec
from semistream.relations.arrow_file.directory import RelationDirectory, StagedVersion
from semistream.relations.arrow_file.writer import PAGE_BYTES, ArrowFileWriter, WrittenFile
from semistream.relations.base import CODE_COLUMN
from semistream.relations.building.key_watch import KeyWatch, described_key
from semistream.relations.building.partitioned_sort import PartitionedSort
from semistream.relations.building.sources import Source, SourceLike, open_source

_CODE_BYTES_MAX = GIB
"""Rows of one code stand on one page, and 32-bit string offsets end at 2 GiB."""

PARTITIONS_MAX = 1024
"""More would make pages of a few rows, and a task of a cluster for each of them."""

Phase = Literal["read", "sort", "merge", "publish"]
"""What a build is doing; phases follow each other in this order."""


@dataclass(frozen=True, slots=True)
class BuildProgress:
    """How far a build has come."""

    phase: Phase
    rows_done: int
    """Rows that have passed this phase."""
    rows_total: int | None
    """Rows that will have passed it; None where that is not known yet."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What was built."""

    path: Path
    version: int
    row_count: int
    null_key_rows: int
    """Rows of the source that were left out because their key has a null."""
    unique: bool
    """No key occurs twice."""
    rows_per_code_max: int
    """Most rows that share one code; 0 when there are no rows."""
    partitions: int
    """Hash partitions that it can be read in."""
    bytes_written: int
    """Length of the version's files, the manifest not counted."""
    seconds: float


ProgressListener = Callable[[BuildProgress], None]


def build_relation(
    source: SourceLike,
    *,
    key: str | Sequence[str],
    out: str | Path,
    columns: Sequence[str] | None = None,
    unique: bool = False,
    memory: str | int = "512MB",
    partitions: int = 1,
    page_bytes: int = PAGE_BYTES,
    on_progress: ProgressListener | None = None,
    clock: Clock | None = None,
) -> BuildReport:
    """Write the rows of a source as a new version of the relation in the directory `out`.

    Use it for master data that a stream will be joined with, again whenever the data changes: readers see the new
    version from their next batch on. It writes all rows each time; it does not merge changes.

    Args:
        source: A path (file, directory or glob; Parquet, CSV, Arrow), a pyarrow Table or RecordBatchReader, whatever
            else offers an Arrow stream, or an iterable of RecordBatches.
        key: The column or columns that identify a row.
        out: The directory of the relation; it is made if there is none.
        columns: Which columns to keep, the key always among them; all unless given.
        unique: Refuse the source if a key occurs twice.
        memory: Bytes that may be held for sorting, such as "512MB".
        partitions: Hash partitions of the key, from 1 to 1024, that `pcsrj` joins side by side; other algorithms read
            a relation in one partition faster.
        page_bytes: Bytes of one page, which is what a cold lookup reads.
        on_progress: Called with a `BuildProgress` every few thousand rows.
        clock: What the seconds of the report are measured with.

    Raises:
        RelationNotFound: if the source does not exist.
        InvalidOption: if the source cannot be read or an option makes no sense.
        ColumnNotFound: if a key column or a selected column does not exist.
        KeyMismatch: if a key column has a type that cannot be a key.
        DuplicateKey: if a key occurs twice and `unique` is set.
        EnvironmentUnfit: if the disk is full or cannot be written.

    Example:
        >>> import tempfile
        >>> products = pa.table({"product_id": [7, 3], "name": ["tea", "rice"]})
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     report = build_relation(products, key="product_id", out=directory + "/products")
        >>> report.version, report.row_count, report.unique
        (1, 2, True)
    """
    clock = clock or RealClock()
    started_s = clock.now_s()
    memory_bytes, page_bytes = parse_bytes(memory), parse_bytes(page_bytes)
    check_partitions(partitions)
    opened = open_source(source)
    key_columns = (key,) if isinstance(key, str) else tuple(key)
    schema = opened.stored_schema(_selected(opened, key_columns, columns))
    codec = KeyCodec([schema.field(name).type for name in key_columns], key_columns)
    directory = RelationDirectory(out)
    with _write_errors_explained(directory.path), directory.begin_version() as staged:
        build = _Build(opened, schema, key_columns, codec, on_progress or _nobody_listens)
        sort = PartitionedSort(
            build.sorted_schema, staged.scratch_dir, partition_count=partitions, memory_bytes=memory_bytes
        )
        build.read_into(sort)
        written = build.write(sort, staged, page_bytes, refuse_duplicates=unique)
        build.publish(directory, staged, written)
    return build.report(directory.path, written, clock.now_s() - started_s)


def check_partitions(partitions: object) -> None:
    """Refuse what is not a number of hash partitions."""
    if not isinstance(partitions, int) or not 1 <= partitions <= PARTITIONS_MAX:
        raise InvalidOption(
            "`partitions` is not a number of hash partitions",
            given=repr(partitions),
            allowed=f"a whole number from 1 to {PARTITIONS_MAX}",
            hint="a few times as many as tasks run at a time will do",
        )


def _nobody_listens(_: BuildProgress) -> None:
    pass


class _Build:
    """One build on its way."""

    def __init__(
        self,
        source: Source,
        schema: pa.Schema,
        key: tuple[str, ...],
        codec: KeyCodec,
        on_progress: ProgressListener,
    ) -> None:
        self.sorted_schema = pa.schema([pa.field(CODE_COLUMN, pa.int64(), nullable=False), *schema])
        self.key_watch = KeyWatch(key, exact=codec.exact)
        self._code_size = _CodeSize(key)
        self.null_key_rows = 0
        self._source = source
        self._schema = schema
        self._key = key
        self._codec = codec
        self._on_progress = on_progress

    def tell(self, phase: Phase, rows_done: int, rows_total: int | None) -> None:
        self._on_progress(BuildProgress(phase, rows_done, rows_total))

    def read_into(self, sort: PartitionedSort) -> None:
        """Put the code in front of all rows that have one and hand them to the sort."""
        rows_read = 0
        self.tell("read", 0, self._source.row_count)
        for batch in self._source.batches(self._schema):
            rows_read += batch.num_rows
            sort.add(self._with_codes(batch))
            self.tell("read", rows_read, self._source.row_count)
        assert sort.row_count + self.null_key_rows == rows_read, "rows were lost between source and sort"

    def _with_codes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        encoded = self._codec.encode([batch.column(name) for name in self._key])
        rows = pa.record_batch([pa.array(encoded.codes), *batch.columns], schema=self.sorted_schema)
        if encoded.null is None:
            return rows
        self.null_key_rows += int(np.count_nonzero(encoded.null))
        return rows.filter(pa.array(~encoded.null))

    def write(
        self, sort: PartitionedSort, staged: StagedVersion, page_bytes: int, *, refuse_duplicates: bool
    ) -> WrittenFile:
        """Write the sorted rows and close the file."""
        rows_total, rows_done = sort.row_count, 0
        self.tell("sort", 0, rows_total)
        with ArrowFileWriter(staged, self.sorted_schema, page_bytes) as writer:
            for number, partition in enumerate(sort.sorted_partitions()):
                if number > 0:
                    writer.next_partition()
                with closing(partition) as sorted_batches:
                    for rows in sorted_batches:
                        if rows_done == 0:
                            self.tell("sort", rows_total, rows_total)
                        self._see(rows, refuse_duplicates=refuse_duplicates)
                        writer.append(rows)
                        rows_done += rows.num_rows
                        self.tell("merge", rows_done, rows_total)
            if refuse_duplicates:
                self.key_watch.refuse_repeated(at_end=True)
            assert rows_done == rows_total, "rows were lost or doubled by the sort"
            return writer.close()

    def _see(self, rows: pa.RecordBatch, *, refuse_duplicates: bool) -> None:
        """Look at rows before they are written; those of one code follow each other, whatever its partition."""
        self._code_size.see(rows)
        self.key_watch.see(rows)
        if refuse_duplicates:
            self.key_watch.refuse_repeated(at_end=False)

    def publish(self, directory: RelationDirectory, staged: StagedVersion, written: WrittenFile) -> None:
        """Make what was written the current version."""
        self.tell("publish", 0, written.row_count)
        manifest = written.manifest(
            key=self._key,
            unique=self.key_watch.unique,
            null_key_rows=self.null_key_rows,
            code_version=CODE_VERSION,
        )
        directory.publish(staged, manifest)
        self.tell("publish", written.row_count, written.row_count)

    def report(self, path: Path, written: WrittenFile, seconds: float) -> BuildReport:
        """What the user is told."""
        return BuildReport(
            path=path,
            version=written.version,
            row_count=written.row_count,
            null_key_rows=self.null_key_rows,
            unique=self.key_watch.unique,
            rows_per_code_max=written.rows_per_code_max,
            partitions=len(written.partition_first_pages),
            bytes_written=written.data_bytes + written.index_bytes,
            seconds=seconds,
        )


class _CodeSize:
    """Refuses a code whose rows are too large for a page, before anything is asked to hold them."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self._key = key
        self._code: int | None = None
        self._bytes = 0

    def see(self, rows: pa.RecordBatch) -> None:
        codes = rows.column(0).to_numpy()
        last = int(codes[-1])
        # A code that ends within a batch is no larger than the batch; only the last one can go on growing.
        tail = rows.slice(int(np.searchsorted(codes, last)))
        self._bytes = tail.nbytes + (self._bytes if last == self._code else 0)
        self._code = last
        if self._bytes > _CODE_BYTES_MAX:
            raise RelationRefused(
                "the rows of one key are too large to be kept together",
                given=f"more than {format_bytes(_CODE_BYTES_MAX)} for {described_key(tail, self._key)}",
                hint="choose a key with fewer rows a value, such as two columns",
            )


def _selected(source: Source, key: tuple[str, ...], columns: Sequence[str] | None) -> list[str]:
    """Return the columns to store, the key among them."""
    names = source.schema.names
    if isinstance(columns, str):
        raise InvalidOption("`columns` is a list of names", given=repr(columns), allowed=f"[{columns!r}]")
    for option, chosen in (("key", key), ("columns", tuple(columns or ()))):
        for name in chosen:
            if name not in names:
                raise ColumnNotFound(
                    f"`{option}` names a column that {source.name} does not have",
                    given=repr(name),
                    allowed=", ".join(names),
                    hint=did_you_mean(name, names),
                )
            if chosen.count(name) > 1:
                raise InvalidOption(f"`{option}` names a column twice", given=repr(name))
    selected = names if columns is None else [*(name for name in key if name not in columns), *columns]
    if CODE_COLUMN in selected:
        raise InvalidOption(
            f"a column of {source.name} has a name that is reserved for the code of the key",
            given=repr(CODE_COLUMN),
            hint="rename it, or leave it out with `columns=`",
        )
    return list(selected)


@contextmanager
def _write_errors_explained(out: Path) -> Iterator[None]:
    try:
        yield
    except SemistreamError:
        raise
    except OSError as problem:
        raise EnvironmentUnfit(
            f"the relation in {str(out)!r} could not be written; what was published before is untouched",
            given=problem.strerror or str(problem),
            hint="make room: a build needs about twice the uncompressed size of the source for a while"
            if problem.errno in (errno.ENOSPC, errno.EDQUOT)
            else None,
        ) from problem
