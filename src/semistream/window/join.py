"""The join of two windows: any index on either side, exactly once for every pair, within a budget.

`push` takes a piece of the one sequence of both streams and yields pairs of row numbers in pieces of bounded size;
which pairs depends on the sequence only, not on how it is cut into pieces. The join holds codes and numbers and never
payload; where codes are hashes, or conditions remain, whoever holds the payload checks the pairs.

Memory: the rings and indexes of both sides (17 or 25 bytes a row and what the index takes) and one piece of output are
charged to accounts. Rings grow by doubling within address space that is reserved at the start, so nothing is ever held
twice. When no memory is left, rows are shed (`semistream.window.shedding`), or, for left joins, it is an error: a row
without a partner could not be told from one whose partner was shed.

Traps. `push` and `drain` are generators: nothing happens until they are consumed, and a piece must be consumed to its
end before the next. A left join whose pairs still have to be checked is made with `confirming=True`, and `confirm` is
called with the rows of A that really have a partner before the next piece of output is asked for; of the rows that are
reported as unmatched together with those pairs, the confirmed ones must be left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from semistream.budget import MemoryBudget
from semistream.errors import InvalidOption, check_choice
from semistream.structures.window_b_plus_tree import NODE_ROWS_MIN
from semistream.structures.window_join import ARRIVING, OUTPUT_FULL, PIECE_DONE, RANGE_IN_HASH, RING_FULL, advance
from semistream.structures.window_state import (
    ARRIVED,
    AT,
    CLOCK,
    CONFIRMING,
    FULL_SIDE,
    INT64_MIN,
    LEFT,
    OUTER,
    PAIRS,
    PROBES,
    PROBES_SKIPPED,
    ROWS,
    ROWS_LATE,
    ROWS_SHED,
    SIDE_A,
    SIDE_B,
    SIDE_WORDS,
    STAGE,
    WRITTEN,
    Bytes,
    Int64s,
)
from semistream.window.b_plus_tree import BPlusTreeIndex
from semistream.window.hash import HashIndex
from semistream.window.pieces import NO_ROWS, Arrivals, Pairs, SideCounts, Snapshot
from semistream.window.room import Room
from semistream.window.scan import ScanIndex
from semistream.window.shedding import SHARES, set_keys, set_level, set_probe_share
from semistream.window.side import WindowSide
from semistream.window.side_index import SideIndex
from semistream.window.t_tree import TTreeIndex
from semistream.window.windows import Window

PAIRS_PER_PIECE = 1 << 16
PAIR_BYTES = 42
"""Two row numbers, a flag and a level, and two shares and a weight in float64; rows without a partner take less."""

OUTPUT_PART = 8
"""A piece of output takes no more than this part of the budget."""

HASH_BUCKET_ROWS = 1
TREE_NODE_ROWS = 64
INDEX_NAMES = ("scan", "hash", "b+tree", "t-tree")

Output = tuple[Any, ...]


def side_indexes(
    hash_bucket_rows: int = HASH_BUCKET_ROWS, tree_node_rows: int = TREE_NODE_ROWS
) -> dict[str, SideIndex]:
    """Return every index by its name."""
    if hash_bucket_rows < 1 or tree_node_rows < NODE_ROWS_MIN:
        raise InvalidOption(
            "an index cannot have buckets or nodes as small as that",
            given=f"{hash_bucket_rows} rows a bucket, {tree_node_rows} rows a node",
            allowed=f"at least 1 row a bucket and {NODE_ROWS_MIN} rows a node",
        )
    indexes: list[SideIndex] = [
        ScanIndex(),
        HashIndex(hash_bucket_rows),
        BPlusTreeIndex(tree_node_rows),
        TTreeIndex(tree_node_rows),
    ]
    return {index.name: index for index in indexes}


class WindowJoin:
    """Joins two streams over their windows.

    Example:
        >>> from semistream.budget import MIB
        >>> from semistream.window.windows import rows
        >>> join = WindowJoin(rows(2), rows(2), budget=MemoryBudget(1 * MIB))
        >>> key = np.array([7, 7, 8, 7])
        >>> piece = Arrivals(np.array([0, 1, 1, 0], np.int8), key, key, key, np.ones(4, bool), np.arange(4))
        >>> [(pairs.row_a.tolist(), pairs.row_b.tolist()) for pairs in join.push(piece)]
        [([0, 1], [0, 0])]
    """

    def __init__(
        self,
        window_a: Window,
        window_b: Window,
        *,
        budget: MemoryBudget,
        index_a: str = "hash",
        index_b: str = "hash",
        outer: bool = False,
        confirming: bool = False,
        lateness_us: int = 0,
        seed: int = 0,
        probe_share: tuple[float, float] = (1.0, 1.0),
        allocation: tuple[float, float] = (0.5, 0.5),
        hash_bucket_rows: int = HASH_BUCKET_ROWS,
        tree_node_rows: int = TREE_NODE_ROWS,
        pairs_per_piece: int = PAIRS_PER_PIECE,
    ) -> None:
        check_choice("index_a", index_a, INDEX_NAMES)
        check_choice("index_b", index_b, INDEX_NAMES)
        self._indexes = side_indexes(hash_bucket_rows, tree_node_rows)
        self._pairs_per_piece = max(1, min(pairs_per_piece, budget.limit_bytes // (OUTPUT_PART * PAIR_BYTES)))
        budget.account("pairs").take(PAIR_BYTES * self._pairs_per_piece)
        self._room = Room(
            budget,
            windows=(window_a, window_b),
            indexes=(self._indexes[index_a], self._indexes[index_b]),
            all_indexes=list(self._indexes.values()),
            lateness_us=lateness_us,
            parts=allocation,
            sheds=not outer,
        )
        self._sides: tuple[WindowSide, WindowSide] = self._room.sides
        self._state = self._room.memory.state
        self._state[CLOCK] = INT64_MIN
        self._state[OUTER], self._state[CONFIRMING] = int(outer), int(confirming)
        for side in (SIDE_A, SIDE_B):
            set_keys(self._state, side, seed)
            set_level(self._state, side, 0)
        self._is_sampling = False
        self.change_probe_shares(*probe_share)

    @property
    def held_rows(self) -> tuple[int, int]:
        """Rows in the windows of A and of B."""
        return len(self._sides[0]), len(self._sides[1])

    @property
    def held_bytes(self) -> tuple[int, int]:
        """Bytes taken for the windows of A and of B and their indexes."""
        return self._sides[0].held_bytes, self._sides[1].held_bytes

    @property
    def index_names(self) -> tuple[str, str]:
        """The indexes over the windows of A and of B."""
        return self._sides[0].index.name, self._sides[1].index.name

    @property
    def held_share(self) -> tuple[float, float]:
        """The shares of new rows of A and of B that are held."""
        return float(SHARES[self._sides[0].level]), float(SHARES[self._sides[1].level])

    @property
    def counts(self) -> tuple[SideCounts, SideCounts]:
        """What has happened to the rows of A and of B."""
        return self._counts(SIDE_A), self._counts(SIDE_B)

    def push(self, arrivals: Arrivals) -> Iterator[Pairs]:
        """Accept the next piece of the sequence and yield its pairs; nothing is accepted until it is consumed."""
        assert self._state[STAGE] == ARRIVING, "the piece before was not consumed to its end"
        columns = arrivals.columns()
        assert len(arrivals) == 0 or 0 <= columns[0].min() <= columns[0].max() <= 1, "a side is 0 for A or 1 for B"
        self._room.raise_shares()
        memory, state = self._room.memory, self._state
        state[AT] = 0
        output = self._new_output()
        while True:
            status = advance(*memory.arrays, *columns, *output)
            if status == RING_FULL:
                self._room.make(int(state[FULL_SIDE]) // SIDE_WORDS)
                self._is_sampling |= self._room.is_shedding
                continue
            assert status != RANGE_IN_HASH, "a hash index was asked for an interval of codes"
            if state[WRITTEN] > 0 or state[LEFT] > 0:
                yield self._pairs(output)
            if status == PIECE_DONE:
                return
            assert status == OUTPUT_FULL, f"the join stopped for an unknown reason: {status}"
            output = self._new_output()

    def drain(self) -> Iterator[Pairs]:
        """Yield the rows of A that are still held and have no partner: the end of the stream has come."""
        side_a = self._sides[0]
        for begin in range(0, len(side_a), self._pairs_per_piece) if self._state[OUTER] else ():
            slots = side_a.slots(begin, min(begin + self._pairs_per_piece, len(side_a)))
            alone = slots[side_a.tags[slots] == 0]
            side_a.tags[alone] = 1
            yield Pairs(NO_ROWS, NO_ROWS, np.zeros(0, np.bool_), unmatched_a=side_a.rows[alone])

    def confirm(self, rows_a: Int64s) -> None:
        """Note that these rows of A have a partner; for joins with `confirming`."""
        assert self._state[CONFIRMING], "only a join that was made with confirming=True waits for it"
        self._sides[0].tag(rows_a)

    def change_indexes(self, index_a: str, index_b: str) -> None:
        """Build other indexes over the windows; nothing that is held is lost, unless memory is too short for them."""
        assert self._state[STAGE] == ARRIVING, "indexes are changed between two pieces"
        for number, (option, name) in enumerate((("index_a", index_a), ("index_b", index_b))):
            check_choice(option, name, INDEX_NAMES)
            if name != self._sides[number].index.name:
                self._room.change_index(number, self._indexes[name])
        self._is_sampling |= self._room.is_shedding

    def change_probe_shares(self, share_a: float, share_b: float) -> None:
        """From the next row on let these shares of the rows of A and of B probe."""
        for side, share in ((SIDE_A, share_a), (SIDE_B, share_b)):
            if not 0.0 <= share <= 1.0:
                raise InvalidOption("a probe share is a probability", given=str(share), allowed="0 to 1")
            set_probe_share(self._state, side, share)
        if self._state[OUTER] and min(share_a, share_b) < 1.0:
            raise InvalidOption(
                "a left join cannot shed: a row without a partner could not be told from one that did not look for it",
                given=f"probe shares {share_a} and {share_b}",
                allowed="1 and 1",
            )
        self._probe_shares = np.array([share_a, share_b])
        self._is_sampling |= min(share_a, share_b) < 1.0

    def change_allocation(self, part_a: float, part_b: float) -> None:
        """From now on let the windows of A and of B have these parts of the memory where it is short."""
        self._room.parts = (part_a, part_b)

    def snapshot(self) -> Snapshot:
        """Return all of the join; the windows are copied."""
        assert self._state[STAGE] == ARRIVING, "a snapshot is taken between two pieces"
        return Snapshot(
            counts=self.counts,
            arrived=int(self._state[ARRIVED]),
            clock_us=int(self._state[CLOCK]),
            levels=self.levels,
            held=(self._sides[0].held(), self._sides[1].held()),
        )

    def sample(self) -> tuple[tuple[Int64s, Bytes], tuple[Int64s, Bytes]]:
        """The numbers of the rows that A and B hold, and the level each is held with."""
        return self._sides[0].sample(), self._sides[1].sample()

    @property
    def levels(self) -> tuple[int, int]:
        """Levels of the shares with which new rows of A and of B are held."""
        return self._sides[0].level, self._sides[1].level

    def restore(self, snapshot: Snapshot) -> None:
        """Go on where another join stood; what does not fit into the memory of this one is shed."""
        self._state[ARRIVED], self._state[CLOCK] = snapshot.arrived, snapshot.clock_us
        for number, base in enumerate((SIDE_A, SIDE_B)):
            counts, state = snapshot.counts[number], self._state
            state[base + ROWS], state[base + PAIRS] = counts.arrivals, counts.pairs
            state[base + PROBES], state[base + PROBES_SKIPPED] = counts.probes, counts.probes_skipped
            state[base + ROWS_SHED], state[base + ROWS_LATE] = counts.rows_shed, counts.rows_late
            set_level(state, base, snapshot.levels[number])
            self._room.fill(number, snapshot.held[number])
            is_sample = not state[OUTER] and bool(snapshot.held[number].tag.any())
            self._is_sampling |= is_sample or self._room.is_shedding

    def _counts(self, base: int) -> SideCounts:
        words = (ROWS, PAIRS, PROBES, PROBES_SKIPPED, ROWS_SHED, ROWS_LATE)
        return SideCounts(*(int(self._state[base + word]) for word in words))

    def _new_output(self) -> Output:
        self._state[WRITTEN] = self._state[LEFT] = 0
        pairs = self._pairs_per_piece
        return (
            np.empty(pairs, np.int64),
            np.empty(pairs, np.int64),
            np.empty(pairs, np.uint8),
            np.empty(pairs, np.uint8),
            np.empty(pairs if self._state[OUTER] else 0, np.int64),
        )

    def _pairs(self, output: Output) -> Pairs:
        row_a, row_b, a_is_later, levels = (column[: self._state[WRITTEN]] for column in output[:4])
        return Pairs(
            row_a,
            row_b,
            a_is_later.view(np.bool_),
            probe_share=self._probe_shares[1 - a_is_later] if self._is_sampling else None,
            held_share=SHARES[levels] if self._is_sampling else None,
            unmatched_a=output[4][: self._state[LEFT]],
        )
