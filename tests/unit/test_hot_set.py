"""Rows that several processes remember together: what comes out is what went in, or nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.joins.matching import codes_of, ranges_of
from semistream.structures.columns import rows_of
from semistream.structures.hot_layout import APPENDING, HotLayout
from semistream.structures.hot_removal import remove_hot_set
from semistream.structures.hot_set import HotSet
from tests.support.hot_rows import BYTES_MAX, SCHEMA, add, layout, opened, rows, taken


def found_in(hot: HotSet, code: int) -> list[dict[str, object]]:
    hot.look()
    first, count = hot.table.probe(np.array([code]))
    return taken(hot, rows_of(first, count)).to_pylist() if count[0] else []


def expected(batch: pa.RecordBatch, code: int) -> list[dict[str, object]]:
    return batch.filter(pa.array(codes_of(batch) == code)).remove_column(0).to_pylist()


@pytest.mark.parametrize("nulls", [0.0, 0.2])
@pytest.mark.parametrize("seed", range(3))
def test_what_one_adds_piece_by_piece_another_finds_with_all_its_rows(seed: int, nulls: float, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    codes = np.sort(rng.choice(2**62, 900, replace=False))
    codes[:3] = [-(2**63), -1, 0]
    codes = np.repeat(np.sort(codes), rng.choice([1, 1, 1, 2, 30], 900))
    batch = rows(codes, rng, nulls)
    writes, reads = opened(tmp_path / "hot"), opened(tmp_path / "hot")
    keys = np.unique(codes)
    for some in np.split(rng.permutation(keys), 6):
        assert len(add(writes, batch, np.sort(some))) == len(some)
    reads.look()
    asked = np.concatenate([keys, keys + 1])
    first, count = reads.table.probe(asked)
    known = np.isin(asked, keys)
    assert (count > 0).tolist() == known.tolist()
    found = taken(reads, rows_of(first[known], count[known]))
    first, count = ranges_of(asked[known], codes)
    assert found.equals(batch.take(pa.array(rows_of(first, count))).remove_column(0)), f"seed {seed}"
    assert reads.used_bytes <= BYTES_MAX


def test_rows_added_after_a_look_are_not_seen_before_the_next(tmp_path: Path) -> None:
    batch = rows(np.arange(100), np.random.default_rng(1), 0.1)
    writes, reads = opened(tmp_path / "hot"), opened(tmp_path / "hot")
    add(writes, batch, np.arange(50))
    reads.look()
    add(writes, batch, np.arange(50, 100))
    assert (reads.table.probe(np.arange(100))[1] > 0).tolist() == [True] * 50 + [False] * 50
    reads.look()
    assert (reads.table.probe(np.arange(100))[1] > 0).all()


def test_a_segment_written_anew_keeps_what_shall_stay_and_its_uses(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    batch = rows(np.repeat(np.arange(2000), 2), rng, 0.1)
    writes, reads = opened(tmp_path / "hot"), opened(tmp_path / "hot")
    add(writes, batch)
    reads.look()
    reads.table.use(*reads.table.probe(np.repeat(np.arange(2000), 3)))
    with writes.writing() as writer:
        assert writer is not None
        for segment in range(writer.layout.segments):
            codes, first, count = writes.table.entries(segment)
            stays = codes % 3 == 0
            writer.rewrite(segment, codes[stays], first[stays], count[stays])
            # Who reads still has the old one, so no other may be written anew.
            assert not writer.may_rewrite
            reads.look()
            writer.may_rewrite = writer._tidy_up()
            assert writer.may_rewrite
    for code in rng.integers(0, 2000, 100).tolist():
        assert found_in(reads, code) == (expected(batch, code) if code % 3 == 0 else [])
    first, _ = reads.table.probe(np.arange(0, 2000, 3))
    # One when it was added, three, and what the test has looked at.
    assert reads.table.uses_of(first).min() == 4


def test_one_who_rests_keeps_no_memory_of_segments_whose_place_was_taken(tmp_path: Path) -> None:
    batch = rows(np.arange(3000), np.random.default_rng(3), 0.0)
    writes, rests = opened(tmp_path / "hot"), opened(tmp_path / "hot")
    add(writes, batch)
    rests.look()
    rests.end()
    before = sorted(path.name for path in (tmp_path / "hot").iterdir())
    with writes.writing() as writer:
        assert writer is not None
        for segment in range(writer.layout.segments):
            writer.rewrite(segment, *writes.table.entries(segment))
            assert writer.may_rewrite
    after = sorted(path.name for path in (tmp_path / "hot").iterdir())
    assert len(after) == len(before) and set(after) & set(before) == {"state"}
    assert sum(os.stat(descriptor).st_blocks for descriptor in rests._files.values()) == 0
    rests.begin()
    assert (rests.table.probe(np.arange(3000))[1] > 0).all()


def test_while_one_writes_nobody_else_does_and_nobody_waits(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "hot"), opened(tmp_path / "hot")
    with one.writing() as writer, other.writing() as second:
        assert writer is not None
        assert second is None
    with other.writing() as second:
        assert second is not None


# What cannot be believed ---------------------------------------------------------------------------------------------


def segment_files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != "state"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "garbled", "foreign", "gone", "a link"])
def test_a_file_that_cannot_be_believed_is_left_out_and_replaced(damage: str, tmp_path: Path) -> None:
    batch = rows(np.arange(500), np.random.default_rng(4), 0.1)
    folder, other = tmp_path / "hot", tmp_path / "other"
    first = opened(folder)
    add(first, batch)
    first.close()
    foreign = opened(other, "version 2")
    add(foreign, batch)
    foreign.close()
    for path in segment_files(folder):
        if damage == "truncated":
            os.truncate(path, path.stat().st_size // 2)
        elif damage == "empty":
            os.truncate(path, 0)
        elif damage == "garbled":
            path.write_bytes(b"?" * 100_000)
        elif damage == "foreign":
            path.write_bytes(next(p for p in segment_files(other) if p.name[:3] == path.name[:3]).read_bytes())
        else:
            path.unlink()
            if damage == "a link":
                path.symlink_to(other / "state")
    hot = opened(folder)
    assert not (hot.table.probe(np.arange(500))[1] > 0).any()
    add(hot, batch)
    assert all(found_in(hot, code) == expected(batch, code) for code in range(0, 500, 7))


def test_the_state_of_another_version_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "hot").close()
    with pytest.raises(OSError, match="another"):
        opened(tmp_path / "hot", "version 2")


def test_a_segment_whose_writer_died_is_dropped_by_the_next_one(tmp_path: Path) -> None:
    batch = rows(np.arange(500), np.random.default_rng(5), 0.1)
    hot = opened(tmp_path / "hot")
    add(hot, batch, np.arange(400))
    hot.table.headers[3, APPENDING] = 1
    added = add(hot, batch, np.arange(400, 500))
    in_third = hot.table.segments_of(np.arange(500)) == 3
    there = hot.table.probe(np.arange(500))[1] > 0
    assert len(added) == 100
    assert there.tolist() == [not (third and code < 400) for code, third in enumerate(in_third)]


KILLED = """
import sys
from decimal import Decimal
sys.path.insert(0, {root!r})
from pathlib import Path
import numpy as np
from tests.support.hot_rows import add, opened, rows
hot = opened(Path(sys.argv[1]))
seed = int(sys.argv[2])
print("ready", flush=True)
while True:
    codes = np.unique(np.random.default_rng(seed).integers(0, 100_000, 400))
    there = hot.table.probe(codes)[1] > 0
    if not there.all():
        batch = rows(codes, np.random.default_rng(0), 0.0)
        add(hot, batch, codes[~there])
    with hot.writing() as writer:
        segment = seed % 8
        keys = hot.table.entries(segment)
        if writer is not None and writer.may_rewrite:
            writer.rewrite(segment, *(numbers[::2] for numbers in keys))
    seed += 1
