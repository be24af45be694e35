"""The command line: what a person reads, what a program reads, and what a mistake looks like."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from semistream.cli.main import app
from semistream.cli.output import LineDisplay, parse_rows, parse_sizes, split_names
from semistream.clock import VirtualClock
from semistream.demo.display import StreamView
from semistream.demo.workspace import MARKER, Workspace
from semistream.errors import InvalidOption
from semistream.joins.registry import ALGORITHMS
from semistream.relations.arrow_file.directory import RelationDirectory


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def products(tmp_path: Path) -> Path:
    path = tmp_path / "products.parquet"
    pq.write_table(pa.table({"id": [3, 1, 2], "name": ["c", "a", "b"], "price": [30, 10, 20]}), path)
    return path


# Help


@pytest.mark.parametrize("command", ["", "index", "demo", "algorithms", "plan", "tune", "advise", "calibrate"])
def test_every_help_has_an_example(command: str) -> None:
    result = run(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"Example:\n    semistream {command}".rstrip() in result.stdout


def test_help_is_there_in_under_a_second_and_without_heavy_libraries() -> None:
    check = (
        "import sys; from typer.testing import CliRunner; from semistream.cli.main import app;"
        "CliRunner().invoke(app, ['--help']);"
        "print([name for name in ('numpy', 'pyarrow', 'numba', 'pyspark') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    # What takes time is loading libraries; naming them keeps this test steady on a busy machine.
    assert result.stdout.strip() == "[]"


def test_the_algorithms_are_those_of_the_registry() -> None:
    printed = run("algorithms", "--json").stdout
    assert printed.count("\n") == 1
    table = json.loads(printed)
    assert [row["name"] for row in table] == list(ALGORITHMS)
    assert set(table[0]) == {"name", "reads", "remembers", "waits", "paper", "needs", "many_to_many"}
    assert {row["name"] for row in table if row["needs"] == "scan"} == {"meshjoin", "r-meshjoin", "ssbj"}
    assert {row["needs"] for row in table} == {"index", "scan"}
    assert all(name in run("algorithms").stdout for name in ALGORITHMS)


def test_the_algorithms_fit_a_terminal_without_a_broken_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    printed = run("algorithms").stdout
    assert max(map(len, printed.splitlines())) <= 80
    told = {
        word for a in ALGORITHMS.values() for text in (a.reads, a.remembers, a.waits, a.paper) for word in text.split()
    }
    assert told <= set(printed.split())


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"semistream {version('semistream')}\n"


# Index


def test_index_writes_a_relation_and_says_so(products: Path, tmp_path: Path) -> None:
    result = run("index", products, "--key", "id", "--unique", "--out", tmp_path / "relation")
    assert result.exit_code == 0, result.stderr
    assert "unique" in result.stdout
    assert "3 rows" in result.stderr
    assert (tmp_path / "relation").is_dir()


def test_index_json_is_one_line_and_alone_on_the_standard_output(products: Path, tmp_path: Path) -> None:
    result = run("index", products, "--key", "id,name", "--columns", "price", "--out", tmp_path / "r", "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    report = json.loads(result.stdout)
    assert (report["row_count"], report["version"], report["unique"]) == (3, 1, True)
    assert Path(report["path"]) == tmp_path / "r"


def test_index_twice_makes_a_second_version(products: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        result = run("index", products, "--key", "id", "--out", tmp_path / "r", "--json")
        assert json.loads(result.stdout)["version"] == number


def test_index_in_partitions_says_in_how_many(products: Path, tmp_path: Path) -> None:
    arguments = ("index", products, "--key", "id", "--out", tmp_path / "r", "--partitions", "4")
    assert json.loads(run(*arguments, "--json").stdout)["partitions"] == 4
    assert re.search(r"partitions +4 *\n", run(*arguments).stdout)
    assert RelationDirectory(tmp_path / "r").manifest(2).row_count == 3


# Mistakes


def mistake(result: Result) -> str:
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    # The last lines: progress may stand above.
    return result.stderr[result.stderr.index("error: ") :]


def test_a_missing_source_is_an_error_in_words(tmp_path: Path) -> None:
    text = mistake(run("index", tmp_path / "nowhere.parquet", "--key", "id", "--out", tmp_path / "r"))
    assert text.startswith("error: the source does not exist; given: ")
    assert "nowhere.parquet" in text


@pytest.mark.parametrize("partitions", ["0", "1025"])
def test_partitions_that_cannot_be_are_refused(products: Path, tmp_path: Path, partitions: str) -> None:
    text = mistake(run("index", products, "--key", "id", "--out", tmp_path / "r", "--partitions", partitions))
    assert f"given: {partitions}; allowed: a whole number from 1 to 1024" in text
    assert not (tmp_path / "r").exists()


def test_a_misspelt_key_gets_a_hint(products: Path, tmp_path: Path) -> None:
    text = mistake(run("index", products, "--key", "nam", "--out", tmp_path / "r"))
    assert "given: 'nam'; allowed: id, name, price." in text
    assert "hint: did you mean 'name'?" in text


def test_a_repeated_key_names_itself(tmp_path: Path) -> None:
    source = tmp_path / "twice.csv"
    source.write_text("id,name\n7,a\n8,b\n7,c\n")
    text = mistake(run("index", source, "--key", "id", "--unique", "--out", tmp_path / "r"))
    assert "7" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rows", "many"), "error: a number of rows could not be read; given: 'many'; allowed: a whole number"),
        (("--rows", "0"), "error: a number of rows could not be read; given: '0'"),
        (("--memory", "lots"), "error: a memory size could not be read; given: 'lots'; allowed: a number and a unit"),
        (("--products", "1.5"), "error: a number of rows could not be read; given: '1.5'"),
    ],
)
def test_a_demo_that_cannot_be_is_refused_at_once(arguments: tuple[str, ...], words: str) -> None:
    assert mistake(run("demo", *arguments)).startswith(words)


def test_the_demo_never_touches_a_directory_of_somebody_else(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years of work")
    text = mistake(run("demo", "--rows", "10", "--out", tmp_path))
    assert "holds files that are not the demo's" in text
    assert "hint: choose another with --out." in text
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_missing_java_is_said_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    text = mistake(run("demo", "--out", tmp_path / "demo"))
    assert text.startswith("error: Spark needs Java and there is none; given: JAVA_HOME=")
    assert "allowed: Java 17, 21, 25." in text
    assert "hint: install one" in text
    assert not (tmp_path / "demo").exists()


def test_a_java_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    text = mistake(run("demo", "--out", tmp_path / "demo"))
    assert text.startswith('error: this Java does not fit Spark; given: openjdk version "1.8.0_392"; allowed: Java 17')


def test_a_second_demo_replaces_the_first_and_nothing_else(tmp_path: Path) -> None:
    for name in (MARKER, "mine.txt", "warehouse/old.parquet", "spark.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    Workspace(tmp_path).prepare()
    assert {path.name for path in tmp_path.iterdir()} == {MARKER, "mine.txt"}


def test_an_unknown_command_is_refused_with_a_suggestion() -> None:
    result = run("indx")
    assert result.exit_code == 2
    assert "Did you mean 'index'?" in result.stderr


def test_control_c_ends_in_one_word_and_without_a_traceback(tmp_path: Path) -> None:
    # A build that lasts, in a process of its own, so that a real signal meets a real command line. A shell that runs
    # the tests in the background has them ignore the signal; a terminal does not.
    script = (
        "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from semistream.cli import main as cli\nfrom semistream.relations.building import build\n"
        "build.build_relation = lambda *_, **__: (print('building', flush=True), time.sleep(60))\n"
        "cli.main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, "index", "source.csv", "--key", "id", "--out", str(tmp_path / "r")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert (process.returncode, stderr) == (130, "stopped.\n")


# Numbers and names


@pytest.mark.parametrize(
    ("text", "rows"),
    [("1", 1), ("200k", 200_000), ("1.001k", 1001), ("1.5m", 1_500_000), ("1_000", 1000), ("1 000 000", 1_000_000)],
)
def test_rows_are_read_as_people_write_them(text: str, rows: int) -> None:
    assert parse_rows(text) == rows


@pytest.mark.parametrize("text", ["", "k", "-1", "1.0001k3", "1e6", "0.5"])
def test_what_is_no_number_of_rows_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="number of rows"):
        parse_rows(text)


def test_names_are_split_at_commas_and_none_may_be_empty() -> None:
    assert split_names("a, b") == ["a", "b"]
    assert split_names(None) is None
    with pytest.raises(InvalidOption, match="empty name"):
        split_names("a,,b")


def test_sizes_are_split_at_commas_and_none_may_be_empty() -> None:
    assert parse_sizes("4MB, 16KiB") == [4_000_000, 16_384]
    for text in (",", "4MB,,8MB", ""):
        with pytest.raises(InvalidOption, match="list of memory sizes"):
            parse_sizes(text)


# Progress


def test_progress_is_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    clock = VirtualClock()
    display = LineDisplay(Console(stderr=True, highlight=False), clock)
    display.begin("Indexing products")
    display.advance("read", 1_000, 2_000)
    clock.advance(6.0)
    display.advance("read", 2_000, 2_000)
    clock.advance(6.0)
    display.advance("MOIJ at 10", 3, None, unit="runs")
    display.end("2 rows")
    display.begin("Streaming")
    display.stream(StreamView(1, 12, 500, 6_000, 1_250.4, None, 1024, 4096))
    assert capsys.readouterr().err.replace("\N{NARROW NO-BREAK SPACE}", " ").splitlines() == [
        "  read: 2 000 of 2 000 rows",
        "  MOIJ at 10: 3 runs",
        "Indexing products: 2 rows (12.0 s)",
        "  batch 1 of 12: 500 of 6 000, 1 250 rows/s, hit rate unknown, 1.0 KiB of 4.0 KiB held",
    ]
