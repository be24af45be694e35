"""The choice when nothing is known but the relation and the memory: by the bill, quickly, without reading."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pytest

from semistream.joins.registry import ALGORITHMS
from semistream.planning import auto
from semistream.planning.auto import ASKED, MARGIN, TUNED, choose_blindly, settings_for
from semistream.planning.capacities import Room, predict_for, workload_of
from semistream.planning.charging import typical
from semistream.relations.base import Codes, Relation
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import NVME

pytestmark = pytest.mark.long


def relation(rows: int, page_rows: int = 200, rows_per_key: int = 1) -> MemoryRelation:
    codes = np.arange(rows) // rows_per_key
    return MemoryRelation.from_table(
        pa.table({"k": codes, "text": np.full(rows, "x" * 80)}), ["k"], page_rows=page_rows
    )


class Sealed:
    """A relation whose data must not be read."""

    def __init__(self, inner: MemoryRelation) -> None:
        self.info, self.schema, self.segment_count = inner.info, inner.schema, inner.segment_count

    def _refuse(self, *_: Any) -> NoReturn:
        raise AssertionError("data were read for a plan")

    def page_for(self, code: int) -> pa.RecordBatch:
        self._refuse(code)

    def page_numbers(self, codes: Codes) -> Codes:
        self._refuse(codes)

    def segment(self, number: int) -> pa.RecordBatch:
        self._refuse(number)

    def rows_for(self, codes: Codes, bytes_max: int) -> NoReturn:
        self._refuse(codes, bytes_max)


@pytest.mark.parametrize("memory_bytes", [1 << 17, 1 << 20, 1 << 24, 1 << 28])
def test_a_choice_is_made_without_reading(memory_bytes: int) -> None:
    assert choose_blindly(Sealed(relation(100_000)), Room(memory_bytes)).algorithm == "adaptive"


@pytest.mark.parametrize("factor", [0.5, 0.99, 1.01])
@pytest.mark.parametrize("other", ASKED[1:])
def test_another_algorithm_must_be_better_by_the_margin(
    monkeypatch: pytest.MonkeyPatch, other: str, factor: float
) -> None:
    rates = {"adaptive": 1000.0, other: 1000.0 * MARGIN * factor}
    monkeypatch.setattr(auto, "_rate", lambda name, *_: rates.get(name, 0.0))
    choice = choose_blindly(relation(10), Room(1 << 20))
    assert choice.algorithm == (other if factor > 1 else "adaptive")
    assert "1,000 rows/s" in choice.reason
    assert other in choice.reason


@pytest.mark.parametrize(
    ("made", "memory_bytes"),
    [(relation(0), 1 << 20), (relation(1), 1 << 20), (relation(3), 15_000), (relation(1000, rows_per_key=10), 1 << 18)],
    ids=["empty", "one row", "little memory", "keys repeat"],
)
def test_any_relation_gets_an_algorithm_and_a_reason(made: Relation, memory_bytes: int) -> None:
    choice = choose_blindly(made, Room(memory_bytes))
    assert choice.algorithm in ASKED
    assert choice.algorithm in choice.reason


@pytest.mark.parametrize("rows", [1000, 30_000])
@pytest.mark.parametrize("memory_bytes", [1 << 21, 1 << 24])
def test_what_is_seen_from_further_away_is_about_the_same(
    monkeypatch: pytest.MonkeyPatch, rows: int, memory_bytes: int
) -> None:
    made = relation(rows)
    far = {name: auto._rate(name, made, Room(memory_bytes)) for name in ASKED}
    monkeypatch.setattr(auto, "KEYS_MAX", 1 << 30)
    assert far == {name: pytest.approx(auto._rate(name, made, Room(memory_bytes)), rel=0.15) for name in ASKED}


def test_no_more_rows_wait_than_a_micro_batch_has(monkeypatch: pytest.MonkeyPatch) -> None:
    made = relation(30_000)
    rates = {}
    for rows in (100, 10_000, 10**9):
        monkeypatch.setattr(auto, "MICRO_BATCH_ROWS", rows)
        rates[rows] = auto._rate("meshjoin", made, Room(1 << 24))
    # A small micro-batch still has to see all of R.
    assert rates[100] < rates[10_000] / 10
    assert rates[10_000] < rates[10**9]


def test_memory_that_is_too_small_for_anything_is_left_to_the_operator_to_refuse() -> None:
    choice = choose_blindly(relation(10), Room(100))
    assert choice.algorithm == "adaptive"
    assert "too small" in choice.reason


def test_only_what_is_called_tuned_is_built_with_the_tuner_s_numbers() -> None:
    one, room = relation(10_000), Room(4_000_000)
    assert [name for name in ALGORITHMS if settings_for(name, one, room)] == [TUNED]
    assert settings_for(TUNED, relation(10_000), Room(300_000)) == {"pinned_pages": 1}

    workload = workload_of(one, room, zipf_exponent=1.0, layout="frequency")
    tried = [1, 2, 4, 8, 16, 32]
    rates = [predict_for(TUNED, one, room, workload, typical(NVME), {"pinned_pages": n}).mu_rows_per_s for n in tried]
    tuned = predict_for(TUNED, one, room, workload, typical(NVME), settings_for(TUNED, one, room)).mu_rows_per_s
    assert tuned >= max(rates) > 1.2 * min(rates), "the number of pinned pages matters here, and none tried is better"
