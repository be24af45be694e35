"""Which way to read the rows of a set of keys: the cheapest, by costs measured while running.

A relation can be asked for a batch of keys, for the page of each key, or for everything. Which is cheapest depends on
the store, on the device and on how many keys are missing at once, so nothing is assumed: each path is a number of
*reads* for the keys at hand times the seconds one of its reads has taken so far.

A path without a price is tried, but only if it could win: a page, which holds at least the rows of one key, is
not read faster than a key, and no store delivers bytes faster than memory does. A few reads are enough to learn its
price; the rest of the keys goes the best way that is known. Prices change (a page cache warms up, a disk gets busy), so
a path that lost is tried again when that would cost no more than a hundredth of what was spent since.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from semistream.clock import Clock
from semistream.joins.base import Numbers
from semistream.joins.matching import codes_of
from semistream.relations.base import CyclicScan, KeyBatch, PageByKey, RelationInfo

LEARNING_RATE = 0.2
"""Weight of the newest measurement: five reads make an old price irrelevant, one outlier does not."""

COLD_READS = 1
"""Reads of a path whose price says nothing about the next."""

TRIAL_READS = 16
"""Reads of a path that is tried. More would make its price surer, and a path that loses, dearer: all pages of a large
relation take seconds."""

TRIAL_SHARE = 0.01
"""What may be spent on trying paths that lost, as a share of all that is spent on reading."""

BYTES_PER_S_MAX = 20e9
"""Faster than the memory of today's machines: what no path can beat."""


class _Path(Protocol):
    """One way to read."""

    name: str

    read_bytes: float
    """Mean bytes of one read."""

    def reads_for(self, key_count: float) -> float:
        """How many reads this many random keys are expected to need."""
        ...

    def read(self, codes: Numbers) -> Iterator[pa.RecordBatch]:
        """Yield batches, ascending by code, that hold all rows of these sorted codes and perhaps others."""
        ...


class _ByKeys:
    name = "keys"

    def __init__(self, relation: KeyBatch, bytes_max: int) -> None:
        self._relation = relation
        self._bytes_max = bytes_max
        self.read_bytes = relation.info.row_bytes_mean

    def reads_for(self, key_count: float) -> float:
        return float(key_count)

    def read(self, codes: Numbers) -> Iterator[pa.RecordBatch]:
        return self._relation.rows_for(codes, self._bytes_max)


class _ByPages:
    name = "pages"

    def __init__(self, relation: PageByKey) -> None:
        self._relation = relation
        self.read_bytes = _page_bytes_mean(relation.info)

    def reads_for(self, key_count: float) -> float:
        pages = self._relation.info.page_count
        # Distinct pages hit by random keys: a page is missed by one key with 1 - 1/pages.
        return pages * -float(np.expm1(key_count * np.log1p(-1 / pages))) if pages > 1 else 1.0

    def read(self, codes: Numbers) -> Iterator[pa.RecordBatch]:
        # One code a page is enough to read it; in a partitioned relation the codes of a page are not neighbours.
        _, asking = np.unique(self._relation.page_numbers(codes), return_index=True)
        for code in codes[np.sort(asking)]:
            page = self._relation.page_for(int(code))
            # A page that ends before the first code that asks for it has none of them.
            if page.num_rows and codes_of(page)[-1] >= code:
                yield page


class _ByScan:
    name = "scan"

    def __init__(self, relation: CyclicScan) -> None:
        self._relation = relation
        self.read_bytes = _page_bytes_mean(relation.info)

    def reads_for(self, key_count: float) -> float:
        return float(self._relation.segment_count)

    def read(self, codes: Numbers) -> Iterator[pa.RecordBatch]:
        return (self._relation.segment(number) for number in range(self._relation.segment_count))


