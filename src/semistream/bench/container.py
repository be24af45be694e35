"""A memory cgroup of Linux around a contender: what it holds and the file pages it reads count against one limit.

Only so is R larger than memory in earnest: without a limit R lies in the page cache and every read looks free. Both
versions of cgroups are known. A process enters by itself, before it starts anything, and what it starts is born inside.

Needs Linux and root, and a cgroup file system that may be written; inside a container that is often not so.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import EnvironmentUnfit

ROOT = Path("/sys/fs/cgroup")
HINT = "run on Linux as root, where cgroups can be written: not inside an unprivileged container"
LEAVE_TRIES, LEAVE_EVERY_S = 50, 0.1
"""A cgroup can be removed once its last process is gone for the system, too, which takes a moment."""


@dataclass(frozen=True, slots=True)
class Container:
    """One memory cgroup."""

    path: Path
    limit_bytes: int

    def enter(self) -> None:
        """Put the calling process inside."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def kills(self) -> int:
        """How many processes the system has killed because there was no memory left."""
        for name in ("memory.events", "memory.oom_control"):
            if (self.path / name).exists():
                words = [line.split() for line in (self.path / name).read_text().splitlines()]
                return sum(int(value) for key, value in words if key == "oom_kill")
        return 0


@contextmanager
def container(name: str, limit_bytes: int, root: Path = ROOT) -> Iterator[Container]:
    """Make a cgroup with this limit; end what is inside afterwards, and remove it."""
    try:
        made = _make_v1(root, name, limit_bytes) if (root / "memory").is_dir() else _make_v2(root, name, limit_bytes)
    except OSError as error:
        raise EnvironmentUnfit(
            "a memory cgroup cannot be made here",
            given=f"{type(error).__name__} at {error.filename or root}",
            allowed="Linux with memory cgroups, as root",
            hint=HINT,
        ) from error
    try:
        yield made
    finally:
        _remove(made.path)


def _make_v1(root: Path, name: str, limit_bytes: int) -> Container:
    path = root / "memory" / name
    path.mkdir(exist_ok=True)
    (path / "memory.limit_in_bytes").write_text(str(limit_bytes))
    with_swap = path / "memory.memsw.limit_in_bytes"
    if with_swap.exists():
        with_swap.write_text(str(limit_bytes))
    return Container(path, limit_bytes)


def _make_v2(root: Path, name: str, limit_bytes: int) -> Container:
    if "memory" not in (root / "cgroup.subtree_control").read_text().split():
        (root / "cgroup.subtree_control").write_text("+memory")
    path = root / name
    path.mkdir(exist_ok=True)
    (path / "memory.max").write_text(str(limit_bytes))
    without_swap = path / "memory.swap.max"
    if without_swap.exists():
        without_swap.write_text("0")
    return Container(path, limit_bytes)


def _remove(path: Path) -> None:
    """Kill what is left inside, whoever's child it is by now, and remove the group."""
    for _ in range(LEAVE_TRIES):
        for pid in (path / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            path.rmdir()
        except OSError:
            time.sleep(LEAVE_EVERY_S)
        else:
            return
