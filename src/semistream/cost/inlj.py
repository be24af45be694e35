"""INLJ, the index nested loop join: every row asks for its key; nothing is remembered and nothing waits.

The baseline of all the papers. Textbook INLJ makes one look-up a row (`rows_per_step` = 1); in practice the rows of a
step share a call and a key that several of them ask for is looked up once. Of n rows in a step

    distinct keys = sum over keys of 1 - (1 - share of the key)^n

are looked up, each by a read of its own of m rows. An iteration is one step.

| symbol | name here       | unit | meaning                                         |
|--------|-----------------|------|-------------------------------------------------|
| n      | `rows_per_step` | rows | stream rows that share a call                   |
| w      | `w_s`           | rows | the same: all of them are answered from R       |
"""

from __future__ import annotations

from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload, predicted
from semistream.cost.pages import distinct_expected, page_shares
from semistream.cost.symbols import Counts, UnitCosts


def distinct_keys(workload: Workload, rows: float, cached_keys: float = 0.0) -> float:
    """Different keys that `rows` stream rows ask for, of those that are not among the hottest `cached_keys`."""
    return distinct_expected(page_shares(workload.popularity, "frequency", 1.0, cached_keys), rows)


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """The rows of a step and what was read for them."""
    keys = distinct_keys(workload, sizes.rows_per_step)
    return {
        "rows of a step": sizes.rows_per_step * workload.v_s_bytes,
        "rows just read": keys * workload.rows_per_key * workload.v_r_bytes,
    }


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """A step: its keys without repetitions, a read for each, and every row meets what was read."""
    keys, rows = distinct_keys(workload, sizes.rows_per_step), float(sizes.rows_per_step)
    counts = Counts(
        pages_read=keys,
        bytes_read=keys * workload.rows_per_key * workload.v_r_bytes,
        seeks=keys,
        probes=rows,
        outputs=rows * workload.rows_per_key,
        stream_reads=rows,
    )
    memory = memory_bytes(workload, sizes)
    return predicted(0.0, rows, counts, memory, unit_costs, waiting_rows=rows, remembered_rows=0.0)
