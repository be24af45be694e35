"""The nodes of a T-tree: their pool, their entries and their balance. What becomes of them is in `window_t_tree`.

Nodes lie in a pool: `NODE_ROWS` codes in `words`, and in `refs` count, left, right, parent and height, then slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.structures.compiled import helper
from semistream.structures.window_state import (
    FREE,
    INDEX_REFS,
    INDEX_WORDS,
    NODE_ROWS,
    NODES,
    NONE,
    ROOT,
    Memory,
)

COUNT, LEFT, RIGHT, PARENT, HEIGHT, ITEMS = 0, 1, 2, 3, 4, 5

ROWS_SLACK = 2
"""A node with a child may lack this many rows, so that an insertion after a removal does not touch other nodes."""


def nodes_for(rows_max: int, node_rows: int) -> int:
    """Return the most nodes that a tree of `rows_max` rows can have: one leaf of one row for each inner node."""
    return 2 * (rows_max // (1 + max(1, node_rows - ROWS_SLACK))) + 3


def words_for(rows_max: int, node_rows: int) -> int:
    """Return how many elements of `words` a tree for `rows_max` rows takes."""
    return nodes_for(rows_max, node_rows) * node_rows


def refs_for(rows_max: int, node_rows: int) -> int:
    """Return how many elements of `refs` a tree for `rows_max` rows takes."""
    return nodes_for(rows_max, node_rows) * (node_rows + ITEMS)


@helper
def codes_of(memory: Memory, side: Any, node: Any) -> Any:
    """Where the codes of a node begin in `words`."""
    return memory.state[side + INDEX_WORDS] + node * memory.state[side + NODE_ROWS]


@helper
def refs_of(memory: Memory, side: Any, node: Any) -> Any:
    """Where a node begins in `refs`."""
    return memory.state[side + INDEX_REFS] + node * (memory.state[side + NODE_ROWS] + ITEMS)


@helper
def get_ref(memory: Memory, side: Any, node: Any, what: Any) -> Any:
    """Return the count, a link or the height of a node."""
    return np.int64(memory.refs[refs_of(memory, side, node) + what])


@helper
def set_ref(memory: Memory, side: Any, node: Any, what: Any, value: Any) -> None:
    """Set the count, a link or the height of a node."""
    memory.refs[refs_of(memory, side, node) + what] = value


@helper
def clear_t_tree(memory: Memory, side: Any) -> None:
    """Leave no node."""
    memory.state[side + NODES] = 0
    memory.state[side + FREE] = NONE
    memory.state[side + ROOT] = NONE


@helper
def new_leaf(memory: Memory, side: Any, parent: Any, which: Any, code: Any, slot: Any) -> None:
    """Hang a leaf with one entry below a node, or make it the root."""
    state = memory.state
    node = state[side + FREE]
    if node == NONE:
        node = state[side + NODES]
        state[side + NODES] += 1
    else:
        state[side + FREE] = get_ref(memory, side, node, PARENT)
    place = refs_of(memory, side, node)
    memory.refs[place + COUNT] = 1
    memory.refs[place + LEFT] = NONE
    memory.refs[place + RIGHT] = NONE
    memory.refs[place + PARENT] = parent
    memory.refs[place + HEIGHT] = 1
    memory.refs[place + ITEMS] = slot
    memory.words[codes_of(memory, side, node)] = code
    if parent == NONE:
        state[side + ROOT] = node
    else:
        set_ref(memory, side, parent, which, node)


@helper
def replace_child(memory: Memory, side: Any, parent: Any, child: Any, other: Any) -> None:
    """Let a node, or the root, have another child in place of one."""
    if parent == NONE:
        memory.state[side + ROOT] = other
    elif get_ref(memory, side, parent, LEFT) == child:
        set_ref(memory, side, parent, LEFT, other)
    else:
        set_ref(memory, side, parent, RIGHT, other)
    if other != NONE:
        set_ref(memory, side, other, PARENT, parent)


@helper
def free_node(memory: Memory, side: Any, node: Any) -> None:
    """Give a node back to the pool."""
    set_ref(memory, side, node, PARENT, memory.state[side + FREE])
    memory.state[side + FREE] = node


@helper
def put(memory: Memory, side: Any, node: Any, at: Any, code: Any, slot: Any) -> None:
    """Insert an entry into a node with room."""
    words, refs = memory.words, memory.refs
    codes, place = codes_of(memory, side, node), refs_of(memory, side, node)
    for i in range(np.int64(refs[place + COUNT]), at, -1):
        words[codes + i] = words[codes + i - 1]
        refs[place + ITEMS + i] = refs[place + ITEMS + i - 1]
    words[codes + at] = code
    refs[place + ITEMS + at] = slot
    refs[place + COUNT] += 1


@helper
def take(memory: Memory, side: Any, node: Any, at: Any) -> Any:
    """Remove an entry from a node; return its code and slot."""
    words, refs = memory.words, memory.refs
    codes, place = codes_of(memory, side, node), refs_of(memory, side, node)
    code, slot = words[codes + at], np.int64(refs[place + ITEMS + at])
    refs[place + COUNT] -= 1
    for i in range(at, np.int64(refs[place + COUNT])):
        words[codes + i] = words[codes + i + 1]
        refs[place + ITEMS + i] = refs[place + ITEMS + i + 1]
    return code, slot


@helper
def _height(memory: Memory, side: Any, node: Any) -> Any:
    return 0 if node == NONE else get_ref(memory, side, node, HEIGHT)


@helper
def _measure(memory: Memory, side: Any, node: Any) -> None:
    """Set the height of a node from its children's."""
    left = _height(memory, side, get_ref(memory, side, node, LEFT))
    right = _height(memory, side, get_ref(memory, side, node, RIGHT))
    set_ref(memory, side, node, HEIGHT, 1 + max(left, right))


