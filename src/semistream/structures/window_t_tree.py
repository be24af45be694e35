"""The T-tree index of a window (Lehman and Carey): a balanced binary tree whose nodes hold many sorted entries.

Entries (code, slot) are in order of code and arrival, through left subtree, node and right subtree. As in the B+tree,
arrival needs no place in the tree: what is inserted goes behind all entries with its code, what is removed is the first
of them, and a search that meets its code at the beginning of a node looks for earlier ones in the left subtree.

*Insertion.* A node bounds a code if its first code <= the code < its last. A bounding node with room takes the entry. A
full one gives its least entry to the last node of its left subtree, or to a new leaf there. Without a bounding node the
last node on the way takes the entry if it has room; otherwise it gets a new leaf.

*Removal.* A node with a child never lacks more than `ROWS_SLACK` rows: it takes the greatest entry of its left subtree
or, without one, the least of its right subtree, and so on down to a leaf. A leaf that is empty goes; a leaf that fits
into a parent whose only child it is goes into it.

*Traps.* The rules of the paper say nothing about half-leaves (nodes with one child) below the least occupancy, and a
rotation can turn one into an inner node; here they are treated like inner nodes, so none exists. The double rotations
can put a leaf of one entry on top of two nodes; it first slides entries in from the neighbour. So all nodes but leaves
are nearly full at any time, and at least half of all nodes are not leaves: that bounds the pool (`nodes_for`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.structures.compiled import helper
from semistream.structures.raw_memory import Pointer
from semistream.structures.window_search import count_below, count_up_to
from semistream.structures.window_state import (
    CURSOR,
    CURSOR_AT,
    FINISHED,
    MARK0,
    NODE_ROWS,
    NONE,
    ROOT,
    START,
    Memory,
)
from semistream.structures.window_t_tree_nodes import (
    COUNT,
    HEIGHT,
    ITEMS,
    LEFT,
    PARENT,
    RIGHT,
    balance_upwards,
    codes_of,
    free_node,
    get_ref,
    new_leaf,
    put,
    refs_of,
    replace_child,
    rows_min,
    take,
)


@helper
def _last_of(memory: Memory, side: Any, node: Any, which: Any) -> Any:
    """Follow the children on one side to the last node."""
    child = get_ref(memory, side, node, which)
    while child != NONE:
        node = child
        child = get_ref(memory, side, node, which)
    return node


@helper
def _insert_into_full(memory: Memory, side: Any, node: Any, slot: Any, code: Any) -> None:
    """Insert into a full bounding node: its least entry goes to the end of its left subtree."""
    node_rows = memory.state[side + NODE_ROWS]
    least_code, least_slot = take(memory, side, node, 0)
    put(memory, side, node, count_up_to(memory.words, codes_of(memory, side, node), node_rows - 1, code), code, slot)
    left = get_ref(memory, side, node, LEFT)
    if left == NONE:
        new_leaf(memory, side, node, LEFT, least_code, least_slot)
        balance_upwards(memory, side, node)
        return
    last = _last_of(memory, side, left, RIGHT)
    if get_ref(memory, side, last, COUNT) < node_rows:
        put(memory, side, last, get_ref(memory, side, last, COUNT), least_code, least_slot)
    else:
        new_leaf(memory, side, last, RIGHT, least_code, least_slot)
        balance_upwards(memory, side, last)


@helper
def insert_into_t_tree(memory: Memory, side: Any, slot: Any, code: Any) -> None:
    """Insert the newest row of the window, behind all entries with its code."""
    words = memory.words
    node_rows = memory.state[side + NODE_ROWS]
    node = memory.state[side + ROOT]
    if node == NONE:
        new_leaf(memory, side, NONE, LEFT, code, slot)
        return
    while True:
        codes, count = codes_of(memory, side, node), get_ref(memory, side, node, COUNT)
        if words[codes] <= code < words[codes + count - 1]:
            if count < node_rows:
                put(memory, side, node, count_up_to(words, codes, count, code), code, slot)
            else:
                _insert_into_full(memory, side, node, slot, code)
            return
        which = LEFT if code < words[codes] else RIGHT
        child = get_ref(memory, side, node, which)
        if child == NONE:
            if count < node_rows:
                put(memory, side, node, 0 if which == LEFT else count, code, slot)
            else:
                new_leaf(memory, side, node, which, code, slot)
                balance_upwards(memory, side, node)
            return
        node = child


@helper
def _go_to_first(memory: Memory, side: Any, code: Any) -> Any:
    """Return the node and the place of the first entry that is not below a code."""
    words = memory.words
    node, best = memory.state[side + ROOT], NONE
    while node != NONE:
        codes, count = codes_of(memory, side, node), get_ref(memory, side, node, COUNT)
        if code <= words[codes]:
            best = node
            node = get_ref(memory, side, node, LEFT)
        elif code > words[codes + count - 1]:
            node = get_ref(memory, side, node, RIGHT)
        else:
            return node, count_below(words, codes, count, code)
    return best, 0


@helper
def _refill(memory: Memory, side: Any, node: Any) -> Any:
    """Let nodes with a child that lack rows take them from below; return the last node that has given one."""
    while get_ref(memory, side, node, HEIGHT) > 1 and get_ref(memory, side, node, COUNT) < rows_min(memory, side):
        left = get_ref(memory, side, node, LEFT)
        if left != NONE:
            giver = _last_of(memory, side, left, RIGHT)
            code, slot = take(memory, side, giver, get_ref(memory, side, giver, COUNT) - 1)
            put(memory, side, node, 0, code, slot)
        else:
            giver = _last_of(memory, side, get_ref(memory, side, node, RIGHT), LEFT)
            code, slot = take(memory, side, giver, 0)
            put(memory, side, node, get_ref(memory, side, node, COUNT), code, slot)
        node = giver
    return node


@helper
def _absorb(memory: Memory, side: Any, node: Any, leaf: Any) -> None:
    """Move the entries of a half-leaf's only child into it."""
    is_left = get_ref(memory, side, node, LEFT) == leaf
    while get_ref(memory, side, leaf, COUNT) > 0:
        if is_left:
            code, slot = take(memory, side, leaf, get_ref(memory, side, leaf, COUNT) - 1)
            put(memory, side, node, 0, code, slot)
        else:
            code, slot = take(memory, side, leaf, 0)
            put(memory, side, node, get_ref(memory, side, node, COUNT), code, slot)
    replace_child(memory, side, node, leaf, NONE)
    free_node(memory, side, leaf)
    balance_upwards(memory, side, node)


