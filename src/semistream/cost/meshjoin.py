"""MESHJOIN: a cyclic scan of R, past which every stream row waits until it has met all of it.

Polyzotis, Skiadopoulos, Vassiliadis, Simitsis, Frantzell: Meshing streaming updates with persistent data in an active
data warehouse (ICDE 2007, TKDE 20(7) 2008). With N_R / b iterations a scan, which is also the number of cells of the
queue, each a batch of w stream rows:

    M      = b v_P + w v_S + w (N_R / b) ptr + w f (N_R / b) v_S
    c_loop = c_IO(b) + w (c_E + c_S + c_A) + b (v_P / v_R) c_H + sigma b (v_P / v_R) c_O,     mu = w / c_loop

sigma, the matches of one row of R, is not a free number: in the steady state a batch of w rows leaves in each iteration
after meeting its w m partners, so outputs are w m an iteration whatever the skew. Nothing here depends on the
distribution of the stream: the model is exact.

Pages are counted in rows: b v_P is `page_rows * v_r_bytes`. R is read in sequence, so a read costs a call but no
seek, except for the one that begins the scan anew. The last segment of a scan may be short; the queue still has a cell
for it, hence the rounding up.

Tuning: for a given memory each b leaves one w, and mu has one maximum over b (`tuned`). For a given arrival rate the
smallest w is lambda c_loop, and memory has one minimum over b (`least_memory`).

| symbol | name here                 | unit           | meaning                                        |
|--------|---------------------------|----------------|------------------------------------------------|
| b      | `page_rows`               | rows           | disk buffer: one segment of the scan           |
| N_R/b  | `cells(...)`              | iterations     | iterations of a scan, cells of the queue       |
| w      | `w_s`                     | rows/iteration | stream rows admitted, and expired, at a time   |
| h_S    | `h_s_rows` = w N_R / b    | rows           | stream rows resident in the hash table         |
| ptr    | `queue_node_bytes`        | bytes          | a pointer from the queue into the hash table   |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.symbols import Counts, UnitCosts
from semistream.errors import BudgetExceeded, InvalidOption

CANDIDATES = 200
"""Buffer sizes tried between one row and all of R, evenly in the logarithm: 10 % apart for a hundred million rows."""


def cells(workload: Workload, sizes: Sizes) -> int:
    """Iterations of one scan of R."""
    return math.ceil(workload.r_rows / sizes.page_rows)


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Disk buffer, stream buffer of w rows, hash table and queue."""
    w = sizes.h_s_rows / cells(workload, sizes)
    return {"stream buffer": w * workload.v_s_bytes, **waiting_memory(workload, sizes, sizes.h_s_rows)}


def c_loop_s(unit_costs: UnitCosts, v_r_bytes: float, *, b: float, w: float, sigma: float) -> float:
    """The printed equation, in seconds, with b in rows."""
    return (
        unit_costs.io.read_s(b * v_r_bytes, sequential=True)
        + w * (unit_costs.c_e + unit_costs.c_s + unit_costs.c_a)
        + b * unit_costs.c_h
        + sigma * b * unit_costs.c_o
    )


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """One segment of the scan, one batch in, one batch out."""
    iterations = cells(workload, sizes)
    w = sizes.h_s_rows / iterations
    rows_read = workload.r_rows / iterations
    counts = Counts(
        pages_read=1.0,
        bytes_read=rows_read * workload.v_r_bytes,
        seeks=1.0 / iterations,
        probes=rows_read,
        outputs=w * workload.rows_per_key,
        deletions=w,
        stream_reads=w,
        appends=w,
    )
    memory = memory_bytes(workload, sizes)
    return predicted(0.0, w, counts, memory, unit_costs, waiting_rows=sizes.h_s_rows, remembered_rows=0.0)


def tuned(workload: Workload, sizes: Sizes, unit_costs: UnitCosts, limit_bytes: float) -> tuple[Sizes, Prediction]:
    """The disk buffer with the highest service rate in this memory; `sizes` gives what is not a size."""
    best: tuple[Sizes, Prediction] | None = None
    for candidate in _candidates(workload, sizes):
        per_row_bytes = candidate.waiting_row_bytes(workload) + workload.v_s_bytes / cells(workload, candidate)
        h_s_rows = (limit_bytes - candidate.page_rows * workload.v_r_bytes) / per_row_bytes
        if h_s_rows >= cells(workload, candidate):
            filled = replace(candidate, h_s_rows=h_s_rows)
            prediction = predict(workload, filled, unit_costs)
            if best is None or prediction.mu_rows_per_s > best[1].mu_rows_per_s:
                best = filled, prediction
    if best is None:
        raise BudgetExceeded(
            "the memory is too small for MESHJOIN, which holds a stream row for every segment of R",
            given=f"{limit_bytes:.0f} bytes for {workload.r_rows} rows of R",
        )
    return best


def least_memory(
    workload: Workload, sizes: Sizes, unit_costs: UnitCosts, arrival_rows_per_s: float
) -> tuple[Sizes, Prediction]:
    """The split that keeps up with this rate in the least memory; `sizes` gives what is not a size."""
    best: tuple[Sizes, Prediction] | None = None
    per_row_s = unit_costs.c_e + unit_costs.c_s + unit_costs.c_a + workload.rows_per_key * unit_costs.c_o
    room = 1.0 - arrival_rows_per_s * per_row_s
    if room <= 0:
        raise InvalidOption(
            "no memory makes the join as fast as this",
            given=f"{arrival_rows_per_s:.0f} rows a second",
            allowed=f"less than {1 / per_row_s:.0f} rows a second",
        )
    for candidate in _candidates(workload, sizes):
        iterations = cells(workload, candidate)
        rows_read = workload.r_rows / iterations
        fixed_s = unit_costs.io.read_s(rows_read * workload.v_r_bytes, sequential=True) + rows_read * unit_costs.c_h
        fixed_s += unit_costs.io.seek_s / iterations
        # w = lambda c_loop, solved for w.
        w = arrival_rows_per_s * fixed_s / room
        filled = replace(candidate, h_s_rows=w * iterations)
        prediction = predict(workload, filled, unit_costs)
        if best is None or prediction.memory_total_bytes < best[1].memory_total_bytes:
            best = filled, prediction
    assert best is not None, "there is always a buffer of one row to try"
    return best


def _candidates(workload: Workload, sizes: Sizes) -> Iterator[Sizes]:
    for page_rows in np.unique(np.rint(np.geomspace(1, workload.r_rows, CANDIDATES)).astype(np.int64)):
        yield replace(sizes, page_rows=int(page_rows))
