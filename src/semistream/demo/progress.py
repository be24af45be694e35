"""Spark's reports of a running query, each of them once.

`StreamingQuery.recentProgress` turns all reports it has into Python objects, field by field over the wire to the JVM,
at every call. Whoever asks it after each micro-batch of a long query takes a core away from the query. Here only what
is new is fetched, as one string each.
"""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery


def progress_from(query: StreamingQuery, batch: int) -> list[StreamingQueryProgress]:
    """The reports of this micro-batch and all behind it, as far as Spark still has them."""
    java_query: Any = query._jsq
    reports = java_query.recentProgress()
    new = []
    for place in reversed(range(len(reports))):
        report = reports[place]
        if report.batchId() < batch:
            break
        new.append(StreamingQueryProgress.fromJson(json.loads(report.json())))
    return new[::-1]
