"""What every index over a window promises: it finds exactly the rows that a sorted list of them finds.

After every single operation the structure is walked and its invariants are checked: order by code and arrival, least
and greatest occupancy, balance, links, and that every slot of the ring stands in it once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semistream.budget import MIB, MemoryBudget
from semistream.structures.window_b_plus_tree import LEVELS_MAX
from semistream.structures.window_b_plus_tree import nodes_for as b_plus_tree_nodes
from semistream.structures.window_state import (
    BUCKETS,
    CAPACITY,
    CODE0,
    FREE,
    HEAD,
    HEIGHT,
    INDEX_REFS,
    INDEX_WORDS,
    NODE_ROWS,
    NODES,
    ROOT,
)
from semistream.structures.window_t_tree_nodes import ROWS_SLACK
from semistream.structures.window_t_tree_nodes import nodes_for as t_tree_nodes
from semistream.window.join import INDEX_NAMES, side_indexes
from semistream.window.pieces import HeldRows
from semistream.window.room import Room
from semistream.window.side import WindowSide
from semistream.window.windows import rows

INT64 = np.iinfo(np.int64)
Entries = list[tuple[int, int]]


def new_side(name: str, rows_max: int, *, node_rows: int = 4, bucket_rows: int = 2) -> WindowSide:
    """A window of its own, with room for `rows_max` rows."""
    indexes = side_indexes(bucket_rows, node_rows)
    room = Room(
        MemoryBudget(16 * MIB),
        windows=(rows(rows_max), rows(1)),
        indexes=(indexes[name], indexes["scan"]),
        all_indexes=list(indexes.values()),
        lateness_us=0,
        parts=(0.5, 0.5),
        sheds=True,
    )
    room.sides[0].lay_out(rows_max)
    return room.sides[0]


def one_row(code: int, row: int) -> HeldRows:
    return HeldRows(np.array([code]), np.array([row]), np.array([row]), np.zeros(1, np.uint8))


def age(side: WindowSide, slot: int) -> int:
    return int((slot - side.memory.state[HEAD]) % side.memory.state[CAPACITY])


def code_of(side: WindowSide, slot: int) -> int:
    return int(side.memory.words[side.memory.state[CODE0] + slot])


# Each returns the entries (code, age) in the order of the index, having checked the rest.


def walk_scan(side: WindowSide) -> Entries:
    return [(code_of(side, int(slot)), a) for a, slot in enumerate(side.slots(0, len(side)))]


def walk_hash(side: WindowSide) -> Entries:
    state, refs = side.memory.state, side.memory.refs
    entries: Entries = []
    for bucket in range(state[BUCKETS]):
        newest = refs[state[INDEX_REFS] + state[CAPACITY] + bucket]
        chain = []
        while newest >= 0 and (not chain or chain[-1] != newest):
            chain.append(refs[state[INDEX_REFS] + (chain[-1] if chain else newest)])
        ages = [age(side, slot) for slot in chain]
        assert ages == sorted(ages), "a chain is not in the order of arrival"
        entries += [(code_of(side, slot), a) for slot, a in zip(chain, ages, strict=True)]
    return entries


def walk_b_plus_tree(side: WindowSide) -> Entries:
    state, words, refs = side.memory.state, side.memory.words, side.memory.refs
    node_rows, height = int(state[NODE_ROWS]), int(state[HEIGHT])
    leaves: list[int] = []
    seen: set[int] = set()

    def node_of(node: int) -> tuple[list[int], np.ndarray, int]:
        place = state[INDEX_REFS] + 2 * LEVELS_MAX + node * (node_rows + 3)
        codes = state[INDEX_WORDS] + node * node_rows
        count = int(refs[place])
        return words[codes : codes + count].tolist(), refs[place + 2 :], int(refs[place + 1])

    def walk(node: int, level: int, low: int, high: int) -> None:
        assert node not in seen, "a node is reached twice"
        seen.add(node)
        codes, items, _ = node_of(node)
        assert codes == sorted(codes), "codes of a node are not in order"
        assert all(low <= code <= high for code in codes), "a code lies beyond the separators around it"
        assert len(codes) <= node_rows, "a node has more rows than it may"
        assert node == state[ROOT] or len(codes) >= node_rows // 2, "a node is less than half full"
        if level == height:
            leaves.append(node)
            return
        assert len(codes) >= 1, "an inner node without a separator"
        for i, (below, above) in enumerate(zip([low, *codes], [*codes, high], strict=True)):
            walk(int(items[i]), level + 1, below, above)

    walk(int(state[ROOT]), 0, INT64.min, INT64.max)
    assert len(seen) + count_free(side, place_of_link=2 * LEVELS_MAX + 1, node_refs=node_rows + 3) == state[NODES]
    assert state[NODES] <= b_plus_tree_nodes(side.capacity, node_rows), "the pool is larger than its bound"
    links = [node_of(leaf)[2] for leaf in leaves]
    assert links == [*leaves[1:], -1], "leaves are not linked in order"
    return [(code, age(side, int(slot))) for leaf in leaves for code, slot in zip(*node_of(leaf)[:2], strict=False)]


def walk_t_tree(side: WindowSide) -> Entries:
    state, words, refs = side.memory.state, side.memory.words, side.memory.refs
    node_rows = int(state[NODE_ROWS])
    entries: Entries = []
    nodes = 0

    def walk(node: int, parent: int) -> int:
        nonlocal nodes
        if node < 0:
            return 0
        nodes += 1
        place = state[INDEX_REFS] + node * (node_rows + 5)
        count, left, right, parent_link, height = (int(ref) for ref in refs[place : place + 5])
        assert parent_link == parent, "a node does not know its parent"
        assert 1 <= count <= node_rows, "a node is empty or overfull"
        has_child = left >= 0 or right >= 0
        assert not has_child or count >= node_rows - ROWS_SLACK, "a node with a child lacks rows"
        left_height = walk(left, node)
        codes = state[INDEX_WORDS] + node * node_rows
        slots = refs[place + 5 : place + 5 + count].tolist()
        entries.extend(zip(words[codes : codes + count].tolist(), [age(side, s) for s in slots], strict=True))
        right_height = walk(right, node)
        assert abs(left_height - right_height) <= 1, "the tree is out of balance"
        assert height == 1 + max(left_height, right_height), "a height is wrong"
        return height

    walk(int(state[ROOT]), -1)
    assert nodes + count_free(side, place_of_link=3, node_refs=node_rows + 5) == state[NODES]
    assert state[NODES] <= t_tree_nodes(side.capacity, node_rows), "the pool is larger than its bound"
    return entries


def count_free(side: WindowSide, *, place_of_link: int, node_refs: int) -> int:
    free, node = 0, int(side.memory.state[FREE])
    while node >= 0:
        free += 1
        node = int(side.memory.refs[side.memory.state[INDEX_REFS] + place_of_link + node * node_refs])
    return free


WALKS: dict[str, Callable[[WindowSide], Entries]] = {
    "scan": walk_scan,
    "hash": walk_hash,
    "b+tree": walk_b_plus_tree,
    "t-tree": walk_t_tree,
}


class Model:
    """The same window as a sorted list."""

    def __init__(self) -> None:
        self.entries: Entries = []
        self.by_row: dict[int, int] = {}

    def insert(self, code: int, row: int) -> None:
        insort(self.entries, (code, row))
        self.by_row[row] = code

    def expire(self, row_low: int) -> None:
        for row in [row for row in self.by_row if row < row_low]:
            self.entries.remove((self.by_row.pop(row), row))

    def probe(self, low: int, high: int) -> list[int]:
        return [
            row
            for _, row in self.entries[
                bisect_left(self.entries, (low, -1)) : bisect_right(self.entries, (high, INT64.max))
            ]
        ]


def check_invariants(side: WindowSide, model: Model) -> None:
    entries = WALKS[side.index.name](side)
    oldest = min(model.by_row, default=0)
    expected = [(code, row - oldest) for code, row in model.entries]
    assert (entries if side.index.name.endswith("tree") else sorted(entries)) == expected


def probe_both(side: WindowSide, model: Model, low: int, high: int) -> None:
    assert sorted(side.probe(low, high).tolist()) == sorted(model.probe(low, high))


def any_codes(rng: np.random.Generator, count: int) -> np.ndarray:
    kind = rng.integers(5)
    if kind == 0:
        return rng.integers(0, 5, count)
    if kind == 1:
        return rng.integers(-1000, 1000, count)
    if kind == 2:
        return np.arange(count)
    if kind == 3:
        return -np.arange(count)
    return np.where(rng.random(count) < 0.3, rng.choice([INT64.min, INT64.max, 0], count), rng.integers(0, 50, count))


@pytest.mark.parametrize("name", INDEX_NAMES)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), node_rows=st.integers(3, 9), rows_max=st.integers(1, 120))
def test_an_index_finds_what_a_sorted_list_finds(name: str, seed: int, node_rows: int, rows_max: int) -> None:
    rng = np.random.default_rng(seed)
    side = new_side(name, rows_max, node_rows=node_rows, bucket_rows=1 + seed % 4)
    model = Model()
    row, oldest = 0, 0
    for code in any_codes(rng, 250).tolist():
        # Windows grow, stand still and shrink.
        leaves = len(side) == rows_max or rng.random() < 0.3 + 0.4 * ((row // 60) % 2)
        while leaves and oldest < row:
            oldest += 1
            side.expire(oldest)
            model.expire(oldest)
            check_invariants(side, model)
            leaves = rng.random() < 0.4
        side.insert(one_row(code, row))
        model.insert(code, row)
        row += 1
        check_invariants(side, model)
        low = int(rng.choice([code, code - 1 if code > INT64.min else code]))
        high = low if name == "hash" else min(INT64.max, low + int(rng.integers(0, 30)))
        probe_both(side, model, low, high)
    while oldest < row:
        oldest += 1
        side.expire(oldest)
        model.expire(oldest)
        check_invariants(side, model)
    assert len(side) == 0


@pytest.mark.parametrize("name", INDEX_NAMES)
def test_a_probe_goes_on_where_its_output_was_full(name: str) -> None:
    side = new_side(name, 5000)
    numbers = np.arange(5000)
    side.insert(HeldRows(numbers % 2, numbers, numbers, np.zeros(5000, np.uint8)))
    assert sorted(side.probe(1, 1).tolist()) == numbers[1::2].tolist()
    assert len(side.probe(1, 1, mark_low=100, mark_high=199)) == 50
    assert len(side.probe(3, 2)) == 0


@pytest.mark.parametrize("name", INDEX_NAMES)
def test_an_index_built_at_once_holds_what_one_built_row_by_row_holds(name: str) -> None:
    rng = np.random.default_rng(5)
    side = new_side(name, 300)
    model = Model()
    for row, code in enumerate(rng.integers(0, 40, 400).tolist()):
        if row >= 300:
            side.expire(row - 299)
            model.expire(row - 299)
        side.insert(one_row(code, row))
        model.insert(code, row)
    for other in ("hash", "t-tree", "b+tree", "scan", name):
        side.lay_out(320, side_indexes(2, 4)[other])
        check_invariants(side, model)
