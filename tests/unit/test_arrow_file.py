"""The embedded store: what its files look like, what damage does to it, and what a cold key costs."""

from __future__ import annotations

import errno
import gc
import json
import mmap
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import KIB
from semistream.errors import (
    BudgetExceeded,
    ColumnCollision,
    ColumnNotFound,
    InvalidOption,
    RelationCorrupt,
    RelationRefused,
)
from semistream.relations.arrow_file import page_cache, page_source
from semistream.relations.arrow_file.checksum import (
    checksum_around,
    checksum_bytes,
    checksum_words,
    first_damaged,
)
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.page_index import PAGE_FIELDS
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.arrow_file.writer import ArrowFileWriter
from semistream.relations.base import CODE_COLUMN
from tests.support.relations import FLAT_COLUMNS, publish_version, random_codes, rows_of_every_type

ON_LINUX = pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux's accounting")


def _plain_rows(codes: Any, text_bytes: int = 20) -> pa.RecordBatch:
    codes = np.asarray(codes, np.int64)
    texts = [f"{code:x}".ljust(text_bytes, ".") for code in codes.tolist()]
    return pa.record_batch({CODE_COLUMN: codes, "key": codes, "text": texts, "half": codes / 2})


def _open(directory: RelationDirectory, **options: Any) -> ArrowFileRelation:
    return ArrowFileRelation(directory, directory.current_version(), **options)


def _all_rows(relation: ArrowFileRelation, codes: Any, bytes_max: int = 1 << 22) -> pa.Table:
    return pa.Table.from_batches(list(relation.rows_for(np.unique(codes), bytes_max)), relation.schema)


# The files


def test_anybody_can_read_the_data_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = rows_of_every_type(rng, random_codes(rng, 500))
    directory = publish_version(tmp_path / "r", rows)
    with pa.memory_map(str(directory.data_path(1))) as file:
        table = pa.ipc.open_file(file).read_all()
    table.validate(full=True)
    assert table.equals(pa.Table.from_batches([rows]))


@pytest.mark.parametrize("append_rows", [1, 7, 100, 5000])
def test_pages_are_about_as_large_as_asked_for(tmp_path: Path, append_rows: int) -> None:
    rows = _plain_rows(np.arange(3000))
    directory = publish_version(tmp_path / "r", rows, page_bytes=8 * KIB, append_rows=append_rows)
    lengths = _index(directory).column("length").to_numpy()
    assert lengths.max() == directory.manifest(1).page_bytes_max <= 9 * KIB
    assert lengths[:-1].min() >= 7 * KIB


def test_the_index_says_where_every_buffer_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    directory = publish_version(tmp_path / "r", rows_of_every_type(rng, random_codes(rng, 300)))
    index = _index(directory)
    source = pa.memory_map(str(directory.data_path(1)))
    base = source.read_buffer().address
    file = pa.ipc.open_file(source)
    assert file.num_record_batches == index.num_rows == directory.manifest(1).page_count
    row_start = 0
    for number, entry in enumerate(index.to_pylist()):
        page = file.get_batch(number)
        assert entry["first_code"] == page.column(0)[0].as_py()
        assert (entry["row_start"], entry["row_count"]) == (row_start, len(page))
        row_start += len(page)
        for name, position in list(entry.items())[len(PAGE_FIELDS) :]:
            column, buffer = name.split(".")[0], name.rsplit(".", 1)[1]
            place = {"validity": 0, "offsets": 1}.get(buffer, -1)
            found = page.column(int(column)).buffers()[place]
            assert position == (-1 if found is None or found.size == 0 else found.address - base)


def _index(directory: RelationDirectory) -> pa.Table:
    return pa.ipc.open_file(str(directory.index_path(1))).read_all()


def test_the_manifest_measures_rows_as_arrow_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    rows = rows_of_every_type(rng, random_codes(rng, 2000))
    manifest = publish_version(tmp_path / "r", rows).manifest(1)
    assert manifest.row_count == 2000
    assert manifest.row_bytes_mean == pytest.approx(rows.nbytes / len(rows), rel=0.02)
    largest = max(rows.slice(i, 1).nbytes for i in range(len(rows)))
    assert manifest.row_bytes_max == pytest.approx(largest, rel=0.1)
    assert manifest.columns["text"] == "string"
    assert CODE_COLUMN not in manifest.columns


