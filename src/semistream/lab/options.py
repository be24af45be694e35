"""How an algorithm of an experiment gets its settings: as published, or tuned by us.

The papers compare with rivals whose sizes were fixed: CACHEJOIN's prototype had a cache of 2 500 rows, whatever the
memory. `published` does the same. `tuned` gives a rival the best that its own cost model finds in the same memory, so
that a figure also shows what remains of a gain over a rival that was treated well. `plain` are the defaults of the
operators; caches then have half of the memory for rows.

CACHEJOIN and SSCJ learn a threshold, at most one step in a round of R. A small cache beside many waiting rows comes to
rest at twenty or more, which takes many times the stream of a usual run. So they begin near the end
(`beginning_threshold`): at nine tenths of what the model says, because a threshold rises soon where it is too low, and
hardly ever falls.

The tuner here is a search over a grid with the models of `semistream.cost`; it sees sizes and skew and no measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from semistream.budget import MemoryBudget
from semistream.cost import cachejoin, sscj, x_hybridjoin
from semistream.cost.base import Sizes, Workload
from semistream.cost.symbols import UnitCosts
from semistream.errors import BudgetExceeded, check_choice
from semistream.joins.base import JoinResources
from semistream.joins.division import divide
from semistream.joins.held_keys import ENTRY_BYTES
from semistream.joins.waiting import WaitingRows
from semistream.lab.experiment import Setting
from semistream.planning.capacities import Room, sizes_of
from semistream.relations.base import Relation
from semistream.structures.hash_multimap import HashMultimap

CACHE_SHARES = tuple(np.round(np.linspace(0.05, 0.95, 19), 2).tolist())
"""What the tuner tries for H_R's share of the memory for rows."""

REMEMBERED = 64
"""Splits that are kept: figures of one paper share most of their points, and nodes of one series their sizes."""

PINNED_PAGES = tuple(sorted({round(1.5**power) for power in range(18)}))
"""What the tuner tries for the number of pinned pages: 1 to about 1 000."""

BEGINNING_SHARE = 9 / 10
"""Of the threshold that a model says a cache comes to rest at: from there on it is learned."""

CACHED_BYTES_LEAST = 64
"""A few bytes above the sum, for the ends of columns."""


@dataclass(frozen=True)
class Place:
    """What an operator is about to be built on: one relation, or one part of it."""

    setting: Setting
    relation: Relation
    resources: JoinResources
    unit_costs: UnitCosts

    def part(self, relation: Relation, parts: int) -> Place:
        """The place of one of several equal parts."""
        budget = MemoryBudget(self.resources.budget.limit_bytes // parts)
        setting = replace(self.setting, r_rows=max(1, self.setting.r_rows // parts))
        return replace(self, setting=setting, relation=relation, resources=replace(self.resources, budget=budget))

    @property
    def workload(self) -> Workload:
        """The same in the terms of the cost models."""
        setting = self.setting
        return Workload(
            r_rows=setting.r_rows,
            zipf_exponent=setting.skew,
            rows_per_key=setting.rows_per_key,
            v_r_bytes=setting.row_bytes,
            v_s_bytes=setting.stream_row_bytes,
        )

    def waiting_rows(self, store_bytes: float) -> float:
        """Stream rows that can wait in so many bytes."""
        return float(max(1, WaitingRows.rows_fitting(int(store_bytes), self.resources.stream_row_bytes)))


def cached_bytes(rows: int, row_bytes: float) -> int:
    """What H_R takes for so many keys of one row."""
    return HashMultimap.bytes_for(rows) + round(rows * (row_bytes + ENTRY_BYTES)) + CACHED_BYTES_LEAST


def _plain(place: Place) -> dict[str, Any]:
    return {}


def _published_cache(place: Place) -> dict[str, Any]:
    store_bytes = divide(place.relation, place.resources).store_bytes
    wanted_bytes = cached_bytes(place.setting.cached_rows, place.relation.info.row_bytes_mean)
    # At a memory that is too small for it, a cache of fixed size still leaves room for rows that wait.
    return {"cache_share": min(CACHE_SHARES[-1], wanted_bytes / store_bytes)}


def _tuned_cache(place: Place) -> dict[str, Any]:
    store_bytes = divide(place.relation, place.resources).store_bytes
    entry_bytes = place.relation.info.row_bytes_mean + ENTRY_BYTES + HashMultimap.bytes_for(1 << 16) / (1 << 16)
    sizes = tuple(
        Sizes(
            h_s_rows=place.waiting_rows(store_bytes * (1 - share)),
            page_rows=place.setting.page_rows,
            h_r_rows=store_bytes * share / entry_bytes,
        )
        for share in CACHE_SHARES
    )
    return {"cache_share": CACHE_SHARES[_fastest(place.workload, sizes, place.unit_costs)]}


@lru_cache(maxsize=REMEMBERED)
def _fastest(workload: Workload, sizes: tuple[Sizes, ...], unit_costs: UnitCosts) -> int:
    """Which of these is best for a CACHEJOIN."""
    rates = [cachejoin.predict(workload, each, unit_costs).mu_rows_per_s for each in sizes]
    return int(np.argmax(rates))


def _pins(place: Place) -> dict[str, Any]:
    return {"pinned_pages": max(1, round(place.setting.pinned_rows / place.setting.page_rows))}


def _tuned_pins(place: Place) -> dict[str, Any]:
    def rate(pages: int) -> float:
        try:
            store_bytes = divide(place.relation, place.resources, pages_held=1 + pages).store_bytes
        except BudgetExceeded:
            return 0.0
        page_rows = place.setting.page_rows
        sizes = Sizes(place.waiting_rows(store_bytes), page_rows, h_r_rows=pages * page_rows)
        return x_hybridjoin.predict(place.workload, sizes, place.unit_costs).mu_rows_per_s

    return {"pinned_pages": max((n for n in PINNED_PAGES if n < place.relation.info.page_count), key=rate, default=1)}


def beginning_threshold(algorithm: str, place: Place, options: dict[str, Any]) -> dict[str, int]:
    """The threshold that a cache begins with, for an algorithm that learns one."""
    if algorithm not in ("cachejoin", "sscj"):
        return {}
    room = Room(place.setting.memory_bytes, place.resources.stream_row_bytes, place.resources.rows_per_step)
    sizes = sizes_of(algorithm, place.relation, room, options, place.setting.rows_per_key)
    model = {"cachejoin": cachejoin, "sscj": sscj}[algorithm]
    return {"threshold": max(1, int(BEGINNING_SHARE * model.resting_threshold(place.workload, sizes)))}


OPTIONS: dict[str, Callable[[Place], dict[str, Any]]] = {
    "plain": _plain,
    "published": _published_cache,
    "tuned": _tuned_cache,
    "tuned-pins": _tuned_pins,
    "pins": _pins,
    "pinned-page": lambda place: {"pinned_pages": 1},
}


def settings_for(options: str, place: Place) -> dict[str, Any]:
    """Settings by the name of a way to find them; `4 pins` are four times the pinned rows of the setting."""
    times, _, name = options.rpartition(" ")
    if times:
        place = replace(place, setting=replace(place.setting, pinned_rows=int(times) * place.setting.pinned_rows))
    check_choice("options", name, OPTIONS)
    return OPTIONS[name](place)
