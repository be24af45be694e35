"""A directory of versions: who may build, what is current, what is removed, and what a crash leaves behind."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from semistream.errors import EnvironmentUnfit, RelationCorrupt, RelationNotFound, RelationRefused
from semistream.relations.arrow_file.directory import RelationDirectory, StagedVersion
from semistream.relations.arrow_file.durable import try_lock
from semistream.relations.arrow_file.leases import pin_version
from semistream.relations.arrow_file.manifest import Manifest

SOURCE = Path(__file__).parents[2] / "src"

MANIFEST = Manifest(
    version=1,
    code_version=1,
    key=("id", "straße"),
    unique=True,
    row_count=10,
    null_key_rows=1,
    rows_per_code_max=1,
    row_bytes_mean=97.25,
    row_bytes_max=120,
    page_count=2,
    page_bytes_max=4096,
    data_bytes=4,
    data_rest_checksum=-5,
    index_bytes=5,
    index_checksum=7,
    created_at="2026-01-02T03:04:05+00:00",
    columns={"id": "int64", "straße": "string"},
)


def _write(staged: StagedVersion) -> Manifest:
    staged.data_path.write_text(f"data {staged.version}")
    staged.index_path.write_text(f"index {staged.version}")
    return dataclasses.replace(MANIFEST, version=staged.version)


def _publish(directory: RelationDirectory) -> int:
    with directory.begin_version() as staged:
        return directory.publish(staged, _write(staged))


@pytest.fixture
def directory(tmp_path: Path) -> RelationDirectory:
    return RelationDirectory(tmp_path / "products")


# Reading


def test_a_missing_path_is_named_with_the_command_that_builds_it(directory: RelationDirectory) -> None:
    with pytest.raises(RelationNotFound, match="no relation at this place") as caught:
        directory.current_version()
    assert str(directory.path) in str(caught.value)
    assert "semistream index" in str(caught.value)


def test_a_misspelt_path_gets_the_name_of_the_relation_beside_it(directory: RelationDirectory) -> None:
    _publish(directory)
    with pytest.raises(RelationNotFound, match="no relation at this place") as caught:
        RelationDirectory(directory.path.parent / "prodcts").current_version()
    assert caught.value.hint == f"did you mean {str(directory.path)!r}?"


def test_what_a_relation_could_be_built_from_is_not_taken_for_the_relation(directory: RelationDirectory) -> None:
    (directory.path.parent / "products.parquet").touch()
    (directory.path.parent / "product").mkdir()
    with pytest.raises(RelationNotFound) as caught:
        directory.current_version()
    assert caught.value.hint == "build it with `semistream index`"


def test_a_directory_of_something_else_is_not_a_relation(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(RelationCorrupt, match="not a relation"):
        RelationDirectory(tmp_path).current_version()


def test_a_file_is_not_a_relation(tmp_path: Path) -> None:
    path = tmp_path / "products.parquet"
    path.touch()
    with pytest.raises(RelationCorrupt, match="not a relation"):
        RelationDirectory(path).current_version()


def test_a_relation_whose_first_build_failed_is_not_there_yet(directory: RelationDirectory) -> None:
    with pytest.raises(RuntimeError, match="disk full"), directory.begin_version():
        raise RuntimeError("disk full")
    with pytest.raises(RelationNotFound, match="published yet"):
        directory.current_version()


@pytest.mark.parametrize("content", ["", "7\n", "v7\n", "v000007", "v000007\nmore", "\xff\xfe"])
def test_a_damaged_current_file_is_an_error(directory: RelationDirectory, content: str) -> None:
    _publish(directory)
    (directory.path / "CURRENT").write_bytes(content.encode("latin-1"))
    with pytest.raises(RelationCorrupt, match="does not name a version"):
        directory.current_version()


def test_a_version_that_was_removed_is_named_with_those_that_are_there(directory: RelationDirectory) -> None:
    _publish(directory)
    with pytest.raises(RelationCorrupt, match=r"version 9 of the relation 'products' has no manifest.*allowed: 1"):
        directory.manifest(9)


# Manifest


def test_a_manifest_reads_as_it_was_written() -> None:
    assert Manifest.from_json(MANIFEST.to_json(), where="here") == MANIFEST


def test_a_manifest_of_another_format_says_to_build_again() -> None:
    text = MANIFEST.to_json().replace('"format_version": 3', '"format_version": 4')
    with pytest.raises(RelationCorrupt, match="format this package does not know") as caught:
        Manifest.from_json(text, where="'v000001.json'")
    assert "build the relation again" in str(caught.value)
    assert "v000001.json" in str(caught.value)


def test_a_manifest_from_before_there_were_partitions_has_one() -> None:
    content = json.loads(MANIFEST.to_json())
    del content["partition_first_pages"], content["checksum"]
    content["format_version"] = 2
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    assert Manifest.from_json(json.dumps({**content, "checksum": checksum}), where="here") == MANIFEST


def test_any_flipped_bit_of_a_manifest_is_an_error_or_means_nothing(directory: RelationDirectory) -> None:
    _publish(directory)
    path = directory.manifest_path(1)
    good = path.read_bytes()
    expected = directory.manifest(1)
    for position in range(len(good)):
        flipped = good[position] ^ (1 << position % 8)
        path.write_bytes(good[:position] + bytes([flipped]) + good[position + 1 :])
        try:
            assert directory.manifest(1) == expected
        except RelationCorrupt:
            pass


def test_a_manifest_of_another_version_is_refused(directory: RelationDirectory) -> None:
    _publish(directory)
    directory.manifest_path(1).rename(directory.manifest_path(2))
    with pytest.raises(RelationCorrupt, match="another version"):
        directory.manifest(2)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format_version": 1}'])
def test_what_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(RelationCorrupt):
        Manifest.from_json(text, where="here")


# Building


def test_versions_count_up_and_the_newest_is_current(directory: RelationDirectory) -> None:
    assert [_publish(directory) for _ in range(3)] == [1, 2, 3]
    assert directory.current_version() == 3
    assert directory.data_path(3).read_text() == "data 3"
    assert directory.index_path(3).read_text() == "index 3"
    assert directory.manifest(3).version == 3
    assert (directory.path / "CURRENT").read_text() == "v000003\n"


def test_a_failed_build_leaves_nothing_and_the_old_version_current(directory: RelationDirectory) -> None:
    _publish(directory)
    before = sorted(os.listdir(directory.path))
    with pytest.raises(OSError, match="disk full"), directory.begin_version() as staged:
        _write(staged)
        (staged.scratch_dir / "run").touch()
        raise OSError("disk full")
    assert sorted(os.listdir(directory.path)) == before
    assert directory.current_version() == 1


def test_a_folder_of_a_builder_that_died_is_cleared_away(directory: RelationDirectory) -> None:
    for name in (".building-v000001", ".building-v000005"):
        (directory.path / name / "scratch").mkdir(parents=True)
    (directory.path / ".building-v000005" / "lock").touch()
    with directory.begin_version() as staged:
        assert [p.name for p in directory.path.glob(".building*")] == [f".building-v{staged.version:06d}"]


def test_a_folder_of_a_builder_at_work_is_left_alone(directory: RelationDirectory) -> None:
    other = directory.path / ".building-v000001"
    other.mkdir(parents=True)
    lock = try_lock(other / "lock")
    assert lock is not None
    assert _publish(directory) == 2
    assert other.exists()
    os.close(lock)


def test_two_builders_at_once_build_two_versions(directory: RelationDirectory) -> None:
    with directory.begin_version() as first, directory.begin_version() as second:
        assert (first.version, second.version) == (1, 2)
        assert directory.publish(second, _write(second)) == 2
        # The older one began with older data: it comes into the directory, but not before the newer one.
        assert directory.publish(first, _write(first)) == 2
    assert directory.current_version() == 2
    assert directory.versions() == [1, 2]


def test_a_directory_with_other_files_is_not_built_into(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").touch()
    with (
        pytest.raises(RelationRefused, match="something other than a relation"),
        RelationDirectory(tmp_path).begin_version(),
    ):
        pass
    assert os.listdir(tmp_path) == ["holiday.jpg"]


def test_a_file_in_the_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "products").touch()
    with (
        pytest.raises(RelationRefused, match="a file stands"),
        RelationDirectory(tmp_path / "products").begin_version(),
    ):
        pass


def test_a_directory_that_cannot_be_written_is_named(
    directory: RelationDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    directory.path.mkdir()
    monkeypatch.setattr(os, "mkdir", refuse)
    with (
        pytest.raises(EnvironmentUnfit, match="must be writable to build a relation") as caught,
        directory.begin_version(),
    ):
        pass
    assert str(directory.path) in str(caught.value)


# Old versions


def test_old_versions_are_removed_but_not_those_that_are_leased(directory: RelationDirectory) -> None:
    _publish(directory)
    assert pin_version(directory, "query", 0, directory.current_version) == 1
    for _ in range(3):
        _publish(directory)
    assert directory.versions() == [1, 3, 4]
    assert not directory.data_path(2).exists()
    assert not directory.index_path(2).exists()


def test_the_current_version_is_never_removed(directory: RelationDirectory) -> None:
    for _ in range(3):
        _publish(directory)
    (directory.path / "CURRENT").write_text("v000002\n")
    assert directory.remove_old_versions(keep=0) == [3]
    assert directory.current_version() == 2
    assert directory.versions() == [2]


def test_what_a_crash_left_between_files_is_removed_in_time(directory: RelationDirectory) -> None:
    _publish(directory)
    directory.data_path(2).touch()
    assert directory.versions() == [1]
    assert _publish(directory) == 3
    assert _publish(directory) == 4
    assert not directory.data_path(2).exists()


# Processes

_PRELUDE = f"""
import os, sys
sys.path[:0] = [{str(SOURCE)!r}, {str(SOURCE.parent)!r}]
from tests.unit.test_relation_directory import RelationDirectory, _publish
"""


def _run(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", _PRELUDE + textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout


def test_whenever_a_builder_dies_the_old_version_stays_current(directory: RelationDirectory) -> None:
    """The n-th change of the file system ends the process at once, for every n."""
    script = """
    calls, deadly = 0, 0
    def counted(function):
        def call(*given, **named):
            global calls
            calls += 1
            if calls == deadly:
                os._exit(9)
            return function(*given, **named)
        return call
    for name in ("rename", "fsync", "mkdir", "unlink", "rmdir", "open", "write"):
        setattr(os, name, counted(getattr(os, name)))
    directory = RelationDirectory(sys.argv[1])
    deadly = 0
    assert _publish(directory) == 1
    died = 0
    for n in range(1, 200):
        child = os.fork()
        if child == 0:
            calls, deadly = 0, n
            _publish(directory)
            os._exit(0)
        died_now = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        died += died_now
        current = directory.current_version()
        directory.manifest(current)
        assert directory.data_path(current).read_text() == f"data {current}", n
        assert directory.index_path(current).read_text() == f"index {current}", n
        if not died_now:
            break
    print(died, len([name for name in os.listdir(directory.path) if name.startswith(".building")]))
    """
    died, folders_left = map(int, _run(script, directory.path).split())
    assert died > 10
    assert folders_left == 0


def test_builders_in_many_processes_never_share_a_number(directory: RelationDirectory) -> None:
    script = """
    directory = RelationDirectory(sys.argv[1])
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            for _ in range(5):
                _publish(directory)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    """
    _run(script, directory.path)
    assert directory.current_version() == 40
    assert directory.versions()[-1] == 40
    assert directory.data_path(40).read_text() == "data 40"