def test_layouts_that_scatter_their_values_are_stored_plain(tmp_path: Path) -> None:
    texts = pa.array(["pear", None, "fig", "pear"])
    columns = {
        "dictionary": texts.dictionary_encode(),
        "text view": texts.cast(pa.string_view()),
        "bytes view": texts.cast(pa.binary()).cast(pa.binary_view()),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 4], pa.int32()), pa.array(["a", "b"])),
        "list of dictionaries": pa.ListArray.from_arrays(
            pa.array([0, 1, 2, 3, 4], pa.int32()), texts.dictionary_encode()
        ),
    }
    rows = pa.record_batch({CODE_COLUMN: np.arange(4), **columns})
    relation = _open(publish_version(tmp_path / "r", rows, key=("dictionary",)))
    found = _all_rows(relation, np.arange(4))
    assert [str(field.type) for field in relation.info.schema] == [
        "string",
        "string",
        "binary",
        "string",
        "list<item: string>",
    ]
    for name in columns:
        assert found.column(name).to_pylist() == rows.column(name).to_pylist()


def test_slices_are_written_from_their_first_row(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    rows = rows_of_every_type(rng, random_codes(rng, 300))
    part = rows.slice(37, 101)
    relation = _open(publish_version(tmp_path / "r", part, append_rows=13))
    assert pa.Table.from_batches([relation.segment(n) for n in range(relation.segment_count)]).equals(
        pa.Table.from_batches([part])
    )


def test_a_code_with_very_many_rows_gets_a_page_of_its_own(tmp_path: Path) -> None:
    codes = np.sort(np.concatenate([np.arange(100), np.full(5000, 50)]))
    directory = publish_version(tmp_path / "r", _plain_rows(codes), page_bytes=4 * KIB, append_rows=100)
    relation = _open(directory)
    page = relation.page_for(50)
    assert len(page) == 5001
    assert relation.info.rows_per_code_max == 5001
    assert relation.page_for(49).column(0).to_pylist()[-1] == 49


def test_rows_that_are_not_sorted_are_a_mistake_of_ours(tmp_path: Path) -> None:
    rows = _plain_rows([3, 1])
    with RelationDirectory(tmp_path / "r").begin_version() as staged, ArrowFileWriter(staged, rows.schema) as writer:
        with pytest.raises(AssertionError, match="sorted by code"):
            writer.append(rows)
        writer.append(rows.slice(0, 1))
        with pytest.raises(AssertionError, match="begins before"):
            writer.append(rows.slice(1, 1))


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    schema = pa.schema([(CODE_COLUMN, pa.int64()), ("a", pa.int64()), ("a", pa.string())])
    with RelationDirectory(tmp_path / "r").begin_version() as staged, pytest.raises(ColumnCollision, match="'a'"):
        ArrowFileWriter(staged, schema)


def test_a_column_that_cannot_be_stored_plain_is_named(tmp_path: Path) -> None:
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2], pa.int32()), pa.array(["a"]))
    nested = pa.StructArray.from_arrays([runs], ["inner"])
    rows = pa.record_batch({CODE_COLUMN: np.arange(2), "odd": nested})
    with pytest.raises(RelationRefused, match="'odd' cannot be stored"):
        publish_version(tmp_path / "r", rows)


# Lookups


@pytest.mark.parametrize("access", ["map", "read"])
@pytest.mark.parametrize("spread", ["dense", "hashed", "clustered", "doubling", "many a code"])
def test_rows_are_found_however_codes_are_spread(tmp_path: Path, access: str, spread: str) -> None:
    rng = np.random.default_rng(5)
    codes = {
        "dense": np.arange(-5000, 25_000),
        "hashed": random_codes(rng, 30_000),
        "clustered": np.repeat(np.arange(30) * 2**55, 1000) + np.tile(np.arange(1000) ** 2, 30),
        "doubling": np.concatenate([-(2 ** np.arange(62, 0, -1)), 2 ** np.arange(63)]),
        "many a code": rng.integers(0, 300, 30_000),
    }[spread]
    codes = np.sort(codes)
    relation = _open(publish_version(tmp_path / "r", _plain_rows(codes), page_bytes=16 * KIB), access=access)
    wanted = np.unique(np.concatenate([rng.choice(codes, 500), rng.choice(codes, 500) + 1]))
    found = _all_rows(relation, wanted)
    expected = _plain_rows(codes[np.isin(codes, wanted)])
    assert found.equals(pa.Table.from_batches([expected]))
    assert relation.page_reads > 0


