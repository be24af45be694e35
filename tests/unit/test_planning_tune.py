"""The best split of a budget: what the model chooses is nearly the best that was measured."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import BudgetExceeded, InvalidOption
from semistream.joins.base import Numbers
from semistream.lab.workloads.zipf import Zipf
from semistream.planning.capacities import Room, workload_of
from semistream.planning.tune import Tuner, best_by_model, tune
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD
from semistream.relations.partitioned import split_in_memory

pytestmark = pytest.mark.long


ROWS, EXPONENT = 2000, 1.0


@cache
def relation(page_rows: int) -> MemoryRelation:
    table = pa.table({"k": np.arange(ROWS), "text": np.full(ROWS, "x" * 80)})
    return MemoryRelation.from_table(table, ["k"], page_rows=page_rows)


def tuner(memory_bytes: int = 120_000) -> Tuner:
    room = Room(memory_bytes)
    return Tuner(relation, workload_of(relation(50), room, zipf_exponent=EXPONENT, layout="frequency"), room, HDD)


def stream(rows: int) -> Numbers:
    return Zipf(ROWS, EXPONENT).sample(np.random.default_rng(3), rows)


@pytest.mark.parametrize(
    ("algorithm", "page_rows"),
    [
        ("x-hybridjoin", [25, 50]),
        ("optimised-x-hybridjoin", [50]),
        ("cachejoin", [50]),
        ("sscj", [50]),
        ("meshjoin", [20, 50, 100]),
    ],
)
def test_the_optimum_of_the_model_is_within_five_percent_of_the_best_measured(
    algorithm: str, page_rows: list[int]
) -> None:
    # A model says what a cache comes to rest at. Behind 24 000 rows the two best of CACHEJOIN's rates are 7 and 16 %
    # below what they are behind 100 000, and 200 000 move them by 1 % at most.
    found = tune(algorithm, tuner(), stream(100_000), page_rows, measured_points=5)
    assert found.shortfall <= 0.05, "\n" + found.as_text()
    assert found.by_model in found.trials
    assert found.as_text().count("<- best") in (1, 2)
    assert json.loads(json.dumps(found.as_json()))["algorithm"] == algorithm


def test_parts_of_a_relation_are_run_side_by_side_as_the_model_has_them() -> None:
    parts = split_in_memory(relation(50), 2, page_rows=50)
    room = Room(120_000)
    workload = workload_of(parts, room, zipf_exponent=EXPONENT, layout="frequency")
    found = tune("pcsrj", Tuner(lambda _: parts, workload, room, HDD), stream(48_000), [50], measured_points=5)
    # One after the other they would take more than twice as long.
    for trial in found.trials:
        assert trial.measured_rows_per_s is not None
        assert trial.measured_rows_per_s > 0.6 * trial.predicted_rows_per_s, "\n" + found.as_text()


def test_a_finer_search_never_finds_less() -> None:
    best = best_by_model("cachejoin", tuner(), [50])
    for share in np.linspace(0.1, 0.9, 33):
        trial = tuner().predicted("cachejoin", 50, {"cache_share": float(share)})
        assert trial is not None
        assert trial.predicted_rows_per_s <= best.predicted_rows_per_s * 1.01


def test_pages_that_do_not_fit_are_left_out() -> None:
    assert best_by_model("hybridjoin", tuner(60_000), [20, 1000]).page_rows == 20
    with pytest.raises(BudgetExceeded, match="with any of these pages"):
        best_by_model("hybridjoin", tuner(60_000), [1000, 2000])


def test_a_stream_that_would_only_fill_the_memory_is_refused() -> None:
    with pytest.raises(InvalidOption, match="too short to measure"):
        tune("hybridjoin", tuner(), stream(1000), [50])


def test_an_algorithm_without_a_choice_is_not_tuned() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'cachejoin'"):
        tune("cachejon", tuner(), stream(10), [50])
