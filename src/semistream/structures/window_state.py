"""Where everything of a window join stands in memory: four arrays that every kernel of the join works on.

Both windows live in the same arrays, so that a kernel picks a side by adding to an index instead of by choosing among
arrays, and one compiled loop serves all combinations of indexes.

- `words` (int64): for each side the columns of its ring (key code, mark, row number) and the codes in its tree's nodes,
- `refs` (int32): for each side what its index points with: slots of the ring, nodes, chains,
- `tags` (uint8): for each side one byte a slot, see `TAG0`,
- `state` (int64): the words named below, `SIDE_WORDS` for each side, and behind them what both sides share.

A *slot* is a place in a ring, a *mark* what a window measures a row by (row number, arrival or time, by the kind of
window). Rows of a side stand in its ring in the order of their arrival; where the window counts rows, mark and row
number are one column. Every base of a column is an index into `words`, `refs` or `tags`.

Kernels are given the arrays and make a `Memory` of pointers of them, which their helpers are given.

Address space for the most rows a side can ever hold is reserved at once and memory is taken as it is written, so a
ring that grows is never copied to another place and old and new never stand in memory together. Shrinking gives the
pages back (`WindowMemory.release`).
"""

from __future__ import annotations

import contextlib
import mmap
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from semistream.structures.raw_memory import Pointer

Int64s = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]

# Kinds of index.
SCAN, HASH, B_PLUS_TREE, T_TREE = range(4)

# Kinds of window, by what its mark is.
BY_ROW, BY_ARRIVAL, BY_TIME = range(3)

# The words of one side, from its base on.
KIND = 0
WINDOW = 1
SPAN = 2  # rows, arrivals or microseconds
REACH = 3  # the span, and for time the lateness on top: a row whose mark is further back is gone for good
ROWS = 4  # rows accepted so far, null keys included
CAPACITY = 5
HEAD = 6  # the slot of the oldest row
COUNT = 7
CODE0 = 8
MARK0 = 9
ROW0 = 10
TAG0 = 11  # in `tags`: with OUTER, whether the row has found a partner; otherwise the level it was last sampled at
INDEX_WORDS = 12  # where the index begins in `words`
INDEX_REFS = 13  # and in `refs`
BUCKETS = 14
NODE_ROWS = 15
ROOT = 16
HEIGHT = 17  # of a B+tree: levels above the leaves
NODES = 18  # nodes ever taken from the pool
FREE = 19  # the first node that was given back, -1 for none
LEVEL = 20  # new rows are held with the probability that belongs to this level
HOLD_BELOW = 21  # that probability as a bound for the row's hash, the bits of an unsigned number
HOLD_KEY = 22
PROBE_BELOW = 23
PROBE_KEY = 24
PROBE_ALL = 25  # 1 while every row probes
PAIRS = 26
PROBES = 27
PROBES_SKIPPED = 28
ROWS_SHED = 29
ROWS_LATE = 30
SIDE_WORDS = 32

SIDE_A, SIDE_B = 0, SIDE_WORDS

# What both sides share.
ARRIVED = 64  # rows of both sides so far
CLOCK = 65  # the latest time so far
OUTER = 66  # 1: rows of A that leave without a partner are reported
AT = 67  # the row of the piece that is worked on
STAGE = 68
CURSOR = 69  # where an interrupted probe goes on: a slot or a node; see START and FINISHED
CURSOR_AT = 70  # the place in that node
MATCHED = 71  # whether the row that is worked on has found a partner
WRITTEN = 72  # pairs in the output
LEFT = 73  # rows of A in the output that left without a partner
FULL_SIDE = 74  # the base of the side that has no free slot
CONFIRMING = 75  # 1: who holds the payload says which pairs are partners
STATE_WORDS = 80

# Cursors.
START = -2
FINISHED = -1

NONE = -1
"""No slot, no node, an empty chain."""

INT64_MAX = np.iinfo(np.int64).max
INT64_MIN = np.iinfo(np.int64).min


class Memory(NamedTuple):
    """The arrays as helpers of kernels see them."""

    words: Pointer
    refs: Pointer
    tags: Pointer
    state: Pointer


class WindowMemory:
    """The arrays, with address space for a number of elements in each."""

    def __init__(self, words_max: int, refs_max: int, tags_max: int) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self.words: Int64s = self._reserve(words_max, np.int64)
        self.refs: Int32s = self._reserve(refs_max, np.int32)
        self.tags: Bytes = self._reserve(tags_max, np.uint8)
        self.state: Int64s = np.zeros(STATE_WORDS, np.int64)

    @property
    def arrays(self) -> tuple[Int64s, Int32s, Bytes, Int64s]:
        """The arrays in the order in which every kernel takes them."""
        return self.words, self.refs, self.tags, self.state

    def _reserve(self, elements: int, dtype: Any) -> npt.NDArray[Any]:
        size = max(1, elements) * np.dtype(dtype).itemsize
        # The address space of both sides together may exceed what the machine has; what is written never does.
        without_reserve = getattr(mmap, "MAP_NORESERVE", 0)
        space = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | without_reserve)
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            # Huge pages would take memory behind the last row of each column that no account knows of.
            with contextlib.suppress(OSError):
                space.madvise(mmap.MADV_NOHUGEPAGE)
        array = np.frombuffer(space, dtype)
        self._maps[id(array)] = space
        return array

    def release(self, array: npt.NDArray[Any], begin: int, end: int) -> None:
        """Give the memory of these elements back, as far as they fill pages; they read as zeros afterwards."""
        page = mmap.PAGESIZE
        first = -(-begin * array.itemsize // page) * page
        last = end * array.itemsize // page * page
        if first < last:
            self._maps[id(array)].madvise(mmap.MADV_DONTNEED, first, last - first)
