"""What must be true outside this package before a query can run: the Python of the workers, and how many there are.

Spark starts its Python workers with `python3` from the PATH unless `PYSPARK_PYTHON` was set before the session began.
A user whose script runs in a virtual environment then gets workers that know nothing of it. Where the workers run on
this machine we point Spark at the interpreter that runs the user's script; elsewhere a tiny query finds out, once a
session, whether the workers can import this package, and if not says in one sentence what to set.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from typing import TYPE_CHECKING, Any

from semistream.errors import EnvironmentUnfit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_checked: set[str] = set()

_UNFIT_SIGNS = (
    "ModuleNotFoundError",  # it lacks this package, or one that Spark or this package needs
    "ImportError",
    "PYTHON_VERSION_MISMATCH",  # it is another Python than that of the script
    "Cannot run program",  # there is no such interpreter
    "pyspark.daemon",  # it is too old to start
)
"""What Spark's message contains when the interpreter of the workers does not fit."""


def is_connect(session: SparkSession) -> bool:
    """Whether this session talks to a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def ensure_workers_can_import(session: SparkSession) -> None:
    """Make the workers use an interpreter that has this package, or say what to set."""
    if not is_connect(session) and workers_run_here(session) and "PYSPARK_PYTHON" not in os.environ:
        context: Any = session.sparkContext
        context.pythonExec = sys.executable
        return
    identity = str(session.conf.get("spark.app.id", "")) or str(id(session))
    if identity in _checked or _configured_python_is_ours(session):
        return
    _try_import(session)
    _checked.add(identity)


def workers_run_here(session: SparkSession) -> bool:
    """Whether the Python workers are processes of this machine for sure."""
    return str(session.conf.get("spark.master", "")).startswith("local")


def _configured_python_is_ours(session: SparkSession) -> bool:
    """Whether workers on this machine surely start the interpreter that runs this script."""
    configured = os.environ.get("PYSPARK_PYTHON")
    if is_connect(session) or configured is None or not workers_run_here(session):
        return False
    found = shutil.which(configured)
    if found is None or not os.path.samefile(found, sys.executable):
        return False
    # The interpreters of all virtual environments may be links to one file: what they import depends on the folder.
    return os.path.samefile(os.path.dirname(found), os.path.dirname(sys.executable))


def _try_import(session: SparkSession) -> None:
    def import_here(batches: Any) -> Any:
        import semistream.spark.worker  # noqa: F401 - the import is the test

        yield from batches

    # Pickled by value, so that a worker without this package fails in the import above and nowhere else.
    import_here.__module__ = "__main__"
    try:
        session.range(1).mapInArrow(import_here, session.range(1).schema).collect()
    except Exception as error:
        reason = _worker_reason(str(error))
        if reason is None:
            raise
        raise EnvironmentUnfit(
            "the Python workers of this Spark session cannot import semistream",
            given=f"this script runs on {sys.executable}, a worker says: {reason}",
            hint=f"set PYSPARK_PYTHON={sys.executable} before the session (for Spark Connect: before its server) "
            "starts, or install semistream where the workers run",
        ) from error


def _worker_reason(message: str) -> str | None:
    """The line of Spark's message that tells what ails a Python worker; None when something else has failed."""
    lines = (line.strip(" .") for line in message.splitlines())
    return next((line for line in lines if any(sign in line for sign in _UNFIT_SIGNS)), None)


def worker_count(session: SparkSession) -> int:
    """How many Python workers of one executor can run at a time; 0 when that cannot be known here."""
    master = str(session.conf.get("spark.master", ""))
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\s*\d+)?\])?", master)
    if local:
        cores = local.group(1) or "1"
        return os.cpu_count() or 1 if cores == "*" else int(cores)
    cores = session.conf.get("spark.executor.cores", None)
    task_cpus = int(str(session.conf.get("spark.task.cpus", "1")))
    return max(1, int(cores) // task_cpus) if cores else 0


def arrow_batch_rows(session: SparkSession) -> int:
    """How many rows Spark puts into one Arrow batch; 0 means no limit."""
    return int(str(session.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", "10000")))


def shuffle_partitions(session: SparkSession) -> int:
    """Into how many tasks Spark cuts what was shuffled."""
    return int(str(session.conf.get("spark.sql.shuffle.partitions", "200")))