def test_who_keeps_a_narrow_page_does_not_keep_what_was_read_with_it(tmp_path: Path) -> None:
    rows = _plain_rows(np.arange(5000), text_bytes=600)
    relation = _open(publish_version(tmp_path / "r", rows, page_bytes=64 * KIB), access="read", columns=["half"])
    kept = [relation.segment(number) for number in range(relation.segment_count)]
    assert pa.Table.from_batches(kept).column("half").to_pylist() == rows.column("half").to_pylist()
    buffers = (buffer for page in kept for column in page.columns for buffer in column.buffers() if buffer is not None)
    memory = {whole.address: whole.size for whole in map(_whole_of, buffers)}
    assert sum(memory.values()) < 1.5 * sum(page.nbytes for page in kept)


def _whole_of(buffer: pa.Buffer) -> pa.Buffer:
    """What is kept alive by a buffer that is part of another."""
    return buffer if buffer.parent is None else _whole_of(buffer.parent)


@pytest.mark.parametrize("access", ["map", "read"])
def test_the_gather_agrees_with_take_for_every_flat_type(tmp_path: Path, access: str) -> None:
    rng = np.random.default_rng(6)
    rows = rows_of_every_type(rng, np.arange(3000)).select([CODE_COLUMN, *FLAT_COLUMNS])
    relation = _open(publish_version(tmp_path / "r", rows, page_bytes=32 * KIB), access=access)
    for count in (1, 9, 1000, 3000):
        wanted = np.sort(rng.choice(3000, count, replace=False))
        found = _all_rows(relation, wanted).combine_chunks()
        found.validate(full=True)
        assert found.equals(pa.Table.from_batches([rows.take(pa.array(wanted))]))


def test_cold_windows_find_the_same_rows_as_one_warm_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.arange(20_000)
    directory = publish_version(tmp_path / "r", _plain_rows(codes), page_bytes=8 * KIB)
    monkeypatch.setattr(page_source, "COLD_WINDOW_BYTES", 20 * KIB)
    wanted = np.arange(3, 20_000, 7)
    relation = _open(directory)
    cold = _all_rows(relation, wanted)
    assert _all_rows(relation, wanted).equals(cold)
    assert cold.equals(pa.Table.from_batches([_plain_rows(wanted)]))


def test_a_warm_map_is_looked_at_closely_again_once_something_was_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    relation = _open(publish_version(tmp_path / "r", _plain_rows(np.arange(20_000)), page_bytes=8 * KIB))
    looks: list[int] = []
    monkeypatch.setattr(page_cache.PageCache, "resident", lambda _, offset, __: looks.append(offset) or True)
    waits = 0
    monkeypatch.setattr(resource, "getrusage", lambda _: SimpleNamespace(ru_majflt=waits))

    def looked_at() -> list[int]:
        looks.clear()
        assert _all_rows(relation, np.arange(0, 20_000, 9)).num_rows == 2223
        return looks.copy()

    assert len(looked_at()) > 8
    one, another = looked_at(), looked_at()
    assert len(one) == len(another) == 1
    assert one != another
    waits = 1
    assert len(looked_at()) > 8
    assert len(looked_at()) == 1


def test_a_page_cache_that_tells_nothing_changes_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(5000)))
    monkeypatch.setattr(page_cache, "_mincore", None)
    monkeypatch.setattr(page_cache, "_CAN_ANNOUNCE", False)
    relation = _open(directory)
    for _ in range(2):
        assert _all_rows(relation, np.arange(0, 5000, 3)).num_rows == 1667
    assert relation.segment(3).num_rows > 0


def test_pages_touched_are_counted(tmp_path: Path) -> None:
    relation = _open(publish_version(tmp_path / "r", _plain_rows(np.arange(5000))))
    list(relation.rows_for(np.array([0, 1, 4999]), 1 << 20))
    assert relation.page_reads == 2
    relation.page_for(17)
    relation.segment(0)
    assert relation.page_reads == 4


