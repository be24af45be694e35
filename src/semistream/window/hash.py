"""A hash table with chains in the order of arrival. The best for equality unless one stream is much the faster."""

from __future__ import annotations

from dataclasses import dataclass

from semistream.structures.window_hash import refs_for
from semistream.structures.window_state import BUCKETS, HASH, KIND, Int64s


@dataclass(frozen=True, slots=True)
class HashIndex:
    """Buckets with about `bucket_rows` rows each when the window is full."""

    bucket_rows: int
    name: str = "hash"
    kind: int = HASH
    serves_ranges: bool = False
    is_sorted: bool = False

    def _buckets(self, rows_max: int) -> int:
        return -(-rows_max // self.bucket_rows)

    def words_for(self, rows_max: int) -> int:
        """None: codes are read where they lie in the ring."""
        return 0

    def refs_for(self, rows_max: int) -> int:
        """A link for each row and the newest row of each bucket."""
        return refs_for(rows_max, self._buckets(rows_max))

    def describe(self, state: Int64s, side: int, rows_max: int) -> None:
        """Set the number of buckets."""
        state[side + KIND] = self.kind
        state[side + BUCKETS] = self._buckets(rows_max)
