"""From pairs of row numbers to joined rows.

The driver knows which stream row goes with which relation row, and which has none; here that becomes record batches:
the stream's columns, then the relation's, gathered into place. Pairs come in lists, one for each batch that an operator
has read; they are put out one list after the other or, where the operator keeps the order of the stream, in that order,
whichever list they are in.

Memory: output is built in pieces of at most half of what the operator leaves for it, because whoever took one piece may
still hold it while the next is built. Ordering takes `ORDERING_BYTES` for each pair of a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.budget import Account
from semistream.joins.base import Joined, Numbers
from semistream.structures.columns import row_bytes
from semistream.structures.gather import Part, gather

OnMiss = Literal["null", "drop", "default", "error"]
"""What happens to a stream row whose key the relation lacks: nulls, leave it out, default values, stop."""

ON_MISS: tuple[OnMiss, ...] = get_args(OnMiss)

ORDERING_BYTES = 32
"""For a pair that is put into the order of the stream: its rank, its place, and its stream row and size once more."""

_NOTHING: pa.RecordBatch = pa.RecordBatch.from_arrays([], names=[])
"""Stands for the relation in pairs that have no relation row."""


@dataclass(frozen=True, slots=True)
class OutputColumns:
    """Which relation columns are put out, and under which names."""

    source: pa.Schema
    """Relation columns to take, as the relation returns them."""
    names: tuple[str, ...]
    """Their names in the output."""
    verify_key: tuple[str, ...] = ()
    """Key columns in the relation's batches to compare with the stream's; empty where equal codes are equal keys."""
    on_miss: OnMiss = "null"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values by output name, for `on_miss="default"`; columns not named become null."""

    def with_defaults(self, columns: list[pa.Array], matched: npt.NDArray[np.bool_]) -> list[pa.Array]:
        """Fill in defaults where nothing was matched, if they are wanted."""
        if self.on_miss != "default" or matched.all():
            return columns
        mask = pa.array(matched)
        filled = []
        for name, column in zip(self.names, columns, strict=True):
            value = self.defaults.get(name)
            filled.append(column if value is None else pc.if_else(mask, column, pa.scalar(value, column.type)))
        return filled


def without_partner(numbers: Numbers) -> Joined:
    """Stream rows that are put out without a relation row."""
    return Joined(numbers, _NOTHING, numbers)


class OutputBuilder:
    """Builds joined rows, charged to an account."""

    def __init__(self, columns: OutputColumns, account: Account) -> None:
        self._columns = columns
        self._account = account
        self._taken_bytes = 0

    def build(
        self, batch: pa.RecordBatch, stream_rows: Numbers, pairs: Sequence[Joined], bytes_max: int, *, in_order: bool
    ) -> Iterator[pa.RecordBatch]:
        """Build the output of lists of pairs, in pieces that fit twice into `bytes_max`.

        `stream_rows` are the places in `batch` of all pairs, one list after the other. With `in_order`, in which case
        they ascend within each list, output is in the order of `batch`.
        """
        sizes = self._sizes(batch, stream_rows, pairs)
        places = np.arange(len(stream_rows), dtype=np.int64)
        if in_order and len(pairs) > 1:
            order = np.argsort(stream_rows, kind="stable")
            places[order] = np.arange(len(order))
            stream_rows, sizes = stream_rows[order], sizes[order]
        list_ends = np.cumsum([len(joined) for joined in pairs])[:-1]
        placed = [
            (joined, own)
            for joined, own in zip(pairs, np.split(places, list_ends), strict=True)
            if joined.relation is not _NOTHING
        ]
        for begin, end in _pieces(sizes, bytes_max // 2):
            parts = []
            for joined, own in placed:
                first, last = np.searchsorted(own, (begin, end)).tolist()
                if first < last:
                    parts.append(Part(joined.relation, joined.relation_rows[first:last], own[first:last] - begin))
            yield self._piece(batch, stream_rows[begin:end], parts)

    def end(self) -> None:
        """Whoever takes the output has taken all of it."""
        self._account.hold(0)
        self._taken_bytes = 0

    def _piece(self, batch: pa.RecordBatch, stream_rows: Numbers, parts: Sequence[Part]) -> pa.RecordBatch:
        length = len(stream_rows)
        is_whole = length == batch.num_rows and bool((stream_rows == np.arange(length)).all())
        # Not from Arrow's own pool, which keeps a megabyte and more of what it was given back.
        stream = batch if is_whole else pc.take(batch, pa.array(stream_rows), memory_pool=pa.system_memory_pool())
        columns = gather(parts, self._columns.source, length)
        matched = np.zeros(length, np.bool_)
        for part in parts:
            matched[part.places] = True
        columns = self._columns.with_defaults(columns, matched)
        built = pa.RecordBatch.from_arrays(
            [*stream.columns, *columns], names=[*batch.schema.names, *self._columns.names]
        )
        # Whoever took the piece before may still refer to it while this one is built.
        self._account.hold(self._taken_bytes + built.nbytes)
        self._taken_bytes = built.nbytes
        return built

    def _sizes(self, batch: pa.RecordBatch, stream_rows: Numbers, pairs: Sequence[Joined]) -> Numbers:
        """The bytes of each row of the output."""
        sizes = row_bytes(batch, stream_rows)
        start = 0
        for joined in pairs:
            if joined.relation is not _NOTHING:
                wanted = joined.relation.select(self._columns.source.names)
                sizes[start : start + len(joined)] += row_bytes(wanted, joined.relation_rows)
            start += len(joined)
        return sizes


def _pieces(sizes: Numbers, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Cut rows of these sizes into pieces of at most so many bytes; a single row always goes."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        done_bytes = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, done_bytes + bytes_max, side="right"))
        end = max(end, begin + 1)
        yield begin, end
        begin = end
