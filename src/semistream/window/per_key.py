"""Count windows of single keys: each key has its own last n rows of either side.

That is another join than one over windows of the whole streams: how many rows of *other* keys come in between does not
matter. y is in reach of a later row x of the other side with the same key iff, counting rows of that key only,

- rows(n):     accepted(side of y) - row(y) <= n
- arrivals(n): arrival(x) - arrival(y) <= n

A piece is joined at once: all rows are sorted by key and arrival, and the partners of a row are a stretch of the other
side's rows in that order, whose ends are differences of running counts. Nothing is kept in between but the rows that
are still in reach, up to n a key and side: without end if new keys keep coming. Memory: 80 bytes for each of them and
for each row of the piece while it is joined; a budget that is too small is an error.

Where keys are hashed, two keys with one code share their windows. The chance is one in 2^64 for each pair of keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semistream.budget import MemoryBudget
from semistream.structures.window_state import BY_ROW
from semistream.window.pieces import Arrivals, HeldRows, Pairs, SideCounts, Snapshot
from semistream.window.run_file import NO_KEYS, Keys
from semistream.window.windows import Window

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

ROW_BYTES = 80
PAIRS_PER_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Rows of both sides by key and arrival."""

    order: Int64s
    """Places of the rows, those of A before those of B, in this order."""
    is_b: Flags
    before: tuple[Int64s, Int64s]
    """How many rows of A, and of B, stand before each place; one longer than there are rows."""
    key_begin: Int64s
    """Where the key of each place begins."""
    key_end: Int64s

    @staticmethod
    def of(keys: tuple[Keys, Keys]) -> _Sorted:
        code = np.concatenate([keys[0].code, keys[1].code])
        order = np.lexsort((np.concatenate([keys[0].mark, keys[1].mark]), code))
        is_b = order >= len(keys[0])
        code = code[order]
        begins = np.flatnonzero(np.concatenate([[True], code[1:] != code[:-1]])) if len(code) else np.empty(0, np.int64)
        lengths = np.diff(np.append(begins, len(code)))
        before = tuple(np.concatenate([[0], np.cumsum(is_b == number)]) for number in (False, True))
        return _Sorted(
            order, is_b, (before[0], before[1]), np.repeat(begins, lengths), np.repeat(begins + lengths, lengths)
        )

    def stays(self, windows: tuple[Window, Window], count_a: int) -> tuple[Flags, Flags]:
        """Which rows of each side the next row of their key can still meet."""
        place = np.arange(len(self.order))
        flags = np.zeros(len(self.order), np.bool_)
        for side, window in enumerate(windows):
            if window.kind == BY_ROW:
                distance = self.before[side][self.key_end] - self.before[side][place]
            else:
                distance = self.key_end - place
            own = self.is_b == bool(side)
            flags[self.order[own]] = distance[own] <= window.span
        return flags[:count_a], flags[count_a:]