class AccessPaths:
    """Reads the rows of keys from a relation along the path that is cheapest now."""

    def __init__(self, relation: KeyBatch, bytes_max: int, clock: Clock) -> None:
        self._clock = clock
        self._paths: list[_Path] = [_ByKeys(relation, bytes_max)]
        # Pages and segments come whole; they are an alternative only where one fits.
        if relation.info.page_bytes_max <= bytes_max:
            if isinstance(relation, PageByKey):
                self._paths.append(_ByPages(relation))
            if isinstance(relation, CyclicScan):
                self._paths.append(_ByScan(relation))
        self._is_partitioned = relation.info.partition_count > 1
        self._read_s: dict[str, float] = {}
        self._times_read: dict[str, int] = {}
        self._spent_s = 0.0
        self._trials_s = 0.0
        self.last_path = ""
        """Name of the path taken last."""

    def read(self, codes: Numbers) -> Iterator[pa.RecordBatch]:
        """Yield batches, ascending by code, with all rows of these sorted, distinct codes, and perhaps others."""
        best = self._best(len(codes))
        path = self._worth_trying(best, len(codes))
        self.last_path = (path or best).name
        if path is None or not self._can_be_cut(best):
            return self._measured(path or best, codes)
        return self._tried(path, best, codes)

    def expected_s(self, key_count: float) -> float:
        """Seconds of reading this many random keys along the path that is cheapest now; 0 when nothing is known yet."""
        if self._times_read.get(self._paths[0].name, 0) <= COLD_READS:
            return 0.0
        return min(self._costs_s(key_count).values())

    def _costs_s(self, key_count: float) -> dict[str, float]:
        """What each path with a price would cost."""
        priced = [path for path in self._paths if path.name in self._read_s]
        return {path.name: path.reads_for(key_count) * self._read_s[path.name] for path in priced}

    def _best(self, key_count: int) -> _Path:
        by_keys = self._paths[0]
        if self._times_read.get(by_keys.name, 0) <= COLD_READS:
            return by_keys
        cost_s = self._costs_s(key_count)
        return min((path for path in self._paths if path.name in cost_s), key=lambda path: cost_s[path.name])

    def _worth_trying(self, best: _Path, key_count: int) -> _Path | None:
        """A path whose price is not known, or old; None if there is none that could be better than the best."""
        if self._times_read.get(self._paths[0].name, 0) <= COLD_READS:
            return None
        cost_s = self._costs_s(key_count)
        for path in self._paths:
            reads = path.reads_for(key_count)
            if path.name not in cost_s:
                if reads < key_count and reads * path.read_bytes / BYTES_PER_S_MAX < cost_s[best.name]:
                    return path
            elif path is not best:
                trial_s = cost_s[path.name]
                if self._can_be_cut(best):
                    trial_s *= min(1.0, TRIAL_READS / reads)
                if self._trials_s + trial_s < TRIAL_SHARE * self._spent_s:
                    self._trials_s += trial_s
                    return path
        return None

    def _measured(self, path: _Path, codes: Numbers) -> Iterator[pa.RecordBatch]:
        # What is done with the batches counts, too: many small ones are more work than a large one.
        begun_s = self._clock.now_s()
        yield from path.read(codes)
        self._learn(path, self._clock.now_s() - begun_s, path.reads_for(len(codes)))

    def _can_be_cut(self, best: _Path) -> bool:
        """Whether a trial can end before the last key.

        Those behind it must then be read by key: pages would bring rows once more that were there already. And pages of
        a partitioned relation ascend within a partition only, so that there is no telling which keys are behind.
        """
        return best is self._paths[0] and not self._is_partitioned

    def _tried(self, path: _Path, best: _Path, codes: Numbers) -> Iterator[pa.RecordBatch]:
        """Read the first codes along a path, and the others along the best."""
        begun_s, reads, done = self._clock.now_s(), 0, 0
        for batch in path.read(codes):
            yield batch
            reads += 1
            if batch.num_rows:
                done = int(np.searchsorted(codes, codes_of(batch)[-1], side="right"))
            if reads == TRIAL_READS:
                break
        else:
            done = len(codes)
        self._learn(path, self._clock.now_s() - begun_s, reads)
        if done < len(codes):
            yield from self._measured(best, codes[done:])

    def _learn(self, path: _Path, spent_s: float, reads: float) -> None:
        self._spent_s += spent_s
        price_s = spent_s / max(1.0, reads)
        times = self._times_read[path.name] = self._times_read.get(path.name, 0) + 1
        # The first read of a path finds cold caches and unread checksums; its price is replaced, not averaged.
        rate = LEARNING_RATE if times > COLD_READS + 1 else 1.0
        known_s = self._read_s.get(path.name, price_s)
        self._read_s[path.name] = known_s + rate * (price_s - known_s)


def _page_bytes_mean(info: RelationInfo) -> float:
    return info.row_count * info.row_bytes_mean / max(1, info.page_count)
