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
from typing import TYPE_CHECKING, Any

from semistream.spark.environment import is_connect, workers_run_here
from semistream.spark.hot_sets import remove_hot_sets_of_executor, remove_hot_sets_of_query
from semistream.spark.plan import EnrichPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_TIMEOUT = "5s"
"""How long the end of a driver waits for each query that still runs."""
LATE_LOOKS, LATE_PAUSE_S = 4, 0.25
"""How often it looks then for what a worker may have made in its last moment."""

_seen: set[tuple[str, bool]] = set()


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
        remove_hot_sets_of_query(event.id().toString())

    class Java:
        """How Py4J learns what this is to the JVM."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)


def clear_up_after(session: SparkSession, plan: EnrichPlan, *, is_streaming: bool) -> None:
    """See to it that hot sets are removed when a streaming query ends, and when this process does."""
    if is_connect(session) or not workers_run_here(session) or not plan.shares_rows:
        return
    context: Any = session.sparkContext
    for kind in {False, is_streaming}:
        if (context.applicationId, kind) in _seen:
            continue
        _seen.add((context.applicationId, kind))
        if kind:
            _listen(session, _EndOfQueries())
        else:
            # The JVM was started by this process, or has started it.
            jvm = getattr(context._gateway, "proc", None)
            atexit.register(_end_of_driver, session, jvm.pid if jvm is not None else os.getppid())


def _end_of_driver(session: SparkSession, jvm_pid: int) -> None:
    """Remove what its queries used; those that still run are stopped first, for they would make it anew."""
    were_running = _running_queries(session)
    for query in were_running:
        # One that does not stop in time says so, and the others are stopped all the same.
        with contextlib.suppress(Exception):
            query.sparkSession().conf().set("spark.sql.streaming.stopTimeout", STOP_TIMEOUT)
            query.stop()
    remove_hot_sets_of_executor(jvm_pid)
    for _ in range(LATE_LOOKS if were_running else 0):
        # A worker hears of the end when it wants to answer.
        time.sleep(LATE_PAUSE_S)
        remove_hot_sets_of_executor(jvm_pid)


def _running_queries(session: SparkSession) -> list[Any]:
    """All streaming queries of the driver, as the JVM knows them.

    A session knows only those that it started itself, and the session of the rows that `foreachBatch` gets, a copy that
    Spark made for the query, none at all.
    """
    # The JVM may have stopped or be gone, and there is nobody left to be told.
    with contextlib.suppress(Exception):
        running = session._jsparkSession.sharedState().activeStreamingQueries()
        # One that has ended since its name was read is None.
        return [query for query in running.values() if query is not None]
    return []


def _listen(session: SparkSession, listener: _EndOfQueries) -> None:
    from pyspark.java_gateway import ensure_callback_server_started

    gateway: Any = session.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    wrapped = gateway.jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(listener)
    session._jsparkSession.streams().addListener(wrapped)
