"""Leases: all workers of a batch read one version, whoever comes first."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from semistream.errors import EnvironmentUnfit, InvalidOption, RelationCorrupt
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.leases import leased_versions, pin_version

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def directory(tmp_path: Path) -> RelationDirectory:
    path = tmp_path / "products"
    path.mkdir()
    return RelationDirectory(path)


def _version(number: int) -> Callable[[], int]:
    return lambda: number


def _never() -> int:
    raise AssertionError("a version was chosen although there is a lease")


def test_the_first_worker_chooses_and_the_others_follow(directory: RelationDirectory) -> None:
    assert pin_version(directory, "q-1", 5, _version(7)) == 7
    assert pin_version(directory, "q-1", 5, _never) == 7
    assert (directory.path / "leases" / "q-1" / "5").read_text() == "v000007\n"


def test_another_batch_or_query_chooses_for_itself(directory: RelationDirectory) -> None:
    assert pin_version(directory, "q", 5, _version(7)) == 7
    assert pin_version(directory, "q", 6, _version(8)) == 8
    assert pin_version(directory, "p", 5, _version(9)) == 9
    assert leased_versions(directory.path) == {7, 8, 9}


def test_nothing_but_leases_is_left_in_the_folder(directory: RelationDirectory) -> None:
    for batch_id in range(3):
        pin_version(directory, "q", batch_id, _version(1))
    assert sorted(os.listdir(directory.path / "leases" / "q")) == ["0", "1", "2"]


def test_a_choice_that_fails_leaves_no_lease(directory: RelationDirectory) -> None:
    with pytest.raises(AssertionError):
        pin_version(directory, "q", 1, _never)
    assert pin_version(directory, "q", 1, _version(3)) == 3


@pytest.mark.parametrize("query_id", ["", "..", ".", "a/b", "a\\b", "../x", "a..b", ".hidden", "a\n", "x" * 129, "ä"])
def test_a_query_id_stays_inside_the_directory(directory: RelationDirectory, query_id: str) -> None:
    with pytest.raises(InvalidOption, match="query id"):
        pin_version(directory, query_id, 1, _version(1))
    assert not (directory.path / "leases").exists()


def test_a_negative_batch_id_is_refused(directory: RelationDirectory) -> None:
    with pytest.raises(InvalidOption, match="batch id"):
        pin_version(directory, "q", -1, _version(1))


def test_only_the_newest_200_batches_keep_their_lease(directory: RelationDirectory) -> None:
    folder = directory.path / "leases" / "q"
    folder.mkdir(parents=True)
    for batch_id in range(300):
        (folder / str(batch_id)).write_text("v000001\n")
    pin_version(directory, "q", 300, _version(2))
    assert sorted(map(int, os.listdir(folder))) == list(range(101, 301))


def test_a_replay_of_an_old_batch_removes_no_newer_lease(directory: RelationDirectory) -> None:
    pin_version(directory, "q", 900, _version(2))
    pin_version(directory, "q", 3, _version(1))
    assert leased_versions(directory.path) == {1, 2}


def test_a_folder_nobody_touched_for_30_days_is_given_up(directory: RelationDirectory) -> None:
    pin_version(directory, "old", 1, _version(1))
    pin_version(directory, "young", 1, _version(2))
    day_s = 24 * 3600
    now_s = time.time()
    os.utime(directory.path / "leases" / "old", (now_s, now_s - 31 * day_s))
    os.utime(directory.path / "leases" / "young", (now_s, now_s - 29 * day_s))
    assert leased_versions(directory.path) == {2}
    assert os.listdir(directory.path / "leases") == ["young"]


def test_a_damaged_lease_is_an_error_that_names_the_file(directory: RelationDirectory) -> None:
    pin_version(directory, "q", 1, _version(1))
    (directory.path / "leases" / "q" / "1").write_text("nonsense")
    with pytest.raises(RelationCorrupt, match=r"leases/q/1.*does not name a version"):
        pin_version(directory, "q", 1, _version(1))


@pytest.mark.parametrize("failing", ["open", "mkdir", "link"])
def test_a_directory_that_cannot_be_written_is_named(
    directory: RelationDirectory, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, failing, refuse)
    with pytest.raises(EnvironmentUnfit, match="must be writable to note which version") as caught:
        pin_version(directory, "q", 1, _version(1))
    assert str(directory.path / "leases") in str(caught.value)


def test_a_lease_that_is_there_can_be_read_where_nothing_can_be_written(
    directory: RelationDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin_version(directory, "q", 1, _version(4))
    monkeypatch.setattr(os, "link", _never)
    monkeypatch.setattr(os, "mkdir", _never)
    assert pin_version(directory, "q", 1, _never) == 4


def test_a_file_system_without_hard_links_is_named(
    directory: RelationDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(EnvironmentUnfit, match="no hard links"):
        pin_version(directory, "q", 1, _version(1))


def test_processes_that_come_at_once_agree(directory: RelationDirectory) -> None:
    """Eight processes want a different version for each of 60 batches; in every batch all get the same."""
    script = f"""
    import os, sys
    sys.path.insert(0, {str(SOURCE)!r})
    from semistream.relations.arrow_file.directory import RelationDirectory
    from semistream.relations.arrow_file.leases import pin_version
    directory = RelationDirectory(sys.argv[1])
    results = []
    for worker in range(1, 9):
        reading, writing = os.pipe()
        if os.fork() == 0:
            got = [pin_version(directory, "q", batch, lambda: worker * 1000 + batch) for batch in range(60)]
            os.write(writing, " ".join(map(str, got)).encode())
            os._exit(0)
        os.close(writing)
        results.append(reading)
    for reading in results:
        print(os.read(reading, 100_000).decode())
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(directory.path)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout.splitlines()
    assert len(lines) == 8
    assert len(set(lines)) == 1
    versions = list(map(int, lines[0].split()))
    assert [version % 1000 for version in versions] == list(range(60))
