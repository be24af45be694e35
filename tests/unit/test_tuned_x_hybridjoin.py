"""Tuned X-HYBRIDJOIN: as many pages are pinned as the tuner says, or as the rule says where nobody has tuned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.joins.reference import reference_join
from semistream.joins.tuned_x_hybridjoin import usual_pinned_pages
from semistream.relations.counting import CountingRelation
from semistream.relations.memory import MemoryRelation
from tests.support.oracle import assert_same_rows
from tests.support.running import run_join

pytestmark = pytest.mark.long


MASTER = pa.table({"k": np.arange(200), "value": np.arange(200)})


@pytest.mark.parametrize("pinned_pages", [None, 1, 5, 1000])
def test_as_many_pages_are_pinned_as_were_asked_for(pinned_pages: int | None) -> None:
    relation = CountingRelation(MemoryRelation.from_table(MASTER, ["k"], page_rows=10))
    stream = pa.table({"s": np.random.default_rng(0).integers(0, 250, 300), "row": np.arange(300)})
    settings = {} if pinned_pages is None else {"pinned_pages": pinned_pages}
    run = run_join(relation, stream, ["s"], algorithm="tuned-x-hybridjoin", **settings)
    assert relation.by_scan.calls == min(pinned_pages or 2, 20)
    assert_same_rows(run.table, reference_join(stream, MASTER, ["s"], ["k"]))


def test_the_rule_pins_less_where_memory_is_short() -> None:
    relation = MemoryRelation.from_table(MASTER, ["k"], page_rows=10)
    assert usual_pinned_pages(relation, 1 << 20) == 2
    assert usual_pinned_pages(relation, 4096) == 1
