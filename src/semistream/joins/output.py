"""From pairs of row numbers to joined rows.

The driver knows which stream row goes with which relation row, and which has none; here that becomes record batches:
the stream's columns, then the relation's, gathered into place. Stream rows that end together have often come in many
batches; they are put out together, for a record batch costs the same whether it has ten rows or a thousand. Pairs come
in lists, one for each batch that an operator has read; they are put out one list after the other or, where the operator
keeps the order of the stream, in that order, whichever list they are in.

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
from semistream.structures.packed_rows import PackedRows

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


@dataclass(frozen=True, slots=True)
class Pairing:
    """Pairs of rows of one batch of the stream."""

    batch: pa.RecordBatch
    stream_rows: Numbers
    """Where the stream rows of all pairs stand in the batch, one list after the other."""
    pairs: Sequence[Joined]


class OutputBuilder:
    """Builds joined rows, charged to an account."""

    def __init__(self, columns: OutputColumns, account: Account) -> None:
        self._columns = columns
        self._account = account
        self._taken_bytes = 0

    def build(self, openings: Sequence[Pairing], bytes_max: int, *, in_order: bool) -> Iterator[pa.RecordBatch]:
        """Build the output of lists of pairs, in pieces that fit twice into `bytes_max`.

        With `in_order`, in which case stream rows ascend within each list, output is in the order of the stream.
        """
        stream: list[Part] = []
        related: list[tuple[Joined, Numbers]] = []
        sizes: list[Numbers] = []
        begin = 0
        for opening in openings:
            rows, own_sizes = opening.stream_rows, self._sizes(opening)
            places = np.arange(begin, begin + len(rows), dtype=np.int64)
            places_of_pairs = places
            if in_order and len(opening.pairs) > 1:
                order = np.argsort(rows, kind="stable")
                places_of_pairs = np.empty_like(places)
                places_of_pairs[order] = places
                rows, own_sizes = rows[order], own_sizes[order]
            stream.append(Part(opening.batch, rows, places))
            sizes.append(own_sizes)
            ends = np.cumsum([len(joined) for joined in opening.pairs])[:-1]
            related += zip(opening.pairs, np.split(places_of_pairs, ends), strict=True)
            begin += len(rows)
        related = [(joined, places) for joined, places in related if joined.relation is not _NOTHING]
        for begin, end in pieces(np.concatenate(sizes), bytes_max // 2):
            of_stream = _within(stream, begin, end)
            of_relation = _within([Part(j.relation, j.relation_rows, places) for j, places in related], begin, end)
            yield self._piece(of_stream, of_relation, end - begin)

    def end(self) -> None:
        """Whoever takes the output has taken all of it."""
        self._account.hold(0)
        self._taken_bytes = 0

    def _piece(self, stream: Sequence[Part], parts: Sequence[Part], length: int) -> pa.RecordBatch:
        schema = stream[0].source.schema
        columns = gather(parts, self._columns.source, length)
        matched = np.zeros(length, np.bool_)
        for part in parts:
            matched[part.places] = True
        columns = self._columns.with_defaults(columns, matched)
        built = pa.RecordBatch.from_arrays(
            [*_stream_columns(stream, length), *columns], names=[*schema.names, *self._columns.names]
        )
        # Whoever took the piece before may still refer to it while this one is built.
        self._account.hold(self._taken_bytes + built.nbytes)
        self._taken_bytes = built.nbytes
        return built

    def _sizes(self, opening: Pairing) -> Numbers:
        """The bytes of each row of the output."""
        sizes = row_bytes(opening.batch, opening.stream_rows)
        start = 0
        for joined in opening.pairs:
            if joined.relation is not _NOTHING:
                sizes[start : start + len(joined)] += self._relation_bytes(joined)
            start += len(joined)
        return sizes

    def _relation_bytes(self, joined: Joined) -> Numbers:
        """The bytes of the relation's part of each row; of packed rows a few more than it will be."""
        if isinstance(joined.relation, PackedRows):
            return joined.relation.sizes_of(joined.relation_rows)
        return row_bytes(joined.relation.select(self._columns.source.names), joined.relation_rows)


def _stream_columns(stream: Sequence[Part], length: int) -> Sequence[pa.Array]:
    if len(stream) > 1:
        return gather(stream, stream[0].source.schema, length)
    batch, rows = stream[0].source, stream[0].rows
    if length == batch.num_rows and bool((rows == np.arange(length)).all()):
        whole: Sequence[pa.Array] = batch.columns
        return whole
    # Not from Arrow's own pool, which keeps a megabyte and more of what it was given back.
    taken: Sequence[pa.Array] = pc.take(batch, pa.array(rows), memory_pool=pa.system_memory_pool()).columns
    return taken


def _within(parts: Sequence[Part], begin: int, end: int) -> list[Part]:
    """What the parts fill of the places from `begin` to `end`; places ascend in each part."""
    found = []
    for part in parts:
        first, last = np.searchsorted(part.places, (begin, end)).tolist()
        if first < last:
            found.append(Part(part.source, part.rows[first:last], part.places[first:last] - begin))
    return found


def pieces(sizes: Numbers, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Cut rows of these sizes into pieces of at most so many bytes; a single row always goes."""
    ends = np.cumsum(sizes)
    begin = 0
    while begin < len(sizes):
        done_bytes = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, done_bytes + bytes_max, side="right"))
        end = max(end, begin + 1)
        yield begin, end
        begin = end
