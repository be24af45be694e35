"""A process that only joins windows, and tells how much it has grown: run by `test_window_memory`.

A small join comes first, so that what a process takes once does not count: imports and compiled kernels.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

from semistream.budget import KIB, MemoryBudget
from semistream.window.join import WindowJoin
from semistream.window.pieces import Arrivals
from semistream.window.windows import seconds
from tests.support.processes import PeakMemory, held_bytes

PIECE_ROWS = 10_000


def join(index: str, memory_bytes: int, rows: int) -> MemoryBudget:
    """Join windows that hold everything that arrives, with more partners at its end than at its beginning."""
    budget = MemoryBudget(memory_bytes)
    windows = WindowJoin(seconds(3600), seconds(3600), index_a=index, index_b=index, budget=budget)
    rng = np.random.default_rng(0)
    for begin in range(0, rows, PIECE_ROWS):
        key = rng.integers(0, rows, PIECE_ROWS)
        side = (rng.random(PIECE_ROWS) < (0.1 if begin < rows // 2 else 0.9)).astype(np.int8)
        piece = Arrivals(side, key, key, key, np.ones(PIECE_ROWS, np.bool_), begin + np.arange(PIECE_ROWS))
        for _ in windows.push(piece):
            pass
        if begin == rows // 2:
            windows.change_indexes("scan", index)
    return budget


def main(index: str, memory_bytes: int) -> None:
    """Warm up, join, and print the growth."""
    join(index, 256 * KIB, 4 * PIECE_ROWS)
    before_bytes = held_bytes(os.getpid())
    with PeakMemory(lambda: [os.getpid()]) as watched:
        # More than twice as many rows as fit.
        counted = join(index, memory_bytes, memory_bytes // 10 // PIECE_ROWS * PIECE_ROWS).peak_bytes
    print(json.dumps({"growth_bytes": watched.peak_bytes - before_bytes, "counted_bytes": counted}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