# Reading without a map


def _is_mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


@ON_LINUX
def test_reads_do_not_map_the_data_file(tmp_path: Path) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(5000)))
    relation = _open(directory, access="read")
    _all_rows(relation, np.arange(0, 5000, 3))
    relation.page_for(7)
    relation.verify_all()
    assert not _is_mapped(directory.data_path(1))
    mapped = _open(directory)
    assert _is_mapped(directory.data_path(1))
    assert mapped.info == relation.info


def test_a_map_that_does_not_fit_becomes_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(5000)))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    relation = _open(directory)
    assert _all_rows(relation, np.arange(0, 5000, 3)).num_rows == 1667


def test_a_disk_buffer_smaller_than_a_page_is_refused(tmp_path: Path) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(5000)))
    needed = directory.manifest(1).page_bytes_max
    with pytest.raises(BudgetExceeded, match=f"smaller than the largest page.*at least {needed} bytes"):
        _open(directory, access="read", disk_buffer_bytes=needed - 1)
    relation = _open(directory, access="read", disk_buffer_bytes=needed)
    assert _all_rows(relation, np.arange(0, 5000, 3)).num_rows == 1667


def test_a_file_cut_short_under_a_reader_is_an_error(tmp_path: Path) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(5000)))
    relation = _open(directory, access="read")
    os.truncate(directory.data_path(1), 30_000)
    with pytest.raises(RelationCorrupt, match="has become shorter"):
        _all_rows(relation, np.arange(5000))
    assert relation.page_for(0).num_rows > 0


def _is_open(path: Path) -> bool:
    return any(Path(link).resolve() == path for link in Path("/proc/self/fd").iterdir()) or _is_mapped(path)


@ON_LINUX
def test_a_relation_that_is_let_go_leaves_no_open_file(tmp_path: Path) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(100)))
    relations = [_open(directory), _open(directory, access="read")]
    page = relations[0].page_for(0)
    assert _is_open(directory.data_path(1))
    del relations
    gc.collect()
    assert page.num_rows > 0
    del page
    gc.collect()
    assert not _is_open(directory.data_path(1))


# Asking for what is not there


def test_an_unknown_column_is_named_with_its_neighbour(tmp_path: Path) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows([1]))
    with pytest.raises(ColumnNotFound, match="did you mean 'text'"):
        _open(directory, columns=["txt"])
    with pytest.raises(ColumnNotFound):
        _open(directory, columns=[CODE_COLUMN])


def test_a_column_asked_for_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ColumnCollision, match="asked for twice"):
        _open(publish_version(tmp_path / "r", _plain_rows([1])), columns=["text", "text"])


def test_an_unknown_way_of_access_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="`access` has an unknown value"):
        _open(publish_version(tmp_path / "r", _plain_rows([1])), access="mmap")


# Damage

Damage = Callable[[Path], None]


def _flip(path: Path, position: int, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit)]))


@pytest.mark.parametrize("part", ["data", "index"])
@pytest.mark.parametrize("access", ["map", "read"])
def test_any_flipped_bit_is_found_and_never_gives_wrong_rows(tmp_path: Path, part: str, access: str) -> None:
    rng = np.random.default_rng(7)
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(200)), page_bytes=2 * KIB)
    path = directory.data_path(1) if part == "data" else directory.index_path(1)
    for position in rng.choice(path.stat().st_size, 150, replace=False).tolist():
        bit = int(rng.integers(8))
        _flip(path, position, bit)
        with pytest.raises(RelationCorrupt, match="damaged") as caught:
            _open(directory, access=access).verify_all()
        assert str(path) in str(caught.value)
        assert "build the relation again" in str(caught.value)
        with pytest.raises(RelationCorrupt):
            _all_rows(_open(directory, access=access), np.arange(200))
        _flip(path, position, bit)
    _open(directory, access=access).verify_all()


