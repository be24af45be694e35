"""What a model counts in an iteration, beside what its operator counts: pages, probes, outputs, deletions, tests.

Rates are made of these counts, so a model whose rate is right by chance, because two counts are wrong, is found here.
MESHJOIN's and R-MESHJOIN's models are exact: over whole scans their counts are equal. The others speak of means over a
random stream; each count must be within a tenth.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.clock import VirtualClock
from semistream.cost.base import Prediction
from semistream.cost.models import MODELS
from semistream.cost.pages import Layout
from semistream.joins.base import JoinStats, SemiStreamJoin
from semistream.joins.registry import ALGORITHMS
from semistream.joins.timed import run_timed
from semistream.planning.capacities import Room, predict_for, workload_of
from semistream.planning.charging import charge_of, typical
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, MeteredRelation
from tests.cost.test_models_beside_operators import BY_ITSELF, KEYS, MEMORY_BYTES, PAGE_ROWS, stream

pytestmark = pytest.mark.long

EXACT = {"meshjoin", "r-meshjoin"}
ROWS = 120_000
WARM_UP_SHARE, END_SHARE = 0.5, 0.95

NAMES = {
    "pages_read": ("reads",),
    "probes": ("stream_probes", "disk_probes"),
    "outputs": ("outputs",),
    "deletions": ("left",),
    "appends": ("waited",),
    "frequency_tests": ("frequency_tests",),
    "inequality_tests": ("inequality_tests",),
    "eviction_tests": ("eviction_tests",),
}
"""A model's count, and what of an operator's it is."""


def told_and_counted(algorithm: str, layout: Layout) -> tuple[Prediction, list[JoinStats]]:
    """What the model says, and the operator's counters after every step."""
    table = pa.table({"k": np.arange(KEYS), "text": np.full(KEYS, "x" * 80)})
    relation = MemoryRelation.from_table(table, ["k"], page_rows=PAGE_ROWS)
    room, clock, unit_costs = Room(MEMORY_BYTES), VirtualClock(), typical(HDD)
    workload = workload_of(relation, room, zipf_exponent=1.0, layout=layout)
    told = predict_for(algorithm, relation, room, workload, unit_costs)
    join: SemiStreamJoin = ALGORITHMS[algorithm].build(MeteredRelation(relation, HDD, clock), room.resources(clock))
    counted: list[JoinStats] = []
    codes, charge = stream(1.0, layout, ROWS), charge_of(unit_costs)
    run_timed(join, codes, np.zeros(ROWS), clock, charge, lambda _: counted.append(join.stats.copy()))
    return told, counted


def between(counted: list[JoinStats], page_count: int) -> dict[str, float]:
    """The counts of an iteration, over whole rounds of R behind the warm-up."""
    begin = next(stats for stats in counted if stats.rows >= WARM_UP_SHARE * ROWS)
    late = next(stats for stats in counted if stats.rows >= END_SHARE * ROWS)
    rounds = (late.iterations - begin.iterations) // page_count
    last = begin.iterations + rounds * page_count if rounds else late.iterations
    end = next(stats for stats in counted if stats.iterations >= last)
    iterations = end.iterations - begin.iterations
    return {
        count: sum(getattr(end, name) - getattr(begin, name) for name in names) / iterations
        for count, names in NAMES.items()
    }


@pytest.mark.parametrize("layout", ["frequency", "shuffled"])
@pytest.mark.parametrize("algorithm", sorted(set(MODELS) - BY_ITSELF))
def test_an_operator_counts_what_its_model_counts(algorithm: str, layout: Layout) -> None:
    told, counted = told_and_counted(algorithm, layout)
    found = between(counted, KEYS // PAGE_ROWS)
    said = {count: float(getattr(told.counts, count)) for count in NAMES}
    print(f"{algorithm}, {layout}: " + ", ".join(f"{c} {found[c]:.2f} ({said[c]:.2f})" for c in NAMES if said[c]))
    for count in NAMES:
        exact = algorithm in EXACT and count != "outputs"
        assert found[count] == pytest.approx(said[count], rel=1e-9 if exact else 0.1), count
