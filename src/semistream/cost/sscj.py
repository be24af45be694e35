"""SSCJ, the semi-stream cache join: CACHEJOIN with a frequency recorder that has a place in the memory equation.

Naeem, Weber, Dobbie, Lutteroth: SSCJ: a semi-stream cache join using a front-stage cache module. Its
Equations 1 to 3 are CACHEJOIN's (see there for symbols and for w_N and w_S), apart from memory:

    M = d v_R + h_R v_R + 8 h_R + alpha (..) + (1 - alpha)(..),   the rest being M - d v_R - h_R v_R - 8 h_R

| symbol | name here   | unit | meaning                 |
|--------|-------------|------|-------------------------|
| d      | `page_rows` | rows | disk buffer             |
| 8 h_R  | `frequency recorder` | bytes | a counter for each cached row |
"""

from __future__ import annotations

from dataclasses import replace

from semistream.cost import cachejoin
from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload
from semistream.cost.symbols import UnitCosts

RECORDER_BYTES_PER_ROW = 8.0
"""The paper's: a counter per row of H_R."""


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Equation 1."""
    recorder_bytes = RECORDER_BYTES_PER_ROW * sizes.h_r_rows
    return {"frequency recorder": recorder_bytes, **cachejoin.memory_bytes(workload, sizes)}


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """CACHEJOIN's loop in SSCJ's memory."""
    return replace(cachejoin.predict(workload, sizes, unit_costs), memory_bytes=memory_bytes(workload, sizes))
