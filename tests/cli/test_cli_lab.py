"""`semistream lab`: what a person reads, what a program reads, and what a mistake looks like."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from semistream.cli.main import EXIT_TERMINATED, app
from semistream.lab import run as lab_run
from semistream.lab.experiment import Experiment
from semistream.lab.experiments import EXPERIMENTS

RUN = lab_run.run


def lab(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["lab", *(str(argument) for argument in arguments)])


@pytest.mark.parametrize("command", ["list", "run", "report"])
def test_every_help_has_an_example(command: str) -> None:
    assert f"Example:\n    semistream lab {command}" in lab(command, "--help").stdout


def test_the_list_has_every_experiment() -> None:
    assert [entry["id"] for entry in json.loads(lab("list", "--json").stdout)] == list(EXPERIMENTS)
    assert "moij-7a" in lab("list").stdout


@pytest.mark.long
def test_a_run_that_is_asked_to_end_leaves_no_relation_behind(tmp_path: Path) -> None:
    command = ["lab", "run", "sscj-4a", "--size", "default", "--io", "real", "--series", "SSCJ", "--at", "10"]
    running = subprocess.Popen(
        [sys.executable, "-m", "semistream.cli.main", *command, "--out", str(tmp_path / "figures")],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
    )
    deadline_s = time.monotonic() + 60
    while not list(tmp_path.glob("semistream-lab-*")):
        assert running.poll() is None and time.monotonic() < deadline_s, "no relation was written"
        time.sleep(0.05)
    running.terminate()
    assert running.wait(30) == EXIT_TERMINATED
    assert not list(tmp_path.glob("semistream-lab-*"))


def test_a_run_prints_one_line_of_json_and_draws_the_figure(tmp_path: Path) -> None:
    result = lab("run", "tuned-5b", "--size", "small", "--seed", "7", "--json", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    answer = json.loads(line)
    assert (answer["id"], answer["size"], answer["io"], answer["seed"]) == ("tuned-5b", "small", "hdd", 7)
    assert (tmp_path / "tuned-5b.svg").is_file()


def test_a_part_of_a_figure_says_what_it_cannot_say() -> None:
    result = lab("run", "moij-7a", "--size", "small", "--at", "10", "--series", "MOIJ,CACHEJOIN", "--json")
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert list(answer["series"]) == ["MOIJ", "CACHEJOIN"]
    assert answer["holds"] is not None
    told = lab("run", "moij-7a", "--size", "small", "--series", "CACHEJOIN").stdout
    assert "not judged" in told
    assert "not compared" in told


def test_a_run_says_in_words_which_joins_keep_up() -> None:
    result = lab("run", "sscj-5b", "--size", "small", "--series", "HYBRIDJOIN", "--arrivals", "intermittent")
    assert result.exit_code == 0, result.output
    assert "HYBRIDJOIN: yes at 0.5, no at 4" in result.stdout


def test_what_is_named_twice_is_run_once() -> None:
    result = lab("run", "moij-7a", "moij-7a", "--size", "small", "--at", "10", "--series", "MOIJ", "--json")
    assert len(result.stdout.splitlines()) == 1


def test_a_change_that_changes_nothing_is_refused() -> None:
    result = lab("run", "moij-7a", "--size", "small", "--arrivals", "bursty")
    assert result.exit_code == 2
    assert "this would change nothing in moij-7a: `arrivals`, for its rows are all there at once" in result.stderr
    result = lab("run", "kang-3", "--size", "small", "--memory-model", "jvm")
    assert result.exit_code == 2
    assert "this would change nothing in kang-3: `memory_model`, for no row waits for a relation" in result.stderr
    result = lab("run", "moij-7e", "--size", "small", "--reports", "nowhere")
    assert result.exit_code == 2
    assert "there is no file of weather reports at this place; given: 'nowhere'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("run", "moij-7"), "moij-7"),
        (("run", "moij-7a", "--size", "papre"), "paper"),
        (("run", "moij-7a", "--io", "nvm"), "nvme"),
        (("run", "moij-7a", "--memory-model", "jwm"), "jvm"),
        (("run", "moij-7a", "--generator", "integrl"), "integral"),
        (("run", "moij-7a", "--order", "shufled"), "shuffled"),
        (("report", "--arrivals", "burst"), "bursty"),
        (("report", "--size", "papre"), "paper"),
        (("run", "moij-7a", "--series", "MOIJ,CACHE"), "CACHEJOIN"),
        (("run", "moij-7a", "moij-7b", "--size", "paper", "--at", "100"), "10"),
    ],
)
def test_a_mistake_is_a_sentence_with_the_nearest_word(arguments: tuple[str, ...], meant: str) -> None:
    result = lab(*arguments)
    assert result.exit_code == 2
    assert f"did you mean '{meant}" in result.stderr


def runs_until(failing: str, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one experiment fail, and those before it be run."""

    def failing_run(experiment: Experiment, *arguments: Any, **options: Any) -> lab_run.Result:
        if experiment.id == failing:
            raise error
        return RUN(experiment, *arguments, **options)

    monkeypatch.setattr(lab_run, "run", failing_run)


def test_what_was_done_before_a_failure_is_printed_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs_until("tuned-5a", KeyboardInterrupt(), monkeypatch)
    result = lab("run", "tuned-5b", "tuned-5a", "--size", "small", "--json", "--out", tmp_path)
    assert result.exit_code != 0
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["tuned-5b"]
    assert (tmp_path / "tuned-5b.svg").is_file()


def test_a_report_that_is_stopped_has_what_was_done_and_names_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {name: EXPERIMENTS[name] for name in ("tuned-5b", "tuned-5a")}
    monkeypatch.setattr("semistream.lab.experiments.EXPERIMENTS", chosen)
    runs_until("tuned-5a", RuntimeError("broken"), monkeypatch)
    result = lab("report", "--size", "small", "--json", "--out", tmp_path)
    assert result.exit_code != 0
    assert json.loads(result.stdout)["id"] == "tuned-5b"
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<section id="tuned-5b">' in html
    assert "Not run: tuned-5a." in html


@pytest.mark.parametrize("command", [("run", "moij-7a"), ("report",)])
def test_what_cannot_be_done_is_refused_before_anything_is_run(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs_until("moij-7a" if "moij-7a" in command else next(iter(EXPERIMENTS)), AssertionError("was run"), monkeypatch)
    (tmp_path / "file").touch()
    for options, what in (
        (("--out", tmp_path / "file"), "`out` is no directory to write into"),
        (("--out", tmp_path / "file" / "figures"), "`out` is no directory to write into"),
        (("--seed", "-1"), "`seed` is negative; given: -1; allowed: "),
    ):
        result = lab(*command, "--size", "small", *options)
        assert result.exit_code == 2, result.output
        assert result.stderr.startswith("error: ")
        assert what in result.stderr
