"""The end of a hot set, or of a file of it: memory is freed at once, and never under the eyes of a reader.

A file that processes have mapped keeps its memory when it is removed, until the last of them lets it go, and some of
them may rest for long. So it is cut to nothing first. Whoever reads holds a lock on it; without one it is not touched.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

STATE = "state"
"""The name of the file that says which others count; its lock is held by whoever writes."""

OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW


def removed_file(path: Path) -> bool:
    """Remove a segment that nobody reads, and free its memory although it may be mapped; False when somebody reads."""
    try:
        descriptor = os.open(path, OPEN_FLAGS)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        path.unlink(missing_ok=True)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def remove_hot_set(folder: Path) -> bool:
    """Remove a hot set that nobody reads or writes, and free its memory; False when somebody does."""
    try:
        state = os.open(folder / STATE, OPEN_FLAGS)
    except FileNotFoundError:
        # Never completed.
        shutil.rmtree(folder, ignore_errors=True)
        return not folder.exists()
    except OSError:
        return False
    try:
        fcntl.flock(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
        removed = [removed_file(Path(entry.path)) for entry in os.scandir(folder) if entry.name != STATE]
        if not all(removed):
            return False
        (folder / STATE).unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(state)
