"""A page by its distinct codes, against what Python counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from semistream.joins.disk_probing import Page

INT64 = np.iinfo(np.int64)


@pytest.mark.parametrize(
    "codes",
    [[], [7], [7, 7, 7], [1, 2, 3], [INT64.min, INT64.min, 0, 0, 0, INT64.max]],
    ids=["none", "one", "one, often", "each once", "some often"],
)
def test_a_page_knows_each_code_where_it_begins_and_how_often_it_comes(codes: list[int]) -> None:
    page = Page.of(pa.record_batch({"__code": pa.array(codes, pa.int64())}))
    counted = Counter(codes)
    assert page.codes.tolist() == list(counted)
    assert page.first.tolist() == [codes.index(code) for code in counted]
    assert page.count.tolist() == list(counted.values())
    assert page.row_count == len(codes)
