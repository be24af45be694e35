"""Which rows the windows held before a micro-batch, which stay after it, and which of `a` have found a partner.

All of it follows from marks and counters (`semistream.window.state.Reach`) and not from what an index happens to hold,
so that it is the same in every try. Only where rows are shed is the join asked which it has kept.

Runs hold more rows than the windows: some are out of reach by now, some were shed since. Runs are read in pieces where
they are mapped, and only rows that the windows held are copied, into arrays that are charged to an account. Where the
windows may be shed and even those rows are too many, because the query was given less memory than before, the side that
has more of them is thinned out as the join itself would do it.

Memory: `restored_row_bytes` for each row that is held.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from semistream.budget import Account
from semistream.spark.window_plan import WindowPlan
from semistream.spark.window_sequence import RowSequence
from semistream.window.join import WindowJoin
from semistream.window.per_key import PerKeyJoin
from semistream.window.pieces import HeldRows
from semistream.window.run_file import Counters, Held, Keys, Run
from semistream.window.shedding import LEVEL_MAX, SHARES, held_at
from semistream.window.state import Kept

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

PIECE_ROWS = 65_536
"""Rows of a run that are looked at at a time."""

ROW_BYTES = 33
"""Row number, code, mark and place, and a level."""

SAMPLE_BYTES = 9
"""What a row of a sample takes besides: a column while rows are thinned out, and its number and level at the end."""


def restored_row_bytes(plan: WindowPlan) -> int:
    """What a row takes until the batch is done."""
    return ROW_BYTES + SAMPLE_BYTES if plan.shed == "sample" else ROW_BYTES


class _Rows:
    """Rows of one side, added piece by piece."""

    def __init__(self, rows_max: int) -> None:
        # Memory is taken when it is written to, so room for more than there will be costs nothing.
        self._numbers: tuple[Int64s, ...] = tuple(np.empty(rows_max, np.int64) for _ in range(4))
        self._tags: Bytes = np.empty(rows_max, np.uint8)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def kept(self) -> Kept:
        row, code, mark, places = (column[: self._count] for column in self._numbers)
        return Kept(Keys(row, code, mark), places)

    @property
    def tags(self) -> Bytes:
        return self._tags[: self._count]

    def add(self, keys: Keys, places: Int64s, tags: Bytes) -> None:
        end = self._count + len(keys)
        for column, values in zip(self._numbers, (keys.row, keys.code, keys.mark, places), strict=True):
            column[self._count : end] = values
        self._tags[self._count : end] = tags
        self._count = end

    def filter(self, stays: Flags) -> None:
        """Let go of all other rows."""
        before, self._count = self._count, int(np.count_nonzero(stays))
        for column in self._numbers:
            column[: self._count] = column[:before][stays]
        self._tags[: self._count] = self._tags[:before][stays]


class Restored:
    """Rows of the runs before this batch that the windows held."""

    def __init__(self, plan: WindowPlan, partition: int, runs: list[Run], own: Counters, account: Account) -> None:
        self._plan = plan
        self._seed = plan.seed_of(partition)
        self._own = own
        self._account = account
        self._row_bytes = restored_row_bytes(plan)
        self.runs = runs
        self._levels = list(runs[-1].levels if runs else (0, 0))
        self._before = tuple(self._levels)
        self._newest_left_out: list[int | None] = [None, None]
        self.shed_rows = [0, 0]
        """Rows that were held before and are too many now."""
        rows_max = account.free_bytes // self._row_bytes
        self._rows = [_Rows(min(rows_max, sum(len(run.keys[side]) for run in runs))) for side in (0, 1)]
        for side in (0, 1):
            for keys, places, tags in self._pieces(side):
                self._add(side, keys, places, tags)
        if plan.per_key:
            alive = PerKeyJoin.alive_of(plan.windows, (self.kept[0].keys, self.kept[1].keys))
            for rows, flags in zip(self._rows, alive, strict=True):
                rows.filter(flags)

    @property
    def kept(self) -> tuple[Kept, Kept]:
        """The rows, and where they stand in the runs."""
        return self._rows[0].kept, self._rows[1].kept

    @property
    def levels(self) -> tuple[int, int]:
        """Levels of the shares with which new rows are held."""
        return self._levels[0], self._levels[1]

    @property
    def was_thinned_out(self) -> bool:
        """Whether rows had to go that the runs tell of as held."""
        return tuple(self._levels) != self._before

    @property
    def is_sample(self) -> bool:
        """Whether rows of the windows are missing."""
        return any(self._levels) or bool(self.runs and self.runs[-1].held is not None)

    def held(self) -> tuple[HeldRows, HeldRows]:
        """What the windows held, as the join takes it."""
        a, b = (
            HeldRows(kept.keys.code, kept.keys.row, kept.keys.mark, rows.tags)
            for kept, rows in zip(self.kept, self._rows, strict=True)
        )
        return a, b

    def full_rows(self, side: int) -> float:
        """How many rows the window would have had if none had been shed, as far as those that are held tell."""
        return float((1.0 / SHARES[self._rows[side].tags]).sum())

    def misses_rows(self, side: int, now: Counters) -> bool:
        """Whether the runs have rows that the window would hold if none had been shed."""
        mark = self._newest_left_out[side]
        return mark is not None and bool(self._plan.reach.alive(side, np.array([mark]), now)[0])

    def _pieces(self, side: int) -> Iterator[tuple[Keys, Int64s, Bytes]]:
        """Rows of the runs that the window held, with their places and levels."""
        sample = self.runs[-1].held if self.runs else None
        first = 0
        for run in self.runs:
            for begin in range(0, len(run.keys[side]), PIECE_ROWS):
                keys = run.keys[side].take(slice(begin, begin + PIECE_ROWS))
                is_in = np.ones(len(keys), np.bool_)
                if not self._plan.per_key:
                    is_in = self._plan.reach.alive(side, keys.mark, self._own)
                tags = np.zeros(len(keys), np.uint8)
                if sample is not None:
                    places, is_held = _found(keys.row, sample[side].row)
                    tags[is_held] = sample[side].tag[places[is_held]]
                    self._note_left_out(side, keys.mark[is_in & ~is_held])
                    is_in &= is_held
                chosen = np.flatnonzero(is_in)
                yield keys.take(chosen), first + begin + chosen, tags[chosen]
            first += len(run.keys[side])

    def _add(self, side: int, keys: Keys, places: Int64s, tags: Bytes) -> None:
        while len(keys) and self._plan.shed == "sample":
            if self._levels[side] > self._before[side]:
                keys, places, tags = self._thinned(side, keys, places, tags)
            if self._row_bytes * len(keys) <= self._account.free_bytes or min(self._levels) == LEVEL_MAX:
                break
            more = side if len(self._rows[side]) + len(keys) >= len(self._rows[1 - side]) else 1 - side
            self._thin_out(more)
        self._account.take(self._row_bytes * len(keys))
        self._rows[side].add(keys, places, tags)

    def _thin_out(self, side: int) -> None:
        """Hold a smaller share of a side from now on."""
        self._levels[side] += 1
        rows = self._rows[side]
        before = len(rows)
        stays = held_at(self._levels[side], rows.kept.keys.row, number=side, seed=self._seed)
        self._note_left_out(side, rows.kept.keys.mark[~stays])
        rows.filter(stays)
        np.maximum(rows.tags, np.uint8(self._levels[side]), out=rows.tags)
        self.shed_rows[side] += before - len(rows)
        self._account.give_back(self._row_bytes * (before - len(rows)))

    def _thinned(self, side: int, keys: Keys, places: Int64s, tags: Bytes) -> tuple[Keys, Int64s, Bytes]:
        level = self._levels[side]
        stays = held_at(level, keys.row, number=side, seed=self._seed)
        self.shed_rows[side] += len(keys) - int(np.count_nonzero(stays))
        self._note_left_out(side, keys.mark[~stays])
        return keys.take(stays), places[stays], np.maximum(tags[stays], np.uint8(level))

    def _note_left_out(self, side: int, marks: Int64s) -> None:
        if len(marks):
            newest, before = int(marks.max()), self._newest_left_out[side]
            self._newest_left_out[side] = newest if before is None else max(before, newest)


def _found(rows: Int64s, among: Int64s) -> tuple[Int64s, Flags]:
    """Where numbers stand among others, all ascending, and whether they do."""
    if not len(among):
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    places = np.minimum(np.searchsorted(among, rows), len(among) - 1)
    return places, among[places] == rows


class Staying:
    """Which rows are still in their windows when a batch is done."""

    def __init__(
        self, plan: WindowPlan, restored: Restored, sequence: RowSequence, join: WindowJoin | PerKeyJoin, is_end: bool
    ) -> None:
        self.old_stays: list[Flags] = []
        self.new_stays: list[Flags] = []
        self.sample: tuple[Held, Held] | None = None
        self.levels = (0, 0)
        if isinstance(join, PerKeyJoin):
            stays = join.stays()
            for side in (0, 1):
                old = len(restored.kept[side])
                new = sequence.valid[side].copy()
                new[new] = stays[side][old:]
                self.old_stays.append(stays[side][:old])
                self.new_stays.append(new)
        else:
            reach, after = plan.reach, sequence.after
            for side in (0, 1):
                self.old_stays.append(reach.alive(side, restored.kept[side].keys.mark, after))
                new = sequence.valid[side] & reach.alive(side, sequence.keys[side].mark, after)
                self.new_stays.append(new)
            if plan.shed == "sample":
                self._note_sample(join, restored, sequence)
        if is_end:
            for flags in (*self.old_stays, *self.new_stays):
                flags[:] = False

    def _note_sample(self, join: WindowJoin, restored: Restored, sequence: RowSequence) -> None:
        """Where rows of older runs were shed and would be missed, or were sampled, note which are held."""
        self.levels = join.levels
        held = []
        is_whole = not any(self.levels)
        for side, (rows, tags) in enumerate(join.sample()):
            # Rows that were shed in the batch in which they came are not written at all.
            self.new_stays[side] &= _found(sequence.keys[side].row, rows)[1]
            is_held = _found(restored.kept[side].keys.row, rows)[1]
            is_whole &= not restored.misses_rows(side, sequence.after)
            is_whole &= not (self.old_stays[side] & ~is_held).any() and not tags.any()
            held.append(Held(rows, tags))
        if not is_whole:
            self.sample = held[0], held[1]


class Matched:
    """Left joins: rows of a that have found a partner."""

    def __init__(self, restored: Restored, sequence: RowSequence, before: Counters) -> None:
        self._rows = restored.kept[0].keys.row
        self._old = np.zeros(len(self._rows), np.bool_)
        self._first_row = before.rows[0]
        known = np.concatenate([np.empty(0, np.int64), *(run.matched for run in restored.runs)])
        self._old[np.isin(self._rows, known)] = True
        self._known_before = self._old.copy()
        self._new = np.zeros(len(sequence.keys[0]), np.bool_)

    def note(self, rows: Int64s) -> None:
        """These rows have a partner."""
        is_new = rows >= self._first_row
        self._new[rows[is_new] - self._first_row] = True
        self._old[np.searchsorted(self._rows, rows[~is_new])] = True

    def alone(self, staying: Staying) -> Int64s:
        """Rows that have left, or never were in their window, and have no partner."""
        old = ~staying.old_stays[0] & ~self._old
        new = ~staying.new_stays[0] & ~self._new
        return np.concatenate([self._rows[old], self._first_row + np.flatnonzero(new)])

    def new_and_staying(self, staying: Staying) -> Int64s:
        """Rows that this batch found a partner for and that later batches will ask about."""
        old = self._old & ~self._known_before & staying.old_stays[0]
        new = self._new & staying.new_stays[0]
        return np.concatenate([self._rows[old], self._first_row + np.flatnonzero(new)])
