"""Waiting rows by page: a dictionary of lists in arrays."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.joins.base import StreamRows
from semistream.joins.page_lists import PageLists

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", range(5))
def test_lists_of_pages_are_what_a_dictionary_of_lists_would_be(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lists, model = PageLists(page_count=7, rows_max=50, rows_limit=200), {page: [] for page in range(7)}
    next_number = 0
    for now in range(200):
        action = rng.integers(0, 4)
        if action <= 1:
            count = int(rng.integers(0, min(12, lists.room) + 1))
            numbers = np.arange(next_number, next_number + count)
            codes, pages = rng.integers(-9, 9, count), rng.integers(0, 7, count)
            next_number += count
            lists.push(StreamRows(numbers, codes), pages, now)
            for row, page in zip(zip(numbers.tolist(), codes.tolist(), strict=True), pages.tolist(), strict=True):
                model[page].append((row, now))
        elif action == 2:
            page, rows_max = int(rng.integers(0, 7)), int(rng.integers(1, 60))
            rows = lists.take(page, rows_max)
            taken, model[page] = model[page][:rows_max], model[page][rows_max:]
            found = list(zip(rows.numbers.tolist(), rows.codes.tolist(), strict=True))
            assert found == [row for row, _ in taken], f"seed {seed}"
        else:
            lists.resize(max(1, len(lists)) + int(rng.integers(0, 40)))
        assert lists.lengths.tolist() == [len(rows) for rows in model.values()]
        assert len(lists) == sum(map(len, model.values()))
        for page, rows in model.items():
            assert not rows or lists.since[page] <= rows[0][1], f"seed {seed}: a list is older than it says"


@pytest.mark.parametrize("bytes_max", [0, 50, 1000, 12_345, 10**6])
@pytest.mark.parametrize("stream_row_bytes", [0, 20, 500])
def test_as_many_rows_as_fit_and_not_one_more(bytes_max: int, stream_row_bytes: int) -> None:
    rows = PageLists.rows_fitting(bytes_max, stream_row_bytes)
    if rows:
        assert PageLists.bytes_for(rows) + rows * stream_row_bytes <= bytes_max
    assert PageLists.bytes_for(rows + 1) + (rows + 1) * stream_row_bytes > bytes_max
