"""Pages that stay in memory, by score."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from semistream.joins.base import Numbers
from semistream.joins.disk_probing import Page
from semistream.joins.resident_pages import ResidentPages, page_bytes

PAGE = Page.of(pa.record_batch({"__code": np.arange(10), "value": np.arange(10)}))
SCORES = np.array([5.0, 1.0, 3.0, 4.0, 2.0])


def score(numbers: Numbers) -> np.ndarray:
    return SCORES[numbers]


def resident_with(pages: list[int], room: int) -> ResidentPages:
    resident = ResidentPages(len(SCORES), room * page_bytes(PAGE))
    for number in pages:
        assert resident.offer(number, PAGE, score)
    return resident


def test_a_hotter_page_takes_the_place_of_the_coldest() -> None:
    resident = resident_with([0, 1, 2], room=3)
    assert resident.offer(3, PAGE, score)
    assert sorted(resident.numbers.tolist()) == [0, 2, 3]
    assert resident.evicted_keys == 10


def test_a_colder_page_is_turned_away_and_nobody_leaves() -> None:
    resident = resident_with([0, 2], room=2)
    assert not resident.offer(4, PAGE, score)
    assert not resident.offer(3, PAGE, score, margin=0.5)
    assert sorted(resident.numbers.tolist()) == [0, 2]


def test_a_page_larger_than_all_memory_makes_nobody_leave() -> None:
    resident = resident_with([1], room=1)
    resident.bytes_max -= 1
    assert not resident.offer(0, PAGE, score)
    assert resident.is_resident.tolist() == [False, True, False, False, False]


def test_less_memory_lets_the_coldest_go() -> None:
    resident = resident_with([0, 1, 2, 3], room=4)
    resident.limit(2 * page_bytes(PAGE), score)
    assert sorted(resident.numbers.tolist()) == [0, 3]
    assert resident.used_bytes == 2 * page_bytes(PAGE)
