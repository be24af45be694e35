"""The operations that calibration times are real: each does what it says, as often as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from semistream.clock import CpuClock, RealClock, VirtualClock
from semistream.cost.symbols import CPU_SYMBOLS
from semistream.planning.measuring import LET_IN_KEYS, PAGE_ROWS, _Tables, calibrate_here, letting_s, operations

pytestmark = pytest.mark.long


def test_there_is_an_operation_for_every_symbol() -> None:
    assert set(operations()) == set(CPU_SYMBOLS)


@pytest.mark.parametrize("symbol", CPU_SYMBOLS)
def test_an_operation_can_be_repeated_and_tells_how_much_it_did(symbol: str) -> None:
    operation = operations()[symbol]
    once, _ = operation(1, VirtualClock())
    assert once >= PAGE_ROWS
    for repeat in (3, 200):
        done, seconds = operation(repeat, VirtualClock())
        assert repeat * once <= done <= 2 * repeat * once
        assert seconds == 0


def test_keys_are_let_into_a_full_table_that_makes_room_for_them() -> None:
    tables = _Tables()
    held, before = tables._held, len(tables._held)
    assert tables.let_in(1000, VirtualClock()) == (1000.0, 0.0)
    assert len(held) - before == 1000 * LET_IN_KEYS - held.evicted
    assert held.evicted > 0
    assert letting_s(CpuClock()) > 0


def test_this_machine_is_measured_with_intervals(tmp_path: Path) -> None:
    found = calibrate_here(RealClock(), tmp_path)
    for symbol in CPU_SYMBOLS:
        measured = found.operations[symbol]
        assert 0 < measured.low_s <= measured.median_s <= measured.high_s
    assert found.unit_costs.io.bytes_per_s > 0
    assert list(tmp_path.iterdir()) == []
