"""A relation is a directory of versions, and one small file says which of them is current.

```
products/
  CURRENT                the current version, as "v000007"; switched by one rename
  v000007.arrow          the rows: Arrow IPC, sorted by hash partition and key code
  v000007.index.arrow    where the pages and their buffers stand in it
  v000007.json           the manifest
  leases/                which version each micro-batch reads
  .building-v000008/     a version that is being built
```

A version that was published never changes. A builder works in a folder of its own, holding a lock on a file in it,
so that a folder whose lock is free was left behind by a builder that died, and the next one clears it away. Files
are moved into place before CURRENT is switched: whoever dies at whatever moment, CURRENT names a complete version.
Numbers only grow. If a version is published after a newer one, the newer one stays current.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from semistream.errors import RelationCorrupt, RelationNotFound, RelationRefused, did_you_mean_beside
from semistream.relations.arrow_file.durable import (
    NOT_WRITABLE,
    locked,
    must_be_writable,
    sync_directory,
    sync_file,
    try_lock,
    write_synced,
)
from semistream.relations.arrow_file.leases import LEASES, LOCK, leased_versions, parse_version_line, version_line
from semistream.relations.arrow_file.manifest import Manifest

CURRENT = "CURRENT"
VERSIONS_KEPT = 2
"""The current version and the one before: a reader that has just looked at CURRENT must still find its files."""

_VERSION_FILE = re.compile(r"v([0-9]{6,})\.(?:index\.arrow|arrow|json)")
_BUILDING = re.compile(r"\.building-v([0-9]{6,})")


def _is_relation(path: Path) -> bool:
    # `os.path` says no where `Path` would raise, as in a folder that may not be entered.
    return os.path.isfile(path / CURRENT)


@dataclass(frozen=True, slots=True)
class StagedVersion:
    """A version that is being built: where its parts go until it is published."""

    version: int
    data_path: Path
    index_path: Path
    scratch_dir: Path
    """For whatever the builder must put down, such as sorted runs; removed with the staging folder."""

    @property
    def staging_dir(self) -> Path:
        """The folder that holds all of it."""
        return self.data_path.parent


class RelationDirectory:
    """The versions of one relation on disk.

    Example:
        >>> RelationDirectory("nowhere").current_version()
        Traceback (most recent call last):
        ...
        semistream.errors.RelationNotFound: there is no relation at this place; given: 'nowhere'.
        Hint: build it with `semistream index`.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.resolve().name

    # Reading

    def current_version(self) -> int:
        """Return the number of the version that new readers open."""
        if not self.path.exists():
            raise RelationNotFound(
                "there is no relation at this place",
                given=repr(str(self.path)),
                hint=did_you_mean_beside(self.path, _is_relation) or "build it with `semistream index`",
            )
        try:
            return parse_version_line(self.path / CURRENT)
        except (FileNotFoundError, NotADirectoryError):
            pass
        if self.path.is_dir() and not self._foreign_entries():
            raise RelationNotFound(
                "no version of this relation has been published yet",
                given=repr(str(self.path)),
                hint="build it with `semistream index`",
            )
        raise RelationCorrupt(
            "this is not a relation",
            given=repr(str(self.path)),
            allowed=f"a directory with a file named {CURRENT}",
            hint="build one with `semistream index`",
        )

    def versions(self) -> list[int]:
        """Return the versions whose files are complete, oldest first."""
        return sorted(n for n in self._numbers_in_use() if self.manifest_path(n).exists())

    def manifest(self, version: int) -> Manifest:
        """Read the manifest of a version."""
        path = self.manifest_path(version)
        try:
            manifest = Manifest.from_json(path.read_text("utf-8"), where=repr(str(path)))
        except FileNotFoundError as problem:
            raise RelationCorrupt(
                f"version {version} of the relation {self.name!r} has no manifest",
                given=repr(str(path)),
                allowed=", ".join(map(str, self.versions())) or None,
                hint=self._instead_of(version),
            ) from problem
        except UnicodeDecodeError as problem:
            raise RelationCorrupt(
                f"{str(path)!r} is not a manifest that can be believed",
                given="bytes that are not UTF-8",
                hint="build the relation again with `semistream index`",
            ) from problem
        if manifest.version != version:
            raise RelationCorrupt(
                f"{str(path)!r} is the manifest of another version",
                given=str(manifest.version),
                allowed=str(version),
                hint="build the relation again with `semistream index`",
            )
        return manifest

    def _instead_of(self, gone: int) -> str:
        """What to do about a version that is gone."""
        if any(version > gone for version in self.versions()):
            return "newer versions have taken its place: open the relation anew"
        return "build the relation again with `semistream index`"

    def data_path(self, version: int) -> Path:
        """Where the rows of a version stand."""
        return self.path / f"v{version:06d}.arrow"

    def index_path(self, version: int) -> Path:
        """Where the table of a version's pages stands."""
        return self.path / f"v{version:06d}.index.arrow"

    def manifest_path(self, version: int) -> Path:
        """Where the manifest of a version stands."""
        return self.path / f"v{version:06d}.json"

    def edition(self, version: int) -> tuple[int, int] | None:
        """Return what tells a version from another of its number; None when its rows are gone.

        Numbers only grow, but whoever removes the directory and builds the relation anew begins with 1 again.
        """
        try:
            status = os.stat(self.data_path(version))
        except FileNotFoundError:
            return None
        return status.st_mtime_ns, status.st_size

    # Building

    @contextmanager
    def begin_version(self) -> Iterator[StagedVersion]:
        """Claim the next version number and a folder to build it in; the folder is removed at the end.

        Nothing a reader sees changes until `publish`. Several builders may work at once, each on its own number.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_foreign_directory()
            with locked(self.path / LOCK):
                self._remove_abandoned_builds()
                staged, lock = self._claim_number()
        except OSError as problem:
            if isinstance(problem, NotADirectoryError | FileExistsError):
                raise RelationRefused("a file stands where the relation should go", given=str(self.path)) from problem
            if problem.errno in NOT_WRITABLE:
                raise must_be_writable(self.path, "to build a relation in it", problem) from problem
            raise
        try:
            yield staged
        finally:
            # Under the lock, so that nobody finds the folder half removed and takes it for an abandoned one. Where the
            # whole directory is gone there is nothing to remove.
            with suppress(FileNotFoundError), locked(self.path / LOCK):
                shutil.rmtree(staged.staging_dir, ignore_errors=True)
            os.close(lock)

    def publish(self, staged: StagedVersion, manifest: Manifest) -> int:
        """Move a finished version into place and make it current; return the version that is current now.

        That is the new one, unless a newer one was published while it was built.
        """
        assert manifest.version == staged.version, "the manifest belongs to another version"
        staged_manifest = staged.staging_dir / "manifest.json"
        write_synced(staged_manifest, manifest.to_json())
        sync_file(staged.data_path)
        sync_file(staged.index_path)
        with locked(self.path / LOCK):
            # The manifest comes last: a version is complete when it has one.
            os.rename(staged.data_path, self.data_path(staged.version))
            os.rename(staged.index_path, self.index_path(staged.version))
            os.rename(staged_manifest, self.manifest_path(staged.version))
            sync_directory(self.path)
            has_current = (self.path / CURRENT).exists()
            current = max(staged.version, self.current_version()) if has_current else staged.version
            if current == staged.version:
                new_current = staged.staging_dir / CURRENT
                write_synced(new_current, version_line(staged.version))
                os.rename(new_current, self.path / CURRENT)
                sync_directory(self.path)
            self._remove_old_versions(VERSIONS_KEPT)
        return current

    def remove_old_versions(self, keep: int = VERSIONS_KEPT) -> list[int]:
        """Remove versions that are neither current, nor leased, nor among the newest `keep`; return them."""
        with locked(self.path / LOCK):
            return self._remove_old_versions(keep)

    # Helpers; those that change something are called under the exclusive lock.

    def _remove_old_versions(self, keep: int) -> list[int]:
        numbers = sorted(self._numbers_in_use())
        kept = {self.current_version(), *leased_versions(self.path), *numbers[max(0, len(numbers) - keep) :]}
        removed = [number for number in numbers if number not in kept]
        for number in removed:
            # The manifest goes first: without it nobody takes the rest for a version.
            for path in (self.manifest_path(number), self.index_path(number), self.data_path(number)):
                path.unlink(missing_ok=True)
        return removed

    def _numbers_in_use(self) -> set[int]:
        return {int(m.group(1)) for entry in os.listdir(self.path) if (m := _VERSION_FILE.fullmatch(entry))}

    def _claim_number(self) -> tuple[StagedVersion, int]:
        entries = os.listdir(self.path)
        building = {int(m.group(1)) for entry in entries if (m := _BUILDING.fullmatch(entry))}
        current = {self.current_version()} if CURRENT in entries else set()
        version = max({0} | building | current | self._numbers_in_use()) + 1
        staging = self.path / f".building-v{version:06d}"
        staging.mkdir()
        lock = try_lock(staging / "lock")
        assert lock is not None, "somebody locked a folder that was created under the directory's lock"
        scratch = staging / "scratch"
        scratch.mkdir()
        return StagedVersion(version, staging / "data.arrow", staging / "index.arrow", scratch), lock

    def _remove_abandoned_builds(self) -> None:
        for entry in os.listdir(self.path):
            if not _BUILDING.fullmatch(entry):
                continue
            lock = try_lock(self.path / entry / "lock")
            if lock is not None:
                shutil.rmtree(self.path / entry, ignore_errors=True)
                os.close(lock)

    def _foreign_entries(self) -> list[str]:
        return [
            entry
            for entry in os.listdir(self.path)
            if entry not in {CURRENT, LEASES, LOCK}
            and not _VERSION_FILE.fullmatch(entry)
            and not _BUILDING.fullmatch(entry)
        ]

    def _refuse_foreign_directory(self) -> None:
        foreign = self._foreign_entries()
        if foreign and not (self.path / CURRENT).exists():
            raise RelationRefused(
                "the directory holds something other than a relation",
                given=f"{str(self.path)!r} with {sorted(foreign)[0]!r}",
                hint="name an empty or a new directory",
            )
