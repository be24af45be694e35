"""The rows of a micro-batch in one sequence, and where the payload of any row of a window lies.

A shuffle keeps no order, so the sequence is made here: by `order_by`, else by time, then by side, and where it still
matters by a hash of the whole row, which Spark computes. Rows that are equal in all of it may change places without
anybody noticing. So every try at a batch sees the same sequence. Where rows have the time of their batch and no window
counts them, nothing depends on the order and nothing is sorted.

Memory: the columns of the batch once more where they had to be sorted, and 40 bytes a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.keys import KeyCodec
from semistream.spark.window_plan import WindowPlan
from semistream.structures.columns import Layout, layout_of, row_bytes
from semistream.structures.window_state import BY_ARRIVAL, BY_ROW
from semistream.window.pieces import Arrivals
from semistream.window.run_file import NO_CLOCK, Counters, Keys, Run
from semistream.window.state import Kept, by_batch, gathered

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

US_PER_DAY = 86_400_000_000


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The rows that a micro-batch brings to a partition, as they came."""

    payload: tuple[pa.RecordBatch, pa.RecordBatch]
    accepted_us: int
    """When the batch began."""
    ties: tuple[Int64s, Int64s] | None
    """A hash of every row, where the order of rows that are otherwise equal matters."""


@dataclass(frozen=True, slots=True)
class RowSequence:
    """Rows in their order."""

    arrivals: Arrivals
    payload: tuple[pa.RecordBatch, pa.RecordBatch]
    """The rows of each side, in the order of the sequence."""
    keys: tuple[Keys, Keys]
    valid: tuple[Flags, Flags]
    after: Counters


def in_sequence(plan: WindowPlan, rows: BatchRows, before: Counters) -> RowSequence:
    """Put rows into sequence, behind what was counted before."""
    lengths = tuple(batch.num_rows for batch in rows.payload)
    times, timed = _times(plan, rows, before)
    order = _order(plan, rows, times)
    side = np.repeat(np.array([0, 1], np.int8), lengths)[order]
    payload, code, low, high, valid = [], [], [], [], []
    for number, batch in enumerate(rows.payload):
        codes = plan.condition.predicate.encode(number, dict(zip(batch.schema.names, batch.columns, strict=True)))
        code.append(codes.code)
        low.append(codes.low)
        high.append(codes.high)
        valid.append(codes.valid)
        own = order[side == number] - number * lengths[0]
        payload.append(batch if _is_as_it_was(own) else batch.take(pa.array(own)))
    time_us = np.concatenate(times)[order]
    all_valid = (np.concatenate(valid) & timed)[order]
    all_codes = np.concatenate(code)[order]
    arrivals = Arrivals(side, all_codes, np.concatenate(low)[order], np.concatenate(high)[order], all_valid, time_us)
    keys = []
    for number in (0, 1):
        own = np.flatnonzero(side == number)
        row = before.rows[number] + np.arange(len(own))
        kind = plan.windows[number].kind
        # Each key's own window is restored from the order of all rows.
        by_arrival = kind == BY_ARRIVAL or plan.per_key
        mark = before.arrivals + own if by_arrival else row if kind == BY_ROW else time_us[own]
        keys.append(Keys(row, all_codes[own], mark))
    clock_us = before.clock_us
    if len(time_us) and plan.has_clock:
        clock_us = max(clock_us, int(time_us.max()))
    elif len(time_us) and plan.probes_per_s is not None:
        # Windows that count rows need no clock, but what a second is has to be known.
        clock_us = max(clock_us, rows.accepted_us)
    after = Counters((before.rows[0] + lengths[0], before.rows[1] + lengths[1]), clock_us)
    valid_a, valid_b = (all_valid[side == number] for number in (0, 1))
    return RowSequence(arrivals, (payload[0], payload[1]), (keys[0], keys[1]), (valid_a, valid_b), after)


def _is_as_it_was(order: Int64s) -> bool:
    return bool((order == np.arange(len(order))).all())


