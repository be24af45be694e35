"""The distinct codes of a batch: what `np.unique` returns, without sorting the duplicates.

A stream is skewed: most rows of a batch repeat a code that was there before. Hashing finds the distinct codes in one
pass, in order of first appearance; only those are sorted, and the positions are translated. Measured on batches of
10 000 and 100 000 codes under Zipf's law this is two to three times as fast as `np.unique`, and four times for a
million. Where nearly all codes are distinct the two are level, and where they come sorted `np.unique` is the faster;
neither is worth a second path.

Memory, while it runs: up to 12 bytes of table, 8 of codes and 16 of positions for each code given.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.structures.compiled import I64, READ_I64, WRITE_I32, WRITE_I64, Array, kernel
from semistream.structures.hash_multimap import even_slots_for, home_slot

Int64s = npt.NDArray[np.int64]

CODES_LIMIT = 2**31 - 1
"""Distinct codes are numbered in 32 bits."""

_FREE = 0


def distinct(codes: Int64s) -> tuple[Int64s, Int64s]:
    """Return the distinct codes in ascending order, and for each code given its position among them.

    Example:
        >>> unique, inverse = distinct(np.array([30, 10, 30]))
        >>> unique.tolist(), inverse.tolist()
        ([10, 30], [1, 0, 1])
    """
    assert len(codes) <= CODES_LIMIT, f"{len(codes)} codes at once; at most {CODES_LIMIT} can be numbered"
    table = np.zeros(even_slots_for(len(codes)), dtype=np.int32)
    appeared = np.empty(len(codes), dtype=np.int64)
    numbers = np.empty(len(codes), dtype=np.int64)
    appeared = appeared[: _number(table, codes, appeared, numbers)]
    order = np.argsort(appeared)
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return appeared[order], ranks[numbers]


@kernel(I64(WRITE_I32, READ_I64, WRITE_I64, WRITE_I64))
def _number(table: Array, codes: Array, appeared: Array, numbers: Array) -> int:
    """Number the codes in order of first appearance; return how many there are.

    A slot holds a number plus one. The codes themselves stay out of the table, which is therefore half as large to
    clear, and the frequent ones, which mostly appear first, lie close together.
    """
    mask = table.size - 1
    count = 0
    for i in range(codes.size):
        slot = home_slot(codes[i], mask)
        while table[slot] != _FREE and appeared[table[slot] - 1] != codes[i]:
            slot = (slot + 1) & mask
        if table[slot] == _FREE:
            appeared[count] = codes[i]
            count += 1
            table[slot] = count
        numbers[i] = table[slot] - 1
    return count
