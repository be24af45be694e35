"""SSBJ, the semi-stream balanced join: MESHJOIN's scan behind a cache that the cache inequality fills.

Naeem, Weber, Lutteroth: A memory-optimal many-to-many semi-stream join (Distributed and Parallel Databases 37, 2018).
No index is needed; any number of rows per key. Its cost, derived from its loop in MOIJ's symbols:

    c_loop = c_IO(b) + w_N (c_S + c_H + c_O) + w_S (c_S + c_A + c_E + c_O) + b (c_H + c_I) + h_R c_V b / N_R

What misses the cache waits for one whole scan, so n_j is a Poisson number whose mean is the share of j times the
stream rows of a scan, h_S / (1 - hit share). Once a scan, with its segment, every key is tested: one that is out comes
in with the probability that n_j exceeds the border B = m v_R / v_S, one that is in goes with the probability that it
falls short (`semistream.cost.learned_cache`). Every test has the rows of a scan of its own, so where a key stands in R
does not matter. Everything else follows: with C iterations a scan, w_S = h_S / C and w_N = w_S p / (1 - p). The
inequality is tested for every key of a segment, cached or not: a scan, and not ten iterations, is the time over which
n_j is defined.

`h_s_rows` is the number of rows that could wait if nothing were cached; a cached key takes the room of m v_R / v_S of
them.

| symbol | name here         | unit           | meaning                                                |
|--------|-------------------|----------------|--------------------------------------------------------|
| b      | `page_rows`       | rows           | one segment of the scan                                |
| h_R    | `remembered_rows` | rows           | rows of R in the cache; found, not given               |
| w_N    | `w_n`             | rows/iteration | rows answered by the cache                             |
| w_S    | `w_s`             | rows/iteration | rows that have met all of R                            |
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from semistream.cost import meshjoin
from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted
from semistream.cost.cache_inequality import waiting_rows_beside
from semistream.cost.cachejoin import phase_counts
from semistream.cost.learned_cache import Loop, settle
from semistream.cost.letting_in import share_with_some
from semistream.cost.moij import border_rows, memory_beside
from semistream.cost.poisson import LEAST_CHANCE, at_least
from semistream.cost.symbols import UnitCosts
from semistream.cost.zipf import Floats


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Disk buffer, and what the inequality makes of the rest."""
    return memory_beside(workload, sizes, learned(workload, sizes).cached_keys)


def learned(workload: Workload, sizes: Sizes) -> Loop:
    """The cache that the inequality makes, scan by scan. Of the loop only the cache and h_S hold: no page is sought."""
    border = border_rows(workload, sizes)

    def occupancy(loop: Loop) -> tuple[Floats, None]:
        comes = _comes(loop, border)
        goes = 1.0 - at_least(loop.share * loop.passage_rows, math.ceil(border))
        return comes / np.maximum(comes + goes, LEAST_CHANCE), None

    def waiting_rows(cached_keys: float) -> float:
        return waiting_rows_beside(workload, sizes, cached_keys)

    return settle(workload, sizes.page_rows, waiting_rows, occupancy)


def _comes(loop: Loop, border: float) -> Floats:
    """The probability with which a key that is out comes in, in a scan."""
    return at_least(loop.share * loop.passage_rows, math.floor(border) + 1)


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """Hits on arrival; a segment of the scan for the rest."""
    loop = learned(workload, sizes)
    cached_keys, hit_share = loop.cached_keys, loop.hit_share
    iterations = meshjoin.cells(workload, sizes)
    rows_read = workload.r_rows / iterations
    w_s = loop.waiting_rows / iterations
    w_n = w_s * hit_share / (1.0 - hit_share)
    cached_rows = cached_keys * workload.rows_per_key
    coming_in = loop.count * (1.0 - loop.occupancy) * _comes(loop, border_rows(workload, sizes))
    counts = replace(
        phase_counts(workload, sizes, w_n=w_n, w_s=w_s),
        bytes_read=rows_read * workload.v_r_bytes,
        seeks=1.0 / iterations,
        probes=rows_read + w_n + w_s,
        inequality_tests=rows_read / workload.rows_per_key,
        eviction_tests=cached_keys / iterations,
        lettings=share_with_some(loop, coming_in, np.ones_like(coming_in)),
    )
    memory = memory_beside(workload, sizes, cached_keys)
    return predicted(w_n, w_s, counts, memory, unit_costs, waiting_rows=loop.waiting_rows, remembered_rows=cached_rows)
