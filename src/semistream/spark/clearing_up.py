"""What the driver does so that nothing is left of the hot sets of its queries, as far as they lie on its node.

A worker does not learn that it was the last. The driver does: it hears when a streaming query has ended, and it is
asked when it ends itself. Both only matter where the workers run on the driver's machine, and on classic Spark, whose
driver has the JVM at hand. Elsewhere what is not used is removed by the next enrichment on the node (`hot_sets`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from semistream.spark.environment import is_connect, workers_run_here
from semistream.spark.hot_sets import remove_hot_sets_of_executor, remove_hot_sets_of_query
from semistream.spark.plan import EnrichPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_TIMEOUT = "5s"
"""How long the end of a driver waits for each query that still runs."""
LATE_LOOKS, LATE_PAUSE_S = 4, 0.25
"""How often it is looked after an end for what a worker may have made in its last moment."""

_applications: set[str] = set()
_listening: set[str] = set()


class _EndOfQueries:
    """Removes what a query used when it has ended.

    Called by the JVM itself: between it and a listener of PySpark's every progress is turned into Python objects, which
    takes a tenth of a second of processor time a micro-batch and is for nothing here.
    """

    def onQueryStarted(self, event: Any) -> None:
        """Nothing is there yet."""

    def onQueryProgress(self, event: Any) -> None:
        """It is still in use."""

    def onQueryIdle(self, event: Any) -> None:
        """It will be used again."""

    def onQueryTerminated(self, event: Any) -> None:
        """Remove what nobody else uses."""
        query_id = event.id().toString()
        remove_hot_sets_of_query(query_id)
        _look_again(lambda: remove_hot_sets_of_query(query_id))

    class Java:
        """How Py4J learns what this is to the JVM."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def clear_up_after(session: SparkSession, plan: EnrichPlan, *, may_stream: bool) -> None:
    """See to it that hot sets are removed when a streaming query ends, and when this process does."""
    if is_connect(session) or not workers_run_here(session) or not plan.shares_rows:
        return
    context: Any = session.sparkContext
    if context.applicationId not in _applications:
        _applications.add(context.applicationId)
        # The JVM was started by this process, or has started it.
        jvm = getattr(context._gateway, "proc", None)
        atexit.register(_end_of_driver, session, jvm.pid if jvm is not None else os.getppid())
    starting = _session_of_the_batch(session) or (session._jsparkSession if may_stream else None)
    # A session tells of the queries that it started, and of no others.
    if starting is not None and starting.sessionUUID() not in _listening:
        _listening.add(starting.sessionUUID())
        _listen(context._gateway, starting)


def _end_of_driver(session: SparkSession, jvm_pid: int) -> None:
    """Remove what its queries used; those that still run are stopped first, for they would make it anew."""
    were_running = _running_queries(session)
    for query in were_running:
        # One that does not stop in time says so, and the others are stopped all the same.
        with contextlib.suppress(Exception):
            query.sparkSession().conf().set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
            query.stop()
    remove_hot_sets_of_executor(jvm_pid)
    if were_running:
        _look_again(lambda: remove_hot_sets_of_executor(jvm_pid))


def _look_again(remove: Callable[[], None]) -> None:
    for _ in range(LATE_LOOKS):
        # A worker hears of the end when it wants to answer.
        time.sleep(LATE_PAUSE_S)
        remove()


def _session_of_the_batch(session: SparkSession) -> Any:
    """The JVM's session that started the query whose `foreachBatch` is at work; None outside of one.

    The rows that it gets have another one, a copy that Spark made for the query.
    """
    query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    for query in _running_queries(session) if query_id is not None else ():
        if query.id().toString() == query_id:
            return query.sparkSession()
    return None


def _running_queries(session: SparkSession) -> list[Any]:
    """All streaming queries of the driver, whatever session started them, as the JVM knows them."""
    # The JVM may have stopped or be gone, and there is nobody left to be told.
    with contextlib.suppress(Exception):
        running = session._jsparkSession.sharedState().activeStreamingQueries()
        # One that has ended since its name was read is None.
        return [query for query in running.values() if query is not None]
    return []


def _listen(gateway: Any, jvm_session: Any) -> None:
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    wrapped = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(_EndOfQueries())
    jvm_session.streams().addListener(wrapped)
