"""Stream rows that are not finished, with their columns.

An operator knows a waiting row by its number; here lie the columns that go with it. Rows come in batches and leave in
any order. While a batch is being pushed its columns belong to whoever sent it. What still waits afterwards is copied
out (`OpenBatch.without_finished`), so that one waiting row does not keep a whole batch alive, and small remainders of
neighbouring batches are put together, so that there are never many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.joins.base import Numbers
from semistream.structures.compiled import I64, READ_BOOL, READ_I64, WRITE_BOOL, WRITE_I64, Array, kernel

SMALL_ROWS = 8192
"""Remainders are put together up to this many rows."""

Flags = npt.NDArray[np.bool_]


@kernel(I64(WRITE_BOOL, READ_I64))
def _set_flags(flags: Array, places: Array) -> int:
    """Set flags at places; return how many of them were not set before."""
    newly = 0
    for i in range(places.size):
        place = np.uint64(places[i])
        newly += 0 if flags[place] else 1
        flags[place] = True
    return newly


@kernel(I64(READ_BOOL, READ_I64, WRITE_I64))
def _list_unset(flags: Array, places: Array, unset: Array) -> int:
    """List those of the places whose flag is not set; return how many there are."""
    count = 0
    for i in range(places.size):
        unset[np.uint64(count)] = places[i]
        count += 0 if flags[np.uint64(places[i])] else 1
    return count


@dataclass(slots=True)
class OpenBatch:
    """Some consecutive stream rows of which not all are finished."""

    first: int
    """Number of the first row of its range."""
    end: int
    """Number behind the last row of its range."""
    batch: pa.RecordBatch
    key: Sequence[str]
    """Names of the key columns."""
    null: Flags | None
    """Rows with a null in their key."""
    matched: Flags
    finished: Flags
    left: int
    numbers: Numbers | None = None
    """Ascending numbers of the rows; None where they are all of the range."""

    @classmethod
    def opened(cls, first: int, batch: pa.RecordBatch, key: Sequence[str], null: Flags | None) -> OpenBatch:
        """A batch that has just come."""
        length = batch.num_rows
        unset = np.zeros(length, np.bool_)
        return cls(first, first + length, batch, key, null, unset, unset.copy(), length)

    def __len__(self) -> int:
        return len(self.matched)

    @property
    def keys(self) -> list[pa.Array]:
        """The key columns."""
        return [self.batch.column(name) for name in self.key]

    def places_of(self, numbers: Numbers) -> Numbers:
        """Where rows with these numbers stand in the batch."""
        return numbers - self.first if self.numbers is None else np.searchsorted(self.numbers, numbers)

    def match(self, places: Numbers) -> None:
        """Note that the rows at these places have found a partner."""
        _set_flags(self.matched, places)

    def finish(self, places: Numbers) -> int:
        """Note that the rows at these places are finished; return how many of them were not before."""
        newly: int = _set_flags(self.finished, places)
        self.left -= newly
        return newly

    def unmatched(self, places: Numbers) -> Numbers:
        """Those of these places whose rows have found no partner."""
        found = np.empty(len(places), np.int64)
        return found[: _list_unset(self.matched, places, found)]

    @property
    def null_places(self) -> Numbers:
        """Where the rows with a null in their key stand."""
        return np.zeros(0, np.int64) if self.null is None else np.flatnonzero(self.null)

    def numbers_at(self, places: Numbers) -> Numbers:
        """The numbers of the rows at these places."""
        return places + self.first if self.numbers is None else self.numbers[places]

    def without_finished(self) -> OpenBatch:
        """The rows that wait, copied."""
        places = np.flatnonzero(~self.finished)
        # Not from Arrow's own pool, which keeps a megabyte and more of what it was given back.
        rows = pc.take(self.batch, pa.array(places), memory_pool=pa.system_memory_pool())
        return OpenBatch(
            self.first,
            self.end,
            rows,
            self.key,
            None,  # Rows with a null in their key never wait.
            self.matched[places],
            np.zeros(len(places), np.bool_),
            len(places),
            self.numbers_at(places),
        )

    def joined_with(self, following: OpenBatch) -> OpenBatch:
        """Both as one; neither has finished rows."""
        return OpenBatch(
            self.first,
            following.end,
            pa.concat_batches([self.batch, following.batch], memory_pool=pa.system_memory_pool()),
            self.key,
            None,
            np.concatenate([self.matched, following.matched]),
            np.concatenate([self.finished, following.finished]),
            self.left + following.left,
            np.concatenate([self._all_numbers(), following._all_numbers()]),
        )

    def _all_numbers(self) -> Numbers:
        return np.arange(self.first, self.end, dtype=np.int64) if self.numbers is None else self.numbers


class OpenRows:
    """All stream rows that are not finished, oldest first."""

    def __init__(self) -> None:
        self._batches: list[OpenBatch] = []

    def __bool__(self) -> bool:
        return bool(self._batches)

    def __iter__(self) -> Iterator[OpenBatch]:
        """The batches as they are now; they may be removed on the way."""
        return iter(list(self._batches))

    @property
    def row_count(self) -> int:
        """Rows in all batches."""
        return sum(len(batch) for batch in self._batches)

    def add(self, batch: OpenBatch) -> None:
        """Append a batch."""
        self._batches.append(batch)

    def drop_finished(self) -> None:
        """Forget batches of which every row is finished."""
        if any(batch.left == 0 for batch in self._batches):
            self._batches = [batch for batch in self._batches if batch.left]

    def clear(self) -> None:
        """Forget everything."""
        self._batches.clear()

    def keep_only_waiting(self, *, pushed_from: int) -> int:
        """Copy what waits of the batches from this number on, and of others that are mostly finished.

        Returns the bytes of the columns that are kept now.
        """
        kept: list[OpenBatch] = []
        for batch in self._batches:
            if batch.left == 0:
                continue
            compact = batch
            if batch.first >= pushed_from or 2 * batch.left <= len(batch):
                compact = batch.without_finished()
            if kept and compact.left == len(compact) and len(kept[-1]) + len(compact) <= SMALL_ROWS:
                previous = kept.pop()
                previous = previous if previous.left == len(previous) else previous.without_finished()
                compact = previous.joined_with(compact)
            kept.append(compact)
        self._batches = kept
        return sum(batch.batch.nbytes for batch in kept)
