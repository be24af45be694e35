"""`adaptive` with a hot set behaves as every algorithm does, and what one driver has read others find."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.clock import VirtualClock
from semistream.joins import shared_rows
from semistream.joins.driver import JoinDriver
from semistream.joins.knowledge import hot_layout
from semistream.joins.reference import reference_join
from semistream.relations.memory import MemoryRelation
from semistream.structures.hot_set import HotSet
from tests.contract import test_join_contract as contract
from tests.contract.test_join_contract import RELATIONS, WORKLOADS, FickleClock, ListeningRelation, Workload
from tests.support import running
from tests.support.oracle import assert_same_rows

HOT_BYTES = 4 << 20


@pytest.fixture(autouse=True)
def eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hot set of its own for each driver, to which whatever was read is moved at once."""
    numbers = count()

    def opened(relation: Any) -> HotSet | None:
        division = hot_layout(relation, HOT_BYTES)
        return division and HotSet(tmp_path / f"hot {next(numbers)}", *division, "one version")

    monkeypatch.setattr(running, "open_hot_set", opened)
    monkeypatch.setattr(shared_rows, "SHARED_AT", 0)
    monkeypatch.setattr(shared_rows, "SEGMENT_SHARE", 0)


@pytest.fixture(params=WORKLOADS.values(), ids=list(WORKLOADS))
def workload(request: pytest.FixtureRequest) -> Callable[[int], Workload]:
    """Each kind of workload, to be drawn with a seed."""
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("store", ["memory", "arrow file, mapped"])
def test_the_rows_are_those_of_the_reference(store: str, workload: Callable[[int], Workload], tmp_path: Path) -> None:
    assert store in RELATIONS
    contract.test_the_rows_are_those_of_the_reference("adaptive", store, workload, tmp_path)


@pytest.mark.parametrize("rows_per_step", [1, 4, 1000])
def test_columns_are_answered_row_by_row_in_the_order_of_the_stream(rows_per_step: int) -> None:
    contract.test_columns_are_answered_row_by_row_in_the_order_of_the_stream("adaptive", rows_per_step)


@pytest.mark.parametrize("case", ["some absent", "string keys"])
def test_whichever_read_fails_the_error_comes_out_and_a_fresh_run_is_right(case: str) -> None:
    contract.test_whichever_read_fails_the_error_comes_out_and_a_fresh_run_is_right(
        "adaptive", case, lambda: FickleClock(5)
    )


def test_what_was_forgotten_is_read_again() -> None:
    contract.test_what_was_forgotten_is_read_again("adaptive")


def test_after_forgetting_nothing_of_an_older_version_comes_out() -> None:
    contract.test_after_forgetting_nothing_of_an_older_version_comes_out("adaptive")


@pytest.mark.parametrize("case", ["one to one", "some absent", "all null", "string keys"])
def test_the_counts_are_those_of_an_observer(case: str) -> None:
    contract.test_the_counts_are_those_of_an_observer("adaptive", case)


def test_every_row_is_answered_from_memory_or_by_a_read() -> None:
    contract.test_every_row_is_answered_from_memory_or_by_a_read("adaptive")


# Together ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One hot set for all drivers."""

    def opened(relation: Any) -> HotSet | None:
        division = hot_layout(relation, HOT_BYTES)
        return division and HotSet(tmp_path / "hot", *division, "one version")

    monkeypatch.setattr(running, "open_hot_set", opened)


def driver_of(relation: Any, memory_bytes: int = 1 << 20) -> JoinDriver:
    schema = pa.schema([("s", pa.int64())])
    return running.make_driver(relation, schema, ["s"], memory_bytes=memory_bytes, clock=VirtualClock())[0]


def texts_of(driver: JoinDriver, codes: list[int]) -> list[str]:
    (column,) = driver.align([pa.array(codes)]).columns
    return column.to_pylist()  # type: ignore[no-any-return]


def master(rows: int, rng: np.random.Generator) -> pa.Table:
    return pa.table({"k": range(rows), "text": [f"text {i} " + "x" * int(rng.integers(0, 50)) for i in range(rows)]})


@pytest.mark.usefixtures("together")
def test_what_one_has_read_another_does_not_read_again_also_when_the_first_is_gone() -> None:
    table = master(1000, np.random.default_rng(1))
    relation = ListeningRelation(MemoryRelation.from_table(table, ["k"], page_rows=50))
    one, other = driver_of(relation), driver_of(relation)
    codes = list(range(0, 1000, 2))
    expected = [table["text"][code].as_py() for code in codes]
    assert texts_of(one, codes) == expected
    one.join.rest()
    del one
    relation.asked.clear()
    assert texts_of(other, codes) == expected
    assert relation.asked == []
    assert texts_of(driver_of(relation), codes[::3]) == expected[::3]
    assert relation.asked == []


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("seed", range(3))
def test_many_drivers_with_little_memory_put_out_the_rows_of_the_reference(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    # More than fits, so that segments are written anew all the time while others read them.
    monkeypatch.setattr(f"{__name__}.HOT_BYTES", 1_200_000)
    keys = np.repeat(np.arange(12_000), rng.choice([1, 1, 2, 3], 12_000))
    texts = [f"text {i} " + "x" * int(n) for i, n in enumerate(rng.integers(0, 50, len(keys)))]
    table = pa.table({"k": keys, "text": pa.array(texts, mask=rng.random(len(keys)) < 0.1)})
    relation = MemoryRelation.from_table(table, ["k"], page_rows=50)
    assert hot_layout(relation, HOT_BYTES) is not None
    drivers = [driver_of(relation, memory_bytes=300_000) for _ in range(4)]
    for number in range(40):
        driver = drivers[int(rng.integers(0, 4))]
        shift = 3000 if number > 20 else 0
        asked = pa.table({"s": shift + np.minimum(rng.zipf(1.1, 3000), 11_999), "row": range(3000)})
        found = contract._pushed(driver, asked, ["s"], 1000)
        if rng.random() < 0.3:
            driver.join.rest()
        if number % 8 == 0:
            assert_same_rows(found, reference_join(asked, table, ["s"], ["k"]))
        else:
            expected = {code: sorted(filter(None, group)) for code, group in _texts_by_key(table, asked)}
            assert _found_by_key(found) == expected, f"seed {seed}"
    assert sum(driver.join.stats.hits for driver in drivers) > 0
    generations = [int(path.suffix[1:]) for path in (tmp_path / "hot").iterdir() if path.suffix]
    assert max(generations) > len(generations), "the test must write segments anew"


def _texts_by_key(table: pa.Table, asked: pa.Table) -> Any:
    wanted = set(asked["s"].to_pylist())
    groups: dict[int, list[str]] = {code: [] for code in wanted}
    for code, text in zip(table["k"].to_pylist(), table["text"].to_pylist(), strict=True):
        if code in groups:
            groups[code].append(text)
    times = dict.fromkeys(wanted, 0)
    for code in asked["s"].to_pylist():
        times[code] += 1
    return [(code, groups[code] * times[code]) for code in wanted]


def _found_by_key(found: list[dict[str, Any]]) -> dict[int, list[str]]:
    groups: dict[int, list[str]] = {}
    for row in found:
        groups.setdefault(row["s"], [])
        if row["text"] is not None:
            groups[row["s"]].append(row["text"])
    return {code: sorted(texts) for code, texts in groups.items()}
