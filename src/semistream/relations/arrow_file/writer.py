"""Writes the data file and the index file of one version, page by page.

Rows come sorted by code and are cut into record batches of about `page_bytes`, never between two rows of one code:
whoever reads a page has all rows of every code on it. A code with more rows than fit gets a larger page to itself
and its predecessors none of it.

A relation in hash partitions is written one partition after the other. A page belongs to one of them, so a partition is
a range of pages, ascending by code, and within the file as good as a file of its own.

Each page is serialised twice, once into the file and once into memory, where the positions of its buffers are looked
up and its checksum is taken. So the checksums are those of the bytes that were meant, and nothing that was written is
read back.

Memory: the rows of the page that is being filled, the rows of one `append`, one serialised page, and 8 bytes for
each page and column of the index (about 0.2 % of the data).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.clock import wall_time_s
from semistream.errors import ColumnCollision
from semistream.relations.arrow_file.checksum import WORD_BYTES, checksum_around, checksum_bytes, checksum_words
from semistream.relations.arrow_file.directory import StagedVersion
from semistream.relations.arrow_file.manifest import Manifest
from semistream.relations.arrow_file.page_index import NO_BUFFER, index_schema, int64_view, layout_of, write_index
from semistream.relations.arrow_file.plain_layout import plain_batch, plain_schema, row_bytes, row_bytes_by_column
from semistream.relations.base import CODE_COLUMN, Codes

PAGE_BYTES = 128 * 1024
"""One read of the device: below it a read costs a seek whatever it brings, above it mostly rows nobody asked for."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """What the writer learned about the rows while they passed by."""

    version: int
    row_count: int
    rows_per_code_max: int
    row_bytes_mean: float
    row_bytes_max: int
    page_count: int
    page_bytes_max: int
    data_bytes: int
    data_rest_checksum: int
    index_bytes: int
    index_checksum: int
    columns: dict[str, str]
    column_bytes_mean: dict[str, float]
    column_bytes_max: dict[str, float]
    partition_first_pages: tuple[int, ...]

    def manifest(self, *, key: tuple[str, ...], unique: bool, null_key_rows: int, code_version: int) -> Manifest:
        """Return the manifest of the version, given what only the builder knows."""
        return Manifest(
            version=self.version,
            code_version=code_version,
            key=tuple(key),
            unique=unique,
            row_count=self.row_count,
            null_key_rows=null_key_rows,
            rows_per_code_max=self.rows_per_code_max,
            row_bytes_mean=self.row_bytes_mean,
            row_bytes_max=self.row_bytes_max,
            page_count=self.page_count,
            page_bytes_max=self.page_bytes_max,
            data_bytes=self.data_bytes,
            data_rest_checksum=self.data_rest_checksum,
            index_bytes=self.index_bytes,
            index_checksum=self.index_checksum,
            created_at=datetime.fromtimestamp(int(wall_time_s()), UTC).isoformat(),
            columns=self.columns,
            column_bytes_mean=self.column_bytes_mean,
            column_bytes_max=self.column_bytes_max,
            partition_first_pages=self.partition_first_pages,
        )


class ArrowFileWriter:
    """Writes sorted rows as the data and index file of a staged version.

    Use it as a context manager, so that an error closes the file; call `close` when all rows are appended.
    """

    def __init__(self, staged: StagedVersion, schema: pa.Schema, page_bytes: int = PAGE_BYTES) -> None:
        assert page_bytes > 0, "a page needs at least one byte"
        self.schema = plain_schema(schema)
        _check_schema(self.schema)
        self._staged = staged
        self._page_bytes = page_bytes
        self._sink = pa.OSFile(str(staged.data_path), "wb")
        self._writer = pa.ipc.new_file(self._sink, self.schema)
        self._pages_begin = self._pages_end = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0.0
        self._index = [array("q") for _ in index_schema(self.schema)]
        self._partition_first_pages = [0]
        self._last_code: int | None = None
        """The last code of this partition."""
        self._row_count = 0
        self._rows_per_code_max = 0
        self._row_bytes_max = 0.0
        self._column_bytes_sum = np.zeros(len(self.schema))
        self._column_bytes_max = np.zeros(len(self.schema))
        self._page_bytes_max = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the file is not finished: it stays in the staging folder, which goes as a whole.
        self._sink.close()

    def append(self, rows: pa.RecordBatch) -> None:
        """Add rows; within a partition codes ascend, in this batch and from the one before."""
        if len(rows) == 0:
            return
        codes = _codes(rows)
        assert bool(np.all(codes[1:] >= codes[:-1])), "rows must be sorted by code before they are written"
        assert self._last_code is None or codes[0] >= self._last_code, "a batch begins before the last one ended"
        self._last_code = int(codes[-1])
        rows = plain_batch(rows, self.schema)
        self._waiting.append(rows)
        sizes_by_column = row_bytes_by_column(rows)
        sizes = np.sum(sizes_by_column, axis=0)
        self._column_bytes_sum += [column.sum() for column in sizes_by_column]
        self._column_bytes_max = np.maximum(self._column_bytes_max, [column.max() for column in sizes_by_column])
        self._row_bytes_max = max(self._row_bytes_max, float(sizes.max()))
        self._waiting_bytes += float(sizes.sum())
        # While all waiting rows have one code there is no place to cut, and joining them again and again would be
        # quadratic.
        one_code = _codes(self._waiting[0])[0] == codes[-1]
        if self._waiting_bytes >= self._page_bytes and not one_code:
            self._cut_pages()

    def next_partition(self) -> None:
        """End this hash partition, which may be empty; the rows that follow belong to the next."""
        self._write_waiting()
        self._partition_first_pages.append(len(self._index[0]))
        self._last_code = None

    def close(self) -> WrittenFile:
        """Write what is left and both files' ends; return what was learned."""
        self._write_waiting()
        self._writer.close()
        self._sink.close()
        index_path = self._staged.index_path
        write_index(index_path, self.schema, [np.frombuffer(column, np.int64) for column in self._index])
        data_bytes = self._staged.data_path.stat().st_size
        with self._staged.data_path.open("rb") as data:
            rest_checksum = checksum_around(data.fileno(), self._pages_begin, self._pages_end, data_bytes)
        return WrittenFile(
            version=self._staged.version,
            row_count=self._row_count,
            rows_per_code_max=self._rows_per_code_max,
            row_bytes_mean=float(self._column_bytes_sum.sum()) / max(1, self._row_count),
            row_bytes_max=int(np.ceil(self._row_bytes_max)),
            page_count=len(self._index[0]),
            page_bytes_max=self._page_bytes_max,
            data_bytes=data_bytes,
            data_rest_checksum=rest_checksum,
            index_bytes=index_path.stat().st_size,
            index_checksum=checksum_bytes(np.memmap(index_path, np.uint8, "r")),
            columns={field.name: str(field.type) for field in self.schema if field.name != CODE_COLUMN},
            column_bytes_mean=self._by_name(self._column_bytes_sum / max(1, self._row_count)),
            column_bytes_max=self._by_name(self._column_bytes_max),
            partition_first_pages=tuple(self._partition_first_pages),
        )

    def _write_waiting(self) -> None:
        if self._waiting:
            self._write_page(pa.concat_batches(self._waiting))
            self._waiting, self._waiting_bytes = [], 0.0

    def _by_name(self, values: npt.NDArray[np.float64]) -> dict[str, float]:
        return dict(zip(self.schema.names, values.tolist(), strict=True))

    def _cut_pages(self) -> None:
        rows = pa.concat_batches(self._waiting)
        codes = _codes(rows)
        bytes_before = np.concatenate([[0.0], np.cumsum(row_bytes(rows))])
        # The last code may go on in the next batch: its rows wait.
        may_end = int(np.searchsorted(codes, codes[-1]))
        begin = 0
        while bytes_before[-1] - bytes_before[begin] >= self._page_bytes and begin < may_end:
            end = int(np.searchsorted(bytes_before, bytes_before[begin] + self._page_bytes, side="right")) - 1
            end = _code_boundary(codes, begin, min(end, may_end))
            self._write_page(rows.slice(begin, end - begin))
            begin = end
        self._waiting = [rows.slice(begin)]
        self._waiting_bytes = float(bytes_before[-1] - bytes_before[begin])

    def _write_page(self, page: pa.RecordBatch) -> None:
        message = page.serialize()
        self._writer.write_batch(page)
        # The schema is written with the first page, so a page's place is known from its end.
        offset = self._sink.tell() - message.size
        if self._row_count == 0:
            self._pages_begin = self._pages_end = offset
        assert offset == self._pages_end, "a page takes other bytes in the file than in memory"
        self._pages_end = self._sink.tell()
        assert offset % WORD_BYTES == 0, "a page does not begin at a whole word"
        assert message.size % WORD_BYTES == 0, "a page does not end at a whole word"
        checksum = checksum_words(np.frombuffer(message, np.int64), 0, message.size // WORD_BYTES)
        codes = _codes(page)
        columns = [int(codes[0]), self._row_count, len(page), offset, message.size, int(checksum)]
        columns += _buffer_positions(message, self.schema, offset)
        for column, value in zip(self._index, columns, strict=True):
            column.append(value)
        self._row_count += len(page)
        self._page_bytes_max = max(self._page_bytes_max, message.size)
        self._rows_per_code_max = max(self._rows_per_code_max, _longest_run(codes))


def _check_schema(schema: pa.Schema) -> None:
    assert schema.names[:1] == [CODE_COLUMN], "the first column must hold the codes"
    assert schema.field(0).type == pa.int64(), "codes are int64"
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise ColumnCollision(
            "two columns of the relation have the same name", given=repr(twice[0]), hint="rename one of them"
        )


def _codes(rows: pa.RecordBatch) -> Codes:
    return int64_view(rows.column(0))


def _code_boundary(codes: Codes, begin: int, end: int) -> int:
    """Return the last place up to `end` where a code begins, or the first after it when there is none."""
    boundary = int(np.searchsorted(codes, codes[end]))
    if boundary > begin:
        return boundary
    return int(np.searchsorted(codes, codes[begin], side="right"))


def _longest_run(codes: Codes) -> int:
    begins = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1], [True]]))
    return int(np.diff(begins).max())


def _buffer_positions(message: pa.Buffer, schema: pa.Schema, offset: int) -> list[int]:
    """Return where each buffer of a serialised page stands in the file, given where the page begins."""
    page = pa.ipc.read_record_batch(message, schema)
    positions = []
    for column in page.columns:
        names = layout_of(column.type).buffer_names
        for buffer in column.buffers()[: len(names)] if names else []:
            if buffer is None or buffer.size == 0:
                positions.append(NO_BUFFER)
                continue
            position = buffer.address - message.address
            assert 0 <= position <= message.size - buffer.size, "a buffer stands outside its page"
            assert position % WORD_BYTES == 0, "a buffer does not begin at a whole word"
            positions.append(offset + position)
    return positions
