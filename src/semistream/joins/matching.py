"""From codes to pairs.

A relation answers in batches sorted by code, and stream rows ask for codes, each perhaps many times. Two steps bring
them together: `ranges_of` finds where the rows of each distinct code stand, and `PairCursor` pairs them with the
stream rows, a bounded number at a time, because one hot key with many relation rows yields more pairs than any budget
can hold at once.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow as pa

from semistream.joins.base import Joined, Numbers, StreamRows
from semistream.structures.columns import Layout, layout_of
from semistream.structures.compiled import I64, READ_I64, WRITE_I64, Array, kernel
from semistream.structures.packed_rows import RowSource
from semistream.structures.row_arena import fixed_bytes_per_row

PAIR_BYTES = 64
"""Two int64 row numbers, and what the driver makes of a pair: position, place, size, sum of sizes, string lengths."""

_READ_ROW_BYTES, _READ_STRING_BYTES = 56, 16
"""What a relation takes in passing for a row that it reads, and for each string in it."""


@kernel(I64(READ_I64, READ_I64, READ_I64, I64, I64, WRITE_I64, WRITE_I64))
def _write_pairs(
    numbers: Array, first: Array, count: Array, row: int, skip: int, out_stream: Array, out_relation: Array
) -> int:
    written = 0
    while row < numbers.size and written < out_stream.size:
        take = min(count[row] - skip, out_stream.size - written)
        for i in range(take):
            out_stream[written + i] = numbers[row]
            out_relation[written + i] = first[row] + skip + i
        written += take
        skip = 0
        row += 1
    return written


@kernel(I64(READ_I64, READ_I64, WRITE_I64, WRITE_I64, WRITE_I64, WRITE_I64, WRITE_I64))
def _part(
    numbers: Array,
    codes: Array,
    first: Array,
    count: Array,
    found_numbers: Array,
    missed_numbers: Array,
    missed_codes: Array,
) -> int:
    found = missed = 0
    for i in range(numbers.size):
        if count[i] > 0:
            found_numbers[found] = numbers[i]
            first[found] = first[i]
            count[found] = count[i]
            found += 1
        else:
            missed_numbers[missed] = numbers[i]
            missed_codes[missed] = codes[i]
            missed += 1
    return found


def parted(rows: StreamRows, first: Numbers, count: Numbers) -> tuple[Numbers, Numbers, Numbers, StreamRows]:
    """Part rows for which something was found, given how many, from the others.

    Returns the numbers, first rows and counts of the former, and the latter. What is given is overwritten.
    """
    found_numbers, missed_numbers, missed_codes = (np.empty(len(rows), np.int64) for _ in range(3))
    found = _part(rows.numbers, rows.codes, first, count, found_numbers, missed_numbers, missed_codes)
    missed = len(rows) - found
    return (
        found_numbers[:found],
        first[:found],
        count[:found],
        StreamRows(missed_numbers[:missed], missed_codes[:missed]),
    )


def codes_of(batch: pa.RecordBatch) -> Numbers:
    """The codes of a batch that a relation returned: its first column, as a view."""
    codes: Numbers = batch.column(0).to_numpy(zero_copy_only=True)
    return codes


def ranges_of(codes: Numbers, batch_codes: Numbers) -> tuple[Numbers, Numbers]:
    """Return, for each code, the first row with it in an ascending batch and how many rows have it."""
    if np.array_equal(codes, batch_codes) and bool((codes[1:] != codes[:-1]).all()):
        # Each was asked for once and found once: what mostly happens.
        return np.arange(len(codes), dtype=np.int64), np.ones(len(codes), np.int64)
    first = np.searchsorted(batch_codes, codes, side="left")
    count = np.searchsorted(batch_codes, codes, side="right") - first
    return first, count


def read_scratch_bytes(schema: pa.Schema) -> int:
    """What reading takes for each row of this schema besides the batch that is returned."""
    strings = sum(layout_of(field.type) is Layout.VARIABLE for field in schema)
    return _READ_ROW_BYTES + strings * _READ_STRING_BYTES


def batch_bytes_within(bytes_max: int, schema: pa.Schema, rows_max: int) -> int:
    """The largest batch to ask a relation for, so that it and the scratch of reading it stay within `bytes_max`.

    Rows of a batch are not more than `rows_max`, nor than fit into it if all of their strings are empty.
    """
    scratch_bytes, least_row_bytes = read_scratch_bytes(schema), fixed_bytes_per_row(schema)
    with_smallest_rows = int(bytes_max * least_row_bytes / (least_row_bytes + scratch_bytes))
    return max(with_smallest_rows, bytes_max - rows_max * scratch_bytes)


class PairCursor:
    """Pairs of stream rows with ranges of relation rows, handed out piece by piece."""

    def __init__(self, relation: RowSource, numbers: Numbers, first: Numbers, count: Numbers) -> None:
        matched = count > 0
        if not matched.all():
            numbers, first, count = numbers[matched], first[matched], count[matched]
        self._relation = relation
        self._numbers = numbers
        self._first = first
        self._count = count
        self._total = int(count.sum())
        self._done = 0

    @property
    def left(self) -> int:
        """Pairs not handed out yet."""
        return self._total - self._done

    @cached_property
    def _ends(self) -> Numbers:
        """Pairs of all stream rows up to each."""
        return np.cumsum(self._count)

    def next(self, pairs_max: int) -> Joined:
        """Hand out the next pairs, at most `pairs_max`."""
        if self._done == 0 and self.left == len(self._numbers) <= pairs_max:
            self._done = len(self._numbers)  # One partner each: the ranges are the pairs.
            return Joined(self._numbers, self._relation, self._first)
        length = min(self.left, pairs_max)
        stream, relation = np.empty(length, np.int64), np.empty(length, np.int64)
        row = int(np.searchsorted(self._ends, self._done, side="right"))
        skip = self._done - int(self._ends[row] - self._count[row]) if length else 0
        written = _write_pairs(self._numbers, self._first, self._count, row, skip, stream, relation)
        assert written == length, "the pair kernel stopped early"
        self._done += length
        return Joined(stream, self._relation, relation)


def take_pairs(cursors: list[PairCursor], pairs_max: int) -> list[Joined]:
    """Take the next pairs from the first of these cursors on, at most `pairs_max`; those that are done are removed."""
    taken: list[Joined] = []
    while cursors and pairs_max > 0:
        taken.append(cursors[0].next(pairs_max))
        pairs_max -= len(taken[-1])
        if cursors[0].left == 0:
            cursors.pop(0)
    return taken
