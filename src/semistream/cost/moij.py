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

w_N, w_S and h_R follow from sizes and skew. The inequality draws a line through the keys
(`semistream.cost.cache_inequality`), but an operator sees samples of n_j, so that keys near the line come and go
(`semistream.cost.learned_cache`): a key comes in when clearly more rows wait for it than the border
B = m v_R / v_S, and goes when its uses of the last passages of the queue say less than B
(`semistream.cost.halved_uses`). w_S is the steady state of the disk phase behind such a cache.

The counts differ from equation 2 where keys repeat: the inequality is a question about keys, so it is tested once for
each key of a page and of the cache, not for each row. And equation 2 has no term for letting keys in; the share of the
iterations that do is `Counts.lettings`.

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
from semistream.cost.cache_inequality import waiting_rows_beside
from semistream.cost.cachejoin import phase_counts
from semistream.cost.halved_uses import clearly_more, passages_held
from semistream.cost.learned_cache import Loop, settle
from semistream.cost.letting_in import rows_until_let_in, share_of_lettings
from semistream.cost.symbols import UnitCosts
from semistream.cost.zipf import Floats

ITERATIONS_PER_EVICTION = 10
"""The paper's: the eviction looks at the whole cache once in ten iterations."""


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Equation 1, with the split that the inequality settles on."""
    return memory_beside(workload, sizes, learned(workload, sizes).cached_keys)


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


def learned(workload: Workload, sizes: Sizes) -> Loop:
    """The loop behind the keys that the inequality has let in."""
    border = border_rows(workload, sizes)

    def occupancy(loop: Loop) -> tuple[Floats, Floats]:
        tests_per_passage = loop.waiting_rows / loop.w_s / ITERATIONS_PER_EVICTION
        held = passages_held(loop.share * loop.passage_rows, border, tests_per_passage)
        stays, until_in = held * loop.passage_rows, rows_until_let_in(loop, clearly_more(border))
        return stays / (stays + until_in), until_in

    def waiting_rows(cached_keys: float) -> float:
        return waiting_rows_beside(workload, sizes, cached_keys)

    return settle(workload, sizes.page_rows, waiting_rows, occupancy)


def border_rows(workload: Workload, sizes: Sizes) -> float:
    """B, the waiting rows that take as much memory as the rows of a key."""
    return workload.rows_per_key * workload.v_r_bytes / sizes.waiting_row_bytes(workload)


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """Hits on arrival, the misses that leave with a page, and the tests of the inequality."""
    loop = learned(workload, sizes)
    w_s, w_n = loop.w_s, loop.w_s * loop.hit_share / (1.0 - loop.hit_share)
    counts = replace(
        phase_counts(workload, sizes, w_n=w_n, w_s=w_s),
        inequality_tests=workload.keys_per_page(sizes.page_rows),
        eviction_tests=loop.cached_keys / ITERATIONS_PER_EVICTION,
        lettings=share_of_lettings(loop, rows_until_let_in(loop, clearly_more(border_rows(workload, sizes)))),
    )
    return predicted(
        w_n,
        w_s,
        counts,
        memory_beside(workload, sizes, loop.cached_keys),
        unit_costs,
        waiting_rows=loop.waiting_rows,
        remembered_rows=loop.cached_keys * workload.rows_per_key,
    )


def memory_beside(workload: Workload, sizes: Sizes, cached_keys: float) -> MemoryBytes:
    """Disk buffer, so many cached keys, and the rows that can wait beside them."""
    cached_bytes = cached_keys * workload.rows_per_key * workload.v_r_bytes
    waiting_rows = waiting_rows_beside(workload, sizes, cached_keys)
    return {"H_R": cached_bytes, **waiting_memory(workload, sizes, waiting_rows)}