@pytest.mark.parametrize("access", ["map", "read"])
def test_a_damaged_page_is_named_and_the_others_can_be_read(tmp_path: Path, access: str) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(2000)))
    _flip(directory.data_path(1), _index(directory).column("offset")[3].as_py() + 1000, 5)
    relation = _open(directory, access=access)
    assert relation.segment(2).num_rows > 0
    first_code = relation.segment(4).column(0)[0].as_py()
    for read in (lambda: relation.segment(3), lambda: relation.page_for(first_code - 1)):
        with pytest.raises(RelationCorrupt, match="page 3 of"):
            read()
    with pytest.raises(RelationCorrupt, match="page 3 of"):
        list(relation.rows_for(np.array([0, first_code - 1]), 1000))


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 9)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _lengthen(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 8)


def _replace_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage", [_cut, _empty, _lengthen, _replace_with_zeros, os.unlink])
@pytest.mark.parametrize("part", ["data_path", "index_path", "manifest_path"])
@pytest.mark.parametrize("access", ["map", "read"])
def test_a_file_that_is_not_what_was_written_is_a_clear_error(
    tmp_path: Path, damage: Damage, part: str, access: str
) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(500)))
    path = getattr(directory, part)(1)
    damage(path)
    with pytest.raises(RelationCorrupt) as caught:
        _open(directory, access=access)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("part", ["data_path", "index_path"])
def test_files_of_two_versions_do_not_mix(tmp_path: Path, part: str) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(500)))
    publish_version(tmp_path / "r", _plain_rows(np.arange(1, 501)))
    shutil.copy(getattr(directory, part)(1), getattr(directory, part)(2))
    with pytest.raises(RelationCorrupt):
        ArrowFileRelation(directory, 2).verify_all()


def test_a_second_look_at_all_bytes_sees_what_changed_outside_the_pages(tmp_path: Path) -> None:
    directory = publish_version(tmp_path / "r", _plain_rows(np.arange(500)))
    relation = _open(directory)
    relation.verify_all()
    _flip(directory.data_path(1), directory.data_path(1).stat().st_size - 20, 0)
    with pytest.raises(RelationCorrupt, match="outside its pages"):
        relation.verify_all()


# Checksums


def test_any_flipped_bit_changes_a_checksum() -> None:
    rng = np.random.default_rng(8)
    for count in (1, 2, 8, 9, 31):
        words = rng.integers(-(2**63), 2**63 - 1, count)
        seen = {int(checksum_words(words, 0, count))}
        for word in range(count):
            for bit in range(64):
                flipped = words.copy()
                flipped.view(np.uint64)[word] ^= np.uint64(1 << bit)
                seen.add(int(checksum_words(flipped, 0, count)))
        assert len(seen) == 64 * count + 1


def test_checksums_are_the_same_in_every_release() -> None:
    assert checksum_words(np.arange(20), 2, 17) == -1571490290588161203
    assert checksum_bytes(np.arange(13, dtype=np.uint8)) == -709593591411588411


