"""A B+tree: logarithmic probes for equality and ranges, at the price of every insertion and expiry walking down."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.structures.window_b_plus_tree import refs_for, words_for
from semistream.structures.window_state import B_PLUS_TREE, KIND, NODE_ROWS, Int64s


@dataclass(frozen=True, slots=True)
class BPlusTreeIndex:
    """Nodes of at most `node_rows` rows, at least half full."""

    node_rows: int
    name: str = "b+tree"
    kind: int = B_PLUS_TREE
    serves_ranges: bool = True
    is_sorted: bool = True

    def words_for(self, rows_max: int) -> int:
        """The codes of all nodes at their least occupancy."""
        return words_for(rows_max, self.node_rows)

    def refs_for(self, rows_max: int) -> int:
        """The slots and children of all nodes at their least occupancy."""
        return refs_for(rows_max, self.node_rows)

    def describe(self, state: Int64s, side: int, rows_max: int) -> None:
        """Set the size of a node."""
        state[side + KIND] = self.kind
        state[side + NODE_ROWS] = self.node_rows
