"""No index: every probe looks at the whole window. The best where probes are rare and rows many."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.structures.window_state import KIND, SCAN, Int64s


@dataclass(frozen=True, slots=True)
class ScanIndex:
    """The ring itself."""

    name: str = "scan"
    kind: int = SCAN
    serves_ranges: bool = True
    is_sorted: bool = False

    def words_for(self, rows_max: int) -> int:
        """None."""
        return 0

    def refs_for(self, rows_max: int) -> int:
        """None."""
        return 0

    def describe(self, state: Int64s, side: int, rows_max: int) -> None:
        """Only say that there is none."""
        state[side + KIND] = self.kind
