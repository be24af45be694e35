"""R without its data: keys in pages, rows of a stated size, and nothing in them.

An experiment on a virtual clock counts reads, pairs and waiting rows. What stands in a row does not matter to it, only
how long the row is. So rows are made when they are read: the codes are real, the payload is the same bytes for all of
them. A relation of a hundred million rows then takes the memory of its distinct codes, 8 bytes each, and an experiment
at the papers' size fits into a usual machine.

It is cut into pages as a file would be, all rows of a key on one page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from semistream.relations.base import CODE_COLUMN, Codes, RelationInfo

CODE_BYTES = 8

PAYLOAD_TYPES = (pa.decimal128(38), pa.int64(), pa.int32(), pa.int16(), pa.int8())
"""Of 16, 8, 4, 2 and 1 bytes: enough for any length of a row."""

BATCH_ROWS_MAX = 1 << 16
"""The most rows that are made at once."""


class BareRelation:
    """A relation of these distinct, ascending codes.

    Args:
        codes: The keys.
        page_rows: Rows of a page; more only where one key has more.
        row_bytes: Bytes of a row as it is read, with its code.
        rows_per_key: Rows of each key; one number for all, or one for each.

    Example:
        >>> relation = BareRelation(np.arange(100), page_rows=10, row_bytes=120)
        >>> relation.info.page_count, relation.page_for(42).column(0)[0].as_py()
        (10, 40)
    """

    def __init__(self, codes: Codes, *, page_rows: int, row_bytes: int, rows_per_key: int | Codes = 1) -> None:
        assert row_bytes > CODE_BYTES, "a row has a code and something behind it"
        self._codes = codes
        self._rows_per_key = rows_per_key
        self._pages = _pages_of(len(codes), rows_per_key, page_rows)
        page_rows_max = self._pages.rows_max
        self._fill = _payload(max(page_rows_max, BATCH_ROWS_MAX), row_bytes - CODE_BYTES)
        self._cut, self._cut_rows = self._fill, len(self._fill[0])
        payload = [pa.field(f"payload_{number}", column.type) for number, column in enumerate(self._fill)]
        rows_per_key_max = int(np.max(rows_per_key))
        self.schema = pa.schema([pa.field(CODE_COLUMN, pa.int64(), nullable=False), *payload])
        self.page_reads = 0
        """Pages touched so far."""
        self.info = RelationInfo(
            name="bare",
            key=("key",),
            schema=pa.schema([pa.field("key", pa.int64()), *payload]),
            version=1,
            row_count=self._pages.row_count,
            unique=rows_per_key_max == 1,
            rows_per_code_max=rows_per_key_max,
            row_bytes_mean=float(row_bytes),
            row_bytes_max=row_bytes,
            page_count=self._pages.count,
            page_bytes_max=page_rows_max * row_bytes,
        )

    @property
    def segment_count(self) -> int:
        """Number of pages."""
        return self.info.page_count

    def segment(self, number: int) -> pa.RecordBatch:
        """Make the rows of a page."""
        self.page_reads += 1
        begin, end = self._pages.keys_of(number)
        return self._with_payload(self._repeated(self._codes[begin:end], slice(begin, end)))

    def page_for(self, code: int) -> pa.RecordBatch:
        """Make the rows of the page on which `code` stands, or would stand."""
        place = int(self._codes.searchsorted(code, side="right")) - 1
        return self.segment(self._pages.number_of(max(place, 0)))

    def page_numbers(self, codes: Codes) -> Codes:
        """Return for each code the number of the page on which its rows stand, or would stand."""
        places: Codes = np.searchsorted(self._codes, codes, side="right") - 1
        return self._pages.numbers_of(np.maximum(places, 0))

    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows whose code is among `codes`, ascending by code; see `KeyBatch`."""
        self.page_reads += len(np.unique(self.page_numbers(codes)))
        places = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
        is_here = self._codes[places] == codes
        found = self._repeated(codes[is_here], places[is_here])
        rows = int(max(1, min(BATCH_ROWS_MAX, bytes_max // self.info.row_bytes_max)))
        for begin in range(0, len(found), rows):
            yield self._with_payload(found[begin : begin + rows])

    def changed_since(self, version: int) -> Codes | None:
        """Nothing ever changes."""
        return np.zeros(0, np.int64)

    def _repeated(self, codes: Codes, places: Codes | slice) -> Codes:
        """Each code as often as it has rows; `places` says where the codes stand among all."""
        if isinstance(self._rows_per_key, int):
            return codes if self._rows_per_key == 1 else np.repeat(codes, self._rows_per_key)
        return np.repeat(codes, self._rows_per_key[places])

    def _with_payload(self, codes: Codes) -> pa.RecordBatch:
        if len(codes) != self._cut_rows:
            # Nearly all pages have one length, so the payload is seldom cut anew.
            self._cut = [column.slice(0, len(codes)) for column in self._fill]
            self._cut_rows = len(codes)
        return pa.RecordBatch.from_arrays([pa.array(codes), *self._cut], schema=self.schema)


@dataclass(frozen=True)
class _EvenPages:
    """Pages of equally many keys; nothing is tabulated."""

    keys: int
    keys_per_page: int
    rows_per_key: int

    @property
    def count(self) -> int:
        return -(-self.keys // self.keys_per_page)

    @property
    def row_count(self) -> int:
        return self.keys * self.rows_per_key

    @property
    def rows_max(self) -> int:
        return self.keys_per_page * self.rows_per_key

    def keys_of(self, number: int) -> tuple[int, int]:
        return number * self.keys_per_page, (number + 1) * self.keys_per_page

    def number_of(self, place: int) -> int:
        return place // self.keys_per_page

    def numbers_of(self, places: Codes) -> Codes:
        return places // self.keys_per_page


@dataclass(frozen=True)
class _FilledPages:
    """Pages of as many whole keys as have room, one at least."""

    row_count: int
    rows_max: int
    first_keys: Codes
    """The place of the first key of every page, and the number of keys."""

    @property
    def count(self) -> int:
        return len(self.first_keys) - 1

    def keys_of(self, number: int) -> tuple[int, int]:
        return int(self.first_keys[number]), int(self.first_keys[number + 1])

    def number_of(self, place: int) -> int:
        return int(self.first_keys.searchsorted(place, side="right")) - 1

    def numbers_of(self, places: Codes) -> Codes:
        return np.searchsorted(self.first_keys, places, side="right") - 1


def _pages_of(keys: int, rows_per_key: int | Codes, page_rows: int) -> _EvenPages | _FilledPages:
    if isinstance(rows_per_key, int):
        return _EvenPages(keys, max(1, page_rows // rows_per_key), rows_per_key)
    ends = np.cumsum(rows_per_key)
    first_keys, filled = [0], 0
    while first_keys[-1] < keys:
        next_key = max(first_keys[-1] + 1, int(np.searchsorted(ends, filled + page_rows, side="right")))
        filled = int(ends[next_key - 1])
        first_keys.append(next_key)
    edges = np.array(first_keys)
    rows = np.diff(np.concatenate([[0], ends])[edges])
    return _FilledPages(int(ends[-1]), int(rows.max()), edges)


def _payload(rows: int, row_bytes: int) -> list[pa.Array]:
    """Columns that add up to a row's bytes.

    They are of fixed length: where rows may be short, every page would be given room to look up as many of the shortest
    as it could hold, and little memory would be left for rows that wait.
    """
    columns = []
    for data_type in PAYLOAD_TYPES:
        width = data_type.bit_width // 8
        count, row_bytes = divmod(row_bytes, width)
        filled = pa.Array.from_buffers(data_type, rows, [None, pa.py_buffer(bytes(rows * width))])
        columns += [filled] * count
    return columns
