"""A build keeps to its memory, seen from outside: the growth of the resident memory of a process that only builds.

The process builds a small relation first, so that imports, compiled kernels and thread stacks do not count.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROW_COUNT = 1_500_000
BUILD = """
import json, sys
from pathlib import Path
import pyarrow as pa
from semistream.relations.building.build import build_relation

def peak_bytes():
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024

source, out, memory = sys.argv[1:]
warm = pa.table({"id": list(range(2_000, 0, -1)), "name": ["x"] * 2_000})
build_relation(warm, key="id", out=out + "-warm", memory=30_000)
before = peak_bytes()
report = build_relation(source, key="product_id", out=out, memory=memory)
print(json.dumps({"rows": report.row_count, "unique": report.unique, "growth_bytes": peak_bytes() - before}))
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")


def write_parquet(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, row_group_size=ROW_COUNT)


def write_arrow(rows: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(rows.combine_chunks().to_batches()[0])


@pytest.fixture(scope="module")
def products() -> pa.Table:
    """1.5 million rows of about 100 bytes, in random order."""
    rng = np.random.default_rng(0)
    ids = rng.permutation(ROW_COUNT)
    names = np.array([f"a product with a name of some length, {number}" for number in range(5_000)])
    return pa.table(
        {
            "product_id": ids,
            "name": pa.array(names[ids % 5_000]),
            "vendor": pa.array(names[ids % 977]).cast(pa.binary()).cast(pa.string()),
            "price": rng.random(ROW_COUNT),
            "stock": rng.integers(0, 100, ROW_COUNT, dtype=np.int32),
        }
    )


@pytest.mark.parametrize(
    ("name", "write"),
    [("one row group.parquet", write_parquet), ("one batch.arrow", write_arrow)],
    ids=["parquet", "arrow"],
)
def test_a_source_many_times_its_memory_is_built_within_it(
    name: str, write: Callable[[pa.Table, Path], None], products: pa.Table, tmp_path: Path
) -> None:
    memory_bytes = 64_000_000
    assert products.nbytes > 2 * memory_bytes
    write(products, tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path / name), str(tmp_path / "out"), str(memory_bytes)],
        check=True,
        capture_output=True,
        text=True,
    )
    result = json.loads(done.stdout)
    print(result)
    assert (result["rows"], result["unique"]) == (ROW_COUNT, True)
    # Beside the sort there is what the source reads ahead, what the file writer holds, and above all what Arrow's
    # allocator keeps for each of its threads. To sort in memory would take more than twice the bytes of the rows.
    assert result["growth_bytes"] < memory_bytes + 100_000_000 < 1.1 * products.nbytes
