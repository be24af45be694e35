"""The operators keep to their budget with a relation of a thousand times its size, whatever the keys and the rows.

Counted by the accounts, and seen from outside: the growth of a process that only joins. The rows are those of DuckDB.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from semistream.budget import MIB
from semistream.joins.registry import ALGORITHMS
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.building.build import build_relation
from tests.support.oracle import duckdb_join
from tests.support.processes import run_script
from tests.support.running import run_join

GROWTH_SCRIPT = Path(__file__).parent / "join_growth.py"
PRODUCTS, CROWDS, LETTERS, CATALOGUE = 300_000, 60, 24_000, 500_000
Integers = npt.NDArray[np.int64]


def words(numbers: Integers, length_max: int) -> pa.Array:
    """Texts of all lengths up to a largest one."""
    texts = pa.array([f"{number} " + "x" * (number * 7919 % length_max) for number in range(997)])
    return texts.take(pa.array(numbers % 997))


def products() -> pa.Table:
    """Small rows with unique keys, all multiples of three."""
    numbers = np.arange(PRODUCTS)
    return pa.table({"id": 3 * numbers, "name": words(numbers, 100), "price": numbers / 7})


def crowds() -> pa.Table:
    """Keys with 10 000 small rows each."""
    numbers = np.arange(CROWDS * 10_000)
    return pa.table({"id": 3 * (numbers // 10_000), "member": numbers, "name": words(numbers, 40)})


def letters() -> pa.Table:
    """Rows with large texts, up to a twelfth of the budget."""
    numbers = np.arange(LETTERS)
    return pa.table({"id": 3 * numbers, "text": words(numbers, 3_500), "short": words(numbers, 5)})


def catalogue() -> pa.Table:
    """Rows of some 220 bytes with unique keys, all multiples of three; more than 100 MB."""
    numbers = np.arange(CATALOGUE)
    return pa.table({"id": 3 * numbers, "name": words(numbers, 180), "vendor": words(numbers // 7, 180)})


Draw = Callable[[np.random.Generator], Integers]
WORKLOADS: dict[str, tuple[Callable[[], pa.Table], Draw]] = {
    "one hot key": (
        products,
        lambda rng: np.where(rng.random(5_000) < 0.99, 333, 3 * rng.integers(0, PRODUCTS, 5_000)),
    ),
    "all keys distinct": (products, lambda rng: 3 * rng.permutation(PRODUCTS)[:5_000]),
    "all keys absent": (products, lambda rng: 3 * rng.integers(0, PRODUCTS, 5_000) + 1),
    "10 000 rows a key": (crowds, lambda rng: rng.integers(0, 3 * CROWDS, 40)),
    "large texts": (letters, lambda rng: 3 * np.minimum(rng.zipf(1.2, 1_500), LETTERS - 1)),
}


Built = Callable[[Callable[[], pa.Table]], RelationDirectory]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Builds each relation once."""
    folder = tmp_path_factory.mktemp("relations")

    def build(rows: Callable[[], pa.Table]) -> RelationDirectory:
        directory = RelationDirectory(folder / rows.__name__)
        if not directory.path.exists():
            build_relation(rows(), key="id", out=directory.path)
        return directory

    return build


def assert_same_rows_at_any_number(found: pa.Table, expected: pa.Table) -> None:
    """Compare as multisets inside DuckDB: there may be hundreds of thousands of rows."""
    with duckdb.connect() as connection:
        connection.register("found", found)
        connection.register("expected", expected)
        for one, other in (("found", "expected"), ("expected", "found")):
            only = connection.sql(f"SELECT * FROM {one} EXCEPT ALL SELECT * FROM {other} LIMIT 3").fetchall()
            assert not only, f"rows only in {one}: {only}"


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("algorithm", ["adaptive", "inlj"])
def test_a_thousandth_of_the_relation_is_memory_enough(algorithm: str, workload: str, built: Built) -> None:
    rows, draw = WORKLOADS[workload]
    relation = ArrowFileRelation(built(rows), version=1)
    keys = draw(np.random.default_rng(0))
    stream = pa.table({"id": keys, "row": np.arange(len(keys))})
    memory_bytes = int(relation.info.row_count * relation.info.row_bytes_mean) // 1000
    run = run_join(relation, stream, ["id"], algorithm=algorithm, memory_bytes=memory_bytes, batch_rows=10_000)
    print(f"{run.budget.peak_bytes} of {memory_bytes} bytes held, {run.stats}")
    assert run.budget.peak_bytes <= memory_bytes
    assert_same_rows_at_any_number(run.table, duckdb_join(stream, rows(), ["id"], ["id"]))


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the memory of a process from /proc")
@pytest.mark.parametrize(
    ("algorithm", "memory_bytes", "warm_up_bytes"),
    [
        ("adaptive", 1 * MIB, MIB // 4),
        ("adaptive", 4 * MIB, MIB // 4),
        ("adaptive", 32 * MIB, MIB // 4),
        ("inlj", 4 * MIB, MIB // 4),
        # They hold whole pages, of 128 KiB here, and need room for some.
        *((name, 8 * MIB, 2 * MIB) for name in ALGORITHMS if name not in ("adaptive", "inlj", "pcsrj")),
    ],
)
def test_seen_from_outside_a_join_grows_by_no_more_than_its_budget(
    algorithm: str, memory_bytes: int, warm_up_bytes: int, built: Built, tmp_path: Path
) -> None:
    directory = built(catalogue)
    assert directory.data_path(1).stat().st_size > 3 * memory_bytes
    seen = run_script(GROWTH_SCRIPT, directory.path, algorithm, memory_bytes, warm_up_bytes, log=tmp_path / "log")
    print(seen)
    assert seen["counted_bytes"] <= memory_bytes
    assert seen["growth_bytes"] <= memory_bytes
