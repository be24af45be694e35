"""`semistream bench`: lines that a program reads, contenders that agree, and what a mistake looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from semistream.bench.container import ROOT as CGROUPS
from semistream.cli.main import app

TINY = ("--relation-rows", "2k", "--batch-rows", "200", "--batches", "2", "--warm-up", "0", "--json")
FACTS = {
    "contender",
    "relation_rows",
    "batch_rows",
    "skew",
    "rows_per_second",
    "seconds_per_batch",
    "checksum",
    "peak_bytes",
}


def bench(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["bench", *(str(argument) for argument in arguments)])


def lines(result: Result, exit_code: int = 0) -> list[dict[str, Any]]:
    assert result.exit_code == exit_code, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize("command", ["enrich", "cache", "soak"])
def test_every_help_has_an_example(command: str) -> None:
    assert f"Example:\n    semistream bench {command}" in bench(command, "--help").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--contenders", "semistrem"), "did you mean 'semistream'?"),
        (("--contenders", "empty,"), "the list in --contenders has an empty place"),
        (("--relation-rows", "ten"), "a number of rows could not be read; given: 'ten'"),
        (("--batch-rows", "1k,-5"), "a number of rows could not be read; given: '-5'"),
        (("--skew", "1,steep"), "a skew could not be read; given: 'steep'"),
        (("--skew", "-1"), "a skew could not be read; given: '-1'"),
        (("--memory", "much"), "a memory size could not be read; given: 'much'"),
        (("--container", "0"), "a memory size must be positive"),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_made(arguments: tuple[str, str], words: str, tmp_path: Path) -> None:
    result = bench("enrich", *arguments, "--out", tmp_path / "out")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["enrich", "cluster", "soak"])
def test_a_folder_that_cannot_be_made_is_a_mistake(command: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = bench(command, "--out", tmp_path / "file")
    assert result.exit_code == 2
    assert "the folder for what is put out cannot be made" in result.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_clusters_with_one_worker_with_two_and_with_one_lost_put_out_the_same(tmp_path: Path) -> None:
    sizes = ("--relation-rows", "20k", "--batch-rows", "4k", "--batches", "2", "--json")
    found = lines(bench("cluster", *sizes, "--out", tmp_path))
    assert [(line["workers"], line["loses_a_worker"]) for line in found] == [(1, False), (2, False), (2, True)]
    assert all(line["status"] == "ok" for line in found)
    assert len({line["checksum"] for line in found}) == 1


@pytest.mark.spark
def test_who_takes_too_long_is_a_result_and_the_others_go_on(tmp_path: Path) -> None:
    arguments = ("--contenders", "semistream,empty", "--time-limit", "1", "--out", tmp_path)
    ours, empty = lines(bench("enrich", *TINY, *arguments), exit_code=1)
    assert (ours["contender"], empty["contender"]) == ("semistream", "empty")
    assert (ours["status"], ours["seconds_per_batch"], ours["checksum"]) == ("stopped", None, None)
    assert "time limit of 1 s" in ours["note"]
    assert (tmp_path / "enrich.png").is_file()
    assert not list(tmp_path.glob("scratch-*"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_contenders_have_one_checksum_and_each_a_line_of_json(tmp_path: Path) -> None:
    names = ["spark-broadcast-stream", "spark-semi-join", "lru-by-hand", "nothing", "semistream"]
    found = lines(bench("enrich", *TINY, "--contenders", ",".join(names), "--out", tmp_path))
    assert [line["contender"] for line in found] == names
    assert all(set(line) >= FACTS and line["status"] == "ok" for line in found)
    assert {(line["relation_rows"], line["batch_rows"], line["skew"]) for line in found} == {(2_000, 200, 1.0)}
    assert all(line["rows_per_second"] == pytest.approx(200 / line["seconds_per_batch"], 1e-2) for line in found)
    joined = {line["checksum"] for line in found if line["contender"] != "nothing"}
    assert len(joined) == 1
    assert None not in joined


@pytest.mark.long
@pytest.mark.timeout(600)
def test_who_dies_says_why_and_the_table_has_the_others(tmp_path: Path) -> None:
    # No row fits into a byte, which is ours to refuse; Spark's join does not care.
    tiny = [word for word in TINY if word != "--json"]
    arguments = ("--memory", "1", "--contenders", "semistream,spark-broadcast", "--out", tmp_path)
    result = bench("enrich", *tiny, *arguments)
    assert result.exit_code == 0, result.output
    assert "died: exit code 1: semistream.errors.BudgetExceeded" in result.stderr
    assert "spark-broadcast" in result.stdout


@pytest.mark.long
@pytest.mark.timeout(600)
def test_in_a_container_too_small_for_java_a_contender_is_killed(tmp_path: Path) -> None:
    arguments = ("--contenders", "empty", "--container", "100MB", "--out", tmp_path)
    result = bench("enrich", *TINY, *arguments)
    if "a memory cgroup cannot be made here" in result.stderr:
        pytest.skip("needs root and cgroups that can be written")
    (line,) = lines(result, exit_code=1)
    assert line["status"] == "died"
    assert not [path for path in CGROUPS.rglob("semistream-bench-*") if path.is_dir()]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_hit_rates_are_compared_for_each_stream() -> None:
    found = lines(bench("cache", "--warm-up", "20k", "--accesses", "20k", "--json"))
    assert [line["workload"] for line in found] == ["Zipf 0.5", "Zipf 0.8", "Zipf 1", "Zipf 1.2", "Zipf 1, moving"]
    for line in found:
        rates = [line[name] for name in ("semistream", "lru", "w-tinylfu", "s3-fifo", "best-fixed")]
        assert all(0 < rate < 1 for rate in rates)
        # Rates are rounded to four digits.
        assert line["below-best"] == pytest.approx(1 - line["semistream"] / line["best-fixed"], abs=1e-3)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_short_soak_is_sampled_and_not_judged(tmp_path: Path) -> None:
    (found,) = lines(bench("soak", "--minutes", "0.2", "--json", "--out", tmp_path))
    assert found["verdict"].startswith("too short to judge")
    assert set(found["trends"]) == {"workers_bytes", "jvm_bytes", "driver_bytes", "files", "disk_bytes"}
    assert found["batches"] > 0
    assert all(found["trends"][name]["at_end"] > 0 for name in ("workers_bytes", "jvm_bytes", "files", "disk_bytes"))
    assert (tmp_path / "soak.png").is_file()
