"""R without its data: keys in pages, rows of a stated size, and nothing in them.

An experiment on a virtual clock counts reads, pairs and waiting rows. What stands in a row does not matter to it, only
how long the row is. So rows are made when they are read: the codes are real, the payload is the same bytes for all of
them. A relation of a hundred million rows then takes the memory of its distinct codes, 8 bytes each, and an experiment
at the papers' size fits into a usual machine.

It is cut into pages as a file would be, all rows of a key on one page.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from semistream.relations.base import CODE_COLUMN, Codes, RelationInfo

CODE_BYTES, OFFSET_BYTES = 8, 4

BATCH_ROWS_MAX = 1 << 16
"""The most rows that are made at once."""


class BareRelation:
    """A relation of these distinct, ascending codes.

    Args:
        codes: The keys.
        page_rows: Rows of a page; more only where one key has more.
        row_bytes: Bytes of a row as it is read, with its code.
        rows_per_key: Rows of each key.

    Example:
        >>> relation = BareRelation(np.arange(100), page_rows=10, row_bytes=120)
        >>> relation.info.page_count, relation.page_for(42).column(0)[0].as_py()
        (10, 40)
    """

    def __init__(self, codes: Codes, *, page_rows: int, row_bytes: int, rows_per_key: int = 1) -> None:
        assert row_bytes > CODE_BYTES + OFFSET_BYTES, "a row has a code, an offset and something behind it"
        self._codes = codes
        self._rows_per_key = rows_per_key
        self._keys_per_page = max(1, page_rows // rows_per_key)
        self._fill = _payload(
            max(self._keys_per_page * rows_per_key, BATCH_ROWS_MAX), row_bytes - CODE_BYTES - OFFSET_BYTES
        )
        payload = pa.field("payload", pa.binary())
        self.schema = pa.schema([pa.field(CODE_COLUMN, pa.int64(), nullable=False), payload])
        self.page_reads = 0
        """Pages touched so far."""
        self.info = RelationInfo(
            name="bare",
            key=("key",),
            schema=pa.schema([pa.field("key", pa.int64()), payload]),
            version=1,
            row_count=len(codes) * rows_per_key,
            unique=rows_per_key == 1,
            rows_per_code_max=rows_per_key,
            row_bytes_mean=float(row_bytes),
            row_bytes_max=row_bytes,
            page_count=-(-len(codes) // self._keys_per_page),
            page_bytes_max=self._keys_per_page * rows_per_key * row_bytes + OFFSET_BYTES,
        )

    @property
    def segment_count(self) -> int:
        """Number of pages."""
        return self.info.page_count

    def segment(self, number: int) -> pa.RecordBatch:
        """Make the rows of a page."""
        self.page_reads += 1
        return self._rows_of(self._codes[number * self._keys_per_page : (number + 1) * self._keys_per_page])

    def page_for(self, code: int) -> pa.RecordBatch:
        """Make the rows of the page on which `code` stands, or would stand."""
        return self.segment(int(self.page_numbers(np.array([code]))[0]))

    def page_numbers(self, codes: Codes) -> Codes:
        """Return for each code the number of the page on which its rows stand, or would stand."""
        places: Codes = np.searchsorted(self._codes, codes, side="right") - 1
        return np.maximum(places, 0) // self._keys_per_page

    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows whose code is among `codes`, ascending by code; see `KeyBatch`."""
        self.page_reads += len(np.unique(self.page_numbers(codes)))
        places = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        found = np.repeat(codes[self._codes[places] == codes], self._rows_per_key)
        rows = int(max(1, min(BATCH_ROWS_MAX, bytes_max // self.info.row_bytes_max)))
        for begin in range(0, len(found), rows):
            yield self._with_payload(found[begin : begin + rows])

    def changed_since(self, version: int) -> Codes | None:
        """Nothing ever changes."""
        return np.zeros(0, np.int64)

    def _rows_of(self, codes: Codes) -> pa.RecordBatch:
        return self._with_payload(codes if self._rows_per_key == 1 else np.repeat(codes, self._rows_per_key))

    def _with_payload(self, codes: Codes) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(codes), self._fill.slice(0, len(codes))], schema=self.schema)


def _payload(rows: int, value_bytes: int) -> pa.BinaryArray:
    offsets = np.arange(rows + 1, dtype=np.int32) * value_bytes
    return pa.Array.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(bytes(rows * value_bytes))]
    )
