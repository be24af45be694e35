"""Sorting rows by hash partition and, within a partition, by code, with memory for some of them.

A pair of numbers cannot be sorted as one, so it is done in two steps. Rows are first put aside by partition: they are
collected and, whenever memory is full, written to one scratch file, those of each partition together, with a note where
they stand. Then each partition is read back and sorted by itself (`external_sort`). A partition that fits into memory
is sorted without touching the disk again, so partitions that are many and small cost no more than one large sort.

One partition is an ordinary sort. The order in which rows of one code came is kept.

Memory: as for a sort, `memory_bytes`. While rows are put aside a third of it is collected; putting them in order takes
as much again, and 16 bytes a row. The notes take some hundred bytes for each partition and filling of the memory.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from semistream.budget import GIB, KIB
from semistream.relations.base import CODE_COLUMN
from semistream.relations.building.external_sort import ExternalSort, split_to_bytes
from semistream.relations.partitioned import places_by_partition

_PIECES_PER_FILLING = 128
_PIECE_BYTES_MIN = 4 * KIB
"""Below this the Arrow message around a piece weighs as much as its rows."""


class PartitionedSort:
    """Sorts any number of rows: `add` batches, then read `sorted_partitions` once.

    What does not fit into memory goes to `scratch_dir`, which belongs to whoever made it.

    Example:
        >>> schema = pa.schema([(CODE_COLUMN, pa.int64())])
        >>> sort = PartitionedSort(schema, Path("unused: all fits"), partition_count=2, memory_bytes=1_000_000)
        >>> sort.add(pa.record_batch([pa.array([4, 3, 2, 1])], schema=schema))
        >>> [[batch.column(0).to_pylist() for batch in batches] for batches in sort.sorted_partitions()]
        [[[1, 3]], [[2, 4]]]
    """

    def __init__(self, schema: pa.Schema, scratch_dir: Path, *, partition_count: int, memory_bytes: int) -> None:
        assert schema.names[:1] == [CODE_COLUMN], "the first column must hold the codes"
        self._schema = schema
        self._scratch_dir = scratch_dir
        self._partition_count = partition_count
        self._memory_bytes = memory_bytes
        # A filling is joined into one array a column, and 32-bit string offsets end at 2 GiB.
        self._collected_bytes_max = min(memory_bytes // 3, GIB)
        self._only = self._new_sort() if partition_count == 1 else None
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0
        self._scratch: pa.NativeFile | None = None
        self._places: list[list[tuple[int, int]]] = [[] for _ in range(partition_count)]
        """For each partition, where its pieces begin in the scratch file, and how long they are."""
        self.row_count = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in any order."""
        self.row_count += batch.num_rows
        if self._only is not None:
            self._only.add(batch)
            return
        for part in split_to_bytes(batch, max(1, self._collected_bytes_max // 4)):
            if self._collected and self._collected_bytes + part.nbytes > self._collected_bytes_max:
                self._put_aside()
            self._collected.append(part)
            self._collected_bytes += part.nbytes

    def sorted_partitions(self) -> Iterator[Generator[pa.RecordBatch, None, None]]:
        """Yield the sorted batches of each partition in turn; read one to its end, or close it, before the next."""
        if self._only is not None:
            yield self._only.sorted_batches()
            return
        in_memory: dict[int, pa.RecordBatch] = {}
        if self._scratch is None:
            in_memory = self._take_collected()
        else:
            self._put_aside()
            self._scratch.close()
        for number in range(self._partition_count):
            sort = self._new_sort()
            for piece in self._pieces(number):
                sort.add(piece)
            if number in in_memory:
                sort.add(in_memory.pop(number))
            yield sort.sorted_batches()

    def _new_sort(self) -> ExternalSort:
        return ExternalSort(self._schema, self._scratch_dir, memory_bytes=self._memory_bytes)

    def _take_collected(self) -> dict[int, pa.RecordBatch]:
        """The collected rows by partition."""
        if not self._collected:
            return {}
        whole = pa.concat_batches(self._collected)
        self._collected, self._collected_bytes = [], 0
        places = places_by_partition(whole.column(0).to_numpy(), self._partition_count)
        return {number: whole.take(pa.array(own)) for number, own in places.items()}

    def _put_aside(self) -> None:
        """Write the collected rows to the scratch file."""
        if self._scratch is None:
            self._scratch = pa.OSFile(str(self._scratch_path), "wb")
        piece_bytes = max(_PIECE_BYTES_MIN, self._collected_bytes_max // _PIECES_PER_FILLING)
        for number, rows in self._take_collected().items():
            for piece in split_to_bytes(rows, piece_bytes):
                message = piece.serialize()
                self._places[number].append((self._scratch.tell(), message.size))
                self._scratch.write(message)
        # Arrow's allocator keeps what was freed; the next filling has other sizes and the process would only grow.
        pa.default_memory_pool().release_unused()

    def _pieces(self, number: int) -> Iterator[pa.RecordBatch]:
        """What was put aside of a partition."""
        if not self._places[number]:
            return
        with closing(pa.OSFile(str(self._scratch_path), "rb")) as scratch:
            for offset, length in self._places[number]:
                yield pa.ipc.read_record_batch(scratch.read_at(length, offset), self._schema)

    @property
    def _scratch_path(self) -> Path:
        return self._scratch_dir / "by-partition.arrow"
