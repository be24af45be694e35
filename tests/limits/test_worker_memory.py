"""A query keeps to its memory, seen from outside: what its workers hold, beside the same query with an empty relation.

The workers hold much that is not ours: the interpreter, libraries, and what Spark reads and writes. All of that is
there for an empty relation as well, so the difference is what our memory is used for. It includes what no account can
count: the slack of allocators and of memory that comes in pages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import semistream as ss
from semistream.budget import KIB, MIB, format_bytes
from semistream.lab.workloads.zipf import Zipf
from tests.support.processes import run_script

SCRIPT = Path(__file__).parents[1] / "spark" / "scripts" / "worker_memory.py"
RELATION_ROWS, STREAM_ROWS, FILES = 800_000, 160_000, 4
MEMORIES = {"answers": 32 * MIB, "rows": 8 * MIB}
"""By the way that rows take through Python with so much memory; R is three and thirteen times as large."""

SMALL_MEMORY_BYTES = 128 * KIB
ONCE_BYTES = 1 * MIB
"""What two workers take once to use a relation at all, however few rows it has, and whatever the memory: code that an
empty relation never reaches, and small blocks that NumPy and the C library keep for later. Measured: 0.25 MiB."""

Integers = npt.NDArray[np.int64]
KEYS: dict[str, Callable[[np.random.Generator, int], Integers]] = {
    "zipf keys": lambda rng, rows: 3 * Zipf(RELATION_ROWS, exponent=1.0).sample(rng, rows),
    "one hot key": lambda rng, rows: np.where(rng.random(rows) < 0.99, 2331, 3 * rng.integers(0, RELATION_ROWS, rows)),
    "all keys distinct": lambda rng, rows: 3 * rng.permutation(RELATION_ROWS)[:rows],
    "all keys absent": lambda rng, rows: 3 * rng.integers(0, RELATION_ROWS, rows) + 1,
}

pytestmark = [
    pytest.mark.spark,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of processes from /proc"),
]


def products(rows: int) -> pa.Table:
    """Rows of some 140 bytes whose keys are multiples of three."""
    rng = np.random.default_rng(0)
    numbers = np.arange(rows)
    words = pa.array([f"the name of product {number} " + "x" * (number % 61) for number in range(5000)])
    columns = {"id": 3 * numbers, "name": words.take(numbers % 5000), "vendor": words.take(numbers % 977)}
    return pa.table(columns | {"price": rng.random(rows), "stock": rng.integers(0, 100, rows, dtype=np.int32)})


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
    paths = {name: str(folder / name) for name in ("large", "few", "empty")}
    built = ss.build_relation(products(RELATION_ROWS), key="id", out=paths["large"])
    ss.build_relation(products(20), key="id", out=paths["few"])
    ss.build_relation(products(0), key="id", out=paths["empty"])
    assert built.bytes_written > 3 * max(MEMORIES.values())
    assert built.bytes_written > 800 * SMALL_MEMORY_BYTES

    rng = np.random.default_rng(1)
    streams = {name: write_stream(draw(rng, STREAM_ROWS), folder / name) for name, draw in KEYS.items()}
    short = write_stream(KEYS["all keys distinct"](rng, 40_000), folder / "short")
    queries = []
    for way, memory_bytes in MEMORIES.items():
        common = {"memory_bytes": memory_bytes, "way": way}
        queries += [
            {"name": f"{way}, {name}", "relation": paths["large"], "stream": stream, "memory_bytes": memory_bytes}
            for name, stream in streams.items()
        ]
        queries.append(common | {"name": way, "relation": paths["empty"], "stream": streams["all keys distinct"]})
    common = {"memory_bytes": SMALL_MEMORY_BYTES, "way": "rows", "stream": short}
    queries += [common | {"name": f"small, {name}", "relation": path} for name, path in paths.items()]
    return run_script(SCRIPT, json.dumps(queries), log=folder / "log")


def taken_bytes(seen: dict[str, dict[str, Any]], query: str, empty: str) -> int:
    """What a query's workers held beyond those of the same query with an empty relation."""
    for name in (query, empty):
        assert seen[name]["workers"] == 2, f"{name!r} had {seen[name]['workers']} workers"
    assert seen[query]["way"] == seen[empty]["way"]
    taken = int(seen[query]["peak_bytes"] - seen[empty]["peak_bytes"])
    print(f"{query}: {format_bytes(max(0, taken))}")
    return taken


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("way", MEMORIES)
def test_workers_hold_no_more_than_the_memory(way: str, keys: str, seen: dict[str, dict[str, Any]]) -> None:
    assert seen[way]["way"] == way
    assert taken_bytes(seen, f"{way}, {keys}", way) <= MEMORIES[way]


def test_with_a_thousandth_of_the_relation_workers_hold_no_more_than_for_a_few_rows(
    seen: dict[str, dict[str, Any]],
) -> None:
    assert taken_bytes(seen, "small, few", "small, empty") <= ONCE_BYTES
    assert taken_bytes(seen, "small, large", "small, empty") <= SMALL_MEMORY_BYTES + ONCE_BYTES
