"""A child process that reports in lines of JSON while somebody looks at it from outside.

The child is a module of this package, run with one argument, its order as JSON. Whatever it prints that is not a line
of JSON goes unheard; its standard error goes into a log, whose end is quoted when it fails.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from semistream.bench.processes import end_tree
from semistream.spark.hot_sets import remove_hot_sets_of_the_dead

QUOTED_CHARACTERS = 300
"""How much of a log stands in a message."""

END_S_MAX = 30.0
"""How long a child may take to end after it has closed its output."""

FOREIGN_SETTINGS = ("SPARK_HOME", "SPARK_CONF_DIR", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
"""Variables by which another Spark of the user's would leak in."""


class ChildProcess:
    """A child at work; made by `running`."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    @property
    def pid(self) -> int:
        """Its number for the system."""
        return self._process.pid

    def reports(self, look_every_s: float) -> Iterator[dict[str, Any] | None]:
        """Yield what it reports until it ends, and None whenever it was silent for `look_every_s`."""
        while True:
            try:
                line = self._lines.get(timeout=look_every_s)
            except queue.Empty:
                yield None
                continue
            if line is None:
                return
            if line.startswith("{"):
                yield json.loads(line)

    def failure(self) -> str | None:
        """Why it failed, in a few words; None when it did not."""
        try:
            code = self._process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            return f"did not end within {END_S_MAX:.0f} s"
        if code == 0:
            return None
        told = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return f"{told}: {self._reason()}"

    def _listen(self) -> None:
        assert self._process.stdout is not None, "a child has no voice"
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _reason(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        # Python names an error in the last line of a traceback, Spark behind "Caused by".
        told = [line for line in lines if line.startswith("Caused by") or "Error" in line.split(":")[0]]
        return (told or lines or ["it said nothing"])[-1][:QUOTED_CHARACTERS]


@contextmanager
def running(module: str, order: Mapping[str, Any], log: Path, temporary: Path) -> Iterator[ChildProcess]:
    """Start `python -m module` with its order; whatever is left of it at the end is killed.

    Its temporary files go to `temporary`.
    """
    environment = {name: value for name, value in os.environ.items() if name not in FOREIGN_SETTINGS}
    # Without it Spark would start its workers with the python3 of the PATH.
    environment["PYSPARK_PYTHON"] = sys.executable
    environment["TMPDIR"] = str(temporary)
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(order)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment,
            # Ctrl-C is for the parent, which ends its children.
            start_new_session=True,
        ) as process,
    ):
        try:
            yield ChildProcess(process, log)
        finally:
            # Once it was waited for, its number may be another's.
            if process.poll() is None:
                end_tree(process.pid)
            # Those of an executor that ran out of memory, too: its driver has ended by itself.
            remove_hot_sets_of_the_dead()


@contextmanager
def scratch_in(out: Path) -> Iterator[Path]:
    """A folder for the temporary files of children; it is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="scratch-", dir=out)).resolve()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def report(**facts: Any) -> None:
    """Say something to the parent; called in the child."""
    print(json.dumps(facts), flush=True)
