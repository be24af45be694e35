"""Every algorithm gives the rows of DuckDB's join, whatever the schema, the keys, the batches and the budget."""

from __future__ import annotations

import datetime
import decimal
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from semistream.joins.adaptive import least_memory_bytes
from semistream.joins.registry import ALGORITHMS
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.building.build import build_relation
from tests.support.oracle import assert_same_rows, duckdb_join
from tests.support.running import run_join

Workload = tuple[pa.Table, pa.Table, list[str], list[str]]

BATCH_ROWS = (1, 2, 7, 49, 50, 51, 100, 10_000)

# Few distinct values of each type, so that keys meet, and the extremes of each type among them.
KEY_VALUES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-128, -1, 0, 1, 2, 3, 127],
    pa.int16(): [-(2**15), -1, 0, 5, 2**15 - 1],
    pa.int32(): [-(2**31), -7, 0, 3, 2**31 - 1],
    pa.int64(): [-(2**63), -1, 0, 1, 2, 3, 4, 5, 2**63 - 1],
    pa.bool_(): [True, False],
    pa.date32(): [datetime.date(1, 1, 1), datetime.date(1969, 12, 31), datetime.date(2024, 2, 29)],
    pa.timestamp("us"): [datetime.datetime(1970, 1, 1), datetime.datetime(2038, 1, 19, 3, 14, 8, 1)],
    pa.string(): ["", "a", "b", "ab", "ä", "日本", "x" * 300, "123e4567-e89b-12d3-a456-426614174000"],
    pa.binary(): [b"", b"\x00", b"\x00\x00", b"\xff", b"abc"],
    pa.decimal128(9, 2): [decimal.Decimal("0.00"), decimal.Decimal("-1.50"), decimal.Decimal("9999999.99")],
    pa.decimal128(38, 4): [decimal.Decimal("0.0000"), decimal.Decimal(10) ** 30, -(decimal.Decimal(10) ** 30)],
}
PAYLOAD_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=True),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=12),
    pa.binary(): st.binary(max_size=12),
    pa.date32(): st.dates(),
    pa.decimal128(20, 3): st.decimals(-1000, 1000, places=3),
    pa.list_(pa.int64()): st.lists(st.integers(-5, 5), max_size=3),
}


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    key_types = draw(st.lists(st.sampled_from(list(KEY_VALUES)), min_size=1, max_size=4))
    payload_types = draw(st.lists(st.sampled_from(list(PAYLOAD_VALUES)), max_size=4))
    relation_key = [f"k{i}" for i in range(len(key_types))]
    stream_key = [f"s{i}" for i in range(len(key_types))]

    def table(rows: int, names: list[str], extra: dict[str, pa.Array]) -> pa.Table:
        keys = {
            name: pa.array(draw(st.lists(st.none() | st.sampled_from(KEY_VALUES[t]), min_size=rows, max_size=rows)), t)
            for name, t in zip(names, key_types, strict=True)
        }
        return pa.table(keys | extra)

    relation_rows, stream_rows = draw(st.integers(0, 40)), draw(st.integers(0, 120))
    payload = {
        f"p{i}": pa.array(
            draw(st.lists(st.none() | PAYLOAD_VALUES[t], min_size=relation_rows, max_size=relation_rows)), t
        )
        for i, t in enumerate(payload_types)
    }
    stream = table(stream_rows, stream_key, {"row": pa.array(range(stream_rows), pa.int64())})
    return stream, table(relation_rows, relation_key, payload), stream_key, relation_key


USUAL = [name for name, entry in ALGORITHMS.items() if entry.needs == "keys"]
FAMILY = [name for name in ALGORITHMS if name not in USUAL]

batches = st.sampled_from(BATCH_ROWS)
memories = st.sampled_from([1, 2, 16, 1000])
misses = st.sampled_from(["null", "drop"])


@pytest.mark.parametrize("algorithm", USUAL)
@given(workloads(), batches, memories, misses)
def test_oracle_same_rows_as_duckdb(
    algorithm: str, workload: Workload, batch_rows: int, memory: int, on_miss: Any
) -> None:
    check(algorithm, workload, batch_rows, memory, on_miss)


@pytest.mark.long
@given(st.sampled_from(FAMILY), workloads(), batches, memories, misses)
@settings(parent=settings(), max_examples=2 * settings().max_examples)
def test_oracle_same_rows_as_duckdb_for_the_algorithms_of_the_papers(
    algorithm: str, workload: Workload, batch_rows: int, memory: int, on_miss: Any
) -> None:
    check(algorithm, workload, batch_rows, memory, on_miss)


def check(algorithm: str, workload: Workload, batch_rows: int, memory: int, on_miss: Any) -> None:
    stream, master, stream_key, relation_key = workload
    with tempfile.TemporaryDirectory() as folder:
        build_relation(master, key=relation_key, out=Path(folder) / "r", page_bytes=256)
        relation = ArrowFileRelation(RelationDirectory(Path(folder) / "r"), 1)
        assume(relation.info.unique or ALGORITHMS[algorithm].many_to_many)
        least = max(
            least_memory_bytes(relation.info.row_bytes_max + 512),
            ALGORITHMS[algorithm].least_memory_bytes(relation, 512),
        )
        run = run_join(
            relation,
            stream,
            stream_key,
            algorithm=algorithm,
            batch_rows=batch_rows,
            memory_bytes=least * memory,
            on_miss=on_miss,
        )
    expected = duckdb_join(stream, master, stream_key, relation_key, how="inner" if on_miss == "drop" else "left")
    assert_same_rows(run.table, expected)
    assert run.budget.peak_bytes <= run.budget.limit_bytes
    assert run.balance.rows_in == stream.num_rows
