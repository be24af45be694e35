"""CACHEJOIN: popular rows of R answer the stream on arrival; the rest waits for its page, as in HYBRIDJOIN.

Naeem, Dobbie, Weber: A lightweight stream-based join with limited resource consumption (DaWaK 2012), in the symbols
that PCSRJ and SSCJ print it with:

    M      = b v_R + h_R v_R + alpha (M - (b + h_R) v_R) + (1 - alpha)(M - (b + h_R) v_R)
    c_loop = c_IO(b) + b (c_H + c_F) + w_S (c_O + c_E + c_S + c_A) + w_N (c_H + c_O + c_S)
    mu     = (w_N + w_S) / c_loop

SSCJ adds 8 h_R bytes for its frequency recorder to M; see `semistream.cost.sscj`.

The papers take w_N and w_S from measurement. Here H_R is assumed to hold the h_R most popular rows, which is what the
threshold settles on when it is right. Its hit share is then the Zipf share p of the hottest h_R / m keys; what is let
through spreads over the pages without those keys (`semistream.cost.pages`), w_S is the steady state of that, and
w_N = w_S p / (1 - p), because the stream phase lasts until H_S is full again. A cache that learns is worse by the
popular keys it has not met yet.

| symbol | name here    | unit           | meaning                                           |
|--------|--------------|----------------|---------------------------------------------------|
| b      | `page_rows`  | rows           | disk buffer                                       |
| h_R    | `h_r_rows`   | rows           | rows of R in the cache                            |
| w_N    | `w_n`        | rows/iteration | rows answered by the cache                        |
| w_S    | `w_s`        | rows/iteration | rows answered by the page that is read            |
"""

from __future__ import annotations

from dataclasses import replace

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.pages import page_shares
from semistream.cost.steady_state import rows_leaving
from semistream.cost.symbols import Counts, UnitCosts


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Disk buffer, cache, H_S and queue; nothing for the frequencies, as PCSRJ prints it."""
    return {"H_R": sizes.h_r_rows * workload.v_r_bytes, **waiting_memory(workload, sizes, sizes.h_s_rows)}


def c_loop_s(unit_costs: UnitCosts, v_r_bytes: float, *, b: float, w_n: float, w_s: float) -> float:
    """The printed equation, in seconds."""
    return (
        unit_costs.io.read_s(b * v_r_bytes, sequential=False)
        + b * (unit_costs.c_h + unit_costs.c_f)
        + w_s * (unit_costs.c_o + unit_costs.c_e + unit_costs.c_s + unit_costs.c_a)
        + w_n * (unit_costs.c_h + unit_costs.c_o + unit_costs.c_s)
    )


def behind_cache(workload: Workload, page_rows: int, cached_rows: float, waiting_rows: float) -> tuple[float, float]:
    """The hit share of a perfect cache of so many rows, and w_S of what it lets through."""
    popularity = workload.popularity
    # The last key is never cached: a cache of all of R would leave nothing to predict.
    cached_keys = min(cached_rows / workload.rows_per_key, popularity.keys - 1.0)
    keys_per_page = workload.keys_per_page(page_rows)
    shares = page_shares(popularity, workload.layout, keys_per_page, cached_keys)
    return popularity.share_of_hottest(cached_keys), rows_leaving(shares, waiting_rows)


def phase_counts(workload: Workload, sizes: Sizes, *, w_n: float, w_s: float) -> Counts:
    """Operations of a stream phase and a disk phase, without tests of any cache rule."""
    return Counts(
        pages_read=1.0,
        bytes_read=sizes.page_rows * workload.v_r_bytes,
        seeks=1.0,
        probes=sizes.page_rows + w_n + w_s,
        outputs=(w_n + w_s) * workload.rows_per_key,
        deletions=w_s,
        stream_reads=w_n + w_s,
        appends=w_s,
    )


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """Hits on arrival, and the misses that leave with a page."""
    hit_share, w_s = behind_cache(workload, sizes.page_rows, sizes.h_r_rows, sizes.h_s_rows)
    w_n = w_s * hit_share / (1.0 - hit_share)
    counts = replace(phase_counts(workload, sizes, w_n=w_n, w_s=w_s), frequency_tests=sizes.page_rows)
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