@helper
def _rotate(memory: Memory, side: Any, node: Any, heavy: Any) -> Any:
    """Put the child on the heavy side in a node's place and the node below it; return the child."""
    light = LEFT + RIGHT - heavy
    child = get_ref(memory, side, node, heavy)
    between = get_ref(memory, side, child, light)
    replace_child(memory, side, get_ref(memory, side, node, PARENT), node, child)
    set_ref(memory, side, child, light, node)
    set_ref(memory, side, node, PARENT, child)
    set_ref(memory, side, node, heavy, between)
    if between != NONE:
        set_ref(memory, side, between, PARENT, node)
    _measure(memory, side, node)
    _measure(memory, side, child)
    return child


@helper
def rows_min(memory: Memory, side: Any) -> Any:
    """The least rows of a node with a child."""
    return max(1, memory.state[side + NODE_ROWS] - ROWS_SLACK)


@helper
def _slide_in(memory: Memory, side: Any, top: Any, from_left: Any) -> None:
    """Fill a node that was a leaf and has become an inner node from the child it has risen above."""
    giver = get_ref(memory, side, top, LEFT if from_left else RIGHT)
    while get_ref(memory, side, top, COUNT) < rows_min(memory, side) and get_ref(memory, side, giver, COUNT) > 1:
        if from_left:
            code, slot = take(memory, side, giver, get_ref(memory, side, giver, COUNT) - 1)
            put(memory, side, top, 0, code, slot)
        else:
            code, slot = take(memory, side, giver, 0)
            put(memory, side, top, get_ref(memory, side, top, COUNT), code, slot)


@helper
def _balance(memory: Memory, side: Any, node: Any) -> Any:
    """Measure a node and rotate where its subtrees differ by more than one level; return what stands in its place."""
    left_height = _height(memory, side, get_ref(memory, side, node, LEFT))
    right_height = _height(memory, side, get_ref(memory, side, node, RIGHT))
    if abs(left_height - right_height) <= 1:
        set_ref(memory, side, node, HEIGHT, 1 + max(left_height, right_height))
        return node
    heavy = LEFT if left_height > right_height else RIGHT
    light = LEFT + RIGHT - heavy
    child = get_ref(memory, side, node, heavy)
    inner = get_ref(memory, side, child, light)
    if _height(memory, side, inner) <= _height(memory, side, get_ref(memory, side, child, heavy)):
        return _rotate(memory, side, node, heavy)
    was_leaf = get_ref(memory, side, inner, HEIGHT) == 1
    _rotate(memory, side, child, light)
    top = _rotate(memory, side, node, heavy)
    if was_leaf:
        _slide_in(memory, side, top, heavy == LEFT)
    return top


@helper
def balance_upwards(memory: Memory, side: Any, node: Any) -> None:
    """Balance from a node up to where heights no longer change."""
    while node != NONE:
        before = get_ref(memory, side, node, HEIGHT)
        top = _balance(memory, side, node)
        if get_ref(memory, side, top, HEIGHT) == before:
            return
        node = get_ref(memory, side, top, PARENT)
