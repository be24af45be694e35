"""Tuned X-HYBRIDJOIN: X-HYBRIDJOIN with the number of pinned pages chosen by its cost model.

Paper: Naeem. Tuned X-HYBRIDJOIN for near-real-time data warehousing. APWeb 2013, LNCS 7808.
Reads:     the page of the oldest waiting key.
Remembers: the first pages of R, pinned, as many as the tuner says.
Waits:     every row, until its page is read or, if that is pinned, until the next iteration.

Assumes what X-HYBRIDJOIN assumes: an index on R, unique keys, and R sorted by how often its rows are asked for.

Memory: M = k·v_P (swappable) + l·v_P (non-swappable) + h_S·v_S.

`pinned_pages` is l, and whoever has a cost model and a workload gives it: the laboratory, `plan` and `tune` for the
workload they are told of, `enrich` for a stream of which nothing is known. **Without it there is a rule and no
tuning**: the published optimum for 100 MB pins 1 500 rows beside a swappable part of 950, so `PINNED_PER_SWAPPABLE`
pages are pinned for each that is read, and fewer where pages would take more than half of the memory.

Deviates: k is one page of the store, whose size was chosen when the relation was built.
"""

from __future__ import annotations

import math

from semistream.joins.base import JoinResources
from semistream.joins.division import disk_buffer_bytes
from semistream.joins.x_hybridjoin import PagesAndScan, XHybridJoin

PINNED_PER_SWAPPABLE = 1500 / 950
"""The published optimum: pinned rows for each row of a page that is read."""

PAGES_SHARE = 1 / 2
"""The most of the memory that pages take by the rule."""


def usual_pinned_pages(relation: PagesAndScan, limit_bytes: int) -> int:
    """How many pages to pin when nobody has tuned."""
    pages_fitting = int(limit_bytes * PAGES_SHARE) // disk_buffer_bytes(relation)
    return max(1, min(math.ceil(PINNED_PER_SWAPPABLE), pages_fitting - 1))


class TunedXHybridJoin(XHybridJoin):
    """X-HYBRIDJOIN with as many pinned pages as were found to be best."""

    def __init__(self, relation: PagesAndScan, resources: JoinResources, *, pinned_pages: int | None = None) -> None:
        if pinned_pages is None:
            pinned_pages = usual_pinned_pages(relation, resources.budget.limit_bytes)
        super().__init__(relation, resources, pinned_pages=pinned_pages)
