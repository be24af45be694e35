"""The window join's one loop: for every arriving row probe the other window, insert, invalidate.

The three steps of the paper, with the invalidation first, so that a ring never needs more slots than its window has
rows. The loop stops where somebody else must act: the output is full, or a ring has no free slot. It remembers the row
and the stage it stood in (and for a probe the place in the index), so it goes on without losing or repeating a pair;
between the stops of one row nothing in the probed window changes.

A row is in its window while its mark is at least a bound (see `_bound`), and a pair of time windows must also lie
within reach of each other; both together are one closed interval of marks, so that the probes of all indexes ask the
same two questions: is the code in [low, high], and is the mark in [mark_low, mark_high]?

Time need not be monotone. Rows leave a ring at its head; one that is late stands behind rows that live longer, is
passed over by probes from the moment it is out of its window, and leaves when it comes to the head. A row that is out
of its window when it arrives is not held at all, so a ring holds no more rows than arrive while its clock moves by one
window and the lateness. Sums that could pass the ends of int64 stop there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from semistream.structures.compiled import (
    I64,
    READ_I64,
    READ_U8,
    WRITE_I64,
    WRITE_U8,
    Array,
    hot_helper,
    kernel,
    reads,
)
from semistream.structures.raw_memory import Pointer, pointer_to
from semistream.structures.window_ring import drop_oldest, hash_of_row, insert, is_left_out, probe
from semistream.structures.window_side import MEMORY
from semistream.structures.window_state import (
    ARRIVED,
    AT,
    BY_ARRIVAL,
    BY_ROW,
    BY_TIME,
    CAPACITY,
    CLOCK,
    CONFIRMING,
    COUNT,
    CURSOR,
    FINISHED,
    FULL_SIDE,
    HASH,
    HEAD,
    INT64_MAX,
    INT64_MIN,
    KIND,
    LEFT,
    LEVEL,
    MARK0,
    MATCHED,
    OUTER,
    PAIRS,
    PROBE_ALL,
    PROBE_BELOW,
    PROBE_KEY,
    PROBES,
    PROBES_SKIPPED,
    REACH,
    ROW0,
    ROWS,
    ROWS_LATE,
    ROWS_SHED,
    SIDE_A,
    SIDE_WORDS,
    SPAN,
    STAGE,
    START,
    TAG0,
    WINDOW,
    WRITTEN,
    Memory,
)

# Why the loop stopped.
PIECE_DONE, OUTPUT_FULL, RING_FULL, RANGE_IN_HASH = range(4)

# Where a row stands.
ARRIVING, EXPIRING, PROBING, INSERTING = range(4)


class Incoming(NamedTuple):
    """A piece of the sequence."""

    side: Pointer
    code: Pointer
    low: Pointer
    high: Pointer
    valid: Pointer
    time_us: Pointer
    rows: int


class Output(NamedTuple):
    """Where pairs go, and rows of A that leave without a partner."""

    row_a: Pointer
    row_b: Pointer
    a_is_later: Pointer
    levels: Pointer
    pairs_max: int
    unmatched: Pointer
    unmatched_max: int


@hot_helper
def _minus(a: Any, b: Any) -> Any:
    """The difference with a number that is not negative, no less than the least int64."""
    return a - b if a >= INT64_MIN + b else INT64_MIN


@hot_helper
def _plus(a: Any, b: Any) -> Any:
    return a + b if a <= INT64_MAX - b else INT64_MAX


@hot_helper
def _bound(state: Pointer, side: Any) -> Any:
    """The least mark that is in a side's window now; the row that has just arrived is counted."""
    if state[side + WINDOW] == BY_ROW:
        return state[side + ROWS] - state[side + REACH]
    if state[side + WINDOW] == BY_ARRIVAL:
        return state[ARRIVED] - 1 - state[side + REACH]
    return _minus(state[CLOCK], state[side + REACH])


@hot_helper
def _report(state: Pointer, output: Output, row: Any) -> Any:
    """Write a row that leaves without a partner; False where there is no room."""
    if state[LEFT] == output.unmatched_max:
        return False
    output.unmatched[state[LEFT]] = row
    state[LEFT] += 1
    return True


@hot_helper
def _expire(memory: Memory, side: Any, output: Output) -> Any:
    """Drop what has left a window; False where the output of rows without a partner is full."""
    words, state = memory.words, memory.state
    bound = _bound(state, side)
    while state[side + COUNT] > 0 and words[state[side + MARK0] + state[side + HEAD]] < bound:
        head = state[side + HEAD]
        is_reported = state[OUTER] and side == SIDE_A and memory.tags[state[side + TAG0] + head] == 0
        if is_reported and not _report(state, output, words[state[side + ROW0] + head]):
            return False
        drop_oldest(memory, side)
    return True


@hot_helper
def _begin_probe(state: Pointer, own: Any) -> None:
    """Decide whether the row probes at all."""
    state[MATCHED] = 0
    row = state[own + ROWS] - 1
    if state[own + PROBE_ALL] or hash_of_row(row, state[own + PROBE_KEY]) < np.uint64(state[own + PROBE_BELOW]):
        state[own + PROBES] += 1
        state[CURSOR] = START
    else:
        state[own + PROBES_SKIPPED] += 1
        state[CURSOR] = FINISHED


@hot_helper
def _probe_other(memory: Memory, own: Any, low: Any, high: Any, time_us: Any, output: Output) -> Any:
    """Write the slots of the row's partners into `output.row_b`; return how many are written then."""
    state = memory.state
    other = SIDE_WORDS - own
    mark_low, mark_high = _bound(state, other), INT64_MAX
    if state[other + WINDOW] == BY_TIME:
        mark_low = max(mark_low, _minus(time_us, state[other + SPAN]))
        if state[own + WINDOW] == BY_TIME:
            mark_high = _plus(time_us, state[own + SPAN])
    return probe(memory, other, low, high, mark_low, mark_high, output.row_b, state[WRITTEN], output.pairs_max)


