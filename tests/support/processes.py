"""Processes seen from outside: Python scripts run to their end, the workers of a Spark driver, the memory they hold.

Memory is what a process holds for itself: anonymous pages and shared memory, its fair part of each (PSS). Pages of
mapped files do not count; they are the system's cache and go when they are needed elsewhere. What processes remember
together lies in files that are in no cache: they count as a whole, whoever has mapped which part of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
SAMPLE_EVERY_S = 0.05
LIST_EVERY_S = 0.5
"""To list processes takes longer than to sample them."""


def start_script(script: Path, *arguments: str | Path | int, log: Path) -> subprocess.Popen[bytes]:
    """Start a script of this project's tests as a process of its own; what it prints goes to a file."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    for name in ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "PYSPARK_PYTHON"):
        environment.pop(name, None)
    command = [sys.executable, str(script), *map(str, arguments)]
    with log.open("wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=log.parent, env=environment)


def run_script(script: Path, *arguments: str | Path | int, log: Path) -> dict[str, Any]:
    """Run a script to its end and return the JSON of its last line."""
    code = start_script(script, *arguments, log=log).wait()
    printed = log.read_text(errors="replace")
    assert code == 0, f"{script.name} ended with {code}:\n{printed[-4000:]}"
    found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return found


def held_bytes(pid: int, kinds: tuple[str, ...] = ("Pss_Anon:", "Pss_Shmem:")) -> int:
    """Private and shared-memory bytes of a process; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(kinds))


def hot_set_files(of_pid: int | None = None) -> list[Path]:
    """All files of hot sets of the Spark drivers among the children of a process, by default of this one."""
    places = [Path("/dev/shm"), Path(tempfile.gettempdir())]
    process = psutil.Process(of_pid)
    pids = {process.pid, *(child.pid for child in process.children(recursive=True))}
    executors = [
        executor
        for place in places
        for executor in place.glob(f"semistream-hot-{os.getuid()}/*")
        if int(executor.name.split("-")[1]) in pids
    ]
    return [Path(folder) / name for top in executors for folder, _, names in os.walk(top) for name in names]


def _blocks_bytes(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0


def python_workers(of_pid: int | None = None) -> list[int]:
    """Python workers of the Spark drivers among the children of a process."""
    found = []
    for process in psutil.Process(of_pid).children(recursive=True):
        try:
            if "pyspark.daemon" in process.cmdline() and "pyspark.daemon" in process.parent().cmdline():
                found.append(process.pid)
        except (psutil.Error, AttributeError):
            continue  # It has just ended, or its parent has.
    return found


class PeakMemory:
    """Watches processes while a block runs: the most they held together, and how many there were.

    Files that they share can be named; what of them is mapped is not counted a second time.
    """

    def __init__(
        self, list_pids: Callable[[], Sequence[int]], shared: Callable[[], Sequence[Path]] | None = None
    ) -> None:
        self._list_pids = list_pids
        self._list_shared = shared
        self.shared_bytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_bytes = 0
        self.processes = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        pids: Sequence[int] = ()
        list_at_s = 0.0
        while not self._stop.wait(SAMPLE_EVERY_S):
            if time.monotonic() >= list_at_s:
                pids = self._list_pids()
                self.processes = max(self.processes, len(pids))
                list_at_s = time.monotonic() + LIST_EVERY_S
            self.peak_bytes = max(self.peak_bytes, self._held_bytes(pids))

    def _held_bytes(self, pids: Sequence[int]) -> int:
        if self._list_shared is None:
            return sum(map(held_bytes, pids))
        own_bytes, mapped_bytes = (
            sum(held_bytes(pid, (kind,)) for pid in pids) for kind in ("Pss_Anon:", "Pss_Shmem:")
        )
        shared_bytes = sum(map(_blocks_bytes, self._list_shared()))
        self.shared_bytes = max(self.shared_bytes, shared_bytes)
        # Where there is no memory for files these lie in a folder, and nothing of them is mapped as shared memory.
        return own_bytes + max(mapped_bytes, shared_bytes)
