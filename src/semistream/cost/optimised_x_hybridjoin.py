"""Optimised X-HYBRIDJOIN: the pinned pages become a hash table that the stream probes; only misses wait.

Optimised X-HYBRIDJOIN for near-real-time data warehousing (ADC 2012). Memory as X-HYBRIDJOIN;
the cost is CACHEJOIN's without the frequency test:

    c_loop = c_IO(d_S) + d_S c_H + w_S (c_O + c_E + c_S + c_A) + w_N (c_H + c_O + c_S),   mu = (w_N + w_S) / c_loop

Against X-HYBRIDJOIN it saves d_N probes an iteration, and appending and deleting the w_N rows. What is pinned are
pages, so the cache is as good as a cache of rows only where R stands in order of popularity.

| symbol | name here    | unit           | meaning                                            |
|--------|--------------|----------------|----------------------------------------------------|
| d_N    | `h_r_rows`   | rows           | pinned rows                                        |
| d_S    | `page_rows`  | rows           | rows of the page that is read                      |
| w_N    | `w_n`        | rows/iteration | rows that the pinned pages answer on arrival       |
| w_S    | `w_s`        | rows/iteration | rows that leave with the page that is read         |
"""

from __future__ import annotations

from semistream.cost import x_hybridjoin
from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted
from semistream.cost.cachejoin import phase_counts
from semistream.cost.steady_state import rows_leaving
from semistream.cost.symbols import UnitCosts


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """The same components as X-HYBRIDJOIN."""
    return x_hybridjoin.memory_bytes(workload, sizes)


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """The stream probes the pinned pages, the misses wait for theirs."""
    p_n, rest = x_hybridjoin.pinned_share_and_rest(workload, sizes)
    w_s = rows_leaving(rest, sizes.h_s_rows)
    w_n = w_s * p_n / (1.0 - p_n)
    counts = phase_counts(workload, sizes, w_n=w_n, w_s=w_s)
    memory = memory_bytes(workload, sizes)
    return predicted(w_n, w_s, counts, memory, unit_costs, waiting_rows=sizes.h_s_rows, remembered_rows=sizes.h_r_rows)
