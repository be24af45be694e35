"""The hash index of a window: a fixed number of buckets, each a chain through the slots in the order of arrival.

A chain is closed to a ring: the directory names the newest row of a bucket, whose successor is the oldest. So a row is
appended without a search, and since rows leave a window in the order in which they came, the row that leaves is always
the oldest of its bucket: it is found at once and taken out without looking at its neighbours.

Memory: 4 bytes a slot and 4 bytes a bucket. Few buckets save memory and lengthen the chains that a probe walks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from semistream.structures.compiled import hot_helper
from semistream.structures.hash_multimap import mixed
from semistream.structures.raw_memory import Pointer
from semistream.structures.window_state import (
    BUCKETS,
    CAPACITY,
    CODE0,
    CURSOR,
    FINISHED,
    INDEX_REFS,
    MARK0,
    NONE,
    START,
    Memory,
)


def refs_for(rows_max: int, buckets: int) -> int:
    """Return how many elements of `refs` the index of a ring of `rows_max` rows takes."""
    return rows_max + buckets


@hot_helper
def _bucket_of(memory: Memory, side: Any, code: Any) -> Any:
    """The place of a code's bucket in `refs`: the directory stands behind the chains."""
    state = memory.state
    # The upper half of the hash, scaled to the number of buckets without a division.
    bucket = ((mixed(code) >> np.uint64(32)) * np.uint64(state[side + BUCKETS])) >> np.uint64(32)
    return state[side + INDEX_REFS] + state[side + CAPACITY] + np.int64(bucket)


@hot_helper
def clear_chains(memory: Memory, side: Any) -> None:
    """Empty every bucket."""
    directory = memory.state[side + INDEX_REFS] + memory.state[side + CAPACITY]
    for bucket in range(memory.state[side + BUCKETS]):
        memory.refs[directory + bucket] = NONE


@hot_helper
def append_to_chain(memory: Memory, side: Any, slot: Any, code: Any) -> None:
    """Insert the newest row of the window."""
    refs, chains = memory.refs, memory.state[side + INDEX_REFS]
    bucket = _bucket_of(memory, side, code)
    newest = np.int64(refs[bucket])
    if newest == NONE:
        refs[chains + slot] = slot
    else:
        refs[chains + slot] = refs[chains + newest]
        refs[chains + newest] = slot
    refs[bucket] = slot


@hot_helper
def drop_from_chain(memory: Memory, side: Any, slot: Any, code: Any) -> None:
    """Remove the oldest row of the window, which is the oldest of its bucket."""
    refs, chains = memory.refs, memory.state[side + INDEX_REFS]
    bucket = _bucket_of(memory, side, code)
    newest = np.int64(refs[bucket])
    if newest == slot:
        refs[bucket] = NONE
    else:
        refs[chains + newest] = refs[chains + slot]


@hot_helper
def probe_chain(
    memory: Memory, side: Any, code: Any, mark_low: Any, mark_high: Any, found: Pointer, written: Any, found_max: Any
) -> Any:
    """Write the slots of all rows with this code, oldest first; return how many are written then."""
    words, refs, state = memory.words, memory.refs, memory.state
    newest = np.int64(refs[_bucket_of(memory, side, code)])
    cursor = state[CURSOR]
    state[CURSOR] = FINISHED
    if newest == NONE:
        return written
    chains = state[side + INDEX_REFS]
    codes = state[side + CODE0]
    marks = state[side + MARK0]
    seen = newest if cursor == START else cursor
    while True:
        slot = np.int64(refs[chains + seen])
        if words[codes + slot] == code and mark_low <= words[marks + slot] <= mark_high:
            if written == found_max:
                state[CURSOR] = seen
                return written
            found[written] = slot
            written += 1
        if slot == newest:
            return written
        seen = slot