def test_a_checksum_around_pages_sees_every_byte_outside_them_and_none_inside(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = np.arange(200_000, dtype=np.uint32).view(np.uint8).copy()
    begin, end = 70_000, 600_000

    def checksum() -> int:
        path.write_bytes(content.tobytes())
        with path.open("rb") as file:
            return checksum_around(file.fileno(), begin, end, len(content))

    undamaged = checksum()
    for place in (0, 65_535, 65_536, begin - 1, end, end + 65_536, len(content) - 1):
        content[place] ^= 4
        assert checksum() != undamaged, f"a flipped bit of byte {place} was not seen"
        content[place] ^= 4
    for place in (begin, end - 1):
        content[place] ^= 4
    assert checksum() == undamaged


def test_words_in_another_order_have_another_checksum() -> None:
    words = np.arange(32)
    assert checksum_words(words, 0, 32) != checksum_words(np.roll(words, 8), 0, 32)
    assert checksum_words(np.zeros(8, np.int64), 0, 8) != checksum_words(np.zeros(16, np.int64), 0, 16)


def test_a_checksum_of_bytes_sees_every_byte_and_the_length() -> None:
    seen = set()
    for count in range(40):
        seen.add(checksum_bytes(np.zeros(count, np.uint8)))
        for position in range(count):
            content = np.zeros(count, np.uint8)
            content[position] = 1
            seen.add(checksum_bytes(content))
    assert len(seen) == sum(range(40)) + 40


def test_the_first_damaged_range_is_found() -> None:
    words = np.arange(100)
    starts, counts = np.array([0, 10, 40]), np.array([10, 30, 60])
    checksums = np.array([checksum_words(words, s, c) for s, c in zip(starts, counts, strict=True)])
    assert first_damaged(words, starts, counts, checksums) == -1
    changed = words.copy()
    changed[[15, 99]] += 1
    assert first_damaged(changed, starts, counts, checksums) == 1


# The benchmark


@pytest.mark.long
def test_the_benchmark_beside_duckdb_runs_and_all_contenders_agree() -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "benchmarks/lookup_beside_duckdb.py", "--rows", "5k", "--keys", "500", "--rounds", "1"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    run = subprocess.run([*command, "--json"], cwd=root, env=environment, check=True, capture_output=True, text=True)
    result = json.loads(run.stdout)
    assert result["found"][0] == 500
    assert set(result["ratio"]) == set(result["keys_per_s"]) >= {"semistream", "duckdb, 1 thread"}


# Cold pages


def _read_bytes() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def _drop_from_page_cache(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


@ON_LINUX
@pytest.mark.parametrize("access", ["map", "read"])
@pytest.mark.parametrize("way", ["rows_for", "page_for"])
def test_one_cold_key_is_one_read_and_not_one_for_each_column(tmp_path: Path, access: str, way: str) -> None:
    rng = np.random.default_rng(9)
    rows = rows_of_every_type(rng, np.arange(12_000)).select([CODE_COLUMN, *FLAT_COLUMNS])
    directory = publish_version(tmp_path / "r", rows, page_bytes=128 * KIB, append_rows=12_000)
    _drop_from_page_cache(directory.data_path(1))
    relation = _open(directory, access=access)
    relation.segment(0)
    bytes_before, faults_before = _read_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    if way == "rows_for":
        assert _all_rows(relation, np.array([6000])).column("key").to_pylist() == [6000]
    else:
        assert 6000 in relation.page_for(6000).column("key").to_pylist()
    read_bytes = _read_bytes() - bytes_before
    if read_bytes == 0:
        pytest.skip("the file system keeps its files in memory")
    page_bytes = relation.info.page_bytes_max
    assert read_bytes <= page_bytes + 2 * mmap.PAGESIZE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults_before <= 2


def test_what_is_announced_covers_the_pages_in_pieces_the_system_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[tuple[int, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _, offset, length, __: pieces.append((offset, length)), raising=False
    )
    monkeypatch.setattr(page_cache, "_CAN_ANNOUNCE", True)
    monkeypatch.setattr(page_cache, "_read_ahead_bytes", lambda _: 16 * KIB)
    path = tmp_path / "file"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    offsets, lengths = np.array([1000, 41_000, 200_000]), np.array([40_000, 20_000, 5])
    page_cache.Announcer(descriptor).announce(offsets, lengths)
    os.close(descriptor)
    covered = {byte for offset, length in pieces for byte in range(offset, offset + length)}
    assert covered >= {byte for o, n in zip(offsets, lengths, strict=True) for byte in range(o, o + n)}
    assert all(length <= 16 * KIB and offset % mmap.PAGESIZE == 0 for offset, length in pieces)
    assert len(pieces) == 5


def test_the_read_ahead_of_an_unknown_device_is_that_of_most() -> None:
    assert page_cache._read_ahead_bytes(os.makedev(4000, 4000)) == 128 * KIB


@ON_LINUX
@pytest.mark.parametrize("access", ["map", "read"])
def test_many_cold_keys_read_their_pages_once(tmp_path: Path, access: str) -> None:
    directory = publish_version(
        tmp_path / "r", _plain_rows(np.arange(200_000)), page_bytes=64 * KIB, append_rows=50_000
    )
    _drop_from_page_cache(directory.data_path(1))
    relation = _open(directory, access=access)
    assert relation.segment_count > 100
    wanted = np.concatenate([relation.segment(0).column(0).to_numpy()[:1], np.arange(5000, 200_000, 9000)])
    bytes_before = _read_bytes()
    assert _all_rows(relation, wanted).num_rows == len(wanted)
    read_bytes = _read_bytes() - bytes_before
    if read_bytes == 0:
        pytest.skip("the file system keeps its files in memory")
    assert read_bytes <= len(wanted) * (relation.info.page_bytes_max + 2 * mmap.PAGESIZE)
