"""`semistream plan`, `tune`, `advise` and `calibrate`: what a person reads, what a program reads, what a mistake is."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv
from typer.testing import CliRunner, Result

from semistream.cli import tune as tuning
from semistream.cli.main import app
from semistream.cost.calibrate import Calibration
from semistream.cost.symbols import CPU_SYMBOLS
from semistream.joins.registry import ALGORITHMS
from semistream.lab.workloads.zipf import Shuffle, Zipf
from semistream.planning import measuring
from semistream.relations.building.build import build_relation

pytestmark = pytest.mark.long

KEYS = 5000


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def answer(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    (line,) = result.stdout.splitlines()
    return json.loads(line)


def mistake(result: Result) -> str:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr[result.stderr.index("error: ") :]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A relation with unique keys, one whose keys repeat, one without rows, and a stream."""
    where = tmp_path_factory.mktemp("planning")
    keys = np.arange(KEYS)
    tables = {
        "products": pa.table({"id": keys, "name": np.full(KEYS, "x" * 60)}),
        "offers": pa.table({"id": keys // 4, "shop": keys}),
        "nothing": pa.table({"id": keys[:0], "name": keys[:0]}),
        "stores": pa.table({"store": [f"store {i}" for i in range(100)], "city": ["c"] * 100}),
    }
    for name, table in tables.items():
        build_relation(
            table,
            key=table.column_names[0],
            out=where / name,
            columns=None,
            unique=False,
            memory="64MB",
            page_bytes=4096,
        )
    codes = Shuffle(KEYS, 1)(Zipf(KEYS, 1.0).sample(np.random.default_rng(1), 30_000))
    stream = pa.table({"product_id": pa.array(codes, mask=codes % 97 == 0), "note": np.full(len(codes), "n")})
    pq.write_table(stream, where / "sales.parquet")
    csv.write_csv(stream.slice(0, 3000), where / "sales.csv")
    with pa.OSFile(str(where / "sales.arrow"), "wb") as file, pa.ipc.new_file(file, stream.schema) as writer:
        writer.write_table(stream)
    return where


# Plan


def test_plan_has_a_bill_or_a_reason_for_every_algorithm(directory: Path) -> None:
    plan = answer(run("plan", directory / "products", "--memory", "1MB", "--rate", "1k", "--json"))
    assert {bill["algorithm"] for bill in plan["bills"]} == set(ALGORITHMS)
    assert plan["chosen"]["keeps_up"]
    assert plan["arrival_rows_per_s"] == 1000


def test_whether_an_algorithm_keeps_up_is_not_known_without_a_rate(directory: Path) -> None:
    for relation, memory in (("products", "1MB"), ("offers", "20KB")):
        plan = answer(run("plan", directory / relation, "--memory", memory, "--json"))
        assert {bill["keeps_up"] for bill in (plan["chosen"], *plan["bills"])} == {None}
    plan = answer(run("plan", directory / "offers", "--memory", "1MB", "--rate", "1k", "--json"))
    assert {bill["keeps_up"] for bill in plan["bills"]} == {True, False}


def test_plan_says_what_it_chose(directory: Path) -> None:
    result = run("plan", directory / "offers", "--memory", "1MB", "--io", "hdd", "--skew", "0.5")
    assert result.exit_code == 0, result.stderr
    assert all(name in result.stdout for name in ALGORITHMS)
    assert result.stdout.count("<- chosen") == 1
    assert "is the fastest" in result.stdout.splitlines()[-1]
    assert "is chosen" in result.stderr
    impossible = run("plan", directory / "products", "--memory", "1MB", "--rate", "1g")
    assert "none keeps up with 1,000,000,000 rows/s" in impossible.stdout


def test_a_plan_for_an_empty_relation_is_made(directory: Path) -> None:
    assert answer(run("plan", directory / "nothing", "--memory", "1MB", "--json"))["chosen"]["service_rows_per_s"] > 0
    assert "the relation is empty: any algorithm will do" in run("plan", directory / "nothing").stdout


# Tune


@pytest.mark.parametrize("relation", ["products", "offers"])
def test_tune_shows_both_optima_and_the_shortfall(directory: Path, relation: str) -> None:
    found = answer(run("tune", directory / relation, "--algorithm", "sscj", "--memory", "150KB", "--json"))
    assert found["by_model"]["measured_rows_per_s"] > 0
    assert found["by_measurement"]["measured_rows_per_s"] >= found["by_model"]["measured_rows_per_s"]
    assert 0 <= found["shortfall"] < 0.3


def test_tune_prints_a_line_for_each_run(directory: Path) -> None:
    result = run("tune", directory / "products", "--algorithm", "hybridjoin", "--memory", "100KB")
    assert result.exit_code == 0, result.stderr
    assert "<- best, model and measured" in result.stdout
    assert "the model's choice is 0.0 % below the best that was measured" in result.stdout
    assert "Run 1 of 1: done" in result.stderr


# Advise


@pytest.mark.parametrize("file", ["sales.parquet", "sales.csv", "sales.arrow"])
def test_advise_makes_a_table_of_a_recorded_stream(directory: Path, file: str) -> None:
    options = ("--stream", directory / file, "--on", "product_id", "--memory", "1MB,100KB", "--json")
    advice = answer(run("advise", directory / "products", *options))
    assert [point["memory_bytes"] for point in advice["points"]] == [100_000, 1_000_000]
    assert advice["points"][0]["hit_share"] < advice["points"][1]["hit_share"]
    rows = 3000 if file == "sales.csv" else 30_000
    assert 0.9 * rows < advice["stream_rows"] < rows, "rows without a key are left out"
    assert advice["least"] is None


def test_advise_answers_the_question_for_a_rate_and_draws_it(directory: Path, tmp_path: Path) -> None:
    arguments = ("--on", "product_id", "--memory", "50KB,1MB", "--rate", "100k", "--plot", tmp_path / "curve.png")
    twice = ("--stream", directory / "sales.csv", "--stream", directory / "sales.parquet")
    result = run("advise", directory / "products", *twice, *arguments)
    assert result.exit_code == 0, result.stderr
    assert "100,000 rows/s: " in result.stdout
    assert "are enough" in result.stdout
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_without_matplotlib_says_what_to_install(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    options = ("--stream", directory / "sales.csv", "--on", "product_id", "--memory", "1MB")
    text = mistake(run("advise", directory / "products", *options, "--plot", tmp_path / "curve.svg"))
    assert text.startswith("error: figures are drawn by matplotlib, which is not installed.")
    assert "hint: pip install 'semistream[plots]'" in text


# Calibrate


def _once(measure: Callable[..., Calibration]) -> Callable[..., Calibration]:
    found: list[Calibration] = []

    def measured(*arguments: Any, **options: Any) -> Calibration:
        if not found:
            found.append(measure(*arguments, **options))
        return found[0]

    return measured


def test_calibrate_measures_every_symbol_and_says_what_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It takes some seconds, and both forms of the answer are of one measurement.
    monkeypatch.setattr(measuring, "calibrate_here", _once(measuring.calibrate_here))
    result = run("calibrate", "--directory", tmp_path, "--json")
    found = answer(result)
    assert set(found["unit_costs_s"]) == set(CPU_SYMBOLS)
    assert all(cost > 0 for cost in found["unit_costs_s"].values())
    assert found["io"]["bytes_per_s"] > 0
    assert found["reads"]["random"]["4096"]["median_s"] > 0
    assert "Measuring c_h: done" in result.stderr
    assert "c_IO(b)" in run("calibrate").stdout


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "nowhere"), "error: there is no relation at this place"),
        (("plan", "nowhere"), "hint: build it with `semistream index`"),
        (("plan", "prodcts"), "hint: did you mean 'products'?"),
        (("plan", "products", "--io", "hd"), "did you mean 'hdd'?"),
        (("plan", "products", "--memory", "much"), "error: a memory size could not be read; given: 'much'"),
        (("plan", "products", "--memory", "1KB"), "error: no algorithm can join relation 'products' in this memory"),
        (("plan", "products", "--rate", "fast"), "error: a number of rows could not be read; given: 'fast'"),
        (("tune", "products", "--algorithm", "scj"), "did you mean 'sscj'?"),
        (("tune", "products", "--algorithm", "sscj", "--memory", "5KB"), "error: the memory is too small for sscj"),
        (
            ("tune", "products", "--algorithm", "moij"),
            "error: moij has nothing to tune: it knows one split of its memory, or finds its own; given: 'moij'; ",
        ),
        (
            ("tune", "offers", "--algorithm", "x-hybridjoin", "--memory", "5KB"),
            "error: x-hybridjoin joins unique keys only, and keys of relation 'offers' repeat",
        ),
        (("tune", "nothing", "--algorithm", "sscj"), "error: relation 'nothing' is empty"),
        (("advise", "products", "--stream", "nowhere.csv"), "error: the source does not exist"),
        (("advise", "products", "--stream", "sale.parquet"), "hint: did you mean 'sales.parquet'?"),
        (
            ("advise", "products", "--stream", "sales.csv", "--memory", ","),
            "error: a list of memory sizes has an empty one; given: ','",
        ),
        (("advise", "products", "--stream", "sales.csv", "--on", "produkt_id"), "did you mean 'product_id'?"),
        (("advise", "products", "--stream", "sales.csv", "--on", "a,b"), "has a key of 1 columns"),
        (
            ("advise", "products", "--stream", "sales.csv", "--on", "note"),
            "cannot be compared with the relation's 'id'",
        ),
        (("advise", "stores", "--stream", "sales.csv", "--on", "product_id"), "cannot be compared"),
        (("advise", "products", "--stream", "sales.csv", "--on", "product_id", "--memory", "1KB"), "too small to hold"),
        (("advise", "products", "--stream", "sales.csv", "--on", "product_id", "--plot", "a.gif"), "allowed: png, svg"),
        (
            ("advise", "products", "--stream", "sales.csv", "--on", "product_id", "--plot", "nowhere/a.png"),
            "error: there is no such directory for the plot",
        ),
        (("plan", "products", "--skew", "inf"), "must be a number from 0 on; given: inf"),
        (("plan", "products", "--skew", "1e308"), "must be a number from 0 on; given: 1e+308; allowed: 0 to 1000000"),
        (("calibrate", "--directory", "nowhere"), "error: there is no such directory"),
        (("calibrate", "--directory", "product"), "did you mean 'products'?"),
        pytest.param(
            ("calibrate", "--directory", "/proc"),
            "error: nothing can be written into this directory",
            marks=pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder that even root cannot write to"),
        ),
    ],
)
def test_a_mistake_is_a_sentence(
    directory: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(directory)
    assert words in mistake(run(*arguments))


def test_memory_that_would_take_too_long_to_measure_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "ROWS_MAX", 1000)
    text = mistake(run("tune", directory / "products", "--algorithm", "sscj", "--memory", "1MB"))
    assert "takes too long to measure" in text
