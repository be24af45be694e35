"""The process of the tests in the part of a Python worker of Spark's."""

from __future__ import annotations

from semistream.spark import worker


def forget_worker() -> None:
    """Let everything go that this process has as a worker, as if it had ended."""
    for served_id in list(worker._served):
        worker._served.pop(served_id).close(served_id)
