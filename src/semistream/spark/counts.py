"""Counts on their way from a worker through Spark to `progress.observedMetrics`.

A worker has no channel of its own to the driver that also works on Spark Connect. So its counts ride along as one
hidden column, a list of integers that is null on every row but the first of each answer. Spark gathers the lists in
`observe` and adds them up, counts the rows in and out by itself, and the column is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column

ROWS_IN, BYTES_HELD, CARRIES_ROW = range(3)
"""Positions in the list; five counts for each lookup follow."""

_HEAD = 3

_COUNTS = pa.list_(pa.int64())


class LookupCounts(NamedTuple):
    """What one lookup counted."""

    matched: int
    unmatched: int
    null_keys: int
    hits: int
    reads: int


LOOKUP_COUNTS = LookupCounts._fields


@dataclass(frozen=True, slots=True)
class BatchCounts:
    """What a worker counted while it answered one Arrow batch."""

    rows_in: int
    bytes_held: int
    """At most, by all workers of the executor."""
    carries_row: bool
    """False for a row that exists only to carry counts."""
    lookups: list[LookupCounts]

    def as_list(self) -> list[int]:
        """The counts in the order of the positions above."""
        numbers = [self.rows_in, self.bytes_held, int(self.carries_row)]
        for lookup in self.lookups:
            numbers += lookup
        return numbers


def position_of(name: str, lookup: int = 0) -> int:
    """Where one of `LOOKUP_COUNTS` stands in the list."""
    return _HEAD + lookup * len(LOOKUP_COUNTS) + LOOKUP_COUNTS.index(name)


def counts_column(counts: list[int], length: int) -> pa.Array:
    """A list column that holds the counts in its first row and null in all others."""
    if length == 0:
        return pa.array([], _COUNTS)
    in_first_row = _in_first_row(length, len(counts))
    return pa.Array.from_buffers(_COUNTS, length, in_first_row, children=[pa.array(counts, pa.int64())])


@lru_cache(maxsize=2)
def _in_first_row(length: int, values: int) -> list[pa.Buffer]:
    """Validity and offsets of a list column with so many values in its first row: most batches have one length."""
    validity = np.zeros((length + 7) // 8, np.uint8)
    validity[0] = 1
    offsets = np.full(length + 1, values, np.int32)
    offsets[0] = 0
    return [pa.py_buffer(validity), pa.py_buffer(offsets)]


def observed(counts: Column, lookup_names: list[str], kept: Column) -> list[Column]:
    """The aggregates that turn a column of counts into metrics; `kept` says which rows are put out.

    Spark updates each aggregate with each row, whether it carries counts or not, and a sum for each count took a fifth
    of the time that rows spend in the JVM. So there is one, which gathers the lists; they are added up at the end.
    """
    from pyspark.sql import functions as F

    positions = range(_HEAD + len(lookup_names) * len(LOOKUP_COUNTS))

    def added(total: Column, one: Column) -> Column:
        return F.array(*(F.greatest(total[i], one[i]) if i == BYTES_HELD else total[i] + one[i] for i in positions))

    nothing = F.array(*(F.lit(0).cast("long") for _ in positions))
    named = F.aggregate(F.collect_list(counts), nothing, added, lambda total: _by_name(total, lookup_names))
    return [named.alias("counts"), F.count(F.when(kept, 1)).alias("rows_out")]


def _by_name(total: Column, lookup_names: list[str]) -> Column:
    """Counts by their names, all lookups together and, where there are several, those of each."""
    from pyspark.sql import functions as F

    def of_lookups(name: str) -> Column:
        columns = [total[position_of(name, i)] for i in range(len(lookup_names))]
        return sum(columns[1:], start=columns[0]).alias(name)

    fields = [total[ROWS_IN].alias("rows_in"), *map(of_lookups, LOOKUP_COUNTS), total[BYTES_HELD].alias("bytes_held")]
    if len(lookup_names) > 1:
        own = (
            F.struct(*(total[position_of(name, i)].alias(name) for name in LOOKUP_COUNTS)).alias(relation)
            for i, relation in enumerate(lookup_names)
        )
        fields.append(F.struct(*own).alias("relations"))
    return F.struct(*fields)
