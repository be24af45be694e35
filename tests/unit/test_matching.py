"""Pairs in windows of every size against itertools."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from semistream.joins.base import StepOutput, StreamRows
from semistream.joins.matching import PairCursor, codes_of, parted, ranges_of

Int64s = npt.NDArray[np.int64]
Pairs = list[tuple[int, int]]


def ints(*values: int) -> Int64s:
    return np.array(values, np.int64)


def batch_of(codes: Int64s) -> pa.RecordBatch:
    return pa.record_batch({"__code": codes, "n": np.arange(len(codes))})


def taken(cursor: PairCursor, sizes: list[int]) -> list[Pairs]:
    """The pairs of each window, the sizes of the windows repeated until nothing is left."""
    windows = []
    for size in itertools.cycle(sizes):
        joined = cursor.next(size)
        windows.append(list(zip(joined.stream_rows.tolist(), joined.relation_rows.tolist(), strict=True)))
        if cursor.left == 0:
            return windows
    raise AssertionError("unreachable: the cycle never ends")


def expected_pairs(numbers: Int64s, first: Int64s, count: Int64s) -> Pairs:
    ranges = (range(f, f + c) for f, c in zip(first.tolist(), count.tolist(), strict=True))
    return list(itertools.chain.from_iterable(itertools.product([n], r) for n, r in zip(numbers, ranges, strict=True)))


@pytest.mark.parametrize("seed", range(6))
def test_windows_of_every_size_hand_out_all_pairs_in_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 8))
    count = rng.choice([0, 1, 1, 2, 7], rows).astype(np.int64)
    first = rng.integers(0, 50, rows)
    numbers = np.sort(rng.integers(0, 1000, rows))
    expected = expected_pairs(numbers, first, count)
    for size in range(1, len(expected) + 3):
        cursor = PairCursor(batch_of(np.arange(60)), numbers, first, count)
        assert cursor.left == len(expected)
        windows = taken(cursor, [size])
        assert list(itertools.chain.from_iterable(windows)) == expected
        assert all(len(window) == size for window in windows[:-1])


@pytest.mark.parametrize("seed", range(6))
def test_windows_may_change_their_size_on_the_way(seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers, first = np.arange(40), rng.integers(0, 9, 40)
    count = rng.integers(0, 4, 40)
    windows = taken(PairCursor(batch_of(np.arange(20)), numbers, first, count), [1, 100, 3, 17])
    assert list(itertools.chain.from_iterable(windows)) == expected_pairs(numbers, first, count)


def test_one_partner_each_is_handed_out_without_a_copy() -> None:
    numbers, first = ints(3, 4, 5), ints(2, 0, 2)
    cursor = PairCursor(batch_of(ints(7, 8, 9)), numbers, first, ints(1, 1, 1))
    joined = cursor.next(3)
    assert np.shares_memory(joined.stream_rows, numbers)
    assert np.shares_memory(joined.relation_rows, first)
    assert cursor.left == 0


def test_a_cursor_without_pairs_is_empty_from_the_beginning() -> None:
    for numbers in (ints(), ints(1, 2)):
        cursor = PairCursor(batch_of(ints(1)), numbers, np.zeros_like(numbers), np.zeros_like(numbers))
        assert cursor.left == 0
        assert len(cursor.next(10)) == 0


def test_nothing_more_comes_after_the_last_pair() -> None:
    cursor = PairCursor(batch_of(ints(1, 1)), ints(5), ints(0), ints(2))
    assert len(cursor.next(5)) == 2
    assert len(cursor.next(5)) == 0


def test_codes_are_a_view_of_the_first_column() -> None:
    batch = batch_of(ints(1, 2, 3)).slice(1)
    assert codes_of(batch).tolist() == [2, 3]
    assert codes_of(batch).ctypes.data == batch.column(0).buffers()[1].address + 8


@pytest.mark.parametrize("seed", range(6))
def test_ranges_are_where_a_list_has_the_codes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    batch_codes = np.sort(rng.integers(-5, 6, int(rng.integers(0, 30))))
    codes = np.arange(-8, 9)
    first, count = ranges_of(codes, batch_codes)
    listed = batch_codes.tolist()
    assert count.tolist() == [listed.count(code) for code in codes]
    for code, begin, length in zip(codes, first, count, strict=True):
        assert listed[begin : begin + length] == [code] * length


def test_a_step_is_cut_at_the_borders_of_stream_batches() -> None:
    cursor = PairCursor(batch_of(ints(1, 2)), ints(3, 4, 5), ints(0, 0, 0), ints(2, 1, 2))
    step = StepOutput((cursor.next(10),), ints(5, 3))
    pairs = step.joined_within(4, 6)
    assert [(p.stream_rows.tolist(), p.relation_rows.tolist()) for p in pairs] == [([4, 5, 5], [0, 0, 1])]
    assert step.finished_within(4, 6).tolist() == [5]
    assert step.joined_within(6, 9) == []
    assert step.joined_within(0, 9) == list(step.joined), "an uncut step need not be copied"


@pytest.mark.parametrize("seed", range(6))
def test_what_was_found_is_parted_from_what_was_not(seed: int) -> None:
    rng = np.random.default_rng(seed)
    length = int(rng.choice([0, 1, 50]))
    numbers, codes = 100 + np.arange(length), rng.integers(0, 9, length)
    first, count = rng.integers(0, 1000, length), rng.integers(0, 3, length) * int(rng.integers(0, 2))
    rows = list(zip(numbers.tolist(), codes.tolist(), first.tolist(), count.tolist(), strict=True))
    found_numbers, found_first, found_count, missed = parted(StreamRows(numbers, codes), first, count)
    found = zip(found_numbers.tolist(), found_first.tolist(), found_count.tolist(), strict=True)
    assert list(found) == [(number, at, rows_) for number, _, at, rows_ in rows if rows_]
    assert list(zip(missed.numbers.tolist(), missed.codes.tolist(), strict=True)) == [
        row[:2] for row in rows if not row[3]
    ]


@pytest.mark.parametrize(
    ("codes", "first", "count"), [((3, 5, 9), [0, 1, 2], [1, 1, 1]), ((3, 3, 9), [0, 0, 2], [2, 2, 1])]
)
def test_ranges_of_a_batch_that_has_just_what_was_asked_for(
    codes: tuple[int, ...], first: list[int], count: list[int]
) -> None:
    found = ranges_of(ints(*codes), ints(*codes))
    assert [numbers.tolist() for numbers in found] == [first, count]
