"""R in N parts by a hash of the key, each part a relation of its own.

PCSRJ joins every part by itself, side by side. Everybody else reads the whole as if it were one relation: a key is
looked for in its part, a scan goes through one part after the other, and the rows of many keys are merged. The parts
may be relations of any kind (`PartitionedRelation`) or ranges of pages of one file (`arrow_file.reader`);
`partitions_of` finds them behind wrappers, too.

The hash that chooses the part is not the one that places codes in hash tables (`semistream.structures.hash_multimap`):
with the same hash, the codes of one part would crowd into a fraction of a table's slots.

Two things are different from a relation in one piece. Segments ascend by code within a part only, and a page does not
hold *all* keys of R between its first and its last: what is absent from a page is absent from R only if the page is
the key's own. `page_numbers` tells.

Memory of `PartitionedRelation.rows_for`: one batch of each part and what is merged from them, together within
`bytes_max` unless single rows are larger. So its batches become small, and merging them slow, where parts are very
many; the parts of a file are not merged but read as one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.relations.base import ChangeFeed, Codes, CyclicScan, KeyBatch, PageByKey, RelationInfo
from semistream.relations.memory import PAGE_ROWS, MemoryRelation
from semistream.structures.hashing import mix_column


class Partition(PageByKey, CyclicScan, KeyBatch, ChangeFeed, Protocol):
    """What a part must offer: all four ways."""


def partition_of(codes: Codes, partition_count: int) -> Codes:
    """Return for each code the number of its part.

    Example:
        >>> partition_of(np.array([1, 2, 3, 4]), 2).tolist()
        [0, 1, 0, 1]
    """
    hashed = np.zeros(len(codes), np.int64)
    mix_column(hashed, np.ascontiguousarray(codes))
    # The upper half of the hash, scaled to the number of parts; a remainder would look at the low bits only.
    upper = hashed.view(np.uint64) >> np.uint64(32)
    return ((upper * np.uint64(partition_count)) >> np.uint64(32)).astype(np.int64)


def partitions_of(relation: Any) -> tuple[Any, ...]:
    """The parts of a relation, which can be read as it can; itself if it has none."""
    return getattr(relation, "partitions", ()) or (relation,)


def places_by_partition(codes: Codes, partition_count: int) -> dict[int, Codes]:
    """Where the codes of each part stand, in their order; parts without any are left out."""
    numbers = partition_of(codes, partition_count)
    places = np.argsort(numbers, kind="stable")
    begins = np.searchsorted(numbers[places], np.arange(partition_count + 1))
    return {number: places[begin:end] for number, (begin, end) in enumerate(pairwise(begins.tolist())) if begin < end}


class PartitionedRelation:
    """A relation made of relations, one for each part.

    Args:
        partitions: The parts in order; part i holds exactly the rows whose code `partition_of` gives i.
    """

    def __init__(self, partitions: Sequence[Partition]) -> None:
        assert partitions, "a relation of no parts"
        self.partitions = tuple(partitions)
        self.schema = self.partitions[0].schema
        assert all(part.schema == self.schema for part in self.partitions), "the parts have different columns"
        self.info = _info_of_all([part.info for part in self.partitions])
        self._first_segments = [0, *accumulate(part.segment_count for part in self.partitions)]

    @property
    def page_reads(self) -> int | None:
        """Pages that the parts have touched; None when one of them does not count."""
        reads = [getattr(part, "page_reads", None) for part in self.partitions]
        return None if None in reads else sum(read for read in reads if read is not None)

    # PageByKey and CyclicScan

    def page_for(self, code: int) -> pa.RecordBatch:
        """Return the page on which rows of `code` stand, or would stand."""
        if self.segment_count == 0:
            return self.partitions[0].page_for(code)
        return self.segment(int(self.page_numbers(np.array([code]))[0]))

    def page_numbers(self, codes: Codes) -> Codes:
        """Return for each code the number of the page on which its rows stand, or would stand."""
        numbers = np.zeros(len(codes), np.int64)
        for number, places in places_by_partition(codes, len(self.partitions)).items():
            part = self.partitions[number]
            # In an empty part nothing can stand: any page shows that a key of it is absent.
            if part.segment_count:
                numbers[places] = self._first_segments[number] + part.page_numbers(codes[places])
        return numbers

    @property
    def segment_count(self) -> int:
        """Number of pages in all parts."""
        return self._first_segments[-1]

    def segment(self, number: int) -> pa.RecordBatch:
        """Return segment `number`, counted from 0 through one part after the other."""
        assert 0 <= number < self.segment_count, "a segment that does not exist"
        part = int(np.searchsorted(self._first_segments, number, side="right")) - 1
        return self.partitions[part].segment(number - self._first_segments[part])

    # KeyBatch

    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows whose code is among `codes`, ascending by code; see `KeyBatch`."""
        # What is read and what is merged exist at once.
        part_bytes = max(1, bytes_max // (2 * len(self.partitions)))
        readers = [
            _Reader(self.partitions[number].rows_for(codes[places], part_bytes), self.schema)
            for number, places in places_by_partition(codes, len(self.partitions)).items()
        ]
        while readers := [reader for reader in readers if len(reader.rows)]:
            # Up to the first end of a batch everything is here.
            end_code = min(reader.last_code for reader in readers)
            yield from _merged([reader.take_until(end_code) for reader in readers], bytes_max)

    # ChangeFeed

    def changed_since(self, version: int) -> Codes | None:
        """Return the codes that changed in any part; None when one of them does not know."""
        changed = [part.changed_since(version) for part in self.partitions]
        known = [codes for codes in changed if codes is not None]
        return np.sort(np.concatenate(known)) if len(known) == len(changed) else None


def split_in_memory(
    relation: CyclicScan,
    partition_count: int,
    *,
    page_rows: int = PAGE_ROWS,
    columns: Sequence[str] | None = None,
) -> PartitionedRelation:
    """The rows of a relation in parts that lie in memory: for tests and the laboratory, not bounded."""
    empty = pa.RecordBatch.from_pylist([], relation.schema)
    segments = [relation.segment(number) for number in range(relation.segment_count)]
    rows = pa.concat_batches([empty, *segments])
    parts = partition_of(rows.column(0).to_numpy(), partition_count)
    info = relation.info
    return PartitionedRelation(
        [
            MemoryRelation(
                rows.take(pa.array(np.flatnonzero(parts == number))),
                info.key,
                name=info.name,
                version=info.version,
                page_rows=page_rows,
                columns=columns,
                unique=info.unique,
            )
            for number in range(partition_count)
        ]
    )


class _Reader:
    """The rows of one part, batch by batch."""

    def __init__(self, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
        self._batches = batches
        self._end = pa.RecordBatch.from_pylist([], schema)
        self.rows = next(batches, self._end)
        """What was read and not taken; empty at the end."""

    @property
    def last_code(self) -> int:
        """The last code that was read."""
        return int(self.rows.column(0)[-1].as_py())

    def take_until(self, end_code: int) -> pa.RecordBatch:
        """Take the rows with codes up to and including `end_code`; read on when none is left."""
        end = int(np.searchsorted(self.rows.column(0).to_numpy(), end_code, side="right"))
        taken, self.rows = self.rows.slice(0, end), self.rows.slice(end)
        if not len(self.rows):
            self.rows = next(self._batches, self._end)
        return taken


def _merged(ready: Sequence[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The rows of several batches by code, in one batch if that is not too large."""
    pool = pa.system_memory_pool()
    rows = pa.concat_batches(ready, memory_pool=pool)
    order = np.argsort(rows.column(0).to_numpy(), kind="stable")
    parts = -(-rows.nbytes // bytes_max)
    for begin, end in pairwise(np.linspace(0, len(rows), min(parts, len(rows)) + 1).astype(np.int64)):
        yield pc.take(rows, pa.array(order[begin:end]), memory_pool=pool)


def _info_of_all(infos: Sequence[RelationInfo]) -> RelationInfo:
    row_count = sum(info.row_count for info in infos)
    total_bytes = sum(info.row_count * info.row_bytes_mean for info in infos)
    return replace(
        infos[0],
        row_count=row_count,
        unique=all(info.unique for info in infos),
        rows_per_code_max=max(info.rows_per_code_max for info in infos),
        row_bytes_mean=total_bytes / row_count if row_count else 0.0,
        row_bytes_max=max(info.row_bytes_max for info in infos),
        page_count=sum(info.page_count for info in infos),
        page_bytes_max=max(info.page_bytes_max for info in infos),
        partition_count=len(infos),
    )
