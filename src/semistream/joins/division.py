"""How the papers' algorithms divide a memory budget.

The papers speak of four holders: the disk buffer, H_S with its queue, H_R, and a stream buffer too small to count. A
program holds a little more: the pairs of a step, what it takes to look a page up, and the output under construction.
All of that is set aside here, once, in proportion to what the budget allows; what is left, `store_bytes`, is the M of
the papers without its disk buffer, and the algorithm divides it between rows that wait and rows that are remembered.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.budget import MIB, format_bytes
from semistream.errors import BudgetExceeded
from semistream.joins.base import JoinResources
from semistream.joins.matching import PAIR_BYTES
from semistream.joins.waiting import WaitingRows
from semistream.relations.base import Relation, RelationInfo
from semistream.structures.row_arena import fixed_bytes_per_row

WORK_BYTES_PER_ROW = 160
"""Arrays of a step per stream row: numbers, codes, what probing found, and the rows a page has answered."""

WORK_BYTES_PER_PAGE_ROW = 64
"""What looking up a page takes for each of its rows: distinct codes, their ranges, how many rows wait for them."""

WORK_SHARE, PAIRS_SHARE, OUTPUT_SHARE = 1 / 16, 1 / 16, 1 / 8
"""Upper bounds, as shares of the budget, that matter when it is small."""

OUTPUT_BYTES = 4 * MIB
"""Enough for output of any usual Arrow batch; more would only be taken from the rows."""

PAIRS_PER_ROW = 2
"""Pairs a step may build for each row it may work on."""

ARRAY_SLACK_BYTES = 64
"""What an Arrow column may have beyond its rows: a last offset, the rest of a byte of validity."""

OUTPUT_SLACK = 1.25
"""Arrow batches are a little larger than the sum of their rows: offsets, validity, padding."""

WAITING_ROWS_MIN = 16
"""Fewer rows than this cannot share a page worth speaking of."""


@dataclass(frozen=True, slots=True)
class Division:
    """The most that each use may take."""

    rows_per_step: int
    pairs_max: int
    disk_bytes: int
    """The page in the disk buffer, and looking it up."""
    output_bytes_max: int
    store_bytes: int
    """For rows that wait and rows that are remembered."""


def divide(relation: Relation, resources: JoinResources, *, pages_held: int = 1) -> Division:
    """Divide a budget for an algorithm that holds so many pages of the relation at once."""
    info, limit = relation.info, resources.budget.limit_bytes
    rows = max(1, min(resources.rows_per_step, int(limit * WORK_SHARE) // WORK_BYTES_PER_ROW))
    pairs_max = max(1, min(int(limit * PAIRS_SHARE) // PAIR_BYTES, rows * PAIRS_PER_ROW))
    output_bytes_max = output_bytes_within(limit, info)
    disk_bytes = pages_held * disk_buffer_bytes(relation)
    taken = rows * WORK_BYTES_PER_ROW + pairs_max * PAIR_BYTES + int(OUTPUT_SLACK * output_bytes_max) + disk_bytes
    store_bytes = limit - taken
    needed = WaitingRows.bytes_for(WAITING_ROWS_MIN) + WAITING_ROWS_MIN * resources.stream_row_bytes
    if store_bytes < needed:
        raise BudgetExceeded(
            f"the memory is too small for a page of relation {info.name!r} and some rows that wait",
            given=f"{limit} bytes, for pages of up to {format_bytes(info.page_bytes_max)}",
            allowed=f"at least {least_memory_bytes(relation, resources.stream_row_bytes, pages_held)} bytes",
            hint="raise `memory`, select fewer columns of the relation, or build it with smaller pages",
        )
    return Division(rows, pairs_max, disk_bytes, output_bytes_max, store_bytes)


def output_bytes_within(limit_bytes: int, info: RelationInfo) -> int:
    """What is left free for output under construction where it is put out in pieces."""
    return max(2 * (info.row_bytes_max + 64), min(int(limit_bytes * OUTPUT_SHARE), OUTPUT_BYTES))


def hold_for_steps(relation: Relation, resources: JoinResources, division: Division) -> None:
    """Set aside what steps take, for good: rows that wait must leave it alone, or no step could ever let them go."""
    budget = resources.budget
    budget.account("rows of a step").hold(division.rows_per_step * WORK_BYTES_PER_ROW)
    budget.account("pairs").hold(division.pairs_max * PAIR_BYTES)
    budget.account("disk buffer").hold(disk_buffer_bytes(relation))


def waiting_rows_within(bytes_max: int, resources: JoinResources) -> WaitingRows:
    """H_S and Q for as many stream rows as can wait in so many bytes, their columns included."""
    rows_max = max(1, WaitingRows.rows_fitting(bytes_max, resources.stream_row_bytes))
    waiting = WaitingRows(rows_max)
    resources.budget.account("waiting rows").hold(waiting.nbytes)
    return waiting


def disk_buffer_bytes(relation: Relation) -> int:
    """What a page takes in the disk buffer, with all it needs to be looked up."""
    info = relation.info
    page_rows_max = min(info.row_count, info.page_bytes_max // fixed_bytes_per_row(relation.schema) + 1)
    slack_bytes = ARRAY_SLACK_BYTES * len(relation.schema)
    return info.page_bytes_max + slack_bytes + page_rows_max * WORK_BYTES_PER_PAGE_ROW


def least_memory_bytes(relation: Relation, stream_row_bytes: int, pages_held: int = 1) -> int:
    """The smallest budget with which `divide` is content."""
    info = relation.info
    fixed = WaitingRows.bytes_for(WAITING_ROWS_MIN) + WAITING_ROWS_MIN * stream_row_bytes
    fixed += pages_held * disk_buffer_bytes(relation) + int(OUTPUT_SLACK * 2 * (info.row_bytes_max + 64))
    fixed += WORK_BYTES_PER_ROW + PAIR_BYTES
    # At worst all shares are used in full.
    return int(fixed / (1 - WORK_SHARE - PAIRS_SHARE - OUTPUT_SLACK * OUTPUT_SHARE)) + 1
