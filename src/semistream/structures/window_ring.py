"""One window in memory: its ring and the index over it, and the three things done with it: insert, probe, expire.

These helpers are what the join's own loop is made of (`window_join`), and what changes a window as a whole
(`window_side`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.structures.compiled import hot_helper
from semistream.structures.hash_multimap import mixed
from semistream.structures.raw_memory import Pointer
from semistream.structures.window_b_plus_tree import (
    insert_into_b_plus_tree,
    probe_b_plus_tree,
    remove_from_b_plus_tree,
)
from semistream.structures.window_hash import append_to_chain, drop_from_chain, probe_chain
from semistream.structures.window_scan import probe_ring
from semistream.structures.window_state import (
    B_PLUS_TREE,
    CAPACITY,
    CODE0,
    COUNT,
    CURSOR,
    FINISHED,
    HASH,
    HEAD,
    HOLD_BELOW,
    HOLD_KEY,
    KIND,
    LEVEL,
    MARK0,
    ROW0,
    T_TREE,
    TAG0,
    Memory,
)
from semistream.structures.window_t_tree import insert_into_t_tree, probe_t_tree, remove_from_t_tree


@hot_helper
def hash_of_row(row: Any, key: Any) -> Any:
    """A number that is uniform over 64 bits, drawn for a row and a purpose by nothing but their numbers."""
    return mixed(np.int64(mixed(row)) ^ key)


@hot_helper
def is_left_out(memory: Memory, side: Any, row: Any) -> Any:
    """Whether a row is not among those that its side can hold now."""
    state = memory.state
    return state[side + LEVEL] > 0 and hash_of_row(row, state[side + HOLD_KEY]) >= np.uint64(state[side + HOLD_BELOW])


@hot_helper
def index_row(memory: Memory, side: Any, slot: Any, code: Any) -> None:
    """Insert the newest row of a ring into its index."""
    kind = memory.state[side + KIND]
    if kind == HASH:
        append_to_chain(memory, side, slot, code)
    elif kind == B_PLUS_TREE:
        insert_into_b_plus_tree(memory, side, slot, code)
    elif kind == T_TREE:
        insert_into_t_tree(memory, side, slot, code)


@hot_helper
def unindex_row(memory: Memory, side: Any, slot: Any, code: Any) -> None:
    """Remove the oldest row of a ring from its index."""
    kind = memory.state[side + KIND]
    if kind == HASH:
        drop_from_chain(memory, side, slot, code)
    elif kind == B_PLUS_TREE:
        remove_from_b_plus_tree(memory, side, code)
    elif kind == T_TREE:
        remove_from_t_tree(memory, side, code)


@hot_helper
def insert(memory: Memory, side: Any, code: Any, mark: Any, row: Any, tag: Any) -> None:
    """Put the newest row into a ring that has a free slot."""
    words, state = memory.words, memory.state
    slot = state[side + HEAD] + state[side + COUNT]
    if slot >= state[side + CAPACITY]:
        slot -= state[side + CAPACITY]
    state[side + COUNT] += 1
    words[state[side + CODE0] + slot] = code
    words[state[side + MARK0] + slot] = mark
    words[state[side + ROW0] + slot] = row
    memory.tags[state[side + TAG0] + slot] = tag
    index_row(memory, side, slot, code)


@hot_helper
def drop_oldest(memory: Memory, side: Any) -> None:
    """Take the oldest row out of a ring that is not empty."""
    state = memory.state
    slot = state[side + HEAD]
    unindex_row(memory, side, slot, memory.words[state[side + CODE0] + slot])
    slot += 1
    state[side + HEAD] = 0 if slot == state[side + CAPACITY] else slot
    state[side + COUNT] -= 1


@hot_helper
def probe(
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
    """Write the slots of rows with a code and a mark in these closed intervals; return how many are written then.

    Where the output is full before the last of them, the cursor says where to go on.
    """
    kind = memory.state[side + KIND]
    if low > high:
        memory.state[CURSOR] = FINISHED
        return written
    if kind == HASH:
        return probe_chain(memory, side, low, mark_low, mark_high, found, written, found_max)
    if kind == B_PLUS_TREE:
        return probe_b_plus_tree(memory, side, low, high, mark_low, mark_high, found, written, found_max)
    if kind == T_TREE:
        return probe_t_tree(memory, side, low, high, mark_low, mark_high, found, written, found_max)
    return probe_ring(memory, side, low, high, mark_low, mark_high, found, written, found_max)
