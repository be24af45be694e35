"""What an operator counted, in seconds."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.cost.symbols import CPU_SYMBOLS, IoProfile, UnitCosts
from semistream.joins.base import JoinResources, JoinStats
from semistream.joins.registry import ALGORITHMS
from semistream.joins.timed import run_timed
from semistream.planning.charging import charge_of, io_of, typical
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, NVME

pytestmark = pytest.mark.long


PRICES = UnitCosts(**{symbol: 10.0**-place for place, symbol in enumerate(CPU_SYMBOLS)}, io=IoProfile(1.0, 1.0))
"""A decimal place for each symbol: a sum shows what was counted."""


def test_every_counter_with_a_price_is_charged_once() -> None:
    before = JoinStats(**{field.name: 100 for field in fields(JoinStats)})
    after = JoinStats(**{field.name: 100 for field in fields(JoinStats)})
    after.stream_probes += 1
    after.disk_probes += 2
    after.outputs += 4
    after.left += 5
    after.rows += 6
    after.waited += 7
    after.frequency_tests += 8
    after.inequality_tests += 9
    after.eviction_tests += 1
    after.lettings += 1  # has no price of any paper
    assert charge_of(PRICES)(before, after) == pytest.approx(3.4567891, abs=1e-12)


def test_reads_are_not_charged_because_the_relation_charges_them() -> None:
    assert charge_of(PRICES)(JoinStats(), JoinStats(reads=7, keys_read=7, rows_read=700, hits=3)) == 0


def test_the_charges_of_a_run_add_up_to_its_counts() -> None:
    clock = VirtualClock()
    relation = MemoryRelation.from_table(pa.table({"k": np.arange(1000), "v": np.arange(1000)}), ["k"], page_rows=50)
    join = ALGORITHMS["moij"].build(relation, JoinResources(MemoryBudget(1 << 20), clock, 1000, 20))
    costs = typical(NVME)
    codes = np.random.default_rng(1).integers(0, 1000, 20_000)
    run_timed(join, codes, np.zeros(len(codes)), clock, charge_of(costs))
    assert clock.now_s() == pytest.approx(charge_of(costs)(JoinStats(), join.stats))
    assert join.stats.left > 0
    assert join.stats.disk_probes > 0


def test_a_device_is_the_same_for_the_meter_and_for_the_model() -> None:
    assert io_of(HDD).read_s(5000, sequential=False) == HDD.random_s(5000)
    assert io_of(HDD).read_s(5000, sequential=True) == HDD.sequential_s(5000)
