"""A process and everything it has started, seen from outside: memory, processor time and open files.

Memory is what the processes hold for themselves: private pages and shared memory, each with its fair part (PSS).
Pages of mapped files do not count; they are the system's cache and go when they are needed elsewhere. To find out the
fair part the system goes through all pages that a process has mapped, those of files too: with 11 GB of R that took it
some tenth of a second for each worker, in which the worker could not map memory. What a process has *resident*, pages
that it shares with others counted in full, it knows at any moment.

All of it is read from `/proc`: on systems that have none nothing is known, which is None and never 0.
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import Literal

from semistream.spark.hot_sets import began, stat_of

PROC = Path("/proc")

END_LOOKS, END_PAUSE_S = 40, 0.05
"""How often it is looked whether what was killed is gone."""

Kind = Literal["jvm", "workers", "driver"]
"""What a process of a Spark query on one machine is: its JVM, a Python worker (or their daemon), the script itself."""


def tree_of(pid: int) -> list[int]:
    """A process and all that descend from it; empty when it is gone."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in PROC.iterdir():
        if entry.name.isdigit() and (parent := _parent_of(int(entry.name))) is not None:
            children[parent].append(int(entry.name))
    found, open_pids = [], [pid] if (PROC / str(pid)).exists() else []
    while open_pids:
        found.append(open_pids.pop())
        open_pids += children[found[-1]]
    return found


def _parent_of(pid: int) -> int | None:
    try:
        return int(stat_of(pid)[1][1])
    except (OSError, IndexError, ValueError):
        return None


def held_bytes(pid: int) -> int:
    """Private and shared-memory bytes of a process; 0 when it is gone."""
    return _added_up(pid, "smaps_rollup", "Pss_Anon:", "Pss_Shmem:")


def resident_bytes(pid: int) -> int:
    """Private and shared-memory bytes that a process has resident, whoever else has them; 0 when it is gone."""
    return _added_up(pid, "status", "RssAnon:", "RssShmem:")


def _added_up(pid: int, name: str, *lines_wanted: str) -> int:
    """The bytes of some lines of a file about a process, which says them in KiB."""
    try:
        lines = (PROC / str(pid) / name).read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(lines_wanted))


def open_files(pid: int) -> int:
    """How many files, sockets and pipes a process has open; 0 when it is gone."""
    try:
        return len(os.listdir(PROC / str(pid) / "fd"))
    except OSError:
        return 0


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, and of its children that have ended and were waited for; 0 when it is gone."""
    try:
        spent = stat_of(pid)[1][11:15]
    except OSError:
        return 0.0
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def kind_of(pid: int) -> Kind:
    """What a process of a Spark query is."""
    try:
        command = (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "driver"
    if command[0].endswith(b"java"):
        return "jvm"
    return "workers" if any(b"daemon" in word for word in command[1:4]) else "driver"


def can_be_seen() -> bool:
    """Whether this system shows what its processes hold."""
    return (PROC / "self" / "smaps_rollup").exists()


def end_tree(pid: int) -> None:
    """Kill a process and all its descendants, and wait a little for their end."""
    pids = tree_of(pid) if PROC.is_dir() else [pid]
    for one in pids:
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for _ in range(END_LOOKS):
        if not any(began(one) for one in pids):
            return
        time.sleep(END_PAUSE_S)
