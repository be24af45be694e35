"""The state of a window join on disk: runs that are whole or absent, chains without gaps, and what is removed when."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import InvalidOption, StateCorrupt, StateRefused
from semistream.window import run_file, state
from semistream.window.run_file import Counters, Held, Keys, Run, RunName, read_run, write_run
from semistream.window.state import JOIN, Kept, Reach, StateDirectory, state_path
from semistream.window.windows import rows, seconds

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
REACH = Reach((rows(5), rows(5)))


@pytest.fixture(autouse=True)
def forgets_what_was_checked() -> None:
    run_file._verified.clear()


def run_of(first: int, count: int, before: Counters, **more: object) -> Run:
    """Rows `first` to `first + count` of a, none of b."""
    numbers = np.arange(first, first + count)
    batch = pa.record_batch([pa.array(numbers), pa.array([f"row {n}" for n in numbers])], schema=SCHEMA)
    keys = Keys(numbers, numbers * 7, numbers)
    return Run((keys, Keys.joined([])), ((batch,), ()), (SCHEMA, SCHEMA), before, **more)  # type: ignore[arg-type]


def begun(path: Path, reach: Reach = REACH) -> StateDirectory:
    directory = StateDirectory(path, reach)
    directory.claim({"query": "q"})
    return directory


def add_batch(directory: StateDirectory, batch: int, count: int, retained: int = 100) -> None:
    """What a task does, with nothing joined."""
    before = directory.begin(0, batch)
    first = before.counters.rows[0]
    after = Counters((first + count, 0), 0)
    before.finish(run_of(first, count, before.counters), after)
    keys = Keys.joined([run.keys[0] for run in before.runs])
    alive = np.flatnonzero(directory.reach.alive(0, keys.mark, before.counters))
    before.merge((Kept(keys.take(alive), alive), Kept(Keys.joined([]), np.empty(0, np.int64))), retained)


def held_numbers(directory: StateDirectory, batch: int) -> list[int]:
    found = directory.begin(0, batch)
    numbers = [n for run in found.runs for piece in run.payload[0] for n in piece["n"].to_pylist()]
    assert numbers == Keys.joined([run.keys[0] for run in found.runs]).row.tolist()
    return numbers


def run_names(path: Path) -> list[RunName]:
    return [name for entry in sorted(path.iterdir()) if (name := RunName.parse(entry.name))]


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    held = Held(np.array([1, 4]), np.array([0, 2], np.uint8))
    run = run_of(3, 4, Counters((3, 1), -5), matched=np.array([3, 5]), held=(held, held), levels=(0, 2))
    name = RunName(7, 12, 14, 1, (4, 0), Counters((7, 1), -3))
    write_run(tmp_path, name, run)
    (entry,) = tmp_path.iterdir()
    assert RunName.parse(entry.name) == name
    found = read_run(entry)
    assert found.payload[0][0].equals(run.payload[0][0])
    assert found.payload[1] == ()
    assert [found.keys[0].row.tolist(), found.keys[0].code.tolist()] == [[3, 4, 5, 6], [21, 28, 35, 42]]
    assert (found.before, found.levels, found.matched.tolist()) == (run.before, (0, 2), [3, 5])
    assert found.held is not None
    assert (found.held[1].row.tolist(), found.held[1].tag.tolist()) == ([1, 4], [0, 2])


def test_a_run_with_any_byte_changed_or_any_end_missing_is_refused(tmp_path: Path) -> None:
    name = RunName(0, 0, 0, 0, (3, 0), Counters((3, 0), 0))
    write_run(tmp_path, name, run_of(0, 3, Counters()))
    path = tmp_path / name.file_name
    whole = path.read_bytes()
    for length in range(0, len(whole), 17):
        path.write_bytes(whole[:length])
        with pytest.raises(StateCorrupt, match="is not what was written"):
            read_run(path)
    unharmed = 0
    for place in range(0, len(whole), 13):
        changed = bytearray(whole)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        run_file._verified.clear()
        try:
            found = read_run(path)
        except StateCorrupt:
            continue
        # Between the sections lie zeros that nobody reads.
        unharmed += 1
        assert found.payload[0][0]["n"].to_pylist() == [0, 1, 2]
    assert unharmed < len(whole) // 13 // 4


def test_a_batch_sees_what_lies_before_it_and_nothing_else(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    for batch, count in enumerate([2, 1, 2]):
        add_batch(directory, batch, count)
    assert held_numbers(directory, 3) == [0, 1, 2, 3, 4]
    assert held_numbers(directory, 2) == [0, 1, 2]
    assert held_numbers(directory, 1) == [0, 1]
    assert held_numbers(directory, 0) == []
    add_batch(directory, 1, 1)
    assert held_numbers(directory, 3) == [0, 1, 2, 3, 4]


def test_batches_in_which_a_partition_had_no_rows_are_not_missed(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    for batch in (0, 4, 9):
        add_batch(directory, batch, 1)
    assert held_numbers(directory, 20) == [0, 1, 2]
    assert directory.begin(1, 20).counters == Counters()


def test_a_run_that_is_gone_is_missed(tmp_path: Path) -> None:
    directory = begun(tmp_path)
    for batch in range(3):
        add_batch(directory, batch, 1)
    (tmp_path / run_names(tmp_path)[1].file_name).unlink()
    with pytest.raises(StateCorrupt, match="is missing"):
        directory.begin(0, 3)


@pytest.mark.parametrize("retained", [0, 3, 100])
def test_merging_and_removing_change_nothing_that_a_replay_could_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, retained: int
) -> None:
    monkeypatch.setattr(state, "RUNS_PER_LEVEL", 3)
    directory = begun(tmp_path, Reach((rows(20), rows(20))))
    rng = np.random.default_rng(retained)
    counted = [0]
    for batch in range(40):
        add_batch(directory, batch, int(rng.integers(1, 4)), retained)
        counted.append(run_names(tmp_path)[-1].after.rows[0] if batch == 0 else counted[-1])
        newest = max((name.after.rows[0] for name in run_names(tmp_path)), default=0)
        counted[-1] = newest
        for replayed in range(max(1, batch + 1 - retained), batch + 2):
            found = [n for n in held_numbers(directory, replayed) if n >= counted[replayed] - 20]
            assert found == list(range(max(0, counted[replayed] - 20), counted[replayed])), (batch, replayed)
            directory._mark(0, replayed).unlink(missing_ok=True)
    levels = {name.level for name in run_names(tmp_path)}
    assert max(levels) >= 2
    if retained <= 3:
        assert len(run_names(tmp_path)) < 16


def test_nothing_that_can_be_replayed_is_removed(tmp_path: Path) -> None:
    directory = begun(tmp_path, Reach((rows(1), rows(1))))
    for batch in range(30):
        add_batch(directory, batch, 1, retained=10)
    assert [name.last_batch for name in run_names(tmp_path)] == list(range(18, 30))


def test_state_of_another_query_or_of_a_changed_one_is_refused(tmp_path: Path) -> None:
    identity = {"query": "q", "partitions": 4, "windows": "rows(5), rows(5)"}
    StateDirectory(tmp_path, REACH).claim(identity)
    StateDirectory(tmp_path, REACH).claim(identity)
    for name, value in (("query", "r"), ("partitions", 5), ("windows", "rows(6), rows(5)")):
        with pytest.raises(StateRefused, match=f"another {name}"):
            StateDirectory(tmp_path, REACH).claim({**identity, name: value})
    (tmp_path / JOIN).write_text("{")
    with pytest.raises(StateCorrupt, match=JOIN):
        StateDirectory(tmp_path, REACH).claim(identity)
    (tmp_path / JOIN).write_text(json.dumps(identity))
    StateDirectory(tmp_path, REACH).check({"partitions": 4})


def test_the_clock_is_that_of_all_partitions(tmp_path: Path) -> None:
    directory = begun(tmp_path, Reach((seconds(5), seconds(5))))
    for partition, clock_us in itertools.product((0, 1), (5,)):
        found = directory.begin(partition, 0)
        found.finish(run_of(0, 1, Counters()), Counters((1, 0), clock_us + partition))
    assert directory.begin(0, 1).clock_us == 6
    assert directory.begin(0, 1).counters.clock_us == 5


def test_state_is_kept_in_directories_only(tmp_path: Path) -> None:
    assert state_path(tmp_path.as_uri()) == state_path(str(tmp_path)) == tmp_path
    assert state_path("relative").is_absolute()
    for uri in ("s3://bucket/state", "hdfs://host/state", ""):
        with pytest.raises(InvalidOption, match="must name a directory"):
            state_path(uri)