def _times(plan: WindowPlan, rows: BatchRows, before: Counters) -> tuple[tuple[Int64s, Int64s], Flags]:
    """The time of every row, and whether it has one; one that has none does not move the clock."""
    lengths = [batch.num_rows for batch in rows.payload]
    everywhere = np.ones(sum(lengths), np.bool_)
    if plan.time is None or not plan.has_clock:
        accepted_us = rows.accepted_us if plan.has_clock else 0
        return (np.full(lengths[0], accepted_us, np.int64), np.full(lengths[1], accepted_us, np.int64)), everywhere
    found, known = [], []
    for batch, name in zip(rows.payload, plan.time, strict=True):
        column = batch.column(name)
        unit_us = US_PER_DAY if pa.types.is_date(column.type) else 1
        encoded = KeyCodec([column.type], [name]).encode([column])
        found.append(encoded.codes * unit_us)
        known.append(np.ones(batch.num_rows, np.bool_) if encoded.null is None else ~encoded.null)
    if not all(flags.all() for flags in known):
        earliest = min((int(t[k].min()) for t, k in zip(found, known, strict=True) if k.any()), default=0)
        filler = earliest if before.clock_us == NO_CLOCK else min(earliest, before.clock_us)
        found = [np.where(k, t, filler) for t, k in zip(found, known, strict=True)]
    return (found[0], found[1]), np.concatenate(known)


def _order(plan: WindowPlan, rows: BatchRows, times: tuple[Int64s, Int64s]) -> Int64s:
    """Places of rows, those of a before those of b, in the order of the sequence."""
    lengths = [batch.num_rows for batch in rows.payload]
    keys: list[npt.NDArray[np.generic]] = []
    for name_a, name_b in zip(*plan.order_by, strict=True):
        keys += _ranks(rows.payload[0].column(name_a), rows.payload[1].column(name_b))
    if plan.time is not None:
        keys.append(np.concatenate(times))
    if rows.ties is not None:
        keys += [np.repeat(np.array([0, 1], np.int8), lengths), np.concatenate(rows.ties)]
    if not keys:
        return np.arange(sum(lengths))
    if len(keys) == 1:
        return np.argsort(keys[0], kind="stable")
    # The last key is the most significant one for NumPy.
    return np.lexsort(keys[::-1])


def _ranks(column_a: pa.Array, column_b: pa.Array) -> list[npt.NDArray[np.generic]]:
    """Numbers in the order of the values of two columns that can be compared; nulls come first."""
    codecs = [KeyCodec([column.type]) for column in (column_a, column_b)]
    if all(codec.exact for codec in codecs):
        encoded = [codec.encode([column]) for codec, column in zip(codecs, (column_a, column_b), strict=True)]
        null = [np.zeros(len(e.codes), np.bool_) if e.null is None else e.null for e in encoded]
        codes = np.concatenate([np.where(n, 0, e.codes) for n, e in zip(null, encoded, strict=True)])
        nulls = np.concatenate(null)
        return [~nulls, codes] if nulls.any() else [codes]
    both = pa.concat_arrays([column_a, column_b.cast(column_a.type)])
    return [pc.rank(both, null_placement="at_start", tiebreaker="dense").to_numpy()]


class SideRows:
    """The payload of one side: rows of runs, as far as they are in reach, and those of the batch behind them."""

    def __init__(
        self, runs: Sequence[Run], side: int, kept: Kept, batch: pa.RecordBatch, first_row: int, wanted: Sequence[str]
    ) -> None:
        self._batches = [*(piece for run in runs for piece in run.payload[side]), batch]
        self._starts = np.cumsum([0, *(piece.num_rows for piece in self._batches)])[:-1]
        self._kept = kept
        self._first_row = first_row
        self._wanted = [name for name in batch.schema.names if name in set(wanted)]
        self._schema = batch.schema
        fields = [batch.schema.field(name) for name in self._wanted]
        self._is_fixed = all(layout_of(field.type) in (Layout.FIXED, Layout.BITS) for field in fields)

    def places(self, rows: Int64s) -> Int64s:
        """Where rows stand, by their numbers."""
        places: Int64s = self._starts[-1] + rows - self._first_row
        is_old = np.flatnonzero(rows < self._first_row)
        if len(is_old):
            old, known = rows[is_old], self._kept.keys.row
            is_gapless = known[-1] - known[0] + 1 == len(known)
            places[is_old] = self._kept.places[old - known[0] if is_gapless else np.searchsorted(known, old)]
        return places

    def columns(self, places: Int64s, names: Sequence[str]) -> list[pa.Array]:
        """Some columns of rows, by place; a place of -1 stands for nulls."""
        schema = pa.schema([self._schema.field(name) for name in names])
        return gathered(self._batches, self._starts, places, schema)

    def sizes(self, places: Int64s) -> Int64s:
        """Arrow bytes that the wanted columns of rows take."""
        newest = self._batches[-1].select(self._wanted)
        if self._is_fixed or not len(places):
            return np.full(len(places), int(row_bytes(newest, np.zeros(1, np.int64))[0]) if self._wanted else 0)
        sizes = np.zeros(len(places), np.int64)
        for number, rows, own in by_batch(self._starts, places):
            sizes[own] = row_bytes(self._batches[number].select(self._wanted), rows)
        return sizes
