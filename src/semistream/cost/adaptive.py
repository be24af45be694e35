"""adaptive, our own: what is popular is remembered, and the misses of a step are read by the cheapest way.

The rows of a step probe the remembered rows. The misses are made distinct and read together, so that no row waits past
its step. There are three ways to read them, and the cost decides (`reads`):

    keys    a seek and m rows for each distinct key
    pages   a seek and a page for each distinct page that they lie on
    scan    all of R, once, without a seek

With n rows a step, a hit share p of the h_R most popular rows, and q_j, Q_i the shares of keys and pages in what is let
through, the misses are n (1 - p), the distinct keys sum_j 1 - (1 - q_j)^misses and the distinct pages
sum_i 1 - (1 - Q_i)^misses. An iteration is one step. Rows are assumed to be remembered by a perfect choice, which is
what benefit per byte comes to when all rows are of one size.

| symbol | name here       | unit           | meaning                                            |
|--------|-----------------|----------------|----------------------------------------------------|
| n      | `rows_per_step` | rows           | stream rows of a step                              |
| h_R    | `h_r_rows`      | rows           | remembered rows of R                               |
| b      | `page_rows`     | rows           | rows of a page                                     |
| w_N    | `w_n`           | rows/iteration | rows answered by what is remembered                |
| w_S    | `w_s`           | rows/iteration | rows answered by what is read                      |
"""

from __future__ import annotations

from dataclasses import replace

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted
from semistream.cost.inlj import distinct_keys
from semistream.cost.pages import distinct_expected, page_shares
from semistream.cost.symbols import Counts, UnitCosts, io_seconds


def distinct_misses(workload: Workload, sizes: Sizes) -> float:
    """Different keys that a step has to read."""
    return distinct_keys(workload, _misses(workload, sizes), _cached_keys(workload, sizes))


def pages_touched(workload: Workload, sizes: Sizes) -> float:
    """Different pages on which those keys lie."""
    keys_per_page = workload.keys_per_page(sizes.page_rows)
    shares = page_shares(workload.popularity, workload.layout, keys_per_page, _cached_keys(workload, sizes))
    return distinct_expected(shares, _misses(workload, sizes))


def reads(workload: Workload, sizes: Sizes) -> dict[str, Counts]:
    """What each way of reading the misses of a step takes."""
    row_bytes = workload.v_r_bytes
    keys, pages = distinct_misses(workload, sizes), pages_touched(workload, sizes)
    all_pages = workload.r_rows / sizes.page_rows
    return {
        "keys": Counts(pages_read=keys, bytes_read=keys * workload.rows_per_key * row_bytes, seeks=keys),
        "pages": Counts(pages_read=pages, bytes_read=pages * sizes.page_rows * row_bytes, seeks=pages),
        "scan": Counts(pages_read=all_pages, bytes_read=workload.r_rows * row_bytes),
    }


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Remembered rows, the rows of a step, and what was read for them."""
    return {
        "H_R": sizes.h_r_rows * workload.v_r_bytes,
        "rows of a step": sizes.rows_per_step * workload.v_s_bytes,
        "rows just read": distinct_misses(workload, sizes) * workload.rows_per_key * workload.v_r_bytes,
    }


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """A step: every row probes what is remembered, the misses probe what the cheapest way read."""
    rows, misses = float(sizes.rows_per_step), _misses(workload, sizes)
    cheapest = min(reads(workload, sizes).values(), key=lambda way: io_seconds(way, unit_costs.io))
    counts = replace(cheapest, probes=rows + misses, outputs=rows * workload.rows_per_key, stream_reads=rows)
    memory = memory_bytes(workload, sizes)
    return predicted(
        rows - misses, misses, counts, memory, unit_costs, waiting_rows=misses, remembered_rows=sizes.h_r_rows
    )


def _cached_keys(workload: Workload, sizes: Sizes) -> float:
    return min(sizes.h_r_rows / workload.rows_per_key, workload.keys - 1.0)


def _misses(workload: Workload, sizes: Sizes) -> float:
    """Rows of a step that what is remembered cannot answer."""
    return sizes.rows_per_step * (1.0 - workload.popularity.share_of_hottest(_cached_keys(workload, sizes)))
