"""A process that only joins, and tells how much it has grown: run by `test_join_budget`.

It joins the same stream with a small budget first, so that what a process takes once does not count: imports, compiled
kernels, and the small blocks that NumPy and the C library keep when they are given back.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.driver import OPEN_ROW_BYTES
from semistream.lab.workloads.zipf import Zipf
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from tests.support.processes import PeakMemory, held_bytes
from tests.support.running import make_driver

WARM_UP_ROWS, BATCH_ROWS = 40_000, 10_000
STREAM_ROW_BYTES = OPEN_ROW_BYTES + 16


def streams(relation_rows: int, rows: int) -> list[pa.Table]:
    """All keys distinct, and Zipf's law; the keys of the relation are multiples of three."""
    rng = np.random.default_rng(0)
    ranks = (rng.permutation(relation_rows)[:rows], Zipf(relation_rows, exponent=0.8).sample(rng, rows))
    return [pa.table({"id": 3 * keys, "row": np.arange(rows)}) for keys in ranks]


def join(relation: Any, stream: pa.Table, algorithm: str, memory_bytes: int) -> MemoryBudget:
    """Send a stream through an operator and let its output go."""
    given = (relation, stream.schema, ["id"])
    row_bytes = STREAM_ROW_BYTES
    driver, budget = make_driver(*given, algorithm=algorithm, memory_bytes=memory_bytes, stream_row_bytes=row_bytes)
    rows = 0
    for batch in stream.to_batches(max_chunksize=BATCH_ROWS):
        rows += sum(len(piece) for piece in driver.push(batch, ["id"]))
    rows += sum(len(piece) for piece in driver.drain())
    assert rows == len(stream), f"{rows} rows came out"
    return budget


def main(path: str, algorithm: str, memory_bytes: int, warm_up_bytes: int) -> None:
    """Warm up, join, and print the growth."""
    directory = RelationDirectory(path)
    relation = ArrowFileRelation(directory, directory.current_version())
    info = relation.info
    # Twice as many rows as fit, at the least.
    rows = max(WARM_UP_ROWS, int(2 * memory_bytes / info.row_bytes_mean))
    inputs = streams(info.row_count, rows)
    for stream in inputs:
        join(relation, stream.slice(0, WARM_UP_ROWS), algorithm, warm_up_bytes)
    before_bytes = held_bytes(os.getpid())
    with PeakMemory(lambda: [os.getpid()]) as watched:
        counted = [join(relation, stream, algorithm, memory_bytes).peak_bytes for stream in inputs]
    print(json.dumps({"growth_bytes": watched.peak_bytes - before_bytes, "counted_bytes": max(counted)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
