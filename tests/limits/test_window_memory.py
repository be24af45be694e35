"""A window join stays within its budget, by its accounts and seen from outside, whatever the windows and indexes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from semistream.budget import KIB, MIB, MemoryBudget
from semistream.window.join import INDEX_NAMES, WindowJoin
from semistream.window.pieces import Arrivals
from semistream.window.windows import Window, arrivals, rows, seconds
from tests.support.processes import run_script

pytestmark = pytest.mark.long

GROWTH_SCRIPT = Path(__file__).parent / "window_growth.py"


def any_piece(rng: np.random.Generator, count: int, first_us: int) -> Arrivals:
    key = rng.integers(0, 50_000, count)
    return Arrivals(
        (rng.random(count) < 0.7).astype(np.int8), key, key, key, rng.random(count) < 0.95, first_us + np.arange(count)
    )


@pytest.mark.parametrize("window_b", [rows(20_000), arrivals(60_000), seconds(0.03)])
@pytest.mark.parametrize("index", INDEX_NAMES[1:])
def test_the_accounts_never_pass_the_budget_and_hold_what_is_held(index: str, window_b: Window) -> None:
    budget = MemoryBudget(300 * KIB)
    join = WindowJoin(seconds(0.05), window_b, index_a=index, index_b=index, budget=budget)
    rng = np.random.default_rng(11)
    for begin in range(0, 120_000, 20_000):
        for _ in join.push(any_piece(rng, 20_000, begin)):
            assert budget.used_bytes <= budget.limit_bytes
        if begin == 60_000:
            join.change_indexes(*rng.choice(INDEX_NAMES, 2))
    assert budget.peak_bytes <= budget.limit_bytes
    assert sum(join.held_bytes) >= 25 * join.held_rows[0] + 17 * join.held_rows[1]
    assert join.counts[0].rows_shed + join.counts[1].rows_shed > 0
    # Shedding uses the memory: at least a half of it is taken.
    assert sum(join.held_bytes) > budget.limit_bytes / 2


@pytest.mark.parametrize("index", INDEX_NAMES[1:])
def test_a_process_grows_by_no_more_than_the_budget(index: str, tmp_path: Path) -> None:
    budget_bytes = 16 * MIB
    seen = run_script(GROWTH_SCRIPT, index, budget_bytes, log=tmp_path / "growth.log")
    assert 0.8 * budget_bytes < seen["counted_bytes"] <= budget_bytes
    # A piece of the stream, and what NumPy makes of it, is not the join's.
    assert seen["growth_bytes"] <= budget_bytes + 2 * MIB
