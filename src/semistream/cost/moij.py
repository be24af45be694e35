"""MOIJ, the memory-optimal index join: HYBRIDJOIN's disk phase behind a cache that the cache inequality fills.

Naeem, Mirza, Khan, Sundaram, Jamil, Weber: Big data velocity management - from stream to warehouse via high performance
memory optimized index join (IEEE Access). Its equations:

    M      = h_R v_R + b v_R + alpha (M - (b + h_R) v_R) + (1 - alpha)(M - (b + h_R) v_R)                       (1)
    c_loop = c_IO(b) + w_N (c_S + c_H + c_O) + w_S (c_S + c_A + c_O + c_E) + b (c_H + c_I) + h_R c_V / 10       (2)
    mu     = (w_N + w_S) / c_loop                                                                              (3)
    lambda <= (w_N + w_S) / c_loop, and the least w_N and w_S are those of equality                         (4, 5)
    lambda = (1 / c_loop) [h_R v_R + b v_R + alpha (..) + (1 - alpha)(..)]                                      (6)

Equation 6 puts the bytes that w_N and w_S need in the place of w_N and w_S; its right side is M / c_loop, in bytes a
second, and no rate of rows. It is kept as printed (`memory_per_loop_bytes_per_s`); equation 5 is the one to use.

w_N, w_S and h_R follow from sizes and skew: the cache is where the inequality settles
(`semistream.cost.cache_inequality`), and w_S is the steady state of the disk phase behind that cache
(`semistream.cost.steady_state`). A key whose n_j is near m v_R / v_S comes and goes by chance; the model draws the line
at its expectation.

The counts differ from equation 2 where keys repeat: the inequality is a question about keys, so it is tested once for
each key of a page and of the cache, not for each row.

`h_s_rows` is the number of rows that could wait if nothing were cached (hSavailable at the start); a cached key takes
the room of m v_R / v_S of them.

| symbol | name here         | unit           | meaning                                                |
|--------|-------------------|----------------|--------------------------------------------------------|
| b      | `page_rows`       | rows           | one segment of R, with all rows of its keys            |
| h_R    | `remembered_rows` | rows           | rows of R in the cache; found, not given               |
| w_N    | `w_n`             | rows/iteration | rows answered by the cache                             |
| w_S    | `w_s`             | rows/iteration | rows answered by the page that is read                 |
"""

from __future__ import annotations

from dataclasses import replace

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted, waiting_memory
from semistream.cost.cache_inequality import settled_cache, waiting_rows_beside
from semistream.cost.cachejoin import behind_cache, phase_counts
from semistream.cost.symbols import UnitCosts

ITERATIONS_PER_EVICTION = 10
"""The paper's: the eviction looks at the whole cache once in ten iterations."""


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Equation 1, with the split that the inequality settles on."""
    return _memory(workload, sizes, settled_cache(workload, sizes))


def c_loop_s(unit_costs: UnitCosts, v_r_bytes: float, *, b: float, h_r: float, w_n: float, w_s: float) -> float:
    """Equation 2, in seconds."""
    return (
        unit_costs.io.read_s(b * v_r_bytes, sequential=False)
        + w_n * (unit_costs.c_s + unit_costs.c_h + unit_costs.c_o)
        + w_s * (unit_costs.c_s + unit_costs.c_a + unit_costs.c_o + unit_costs.c_e)
        + b * (unit_costs.c_h + unit_costs.c_i)
        + h_r * unit_costs.c_v / ITERATIONS_PER_EVICTION
    )


def mu_rows_per_s(w_n: float, w_s: float, c_loop: float) -> float:
    """Equation 3, and the largest arrival rate of equations 4 and 5."""
    return (w_n + w_s) / c_loop


def memory_per_loop_bytes_per_s(memory: MemoryBytes, c_loop: float) -> float:
    """Equation 6 as printed: M / c_loop. The paper calls it lambda; it is not a rate of rows."""
    return sum(memory.values()) / c_loop


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """Hits on arrival, the misses that leave with a page, and the tests of the inequality."""
    cached_keys = settled_cache(workload, sizes)
    cached_rows = cached_keys * workload.rows_per_key
    waiting_rows = waiting_rows_beside(workload, sizes, cached_keys)
    hit_share, w_s = behind_cache(workload, sizes.page_rows, cached_rows, waiting_rows)
    w_n = w_s * hit_share / (1.0 - hit_share)
    counts = replace(
        phase_counts(workload, sizes, w_n=w_n, w_s=w_s),
        inequality_tests=workload.keys_per_page(sizes.page_rows),
        eviction_tests=cached_keys / ITERATIONS_PER_EVICTION,
    )
    memory = _memory(workload, sizes, cached_keys)
    return predicted(w_n, w_s, counts, memory, unit_costs, waiting_rows=waiting_rows, remembered_rows=cached_rows)


def _memory(workload: Workload, sizes: Sizes, cached_keys: float) -> MemoryBytes:
    cached_bytes = cached_keys * workload.rows_per_key * workload.v_r_bytes
    waiting_rows = waiting_rows_beside(workload, sizes, cached_keys)
    return {"H_R": cached_bytes, **waiting_memory(workload, sizes, waiting_rows)}