class PerKeyJoin:
    """Joins two streams over count windows of single keys; the counterpart of `WindowJoin`.

    Example:
        >>> from semistream.budget import MIB
        >>> from semistream.window.windows import rows
        >>> join = PerKeyJoin(rows(1), rows(1), budget=MemoryBudget(1 * MIB))
        >>> key = np.array([7, 8, 8, 7])
        >>> piece = Arrivals(np.array([0, 0, 1, 1], np.int8), key, key, key, np.ones(4, bool), np.arange(4))
        >>> [(pairs.row_a.tolist(), pairs.row_b.tolist()) for pairs in join.push(piece)]
        [([0, 1], [1, 0])]
    """

    def __init__(self, window_a: Window, window_b: Window, *, budget: MemoryBudget) -> None:
        assert not window_a.is_time, "a window of time is the same for all keys"
        assert not window_b.is_time, "a window of time is the same for all keys"
        self._windows = window_a, window_b
        self._account = budget.account("windows of keys")
        self._keys = NO_KEYS, NO_KEYS
        self._stays: tuple[Flags, Flags] = np.empty(0, np.bool_), np.empty(0, np.bool_)
        self._rows = [0, 0]
        self._pairs = [0, 0]
        self._arrived = 0

    @staticmethod
    def alive_of(windows: tuple[Window, Window], keys: tuple[Keys, Keys]) -> tuple[Flags, Flags]:
        """Which of these rows, whose marks are arrivals, are in reach when they are the newest of their keys."""
        return _Sorted.of(keys).stays(windows, len(keys[0]))

    @property
    def counts(self) -> tuple[SideCounts, SideCounts]:
        """What has happened to the rows of A and of B."""
        a, b = (SideCounts(self._rows[s], self._pairs[s], self._rows[s], 0, 0, 0) for s in (0, 1))
        return a, b

    @property
    def held_rows(self) -> tuple[int, int]:
        """Rows in the windows of A and of B."""
        return int(self._stays[0].sum()), int(self._stays[1].sum())

    def restore(self, snapshot: Snapshot) -> None:
        """Go on where another join stood; marks are arrivals."""
        self._keys = _as_keys(snapshot.held[0]), _as_keys(snapshot.held[1])
        self._stays = np.ones(len(self._keys[0]), np.bool_), np.ones(len(self._keys[1]), np.bool_)
        self._rows = [counts.arrivals for counts in snapshot.counts]
        self._arrived = snapshot.arrived

    def push(self, arrivals: Arrivals) -> Iterator[Pairs]:
        """Accept the next piece of the sequence and yield its pairs; one piece only."""
        self._account.hold(ROW_BYTES * (len(arrivals) + sum(map(len, self._keys))))
        held = len(self._keys[0]), len(self._keys[1])
        keys = []
        for side in (0, 1):
            own = np.flatnonzero(arrivals.side == side)
            row = self._rows[side] + np.arange(len(own))
            new = Keys(row, arrivals.code[own], self._arrived + own)
            keys.append(Keys.joined([self._keys[side], new.take(arrivals.valid[own])]))
            self._rows[side] += len(own)
        self._arrived += len(arrivals)
        self._keys = keys[0], keys[1]
        ordered = _Sorted.of(self._keys)
        self._stays = ordered.stays(self._windows, len(keys[0]))
        is_new = np.concatenate([np.arange(len(keys[s])) >= held[s] for s in (0, 1)])[ordered.order]
        for side in (0, 1):
            yield from self._probe(ordered, np.flatnonzero(is_new & (ordered.is_b == bool(side))), side)

    def stays(self) -> tuple[Flags, Flags]:
        """For each side, which of the rows held before and the valid rows of the piece, in order, are in reach."""
        return self._stays

    def _probe(self, ordered: _Sorted, places: Int64s, side: int) -> Iterator[Pairs]:
        """Pairs of the rows of a side at these places with earlier ones of the other side."""
        other = 1 - side
        window = self._windows[other]
        before = ordered.before[other]
        end = before[places]
        first = before[ordered.key_begin[places]]
        if window.kind == BY_ROW:
            first = np.maximum(first, end - window.span)
        else:
            first = before[np.maximum(ordered.key_begin[places], places - window.span)]
        others = ordered.order[ordered.is_b == bool(other)]
        counts = end - first
        ends = np.cumsum(counts)
        at = 0
        while at < len(places):
            taken = int(ends[at - 1]) if at else 0
            stop = max(at + 1, int(np.searchsorted(ends, taken + PAIRS_PER_PIECE, side="right")))
            each = counts[at:stop]
            own = np.repeat(ordered.order[places[at:stop]], each)
            # From the first partner of each row on, one after the other.
            shift = first[at:stop] - (ends[at:stop] - each - taken)
            found = others[np.repeat(shift, each) + np.arange(int(ends[stop - 1]) - taken)]
            at = stop
            if len(own):
                self._pairs[side] += len(own)
                yield self._as_pairs(own, found, side)

    def _as_pairs(self, own: Int64s, found: Int64s, side: int) -> Pairs:
        place_a, place_b = (own, found) if side == 0 else (found, own)
        row_a = self._keys[0].row[place_a]
        row_b = self._keys[1].row[place_b - len(self._keys[0])]
        return Pairs(row_a, row_b, np.full(len(own), side == 0))


def _as_keys(held: HeldRows) -> Keys:
    return Keys(held.row, held.code, held.mark)
