"""`semistream bench window`: one answer of all contenders, Spark's state as told, and what mistakes look like."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner, Result

from semistream.bench import window_band
from semistream.bench.results import Batch
from semistream.bench.window_contend import format_in_plan
from semistream.bench.window_race import WindowPlan, WindowResult, check_same_pairs, check_state
from semistream.bench.window_streams import write_band, write_events
from semistream.cli.bench_window import window
from semistream.cli.main import PlainErrors
from semistream.errors import BalanceBroken, EnvironmentUnfit

FACTS = {"contender", "batch_rows", "window_s", "rows_per_second", "seconds_per_batch", "checksum", "peak_bytes"}

PLAN_LINE = (
    "+- StreamingSymmetricHashJoin [k#3L], [b_k#8L], Inner, condition = [ leftOnly = null, both = (b_ts#9 >= ts#4) ], "
    "state info [ checkpoint = file:/c/state, opId = 0, ver = 1, numPartitions = 2] stateStoreCkptIds = None, 0, 17, "
    "state cleanup [ left value predicate: (ts#4 <= 16), right value predicate: (b_ts#9 <= 16) ], {version}, Append"
)


def bench_window(*arguments: str | Path) -> Result:
    app = typer.Typer(cls=PlainErrors, rich_markup_mode=None)
    app.command("window")(window)
    app.callback()(lambda: None)  # otherwise the only command would have no name
    return CliRunner().invoke(app, ["window", *(str(argument) for argument in arguments)])


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def no_progress(*_: object) -> None:
    pass


def test_the_help_has_an_example() -> None:
    assert "Example:\n    semistream bench window" in bench_window("--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--contenders", "sparc"), "did you mean 'spark'?"),
        (("--contenders", "semistream,"), "there is no such contender for the equality join; given: ''"),
        (
            ("--contenders", "duckdb"),
            "no such contender for the equality join; given: 'duckdb'; allowed: semistream, s",
        ),
        (("--band", "--contenders", "spark"), "there is no such contender for the band join; given: 'spark'"),
        (("--batch-rows", "many"), "a number of rows could not be read; given: 'many'"),
        (("--window-s", "0"), "a window must have a positive length; given: seconds(0.0)"),
        (("--window-s", "-3"), "a window must have a positive length; given: seconds(-3.0)"),
        (("--memory", "much"), "a memory size could not be read; given: 'much'"),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_made(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    result = bench_window(*arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


def test_without_duckdb_the_band_join_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = bench_window("--band", "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert "pip install 'semistream[dev]'" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("version", [2, 4])
def test_the_state_format_is_read_off_the_plan(version: int) -> None:
    assert format_in_plan(f"== Plan ==\n{PLAN_LINE.format(version=version)}\n   :- Exchange") == version


def test_a_plan_without_the_join_has_no_state_format() -> None:
    assert format_in_plan("== Plan ==\n+- SortMergeJoin [k#3L], [b_k#8L], Inner") is None


def test_the_state_that_was_asked_for_passes() -> None:
    check_state({"format": 4, "is_rocksdb": True, "stores": 2}, partitions=2)


@pytest.mark.parametrize(
    "state",
    [
        {"format": 2, "is_rocksdb": True, "stores": 8},
        {"format": 4, "is_rocksdb": True, "stores": 8},
        {"format": 4, "is_rocksdb": False, "stores": 2},
        {"format": None, "is_rocksdb": True, "stores": 2},
    ],
)
def test_any_other_state_of_spark_is_an_error(state: dict[str, Any]) -> None:
    with pytest.raises(EnvironmentUnfit, match="does not run with the state it was set to"):
        check_state(state, partitions=2)


def result_of(contender: str, *batches: Batch) -> WindowResult:
    plan = WindowPlan("equality", ["semistream", "spark"], 10, 1, 10.0, 1 << 20, 1, 60.0, Path())
    return WindowResult(plan, contender, "ok", "", batches, None)


def test_pairs_are_compared_over_all_batches() -> None:
    ours = result_of("semistream", Batch(1, 3, 30), Batch(1, 2, 20))
    check_same_pairs([ours, result_of("spark", Batch(1, 1, 10), Batch(1, 4, 40))])
    with pytest.raises(BalanceBroken, match="put out different pairs"):
        check_same_pairs([ours, result_of("spark", Batch(1, 3, 30), Batch(1, 2, 21))])


def test_event_times_never_go_back_from_batch_to_batch_and_keys_give_a_partner_a_row(tmp_path: Path) -> None:
    write_events(tmp_path, 2_000, 3, 2, 10.0, 1, no_progress)
    times, keys = {}, {}
    for side in "ab":
        files = sorted((tmp_path / side).iterdir(), key=lambda path: path.stat().st_mtime)
        tables = [pq.read_table(file) for file in files]
        times[side] = np.concatenate([table["ts"].to_numpy() for table in tables])
        keys[side] = np.concatenate([table["k"].to_numpy() for table in tables])
        assert len(files) == 6
        assert np.all(np.diff(times[side]) > np.timedelta64(0))
    apart = np.abs(times["a"][:, None] - times["b"][None, :]) <= np.timedelta64(10, "s")
    pairs = int(np.sum(apart & (keys["a"][:, None] == keys["b"][None, :])))
    # Windows at both ends of the streams are cut off.
    assert 0.6 < pairs / len(keys["a"]) < 1.1


def brute_force_band(folder: Path, window_rows: int, width: int) -> window_band.Sums:
    a, b = (pq.read_table(folder / f"{side}.parquet") for side in "ab")
    n, before, x = ([t[name].to_numpy() for t in (a, b)] for name in ("n", "before", "x"))
    b_since_a_came = before[0][:, None] - n[1][None, :]
    a_since_b_came = before[1][None, :] - n[0][:, None]
    held = ((1 <= b_since_a_came) & (b_since_a_came <= window_rows)) | (
        (1 <= a_since_b_came) & (a_since_b_came <= window_rows)
    )
    row_a, row_b = np.nonzero(held & (np.abs(x[0][:, None] - x[1][None, :]) <= width))
    return len(row_a), window_band.worth(row_a, row_b)


@pytest.mark.parametrize("contender", sorted(window_band.CONTENDERS))
def test_a_band_has_the_pairs_of_brute_force(contender: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    window_rows, width, batch_rows, batches = 20, 500_000, 100, 3
    monkeypatch.setattr(window_band, "BAND_WINDOW_ROWS", window_rows)
    monkeypatch.setattr(window_band, "BAND_WIDTH", width)
    folder = tmp_path / "rows"
    write_band(folder, batch_rows, batches, 1, no_progress)
    answer = window_band.CONTENDERS[contender](folder, {"memory_bytes": 8 << 20, "cores": 1})
    found = [answer(i * batch_rows, (i + 1) * batch_rows) for i in range(batches)]
    expected = brute_force_band(folder, window_rows, width)
    assert expected[0] > 100
    assert (sum(pairs for pairs, _ in found), sum(checksum for _, checksum in found)) == expected


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_band_join_has_the_pairs_of_duckdb(tmp_path: Path) -> None:
    found = lines(bench_window("--band", "--batch-rows", "3k", "--batches", "2", "--json", "--out", tmp_path))
    assert [line["contender"] for line in found] == ["semistream", "duckdb"]
    assert all(set(line) >= FACTS and line["status"] == "ok" and line["pairs"] > 0 for line in found)
    assert len({(line["pairs"], line["checksum"]) for line in found}) == 1
    assert (tmp_path / "window-band.png").is_file()
    assert not list(tmp_path.glob("scratch-*"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_time_window_has_the_pairs_of_sparks_own_join(tmp_path: Path) -> None:
    found = lines(bench_window("--batch-rows", "500", "--batches", "1", "--json", "--out", tmp_path))
    assert [line["contender"] for line in found] == ["semistream", "spark"]
    assert all(set(line) >= FACTS and line["status"] == "ok" and line["pairs"] > 0 for line in found)
    assert {(line["batch_rows"], line["window_s"]) for line in found} == {(500, 10.0)}
    assert all(line["rows_per_second"] == pytest.approx(1000 / line["seconds_per_batch"], 1e-2) for line in found)
    assert len({(line["pairs"], line["checksum"]) for line in found}) == 1
    assert (tmp_path / "window-equality.png").is_file()
    assert not list(tmp_path.glob("scratch-*"))
