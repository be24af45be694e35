"""What the cost model says of a series at a setting, from sizes and skew alone.

The model is told what the operator would be built with: the rows that can wait, the rows of its cache or of its pinned
pages, the rows of a page. `semistream.planning.capacities` finds them, as it does for every plan, so that a figure
shows what a plan would go by. The model is told nothing that was measured.

On several nodes the model deals keys out in turn, by rank; the stream is routed by a hash, which may give a node a
little more of it or less.
"""

from __future__ import annotations

from dataclasses import replace

from semistream.cost import pcsrj, x_hybridjoin
from semistream.cost.base import Prediction, Sizes, Workload
from semistream.cost.symbols import UnitCosts
from semistream.lab.bench import ROWS_PER_STEP
from semistream.lab.conditions import Conditions
from semistream.lab.experiment import Series, Setting
from semistream.lab.options import Place, settings_for
from semistream.lab.sources import distinct_keys, relation_of
from semistream.planning.capacities import Room, predict_for, sizes_of
from semistream.planning.charging import typical

PRINTED = ", as printed"
"""Behind the name of options: with the formula as the paper prints it, where that differs from the steady state."""


def prediction(series: Series, setting: Setting, conditions: Conditions) -> Prediction:
    """One iteration in the steady state; on several nodes, what all do while the slowest makes one."""
    place, room = _place(series, setting, conditions)
    options = settings_for(series.options.removesuffix(PRINTED), place)
    # A stream row is as long as it is charged.
    workload = replace(place.workload, v_s_bytes=max(1, room.stream_row_bytes))
    if series.algorithm == "pcsrj":
        # The lab has no inboxes: each node is a CACHEJOIN with a stream of its own.
        sizes = sizes_of("cachejoin", place.relation, room, options, setting.rows_per_key)
        whole = replace(workload, r_rows=setting.r_rows)
        return pcsrj.predict(whole, replace(sizes, partitions=series.nodes), place.unit_costs)
    if series.options.endswith(PRINTED):
        sizes = sizes_of(series.algorithm, place.relation, room, options, setting.rows_per_key)
        return _as_printed(workload, sizes, place.unit_costs)
    return predict_for(series.algorithm, place.relation, room, workload, place.unit_costs, options)


def rows_per_loop(told: Prediction) -> float:
    """Rows that an iteration serves, on average over nodes."""
    return (told.w_n + told.w_s) / told.counts.iterations


def _place(series: Series, setting: Setting, conditions: Conditions) -> tuple[Place, Room]:
    """All of R, or the part of it that a node has, and the room of the operator that joins it."""
    keys = distinct_keys(setting)[:: series.nodes]
    memory_bytes = setting.memory_bytes * series.memory_times // series.nodes
    setting = replace(setting, r_rows=setting.r_rows // series.nodes, memory_bytes=memory_bytes)
    room = Room(memory_bytes, conditions.stream_row_bytes(setting), ROWS_PER_STEP)
    return Place(setting, relation_of(setting, keys), room.resources(), typical(conditions.profile)), room


def _as_printed(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """X-HYBRIDJOIN with the w of the paper's formula, which takes the page that is read for an average one."""
    predicted = x_hybridjoin.predict(workload, sizes, unit_costs)
    parts = {"d_n": sizes.h_r_rows, "d_s": float(sizes.page_rows)}
    w = x_hybridjoin.w_paper(workload, h_s=sizes.h_s_rows, **parts)
    loop_s = x_hybridjoin.c_loop_s(unit_costs, workload.v_r_bytes, w=w, **parts)
    w_n = w * predicted.hit_share
    return replace(predicted, w_n=w_n, w_s=w - w_n, cpu_s=loop_s - predicted.io_s)
