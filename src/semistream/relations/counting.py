"""A relation that counts how it is read, one set of counts for each access path.

Rows and bytes are those that were returned, pages those the store says it touched to return them. A hash partition
counts what was read from it alone; the whole counts everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from semistream.relations.base import Codes, Relation
from semistream.relations.wrapping import WrappedRelation


@dataclass(slots=True)
class ReadCounts:
    """What was asked for over one access path, and what came back."""

    calls: int = 0
    keys: int = 0
    """Keys asked for; 0 for a scan."""
    pages: int = 0
    """Pages touched; 0 for a store that does not count them."""
    rows: int = 0
    bytes: int = 0
    """Arrow bytes of the rows returned."""

    def add(self, other: ReadCounts) -> None:
        """Add the counts of another."""
        self.calls += other.calls
        self.keys += other.keys
        self.pages += other.pages
        self.rows += other.rows
        self.bytes += other.bytes


class CountingRelation(WrappedRelation):
    """Counts what passes through: `by_page`, `by_scan` and `by_keys`, and `counts` over all of them."""

    def __init__(self, inner: Relation) -> None:
        super().__init__(inner)
        self._by_page = ReadCounts()
        self._by_scan = ReadCounts()
        self._by_keys = ReadCounts()

    @property
    def by_page(self) -> ReadCounts:
        """What was read by the page of a key."""
        return _sum_of([self._by_page, *(part.by_page for part in self.partitions)])

    @property
    def by_scan(self) -> ReadCounts:
        """What was read by segments."""
        return _sum_of([self._by_scan, *(part.by_scan for part in self.partitions)])

    @property
    def by_keys(self) -> ReadCounts:
        """What was read by batches of keys."""
        return _sum_of([self._by_keys, *(part.by_keys for part in self.partitions)])

    @property
    def counts(self) -> ReadCounts:
        """The sum over all access paths."""
        return _sum_of([self.by_page, self.by_scan, self.by_keys])

    def _read_page(self, code: int) -> pa.RecordBatch:
        page = super()._read_page(code)
        self._by_page.add(ReadCounts(calls=1, keys=1, pages=1, rows=len(page), bytes=page.nbytes))
        return page

    def _read_segment(self, number: int) -> pa.RecordBatch:
        page = super()._read_segment(number)
        self._by_scan.add(ReadCounts(calls=1, pages=1, rows=len(page), bytes=page.nbytes))
        return page

    def _read_rows(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        self._by_keys.add(ReadCounts(calls=1, keys=len(codes)))
        before = self.page_reads or 0
        for batch in super()._read_rows(codes, bytes_max):
            self._by_keys.add(ReadCounts(rows=len(batch), bytes=batch.nbytes))
            # The store may be read by others while this batch is used: count page by page, not from the beginning.
            self._by_keys.pages += (self.page_reads or 0) - before
            yield batch
            before = self.page_reads or 0
        self._by_keys.pages += (self.page_reads or 0) - before


def _sum_of(counts: Iterable[ReadCounts]) -> ReadCounts:
    total = ReadCounts()
    for part in counts:
        total.add(part)
    return total
