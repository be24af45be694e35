"""A query keeps to its memory, seen from outside: what its workers hold, beside the same query with an empty relation.

The workers hold much that is not ours: the interpreter, libraries, and what Spark reads and writes. All of that is
there for an empty relation as well, so the difference is what our memory is used for. It includes what no account can
count: the slack of allocators and of memory that comes in pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.budget import MIB, format_bytes
from semistream.lab.workloads.zipf import Zipf
from tests.support.processes import run_script

SCRIPT = Path(__file__).parents[1] / "spark" / "scripts" / "worker_memory.py"
STREAM_ROWS, FILES = 160_000, 8
WORKERS = 2
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Case:
    """A relation beside a memory, and the way that rows take through Python with it."""

    memory_bytes: int
    relation_rows: int
    text_bytes_max: int
    way: str


CASES = {
    "a third of R": Case(32 * MIB, 800_000, 60, "answers"),
    "a thirteenth of R": Case(8 * MIB, 800_000, 60, "rows"),
    "a thousandth of R": Case(4 * MIB, 3_000_000, 1900, "rows"),
}
"""Memory of fewer MiB is lost in the grain of the allocators, which keep up to 0.7 MiB a worker, whatever is held."""

KEYS: dict[str, Callable[[np.random.Generator, int], Integers]] = {
    "zipf keys": lambda rng, keys: 3 * Zipf(keys, exponent=1.0).sample(rng, STREAM_ROWS),
    "one hot key": lambda rng, keys: np.where(
        rng.random(STREAM_ROWS) < 0.99, 2331, 3 * rng.integers(0, keys, STREAM_ROWS)
    ),
    "all keys distinct": lambda rng, keys: 3 * rng.permutation(keys)[:STREAM_ROWS],
    "all keys absent": lambda rng, keys: 3 * rng.integers(0, keys, STREAM_ROWS) + 1,
}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of processes from /proc"),
]


def products(rows: int, text_bytes_max: int) -> pa.Table:
    """Rows with two texts, whose keys are multiples of three."""
    words = pa.array([f"the name of product {number} " + "x" * (number % text_bytes_max) for number in range(5000)])
    parts = []
    for begin in range(0, rows, 100_000) or [0]:
        numbers = np.arange(begin, min(begin + 100_000, rows))
        columns = {"id": 3 * numbers, "name": words.take(numbers % 5000), "vendor": words.take(numbers % 977)}
        parts.append(pa.table(columns | {"price": numbers / 7, "stock": (numbers % 100).astype(np.int32)}))
    return pa.concat_tables(parts)


def write_stream(keys: Integers, folder: Path) -> str:
    folder.mkdir()
    table = pa.table({"id": keys, "row": np.arange(len(keys))})
    for number in range(FILES):
        begin = number * len(keys) // FILES
        pq.write_table(table.slice(begin, len(keys) // FILES), folder / f"{number}.parquet")
    return str(folder)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What was seen of each query: the peak of all its workers, and the way it took."""
    folder = tmp_path_factory.mktemp("memory")
    rng = np.random.default_rng(1)
    empty = str(folder / "empty")
    ss.build_relation(products(0, 60), key="id", out=empty)
    queries = []
    for name, case in CASES.items():
        relation = folder / f"{case.relation_rows} rows"
        if not relation.exists():
            built = ss.build_relation(products(case.relation_rows, case.text_bytes_max), key="id", out=relation)
        assert built.bytes_written > 1000 * case.memory_bytes or "thousandth" not in name
        common = {"memory_bytes": case.memory_bytes, "relation": str(relation)}
        for keys, draw in KEYS.items():
            stream = write_stream(draw(rng, case.relation_rows), folder / f"{name}, {keys}")
            queries.append(common | {"name": f"{name}, {keys}", "stream": stream})
        queries.append(common | {"name": name, "stream": stream, "relation": empty, "way": case.way})
    return run_script(SCRIPT, json.dumps(queries), WORKERS, log=folder / "log")


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("case", CASES)
def test_workers_hold_no_more_than_the_memory(case: str, keys: str, seen: dict[str, dict[str, Any]]) -> None:
    memory_bytes = CASES[case].memory_bytes
    full, empty = seen[f"{case}, {keys}"], seen[case]
    assert full["way"] == empty["way"] == CASES[case].way
    assert full["workers"] == empty["workers"] == WORKERS

    taken_bytes = full["peak_bytes"] - empty["peak_bytes"]
    print(f"{case}, {keys}: {format_bytes(max(0, taken_bytes))} of {format_bytes(memory_bytes)}")
    assert taken_bytes <= memory_bytes


SHARED = Case(64 * MIB, 800_000, 60, "answers")
"""Enough for a hot set, and far less than the relation."""


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
def test_however_many_workers_hold_no_more_than_the_memory_together(workers: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(workers)
    relation, empty = str(tmp_path / "full"), str(tmp_path / "empty")
    ss.build_relation(products(SHARED.relation_rows, SHARED.text_bytes_max), key="id", out=relation)
    ss.build_relation(products(0, 60), key="id", out=empty)
    stream = write_stream(
        3 * Zipf(SHARED.relation_rows, exponent=0.8).sample(rng, 8 * STREAM_ROWS), tmp_path / "stream"
    )
    common = {"memory_bytes": SHARED.memory_bytes, "stream": stream, "way": SHARED.way, "runs": 3}
    queries = [common | {"name": "full", "relation": relation}, common | {"name": "empty", "relation": empty}]
    seen = run_script(SCRIPT, json.dumps(queries), workers, log=tmp_path / "log")
    full, without = seen["full"], seen["empty"]
    assert full["workers"] == without["workers"] == workers
    taken_bytes = full["peak_bytes"] - without["peak_bytes"]
    shared = format_bytes(full["shared_bytes"])
    print(f"{workers} workers: {format_bytes(max(0, taken_bytes))}, {shared} of it shared")
    assert taken_bytes <= SHARED.memory_bytes
    # It was shared, and what was shared was full, so that segments were written anew while they were read.
    assert full["shared_bytes"] > SHARED.memory_bytes / 3
    assert without["shared_bytes"] == 0
