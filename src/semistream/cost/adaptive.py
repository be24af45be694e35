"""adaptive, our own: what is popular is remembered, and the misses are read by the cheapest way.

The rows of a step probe the remembered rows. There are two ways with the misses, and the dearer one is not taken.

**At once.** The misses of a step are made distinct and read together, so that no row waits past its step. There are
three ways to read them, and the cost decides (`reads`):

    keys    a seek and m rows for each distinct key
    pages   a seek and a page for each distinct page that they lie on
    scan    all of R, once, without a seek

The latter two only where there is memory for a whole page (`page_fits`). With n rows a step, a hit share p of the h_R
most popular rows, and q_j, Q_i the shares of keys and pages in what is let through, the misses are n (1 - p), the
distinct keys sum_j 1 - (1 - q_j)^misses and the distinct pages sum_i 1 - (1 - Q_i)^misses. An iteration is one step.

**In sweeps.** Misses wait by page, and the pages are read in their order, round after round. Counted in rows that come,
the sweep needs as long from page to page as rows leave in between, so a row waits half a round on average wherever its
page is: with room for h_S rows, 2 h_S leave in a round. An iteration is one round, of w_S = 2 h_S misses and
w_N = w_S p / (1 - p) hits. A page that nobody waits for is left out, unless the gap it lies in is read faster than
jumped over: with a seek of t pages' time, gaps of up to t pages are read through (`round_reads`). Gaps are as long as
chance makes them among pages of about one share.

How much is remembered in sweeps is chosen among `sweep_splits`: the most rows in a round. That is where the cache
inequality, which the operator goes by, is an equality; it is also the best rate as long as most pages are wanted in
each round.

Rows are assumed to be remembered by a perfect choice, which is what benefit per byte comes to when all rows are of one
size. The operator begins at once, and sweeps only where that seems a good deal cheaper; where the two ways are close it
may stay with the dearer one.

| symbol | name here       | unit           | meaning                                            |
|--------|-----------------|----------------|----------------------------------------------------|
| n      | `rows_per_step` | rows           | stream rows of a step                              |
| h_R    | `h_r_rows`      | rows           | remembered rows of R                               |
| h_S    | `sweep_splits`  | rows           | rows that can wait for the sweep                   |
| b      | `page_rows`     | rows           | rows of a page                                     |
| w_N    | `w_n`           | rows/iteration | rows answered by what is remembered                |
| w_S    | `w_s`           | rows/iteration | rows answered by what is read                      |
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.inlj import distinct_keys
from semistream.cost.pages import PageShares, distinct_expected, page_shares
from semistream.cost.symbols import Counts, IoProfile, UnitCosts, io_seconds

LEAST_SHARE = 1e-12
"""Of the stream that is missed: with much skew its digits end before it is nothing."""


def distinct_misses(workload: Workload, sizes: Sizes) -> float:
    """Different keys that a step has to read."""
    return distinct_keys(workload, _misses(workload, sizes), _cached_keys(workload, sizes.h_r_rows))


def pages_touched(workload: Workload, sizes: Sizes) -> float:
    """Different pages on which those keys lie."""
    return distinct_expected(_shares(workload, sizes.page_rows, sizes.h_r_rows), _misses(workload, sizes))


def reads(workload: Workload, sizes: Sizes) -> dict[str, Counts]:
    """What each way of reading the misses of a step takes."""
    row_bytes = workload.v_r_bytes
    keys = distinct_misses(workload, sizes)
    by_keys = Counts(pages_read=keys, bytes_read=keys * workload.rows_per_key * row_bytes, seeks=keys)
    if not sizes.page_fits:
        return {"keys": by_keys}
    pages, all_pages = pages_touched(workload, sizes), workload.r_rows / sizes.page_rows
    return {
        "keys": by_keys,
        "pages": Counts(pages_read=pages, bytes_read=pages * sizes.page_rows * row_bytes, seeks=pages),
        "scan": Counts(pages_read=all_pages, bytes_read=workload.r_rows * row_bytes),
    }


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """At once: remembered rows, the rows of a step, and what was read for them."""
    return {
        "H_R": sizes.h_r_rows * workload.v_r_bytes,
        "rows of a step": sizes.rows_per_step * workload.v_s_bytes,
        "rows just read": distinct_misses(workload, sizes) * workload.rows_per_key * workload.v_r_bytes,
    }


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """The better of the two ways."""
    at_once = predict_at_once(workload, sizes, unit_costs)
    if not sizes.sweep_splits:
        return at_once
    sweeping = predict_sweeping(workload, sizes, unit_costs)
    return sweeping if sweeping.mu_rows_per_s > at_once.mu_rows_per_s else at_once


def predict_at_once(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """A step: every row probes what is remembered, the misses probe what the cheapest way read."""
    rows, misses = float(sizes.rows_per_step), _misses(workload, sizes)
    cheapest = min(reads(workload, sizes).values(), key=lambda way: io_seconds(way, unit_costs.io))
    counts = replace(cheapest, probes=rows + misses, outputs=rows * workload.rows_per_key, stream_reads=rows)
    memory = memory_bytes(workload, sizes)
    return predicted(
        rows - misses, misses, counts, memory, unit_costs, waiting_rows=misses, remembered_rows=sizes.h_r_rows
    )


def predict_sweeping(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """A round: every row probes what is remembered, the misses wait for their page and probe it."""
    h_s_rows, h_r_rows = max(sizes.sweep_splits, key=lambda split: _rows_of_a_round(workload, *split))
    misses = 2.0 * h_s_rows
    rows = _rows_of_a_round(workload, h_s_rows, h_r_rows)
    counts = replace(
        round_reads(workload, sizes.page_rows, h_r_rows, misses, unit_costs.io),
        probes=rows + misses,
        outputs=rows * workload.rows_per_key,
        deletions=misses,
        stream_reads=rows,
        appends=misses,
    )
    memory = {"H_R": h_r_rows * workload.v_r_bytes, **waiting_memory(workload, sizes, h_s_rows)}
    return predicted(rows - misses, misses, counts, memory, unit_costs, waiting_rows=h_s_rows, remembered_rows=h_r_rows)


def round_reads(workload: Workload, page_rows: int, h_r_rows: float, misses: float, io: IoProfile) -> Counts:
    """Pages of a round that `misses` rows wait for, those that are read between them, and seeks over the others."""
    shares = _shares(workload, page_rows, h_r_rows)
    page_bytes = page_rows * workload.v_r_bytes
    jumped_over_min = int(io.read_s(page_bytes, sequential=False) / io.read_s(page_bytes, sequential=True))
    wanted = -np.expm1(misses * np.log1p(-np.minimum(shares.share, 1.0 - 1e-15)))
    count = shares.count
    if workload.layout == "shuffled":
        # Pages of all shares lie side by side: the next one is wanted as likely as any.
        wanted, count = np.array([(wanted * count).sum() / count.sum()]), np.array([count.sum()])
    unwanted = 1.0 - wanted
    jumps = unwanted**jumped_over_min
    # Pages in gaps, each as long as chance makes it, without those of gaps that are jumped over.
    through = np.maximum(0.0, unwanted * (1.0 - jumps) - jumped_over_min * jumps * wanted)
    pages = float((count * (wanted + through)).sum())
    # From the last page to the first it is a seek in any case.
    seeks = 1.0 + float((count * wanted * jumps).sum())
    return Counts(pages_read=pages, bytes_read=pages * page_bytes, seeks=seeks)


def _rows_of_a_round(workload: Workload, h_s_rows: float, h_r_rows: float) -> float:
    """Stream rows of which 2 h_S are missed."""
    hit_share = workload.popularity.share_of_hottest(_cached_keys(workload, h_r_rows))
    return 2.0 * h_s_rows / max(1.0 - hit_share, LEAST_SHARE)


def _shares(workload: Workload, page_rows: int, h_r_rows: float) -> PageShares:
    """Shares of the pages in what is let through."""
    keys_per_page = workload.keys_per_page(page_rows)
    return page_shares(workload.popularity, workload.layout, keys_per_page, _cached_keys(workload, h_r_rows))


def _cached_keys(workload: Workload, h_r_rows: float) -> float:
    return min(h_r_rows / workload.rows_per_key, workload.keys - 1.0)


def _misses(workload: Workload, sizes: Sizes) -> float:
    """Rows of a step that what is remembered cannot answer."""
    cached_keys = _cached_keys(workload, sizes.h_r_rows)
    return sizes.rows_per_step * (1.0 - workload.popularity.share_of_hottest(cached_keys))
