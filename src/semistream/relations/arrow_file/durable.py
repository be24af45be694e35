"""Small promises about files: what was written stays written, and two processes never do the same thing at once.

A rename is atomic but not durable: after a power cut the new name may be gone, or there while the bytes are not. So
whatever is published is synced first, renamed second, and the directory that holds the name is synced third.

Locks are `flock` locks on a file that is never removed: they end with the process that holds them, however it ends.
They also hold on NFS 4, and between threads that open the file themselves.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from semistream.errors import EnvironmentUnfit

NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""What the system answers where we may not write."""


def must_be_writable(place: Path, why: str, problem: OSError) -> EnvironmentUnfit:
    """Return the error for a directory in which we may not write."""
    return EnvironmentUnfit(
        f"the directory {str(place)!r} must be writable {why}",
        given=problem.strerror or str(problem),
        hint=f"let the user who runs this process (uid {os.geteuid()}) create files in it",
    )


def sync_directory(place: Path) -> None:
    """Make the names in a directory survive a power cut."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_file(path: Path) -> None:
    """Make the bytes of a file survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, text: str) -> None:
    """Write a new file and make its bytes survive a power cut."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        content = text.encode()
        while content:
            content = content[os.write(descriptor, content) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def try_lock(path: Path) -> int | None:
    """Lock the file `path` for ourselves; return its descriptor, or None when somebody else has it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def locked(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Wait for the lock on the file `path`, hold it, and let it go."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