@helper
def remove_from_t_tree(memory: Memory, side: Any, code: Any) -> Any:
    """Remove the oldest row of a code; return its slot."""
    node, at = _go_to_first(memory, side, code)
    _, removed = take(memory, side, node, at)
    node = _refill(memory, side, node)
    parent = get_ref(memory, side, node, PARENT)
    if get_ref(memory, side, node, COUNT) == 0:
        replace_child(memory, side, parent, node, NONE)
        free_node(memory, side, node)
        balance_upwards(memory, side, parent)
        return removed
    # The node is a leaf below a half-leaf, or a half-leaf above a leaf: can one hold both?
    if get_ref(memory, side, node, HEIGHT) == 1 and parent != NONE:
        node = parent
    left, right = get_ref(memory, side, node, LEFT), get_ref(memory, side, node, RIGHT)
    leaf = max(left, right)
    if leaf != NONE and min(left, right) == NONE and get_ref(memory, side, leaf, HEIGHT) == 1:
        rows = get_ref(memory, side, node, COUNT) + get_ref(memory, side, leaf, COUNT)
        if rows <= memory.state[side + NODE_ROWS]:
            _absorb(memory, side, node, leaf)
    return removed


@helper
def _next_in_order(memory: Memory, side: Any, node: Any) -> Any:
    right = get_ref(memory, side, node, RIGHT)
    if right != NONE:
        return _last_of(memory, side, right, LEFT)
    parent = get_ref(memory, side, node, PARENT)
    while parent != NONE and get_ref(memory, side, parent, RIGHT) == node:
        node = parent
        parent = get_ref(memory, side, node, PARENT)
    return parent


@helper
def probe_t_tree(
    memory: Memory,
    side: Any,
    low: Any,
    high: Any,
    mark_low: Any,
    mark_high: Any,
    found: Pointer,
    written: Any,
    found_max: Any,
) -> Any:
    """Write the slots of all rows with a code in [low, high], in order; return how many are written then."""
    words, refs, state = memory.words, memory.refs, memory.state
    marks = state[side + MARK0]
    if state[CURSOR] == START:
        node, at = _go_to_first(memory, side, low)
    else:
        node, at = state[CURSOR], state[CURSOR_AT]
    state[CURSOR] = FINISHED
    while node != NONE:
        codes, place = codes_of(memory, side, node), refs_of(memory, side, node)
        for i in range(at, np.int64(refs[place + COUNT])):
            if words[codes + i] > high:
                return written
            slot = np.int64(refs[place + ITEMS + i])
            if mark_low <= words[marks + slot] <= mark_high:
                if written == found_max:
                    state[CURSOR] = node
                    state[CURSOR_AT] = i
                    return written
                found[written] = slot
                written += 1
        node = _next_in_order(memory, side, node)
        at = 0
    return written
