"""The driver: everything about a semi-stream join that is not the algorithm, once.

It numbers the stream rows, encodes their keys, offers them to the operator, lets it step, and turns pairs of row
numbers into output. On the way it

1. sets rows with a null in their key aside (in SQL a null is equal to nothing),
2. checks pairs whose codes are hashes against the real key columns, so that a collision can never join wrong rows,
3. remembers which stream rows have found a partner, and applies `on_miss` to those that finish without one,
4. checks the balance of every batch: in = matched + unmatched + null keys, each row exactly once.

There are two ways out. `push` and `drain` put out joined rows, any number for each stream row, in pieces that fit the
budget. `align` answers each stream row with at most one relation row, in the stream's order: what a column function
needs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.budget import MemoryBudget
from semistream.errors import BalanceBroken, UnmatchedKey
from semistream.joins.base import NO_NUMBERS, Joined, Numbers, SemiStreamJoin, StepOutput, StreamRows
from semistream.keys import KeyCodec, keys_equal
from semistream.structures.columns import row_bytes
from semistream.structures.gather import Part, gather

OnMiss = Literal["null", "drop", "default", "error"]
"""What happens to a stream row whose key the relation lacks: nulls, leave it out, default values, stop."""

_OUR_FAULT = "this is a defect of semistream; the task has failed and nothing of it was committed"

ON_MISS: tuple[OnMiss, ...] = get_args(OnMiss)


@dataclass(slots=True)
class Balance:
    """What became of the stream rows. `rows_in` is the sum of the other three once nothing waits."""

    rows_in: int = 0
    matched: int = 0
    unmatched: int = 0
    null_keys: int = 0

    def check(self) -> None:
        """Raise unless every row is accounted for."""
        if self.rows_in != self.matched + self.unmatched + self.null_keys:
            raise BalanceBroken(
                "a batch does not balance",
                given=f"in {self.rows_in}, matched {self.matched}, unmatched {self.unmatched}, "
                f"null keys {self.null_keys}",
                allowed="in = matched + unmatched + null keys",
                hint=_OUR_FAULT,
            )


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


@dataclass(frozen=True, slots=True)
class Aligned:
    """One answer for each stream row."""

    columns: list[pa.Array]
    matched: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Grouped:
    """All answers for each stream row, one row's answers after the other's."""

    columns: list[pa.Array]
    offsets: Numbers
    """Where each stream row's answers begin, and where the last one's end."""


@dataclass(slots=True)
class _Pending:
    """A batch of the stream of which not all rows are finished."""

    first: int
    """Number of its first row."""
    batch: pa.RecordBatch
    keys: list[pa.Array]
    null: npt.NDArray[np.bool_] | None
    matched: npt.NDArray[np.bool_]
    finished: npt.NDArray[np.bool_]
    left: int

    @property
    def end(self) -> int:
        """Number behind its last row."""
        return self.first + len(self.matched)


class JoinDriver:
    """Runs one operator over batches of a stream."""

    def __init__(self, join: SemiStreamJoin, codec: KeyCodec, output: OutputColumns, budget: MemoryBudget) -> None:
        self.join = join
        self.balance = Balance()
        self._codec = codec
        self._output = output
        self._account = budget.account("output")
        self._next_number = 0
        self._pending: deque[_Pending] = deque()

    @property
    def is_idle(self) -> bool:
        """Whether everything that came in is finished."""
        return not self._pending and self.join.waiting_rows == 0

    # Rows out --------------------------------------------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch, key: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Join a batch of the stream; yield what is ready. Take everything before the next call."""
        rows = self._open(batch, [batch.column(name) for name in key])
        yield from self._put_out(StepOutput(finished=_null_numbers(self._pending[-1])))
        while len(rows):
            taken = self.join.admit(rows)
            rows = StreamRows(rows.numbers[taken:], rows.codes[taken:])
            yield from self._put_out(self.join.step())

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Let the operator finish every row that waits; yield the rest of the output."""
        while self.join.waiting_rows:
            yield from self._put_out(self.join.step())
        if self._pending:
            raise BalanceBroken("nothing waits and yet a stream row is not finished", hint=_OUR_FAULT)
        self._account.hold(0)
        self.balance.check()

    def _put_out(self, step: StepOutput) -> Iterator[pa.RecordBatch]:
        for pending in list(self._pending):
            pairs = [self._verified(pending, joined) for joined in step.joined_within(pending.first, pending.end)]
            for joined in pairs:
                pending.matched[joined.stream_rows - pending.first] = True
            unmatched = self._settle(pending, step.finished_within(pending.first, pending.end))
            if len(unmatched) and self._output.on_miss != "drop":
                pairs.append(Joined(unmatched, _NOTHING, unmatched))
            if pending.left == 0:
                self._pending.remove(pending)
            yield from self._built(pending, pairs)

    def _built(self, pending: _Pending, pairs: Sequence[Joined]) -> Iterator[pa.RecordBatch]:
        """Build the output of these pairs, all lists of pairs one after the other, in pieces that fit the budget."""
        if not pairs:
            return
        stream_rows = np.concatenate([joined.stream_rows for joined in pairs]) - pending.first
        starts = np.cumsum([0, *(len(joined) for joined in pairs)])
        for begin, end in self._pieces(pending.batch, stream_rows, pairs):
            parts = []
            for joined, start in zip(pairs, starts, strict=False):
                first, last = max(begin - start, 0), min(end - start, len(joined))
                if first < last and joined.relation is not _NOTHING:
                    places = np.arange(start + first - begin, start + last - begin, dtype=np.int64)
                    parts.append(Part(joined.relation, joined.relation_rows[first:last], places))
            yield self._piece(pending.batch, stream_rows[begin:end], parts)

    def _piece(self, batch: pa.RecordBatch, stream_rows: Numbers, parts: Sequence[Part]) -> pa.RecordBatch:
        length = len(stream_rows)
        in_order = length == batch.num_rows and bool((stream_rows == np.arange(length)).all())
        stream = batch if in_order else batch.take(pa.array(stream_rows))
        columns = gather(parts, self._output.source, length)
        matched = np.zeros(length, np.bool_)
        for part in parts:
            matched[part.places] = True
        columns = self._with_defaults(columns, matched)
        built = pa.RecordBatch.from_arrays(
            [*stream.columns, *columns], names=[*batch.schema.names, *self._output.names]
        )
        self._account.hold(built.nbytes)
        return built

    def _pieces(
        self, batch: pa.RecordBatch, stream_rows: Numbers, pairs: Sequence[Joined]
    ) -> Iterator[tuple[int, int]]:
        """Cut pairs so that the output of each piece fits; a single row always goes."""
        sizes = row_bytes(batch, stream_rows)
        start = 0
        for joined in pairs:
            if joined.relation is not _NOTHING:
                wanted = joined.relation.select(self._output.source.names)
                sizes[start : start + len(joined)] += row_bytes(wanted, joined.relation_rows)
            start += len(joined)
        ends = np.cumsum(sizes)
        begin = 0
        while begin < len(sizes):
            done_bytes = int(ends[begin - 1]) if begin else 0
            end = int(np.searchsorted(ends, done_bytes + self.join.output_bytes_max, side="right"))
            end = max(end, begin + 1)
            yield begin, end
            begin = end

    # One answer a row ------------------------------------------------------------------------------------------------

    def align(self, keys: Sequence[pa.Array]) -> Aligned:
        """Answer each key with at most one relation row, in order. The relation's keys must be unique."""
        pending, answered = self._answer(keys)
        length = len(pending.matched)
        assert sum(len(part.rows) for part in answered) == int(pending.matched.sum()), "a key has two partners"
        columns = self._with_defaults(gather(answered, self._output.source, length), pending.matched)
        self._account.hold(sum(column.nbytes for column in columns))
        return Aligned(columns, pending.matched)

    def group(self, keys: Sequence[pa.Array]) -> Grouped:
        """Answer each key with all of its relation rows. All answers to a call must fit the memory at once."""
        pending, answered = self._answer(keys)
        owners = np.concatenate([part.places for part in answered]) if answered else NO_NUMBERS
        order = np.argsort(owners, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        begin = 0
        parts = []
        for part in answered:
            parts.append(Part(part.batch, part.rows, places[begin : begin + len(part.rows)]))
            begin += len(part.rows)
        columns = gather(parts, self._output.source, len(order))
        self._account.hold(sum(column.nbytes for column in columns))
        ends = np.cumsum(np.bincount(owners, minlength=len(pending.matched)))
        return Grouped(columns, np.concatenate(([0], ends)))

    def _answer(self, keys: Sequence[pa.Array]) -> tuple[_Pending, list[Part]]:
        """Run the operator over a batch of keys; return its pairs, placed by stream row."""
        self._account.hold(0)
        rows = self._open(pa.RecordBatch.from_arrays(list(keys), names=[str(i) for i in range(len(keys))]), keys)
        pending = self._pending[-1]
        self._settle(pending, _null_numbers(pending))
        answered: list[Part] = []
        while len(rows):
            taken = self.join.admit(rows)
            rows = StreamRows(rows.numbers[taken:], rows.codes[taken:])
            parts = self._run_to_the_end(pending)
            # Admitting more rows ends the life of these pairs, so they are copied now unless they are the last.
            answered += parts if not len(rows) else self._copied(parts)
        if pending.left:
            raise BalanceBroken("nothing waits and yet a stream row is not finished", hint=_OUR_FAULT)
        self._pending.clear()
        self.balance.check()
        return pending, answered

    def _run_to_the_end(self, pending: _Pending) -> list[Part]:
        answered: list[Part] = []
        while self.join.waiting_rows:
            step = self.join.step()
            parts = []
            for joined in step.joined:
                verified = self._verified(pending, joined)
                places = verified.stream_rows - pending.first
                pending.matched[places] = True
                parts.append(Part(verified.relation, verified.relation_rows, places))
            self._settle(pending, step.finished)
            # What comes next is read into the room that these rows take, so they are copied unless they are the last.
            answered += self._copied(parts) if self.join.waiting_rows else parts
        return answered

    def _copied(self, parts: Sequence[Part]) -> list[Part]:
        """The same parts, with their rows in one batch of their own."""
        if not parts:
            return []
        ends = np.cumsum([0, *(len(part.rows) for part in parts)])
        compact = [
            Part(part.batch, part.rows, np.arange(begin, end, dtype=np.int64))
            for part, begin, end in zip(parts, ends, ends[1:], strict=False)
        ]
        columns = gather(compact, self._output.source, int(ends[-1]))
        self._account.take(sum(column.nbytes for column in columns))
        places = np.concatenate([part.places for part in parts])
        batch = pa.RecordBatch.from_arrays(columns, schema=self._output.source)
        return [Part(batch, np.arange(len(places), dtype=np.int64), places)]

    # Shared by both --------------------------------------------------------------------------------------------------

    def _open(self, batch: pa.RecordBatch, keys: Sequence[pa.Array]) -> StreamRows:
        encoded = self._codec.encode(keys)
        length = batch.num_rows
        first, self._next_number = self._next_number, self._next_number + length
        self._pending.append(
            _Pending(
                first, batch, list(keys), encoded.null, np.zeros(length, np.bool_), np.zeros(length, np.bool_), length
            )
        )
        self.balance.rows_in += length
        numbers = np.arange(first, first + length, dtype=np.int64)
        if encoded.null is None:
            return StreamRows(numbers, encoded.codes)
        return StreamRows(numbers[~encoded.null], encoded.codes[~encoded.null])

    def _verified(self, pending: _Pending, joined: Joined) -> Joined:
        """Drop pairs whose codes are equal and whose keys are not."""
        if not self._output.verify_key or not len(joined):
            return joined
        right = [joined.relation.column(name) for name in self._output.verify_key]
        same = keys_equal(pending.keys, joined.stream_rows - pending.first, right, joined.relation_rows)
        if same.all():
            return joined
        return Joined(joined.stream_rows[same], joined.relation, joined.relation_rows[same])

    def _settle(self, pending: _Pending, numbers: Numbers) -> Numbers:
        """Mark rows as finished and count them; return those that found no partner."""
        rows = numbers - pending.first
        pending.finished[rows] = True
        left = len(pending.finished) - int(np.count_nonzero(pending.finished))
        if pending.left - left != len(rows):
            raise BalanceBroken("a stream row was finished twice", hint=_OUR_FAULT)
        pending.left = left
        unmatched = rows[~pending.matched[rows]]
        nulls = int(pending.null[unmatched].sum()) if pending.null is not None else 0
        self.balance.matched += len(rows) - len(unmatched)
        self.balance.null_keys += nulls
        self.balance.unmatched += len(unmatched) - nulls
        if len(unmatched) and self._output.on_miss == "error":
            self._refuse(pending, int(unmatched[0]), len(unmatched))
        return unmatched + pending.first

    def _refuse(self, pending: _Pending, row: int, count: int) -> None:
        key = ", ".join(str(column[row]) for column in pending.keys)
        raise UnmatchedKey(
            f"{count} stream rows of a batch have no partner in the relation",
            given=f"the first has the key ({key})",
            hint='on_miss="null" keeps such rows, "drop" leaves them out, "default" fills them in',
        )

    def _with_defaults(self, columns: list[pa.Array], matched: npt.NDArray[np.bool_]) -> list[pa.Array]:
        if self._output.on_miss != "default" or matched.all():
            return columns
        mask = pa.array(matched)
        filled = []
        for name, column in zip(self._output.names, columns, strict=True):
            value = self._output.defaults.get(name)
            filled.append(column if value is None else pc.if_else(mask, column, pa.scalar(value, column.type)))
        return filled


_NOTHING: pa.RecordBatch = pa.RecordBatch.from_arrays([], names=[])
"""Stands for the relation in pairs that have no relation row."""


def _null_numbers(pending: _Pending) -> Numbers:
    return NO_NUMBERS if pending.null is None else np.flatnonzero(pending.null) + pending.first
