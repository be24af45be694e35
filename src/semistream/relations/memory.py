"""R in memory: all of it, in one record batch.

For tests, for the laboratory and for tables of a few thousand rows. It is **not bounded**: what it holds is charged
to no budget. Whatever does not certainly fit belongs into a relation directory.

It is cut into pages like a file, every `page_rows` rows and never between rows of one code, so that operators that
read pages behave as they do on disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from semistream.keys import KeyCodec
from semistream.relations.arrow_file.page_index import Int64s, int64_array, int64_view
from semistream.relations.arrow_file.plain_layout import plain_batch, plain_schema, row_bytes
from semistream.relations.base import CODE_COLUMN, Codes, RelationInfo

PAGE_ROWS = 1024


class MemoryRelation:
    """A relation that lies in memory as a whole; see `from_table` for the easy way to make one.

    Args:
        rows: The rows with their codes as first column, sorted by code.
        key: Names of the key columns.
        name: Used in messages and metrics.
        version: The version it says it is.
        page_rows: Rows of a page, more only where one code has more.
        columns: User columns that are read, in this order; all of them when None.
        unique: Whether no key occurs twice; taken from the codes when None, which is true of exact codes only.
    """

    def __init__(
        self,
        rows: pa.RecordBatch | pa.Table,
        key: Sequence[str],
        *,
        name: str = "memory",
        version: int = 1,
        page_rows: int = PAGE_ROWS,
        columns: Sequence[str] | None = None,
        unique: bool | None = None,
    ) -> None:
        assert page_rows >= 1, "a page needs at least one row"
        assert rows.schema.names[0] == CODE_COLUMN, "the first column must hold the codes"
        batch = _one_batch(rows)
        names = batch.schema.names[1:] if columns is None else list(columns)
        self._rows = batch.select([CODE_COLUMN, *names])
        self._codes = int64_view(batch.column(0))
        assert bool(np.all(self._codes[1:] >= self._codes[:-1])), "rows must be sorted by code"
        self._page_begins = _page_begins(self._codes, page_rows)
        self._first_codes = self._codes[self._page_begins[:-1]]
        self.schema = self._rows.schema
        self.page_reads = 0
        """Pages touched so far."""
        sizes = row_bytes(self._rows)
        runs = np.diff(_code_begins(self._codes), append=len(self._codes))
        page_bytes = np.add.reduceat(sizes, self._page_begins[:-1]) if len(sizes) else np.zeros(1)
        self.info = RelationInfo(
            name=name,
            key=tuple(key),
            schema=batch.schema.remove(0),
            version=version,
            row_count=len(batch),
            unique=int(runs.max(initial=0)) <= 1 if unique is None else unique,
            rows_per_code_max=int(runs.max(initial=0)),
            row_bytes_mean=float(sizes.mean()) if len(sizes) else 0.0,
            row_bytes_max=int(np.ceil(sizes.max(initial=0))),
            page_count=len(self._page_begins) - 1,
            page_bytes_max=int(np.ceil(page_bytes.max())),
        )

    @classmethod
    def from_table(
        cls,
        table: pa.Table | pa.RecordBatch,
        key: Sequence[str],
        *,
        name: str = "memory",
        version: int = 1,
        page_rows: int = PAGE_ROWS,
        columns: Sequence[str] | None = None,
    ) -> MemoryRelation:
        """Make a relation from rows in any order; rows with a null in their key are left out.

        Example:
            >>> products = pa.table({"id": [7, 3], "name": ["pear", "fig"]})
            >>> relation = MemoryRelation.from_table(products, key=["id"])
            >>> relation.page_for(3).column("name").to_pylist()
            ['fig', 'pear']
        """
        batch = _one_batch(table)
        codec = KeyCodec([batch.schema.field(column).type for column in key], list(key))
        encoded = codec.encode([batch.column(column) for column in key])
        kept = np.arange(len(batch)) if encoded.null is None else np.flatnonzero(~encoded.null)
        order = kept[np.argsort(encoded.codes[kept], kind="stable")]
        rows = batch.take(int64_array(order))
        codes = int64_array(encoded.codes[order])
        schema = rows.schema.insert(0, pa.field(CODE_COLUMN, pa.int64(), nullable=False))
        with_codes = pa.RecordBatch.from_arrays([codes, *rows.columns], schema=schema)
        distinct = len(pa.Table.from_batches([rows]).group_by(list(key)).aggregate([]))
        return cls(
            with_codes,
            key,
            name=name,
            version=version,
            page_rows=page_rows,
            columns=columns,
            unique=distinct == len(rows),
        )

    @property
    def segment_count(self) -> int:
        """Number of pages."""
        return len(self._page_begins) - 1

    def segment(self, number: int) -> pa.RecordBatch:
        """Return a page; nothing is copied."""
        assert 0 <= number < self.segment_count, "a segment that does not exist"
        self.page_reads += 1
        begin, end = self._page_begins[number : number + 2].tolist()
        return self._rows.slice(begin, end - begin)

    def page_for(self, code: int) -> pa.RecordBatch:
        """Return the page on which rows of `code` stand, or would stand."""
        if self.segment_count == 0:
            return self._rows
        return self.segment(int(self.page_numbers(np.array([code]))[0]))

    def page_numbers(self, codes: Codes) -> Codes:
        """Return for each code the number of the page on which its rows stand, or would stand."""
        return np.maximum(np.searchsorted(self._first_codes, codes, side="right") - 1, 0)

    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows whose code is among `codes`, ascending by code; see `KeyBatch`."""
        begins = np.searchsorted(self._codes, codes)
        counts = np.searchsorted(self._codes, codes, side="right") - begins
        # Row numbers of all ranges, one range after another.
        until = np.cumsum(counts)
        rows = np.arange(int(until[-1]) if len(until) else 0) + np.repeat(begins - (until - counts), counts)
        looked_at = np.minimum(begins, max(0, len(self._codes) - 1))
        self.page_reads += len(np.unique(np.searchsorted(self._page_begins, looked_at, side="right")))
        while len(rows):
            # A few more rows than will fit: the rest is taken again, too few make a smaller batch.
            candidates = int(1.1 * bytes_max / self.info.row_bytes_mean) + 16
            batch = self._rows.take(int64_array(rows[:candidates]))
            sizes = np.cumsum(row_bytes(batch)) + _SLACK_BYTES * batch.num_columns
            fitting = int(np.searchsorted(sizes, bytes_max, side="right"))
            if fitting < len(batch):
                batch = self._rows.take(int64_array(rows[: max(1, fitting)]))
            rows = rows[len(batch) :]
            yield batch

    def changed_since(self, version: int) -> Codes | None:
        """Nothing changed since this very version; of others nothing is known."""
        return np.zeros(0, np.int64) if version == self.info.version else None


_SLACK_BYTES = 64
"""What the buffers of a column may take beyond its rows: last offsets and the rest of validity bytes."""


def _one_batch(rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch:
    schema = plain_schema(rows.schema)
    batches = [rows] if isinstance(rows, pa.RecordBatch) else rows.to_batches()
    if not batches:
        return pa.RecordBatch.from_pylist([], schema)
    return pa.concat_batches([plain_batch(batch, schema) for batch in batches])


def _code_begins(codes: Codes) -> Int64s:
    """Return the rows at which a new code begins."""
    if len(codes) == 0:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))


def _page_begins(codes: Codes, page_rows: int) -> Int64s:
    """Return the first row of each page, and the number of rows."""
    begins = []
    row = 0
    while row < len(codes):
        begins.append(row)
        end = min(row + page_rows, len(codes))
        if end < len(codes):
            # Back to where the code begins that would be cut, or on to its end when it fills the page.
            boundary = int(np.searchsorted(codes, codes[end]))
            end = boundary if boundary > row else int(np.searchsorted(codes, codes[end], side="right"))
        row = end
    return np.array([*begins, len(codes)], np.int64)
