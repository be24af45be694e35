"""Adding up what Spark and the join report of every micro-batch.

Two witnesses speak in each progress report. Spark says how many rows its source delivered and, in `observedMetrics`,
how many it saw before and behind the join; the join says what became of them in each relation. They are added up apart
and compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.streaming.listener import StreamingQueryProgress

METRICS = "enrichment"
"""Name under which the join reports."""

RELATION_COUNTS = ("matched", "unmatched", "null_keys")
"""What can become of a row in one relation; together they are all rows."""


class StreamTally:
    """Sums over the micro-batches seen so far."""

    def __init__(self, relations: Sequence[str]) -> None:
        self._relations = tuple(relations)
        self.batches = 0
        self.rows_read = 0
        """Rows the source delivered, says Spark."""
        self.rows_before = self.rows_behind = 0
        """Rows that Spark saw before and behind the join."""
        self.rows_joined = 0
        """Rows that entered the join, says the join."""
        self.hits = 0
        self.held_bytes = self.peak_bytes = 0
        self._counts = dict.fromkeys(((relation, what) for relation in self._relations for what in RELATION_COUNTS), 0)
        self.next_batch = 0
        """The first micro-batch that was not seen yet."""

    def see(self, progress: StreamingQueryProgress) -> bool:
        """Add a report and say whether it is news: one that was seen before, or of no rows, is not."""
        if progress.batchId < self.next_batch or progress.numInputRows == 0:
            return False
        self.next_batch = progress.batchId + 1
        self.batches += 1
        self.rows_read += progress.numInputRows
        before, seen = (progress.observedMetrics[name].asDict() for name in (f"{METRICS}_in", METRICS))
        counts = seen["counts"]
        self.rows_before += before["rows_in"]
        self.rows_joined += counts["rows_in"]
        self.rows_behind += seen["rows_out"]
        self.hits += counts["hits"]
        self.held_bytes = counts["bytes_held"]
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        for relation, what in self._counts:
            self._counts[relation, what] += counts["relations"][relation][what]
        return True

    def count(self, relation: str, what: str) -> int:
        """How many rows were `matched`, `unmatched` or `null_keys` in a relation."""
        return self._counts[relation, what]

    @property
    def hit_rate(self) -> float | None:
        """Share of the lookups that were answered from memory; a row without a key is not looked up."""
        lookups = sum(self.count(relation, what) for relation in self._relations for what in ("matched", "unmatched"))
        return self.hits / lookups if lookups else None

    @property
    def balanced(self) -> bool:
        """Whether every row that the source delivered entered the join, met a fate in every relation, and left once."""
        fates = (sum(self.count(relation, what) for what in RELATION_COUNTS) for relation in self._relations)
        counts = (self.rows_before, self.rows_joined, self.rows_behind, *fates)
        return all(rows == self.rows_read for rows in counts)
