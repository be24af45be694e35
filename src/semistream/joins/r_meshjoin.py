"""R-MESHJOIN: MESHJOIN whose disk buffer may be of any size, whatever the number of queue cells.

Paper: Naeem, Dobbie, Weber, Alam. R-MESHJOIN for near-real-time data warehousing. DOLAP 2010.
Reads:     the next segment of a cyclic scan, and works through it in `parts` logical parts.
Remembers: nothing.
Waits:     every row for as many iterations as R has parts.

In MESHJOIN a row is admitted once a segment, so a large segment, which the disk likes, means few and large cells. Here
rows are admitted and expired at every part of the segment in the disk buffer.

Assumes what MESHJOIN assumes, which is nothing: no index, no order, no skew. It gains where a large read is cheaper
than several small ones, and nothing where a scan costs no more than its bytes.

Memory: M = b·v_P + w·v_S + w·l·(N_R/b)·(pointer + f·v_S), with l parts a segment; l = 1 is MESHJOIN. The printed
equation was not at hand, and this one is derived from MESHJOIN's.

Deviates: what MESHJOIN deviates in. The disk buffer is one segment of the store, so that a file can be read as it lies:
b is chosen when the relation is built, and l is `PARTS` unless told otherwise. Parts have about the same number of
keys, not of rows, so that none splits a key.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise

import numpy as np

from semistream.joins.base import JoinResources
from semistream.joins.disk_probing import Page
from semistream.joins.meshjoin import MeshJoin
from semistream.relations.base import CyclicScan

PARTS = 4
"""Logical parts of a segment, unless told otherwise."""


class ReducedMeshJoin(MeshJoin):
    """R-MESHJOIN: one read serves several iterations."""

    def __init__(self, relation: CyclicScan, resources: JoinResources, *, parts: int = PARTS) -> None:
        super().__init__(relation, resources)
        self._parts_per_segment = parts
        self._parts: deque[Page] = deque()

    @property
    def iterations_per_round(self) -> int:
        """Iterations until all of R has passed by."""
        return self._relation.segment_count * self._parts_per_segment

    def _next_segment(self) -> Page:
        if not self._parts and self._relation.segment_count:
            segment = self.read_segment()
            ends = np.linspace(0, len(segment.codes), self._parts_per_segment + 1).astype(np.int64)
            self._parts += (segment.part(int(begin), int(end)) for begin, end in pairwise(ends))
        return self._parts.popleft() if self._parts else super()._next_segment()

    def forget(self) -> None:
        """Drop the parts of the segment that was read last, and begin anew."""
        super().forget()
        self._parts.clear()
