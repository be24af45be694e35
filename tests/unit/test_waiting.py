"""The rows that wait, fuzzed against a list."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.joins.base import StreamRows
from semistream.joins.held_keys import most_entries
from semistream.joins.waiting import WaitingRows
from semistream.structures import hash_multimap, row_queue


class ListOfRows:
    """The same with a list of (number, code), as anyone would write it."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []

    def take_codes(self, codes: list[int], rows_max: int) -> list[tuple[int, int]]:
        taken = [(i, number) for i, code in enumerate(codes) for number, c in self.rows if c == code][:rows_max]
        gone = {number for _, number in taken}
        self.rows = [row for row in self.rows if row[0] not in gone]
        return taken

    def take_oldest(self, rows_max: int) -> list[int]:
        taken, self.rows = self.rows[:rows_max], self.rows[rows_max:]
        return [number for number, _ in taken]


@pytest.mark.parametrize("seed", range(8))
def test_under_any_load_the_rows_are_those_of_a_list(seed: int) -> None:
    rng = np.random.default_rng(seed)
    waiting, expected, numbered = WaitingRows(50), ListOfRows(), 0
    for _ in range(400):
        match rng.integers(5):
            case 0 | 1:
                count = int(rng.integers(0, waiting.room + 1))
                codes = rng.integers(0, 8, count)
                numbers = np.arange(numbered, numbered + count)
                waiting.push(StreamRows(numbers, codes))
                expected.rows += zip(numbers.tolist(), codes.tolist(), strict=True)
                numbered += count
            case 2:
                codes, rows_max = np.unique(rng.integers(0, 8, 3)), int(rng.integers(1, 20))
                counts = [sum(code == c for _, c in expected.rows) for code in codes]
                assert waiting.count(codes).tolist() == counts
                positions, numbers = waiting.take_codes(codes, rows_max)
                assert list(zip(positions.tolist(), numbers.tolist(), strict=True)) == expected.take_codes(
                    codes.tolist(), rows_max
                )
            case 3:
                rows_max = int(rng.integers(0, 10))
                assert waiting.take_oldest(rows_max).tolist() == expected.take_oldest(rows_max)
            case _:
                waiting.resize(max(1, len(waiting) + int(rng.integers(0, 30))))
        assert len(waiting) == len(expected.rows)
        assert waiting.room == waiting.rows_max - len(waiting)
        assert waiting._by_code.distinct == len({code for _, code in expected.rows})
        if expected.rows:
            assert waiting.oldest_code() == expected.rows[0][1]


def test_pairs_can_be_had_piece_by_piece_and_stay_where_they_are() -> None:
    waiting = WaitingRows(10)
    waiting.push(StreamRows(np.arange(6), np.array([3, 5, 3, 3, 5, 9])))
    pieces = [waiting.pairs(np.array([3, 5]), rows_max=2, rows_skip=skip)[1].tolist() for skip in (0, 2, 4, 6)]
    assert pieces == [[0, 2], [3, 1], [4], []]
    assert len(waiting) == 6


@pytest.mark.parametrize("bytes_max", [0, 100, 1000, 10_000, 1_000_000])
@pytest.mark.parametrize("stream_row_bytes", [0, 20, 500])
def test_as_many_rows_as_fit_and_not_one_more(bytes_max: int, stream_row_bytes: int) -> None:
    rows = WaitingRows.rows_fitting(bytes_max, stream_row_bytes)
    if rows:
        assert WaitingRows.bytes_for(rows) + rows * stream_row_bytes <= bytes_max
        assert WaitingRows(rows).nbytes == WaitingRows.bytes_for(rows)
    assert WaitingRows.bytes_for(rows + 1) + (rows + 1) * stream_row_bytes > bytes_max


def test_no_more_rows_fit_than_can_be_numbered() -> None:
    assert WaitingRows.rows_fitting(10**13, 20) == row_queue.ROWS_LIMIT
    assert most_entries(10**13, 100.0) == hash_multimap.ROWS_LIMIT
