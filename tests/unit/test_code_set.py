"""The set of codes against a list of everything that was ever added."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from semistream.structures.code_set import FREE, CodeSet
from semistream.structures.hash_multimap import home_slot

Int64s = npt.NDArray[np.int64]

INT64 = np.iinfo(np.int64)
EXTREMES = [0, -1, 1, INT64.min, INT64.max]


def ints(*values: int) -> Int64s:
    return np.array(values, dtype=np.int64)


def colliding_codes(count: int, slots: int, home: int) -> list[int]:
    """Codes that all have one home slot in a table of `slots`."""
    found: list[int] = []
    code = -5_000
    while len(found) < count:
        if home_slot(code, slots - 1) == home:
            found.append(code)
        code += 1
    return found


def codes_in_generation(codes: CodeSet, generation: int) -> set[int]:
    table = codes._tables.reshape(2, -1)[generation]
    held = {0} if table[-1] != FREE else set()
    slots = table[:-1]
    for slot, code in enumerate(slots.tolist()):
        if code == FREE:
            continue
        assert code not in held, "a code stands twice in a generation"
        held.add(code)
        probe = home_slot(code, len(slots) - 1)
        while probe != slot:
            assert slots[probe] != FREE, "a free slot stands between a code and its home"
            probe = (probe + 1) % len(slots)
    return held


def check_invariants(codes: CodeSet, added: list[int]) -> None:
    young = int(codes._state[0])
    young_codes, old_codes = codes_in_generation(codes, young), codes_in_generation(codes, 1 - young)
    assert codes._state.tolist()[1:] == [len(young_codes), len(old_codes), len(young_codes & old_codes)]
    assert max(len(young_codes), len(old_codes)) <= codes.codes_max // 2, "a generation is too full"
    assert len(codes) == len(young_codes | old_codes) <= codes.codes_max

    ever = sorted(set(added) | {12_345, *EXTREMES})
    held = {code for code, found in zip(ever, codes.contains(ints(*ever)).tolist(), strict=True) if found}
    assert held == young_codes | old_codes
    assert held <= set(added), "a code is affirmed that was never added"

    recent: list[int] = []
    for code in reversed(added):
        if code not in recent:
            recent.append(code)
    # The code at this place was followed by as many others as stand before it.
    assert held.issuperset(recent[: codes.codes_max // 2 + 1]), "a recent code was forgotten"


@pytest.mark.parametrize("codes_max", [2, 3, 4, 11, 40])
@pytest.mark.parametrize("kind", ["few codes", "many codes", "colliding codes"])
@pytest.mark.parametrize("seed", range(4))
def test_recent_codes_are_held_and_others_never_affirmed(codes_max: int, kind: str, seed: int) -> None:
    rng = random.Random(f"{seed} {codes_max} {kind}")
    codes = CodeSet(codes_max)
    slots = codes._tables.size // 2 - 1
    domain = {
        "few codes": EXTREMES,
        "many codes": EXTREMES + [rng.randint(INT64.min, INT64.max) for _ in range(100)],
        "colliding codes": [0, *colliding_codes(30, slots, slots - 1)],
    }[kind]
    added: list[int] = []
    for _ in range(30):
        batch = rng.choices(domain, k=rng.choice([0, 1, 3, codes_max // 2, codes_max, 2 * codes_max]))
        codes.add(ints(*batch))
        added += batch
        if rng.random() < 0.05:
            codes.clear()
            added.clear()
        check_invariants(codes, added)


def test_one_code_over_the_capacity_drops_the_older_half_and_no_more() -> None:
    codes = CodeSet(10)
    codes.add(np.arange(10))
    assert len(codes) == 10
    codes.add(ints(10))
    assert codes.contains(np.arange(11)).tolist() == [False] * 5 + [True] * 6
    assert len(codes) == 6


def test_a_code_that_keeps_coming_back_is_never_forgotten() -> None:
    codes = CodeSet(10)
    for turn in range(0, 200, 4):
        codes.add(ints(-7, turn, turn + 1, turn + 2, turn + 3))
        assert codes.contains(ints(-7)).tolist() == [True]


def test_one_code_added_many_times_takes_one_place() -> None:
    codes = CodeSet(4)
    codes.add(ints(1, 2))
    codes.add(np.zeros(100_000, dtype=np.int64))
    assert len(codes) == 3
    assert codes.contains(ints(0, 1, 2, 3)).tolist() == [True, True, True, False]


def test_the_code_zero_and_the_mark_that_stands_for_it_are_not_mistaken() -> None:
    codes = CodeSet(8)
    codes.add(ints(0))
    assert codes.contains(ints(0, 1)).tolist() == [True, False]
    codes.clear()
    codes.add(ints(1))
    assert codes.contains(ints(0, 1)).tolist() == [False, True]


def test_arrays_may_be_read_only_or_empty() -> None:
    codes, some, none = CodeSet(8), ints(3, 4), ints()
    some.flags.writeable = False
    codes.add(some)
    codes.add(none)
    assert codes.contains(some).tolist() == [True, True]
    assert codes.contains(none).tolist() == []


@pytest.mark.parametrize("codes_max", [1, 0, -4])
def test_a_set_without_room_for_two_generations_is_refused(codes_max: int) -> None:
    with pytest.raises(AssertionError, match="it needs room for at least 2"):
        CodeSet(codes_max)


@pytest.mark.parametrize("codes_max", [2, 3, 4, 100, 1001])
def test_what_a_capacity_costs_is_what_it_allocates(codes_max: int) -> None:
    assert CodeSet(codes_max).nbytes == CodeSet.bytes_for(codes_max)


def test_the_capacity_that_fits_is_the_largest() -> None:
    for bytes_max in [*range(-8, 500), *range(5_000, 100_000, 997)]:
        codes_max = CodeSet.codes_fitting(bytes_max)
        assert codes_max == 0 or CodeSet.bytes_for(codes_max) <= bytes_max
        assert CodeSet.bytes_for(max(codes_max + 1, 2)) > bytes_max
