"""One side of a window join: its ring and its index within an account.

Whatever changes the size or the index of a window goes one way: the ring is turned to begin at its first slot, thinned
out where it must be, given its new capacity, and the index is built anew from it. The columns never move, so no second
copy exists meanwhile, and what is charged is what the capacity takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.budget import Account
from semistream.structures.window_side import (
    choose_rows,
    count_levels,
    expire_rows,
    index_rows,
    probe_rows,
    straighten,
    tag_rows,
    thin_out,
)
from semistream.structures.window_state import (
    BY_ROW,
    CAPACITY,
    CODE0,
    COUNT,
    CURSOR,
    FINISHED,
    HEAD,
    INDEX_REFS,
    INDEX_WORDS,
    INT64_MAX,
    INT64_MIN,
    LEVEL,
    MARK0,
    REACH,
    ROW0,
    SPAN,
    START,
    TAG0,
    WINDOW,
    Bytes,
    Int64s,
    WindowMemory,
)
from semistream.window.pieces import NO_ROWS, HeldRows
from semistream.window.shedding import LEVEL_MAX, set_level
from semistream.window.side_index import SideIndex
from semistream.window.windows import Window

_WORD_BYTES, _REF_BYTES, _TAG_BYTES = 8, 4, 1
_ORDER_BYTES = 16
"""A slot, and what sorting takes for it."""

ROWS_LIMIT = 2**31 - 1
"""Slots are kept in 32 bits."""

FOUND_ROWS = 1024
"""Slots that `WindowSide.probe` takes at a time."""


@dataclass(frozen=True, slots=True)
class SideLayout:
    """How many elements of each array a side of at most `rows_max` rows may need."""

    rows_max: int
    columns: int
    index_words: int
    index_refs: int

    @property
    def words(self) -> int:
        """Elements of `words`."""
        return self.columns * self.rows_max + self.index_words


def side_bytes(window: Window, index: SideIndex, rows_max: int) -> int:
    """Return what a window of `rows_max` rows takes with its index."""
    ring = rows_max * (_column_count(window) * _WORD_BYTES + _TAG_BYTES)
    return ring + _WORD_BYTES * index.words_for(rows_max) + _REF_BYTES * index.refs_for(rows_max)


def rows_fitting(window: Window, index: SideIndex, bytes_max: int) -> int:
    """Return the most rows that a window may have with its index in so many bytes."""
    fits, too_many = 0, 1 + min(window.rows_max or ROWS_LIMIT, ROWS_LIMIT, max(0, bytes_max))
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        if side_bytes(window, index, middle) <= bytes_max:
            fits = middle
        else:
            too_many = middle
    return fits


def layout_of(window: Window, indexes: list[SideIndex], bytes_max: int) -> SideLayout:
    """Return the address space for a window with any of these indexes in at most so many bytes."""
    fitting = [(index, rows_fitting(window, index, bytes_max)) for index in indexes]
    return SideLayout(
        rows_max=max(rows for _, rows in fitting),
        columns=_column_count(window),
        index_words=max(index.words_for(rows) for index, rows in fitting),
        index_refs=max(index.refs_for(rows) for index, rows in fitting),
    )


def _column_count(window: Window) -> int:
    # Where rows are counted, the row number is the mark.
    return 2 if window.kind == BY_ROW else 3


class WindowSide:
    """The window of one side.

    `insert`, `probe` and `expire` are what every index is tested by; the join does the same in compiled code.
    """

    def __init__(
        self,
        memory: WindowMemory,
        side: int,
        window: Window,
        index: SideIndex,
        layout: SideLayout,
        *,
        words_from: int,
        refs_from: int,
        tags_from: int,
        account: Account,
        lateness_us: int = 0,
    ) -> None:
        self.memory = memory
        self.side = side
        self.window = window
        self.index = index
        self.layout = layout
        self._account = account
        state = memory.state
        state[side + WINDOW], state[side + SPAN] = window.kind, window.span
        state[side + REACH] = window.span + (lateness_us if window.is_time else 0)
        state[side + CODE0] = words_from
        state[side + ROW0] = words_from + layout.rows_max
        state[side + MARK0] = words_from + (layout.columns - 1) * layout.rows_max
        state[side + TAG0] = tags_from
        state[side + INDEX_WORDS] = words_from + layout.columns * layout.rows_max
        state[side + INDEX_REFS] = refs_from

    def __len__(self) -> int:
        return int(self.memory.state[self.side + COUNT])

    @property
    def capacity(self) -> int:
        """Rows it has room for."""
        return int(self.memory.state[self.side + CAPACITY])

    @property
    def level(self) -> int:
        """The level of the share with which new rows are held."""
        return int(self.memory.state[self.side + LEVEL])

    @property
    def held_bytes(self) -> int:
        """Bytes taken for its ring and its index."""
        return self._account.used_bytes

    @property
    def rows_possible(self) -> int:
        """The most rows it could have room for, given what is free now."""
        return self.rows_possible_with(self.index)

    def rows_possible_with(self, index: SideIndex) -> int:
        """Return the most rows it could have room for with another index, given what is free now."""
        return rows_fitting(self.window, index, self._account.used_bytes + self._account.free_bytes)

    def rows_within(self, bytes_max: float) -> int:
        """Return the most rows it could have room for in so many bytes."""
        return rows_fitting(self.window, self.index, int(bytes_max))

    def lay_out(self, capacity: int, index: SideIndex | None = None) -> None:
        """Give it room for `capacity` rows, at least those it holds, and build its index, which may be another one."""
        assert capacity >= len(self), f"{len(self)} rows cannot be held in room for {capacity}"
        new_index = index or self.index
        self._account.hold(side_bytes(self.window, new_index, capacity))
        self._straighten()
        self._release_behind(capacity, new_index)
        self.index = new_index
        state = self.memory.state
        state[self.side + CAPACITY] = capacity
        self._rebuild()

    def thin_out(self, rows_max: int) -> int:
        """Lower the share of rows it holds until no more than `rows_max` are left; return how many went."""
        before = len(self)
        self._straighten()
        while len(self) > rows_max and self.level < LEVEL_MAX:
            set_level(self.memory.state, self.side, self.level + 1)
            thin_out(*self.memory.arrays, self.side)
        self._rebuild()
        return before - len(self)

    def insert(self, rows: HeldRows) -> None:
        """Hold rows that arrived after all that are held; there must be room for them."""
        before = len(self)
        if before == 0:
            self.memory.state[self.side + HEAD] = 0
        assert before + len(rows) <= self.capacity, f"no room for {len(rows)} rows beside {before}"
        for column, values in (
            (self._column(CODE0), rows.code),
            (self._column(MARK0), rows.mark),
            (self.rows, rows.row),
            (self.tags, rows.tag),
        ):
            first = (int(self.memory.state[self.side + HEAD]) + before) % self.capacity
            to_the_end = min(len(rows), self.capacity - first)
            column[first : first + to_the_end] = values[:to_the_end]
            column[: len(rows) - to_the_end] = values[to_the_end:]
        self.memory.state[self.side + COUNT] += len(rows)
        if before == 0:
            self._rebuild()
        else:
            index_rows(*self.memory.arrays, self.side, before, NO_ROWS)

    def chosen(self, rows: HeldRows) -> HeldRows:
        """Return those of some rows that the side's share does not leave out, with at least its level."""
        is_held = np.empty(len(rows), np.bool_)
        choose_rows(*self.memory.arrays, self.side, rows.row, is_held)
        tags = np.maximum(rows.tag[is_held], np.uint8(self.level))
        return HeldRows(rows.code[is_held], rows.row[is_held], rows.mark[is_held], tags)

    def expire(self, mark_low: int) -> int:
        """Drop the oldest rows up to the first whose mark is at least `mark_low`; return how many went."""
        gone: int = expire_rows(*self.memory.arrays, self.side, mark_low)
        return gone

    def probe(self, low: int, high: int, *, mark_low: int = INT64_MIN, mark_high: int = INT64_MAX) -> Int64s:
        """Return the numbers of the rows with a code in [low, high] and a mark in [mark_low, mark_high]."""
        memory, found = self.memory, np.empty(FOUND_ROWS, np.int64)
        slots = []
        memory.state[CURSOR] = START
        while memory.state[CURSOR] != FINISHED:
            count = probe_rows(*memory.arrays, self.side, low, high, mark_low, mark_high, found)
            slots.append(found[:count].copy())
        return self._column(ROW0)[np.concatenate(slots)]

    def clear(self) -> None:
        """Hold nothing."""
        self.memory.state[self.side + COUNT] = 0
        self._straighten()
        self._rebuild()

    def held(self) -> HeldRows:
        """Return a copy of all rows, oldest first."""
        return HeldRows(
            code=self._by_age(self._column(CODE0)),
            row=self._by_age(self.rows),
            mark=self._by_age(self._column(MARK0)),
            tag=self._by_age(self.tags),
        )

    def sample(self) -> tuple[Int64s, Bytes]:
        """Return the numbers of all rows, oldest first, and their tags; copies."""
        return self._by_age(self.rows), self._by_age(self.tags)

    def slots(self, begin: int, end: int) -> Int64s:
        """Return the slots of rows by age, the oldest being 0."""
        slots: Int64s = (int(self.memory.state[self.side + HEAD]) + np.arange(begin, end)) % self.capacity
        return slots

    def level_counts(self) -> Int64s:
        """Return how many rows are held with the share of each level."""
        counts = np.zeros(LEVEL_MAX + 1, np.int64)
        count_levels(*self.memory.arrays, self.side, counts)
        return counts

    def tag(self, rows: Int64s) -> None:
        """Note that these rows have a partner."""
        tag_rows(*self.memory.arrays, self.side, np.ascontiguousarray(rows))

    @property
    def rows(self) -> Int64s:
        """The numbers of the rows, by slot."""
        return self._column(ROW0)

    @property
    def tags(self) -> Bytes:
        """The tags of the rows, by slot."""
        base = int(self.memory.state[self.side + TAG0])
        return self.memory.tags[base : base + self.capacity]

    def _column(self, which: int) -> Int64s:
        base = int(self.memory.state[self.side + which])
        return self.memory.words[base : base + self.capacity]

    def _by_age(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        head = int(self.memory.state[self.side + HEAD])
        to_the_end = min(len(self), self.capacity - head)
        return np.concatenate((column[head : head + to_the_end], column[: len(self) - to_the_end]))

    def _straighten(self) -> None:
        straighten(*self.memory.arrays, self.side)

    def _rebuild(self) -> None:
        """Build the index anew from a straight ring."""
        self.index.describe(self.memory.state, self.side, self.capacity)
        order_bytes = _ORDER_BYTES * len(self)
        if not self.index.is_sorted or order_bytes > self._account.free_bytes:
            index_rows(*self.memory.arrays, self.side, 0, NO_ROWS)
            return
        # A tree whose rows come in its own order touches few nodes; that takes memory for the order meanwhile.
        self._account.take(order_bytes)
        order = np.argsort(self._column(CODE0)[: len(self)], kind="stable")
        index_rows(*self.memory.arrays, self.side, 0, order)
        self._account.give_back(order_bytes)

    def _release_behind(self, capacity: int, index: SideIndex) -> None:
        """Give the memory back that a smaller ring, or a smaller index, no longer needs."""
        memory, state, side = self.memory, self.memory.state, self.side
        for column in {int(state[side + base]) for base in (CODE0, MARK0, ROW0)}:
            memory.release(memory.words, column + capacity, column + self.capacity)
        memory.release(memory.tags, int(state[side + TAG0]) + capacity, int(state[side + TAG0]) + self.capacity)
        words, refs = int(state[side + INDEX_WORDS]), int(state[side + INDEX_REFS])
        memory.release(memory.words, words + index.words_for(capacity), words + self.index.words_for(self.capacity))
        memory.release(memory.refs, refs + index.refs_for(capacity), refs + self.index.refs_for(self.capacity))
