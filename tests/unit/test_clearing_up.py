"""What the end of a driver does about its queries, with a Spark that is made of wishes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from semistream.spark import clearing_up

JVM_PID = 7


class Query:
    """A streaming query that can be asked to stop, and may refuse."""

    def __init__(self, stops: bool = True) -> None:
        self._stops = stops
        self.settings: dict[str, str] = {}
        self.was_asked = False

    def sparkSession(self) -> Any:
        """The session that started it."""
        return SimpleNamespace(conf=lambda: SimpleNamespace(set=self.settings.__setitem__))

    def stop(self) -> None:
        """Stop, or say that it took too long."""
        self.was_asked = True
        if not self._stops:
            raise TimeoutError("it did not stop in time")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """For what executors somebody looked what they left."""
    found: list[int] = []
    monkeypatch.setattr(clearing_up, "remove_hot_sets_of_executor", found.append)
    monkeypatch.setattr(clearing_up, "LATE_PAUSE_S", 0.0)
    return found


def session_with(queries: dict[str, Query | None]) -> Any:
    shared = SimpleNamespace(activeStreamingQueries=lambda: queries)
    return SimpleNamespace(_jsparkSession=SimpleNamespace(sharedState=lambda: shared))


def test_a_query_that_does_not_stop_in_time_keeps_none_of_the_others_running(looks: list[int]) -> None:
    stubborn, other = Query(stops=False), Query()
    clearing_up._end_of_driver(session_with({"stubborn": stubborn, "other": other}), JVM_PID)
    for query in (stubborn, other):
        assert query.was_asked
        assert query.settings == {"spark.sql.streaming.stopTimeout": clearing_up.STOP_TIMEOUT}
    assert looks == [JVM_PID] * (1 + clearing_up.LATE_LOOKS)


def test_a_query_that_has_just_ended_is_not_asked(looks: list[int]) -> None:
    clearing_up._end_of_driver(session_with({"ended": None}), JVM_PID)
    assert looks == [JVM_PID]


def test_where_the_jvm_is_gone_it_is_looked_once(looks: list[int]) -> None:
    clearing_up._end_of_driver(SimpleNamespace(), JVM_PID)  # type: ignore[arg-type]
    assert looks == [JVM_PID]


def test_a_worker_that_hears_late_of_the_end_of_its_query_leaves_nothing(
    looks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(clearing_up, "remove_hot_sets_of_query", heard.append)
    event = SimpleNamespace(id=lambda: SimpleNamespace(toString=lambda: "one"))
    clearing_up._EndOfQueries().onQueryTerminated(event)
    assert heard == ["one"] * (1 + clearing_up.LATE_LOOKS)
    assert looks == []
