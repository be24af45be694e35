"""Kernels for one side of a window join alone: what changes a window as a whole, and what tests and calibration call.

Building an index anew from its ring is how windows grow, shrink, are restored and change their index.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.structures.compiled import (
    I64,
    READ_I64,
    VOID,
    WRITE_BOOL,
    WRITE_I32,
    WRITE_I64,
    WRITE_U8,
    Array,
    helper,
    kernel,
)
from semistream.structures.raw_memory import Pointer, pointer_to
from semistream.structures.window_b_plus_tree import clear_b_plus_tree
from semistream.structures.window_hash import clear_chains
from semistream.structures.window_ring import drop_oldest, index_row, is_left_out, probe
from semistream.structures.window_state import (
    B_PLUS_TREE,
    CAPACITY,
    CODE0,
    COUNT,
    HASH,
    HEAD,
    KIND,
    LEVEL,
    MARK0,
    MATCHED,
    ROW0,
    ROWS,
    ROWS_SHED,
    SCAN,
    TAG0,
    Memory,
)
from semistream.structures.window_t_tree_nodes import clear_t_tree

MEMORY = (WRITE_I64, WRITE_I32, WRITE_U8, WRITE_I64)
"""The types of `words`, `refs`, `tags` and `state`, with which every kernel begins."""


@kernel(VOID(*MEMORY, I64, I64, READ_I64))
def index_rows(words: Array, refs: Array, tags: Array, state: Array, side: int, first_age: int, order: Array) -> None:
    """Insert the rows of a ring from an age on into its index; from the oldest on (0) it is built anew.

    `order` may give the slots of a straight ring in order of code and age.
    """
    memory = Memory(pointer_to(words), pointer_to(refs), pointer_to(tags), pointer_to(state))
    kind = state[side + KIND]
    if kind == SCAN:
        return
    if first_age == 0 and kind == HASH:
        clear_chains(memory, side)
    elif first_age == 0 and kind == B_PLUS_TREE:
        clear_b_plus_tree(memory, side)
    elif first_age == 0:
        clear_t_tree(memory, side)
    slot = (state[side + HEAD] + first_age) % state[side + CAPACITY]
    for i in range(first_age, state[side + COUNT]):
        if order.size > 0:
            slot = order[i]
        index_row(memory, side, slot, words[state[side + CODE0] + slot])
        slot += 1
        if slot == state[side + CAPACITY]:
            slot = 0


@helper
def _reverse(column: Pointer, begin: Any, end: Any) -> None:
    while begin < end - 1:
        end -= 1
        column[begin], column[end] = column[end], column[begin]
        begin += 1


@helper
def _rotate(column: Pointer, base: Any, head: Any, capacity: Any) -> None:
    """Turn a ring in place so that it begins at its first slot."""
    _reverse(column, base, base + head)
    _reverse(column, base + head, base + capacity)
    _reverse(column, base, base + capacity)


@kernel(VOID(*MEMORY, I64))
def straighten(words: Array, refs: Array, tags: Array, state: Array, side: int) -> None:
    """Move the oldest row of a ring to its first slot. The index points at the wrong slots afterwards."""
    head, capacity = state[side + HEAD], state[side + CAPACITY]
    if head > 0:
        _rotate(pointer_to(words), state[side + CODE0], head, capacity)
        _rotate(pointer_to(words), state[side + ROW0], head, capacity)
        if state[side + MARK0] != state[side + ROW0]:
            _rotate(pointer_to(words), state[side + MARK0], head, capacity)
        _rotate(pointer_to(tags), state[side + TAG0], head, capacity)
    state[side + HEAD] = 0


@kernel(I64(*MEMORY, I64))
def thin_out(words: Array, refs: Array, tags: Array, state: Array, side: int) -> int:
    """Drop from a straight ring what its share leaves out; return how many rows go. The index must be rebuilt."""
    memory = Memory(pointer_to(words), pointer_to(refs), pointer_to(tags), pointer_to(state))
    codes, marks, rows, levels = state[side + CODE0], state[side + MARK0], state[side + ROW0], state[side + TAG0]
    kept = 0
    for slot in range(state[side + COUNT]):
        row = words[rows + slot]
        if not is_left_out(memory, side, row):
            words[codes + kept] = words[codes + slot]
            words[marks + kept] = words[marks + slot]
            words[rows + kept] = row
            tags[levels + kept] = max(np.int64(tags[levels + slot]), state[side + LEVEL])
            kept += 1
    gone: int = state[side + COUNT] - kept
    state[side + COUNT] = kept
    state[side + ROWS_SHED] += gone
    return gone


@kernel(VOID(*MEMORY, I64, READ_I64, WRITE_BOOL))
def choose_rows(words: Array, refs: Array, tags: Array, state: Array, side: int, rows: Array, is_held: Array) -> None:
    """Say which rows the side's share does not leave out."""
    memory = Memory(pointer_to(words), pointer_to(refs), pointer_to(tags), pointer_to(state))
    for i in range(rows.size):
        is_held[i] = not is_left_out(memory, side, rows[i])


@kernel(I64(*MEMORY, I64, I64))
def expire_rows(words: Array, refs: Array, tags: Array, state: Array, side: int, mark_low: int) -> int:
    """Drop the oldest rows up to the first whose mark is not below a bound; return how many they were."""
    memory = Memory(pointer_to(words), pointer_to(refs), pointer_to(tags), pointer_to(state))
    gone = 0
    while state[side + COUNT] > 0 and words[state[side + MARK0] + state[side + HEAD]] < mark_low:
        drop_oldest(memory, side)
        gone += 1
    return gone


@kernel(I64(*MEMORY, I64, I64, I64, I64, I64, WRITE_I64))
def probe_rows(
    words: Array,
    refs: Array,
    tags: Array,
    state: Array,
    side: int,
    low: int,
    high: int,
    mark_low: int,
    mark_high: int,
    found: Array,
) -> int:
    """Write the slots of rows in the intervals, from where the cursor stands on; return how many they are."""
    memory = Memory(pointer_to(words), pointer_to(refs), pointer_to(tags), pointer_to(state))
    written: int = probe(memory, side, low, high, mark_low, mark_high, pointer_to(found), 0, found.size)
    return written


@kernel(VOID(*MEMORY, I64, WRITE_I64))
def count_levels(words: Array, refs: Array, tags: Array, state: Array, side: int, counts: Array) -> None:
    """Add the rows of each level to its count."""
    slot = state[side + HEAD]
    for _ in range(state[side + COUNT]):
        counts[tags[state[side + TAG0] + slot]] += 1
        slot += 1
        if slot == state[side + CAPACITY]:
            slot = 0


@kernel(VOID(*MEMORY, I64, READ_I64))
def tag_rows(words: Array, refs: Array, tags: Array, state: Array, side: int, rows: Array) -> None:
    """Tag the rows with these numbers, where they are still held; the row that is worked on counts as held."""
    head, capacity, count = state[side + HEAD], state[side + CAPACITY], state[side + COUNT]
    for i in range(rows.size):
        # Row numbers ascend from the oldest to the newest: search by age.
        first, end = 0, count
        while first < end:
            middle = (first + end) // 2
            if words[state[side + ROW0] + (head + middle) % capacity] < rows[i]:
                first = middle + 1
            else:
                end = middle
        slot = (head + first) % capacity
        if first < count and words[state[side + ROW0] + slot] == rows[i]:
            tags[state[side + TAG0] + slot] = 1
        elif rows[i] == state[side + ROWS] - 1:
            state[MATCHED] = 1
