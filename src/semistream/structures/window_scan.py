"""No index: a probe looks at every row of the window. Nothing is cheaper to keep, and any predicate is served.

The codes of a ring are contiguous but for its end. Whole blocks of them are compared without a branch, which the
compiler turns into vector instructions; only a block with a hit is looked at row by row.
"""

from __future__ import annotations

from typing import Any

from semistream.structures.compiled import helper
from semistream.structures.raw_memory import Pointer
from semistream.structures.window_state import CAPACITY, CODE0, COUNT, CURSOR, FINISHED, HEAD, MARK0, START, Memory

BLOCK_ROWS = 64
"""Long enough to pay for the branch behind a block, short enough that a hit costs little."""


@helper
def _has_hit(codes: Pointer, first: Any, rows: Any, low: Any, high: Any) -> Any:
    hits = 0
    for i in range(first, first + rows):
        hits += (codes[i] >= low) & (codes[i] <= high)
    return hits > 0


@helper
def probe_ring(
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
    """Write the slots of all rows with a code in [low, high], oldest first; return how many are written then."""
    words, state = memory.words, memory.state
    capacity, head, count = state[side + CAPACITY], state[side + HEAD], state[side + COUNT]
    codes, marks = state[side + CODE0], state[side + MARK0]
    age = 0 if state[CURSOR] == START else state[CURSOR]
    state[CURSOR] = FINISHED
    while age < count:
        slot = head + age
        if slot >= capacity:
            slot -= capacity
        rows = min(BLOCK_ROWS, count - age, capacity - slot)
        if _has_hit(words, codes + slot, rows, low, high):
            for i in range(slot, slot + rows):
                if low <= words[codes + i] <= high and mark_low <= words[marks + i] <= mark_high:
                    if written == found_max:
                        state[CURSOR] = age + i - slot
                        return written
                    found[written] = i
                    written += 1
        age += rows
    return written
