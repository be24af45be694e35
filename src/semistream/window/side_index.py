"""What an index over a window is, and which there are.

A window inserts its newest row, probes for codes in a closed interval, and expires its oldest row; the compiled code
for the three is in `structures.window_*`, chosen by `kind`. What an index says here is how much memory it takes and
what it writes down for that code. A new index is a kind in `structures`, a file like the others, and a line in `make`.
"""

from __future__ import annotations

from typing import Protocol

from semistream.structures.window_state import Int64s


class SideIndex(Protocol):
    """An index over one window."""

    @property
    def name(self) -> str:
        """What users call it."""

    @property
    def kind(self) -> int:
        """What the compiled code calls it."""

    @property
    def serves_ranges(self) -> bool:
        """Whether it finds codes between two bounds, or only equal ones."""

    @property
    def is_sorted(self) -> bool:
        """Whether it is built faster from rows in the order of their codes."""

    def words_for(self, rows_max: int) -> int:
        """Return how many 8-byte words it needs for a window of at most `rows_max` rows."""

    def refs_for(self, rows_max: int) -> int:
        """Return how many 4-byte references it needs for a window of at most `rows_max` rows."""

    def describe(self, state: Int64s, side: int, rows_max: int) -> None:
        """Write down what the compiled code must know about an empty index for `rows_max` rows."""
