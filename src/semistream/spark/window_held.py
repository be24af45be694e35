"""Which rows the windows held before a micro-batch, which stay after it, and which of `a` have found a partner.

All of it follows from marks and counters (`semistream.window.state.Reach`) and not from what an index happens to hold,
so that it is the same in every try. Only where rows are shed is the join asked which it has kept.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.spark.window_plan import WindowPlan
from semistream.spark.window_sequence import RowSequence
from semistream.window.join import WindowJoin
from semistream.window.per_key import PerKeyJoin
from semistream.window.pieces import HeldRows
from semistream.window.run_file import Counters, Held, Keys, Run

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Restored:
    """Rows of the runs before this batch, and which of them the windows held."""

    def __init__(self, plan: WindowPlan, runs: list[Run], keys: tuple[Keys, Keys], own: Counters) -> None:
        self.keys = keys
        self.runs = runs
        self.levels = runs[-1].levels if runs else (0, 0)
        self._sample = runs[-1].held if runs else None
        self.alive: list[Flags] = []
        self._tags: list[npt.NDArray[np.uint8]] = []
        for side in (0, 1):
            tags = np.zeros(len(keys[side]), np.uint8)
            if plan.per_key:
                alive = np.ones(len(keys[side]), np.bool_)
            else:
                alive = plan.reach.alive(side, keys[side].mark, own)
            if self._sample is not None:
                held = self._sample[side]
                places = np.searchsorted(held.row, keys[side].row)
                places[places == len(held.row)] = 0
                is_held = held.row[places] == keys[side].row if len(held.row) else np.zeros(len(alive), np.bool_)
                alive &= is_held
                tags[is_held] = held.tag[places[is_held]]
            self.alive.append(alive)
            self._tags.append(tags)
        if plan.per_key:
            self.alive = list(PerKeyJoin.alive_of(plan.windows, keys))

    def held(self) -> tuple[HeldRows, HeldRows]:
        """What the windows held, as the join takes it."""
        found = []
        for keys, alive, tags in zip(self.keys, self.alive, self._tags, strict=True):
            kept = keys if alive.all() else keys.take(alive)
            found.append(HeldRows(kept.code, kept.row, kept.mark, tags[alive]))
        return found[0], found[1]


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
                old = restored.alive[side].copy()
                old[old] = stays[side][: int(old.sum())]
                new = sequence.valid[side].copy()
                new[new] = stays[side][len(stays[side]) - int(new.sum()) :]
                self.old_stays.append(old)
                self.new_stays.append(new)
        else:
            reach, after = plan.reach, sequence.after
            for side in (0, 1):
                self.old_stays.append(restored.alive[side] & reach.alive(side, restored.keys[side].mark, after))
                new = sequence.valid[side] & reach.alive(side, sequence.keys[side].mark, after)
                self.new_stays.append(new)
            if plan.shed == "sample":
                self._note_sample(plan, join, restored, sequence)
        if is_end:
            for flags in (*self.old_stays, *self.new_stays):
                flags[:] = False

    def _note_sample(self, plan: WindowPlan, join: WindowJoin, restored: Restored, sequence: RowSequence) -> None:
        """Where rows of older runs were shed and would be missed, or were sampled, note which are held."""
        snapshot = join.snapshot()
        self.levels = snapshot.levels
        held = []
        is_whole = not any(snapshot.levels)
        for side, rows in enumerate(snapshot.held):
            # Rows that were shed in the batch in which they came are not written at all.
            self.new_stays[side] &= np.isin(sequence.keys[side].row, rows.row, assume_unique=True)
            in_reach = plan.reach.alive(side, restored.keys[side].mark, sequence.after)
            is_held = np.isin(restored.keys[side].row, rows.row, assume_unique=True)
            is_whole &= not (in_reach & ~is_held).any() and not rows.tag.any()
            held.append(Held(rows.row, rows.tag))
        if not is_whole:
            self.sample = held[0], held[1]


class Matched:
    """Left joins: rows of a that have found a partner."""

    def __init__(self, restored: Restored, sequence: RowSequence, before: Counters) -> None:
        self._rows = restored.keys[0].row
        self._old = np.zeros(len(self._rows), np.bool_)
        self._first_row = before.rows[0]
        known = np.concatenate([np.empty(0, np.int64), *(run.matched for run in restored.runs)])
        self._old[np.isin(self._rows, known)] = True
        self._known_before = self._old.copy()
        self._new = np.zeros(len(sequence.keys[0]), np.bool_)
        self._restored = restored

    def note(self, rows: Int64s) -> None:
        """These rows have a partner."""
        is_new = rows >= self._first_row
        self._new[rows[is_new] - self._first_row] = True
        self._old[np.searchsorted(self._rows, rows[~is_new])] = True

    def alone(self, staying: Staying) -> Int64s:
        """Rows that have left, or never were in their window, and have no partner."""
        old = self._restored.alive[0] & ~staying.old_stays[0] & ~self._old
        new = ~staying.new_stays[0] & ~self._new
        return np.concatenate([self._rows[old], self._first_row + np.flatnonzero(new)])

    def new_and_staying(self, staying: Staying) -> Int64s:
        """Rows that this batch found a partner for and that later batches will ask about."""
        old = self._old & ~self._known_before & staying.old_stays[0]
        new = self._new & staying.new_stays[0]
        return np.concatenate([self._rows[old], self._first_row + np.flatnonzero(new)])
