"""A bounded set of codes that forgets the oldest, many at a time: the keys known to be absent in R.

Two generations. New codes enter the young one; when it is full and another code comes, the old generation is dropped
as a whole, the young one becomes the old, and the other table is cleared to be young. Forgetting costs nothing for
each code, needs no order among them, and a code that keeps coming back keeps returning to the young generation.

What may be relied upon, with half = `codes_max` // 2:

- there are never more than `codes_max` codes,
- a code is still there unless more than half other codes were added since it was, and
- `contains` is never wrong about a code that it affirms.

Both generations lie in one array: open addressing, linear probing, a power of two of slots each. Zero marks a free
slot. The code zero is legal too, so each generation has one slot more, behind the others, that stands for it.

Memory: two times 8 bytes a slot, 10/7 to 20/7 slots for each code of a half: between 11 and 23 bytes a code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.structures.compiled import I64, READ_I64, VOID, WRITE_BOOL, WRITE_I64, Array, inlined, kernel
from semistream.structures.hash_multimap import codes_in, even_slots_for, home_slot

Int64s = npt.NDArray[np.int64]

FREE = 0
"""What a free slot holds."""

CODES_MIN = 2
"""A set of one code would have a young generation of none."""

# Places in the small array of what changes while codes are added.
_YOUNG = 0  # which generation is young: 0 or 1
_YOUNG_CODES = 1
_OLD_CODES = 2
_SHARED_CODES = 3  # codes in both generations: they came back after they had grown old
_STATE_WORDS = 4


class CodeSet:
    """A set of at most `codes_max` codes, the recent ones.

    Example:
        >>> absent = CodeSet(codes_max=100)
        >>> absent.add(np.array([4, 5]))
        >>> absent.contains(np.array([5, 6])).tolist()
        [True, False]
    """

    def __init__(self, codes_max: int) -> None:
        assert codes_max >= CODES_MIN, f"a set for {codes_max} codes; it needs room for at least {CODES_MIN}"
        self.codes_max = codes_max
        self._half = codes_max // 2
        self._tables = np.zeros(2 * _words_for(self._half), dtype=np.int64)
        self._state = np.zeros(_STATE_WORDS, dtype=np.int64)

    @staticmethod
    def bytes_for(codes_max: int) -> int:
        """Return what a set for `codes_max` codes allocates."""
        return 8 * (2 * _words_for(codes_max // 2) + _STATE_WORDS)

    @staticmethod
    def codes_fitting(bytes_max: int) -> int:
        """Return the most codes a set of at most `bytes_max` bytes can have; 0 if not even two."""
        codes_max, slots = 0, 2
        while CodeSet.bytes_for(2 * codes_in(slots)) <= bytes_max:
            codes_max = 2 * codes_in(slots) + 1
            slots *= 2
        return codes_max

    @property
    def nbytes(self) -> int:
        """Bytes really allocated."""
        return self._tables.nbytes + self._state.nbytes

    def __len__(self) -> int:
        """Return the number of codes in the set."""
        return int(self._state[_YOUNG_CODES] + self._state[_OLD_CODES] - self._state[_SHARED_CODES])

    def clear(self) -> None:
        """Forget everything; O(capacity)."""
        self._tables.fill(FREE)
        self._state.fill(0)

    def add(self, codes: Int64s) -> None:
        """Add these codes one after another, forgetting old ones where room is needed."""
        _add(self._tables, self._state, self._half, codes)
        assert len(self) <= self.codes_max, "the set holds more codes than it may"

    def contains(self, codes: Int64s) -> npt.NDArray[np.bool_]:
        """Return for each code whether it is in the set."""
        found = np.empty(len(codes), dtype=np.bool_)
        _contains(self._tables, codes, found)
        return found


def _words_for(half: int) -> int:
    return even_slots_for(half) + 1


@inlined
def _place_of(tables: Array, generation: Any, code: Any) -> Any:
    """Return where a code stands in a generation, or the free place where it would."""
    words = tables.size // 2
    mask = words - 2
    base = generation * words
    if code == FREE:
        return base + words - 1
    slot = home_slot(code, mask)
    while tables[base + slot] != FREE and tables[base + slot] != code:
        slot = (slot + 1) & mask
    return base + slot


@kernel(VOID(WRITE_I64, WRITE_I64, I64, READ_I64))
def _add(tables: Array, state: Array, half: int, codes: Array) -> None:
    for i in range(codes.size):
        code = codes[i]
        young = state[_YOUNG]
        place = _place_of(tables, young, code)
        if tables[place] != FREE:
            continue
        if state[_YOUNG_CODES] == half:
            young = 1 - young
            words = tables.size // 2
            tables[young * words : (young + 1) * words] = FREE
            state[_YOUNG] = young
            state[_OLD_CODES] = half
            state[_YOUNG_CODES] = 0
            state[_SHARED_CODES] = 0
            place = _place_of(tables, young, code)
        # The place of the code zero is known by where it is; any mark but FREE will do there.
        tables[place] = code if code != FREE else 1
        state[_YOUNG_CODES] += 1
        if tables[_place_of(tables, 1 - young, code)] != FREE:
            state[_SHARED_CODES] += 1


@kernel(VOID(READ_I64, READ_I64, WRITE_BOOL))
def _contains(tables: Array, codes: Array, found: Array) -> None:
    for i in range(codes.size):
        found[i] = tables[_place_of(tables, 0, codes[i])] != FREE or tables[_place_of(tables, 1, codes[i])] != FREE
