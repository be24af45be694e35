"""One micro-batch of one partition: restore the windows, join, put pairs out, leave what the batch has added.

The windows are built anew from the keys of the runs in every batch, because Spark hands a partition to any worker. That
costs an insertion for each row in the windows, and lets the indexes be chosen anew each time (`window_means`). Payload
is touched for rows that found a partner only.

**Left joins.** A row of `a` is put out without a partner when it has left its window and no pair with it satisfied the
whole condition; the index alone cannot know that. So matched rows are noted here, and which rows have left is computed
from the counters before and after the batch. A partition that gets no rows in a batch puts out in a later one what has
left meanwhile.

**Memory** of a worker: three eighths of it, or a quarter where rows may be shed, are for the windows and their indexes,
one eighth is for joined rows, which are built in pieces of half of that; the rest is for the keys of the rows that the
windows held before (`window_held`). The rows of the batch itself, as Spark hands them over, are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget, format_bytes
from semistream.errors import BalanceBroken, BudgetExceeded
from semistream.joins.balance import OUR_FAULT
from semistream.spark.window_counts import WindowCounts
from semistream.spark.window_held import Matched, Restored, Staying
from semistream.spark.window_means import means_of
from semistream.spark.window_plan import OUTPUT_PART, WindowPlan
from semistream.spark.window_sequence import BatchRows, RowSequence, SideRows, in_sequence
from semistream.window.expression import is_true
from semistream.window.join import INDEX_NAMES, WindowJoin
from semistream.window.per_key import PerKeyJoin
from semistream.window.pieces import Pairs, SideCounts, Snapshot
from semistream.window.run_file import NO_CLOCK, Counters, Run
from semistream.window.state import PartitionState

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

SAMPLE_TYPE = pa.struct(
    [
        ("weight", pa.float64()),
        ("partition", pa.int32()),
        ("probe_side", pa.string()),
        ("probe_row", pa.int64()),
        ("probe_share", pa.float64()),
        ("held_row", pa.int64()),
        ("held_share", pa.float64()),
    ]
)


class WindowBatch:
    """Joins what a micro-batch brings to a partition."""

    def __init__(self, plan: WindowPlan, partition: int, state: PartitionState | None) -> None:
        self._plan = plan
        self._partition = partition
        self._state = state
        self._budget = MemoryBudget(plan.join_bytes)
        output_budget = MemoryBudget(max(1, int(plan.worker_bytes * OUTPUT_PART)))
        self._output = output_budget.account("joined rows")
        keys_budget = MemoryBudget(max(1, plan.worker_bytes - self._budget.limit_bytes - output_budget.limit_bytes))
        self._budgets = self._budget, output_budget, keys_budget
        self._runs = state.runs if state else []
        self._own = state.counters if state else Counters()
        try:
            self._restored = Restored(
                plan, partition, self._runs, self._own, keys_budget.account("keys of the windows")
            )
        except BudgetExceeded as error:
            raise self._too_little(
                f"keys of their rows take more than {format_bytes(keys_budget.limit_bytes)}"
            ) from error
        self.counts = WindowCounts()

    def run(self, rows: BatchRows) -> Iterator[pa.RecordBatch]:
        """Yield joined rows; take `counts` after each piece and once more at the end."""
        # The clock is that of all partitions, so that how many there are does not matter.
        clock_us = max(self._own.clock_us, self._state.clock_us if self._state else NO_CLOCK)
        before = Counters(self._own.rows, clock_us)
        sequence = in_sequence(self._plan, rows, before)
        join = self._make_join(before, sequence)
        wanted = [{c.source for c in self._plan.output if c.side == side} for side in (0, 1)]
        sides = [
            SideRows(
                self._runs,
                side,
                self._restored.kept[side],
                sequence.payload[side],
                before.rows[side],
                [*wanted[side], *self._plan.condition.residual_columns[side]],
            )
            for side in (0, 1)
        ]
        matched = Matched(self._restored, sequence, before) if self._plan.is_outer else None
        self._count_input(sequence)
        candidates = 0
        for pairs in join.push(sequence.arrivals):
            self._check_shedding(join)
            candidates += len(pairs)
            yield from self._put_out(pairs, sides, matched)
        self._check_balance(join, sequence, candidates)
        staying = Staying(self._plan, self._restored, sequence, join, is_end=self._state is None)
        if matched is not None:
            yield from self._put_out_unmatched(matched.alone(staying), sides)
        if self._state is not None:
            self._leave(sequence, join, staying, matched)
        self._count_join(join)

    # Joining ---------------------------------------------------------------------------------------------------------

    def _make_join(self, before: Counters, sequence: RowSequence) -> WindowJoin | PerKeyJoin:
        plan, restored = self._plan, self._restored
        held = restored.held()
        counts = [
            SideCounts(rows, 0, 0, 0, shed, 0) for rows, shed in zip(before.rows, restored.shed_rows, strict=True)
        ]
        snapshot = Snapshot((counts[0], counts[1]), before.arrivals, before.clock_us, restored.levels, held)
        join: WindowJoin | PerKeyJoin
        if plan.per_key:
            join = PerKeyJoin(*plan.windows, budget=self._budget)
        else:
            means = means_of(plan, restored, sequence, before, self._budget.limit_bytes)
            join = plan.make_join(self._budget, means.indexes, self._partition, means.probe_shares, means.memory_parts)
            index_a, index_b = (1 << INDEX_NAMES.index(name) for name in means.indexes)
            self.counts.index_a, self.counts.index_b = index_a, index_b
        join.restore(snapshot)
        self._check_shedding(join)
        return join

    def _check_shedding(self, join: WindowJoin | PerKeyJoin) -> None:
        if self._plan.shed == "sample" or isinstance(join, PerKeyJoin) or min(join.held_share) == 1.0:
            return
        raise self._too_little(f"they were full at {join.held_rows[0]} rows of a and {join.held_rows[1]} of b")

    def _too_little(self, found: str) -> BudgetExceeded:
        plan = self._plan
        hint = "give the join more memory or smaller windows"
        if not plan.per_key and not plan.is_outer:
            hint += ', or shed="sample" to join a sample and know its weights'
        return BudgetExceeded(
            "the windows do not fit the memory of a worker",
            given=f"memory of {plan.memory_bytes} bytes, of which {format_bytes(self._budget.limit_bytes)} are for the "
            f"windows in one of {plan.memory_bytes // max(1, plan.worker_bytes)} workers; {found}",
            hint=hint,
        )

    # Output ----------------------------------------------------------------------------------------------------------

    def _put_out(self, pairs: Pairs, sides: list[SideRows], matched: Matched | None) -> Iterator[pa.RecordBatch]:
        places = sides[0].places(pairs.row_a), sides[1].places(pairs.row_b)
        for begin, end in self._pieces(sides[0].sizes(places[0]) + sides[1].sizes(places[1])):
            chosen = np.arange(begin, end)
            holds = self._holds(sides, places[0][begin:end], places[1][begin:end])
            if holds is not None:
                chosen = chosen[holds]
            self.counts.candidates += end - begin
            self.counts.pairs += len(chosen)
            if matched is not None:
                matched.note(pairs.row_a[chosen])
            if len(chosen):
                yield self._batch(sides, places[0][chosen], places[1][chosen], self._sample(pairs, chosen))

    def _put_out_unmatched(self, rows: Int64s, sides: list[SideRows]) -> Iterator[pa.RecordBatch]:
        places = sides[0].places(rows)
        for begin, end in self._pieces(sides[0].sizes(places)):
            self.counts.unmatched += end - begin
            yield self._batch(sides, places[begin:end], np.full(end - begin, -1, np.int64), None)

    def _pieces(self, sizes: Int64s) -> Iterator[tuple[int, int]]:
        """Cut rows so that two pieces fit the memory for output: who took one may hold it while the next is built."""
        ends = np.cumsum(sizes)
        begin = 0
        while begin < len(sizes):
            taken = int(ends[begin - 1]) if begin else 0
            end = max(begin + 1, int(np.searchsorted(ends, taken + self._output.limit_bytes // 2, side="right")))
            self._output.hold(min(self._output.limit_bytes, 2 * (int(ends[end - 1]) - taken)))
            yield begin, end
            begin = end
        self._output.hold(0)

    def _holds(self, sides: list[SideRows], places_a: Int64s, places_b: Int64s) -> Flags | None:
        condition = self._plan.condition
        if condition.residual is None:
            return None
        columns = {}
        for side, places in enumerate((places_a, places_b)):
            names = condition.residual_columns[side]
            for name, column in zip(names, sides[side].columns(places, names), strict=True):
                columns[side, name] = column
        flags: Flags = is_true(condition.residual, columns).to_numpy(zero_copy_only=False)
        return flags

    def _batch(
        self, sides: list[SideRows], places_a: Int64s, places_b: Int64s, sample: pa.Array | None
    ) -> pa.RecordBatch:
        columns: list[pa.Array] = []
        for side, places in enumerate((places_a, places_b)):
            names = [column.source for column in self._plan.output if column.side == side]
            columns += sides[side].columns(places, names)
        names = [column.name for column in self._plan.output]
        if self._plan.shed == "sample":
            columns.append(sample)
            names.append("sample")
        return pa.RecordBatch.from_arrays(columns, names=names)

    def _sample(self, pairs: Pairs, chosen: Int64s) -> pa.Array | None:
        if self._plan.shed != "sample":
            return None
        a_probed = pairs.a_is_later[chosen]
        ones = np.ones(len(chosen))
        row_a, row_b = pairs.row_a[chosen], pairs.row_b[chosen]
        probe_share = ones if pairs.probe_share is None else pairs.probe_share[chosen]
        held_share = ones if pairs.held_share is None else pairs.held_share[chosen]
        columns = [
            1.0 / (probe_share * held_share),
            np.full(len(chosen), self._partition, np.int32),
            pa.array(["b", "a"]).take(pa.array(a_probed.astype(np.int8))),
            np.where(a_probed, row_a, row_b),
            probe_share,
            np.where(a_probed, row_b, row_a),
            held_share,
        ]
        return pa.StructArray.from_arrays([pa.array(column) for column in columns], fields=list(SAMPLE_TYPE))

    # The end of the batch --------------------------------------------------------------------------------------------

    def _check_balance(self, join: WindowJoin | PerKeyJoin, sequence: RowSequence, candidates: int) -> None:
        found = sum(counts.pairs for counts in join.counts)
        accepted = tuple(counts.arrivals for counts in join.counts)
        dropped = self.counts.candidates - self.counts.pairs
        if accepted != sequence.after.rows or found != candidates or dropped < 0:
            raise BalanceBroken(
                "a batch of a window join does not balance",
                given=f"{accepted} rows accepted, {found} pairs found, {candidates} put out or dropped",
                allowed=f"{sequence.after.rows} rows accepted, as many pairs put out or dropped as found",
                hint=OUR_FAULT,
            )

    def _leave(
        self, sequence: RowSequence, join: WindowJoin | PerKeyJoin, staying: Staying, matched: Matched | None
    ) -> None:
        """Write the run of this batch; merge and remove older ones."""
        assert self._state is not None, "only a streaming query has state"
        keys, payload = [], []
        for side in (0, 1):
            stays = staying.new_stays[side]
            keys.append(sequence.keys[side].take(stays))
            batch = sequence.payload[side]
            payload.append((batch if stays.all() else batch.filter(pa.array(stays)),) if stays.any() else ())
        run = Run(
            keys=(keys[0], keys[1]),
            payload=(payload[0], payload[1]),
            schemas=self._plan.schemas,
            before=self._own,
            matched=matched.new_and_staying(staying) if matched else np.empty(0, np.int64),
            held=staying.sample,
            levels=staying.levels,
        )
        self._state.finish(run, sequence.after)
        if not self._restored.was_thinned_out:
            self._state.merge(self._restored.kept, self._plan.retained_batches)

    def _count_input(self, sequence: RowSequence) -> None:
        self.counts.rows_in_a, self.counts.rows_in_b = (len(valid) for valid in sequence.valid)
        self.counts.null_keys = sum(int(np.count_nonzero(~valid)) for valid in sequence.valid)

    def _count_join(self, join: WindowJoin | PerKeyJoin) -> None:
        self.counts.late = sum(counts.rows_late for counts in join.counts)
        self.counts.shed = sum(counts.rows_shed for counts in join.counts)
        self.counts.probes_skipped = sum(counts.probes_skipped for counts in join.counts)
        self.counts.held_rows = sum(join.held_rows)
        self.counts.bytes_held = sum(budget.peak_bytes for budget in self._budgets)

    def take_counts(self, *, carries_row: bool = True) -> list[int]:
        """Everything counted since the last call."""
        self.counts.carries_row = int(carries_row)
        counts, self.counts = self.counts, WindowCounts()
        return counts.as_list()
