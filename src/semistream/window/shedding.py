"""Shedding: which rows go when memory or time is short, and with what probability a pair was seen.

Every row draws two numbers by hashing its side and its number under the join's seed: one decides whether it is held,
one whether it probes. So what is shed is random, repeats exactly, does not depend on how the stream is cut into pieces,
and needs no memory of its own.

Short of time, rows of a side probe with its *probe share* and are always inserted. Short of memory, the share of rows
that a side holds falls by a step (`SHARE_STEP`), and the held rows that no longer belong to it go; what stays is a
random subset of the full window and every row probes it. A row's inclusion probability is the least share since it
arrived. Shares lie on a ladder, so a row remembers its own in one byte, its *level*. When the window would fit again at
a higher share, the share of new rows rises; older rows keep theirs.

Memory for windows is given to whoever asks first. When none is left, a side that holds more than its part gives way to
one that holds less (`parts`, by default halves).
"""

from __future__ import annotations

import numpy as np

from semistream.structures.window_side import choose_rows
from semistream.structures.window_state import (
    HOLD_BELOW,
    HOLD_KEY,
    LEVEL,
    PROBE_ALL,
    PROBE_BELOW,
    PROBE_KEY,
    SIDE_WORDS,
    STATE_WORDS,
    Int64s,
)
from semistream.window.pieces import Flags, Floats

SHARE_STEP = 0.8
"""Each level holds this part of the one before: few rebuilds while the share falls, and memory that is used to 80 %."""

LEVEL_MAX = 190
"""Below this share no hash of 64 bits would be left."""

SHARES: Floats = SHARE_STEP ** np.arange(LEVEL_MAX + 1, dtype=np.float64)
"""The share of each level."""

FITS_BELOW = 0.7
"""A higher share must leave this much of the memory free, so that it does not fall again at once."""

SEEN_BEFORE_RISING = 8
"""The window is looked at again after as many rows as an eighth of what it holds."""

_HASHES = 2**64


def set_level(state: Int64s, side: int, level: int) -> None:
    """Hold new rows of a side with the share of this level."""
    state[side + LEVEL] = level
    state[side + HOLD_BELOW] = _bound_of(float(SHARES[level]))


def set_probe_share(state: Int64s, side: int, share: float) -> None:
    """Let this share of a side's rows probe."""
    state[side + PROBE_ALL] = int(share >= 1.0)
    state[side + PROBE_BELOW] = _bound_of(share)


def set_keys(state: Int64s, side: int, seed: int) -> None:
    """Give a side the keys of its two draws."""
    draws = np.random.default_rng((seed, side)).integers(np.iinfo(np.int64).max, size=2)
    state[side + HOLD_KEY], state[side + PROBE_KEY] = draws


def level_fitting(held_levels: Int64s, rows_fitting: int) -> int:
    """Return the lowest level at which the full window, estimated from held rows, fits with room to spare.

    `held_levels` counts the held rows of each level.
    """
    window_rows = float((held_levels / SHARES[: len(held_levels)]).sum())
    fits = window_rows * SHARES <= FITS_BELOW * rows_fitting
    return int(np.argmax(fits)) if fits.any() else LEVEL_MAX


def held_at(level: int, rows: Int64s, *, number: int, seed: int) -> Flags:
    """Which rows of a side (0 for A, 1 for B) a join with this seed holds at a level."""
    side, state = number * SIDE_WORDS, np.zeros(STATE_WORDS, np.int64)
    set_keys(state, side, seed)
    set_level(state, side, level)
    is_held = np.empty(len(rows), np.bool_)
    choose_rows(np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8), state, side, rows, is_held)
    return is_held


def _bound_of(share: float) -> int:
    """The bound below which this share of all 64-bit hashes lies, as the signed number with the same bits."""
    bound = min(int(share * _HASHES), _HASHES - 1)
    return bound - _HASHES if bound >= _HASHES // 2 else bound
