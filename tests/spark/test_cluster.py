"""A real cluster: the rows of DuckDB with one worker, with two, and when one of two is killed in the middle."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import semistream as ss
from semistream.bench.standalone import standalone
from tests.support.oracle import assert_same_rows, duckdb_join
from tests.support.processes import start_script

SCRIPT = Path(__file__).parent / "scripts" / "cluster_query.py"
FILES, FILE_ROWS, KEYS = 12, 5_000, 20_000
WAIT_S = 240

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MASTER = pa.table({"id": np.arange(0, KEYS, 2), "text": [f"row of key {key}" for key in range(0, KEYS, 2)]})


def stream_file(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    keys = pa.array(rng.zipf(1.3, FILE_ROWS) % KEYS, mask=rng.random(FILE_ROWS) < 0.05)
    return pa.table({"id": keys, "row": number * FILE_ROWS + np.arange(FILE_ROWS)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a stream, and the relation they ask for."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "input").mkdir()
    for number in range(FILES):
        path = folder / "input" / f"{number}.parquet"
        pq.write_table(stream_file(number), path)
        os.utime(path, (1e9 + number, 1e9 + number))
    ss.build_relation(MASTER, key="id", out=folder / "products", unique=True)
    return folder


@pytest.mark.parametrize(
    ("workers", "loses_a_worker", "shuffle"),
    [(1, False, "auto"), (2, False, "auto"), (2, False, "always"), (2, True, "auto")],
    ids=["one worker", "two workers", "two workers, shared out by key", "one of two workers killed"],
)
def test_a_cluster_puts_out_the_rows_of_duckdb(
    workers: int, loses_a_worker: bool, shuffle: str, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with standalone(tmp_path / "spark", workers) as cluster:
        order = {
            "settings": cluster.settings,
            "input": str(folder / "input"),
            "relation": str(folder / "products"),
            "out": str(out),
            "shuffle": shuffle,
        }
        driver = start_script(SCRIPT, json.dumps(order), log=tmp_path / "log")
        deadline_s = time.monotonic() + WAIT_S
        try:
            while driver.poll() is None:
                assert time.monotonic() < deadline_s, (tmp_path / "log").read_text(errors="replace")[-4000:]
                if loses_a_worker and (out / "done-0").exists():
                    cluster.lose_a_worker()
                    loses_a_worker = False
                time.sleep(0.05)
        finally:
            driver.kill()
    assert driver.returncode == 0, (tmp_path / "log").read_text(errors="replace")[-4000:]
    assert not loses_a_worker, "the worker was to be killed and was not"
    stream = pa.concat_tables([stream_file(number) for number in range(FILES)])
    expected = duckdb_join(stream, MASTER, ["id"], ["id"])
    found = feather.read_table(out / "all.arrow").select(expected.column_names)
    assert_same_rows(found, expected)
