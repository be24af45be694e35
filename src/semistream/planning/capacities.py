"""What an operator would have room for, in the sizes of its cost model.

The papers' memory equations count rows; a program holds tables with gaps, work arrays and output under construction.
A plan that is made with the equations and carried out by the operators would speak of two different h_S. So sizes are
taken from where the operators take them: `joins.division.divide`, `WaitingRows.rows_fitting`, the capacity of
`HeldKeys`, the borders of adaptive's sweeps. Nothing is allocated: a plan for a budget of many gigabytes costs as
little as one for a megabyte.

Where MOIJ and SSBJ weigh a row of R against stream rows, the weights are the tables' real ones. A row of R in H_R is
longer than on the disk, by its place in the index; the model knows one length, so it gets the longer one and a disk
that is faster by the same factor.

SSIJ, the partition join and the join of Derakhshan et al. have no model and cannot be planned.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.cost.base import Prediction, Sizes, Workload
from semistream.cost.models import model_of
from semistream.cost.pages import Layout
from semistream.cost.symbols import UnitCosts
from semistream.joins import (
    adaptive,
    at_once,
    balanced_store,
    cachejoin,
    held_keys,
    inlj,
    optimised_x_hybridjoin,
    pcsrj,
    r_meshjoin,
)
from semistream.joins.balanced_store import ENTRIES_MIN, GROWTH
from semistream.joins.base import JoinResources
from semistream.joins.division import WAITING_ROWS_MIN, divide
from semistream.joins.knowledge import absent_bytes, whole_bytes
from semistream.joins.matching import codes_of
from semistream.joins.page_lists import PageLists
from semistream.joins.sweeping import BORDER_STEP, REFILL, SweepDivision
from semistream.joins.tuned_x_hybridjoin import usual_pinned_pages
from semistream.joins.waiting import WaitingRows
from semistream.joins.x_hybridjoin import PINNED_PAGES
from semistream.relations.base import CyclicScan, KeyBatch, PageByKey, Relation
from semistream.relations.partitioned import partitions_of
from semistream.structures.hash_multimap import HashMultimap

Settings = Mapping[str, float]
"""What an operator is built with, by name; what is not named has its usual value."""

BALANCED = ("moij", "ssbj")
"""Algorithms that find their own split between H_S and H_R."""

SCANNING = ("meshjoin", "r-meshjoin")
"""Algorithms whose H_S is divided into cells once and for all."""

BALANCING_ROUNDS = 4
"""Of laying the model's line through the real tables; more move w by a fiftieth at most, as a rule by a thousandth."""

SAMPLED_PAGES = 16
"""Pages that are read to learn how often keys repeat."""

