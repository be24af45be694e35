"""Where the hot sets of an executor's workers lie, and who clears them away.

```
/dev/shm/semistream-hot-1000/        of this user alone; the temporary directory where there is no room in memory
  4026531836-7130-881203/            an executor: namespace, process, and when it began
    3f9a…-0-77c1…/                   an enrichment, which of its lookups, and the plan that was made of it
      v7-1763280000123-4096/         a version of the relation: the hot set
      queries/<query id>             the streaming queries that use it
```

An executor is the JVM above its Python workers; its workers come and go, and all of them find what those before have
remembered. One version has files at a time: whoever opens another first removes the one before, and does without a hot
set as long as somebody still reads that. The same holds for an enrichment that a query plans again and again, as in
`foreachBatch`, while the relation changes.

Folders are cleared away by whoever opens a hot set on the same node, once their executor is gone or nobody has used
them for `UNUSED_S_MAX`; by the driver, when a query has ended or it ends itself, as far as they lie on its node.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from semistream.clock import wall_time_s
from semistream.joins.knowledge import hot_layout
from semistream.relations.base import Relation
from semistream.structures.hot_removal import STATE, remove_hot_set
from semistream.structures.hot_set import HotSet

SHARED_MEMORY = Path("/dev/shm")
UNUSED_S_MAX = 600.0
END_TRIES, END_PAUSE_S = 40, 0.05
"""How often removal is tried at an end: a worker shares what it learned for a moment behind its last task."""
QUERIES = "queries"
ANCESTORS_MAX = 3
"""Processes between a worker and its executor at most: a daemon that forks workers."""

Edition = tuple[int, int] | None


class HotSets:
    """The hot sets of one lookup, one version at a time."""

    def __init__(self, family: str, plan_id: str, lookup_number: int, bytes_max: int) -> None:
        self._name = f"{family}-{lookup_number}-{plan_id}"
        self._siblings = f"{family}-{lookup_number}-*"
        self._bytes_max = bytes_max

    def open(self, relation: Relation, version: int, edition: Edition, query_id: str | None) -> HotSet | None:
        """Open the hot set of a version; None where there is none, or not as long as another version is read."""
        division = hot_layout(relation, self._bytes_max)
        if division is None:
            return None
        try:
            folder = _folder(Path(executor_name()) / self._name, self._bytes_max)
            if folder is None:
                return None
            _clear_away(folder)
            identity = "-".join(str(part) for part in (f"v{version}", *(edition or ())))
            if query_id is not None:
                (folder / QUERIES).mkdir(mode=0o700, exist_ok=True)
                (folder / QUERIES / query_id).touch()
                if not self._have_plans_before_gone(folder, query_id):
                    return None
            if not _removed(other for other in _hot_sets_in(folder) if other.name != identity):
                return None
            return HotSet(folder / identity, *division, identity=f"{self._name} {identity}")
        except OSError:
            # No room, no permission, too few addresses: each worker remembers for itself.
            return None

    def _have_plans_before_gone(self, folder: Path, query_id: str) -> bool:
        """Remove what the same query remembered by plans that were made for other versions, as in `foreachBatch`."""
        for other in folder.parent.glob(self._siblings):
            if other != folder and _queries_of(other) == {query_id}:
                _remove_enrichment(other)
                if other.exists():
                    return False
        return True


def executor_name() -> str:
    """What tells the executor of this worker from all others that were and will be on this node."""
    pid = os.getppid()
    above = pid
    for _ in range(ANCESTORS_MAX):
        name, parent = _name_and_parent(above)
        if name == "java":
            pid = above
            break
        above = parent
    return f"{_namespace()}-{pid}-{began(pid)}"


def remove_hot_sets_of_query(query_id: str) -> None:
    """Remove what a streaming query used that has ended, unless another uses it as well."""
    for root in _roots():
        for executor in root.iterdir():
            for enrichment in _in(executor):
                with contextlib.suppress(OSError):
                    (enrichment / QUERIES / query_id).unlink()
                    if not _queries_of(enrichment):
                        _remove_enrichment(enrichment, END_TRIES)


def remove_hot_sets_of_executor(pid: int) -> None:
    """Remove everything of an executor on this node that ends with this process."""
    for root in _roots():
        for executor in root.glob(f"{_namespace()}-{pid}-*"):
            _remove_executor(executor, END_TRIES)


def remove_hot_sets_of_the_dead() -> None:
    """Remove what executors have left that were killed on this node."""
    for root in _roots():
        for executor in root.iterdir():
            with contextlib.suppress(OSError):
                if _is_dead(executor):
                    _remove_executor(executor)


# Places --------------------------------------------------------------------------------------------------------------


def _candidates() -> list[Path]:
    return [SHARED_MEMORY, Path(tempfile.gettempdir())]


def _name_of_root() -> str:
    return f"semistream-hot-{os.getuid()}"


def _folder(below_root: Path, bytes_max: int) -> Path | None:
    """The folder of an enrichment: where it is already, otherwise where there is room, in memory if possible."""
    if not any((root / below_root).is_dir() for root in _roots()):
        for place in _candidates():
            if _room_bytes(place) > 2 * bytes_max and _made(place / _name_of_root(), below_root):
                break
    # Another worker may have made one at the same time, and filled it: the first of them is for all.
    return next((root / below_root for root in _roots() if (root / below_root).is_dir()), None)


def _room_bytes(place: Path) -> int:
    try:
        status = os.statvfs(place)
    except OSError:
        return 0
    return status.f_bavail * status.f_frsize


def _made(root: Path, below_root: Path) -> bool:
    """Make a folder in a root that is ours; False where that cannot be."""
    with contextlib.suppress(OSError):
        root.mkdir(mode=0o700, exist_ok=True)
        if _is_ours(root):
            for level in (below_root.parent, below_root):
                (root / level).mkdir(mode=0o700, exist_ok=True)
            return True
    return False


def _roots() -> Iterator[Path]:
    for place in _candidates():
        if _is_ours(place / _name_of_root()):
            yield place / _name_of_root()


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder, and nobody else can put anything into it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077


def _queries_of(enrichment: Path) -> set[str]:
    queries = enrichment / QUERIES
    return {query.name for query in queries.iterdir()} if queries.is_dir() else set()


def _in(folder: Path) -> list[Path]:
    """What lies in a folder; nothing when it is none, or gone by now: several may clear away at the same time."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _hot_sets_in(enrichment: Path) -> Iterator[Path]:
    for folder in enrichment.iterdir():
        if folder.name != QUERIES:
            yield folder


