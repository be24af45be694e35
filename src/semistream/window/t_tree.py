"""A T-tree: like the B+tree in what it serves; a binary tree of large nodes, each of which holds rows."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.structures.window_state import KIND, NODE_ROWS, T_TREE, Int64s
from semistream.structures.window_t_tree_nodes import refs_for, words_for


@dataclass(frozen=True, slots=True)
class TTreeIndex:
    """Nodes of at most `node_rows` rows."""

    node_rows: int
    name: str = "t-tree"
    kind: int = T_TREE
    serves_ranges: bool = True
    is_sorted: bool = True

    def words_for(self, rows_max: int) -> int:
        """The codes of all nodes at their least occupancy."""
        return words_for(rows_max, self.node_rows)

    def refs_for(self, rows_max: int) -> int:
        """The slots and links of all nodes at their least occupancy."""
        return refs_for(rows_max, self.node_rows)

    def describe(self, state: Int64s, side: int, rows_max: int) -> None:
        """Set the size of a node."""
        state[side + KIND] = self.kind
        state[side + NODE_ROWS] = self.node_rows