"""


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_writer_killed_at_any_moment_leaves_whole_keys_or_none(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    root = str(Path(__file__).parents[2])
    hot = opened(tmp_path / "hot")
    for seed in range(8):
        script = [sys.executable, "-c", KILLED.format(root=root), str(tmp_path / "hot"), str(1000 * seed)]
        with subprocess.Popen(script, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
            try:
                process.wait(float(rng.random()) * 0.5)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
        hot.look()
        asked = np.arange(100_000)
        first, count = hot.table.probe(asked)
        there = count > 0
        texts = taken(hot, first[there]).column("text").to_pylist()
        assert all(f"of {code} " in text for code, text in zip(asked[there].tolist(), texts, strict=True))
    with hot.writing() as writer:
        assert writer is not None and writer.may_rewrite
    assert len(segment_files(tmp_path / "hot")) <= layout().segments


# The end -------------------------------------------------------------------------------------------------------------


def test_a_hot_set_in_use_is_not_removed_and_one_that_rests_is(tmp_path: Path) -> None:
    batch = rows(np.arange(500), np.random.default_rng(7), 0.1)
    hot = opened(tmp_path / "hot")
    add(hot, batch)
    assert not remove_hot_set(tmp_path / "hot")
    assert (hot.table.probe(np.arange(500))[1] > 0).all()
    hot.end()
    assert remove_hot_set(tmp_path / "hot")
    assert not (tmp_path / "hot").exists()
    with pytest.raises(FileNotFoundError, match="removed"):
        hot.begin()
    again = opened(tmp_path / "hot")
    assert hot.is_gone()
    assert not (again.table.probe(np.arange(500))[1] > 0).any()
    assert len(add(again, batch)) == 500


def test_files_take_no_more_than_was_granted_also_while_one_is_written_anew(tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    hot = opened(tmp_path / "hot")
    batch = rows(np.arange(60_000), rng, 0.0)
    added = add(hot, batch)
    assert 10_000 < len(added) < 60_000
    with hot.writing() as writer:
        assert writer is not None
        for segment in range(writer.layout.segments):
            reading = opened(tmp_path / "hot")
            writer.rewrite(segment, *hot.table.entries(segment))
            taken_bytes = sum(path.stat().st_blocks * 512 for path in (tmp_path / "hot").iterdir())
            assert taken_bytes <= BYTES_MAX + 64 * 1024, "the state comes on top"
            reading.close()
            writer.may_rewrite = writer._tidy_up()
    assert 0.5 * BYTES_MAX < hot.used_bytes < BYTES_MAX


@pytest.mark.parametrize("bytes_max", [-1, 0, 1000, 200_000])
def test_for_too_little_memory_there_is_no_hot_set(bytes_max: int) -> None:
    assert HotLayout.of(SCHEMA, bytes_max, 80.0, 10**6) is None


def test_for_nested_columns_there_is_no_hot_set() -> None:
    schema = pa.schema([("__code", pa.int64()), ("list", pa.list_(pa.int64()))])
    assert HotLayout.of(schema, 1 << 28, 80.0, 10**6) is None
