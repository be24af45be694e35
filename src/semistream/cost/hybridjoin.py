"""HYBRIDJOIN: each iteration reads the page of the oldest waiting row.

Naeem, Dobbie, Weber: HYBRIDJOIN for near-real-time data warehousing (IJDWM 7(4), 2011), with the memory and cost terms
as its successors print them:

    M      = b v_R + alpha (M - b v_R) + (1 - alpha)(M - b v_R)
    c_loop = c_IO(b) + b c_H + w (c_O + c_E + c_S + c_A),     mu = w / c_loop

w is not a setting: it emerges. Under a uniform stream and an H_S that is small beside R it is close to h_S b / R_t
(plus the one row that named the page); in general see `semistream.cost.steady_state`, which finds it from h_S, the
page size and the Zipf exponent, for R in order of popularity and for R in any other order.

| symbol | name here        | unit           | meaning                                 |
|--------|------------------|----------------|-----------------------------------------|
| M      | `memory_bytes`   | bytes          | total memory, without the stream buffer |
| b      | `page_rows`      | rows           | disk buffer                             |
| w      | `w_s`            | rows/iteration | stream rows that leave with a page      |
"""

from __future__ import annotations

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.pages import page_shares
from semistream.cost.steady_state import rows_leaving
from semistream.cost.symbols import Counts, UnitCosts


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Disk buffer, H_S and queue."""
    return waiting_memory(workload, sizes, sizes.h_s_rows)


def c_loop_s(unit_costs: UnitCosts, v_r_bytes: float, *, b: float, w: float) -> float:
    """The printed equation, in seconds."""
    return (
        unit_costs.io.read_s(b * v_r_bytes, sequential=False)
        + b * unit_costs.c_h
        + w * (unit_costs.c_o + unit_costs.c_e + unit_costs.c_s + unit_costs.c_a)
    )


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """One page read, and the rows that leave with it."""
    keys_per_page = workload.keys_per_page(sizes.page_rows)
    w_s = rows_leaving(page_shares(workload.popularity, workload.layout, keys_per_page), sizes.h_s_rows)
    counts = Counts(
        pages_read=1.0,
        bytes_read=sizes.page_rows * workload.v_r_bytes,
        seeks=1.0,
        probes=sizes.page_rows,
        outputs=w_s * workload.rows_per_key,
        deletions=w_s,
        stream_reads=w_s,
        appends=w_s,
    )
    memory = memory_bytes(workload, sizes)
    return predicted(0.0, w_s, counts, memory, unit_costs, waiting_rows=sizes.h_s_rows, remembered_rows=0.0)
