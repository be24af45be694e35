"""Leases: how all workers of a micro-batch, and every replay of it, come to read the same version.

The first worker of a batch chooses a version and writes it down as `leases/<query id>/<batch id>`; everybody else
reads what stands there. The file appears with its content or not at all: it is written under a temporary name and
then linked to its own, which fails if the name is taken. A version that a lease names is not removed.

Choosing and writing happen under a shared lock of the directory, removing versions under an exclusive one, so a
version cannot disappear between being chosen and being leased. Reading a lease takes no lock.

A query keeps the leases of its newest 200 batches (Spark replays at most its newest 100), and the folder of a query
that wrote no lease for 30 days is given up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from semistream.clock import wall_time_s
from semistream.errors import EnvironmentUnfit, InvalidOption, RelationCorrupt
from semistream.relations.arrow_file.durable import NOT_WRITABLE, locked, must_be_writable

if TYPE_CHECKING:
    from semistream.relations.arrow_file.directory import RelationDirectory

LEASES = "leases"
LOCK = ".lock"
LEASED_BATCHES_PER_QUERY = 200
FOLDER_EXPIRES_AFTER_S = 30 * 24 * 3600
_QUERY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_VERSION_LINE = re.compile(r"v([0-9]{6,})\n")
_NO_HARD_LINKS = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def version_line(version: int) -> str:
    """Return the line by which files name a version: v000007."""
    return f"v{version:06d}\n"


def parse_version_line(path: Path) -> int:
    """Return the version that a file names; raise `RelationCorrupt` when it names none."""
    with path.open("rb") as file:
        text = file.read(64).decode("ascii", errors="replace")
    match = _VERSION_LINE.fullmatch(text)
    if match is None:
        raise RelationCorrupt(
            f"{str(path)!r} does not name a version",
            given=repr(text),
            allowed=repr(version_line(7)),
            hint="remove the file if a lease; otherwise build the relation again with `semistream index`",
        )
    return int(match.group(1))


def pin_version(directory: RelationDirectory, query_id: str, batch_id: int, choose: Callable[[], int]) -> int:
    """Return the version that every worker of this micro-batch reads.

    Args:
        directory: Where the relation lives.
        query_id: What names the streaming query over restarts; becomes a folder.
        batch_id: Number of the micro-batch.
        choose: Says which version a new batch reads; called only while there is no lease yet.

    Raises:
        EnvironmentUnfit: if there is no lease yet and none can be written.
    """
    lease = _lease_path(directory.path, query_id, batch_id)
    with contextlib.suppress(FileNotFoundError):
        return parse_version_line(lease)
    try:
        with locked(directory.path / LOCK, shared=True):
            lease.parent.mkdir(parents=True, exist_ok=True)
            won = not lease.exists() and _create(lease, version_line(choose()))
        if won:
            _forget_old_batches(lease.parent, batch_id)
    except OSError as problem:
        if problem.errno in NOT_WRITABLE:
            raise must_be_writable(
                directory.path / LEASES, "to note which version a micro-batch reads", problem
            ) from problem
        raise
    return parse_version_line(lease)


def leased_versions(path: Path) -> set[int]:
    """Return the versions some query may still read, and give up folders nobody has touched for long.

    Call it under the exclusive lock of the directory.
    """
    versions = set()
    oldest_s = wall_time_s() - FOLDER_EXPIRES_AFTER_S
    for folder in _entries(path / LEASES):
        if not folder.is_dir():
            continue
        if folder.stat().st_mtime < oldest_s:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        for lease in _entries(folder):
            if lease.name.isdecimal():
                # Another worker may be pruning the same folder: a lease that is gone holds nothing.
                with contextlib.suppress(FileNotFoundError):
                    versions.add(parse_version_line(lease))
    return versions


def _lease_path(path: Path, query_id: str, batch_id: int) -> Path:
    if not _QUERY_ID.fullmatch(query_id) or ".." in query_id:
        raise InvalidOption(
            "a query id cannot be used as the name of a folder",
            given=repr(query_id),
            allowed="up to 128 letters, digits, '_', '-' and single dots, beginning with a letter or digit",
        )
    if batch_id < 0:
        raise InvalidOption("a batch id must not be negative", given=str(batch_id))
    return path / LEASES / query_id / str(int(batch_id))


def _create(lease: Path, text: str) -> bool:
    """Let the lease appear with its whole content; return False when somebody else was first."""
    temporary = lease.with_name(f".{lease.name}-{uuid.uuid4().hex}")
    try:
        temporary.write_text(text)
        os.link(temporary, lease)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno in _NO_HARD_LINKS:
            raise EnvironmentUnfit(
                f"the file system of {str(lease.parent)!r} has no hard links, which leases need",
                given=problem.strerror,
                hint="keep relations on a local disk or an NFS share",
            ) from problem
        raise
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _forget_old_batches(folder: Path, newest_batch_id: int) -> None:
    # A task waits for this: names only, and not in order.
    for name in os.listdir(folder):
        if name.isdecimal() and int(name) <= newest_batch_id - LEASED_BATCHES_PER_QUERY:
            (folder / name).unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
