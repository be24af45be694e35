"""Seats: how many workers of a node may remember rows at the same time.

The memory a user grants is for all Python workers of an executor together. Spark keeps idle workers alive and hands
tasks to any of them, so more workers may exist than tasks run at a time. Therefore a worker must hold one of as many
*seats* as there are task slots before it remembers anything; a worker without a seat joins with the little memory that
is set aside for that. A seat is a lock on one byte of a file: it is free at once when its worker ends, however it ends.

Workers of one executor have the same parent, so its process id keeps the seats of several executors on one node apart,
and those of another application that happens to run the same enrichment.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from pathlib import Path

NO_SEAT = -1
SEATS_MAX = 4096
"""Bytes of the file set aside for one enrichment."""

_EXECUTOR = os.getppid()
_open_files: dict[str, int] = {}


def take_seat(plan_id: str, seats: int) -> int:
    """Take a free seat for the rest of this process's life and return its number, or `NO_SEAT`."""
    descriptor, first_byte = _lock_file(), _first_byte(plan_id)
    for seat in range(min(seats, SEATS_MAX)):
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, first_byte + seat)
        except OSError:
            continue
        return seat
    return NO_SEAT


def leave_seat(plan_id: str, seat: int) -> None:
    """Give a seat back."""
    if seat == NO_SEAT:
        return
    fcntl.lockf(_lock_file(), fcntl.LOCK_UN, 1, _first_byte(plan_id) + seat)


def _first_byte(plan_id: str) -> int:
    digest = hashlib.blake2b(f"{_EXECUTOR} {plan_id}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") * SEATS_MAX


def _lock_file() -> int:
    # Closing any descriptor of the file would release all locks of this process, so it is opened once and kept.
    path = str(Path(tempfile.gettempdir()) / f"semistream-seats-{os.getuid()}")
    if path not in _open_files:
        _open_files[path] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    return _open_files[path]
