"""What the cost model says of a series at a setting, from sizes and skew alone.

The model is told what the operator would be built with: the rows that can wait, the rows of its cache or of its pinned
pages, the rows of a page. It is told nothing that was measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.cost import x_hybridjoin
from semistream.cost.base import Prediction, Sizes
from semistream.cost.models import model_of
from semistream.joins.base import JoinResources
from semistream.joins.division import divide
from semistream.lab.bench import ROWS_PER_STEP, Conditions
from semistream.lab.experiment import Series, Setting
from semistream.lab.options import Place, cached_bytes, settings_for
from semistream.lab.sources import distinct_keys, relation_of
from semistream.planning.charging import typical

PRINTED = ", as printed"
"""Behind the name of options: with the formula as the paper prints it, where that differs from the steady state."""


def prediction(series: Series, setting: Setting, conditions: Conditions) -> Prediction:
    """One iteration in the steady state. PCSRJ is predicted by the loop of one of its nodes."""
    keys = distinct_keys(setting)
    algorithm = series.algorithm
    if algorithm == "pcsrj":
        algorithm, keys = "cachejoin", keys[:: series.nodes]
        part_rows, part_bytes = setting.r_rows // series.nodes, setting.memory_bytes // series.nodes
        setting = replace(setting, r_rows=part_rows, memory_bytes=part_bytes)
    budget = MemoryBudget(setting.memory_bytes)
    row_bytes = conditions.stream_row_bytes(setting)
    resources = JoinResources(budget, VirtualClock(), ROWS_PER_STEP, row_bytes)
    place = Place(setting, relation_of(setting, keys), resources, typical(conditions.profile))
    options = settings_for(series.options.removesuffix(PRINTED), place)
    sizes = _sizes(place, options)
    if series.options.endswith(PRINTED):
        return _as_printed(place, sizes)
    return model_of(algorithm).predict(place.workload, sizes, place.unit_costs)


def _as_printed(place: Place, sizes: Sizes) -> Prediction:
    """X-HYBRIDJOIN with the w of the paper's formula, which takes the page that is read for an average one."""
    predicted = x_hybridjoin.predict(place.workload, sizes, place.unit_costs)
    parts = {"d_n": sizes.h_r_rows, "d_s": float(sizes.page_rows)}
    w = x_hybridjoin.w_paper(place.workload, h_s=sizes.h_s_rows, **parts)
    loop_s = x_hybridjoin.c_loop_s(place.unit_costs, place.setting.row_bytes, w=w, **parts)
    w_n = w * predicted.hit_share
    return replace(predicted, w_n=w_n, w_s=w - w_n, cpu_s=loop_s - predicted.io_s)


def _sizes(place: Place, options: dict[str, Any]) -> Sizes:
    pinned_pages = int(options.get("pinned_pages", 0))
    store_bytes = divide(place.relation, place.resources, pages_held=1 + pinned_pages).store_bytes
    share = float(options.get("cache_share", 0.0))
    waiting_rows = place.waiting_rows(store_bytes * (1 - share))
    # A row of H_R with its part of the index; the index is of a power of two, so this is a mean.
    entry_bytes = cached_bytes(1 << 16, place.relation.info.row_bytes_mean) / (1 << 16)
    waiting_row_bytes = store_bytes * (1 - share) / waiting_rows
    return Sizes(
        h_s_rows=waiting_rows,
        page_rows=place.setting.page_rows,
        h_r_rows=pinned_pages * place.setting.page_rows + store_bytes * share / entry_bytes,
        queue_node_bytes=max(0.0, waiting_row_bytes - place.setting.stream_row_bytes),
    )
