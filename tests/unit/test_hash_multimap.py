"""The multimap against a dictionary of lists."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from semistream.structures.hash_multimap import (
    ABSENT,
    EMPTY,
    HashMultimap,
    codes_in,
    scaled_slot,
    slots_for,
)

Int64s = npt.NDArray[np.int64]
Model = dict[int, list[int]]

INT64 = np.iinfo(np.int64)
EXTREMES = [0, -1, 1, INT64.min, INT64.max, INT64.min + 1]


def ints(*values: int) -> Int64s:
    return np.array(values, dtype=np.int64)


def colliding_codes(count: int, slots: int, home: int) -> list[int]:
    """Codes that all have one home slot in a table of `slots`."""
    found: list[int] = []
    code = -5_000
    while len(found) < count:
        if scaled_slot(code, slots) == home:
            found.append(code)
        code += 1
    return found


def check_invariants(multimap: HashMultimap, model: Model) -> None:
    slots = multimap._slots.reshape(-1, 2)
    held = {}
    for slot, (code, entry) in enumerate(slots.tolist()):
        if entry == EMPTY:
            continue
        assert entry >= 0, "an entry is neither empty nor a row"
        assert code not in held, "a code has two slots"
        held[code] = entry
        probe = scaled_slot(code, len(slots))
        while probe != slot:
            assert slots[probe, 1] != EMPTY, "a free slot stands between a code and its home"
            probe = (probe + 1) % len(slots)
    assert held.keys() == model.keys()
    for code, rows in model.items():
        assert held[code] >> 32 == rows[0], "the head is not the oldest row"
        assert held[code] & 0xFFFFFFFF == len(rows), "the count is wrong"
        for before, after in zip(rows, rows[1:] + rows[:1], strict=True):
            assert multimap._next[before] == after, "the ring is broken forwards"
            assert multimap._previous[after] == before, "the ring is broken backwards"
    waiting = {row for rows in model.values() for row in rows}
    absent = set(np.flatnonzero(multimap._next == ABSENT).tolist())
    assert absent == set(range(multimap.rows_max)) - waiting
    assert len(multimap) == len(waiting)
    assert multimap.distinct == len(model)
    assert len(model) <= codes_in(len(slots)), "the table is too full"


def check_answers(multimap: HashMultimap, model: Model, codes: list[int]) -> None:
    asked = ints(*codes)
    pairs = [(position, row) for position, code in enumerate(codes) for row in model.get(code, [])]
    assert multimap.first(asked).tolist() == [model.get(code, [-1])[0] for code in codes]
    assert multimap.count(asked).tolist() == [len(model.get(code, [])) for code in codes]
    positions, rows = multimap.matches(asked)
    assert list(zip(positions.tolist(), rows.tolist(), strict=True)) == pairs
    absent = [place for place, code in enumerate(codes) if code not in model]
    for absent_max in range(1, len(codes) + 1):
        end = absent[absent_max - 1] + 1 if absent_max <= len(absent) else len(codes)
        assert multimap.first_until(asked, absent_max).tolist() == multimap.first(asked)[:end].tolist()


def remove_random_rows(multimap: HashMultimap, model: Model, rng: random.Random) -> None:
    waiting = [(code, row) for code, rows in model.items() for row in rows]
    gone = rng.sample(waiting, rng.randint(0, len(waiting)))
    multimap.remove_rows(ints(*(code for code, _ in gone)), ints(*(row for _, row in gone)))
    for code, row in gone:
        model[code].remove(row)
        if not model[code]:
            del model[code]


def remove_random_codes(multimap: HashMultimap, model: Model, rng: random.Random, codes: list[int]) -> None:
    gone = rng.choices(codes, k=rng.randint(0, 6))
    expected = [row for code in gone for row in model.pop(code, [])]
    assert multimap.remove_codes(ints(*gone)).tolist() == expected


def insert_random_rows(multimap: HashMultimap, model: Model, rng: random.Random, codes: list[int]) -> None:
    waiting = {row for rows in model.values() for row in rows}
    free = sorted(set(range(multimap.rows_max)) - waiting)
    rows = rng.sample(free, rng.randint(0, len(free)))
    chosen = rng.choices(codes, k=len(rows))
    multimap.insert(ints(*chosen), ints(*rows))
    for code, row in zip(chosen, rows, strict=True):
        model.setdefault(code, []).append(row)


@pytest.mark.parametrize("rows_max", [1, 2, 11, 45])
@pytest.mark.parametrize("kind", ["few codes", "many codes", "colliding codes"])
@pytest.mark.parametrize("seed", range(6))
def test_any_sequence_of_operations_answers_like_a_dictionary_of_lists(rows_max: int, kind: str, seed: int) -> None:
    rng = random.Random(f"{seed} {rows_max} {kind}")
    slots = slots_for(rows_max)
    codes = {
        "few codes": EXTREMES,
        "many codes": EXTREMES + [rng.randint(INT64.min, INT64.max) for _ in range(60)],
        # Around the last slot, so that clusters and what moves back over holes go round the end of the table.
        "colliding codes": colliding_codes(12, slots, slots - 1) + colliding_codes(12, slots, slots // 2),
    }[kind]
    multimap, model = HashMultimap(rows_max), Model()
    for _ in range(30):
        operation = rng.choice(["insert", "insert", "remove rows", "remove codes", "clear"])
        if operation == "insert":
            insert_random_rows(multimap, model, rng, codes)
        elif operation == "remove rows":
            remove_random_rows(multimap, model, rng)
        elif operation == "remove codes":
            remove_random_codes(multimap, model, rng, codes)
        elif rng.random() < 0.2:
            multimap.clear()
            model.clear()
        check_invariants(multimap, model)
        check_answers(multimap, model, rng.choices(codes, k=8))


def test_a_map_filled_to_its_capacity_with_distinct_codes_answers_all_of_them() -> None:
    rows_max = codes_in(1030)
    multimap = HashMultimap(rows_max)
    codes = np.arange(rows_max) * 2**40 - 17
    multimap.insert(codes, np.arange(rows_max))
    assert multimap._slots.size == 2 * 1030, "this test wants the fullest table"
    assert multimap.first(codes).tolist() == list(range(rows_max))
    assert multimap.first(codes + 1).tolist() == [-1] * rows_max
    check_invariants(multimap, {int(code): [row] for row, code in enumerate(codes)})


def test_rows_of_one_code_come_out_in_order_of_insertion_and_not_of_number() -> None:
    multimap = HashMultimap(10)
    multimap.insert(ints(5, 5, 5, 5), ints(9, 2, 7, 0))
    multimap.remove_rows(ints(5), ints(9))
    multimap.insert(ints(5), ints(9))
    assert multimap.matches(ints(5))[1].tolist() == [2, 7, 0, 9]


def test_one_code_with_every_row_costs_no_more_than_many_codes() -> None:
    # Quadratic work on a hundred thousand rows would run into the time limit of the tests.
    rows_max = 100_000
    multimap = HashMultimap(rows_max)
    codes, rows = np.full(rows_max, 42), np.arange(rows_max)
    multimap.insert(codes, rows)
    assert multimap.distinct == 1
    assert (multimap.count(codes) == rows_max).all()
    assert (multimap.first(codes) == 0).all()
    multimap.remove_rows(codes[::2].copy(), rows[::2].copy())
    assert multimap.remove_codes(codes).tolist() == list(range(1, rows_max, 2))
    assert len(multimap) == 0


def test_windows_of_matches_put_together_are_all_matches() -> None:
    multimap = HashMultimap(20)
    multimap.insert(ints(1, 2, 1, 1, 3, 2, 1), ints(0, 1, 2, 3, 4, 5, 6))
    asked = ints(2, 9, 1, 1, 3)
    positions, rows = multimap.matches(asked)
    assert len(rows) == 11
    for pairs_max in range(1, 13):
        windows = [multimap.matches(asked, pairs_max, pairs_skip=skip) for skip in range(0, 11 + pairs_max, pairs_max)]
        assert all(len(window[1]) <= pairs_max for window in windows)
        assert np.concatenate([window[0] for window in windows]).tolist() == positions.tolist()
        assert np.concatenate([window[1] for window in windows]).tolist() == rows.tolist()


def test_a_code_named_twice_is_removed_once_and_an_unknown_one_is_passed_over() -> None:
    multimap = HashMultimap(4)
    multimap.insert(ints(8, 9, 8), ints(0, 1, 2))
    assert multimap.remove_codes(ints(8, 7, 8)).tolist() == [0, 2]
    assert len(multimap) == 1
    check_invariants(multimap, {9: [1]})


def test_arrays_may_be_read_only_or_empty() -> None:
    multimap = HashMultimap(4)
    codes, rows, none = ints(1, 2), ints(3, 0), ints()
    for array in (codes, rows, none):
        array.flags.writeable = False
    multimap.insert(codes, rows)
    multimap.insert(none, none)
    assert multimap.first(codes).tolist() == [3, 0]
    assert multimap.count(none).tolist() == []
    assert multimap.matches(codes)[1].tolist() == [3, 0]
    assert multimap.matches(none)[0].tolist() == []
    assert multimap.remove_codes(none).tolist() == []
    multimap.remove_rows(codes[:1], rows[:1])
    assert multimap.remove_codes(codes).tolist() == [0]


def test_a_row_number_beyond_the_capacity_is_refused() -> None:
    multimap = HashMultimap(2)
    multimap.insert(ints(1, 1), ints(0, 1))
    with pytest.raises(AssertionError, match="row number 2 is already in the map, or not below its capacity of 2 rows"):
        multimap.insert(ints(1), ints(2))
    with pytest.raises(AssertionError, match="row number -1"):
        multimap.insert(ints(1), ints(-1))


def test_a_row_number_that_is_already_in_the_map_is_refused() -> None:
    multimap = HashMultimap(5)
    multimap.insert(ints(1), ints(3))
    with pytest.raises(AssertionError, match="row number 3 is already in the map"):
        multimap.insert(ints(2), ints(3))
    with pytest.raises(AssertionError, match="row number 4 is already in the map"):
        multimap.insert(ints(6, 7), ints(4, 4))


@pytest.mark.parametrize(("code", "row"), [(1, 2), (9, 0), (1, 5), (1, -1), (2, 0)])
def test_removing_a_row_that_is_not_there_is_refused(code: int, row: int) -> None:
    multimap = HashMultimap(5)
    multimap.insert(ints(1, 2, 2), ints(0, 3, 4))
    with pytest.raises(AssertionError, match=f"row {row} does not wait under the code {code}"):
        multimap.remove_rows(ints(code), ints(row))


def test_codes_and_rows_must_be_of_one_length() -> None:
    multimap = HashMultimap(5)
    with pytest.raises(AssertionError, match="2 codes were given for 1 rows"):
        multimap.insert(ints(1, 2), ints(0))
    with pytest.raises(AssertionError, match="1 codes were given for 2 rows"):
        multimap.remove_rows(ints(1), ints(0, 1))


@pytest.mark.parametrize("rows_max", [0, -1, 2**31])
def test_a_capacity_that_cannot_be_numbered_is_refused(rows_max: int) -> None:
    with pytest.raises(AssertionError, match="can be numbered"):
        HashMultimap(rows_max)


@pytest.mark.parametrize("rows_max", [1, 2, 3, 11, 12, 700, 716, 717, 5000])
def test_what_a_capacity_costs_is_what_it_allocates(rows_max: int) -> None:
    assert HashMultimap(rows_max).nbytes == HashMultimap.bytes_for(rows_max)


@pytest.mark.parametrize("rows_max", [700, 717, 5000, 5735, 1_000_000])
def test_a_row_takes_the_same_at_every_capacity(rows_max: int) -> None:
    assert HashMultimap.bytes_for(rows_max) / rows_max == pytest.approx(8 + 16 * 10 / 7, rel=0.001)
