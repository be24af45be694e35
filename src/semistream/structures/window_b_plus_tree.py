"""The B+tree index of a window: entries (code, slot) in leaves that are linked in order, ordered by code and arrival.

A row that is inserted is the newest of its code, and a row that is removed the oldest of its code. So arrival needs no
place in the tree: insertion goes behind all entries with the code (counting separators <= code on the way down),
removal takes the first of them (counting separators < code). A separator is no less than any code left of it and no
greater than any code right of it; equal codes may stand on both sides. The way down to the first entry of a code can
therefore end one leaf too early, never more, and then steps to the next leaf.

Nodes lie in a pool: `NODE_ROWS` codes in `words`, and in `refs` a count, the next leaf, and slots or children, one more
than codes. All nodes but the root are at least half full, which bounds the pool (`nodes_for`). Emptied nodes go to a
free list. The way down is kept at the beginning of the pool, one node and one position a level.

Removal borrows from a neighbour or merges with it, as in a textbook. Trees that leave half-empty nodes alone are faster
where rows come back soon, but their size has no bound that a memory budget could rely on.
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
    FREE,
    HEIGHT,
    INDEX_REFS,
    INDEX_WORDS,
    MARK0,
    NODE_ROWS,
    NODES,
    NONE,
    ROOT,
    START,
    Memory,
)

LEVELS_MAX = 32
_PATH_REFS = 2 * LEVELS_MAX
_COUNT, _NEXT, _ITEMS = 0, 1, 2
_NODE_REFS = 3  # count, next, and one child more than codes

NODE_ROWS_MIN = 3
"""Less cannot be split in two that are at least half full."""


def nodes_for(rows_max: int, node_rows: int) -> int:
    """Return the most nodes that a tree of `rows_max` rows can have."""
    half = node_rows // 2
    level = max(1, rows_max // half)
    nodes = level
    while level > 1:
        level = max(1, level // (half + 1))
        nodes += level
    return nodes


def words_for(rows_max: int, node_rows: int) -> int:
    """Return how many elements of `words` a tree for `rows_max` rows takes."""
    return nodes_for(rows_max, node_rows) * node_rows


def refs_for(rows_max: int, node_rows: int) -> int:
    """Return how many elements of `refs` a tree for `rows_max` rows takes."""
    return _PATH_REFS + nodes_for(rows_max, node_rows) * (node_rows + _NODE_REFS)


@helper
def _codes_of(memory: Memory, side: Any, node: Any) -> Any:
    """Where the codes of a node begin in `words`."""
    return memory.state[side + INDEX_WORDS] + node * memory.state[side + NODE_ROWS]


@helper
def _refs_of(memory: Memory, side: Any, node: Any) -> Any:
    """Where a node begins in `refs`."""
    return memory.state[side + INDEX_REFS] + _PATH_REFS + node * (memory.state[side + NODE_ROWS] + _NODE_REFS)


@helper
def _new_node(memory: Memory, side: Any) -> Any:
    state = memory.state
    node = state[side + FREE]
    if node == NONE:
        node = state[side + NODES]
        state[side + NODES] += 1
    else:
        state[side + FREE] = memory.refs[_refs_of(memory, side, node) + _NEXT]
    place = _refs_of(memory, side, node)
    memory.refs[place + _COUNT] = 0
    memory.refs[place + _NEXT] = NONE
    return node


@helper
def _free_node(memory: Memory, side: Any, node: Any) -> None:
    memory.refs[_refs_of(memory, side, node) + _NEXT] = memory.state[side + FREE]
    memory.state[side + FREE] = node


@helper
def clear_b_plus_tree(memory: Memory, side: Any) -> None:
    """Make an empty leaf the root."""
    state = memory.state
    state[side + NODES] = 0
    state[side + FREE] = NONE
    state[side + HEIGHT] = 0
    state[side + ROOT] = _new_node(memory, side)


@helper
def _open_gap(memory: Memory, side: Any, node: Any, at: Any, refs_at: Any, refs_count: Any) -> None:
    """Move the codes of a node from a position on, and its references from another, one further."""
    words, refs = memory.words, memory.refs
    codes, place = _codes_of(memory, side, node), _refs_of(memory, side, node)
    for i in range(np.int64(refs[place + _COUNT]), at, -1):
        words[codes + i] = words[codes + i - 1]
    for i in range(refs_count, refs_at, -1):
        refs[place + _ITEMS + i] = refs[place + _ITEMS + i - 1]
    refs[place + _COUNT] += 1


@helper
def _close_gap(memory: Memory, side: Any, node: Any, at: Any, refs_at: Any, refs_count: Any) -> None:
    """Take a code and a reference out of a node."""
    words, refs = memory.words, memory.refs
    codes, place = _codes_of(memory, side, node), _refs_of(memory, side, node)
    refs[place + _COUNT] -= 1
    for i in range(at, np.int64(refs[place + _COUNT])):
        words[codes + i] = words[codes + i + 1]
    for i in range(refs_at, refs_count - 1):
        refs[place + _ITEMS + i] = refs[place + _ITEMS + i + 1]


@helper
def _put(memory: Memory, side: Any, node: Any, at: Any, code: Any, ref: Any, is_inner: Any) -> None:
    """Insert a code at a position, and its slot there or its child behind the code."""
    count = np.int64(memory.refs[_refs_of(memory, side, node) + _COUNT])
    _open_gap(memory, side, node, at, at + is_inner, count + is_inner)
    memory.words[_codes_of(memory, side, node) + at] = code
    memory.refs[_refs_of(memory, side, node) + _ITEMS + at + is_inner] = ref


@helper
def _move_tail(memory: Memory, side: Any, source: Any, begin: Any, target: Any, is_inner: Any) -> None:
    """Move the codes of a node from a position on behind those of another, and in inner nodes the children."""
    words, refs = memory.words, memory.refs
    codes, place = _codes_of(memory, side, source), _refs_of(memory, side, source)
    to_codes, to_place = _codes_of(memory, side, target), _refs_of(memory, side, target)
    count, to = np.int64(refs[place + _COUNT]), np.int64(refs[to_place + _COUNT])
    for i in range(begin, count):
        words[to_codes + to + i - begin] = words[codes + i]
    for i in range(begin, count + is_inner):
        refs[to_place + _ITEMS + to + i - begin] = refs[place + _ITEMS + i]
    refs[to_place + _COUNT] = to + count - begin
    refs[place + _COUNT] = begin


@helper
def _split_leaf(memory: Memory, side: Any, leaf: Any, at: Any, code: Any, slot: Any) -> Any:
    """Insert into a full leaf; return the new leaf to its right."""
    refs = memory.refs
    right = _new_node(memory, side)
    left_rows = (memory.state[side + NODE_ROWS] + 1) >> 1
    _move_tail(memory, side, leaf, left_rows - 1 if at < left_rows else left_rows, right, 0)
    if at < left_rows:
        _put(memory, side, leaf, at, code, slot, 0)
    else:
        _put(memory, side, right, at - left_rows, code, slot, 0)
    place = _refs_of(memory, side, leaf)
    refs[_refs_of(memory, side, right) + _NEXT] = refs[place + _NEXT]
    refs[place + _NEXT] = right
    return right


@helper
def _split_inner(memory: Memory, side: Any, node: Any, at: Any, code: Any, child: Any) -> Any:
    """Insert a separator and the child behind it into a full inner node; return the new node and what goes up."""
    words, refs = memory.words, memory.refs
    right = _new_node(memory, side)
    left_codes = (memory.state[side + NODE_ROWS] + 1) >> 1
    place = _refs_of(memory, side, node)
    codes = _codes_of(memory, side, node)
    if at == left_codes:
        # The new separator itself goes up, and its child becomes the first of the new node.
        _move_tail(memory, side, node, left_codes, right, 1)
        refs[_refs_of(memory, side, right) + _ITEMS] = child
        return right, code
    if at < left_codes:
        goes_up = words[codes + left_codes - 1]
        _move_tail(memory, side, node, left_codes, right, 1)
        refs[place + _COUNT] = left_codes - 1
        _put(memory, side, node, at, code, child, 1)
    else:
        goes_up = words[codes + left_codes]
        _move_tail(memory, side, node, left_codes + 1, right, 1)
        refs[place + _COUNT] = left_codes
        _put(memory, side, right, at - left_codes - 1, code, child, 1)
    return right, goes_up


@helper
def insert_into_b_plus_tree(memory: Memory, side: Any, slot: Any, code: Any) -> None:
    """Insert the newest row of the window, behind all entries with its code."""
    words, refs, state = memory.words, memory.refs, memory.state
    path = state[side + INDEX_REFS]
    node_rows = state[side + NODE_ROWS]
    node = state[side + ROOT]
    for level in range(state[side + HEIGHT]):
        place = _refs_of(memory, side, node)
        at = count_up_to(words, _codes_of(memory, side, node), np.int64(refs[place + _COUNT]), code)
        refs[path + level] = node
        refs[path + LEVELS_MAX + level] = at
        node = np.int64(refs[place + _ITEMS + at])
    count = np.int64(refs[_refs_of(memory, side, node) + _COUNT])
    at = count_up_to(words, _codes_of(memory, side, node), count, code)
    if count < node_rows:
        _put(memory, side, node, at, code, slot, 0)
        return
    right = _split_leaf(memory, side, node, at, code, slot)
    separator = words[_codes_of(memory, side, right)]
    for level in range(state[side + HEIGHT] - 1, -1, -1):
        node = np.int64(refs[path + level])
        at = np.int64(refs[path + LEVELS_MAX + level])
        if refs[_refs_of(memory, side, node) + _COUNT] < node_rows:
            _put(memory, side, node, at, separator, right, 1)
            return
        right, separator = _split_inner(memory, side, node, at, separator, right)
    root = _new_node(memory, side)
    refs[_refs_of(memory, side, root) + _ITEMS] = state[side + ROOT]
    _put(memory, side, root, 0, separator, right, 1)
    state[side + ROOT] = root
    state[side + HEIGHT] += 1


@helper
def _go_to_first(memory: Memory, side: Any, code: Any) -> Any:
    """Go down to the first entry that is not below a code; return its leaf and its place there."""
    words, refs, state = memory.words, memory.refs, memory.state
    path = state[side + INDEX_REFS]
    node = state[side + ROOT]
    height = state[side + HEIGHT]
    for level in range(height):
        place = _refs_of(memory, side, node)
        at = count_below(words, _codes_of(memory, side, node), np.int64(refs[place + _COUNT]), code)
        refs[path + level] = node
        refs[path + LEVELS_MAX + level] = at
        node = np.int64(refs[place + _ITEMS + at])
    place = _refs_of(memory, side, node)
    at = count_below(words, _codes_of(memory, side, node), np.int64(refs[place + _COUNT]), code)
    if at < refs[place + _COUNT] or refs[place + _NEXT] == NONE:
        return node, at
    # The code begins with the next leaf: correct the way down from where it can turn right.
    level = height - 1
    while refs[path + LEVELS_MAX + level] == refs[_refs_of(memory, side, np.int64(refs[path + level])) + _COUNT]:
        level -= 1
    refs[path + LEVELS_MAX + level] += 1
    for below in range(level + 1, height):
        above = _refs_of(memory, side, np.int64(refs[path + below - 1]))
        refs[path + below] = refs[above + _ITEMS + np.int64(refs[path + LEVELS_MAX + below - 1])]
        refs[path + LEVELS_MAX + below] = 0
    return np.int64(refs[place + _NEXT]), 0


@helper
def _borrow(memory: Memory, side: Any, parent: Any, at: Any, is_inner: Any, from_left: Any) -> None:
    """Move one entry from the left or the right neighbour into the child of `parent` at `at`."""
    words, refs = memory.words, memory.refs
    seps, children = _codes_of(memory, side, parent), _refs_of(memory, side, parent) + _ITEMS
    node = np.int64(refs[children + at])
    giver = np.int64(refs[children + at - 1]) if from_left else np.int64(refs[children + at + 1])
    codes, place = _codes_of(memory, side, node), _refs_of(memory, side, node)
    giver_codes, giver_place = _codes_of(memory, side, giver), _refs_of(memory, side, giver)
    count, giver_count = np.int64(refs[place + _COUNT]), np.int64(refs[giver_place + _COUNT])
    if from_left:
        _open_gap(memory, side, node, 0, 0, count + is_inner)
        moved = words[giver_codes + giver_count - 1]
        words[codes] = words[seps + at - 1] if is_inner else moved
        refs[place + _ITEMS] = refs[giver_place + _ITEMS + giver_count - 1 + is_inner]
        words[seps + at - 1] = moved
        refs[giver_place + _COUNT] -= 1
    else:
        moved = words[giver_codes]
        words[codes + count] = words[seps + at] if is_inner else moved
        refs[place + _ITEMS + count + is_inner] = refs[giver_place + _ITEMS]
        refs[place + _COUNT] += 1
        _close_gap(memory, side, giver, 0, 0, giver_count + is_inner)
        words[seps + at] = moved if is_inner else words[giver_codes]


@helper
def _merge(memory: Memory, side: Any, parent: Any, at: Any, is_inner: Any) -> None:
    """Merge the child of `parent` behind the separator `at` into the one before it."""
    words, refs = memory.words, memory.refs
    place = _refs_of(memory, side, parent)
    left, right = np.int64(refs[place + _ITEMS + at]), np.int64(refs[place + _ITEMS + at + 1])
    left_place = _refs_of(memory, side, left)
    if is_inner:
        words[_codes_of(memory, side, left) + refs[left_place + _COUNT]] = words[_codes_of(memory, side, parent) + at]
        refs[left_place + _COUNT] += 1
    else:
        refs[left_place + _NEXT] = refs[_refs_of(memory, side, right) + _NEXT]
    _move_tail(memory, side, right, 0, left, is_inner)
    _free_node(memory, side, right)
    _close_gap(memory, side, parent, at, at + 1, np.int64(refs[place + _COUNT]) + 1)


@helper
def _mend(memory: Memory, side: Any, parent: Any, at: Any, is_inner: Any) -> None:
    """Bring the child of `parent` at `at` back to half of its rows."""
    refs = memory.refs
    half = memory.state[side + NODE_ROWS] >> 1
    place = _refs_of(memory, side, parent)
    if at > 0 and refs[_refs_of(memory, side, np.int64(refs[place + _ITEMS + at - 1])) + _COUNT] > half:
        _borrow(memory, side, parent, at, is_inner, True)
    elif (
        at < refs[place + _COUNT]
        and refs[_refs_of(memory, side, np.int64(refs[place + _ITEMS + at + 1])) + _COUNT] > half
    ):
        _borrow(memory, side, parent, at, is_inner, False)
    elif at > 0:
        _merge(memory, side, parent, at - 1, is_inner)
    else:
        _merge(memory, side, parent, at, is_inner)


@helper
def remove_from_b_plus_tree(memory: Memory, side: Any, code: Any) -> Any:
    """Remove the oldest row of a code; return its slot."""
    refs, state = memory.refs, memory.state
    path = state[side + INDEX_REFS]
    half = state[side + NODE_ROWS] >> 1
    node, at = _go_to_first(memory, side, code)
    place = _refs_of(memory, side, node)
    slot = np.int64(refs[place + _ITEMS + at])
    _close_gap(memory, side, node, at, at, np.int64(refs[place + _COUNT]))
    for level in range(state[side + HEIGHT] - 1, -1, -1):
        if refs[place + _COUNT] >= half:
            return slot
        parent = np.int64(refs[path + level])
        is_inner = 1 if level < state[side + HEIGHT] - 1 else 0
        _mend(memory, side, parent, np.int64(refs[path + LEVELS_MAX + level]), is_inner)
        place = _refs_of(memory, side, parent)
    root_place = _refs_of(memory, side, state[side + ROOT])
    if state[side + HEIGHT] > 0 and refs[root_place + _COUNT] == 0:
        root = state[side + ROOT]
        state[side + ROOT] = refs[root_place + _ITEMS]
        state[side + HEIGHT] -= 1
        _free_node(memory, side, root)
    return slot


@helper
def probe_b_plus_tree(
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
        leaf, at = _go_to_first(memory, side, low)
    else:
        leaf, at = state[CURSOR], state[CURSOR_AT]
    state[CURSOR] = FINISHED
    while leaf != NONE:
        codes, place = _codes_of(memory, side, leaf), _refs_of(memory, side, leaf)
        for i in range(at, np.int64(refs[place + _COUNT])):
            if words[codes + i] > high:
                return written
            slot = np.int64(refs[place + _ITEMS + i])
            if mark_low <= words[marks + slot] <= mark_high:
                if written == found_max:
                    state[CURSOR] = leaf
                    state[CURSOR_AT] = i
                    return written
                found[written] = slot
                written += 1
        leaf = np.int64(refs[place + _NEXT])
        at = 0
    return written