# Clearing away -------------------------------------------------------------------------------------------------------


def _clear_away(own: Path) -> None:
    """Remove what dead executors have left, and what nobody has used for long, but for what is to be used now."""
    for executor in own.parent.parent.iterdir():
        # What is no folder is not ours, and what is gone by now somebody else has removed.
        with contextlib.suppress(OSError):
            _clear_executor_away(executor, own)


def _clear_executor_away(executor: Path, own: Path) -> None:
    if _is_dead(executor):
        _remove_executor(executor)
        return
    # Of executors in other containers nothing is known but when they used their files.
    for enrichment in executor.iterdir():
        if enrichment != own and all(_unused_s(folder) > UNUSED_S_MAX for folder in _hot_sets_in(enrichment)):
            _remove_enrichment(enrichment)
    executor.rmdir()


def _is_dead(executor: Path) -> bool:
    """Whether the executor of a folder is surely gone."""
    namespace, pid, then = (*executor.name.split("-"), "", "")[:3]
    return namespace == _namespace() and (not pid.isdecimal() or began(int(pid)) != then)


def _unused_s(hot_set: Path) -> float:
    try:
        return wall_time_s() - (hot_set / STATE).stat().st_mtime
    except OSError:
        return 0.0


def _removed(hot_sets: Iterable[Path]) -> bool:
    """Remove hot sets as far as nobody reads them; return whether all are gone."""
    return [folder for folder in hot_sets if not remove_hot_set(folder)] == []


def _remove_enrichment(enrichment: Path, tries: int = 1) -> None:
    for number in range(tries):
        if number:
            time.sleep(END_PAUSE_S)
        if _removed(_hot_sets_in(enrichment)):
            shutil.rmtree(enrichment, ignore_errors=True)
            return


def _remove_executor(executor: Path, tries: int = 1) -> None:
    for enrichment in _in(executor):
        # The end of a query may have removed it meanwhile.
        with contextlib.suppress(OSError):
            _remove_enrichment(enrichment, tries)
    with contextlib.suppress(OSError):
        executor.rmdir()


# Processes -----------------------------------------------------------------------------------------------------------


def _namespace() -> str:
    """In which space process ids are counted; containers may share a place and not that."""
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return "0"


def stat_of(pid: int) -> tuple[str, list[str]]:
    """The name of a process, and what the system says of it from its state on."""
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    # The name stands in parentheses, and may contain any.
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()


def _name_and_parent(pid: int) -> tuple[str, int]:
    try:
        name, rest = stat_of(pid)
    except OSError:
        return "", 0
    return name, int(rest[1])


def began(pid: int) -> str:
    """When a process began, "0" where that cannot be known; "" when there is none, or only its exit code is left."""
    try:
        state, *rest = stat_of(pid)[1]
        return "" if state in ("Z", "X") else rest[18]
    except OSError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except OSError:
        pass
    return "0"
