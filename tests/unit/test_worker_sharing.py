"""When a worker shares what it has learned in a task: behind its end, where the process lives on."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.relations.building.build import build_relation
from semistream.relations.handle import open_handle
from semistream.spark import worker
from semistream.spark.plan import EnrichPlan
from semistream.spark.served_lookup import ServedLookup
from tests.support.plans import planned

pytestmark = pytest.mark.usefixtures("fresh_worker")

KEYS = 100


@pytest.fixture
def plan(tmp_path: Path) -> EnrichPlan:
    table = pa.table({"id": range(KEYS), "name": [f"product {i}" for i in range(KEYS)]})
    build_relation(table, key="id", out=tmp_path / "products")
    return planned(open_handle(tmp_path / "products", None, None, verify=True).on())


@pytest.fixture(autouse=True)
def process_of_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process has loaded is not for good, as it is in a worker."""
    monkeypatch.setattr(worker, "_spare_what_stays", lambda: None)


def served_names(plan: EnrichPlan) -> list[str]:
    """Serve a task that asks for all keys."""
    answers = worker.answers(plan)(iter([pa.array(range(KEYS))]))
    return [row["c0"] for answer in answers for row in answer.to_pylist()]


@pytest.mark.parametrize("is_reused", [True, False])
def test_a_task_waits_for_sharing_only_where_its_process_ends_with_it(
    is_reused: bool, plan: EnrichPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_reused:
        monkeypatch.setenv(worker.REUSED, "1")
    else:
        monkeypatch.delenv(worker.REUSED, raising=False)
    threads: list[str] = []
    share = ServedLookup.end_task

    def noted(lookup: ServedLookup) -> None:
        threads.append(threading.current_thread().name)
        share(lookup)

    monkeypatch.setattr(ServedLookup, "end_task", noted)
    expected = [f"product {i}" for i in range(KEYS)]
    for _ in range(3):
        assert served_names(plan) == expected
    # The third may still be at it; the second is done before the third begins.
    assert len(threads) >= 2
    assert all(name.startswith("semistream-aside") == is_reused for name in threads)


def test_the_next_task_begins_when_sharing_is_done(plan: EnrichPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(worker.REUSED, "1")
    may_share, events = threading.Event(), []
    begin = ServedLookup.begin_task

    def slow(_lookup: ServedLookup) -> None:
        may_share.wait()
        events.append("shared")

    def noted(lookup: ServedLookup, query_id: str | None, batch_id: str | None) -> None:
        events.append("begun")
        begin(lookup, query_id, batch_id)

    monkeypatch.setattr(ServedLookup, "end_task", slow)
    monkeypatch.setattr(ServedLookup, "begin_task", noted)
    following = threading.Thread(target=served_names, args=[plan])
    try:
        served_names(plan)
        assert events == ["begun"]
        following.start()
    finally:
        may_share.set()
    following.join()
    assert events[:3] == ["begun", "shared", "begun"]


def test_what_goes_wrong_while_sharing_is_told_by_the_next_task(
    plan: EnrichPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(worker.REUSED, "1")

    def broken(_lookup: ServedLookup) -> None:
        raise RuntimeError("the hot set has no room")

    with monkeypatch.context() as breaking:
        breaking.setattr(ServedLookup, "end_task", broken)
        served_names(plan)
        # Sharing happens in its own time.
        worker._aside.submit(lambda: None).result()
    with pytest.raises(RuntimeError, match="no room"):
        served_names(plan)
    assert served_names(plan)[0] == "product 0"
