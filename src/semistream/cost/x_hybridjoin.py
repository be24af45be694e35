"""X-HYBRIDJOIN and its tuned form: the hottest pages stay in memory and probe the waiting rows in every iteration.

X-HYBRIDJOIN (BNCOD 2011) and Tuned X-HYBRIDJOIN, whose cost model this is; X-HYBRIDJOIN is the case l = k. Its
equations:

    M      = k v_P + l v_P + alpha [M - (k + l) v_P] + (1 - alpha)[M - (k + l) v_P]
    c_loop = c_IO(k v_P) + (d_N + d_S) c_H + w (c_O + c_E + c_S + c_A),     mu = w / c_loop
    p_N    = H(d_N) / H(R_t),   n = (R_t - d_N) / d_S
    p_S    = (1 - p_N) / n,     p_new = p_N + p_S,   p_old = 1 / n
    w      = w p_new + (h_S - w) p_old   =>   w = h_S p_old / (1 + p_old - p_new)

`w_paper` computes the last line, for any Zipf exponent. **Where it is inexact:** it averages over the n partitions as
if the one that is read held an average number of waiting rows, h_S / n. It holds about twice as many: the oldest row
names the page, so of all pages it is the one that has collected rows for the longest time, while an average page is
half-way. With the authors' tuned constants (d_N = 1500, d_S = 950, h_S = 512,567, two million rows, exponent 1) the
formula gives w = 510 and the steady state 1015. It also takes hot and cold partitions to be read equally often, which
matters less the more of the hot ones are pinned. `predict` uses `semistream.cost.steady_state`, which knows the share
of every page and needs no average.

Pinned are the first d_N rows of R: the hottest where R stands in order of popularity, as the algorithm assumes, and
rows like any others where it does not.

| symbol | name here        | unit           | meaning                                              |
|--------|------------------|----------------|------------------------------------------------------|
| d_N    | `h_r_rows`       | rows           | non-swappable part of the disk buffer, l v_P / v_R   |
| d_S    | `page_rows`      | rows           | swappable part, k v_P / v_R                          |
| w      | `w_n + w_s`      | rows/iteration | rows matched by both parts                           |
| p_N    | `hit_share`      | -              | share of the stream that the pinned rows answer      |
"""

from __future__ import annotations

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.pages import PageShares, without_first_keys
from semistream.cost.steady_state import rows_leaving
from semistream.cost.symbols import Counts, UnitCosts


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """The two parts of the disk buffer, H_S and queue."""
    return {"pinned pages": sizes.h_r_rows * workload.v_r_bytes, **waiting_memory(workload, sizes, sizes.h_s_rows)}


def w_paper(workload: Workload, *, d_n: float, d_s: float, h_s: float) -> float:
    """The paper's w (its Equation 6), with its average over partitions."""
    p_n = workload.popularity.share_of_hottest(d_n / workload.rows_per_key)
    partitions = (workload.r_rows - d_n) / d_s
    p_old = 1.0 / partitions
    p_new = p_n + (1.0 - p_n) / partitions
    return h_s * p_old / (1.0 + p_old - p_new)


def c_loop_s(unit_costs: UnitCosts, v_r_bytes: float, *, d_n: float, d_s: float, w: float) -> float:
    """The printed equation, in seconds."""
    return (
        unit_costs.io.read_s(d_s * v_r_bytes, sequential=False)
        + (d_n + d_s) * unit_costs.c_h
        + w * (unit_costs.c_o + unit_costs.c_e + unit_costs.c_s + unit_costs.c_a)
    )


def pinned_share_and_rest(workload: Workload, sizes: Sizes) -> tuple[float, PageShares]:
    """The share of the stream that the pinned pages answer, and how the rest spreads over the other pages."""
    pinned_keys = min(sizes.h_r_rows / workload.rows_per_key, workload.keys - 1.0)
    keys_per_page = workload.keys_per_page(sizes.page_rows)
    return without_first_keys(workload.popularity, workload.layout, keys_per_page, pinned_keys)


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """All rows enter H_S; the pinned pages and one other probe it."""
    p_n, rest = pinned_share_and_rest(workload, sizes)
    w_s = rows_leaving(rest, sizes.h_s_rows, pinned_share=p_n)
    w_n = w_s * p_n / (1.0 - p_n)
    w = w_n + w_s
    counts = Counts(
        pages_read=1.0,
        bytes_read=sizes.page_rows * workload.v_r_bytes,
        seeks=1.0,
        probes=sizes.h_r_rows + sizes.page_rows,
        outputs=w * workload.rows_per_key,
        deletions=w,
        stream_reads=w,
        appends=w,
    )
    memory = memory_bytes(workload, sizes)
    return predicted(
        w_n,
        w_s,
        counts,
        memory,
        unit_costs,
        waiting_rows=sizes.h_s_rows,
        remembered_rows=sizes.h_r_rows,
    )