ROWS_PER_STEP = 8192
"""Stream rows that are worked on at once, as in a Spark worker."""


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a join, and what its stream rows take."""

    memory_bytes: int
    stream_row_bytes: int = 20
    """v_S; 20 in the papers."""
    rows_per_step: int = ROWS_PER_STEP

    def resources(self, clock: VirtualClock | None = None) -> JoinResources:
        """The same for an operator, on a virtual clock."""
        budget = MemoryBudget(self.memory_bytes)
        return JoinResources(budget, clock or VirtualClock(), self.rows_per_step, self.stream_row_bytes)


def workload_of(
    relation: Relation,
    room: Room,
    *,
    zipf_exponent: float,
    layout: Layout = "shuffled",
    rows_per_key: float = 1.0,
) -> Workload:
    """The workload of this relation and a stream of this skew."""
    info = relation.info
    return Workload(
        r_rows=max(1, info.row_count),
        zipf_exponent=zipf_exponent,
        rows_per_key=1.0 if info.unique else rows_per_key,
        layout=layout,
        v_r_bytes=max(1.0, info.row_bytes_mean),
        v_s_bytes=max(1, room.stream_row_bytes),
    )


def sampled_rows_per_key(relation: Relation) -> float:
    """Rows that share a key, on average over a few pages; 1 where keys are unique, without reading."""
    if relation.info.unique or not isinstance(relation, CyclicScan) or relation.segment_count == 0:
        return 1.0
    pages = np.unique(np.linspace(0, relation.segment_count - 1, SAMPLED_PAGES).astype(np.int64))
    # Pages never split a key.
    codes = [codes_of(relation.segment(int(page))) for page in pages]
    return sum(map(len, codes)) / sum(len(np.unique(page)) for page in codes)


def sizes_of(
    algorithm: str, relation: Relation, room: Room, settings: Settings | None = None, rows_per_key: float = 1.0
) -> Sizes:
    """How the operator of this name would split the room.

    Raises `BudgetExceeded` where the operator would.
    """
    given, resources = settings or {}, room.resources()
    page_rows = max(1, round(relation.info.row_count / max(1, relation.info.page_count)))
    if algorithm in ("inlj", "adaptive"):
        return _without_waiting(algorithm, relation, room, page_rows, rows_per_key)
    if algorithm == "pcsrj":
        return _of_a_part(relation, room, given, rows_per_key)
    h_r_rows, waiting_bytes = _split(algorithm, relation, resources, given, page_rows, rows_per_key)
    h_s_rows = max(1, WaitingRows.rows_fitting(waiting_bytes, room.stream_row_bytes))
    segments = int(given.get("parts", r_meshjoin.PARTS)) if algorithm == "r-meshjoin" else 1
    if algorithm in SCANNING:
        h_s_rows = _in_whole_cells(h_s_rows, max(1, relation.info.page_count) * segments)
    return Sizes(
        h_s_rows=h_s_rows,
        page_rows=page_rows,
        h_r_rows=h_r_rows,
        segments=segments,
        queue_node_bytes=WaitingRows.bytes_for(h_s_rows) / h_s_rows,
    )


def _in_whole_cells(waiting_rows: int, cells: int) -> int:
    """Of so many rows that could wait, those that do where they wait in cells that all have the same number of rows.

    What is left over stays empty, which is up to half of H_S where a cell has a row or two; where there is less than a
    row a cell, some cells are empty instead.
    """
    return waiting_rows // cells * cells or waiting_rows


def _split(
    algorithm: str, relation: Relation, resources: JoinResources, given: Settings, page_rows: int, rows_per_key: float
) -> tuple[float, int]:
    """Rows of R held in memory, and the bytes that are left for waiting rows."""
    if algorithm in ("x-hybridjoin", "tuned-x-hybridjoin"):
        usual = PINNED_PAGES
        if algorithm == "tuned-x-hybridjoin":
            usual = usual_pinned_pages(relation, resources.budget.limit_bytes)  # type: ignore[arg-type]
        pinned_pages = min(int(given.get("pinned_pages", usual)), relation.info.page_count)
        division = divide(relation, resources, pages_held=1 + pinned_pages)
        return float(pinned_pages * page_rows), division.store_bytes
    division = divide(relation, resources)
    share = {
        "cachejoin": given.get("cache_share", cachejoin.CACHE_SHARE),
        "sscj": given.get("cache_share", cachejoin.CACHE_SHARE),
        "optimised-x-hybridjoin": given.get("pinned_share", optimised_x_hybridjoin.PINNED_SHARE),
    }.get(algorithm, 0.0)
    held_bytes = int(division.store_bytes * share)
    if algorithm in BALANCED:
        entries = _index_entries(0.0, relation, division.store_bytes)
        return 0.0, division.store_bytes - int(entries * entry_bytes(entries))
    return held_rows(relation, held_bytes, rows_per_key), division.store_bytes - held_bytes


def _of_a_part(relation: Relation, room: Room, given: Settings, rows_per_key: float) -> Sizes:
    """PCSRJ: a CACHEJOIN for each part, in an equal share of the memory without the part's inbox."""
    parts: Sequence[Relation] = partitions_of(relation)
    part_bytes = room.memory_bytes // len(parts)
    inbox_row_bytes = pcsrj.INBOX_ROW_BYTES + room.stream_row_bytes
    inbox_rows = max(1, min(room.rows_per_step, int(part_bytes * pcsrj.INBOX_SHARE) // inbox_row_bytes))
    part_room = replace(room, memory_bytes=part_bytes - inbox_rows * inbox_row_bytes)
    # Parts are of about one size; the largest has the least room beside its pages.
    largest = max(parts, key=lambda part: part.info.row_count)
    return replace(sizes_of("cachejoin", largest, part_room, given, rows_per_key), partitions=len(parts))


def _without_waiting(algorithm: str, relation: Relation, room: Room, page_rows: int, rows_per_key: float) -> Sizes:
    """INLJ and adaptive: no row waits past its step."""
    module = {"inlj": inlj, "adaptive": at_once}[algorithm]
    rows = int(room.memory_bytes * module.WORK_SHARE) // module.WORK_BYTES_PER_ROW
    rows_per_step = max(1, min(room.rows_per_step, rows))
    if algorithm == "inlj":
        return Sizes(page_rows=page_rows, rows_per_step=rows_per_step)
    assert isinstance(relation, KeyBatch), "adaptive needs a relation that answers batches of keys"
    division = adaptive.division_of(relation, room.resources())
    page_bytes_max = relation.info.page_bytes_max
    return Sizes(
        page_rows=page_rows,
        h_r_rows=held_rows(relation, remembered_bytes(relation, room), rows_per_key),
        rows_per_step=rows_per_step,
        page_fits=page_bytes_max <= division.batch_bytes,
        sweep_splits=(
            _sweep_splits(relation, room, rows_per_key) if page_bytes_max <= division.between_steps_bytes else ()
        ),
        queue_node_bytes=PageLists.bytes_for(1),
    )


def _sweep_splits(relation: Relation, room: Room, rows_per_key: float) -> tuple[tuple[float, float], ...]:
    """Rows that wait and rows that are remembered, for every place of the border when adaptive sweeps."""
    if not isinstance(relation, PageByKey) or not isinstance(relation, CyclicScan):
        return ()
    division = SweepDivision.of(relation, room.resources())
    if relation.info.page_count < adaptive.SAMPLED_PAGES_MIN or division is None:
        return ()
    lent_bytes = absent_bytes(remembering_bytes(relation, room))
    most_bytes = remembered_bytes(relation, room) - lent_bytes
    splits: dict[tuple[float, float], None] = {}
    for border in range(round(1 / BORDER_STEP) + 1):
        held_bytes = min(int(border * BORDER_STEP * division.store_bytes), most_bytes)
        waiting_rows = PageLists.rows_fitting(division.store_bytes - held_bytes, room.stream_row_bytes)
        if waiting_rows >= WAITING_ROWS_MIN:
            # Rows come again when one of so many parts is free, so half of it is empty on average.
            held = held_rows(relation, held_bytes + lent_bytes, rows_per_key)
            splits[waiting_rows * (1 - 0.5 / REFILL), held] = None
    return tuple(splits)


def remembering_bytes(relation: Relation, room: Room) -> int:
    """What `adaptive` has for remembering, hints included."""
    assert isinstance(relation, KeyBatch), "adaptive needs a relation that answers batches of keys"
    return adaptive.remembering_bytes(relation, room.resources())


def remembered_bytes(relation: Relation, room: Room) -> int:
    """What `adaptive` gives to the rows it remembers, as long as no key is absent."""
    assert isinstance(relation, KeyBatch), "adaptive needs a relation that answers batches of keys"
    rows_bytes = adaptive.remembered_bytes(relation, room.resources())
    return max(0, min(rows_bytes, whole_bytes(relation))) + absent_bytes(remembering_bytes(relation, room))


def held_rows(relation: Relation, held_bytes: int, rows_per_key: float = 1.0) -> float:
    """Rows of R that H_R holds in so many bytes: whole keys, with their index."""
    if held_bytes <= 0:
        return 0.0
    row_bytes = max(1.0, relation.info.row_bytes_mean)
    most = held_keys.most_entries(held_bytes, row_bytes)
    keys = float(most)
    if rows_per_key > 1 and most:
        keys = min(keys, (held_bytes - most * entry_bytes(most)) / (row_bytes * rows_per_key))
    return min(keys * rows_per_key, float(relation.info.row_count))


def entry_bytes(keys: int) -> float:
    """What a key takes in H_R beside its rows, when there are so many."""
    return HashMultimap.bytes_for(keys) / keys + held_keys.ENTRY_BYTES


def predict_for(
    algorithm: str,
    relation: Relation,
    room: Room,
    workload: Workload,
    unit_costs: UnitCosts,
    settings: Settings | None = None,
) -> Prediction:
    """What the model says of the operator with this room and these settings."""
    sizes = sizes_of(algorithm, relation, room, settings, workload.rows_per_key)
    if algorithm in BALANCED:
        return _balanced(algorithm, relation, room, workload, unit_costs, sizes)
    return model_of(algorithm).predict(workload, sizes, unit_costs)


def _balanced(
    algorithm: str, relation: Relation, room: Room, workload: Workload, unit_costs: UnitCosts, sizes: Sizes
) -> Prediction:
    """What the model says when its rows have the weights that they have in the real tables.

    The index of H_R grows in steps, and H_S leaves something free for the next keys, so the rows that a cached key
    costs depend on how many are cached. The model knows a straight line: that through the point it comes to rest at.
    """
    keys = rows_leaving = 0.0
    for _ in range(BALANCING_ROUNDS):
        weighed = _weighed_at(relation, room, workload, unit_costs, sizes, keys, rows_leaving)
        told = model_of(algorithm).predict(*weighed)
        rows_leaving = told.w_s
        # Half of the way: the index grows in steps, and the whole of it would swing about one.
        keys = (keys + told.remembered_rows / workload.rows_per_key) / 2.0
    return told


def _weighed_at(
    relation: Relation,
    room: Room,
    workload: Workload,
    unit_costs: UnitCosts,
    sizes: Sizes,
    keys: float,
    rows_leaving: float,
) -> tuple[Workload, Sizes, UnitCosts]:
    """The same with the weights that rows have when so many keys are cached, and a disk that does not notice."""
    store_bytes = divide(relation, room.resources()).store_bytes
    entries = _index_entries(keys, relation, store_bytes)
    held_bytes = keys * workload.rows_per_key * relation.info.row_bytes_mean + entries * entry_bytes(entries)
    # H_S gives up the rows that leave in an iteration, or its slack if that is less; keys that come use it up.
    given_up_bytes = min(balanced_store.SLACK * store_bytes, rows_leaving * sizes.waiting_row_bytes(workload))
    fitting = _waiting_beside(held_bytes, given_up_bytes / 2.0, int(sizes.h_s_rows), store_bytes, room)
    v_r_bytes = workload.v_r_bytes + entry_bytes(entries) / workload.rows_per_key
    pace = unit_costs.io.bytes_per_s * v_r_bytes / workload.v_r_bytes
    weighed = replace(sizes, queue_node_bytes=WaitingRows.bytes_for(fitting) / fitting)
    # The line through this point, from where nothing is cached.
    displaced_rows = keys * workload.rows_per_key * v_r_bytes / weighed.waiting_row_bytes(workload)
    return (
        replace(workload, v_r_bytes=v_r_bytes),
        replace(weighed, h_s_rows=fitting + displaced_rows),
        replace(unit_costs, io=replace(unit_costs.io, bytes_per_s=pace)),
    )


def _waiting_beside(held_bytes: float, free_bytes: float, at_first_rows: int, store_bytes: int, room: Room) -> int:
    """Rows that H_S has room for beside an H_R of so many bytes; H_S leaves some free once it has made room."""
    at_first_bytes = WaitingRows.bytes_for(at_first_rows) + at_first_rows * room.stream_row_bytes
    if at_first_bytes + held_bytes <= store_bytes:
        return at_first_rows
    return max(1, WaitingRows.rows_fitting(int(store_bytes - held_bytes - free_bytes), room.stream_row_bytes))


def _index_entries(keys: float, relation: Relation, store_bytes: int) -> int:
    """Keys for which H_R has an index when it has grown, step by step, to hold so many."""
    entries = max(1, min(ENTRIES_MIN, held_keys.most_entries(store_bytes, max(1.0, relation.info.row_bytes_mean))))
    while entries < keys:
        entries = max(entries + 1, int(GROWTH * entries))
    return entries
