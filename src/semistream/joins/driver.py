"""The driver: everything about a semi-stream join that is not the algorithm, once.

It numbers the stream rows, encodes their keys, offers them to the operator, lets it step, and turns pairs of row
numbers into output. On the way it

1. sets rows with a null in their key aside (in SQL a null is equal to nothing),
2. checks pairs whose codes are hashes against the real key columns, so that a collision can never join wrong rows,
3. remembers which stream rows have found a partner, and applies `on_miss` to those that finish without one,
4. checks the balance of every batch: in = matched + unmatched + null keys, each row exactly once.

There are two ways out. `push` and `drain` put out joined rows, any number for each stream row, in pieces that fit the
budget (`output`), and in the order of the stream if the operator keeps it: rows without a partner, those with a null in
their key among them, then come where they stood. `align` answers each stream row with at most one relation row, in the
stream's order: what a column function needs.

Memory: what is put out is held twice, once by whoever took the last piece and once under construction; a few arrays
for the stream rows that are open, which is why large batches of the stream are cut; and the columns of rows that wait
beyond the end of their batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.errors import BalanceBroken, UnmatchedKey
from semistream.joins.balance import OUR_FAULT, Balance
from semistream.joins.base import (
    ANSWER_COPIES,
    ANSWERED_ROW_BYTES,
    NO_NUMBERS,
    Joined,
    Numbers,
    SemiStreamJoin,
    StepOutput,
    StreamRows,
)
from semistream.joins.open_rows import OpenBatch, OpenRows
from semistream.joins.output import OutputBuilder, OutputColumns, Pairing, pieces, without_partner
from semistream.keys import KeyCodec, keys_equal
from semistream.structures.gather import Part, columns_at, gather
from semistream.structures.packed_rows import PackedRows

OPEN_ROW_BYTES = 24
"""For a stream row that is not finished: number, code, flags."""

OPEN_ROWS_SHARE = 1 / 10
"""What open rows may take of the memory for output."""

COMPARED_SHARE = 1 / 16
"""What copies of keys that are compared may take of the memory for output."""

PARTS_MAX = 32
"""Arrow needs some kilobytes for any batch, however few rows are in it, so batches of an answer must not be many."""


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


class JoinDriver:
    """Runs one operator over batches of a stream."""

    def __init__(self, join: SemiStreamJoin, codec: KeyCodec, output: OutputColumns, budget: MemoryBudget) -> None:
        self.join = join
        self.balance = Balance()
        self._codec = codec
        self._output = output
        self._account = budget.account("output")
        self._builder = OutputBuilder(output, self._account)
        self._open_rows = budget.account("open stream rows")
        self._waiting_bytes = 0
        self._next_number = 0
        self._open = OpenRows()

    @property
    def is_idle(self) -> bool:
        """Whether everything that came in is finished."""
        return not self._open and self.join.waiting_rows == 0

    def _is_busy(self) -> bool:
        """Whether rows wait, or a page is in hand with which an operator has not finished."""
        return self.join.waiting_rows > 0 or not self.join.wants_rows

    # Rows out --------------------------------------------------------------------------------------------------------

    def push(self, batch: pa.RecordBatch, key: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Join a batch of the stream; yield what is ready. Take everything before the next call."""
        rows_max = max(1, int(self.join.output_bytes_max * OPEN_ROWS_SHARE) // OPEN_ROW_BYTES)
        pushed_from = self._next_number
        for begin in range(0, batch.num_rows, rows_max):
            piece = batch.slice(begin, rows_max)
            yield from self._make_room(len(piece) * OPEN_ROW_BYTES, pushed_from)
            opened, rows = self._opened(piece, key)
            if not self.join.keeps_order:
                yield from self._put_out(StepOutput(finished=self._nulls_left(opened)))
            while len(rows):
                taken = self.join.admit(rows)
                rows = StreamRows(rows.numbers[taken:], rows.codes[taken:])
                while not self.join.wants_rows:
                    yield from self._put_out(self.join.step())
            if self.join.keeps_order:
                assert self.join.waiting_rows == 0, "a join that keeps order lets rows wait for the next batch"
                yield from self._put_out(StepOutput(finished=self._nulls_left(opened)))
            self._hold_waiting(pushed_from)
            yield from self._make_room(0, pushed_from)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Let the operator finish every row that waits; yield the rest of the output."""
        self.join.end_stream()
        while self._is_busy():
            yield from self._put_out(self.join.step())
        if self._open:
            raise BalanceBroken("nothing waits and yet a stream row is not finished", hint=OUR_FAULT)
        self._waiting_bytes = 0
        self._open_rows.hold(0)
        self._builder.end()
        self.balance.check()

    def _make_room(self, more_bytes: int, pushed_from: int) -> Iterator[pa.RecordBatch]:
        """Hold what waits and some more; where that is too much, some rows must be finished before others can wait."""
        # What is free now is not all ours: the operator will fill what it has set aside.
        while self.join.waiting_rows and self._waiting_bytes + more_bytes > self._open_bytes_max:
            yield from self._put_out(self.join.step())
            self._hold_waiting(pushed_from)
        self._open_rows.hold(self._waiting_bytes + more_bytes)

    @property
    def _open_bytes_max(self) -> int:
        return self.join.waiting_bytes_max + int(self.join.output_bytes_max * OPEN_ROWS_SHARE)

    def _hold_waiting(self, pushed_from: int) -> None:
        """Copy what waits out of the batch it came in."""
        columns_bytes = self._open.keep_only_waiting(pushed_from=pushed_from)
        self._waiting_bytes = columns_bytes + self._open.row_count * OPEN_ROW_BYTES

    def _put_out(self, step: StepOutput) -> Iterator[pa.RecordBatch]:
        openings = []
        for opened in self._open:
            found = step.joined_within(opened.first, opened.end)
            pairs = [self._verified(opened, joined) for joined in found]
            for joined in pairs:
                opened.match(opened.places_of(joined.stream_rows))
            unmatched = self._settle(opened, self._finished(opened, step, found))
            if len(unmatched) and self._output.on_miss != "drop":
                pairs.append(without_partner(unmatched))
            if pairs:
                stream_rows = opened.places_of(np.concatenate([joined.stream_rows for joined in pairs]))
                openings.append(Pairing(opened.batch, stream_rows, pairs))
        if openings:
            yield from self._builder.build(openings, self.join.output_bytes_max, in_order=self.join.keeps_order)
        self._open.drop_finished()

    def _finished(self, opened: OpenBatch, step: StepOutput, pairs: Sequence[Joined]) -> Numbers:
        """Rows that end with this step; where order is kept, also those with a null in their key that it has passed."""
        finished = step.finished_within(opened.first, opened.end)
        if not self.join.keeps_order or opened.null is None:
            return finished
        reached = max([-1, *finished[-1:].tolist(), *(int(joined.stream_rows[-1]) for joined in pairs)])
        nulls = self._nulls_left(opened)
        passed = np.setdiff1d(nulls[nulls < reached], finished)
        return np.sort(np.concatenate([passed, finished]))

    def _nulls_left(self, opened: OpenBatch) -> Numbers:
        """Rows with a null in their key that were not put out yet."""
        places = opened.null_places
        return opened.numbers_at(places[~opened.finished[places]])

    # One answer a row ------------------------------------------------------------------------------------------------

    def answer_rows_max(self, row_bytes_max: int) -> int:
        """Stream rows that can surely be answered in one call if the answer to a row has at most so many bytes."""
        return max(1, self.join.output_bytes_max // (ANSWERED_ROW_BYTES + ANSWER_COPIES * row_bytes_max))

    def align(self, keys: Sequence[pa.Array]) -> Aligned:
        """Answer each key with at most one relation row, in order. The relation's keys must be unique."""
        opened, answered = self._answer(keys)
        length = len(opened.matched)
        assert sum(len(part.rows) for part in answered) == np.count_nonzero(opened.matched), "a key has two partners"
        columns = self._output.with_defaults(gather(answered, self._output.source, length), opened.matched)
        self._put_answer(columns)
        return Aligned(columns, opened.matched)

    def group(self, keys: Sequence[pa.Array]) -> Grouped:
        """Answer each key with all of its relation rows. All answers to a call must fit the memory at once."""
        opened, answered = self._answer(keys)
        owners = np.concatenate([part.places for part in answered]) if answered else NO_NUMBERS
        order = np.argsort(owners, kind="stable")
        places = np.empty_like(order)
        places[order] = np.arange(len(order))
        begin = 0
        parts = []
        for part in answered:
            parts.append(Part(part.source, part.rows, places[begin : begin + len(part.rows)]))
            begin += len(part.rows)
        columns = gather(parts, self._output.source, len(order))
        self._put_answer(columns)
        ends = np.cumsum(np.bincount(owners, minlength=len(opened.matched)))
        return Grouped(columns, np.concatenate(([0], ends)))

    def _answer(self, keys: Sequence[pa.Array]) -> tuple[OpenBatch, list[Part]]:
        """Run the operator over a batch of keys; return its pairs, placed by stream row."""
        names = [str(i) for i in range(len(keys))]
        opened, rows = self._opened(pa.RecordBatch.from_arrays(list(keys), names=names), names)
        self._open_rows.hold(len(opened) * ANSWERED_ROW_BYTES)
        self._settle(opened, opened.numbers_at(opened.null_places))
        copied: list[Part] = []
        last: list[Part] = []
        while len(rows):
            taken = self.join.admit(rows)
            rows = StreamRows(rows.numbers[taken:], rows.codes[taken:])
            while self._is_busy():
                last = self._answer_step(opened)
                # The next step is read into the room that these rows take, and admitting more rows ends the life of
                # these pairs: they are copied unless they are the last.
                if last and (self._is_busy() or len(rows)):
                    copied = self._merged([*copied, self._copied(last)])
                    last = []
        if opened.left:
            raise BalanceBroken("nothing waits and yet a stream row is not finished", hint=OUR_FAULT)
        self._open.clear()
        self.balance.check()
        return opened, [*copied, *last]

    def _answer_step(self, opened: OpenBatch) -> list[Part]:
        step = self.join.step()
        parts = []
        for joined in step.joined:
            verified = self._verified(opened, joined)
            places = opened.places_of(verified.stream_rows)
            opened.match(places)
            parts.append(Part(verified.relation, verified.relation_rows, places))
        self._settle(opened, step.finished)
        return parts

    def _copied(self, parts: Sequence[Part]) -> Part:
        """The same parts, with their rows in one batch of their own."""
        ends = np.cumsum([0, *(len(part.rows) for part in parts)])
        compact = [
            Part(part.source, part.rows, np.arange(begin, end, dtype=np.int64))
            for part, begin, end in zip(parts, ends, ends[1:], strict=False)
        ]
        columns = gather(compact, self._output.source, int(ends[-1]))
        self._account.take(_bytes_of(columns))
        places = np.concatenate([part.places for part in parts])
        batch = pa.RecordBatch.from_arrays(columns, schema=self._output.source)
        return Part(batch, np.arange(len(places), dtype=np.int64), places)

    def _merged(self, copies: list[Part]) -> list[Part]:
        """The same copies, put together once they have become many."""
        if len(copies) <= PARTS_MAX:
            return copies
        merged = self._copied(copies)
        self._account.give_back(sum(_bytes_of(part.source.columns) for part in copies))
        return [merged]

    def _put_answer(self, columns: Sequence[pa.Array]) -> None:
        """Charge an answer beside the one before and the rows that were copied for it; then only itself is left."""
        answer_bytes = _bytes_of(columns)
        self._account.take(answer_bytes)
        self._account.hold(answer_bytes)

    # Shared by both --------------------------------------------------------------------------------------------------

    def _opened(self, batch: pa.RecordBatch, key: Sequence[str]) -> tuple[OpenBatch, StreamRows]:
        """Number the rows of a batch; return it and those rows that can have a partner."""
        encoded = self._codec.encode([batch.column(name) for name in key])
        first, self._next_number = self._next_number, self._next_number + batch.num_rows
        opened = OpenBatch.opened(first, batch, key, encoded.null)
        self._open.add(opened)
        self.balance.rows_in += batch.num_rows
        numbers = np.arange(first, self._next_number, dtype=np.int64)
        if encoded.null is None:
            return opened, StreamRows(numbers, encoded.codes)
        return opened, StreamRows(numbers[~encoded.null], encoded.codes[~encoded.null])

    def _verified(self, opened: OpenBatch, joined: Joined) -> Joined:
        """Drop pairs whose codes are equal and whose keys are not."""
        if not self._output.verify_key or not len(joined):
            return joined
        places, same = opened.places_of(joined.stream_rows), np.empty(len(joined), np.bool_)
        for begin, end in self._compared_together(joined):
            right, rows = columns_at(joined.relation, joined.relation_rows[begin:end], self._output.verify_key)
            copied_bytes = _bytes_of(right) if isinstance(joined.relation, PackedRows) else 0
            self._account.take(copied_bytes)
            same[begin:end] = keys_equal(opened.keys, places[begin:end], right, rows)
            self._account.give_back(copied_bytes)
        if same.all():
            return joined
        return Joined(joined.stream_rows[same], joined.relation, joined.relation_rows[same])

    def _compared_together(self, joined: Joined) -> Iterator[tuple[int, int]]:
        """Cut pairs into pieces whose keys may be copied at once; those of a batch are compared where they are."""
        if not isinstance(joined.relation, PackedRows):
            return iter([(0, len(joined))])
        bytes_max = int(self.join.output_bytes_max * COMPARED_SHARE)
        return pieces(joined.relation.sizes_of(joined.relation_rows), bytes_max)

    def _settle(self, opened: OpenBatch, numbers: Numbers) -> Numbers:
        """Mark rows as finished and count them; return those that found no partner."""
        rows = opened.places_of(numbers)
        if opened.finish(rows) != len(rows):
            raise BalanceBroken("a stream row was finished twice", hint=OUR_FAULT)
        unmatched = opened.unmatched(rows)
        nulls = int(opened.null[unmatched].sum()) if opened.null is not None else 0
        self.balance.matched += len(rows) - len(unmatched)
        self.balance.null_keys += nulls
        self.balance.unmatched += len(unmatched) - nulls
        if len(unmatched) and self._output.on_miss == "error":
            self._refuse(opened, int(unmatched[0]), len(unmatched))
        return opened.numbers_at(unmatched)

    def _refuse(self, opened: OpenBatch, row: int, count: int) -> None:
        key = ", ".join(str(column[row]) for column in opened.keys)
        raise UnmatchedKey(
            f"{count} stream rows of a batch have no partner in the relation",
            given=f"the first has the key ({key})",
            hint='on_miss="null" keeps such rows, "drop" leaves them out, "default" fills them in',
        )


def _bytes_of(columns: Sequence[pa.Array]) -> int:
    """What columns take that have their buffers for themselves: `nbytes` would look at every value's place."""
    return sum(column.get_total_buffer_size() for column in columns)
