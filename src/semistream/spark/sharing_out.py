"""To which task a row goes where rows are shuffled before they are looked up; runs inside Spark's Python workers.

Either the hash partition of its key decides, for an algorithm that joins partition by partition, or the key itself,
so that a key is read by one task only.

What is decided must not change when Spark repeats a task: it may repeat some of the tasks behind a shuffle and not
others, and a row that went another way the second time would be lost or come twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.joins.base import Numbers
from semistream.keys import KeyCodec
from semistream.relations.partitioned import partition_of
from semistream.spark.plan import EnrichPlan, Shuffle
from semistream.spark.worker import as_columns

HOT_PARTS = 4
"""A key with more than a fourth of what a task should get is too much for one."""

HOT_ROWS_MIN = 4
"""In a small batch every key has a large part, and is still no work for more than one task."""


def partition_numbers(plan: EnrichPlan) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The body of the Arrow UDF that shares a stream out: key columns in, the hash partition of each row out."""

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        lookup = plan.lookups[0]
        codec, partition_count = lookup.codec, lookup.lookup.relation.info.partition_count
        for batch in batches:
            yield pa.array(partition_of(_codes(codec, batch), partition_count).astype(np.int32))

    return run


def task_numbers(plan: EnrichPlan, shuffle: Shuffle) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
    """The body of the Arrow UDF behind `shuffle="always"`: key columns in, the task of each row out."""

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        codec = plan.lookups[shuffle.lookup].codec
        for batch in batches:
            yield pa.array(spread_by_key(_codes(codec, batch), shuffle.tasks).astype(np.int32))

    return run


def spread_by_key(codes: Numbers, tasks: int) -> Numbers:
    """The task of each row: the same for the same key, unless it is so frequent that one task would have too much.

    A key with more than its part of these rows, which is that of a task divided by `HOT_PARTS`, goes to all tasks in
    turn. What is decided depends on these rows alone: a task that is repeated must send each row the same way.
    """
    numbers = partition_of(codes, tasks)
    _, inverse, counts = np.unique(codes, return_inverse=True, return_counts=True)
    is_hot = (counts >= HOT_ROWS_MIN) & (counts * tasks * HOT_PARTS > len(codes))
    hot = np.flatnonzero(is_hot[inverse])
    numbers[hot] = (numbers[hot] + np.arange(len(hot))) % tasks
    return numbers


def _codes(codec: KeyCodec, batch: Any) -> Numbers:
    """The codes of a batch of keys; a null has no partner anywhere, and its row goes the way of the code 0."""
    encoded = codec.encode(as_columns(batch))
    return encoded.codes if encoded.null is None else np.where(encoded.null, 0, encoded.codes)