@hot_helper
def _write_pairs(memory: Memory, own: Any, written: Any, output: Output) -> None:
    """Turn the slots that a probe has left in `output.row_b` into pairs of row numbers."""
    state = memory.state
    other = SIDE_WORDS - own
    row = state[own + ROWS] - 1
    sets_tags = state[OUTER] and not state[CONFIRMING]
    for i in range(state[WRITTEN], written):
        slot = output.row_b[i]
        partner = memory.words[state[other + ROW0] + slot]
        output.row_a[i] = row if own == SIDE_A else partner
        output.row_b[i] = partner if own == SIDE_A else row
        output.a_is_later[i] = 1 if own == SIDE_A else 0
        output.levels[i] = memory.tags[state[other + TAG0] + slot]
        if sets_tags:
            state[MATCHED] = 1
            memory.tags[state[other + TAG0] + slot] = 1
    state[own + PAIRS] += written - state[WRITTEN]
    state[WRITTEN] = written


@hot_helper
def _hold(memory: Memory, own: Any, code: Any, time_us: Any, output: Output) -> Any:
    """Insert the row unless it is late or shed; return why that cannot be done now, or PIECE_DONE."""
    state = memory.state
    row = state[own + ROWS] - 1
    mark = row
    if state[own + WINDOW] == BY_ARRIVAL:
        mark = state[ARRIVED] - 1
    elif state[own + WINDOW] == BY_TIME:
        mark = time_us
    if mark < _bound(state, own):
        if state[OUTER] and own == SIDE_A and not state[MATCHED] and not _report(state, output, row):
            return OUTPUT_FULL
        state[own + ROWS_LATE] += 1
    elif is_left_out(memory, own, row):
        state[own + ROWS_SHED] += 1
    elif state[own + COUNT] == state[own + CAPACITY]:
        state[FULL_SIDE] = own
        return RING_FULL
    else:
        insert(memory, own, code, mark, row, state[MATCHED] if state[OUTER] else state[own + LEVEL])
    return PIECE_DONE


@hot_helper
def _expire_both(memory: Memory, own: Any, output: Output) -> Any:
    # The row's own side first: whether a row leaves it is the same for most rows, which the processor can foresee.
    return _expire(memory, own, output) and _expire(memory, SIDE_WORDS - own, output)


@hot_helper
def _join_row(memory: Memory, own: Any, piece: Incoming, at: Any, output: Output) -> Any:
    """Bring a row as far as possible; return why it stopped, or PIECE_DONE."""
    state = memory.state
    time_us = piece.time_us[at]
    if state[STAGE] == ARRIVING:
        state[own + ROWS] += 1
        state[ARRIVED] += 1
        state[CLOCK] = max(state[CLOCK], time_us)
        state[STAGE] = EXPIRING
    if state[STAGE] == EXPIRING:
        if not _expire_both(memory, own, output):
            return OUTPUT_FULL
        if piece.valid[at] == 0:
            is_reported = state[OUTER] and own == SIDE_A
            return OUTPUT_FULL if is_reported and not _report(state, output, state[own + ROWS] - 1) else PIECE_DONE
        _begin_probe(state, own)
        state[STAGE] = PROBING
    if state[STAGE] == PROBING:
        if state[CURSOR] != FINISHED:
            low, high = piece.low[at], piece.high[at]
            if state[SIDE_WORDS - own + KIND] == HASH and low < high:
                return RANGE_IN_HASH
            _write_pairs(memory, own, _probe_other(memory, own, low, high, time_us, output), output)
            if state[CURSOR] != FINISHED:
                return OUTPUT_FULL
        state[STAGE] = INSERTING
    return _hold(memory, own, piece.code[at], time_us, output)


@hot_helper
def _join_rows(memory: Memory, piece: Incoming, output: Output) -> Any:
    state = memory.state
    for at in range(state[AT], piece.rows):
        status = _join_row(memory, np.int64(piece.side[at]) * SIDE_WORDS, piece, at, output)
        if status != PIECE_DONE:
            state[AT] = at
            return status
        state[STAGE] = ARRIVING
    state[AT] = piece.rows
    return PIECE_DONE


@kernel(
    I64(
        *MEMORY,
        *(reads(types.int8), READ_I64, READ_I64, READ_I64, READ_U8, READ_I64),
        *(WRITE_I64, WRITE_I64, WRITE_U8, WRITE_U8, WRITE_I64),
    )
)
def advance(
    words: Array,
    refs: Array,
    tags: Array,
    state: Array,
    sides: Array,
    codes: Array,
    lows: Array,
    highs: Array,
    valid: Array,
    times_us: Array,
    out_a: Array,
    out_b: Array,
    a_is_later: Array,
    levels: Array,
    unmatched: Array,
) -> int:
    """Work on a piece of the sequence from where it stands; return why it stopped."""
    memory = Memory(pointer_to(words), pointer_to(refs), pointer_to(tags), pointer_to(state))
    piece = Incoming(
        pointer_to(sides),
        pointer_to(codes),
        pointer_to(lows),
        pointer_to(highs),
        pointer_to(valid),
        pointer_to(times_us),
        sides.size,
    )
    output = Output(
        pointer_to(out_a),
        pointer_to(out_b),
        pointer_to(a_is_later),
        pointer_to(levels),
        out_a.size,
        pointer_to(unmatched),
        unmatched.size,
    )
    status: int = _join_rows(memory, piece, output)
    return status
