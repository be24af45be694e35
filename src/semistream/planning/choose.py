"""Which algorithm for this relation, memory, arrival rate and skew, with the bill of every alternative.

Every algorithm that has a cost model and can read the relation is asked what it would do with the memory, split as the
operator would split it (`planning.capacities`) and, where there is a choice, split as the model likes best
(`planning.settings`). The bill is what a user pays and gets: rows a second, bytes, the share of the stream that memory
answers, reads for each stream row.

The fastest is chosen. If several keep up with the arrival rate by `MARGIN`, more speed is worth nothing, and the one
that lets rows wait the shortest is chosen; after that, the one that reads the least. adaptive has two ways, and is
billed for the one that is better in this sense. A relation that an algorithm cannot
read, keys that repeat where they must not, too little memory: each gives a line with the reason instead of a bill.

Not predicted: SSIJ, the partition join and the join of Derakhshan et al., which were published without a cost model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from semistream.budget import format_bytes
from semistream.cost import adaptive
from semistream.cost.base import Prediction, Workload
from semistream.cost.models import MODELS
from semistream.cost.symbols import UnitCosts
from semistream.errors import BudgetExceeded, InvalidOption
from semistream.joins.registry import ALGORITHMS, Algorithm, Needs
from semistream.planning.capacities import Room, Settings, predict_for, sizes_of
from semistream.planning.settings import best_setting
from semistream.relations.base import CyclicScan, KeyBatch, PageByKey, Relation

MARGIN = 1.25
"""How much faster than the stream an algorithm must be to count as keeping up: rates vary, and models err by 10 %."""

NO_MODEL = "it was published without a cost model"


@dataclass(frozen=True, slots=True)
class Bill:
    """What one algorithm would make of the memory, or why it cannot."""

    algorithm: str
    refused: str | None = None
    """Why it cannot be used or predicted; everything else is then 0."""
    settings: dict[str, float] | None = None
    """The best split, where there is a choice."""
    service_rows_per_s: float = 0.0
    memory_bytes: float = 0.0
    """What rows take that wait, are remembered or are being read; the rest of the memory is for work and output."""
    hit_share: float = 0.0
    reads_per_row: float = 0.0
    waiting_rows: float = 0.0
    """Stream rows that wait when the stream is as fast as the join."""
    wait_s: float = 0.0
    """How long they wait then, on average; shorter when the stream is slower."""
    keeps_up: bool | None = None
    """With the arrival rate and a margin; None, which is not known, where no rate was given."""


@dataclass(frozen=True)
class Choice:
    """The algorithm to use, and what all of them cost."""

    chosen: Bill
    bills: list[Bill]
    """Fastest first, those that were refused last."""
    arrival_rows_per_s: float | None
    """None where the stream is taken to be as fast as the join."""

    def as_json(self) -> dict[str, Any]:
        """For one line of JSON."""
        return asdict(self)

    def as_text(self) -> str:
        """A table with a line for each algorithm."""
        lines = [
            f"{'algorithm':<24} {'rows/s':>12} {'memory':>10} {'hits':>6} {'reads/row':>10} {'waiting':>9}"
            f" {'for ms':>8}  keeps up"
        ]
        for bill in self.bills:
            if bill.refused is not None:
                lines.append(f"{bill.algorithm:<24} {bill.refused}")
                continue
            mark = "  <- chosen" if bill == self.chosen else ""
            verdict = "-" if self.arrival_rows_per_s is None else "yes" if bill.keeps_up else "no"
            lines.append(
                f"{bill.algorithm:<24} {bill.service_rows_per_s:>12,.0f} {format_bytes(bill.memory_bytes):>10}"
                f" {bill.hit_share:>6.1%} {bill.reads_per_row:>10.4f} {bill.waiting_rows:>9,.0f}"
                f" {1e3 * bill.wait_s:>8,.1f}  {verdict}{mark}"
            )
        return "\n".join(lines)


def choose(
    relation: Relation,
    room: Room,
    workload: Workload,
    unit_costs: UnitCosts,
    arrival_rows_per_s: float | None = None,
) -> Choice:
    """Ask every model, and choose."""
    bills = [bill_of(one, relation, room, workload, unit_costs, arrival_rows_per_s) for one in ALGORITHMS.values()]
    possible = [bill for bill in bills if bill.refused is None]
    if not possible:
        reasons = "; ".join(f"{bill.algorithm}: {bill.refused}" for bill in bills)
        raise InvalidOption(
            f"no algorithm can join relation {relation.info.name!r} in this memory",
            given=f"{format_bytes(room.memory_bytes)}; {reasons}",
            hint="raise `memory`, or build the relation with smaller pages",
        )
    enough = [bill for bill in possible if bill.keeps_up]
    if enough:
        chosen = min(enough, key=lambda bill: (bill.wait_s, bill.reads_per_row))
    else:
        chosen = max(possible, key=lambda bill: bill.service_rows_per_s)
    ordered = sorted(bills, key=lambda bill: (bill.refused is not None, -bill.service_rows_per_s))
    return Choice(chosen, ordered, arrival_rows_per_s)


def bill_of(
    algorithm: Algorithm,
    relation: Relation,
    room: Room,
    workload: Workload,
    unit_costs: UnitCosts,
    arrival_rows_per_s: float | None,
) -> Bill:
    """What this algorithm would do, at its best split."""
    wanted_rows_per_s = None if arrival_rows_per_s is None else MARGIN * arrival_rows_per_s
    keeps_up_if_refused = None if wanted_rows_per_s is None else False
    refused = refusal(algorithm, relation, room) or _without_keys(algorithm, relation, workload)
    if refused is not None:
        return Bill(algorithm.name, refused, keeps_up=keeps_up_if_refused)
    ask = _asking(algorithm.name, relation, room, workload, unit_costs)
    settings = best_setting(algorithm.name, relation, room, lambda given: _rate(ask(given)))
    told = ask(settings)
    if told is None:
        too_little = f"{format_bytes(room.memory_bytes)} are too little for it"
        return Bill(algorithm.name, too_little, keeps_up=keeps_up_if_refused)
    if algorithm.name == "adaptive" and wanted_rows_per_s is not None:
        at_once = adaptive.predict_at_once(
            workload, sizes_of(algorithm.name, relation, room, settings, workload.rows_per_key), unit_costs
        )
        told = at_once if at_once.keeps_up(wanted_rows_per_s) else told
    rows = told.w_n + told.w_s
    return Bill(
        algorithm.name,
        settings=dict(settings),
        service_rows_per_s=told.mu_rows_per_s,
        memory_bytes=min(told.memory_total_bytes, float(room.memory_bytes)),
        hit_share=told.hit_share,
        reads_per_row=told.counts.pages_read / rows,
        waiting_rows=told.waiting_rows,
        wait_s=told.waiting_rows / told.mu_rows_per_s,
        keeps_up=None if wanted_rows_per_s is None else told.keeps_up(wanted_rows_per_s),
    )


def _asking(
    name: str, relation: Relation, room: Room, workload: Workload, unit_costs: UnitCosts
) -> Callable[[Settings], Prediction | None]:
    def ask(settings: Settings) -> Prediction | None:
        try:
            return predict_for(name, relation, room, workload, unit_costs, settings)
        except BudgetExceeded:
            return None

    return ask


def _rate(told: Prediction | None) -> float:
    return told.mu_rows_per_s if told is not None else 0.0


def _without_keys(algorithm: Algorithm, relation: Relation, workload: Workload) -> str | None:
    """Why a model has nothing to say of partitions, some of which are empty."""
    if algorithm.name == "pcsrj" and workload.keys < relation.info.partition_count:
        return f"its model needs a key in each of the {relation.info.partition_count} partitions"
    return None


def refusal(algorithm: Algorithm, relation: Relation, room: Room) -> str | None:
    """Why this algorithm is out of the question; None when it is not."""
    ways: dict[Needs, tuple[type, str]] = {
        "keys": (KeyBatch, "batches of keys"),
        "index": (PageByKey, "the page of a key"),
        "scan": (CyclicScan, "scans"),
    }
    way, words = ways[algorithm.needs]
    if algorithm.name not in MODELS:
        return NO_MODEL
    if not isinstance(relation, way):
        return f"the relation cannot be read by {words}"
    if not (algorithm.many_to_many or relation.info.unique):
        return "keys of the relation repeat"
    least = algorithm.least_memory_bytes(relation, room.stream_row_bytes)
    if room.memory_bytes < least:
        return f"it needs {format_bytes(least)} at least"
    return None
