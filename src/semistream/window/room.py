"""Who gets memory: rings grow while there is any, give way to each other, and shed when there is none.

A ring that is full asks for room. It grows by doubling as far as memory is free. Then the other ring gives back what it
has taken and does not use, and what it holds beyond its part if the asking one holds less than its own. Then the asking
ring is thinned out. A join that may not shed stops with an error there.
"""

from __future__ import annotations

from semistream.budget import MemoryBudget, format_bytes
from semistream.errors import BudgetExceeded
from semistream.structures.window_state import ROWS, ROWS_SHED, SIDE_A, SIDE_B, WindowMemory
from semistream.window.pieces import HeldRows
from semistream.window.shedding import SEEN_BEFORE_RISING, level_fitting, set_level
from semistream.window.side import WindowSide, layout_of, side_bytes
from semistream.window.side_index import SideIndex
from semistream.window.windows import Window

ROWS_AT_FIRST = 1024
ROWS_MIN = 4
"""With less room than this a window is no window."""

GROWTH_MIN = 1.25
"""A ring that cannot grow by a quarter sheds instead, since each growth builds the index anew."""

KEPT_WHEN_SHEDDING = 0.9
"""A thinned ring is filled to this part at most, for the same reason."""

FILLED_ROWS = 4096
"""Rows are thinned out so many at a time on their way in, so that no second copy of them all exists."""


class Room:
    """The two sides of a window join and the memory they share."""

    def __init__(
        self,
        budget: MemoryBudget,
        *,
        windows: tuple[Window, Window],
        indexes: tuple[SideIndex, SideIndex],
        all_indexes: list[SideIndex],
        lateness_us: int,
        parts: tuple[float, float],
        sheds: bool,
    ) -> None:
        self.parts = parts
        self._sheds = sheds
        self._shareable_bytes = budget.free_bytes
        self._rows_when_looked_at = [0, 0]
        layouts = [layout_of(window, all_indexes, budget.limit_bytes) for window in windows]
        self.memory = WindowMemory(
            words_max=sum(layout.words for layout in layouts),
            refs_max=sum(layout.index_refs for layout in layouts),
            tags_max=sum(layout.rows_max for layout in layouts),
        )
        side_a, side_b = (
            WindowSide(
                self.memory,
                side,
                window,
                index,
                layout,
                words_from=number * layouts[0].words,
                refs_from=number * layouts[0].index_refs,
                tags_from=number * layouts[0].rows_max,
                account=budget.account(f"window of {'AB'[number]}"),
                lateness_us=lateness_us,
            )
            for number, (side, window, index, layout) in enumerate(
                zip((SIDE_A, SIDE_B), windows, indexes, layouts, strict=True)
            )
        )
        self.sides = (side_a, side_b)
        self._take_the_least()

    @property
    def is_shedding(self) -> bool:
        """Whether a side holds less than all of its new rows."""
        return self.sides[0].level > 0 or self.sides[1].level > 0

    def make(self, number: int) -> None:
        """Make room in a ring that is full."""
        side, other = self.sides[number], self.sides[1 - number]
        if self._grow(side):
            return
        self._take_back_unused(other)
        if self._grow(side):
            return
        self._check_shedding(side)
        is_below_part = side.held_bytes < self.parts[number] * self._shareable_bytes
        rows_of_part = max(ROWS_MIN, other.rows_within(self.parts[1 - number] * self._shareable_bytes))
        if is_below_part and rows_of_part < other.capacity:
            other.thin_out(rows_of_part)
            other.lay_out(max(rows_of_part, len(other)))
            if self._grow(side):
                return
        side.thin_out(int(KEPT_WHEN_SHEDDING * side.capacity))

    def change_index(self, number: int, index: SideIndex) -> None:
        """Build another index over a side's window."""
        side = self.sides[number]
        rows_max = side.rows_possible_with(index)
        if rows_max < len(side):
            self._check_shedding(side)
            side.thin_out(rows_max)
        side.lay_out(min(max(rows_max, len(side)), side.capacity), index)

    def fill(self, number: int, rows: HeldRows) -> None:
        """Hold these rows and no others; what does not fit is shed."""
        side = self.sides[number]
        side.clear()
        count, rows_max = len(rows), side.rows_possible
        if count > rows_max:
            self._check_shedding(side)
        while count > rows_max:
            set_level(self.memory.state, side.side, side.level + 1)
            count = sum(len(side.chosen(piece)) for piece in rows.pieces(FILLED_ROWS))
        if count > side.capacity:
            side.lay_out(count)
        if count == len(rows):
            side.insert(rows)
            return
        self.memory.state[side.side + ROWS_SHED] += len(rows) - count
        for piece in rows.pieces(FILLED_ROWS):
            side.insert(side.chosen(piece))

    def raise_shares(self) -> None:
        """Hold more of the new rows again where the whole window would fit."""
        for number, side in enumerate(self.sides):
            accepted = int(self.memory.state[side.side + ROWS])
            seen = accepted - self._rows_when_looked_at[number]
            if side.level > 0 and seen >= len(side) // SEEN_BEFORE_RISING:
                self._rows_when_looked_at[number] = accepted
                level = level_fitting(side.level_counts(), side.rows_possible)
                if level < side.level:
                    set_level(self.memory.state, side.side, level)

    def _take_the_least(self) -> None:
        least = [min(ROWS_MIN, side.window.rows_max or ROWS_MIN) for side in self.sides]
        for number, side in enumerate(self.sides):
            other = self.sides[1 - number]
            # Each has its part at first, but the other keeps what it has, and is left the least it can do with.
            others_bytes = max(other.held_bytes, side_bytes(other.window, other.index, least[1 - number]))
            part_bytes = min(self.parts[number] * self._shareable_bytes, self._shareable_bytes - others_bytes)
            rows = min(ROWS_AT_FIRST, side.rows_within(part_bytes))
            # A part may be less than the least there must be, as long as half of the memory is not.
            rows = max(rows, min(least[number], side.rows_within(self._shareable_bytes / 2)))
            if rows < least[number]:
                raise BudgetExceeded(
                    f"the memory is too small for the window of {'AB'[number]}",
                    given=f"{format_bytes(self._shareable_bytes)} for both windows",
                    hint="give the join more memory",
                )
            side.lay_out(rows)

    def _grow(self, side: WindowSide) -> bool:
        """Give a ring up to twice the room; False where that is not worth it."""
        rows = min(2 * side.capacity, side.rows_possible)
        is_whole_window = rows == side.window.rows_max and rows > side.capacity
        if rows < GROWTH_MIN * side.capacity and not is_whole_window:
            return False
        side.lay_out(rows)
        return True

    def _take_back_unused(self, side: WindowSide) -> None:
        rows = max(ROWS_MIN, int(GROWTH_MIN * len(side)))
        if GROWTH_MIN * rows < side.capacity:
            side.lay_out(rows)

    def _check_shedding(self, side: WindowSide) -> None:
        if not self._sheds:
            raise BudgetExceeded(
                f"the windows of a left join do not fit into its memory, and it cannot shed rows: `{side.window}`",
                given=f"{format_bytes(self._shareable_bytes)} for both windows, "
                f"{len(self.sides[0])} and {len(self.sides[1])} rows held",
                hint="give the join more memory, make its windows smaller, or use an inner join",
            )
