"""MESHJOIN: R is scanned for ever; every row waits until all of R has passed by.

Paper: Polyzotis, Skiadopoulos, Vassiliadis, Simitsis, Frantzell. Meshing streaming updates with persistent data in an
active data warehouse. TKDE 20(7), 2008.
Reads:     the next segment of a cyclic scan.
Remembers: nothing.
Waits:     every row for as many iterations as R has segments.

Assumes nothing: no index, no order, no skew. Therefore it gains nothing from skew either, and its rate falls with the
size of R.

Memory: M = b·v_P + w·v_S + w·(N_R/b)·(pointer + f·v_S): H_S has a cell of w rows for each of the N_R/b segments.

Deviates: expiry removes exactly the rows of the oldest cell. The published prototype removes by key, and with it rows
that have not met all of R.
"""

from __future__ import annotations

from semistream.joins.base import JoinResources
from semistream.joins.division import divide, waiting_rows_within
from semistream.joins.scan_probing import ScanProbingJoin
from semistream.relations.base import CyclicScan


class MeshJoin(ScanProbingJoin):
    """MESHJOIN: all memory is for rows that wait for the whole scan."""

    def __init__(self, relation: CyclicScan, resources: JoinResources) -> None:
        division = divide(relation, resources)
        waiting = waiting_rows_within(division.store_bytes, resources)
        super().__init__(relation, resources, division, waiting)
