"""What a join has learned of keys: the rows of some, that others are absent, and how often all of them are asked for.

Three structures that only make sense together. A key that missed is counted in the sketch; when its rows come, the
count decides whether they are remembered; from then on the remembered key counts its own uses. Both kinds of counts
are halved at the same moments, or they could not be compared. A key that was read and not found is known as absent.

All of it is a hint: it can be dropped at any moment, and nothing is wrong afterwards.

Memory: what is for remembering in all; of it `ABSENT_SHARE` and `FREQUENCY_SHARE` at most for these two, and the rest
for remembered rows, or what `resize` was told. Most streams ask for nothing that R lacks; until one does, what is set
aside for absent keys is lent to remembered rows.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.joins.base import Numbers
from semistream.joins.remembered import Remembered, RememberedRows
from semistream.joins.shared_rows import SharedRows
from semistream.relations.base import Relation, RelationInfo
from semistream.structures.code_set import CODES_MIN, CodeSet
from semistream.structures.frequency import FrequencySketch
from semistream.structures.hot_layout import SEGMENTS_MAX, HotLayout
from semistream.structures.hot_set import HotSet, state_bytes

ABSENT_SHARE, FREQUENCY_SHARE = 1 / 32, 1 / 16
"""Upper bounds, as shares of what is for remembering."""

COUNTERS_PER_KEY = 1.5
"""Counters in each row of the sketch for a row of R that fits, its index not counted. A better choice needs more of
them, and all of them are room for rows: with Zipf's exponent 0.5 and rows of 113 bytes, of which a tenth would fit,
this takes 4 % of the memory."""

NEVER = 2**62
"""The sketch does not age by itself: it is halved together with the uses of remembered keys."""


def hints_bytes(relation: Relation, remembering_bytes: int, hot_set: HotSet | None = None) -> int:
    """What absent keys and frequencies take of what is for remembering; a hot set has frequencies of its own."""
    return absent_bytes(remembering_bytes) + _frequency_bytes(relation, remembering_bytes, hot_set)


def _absent_max(remembering_bytes: int) -> int:
    codes_max = CodeSet.codes_fitting(int(remembering_bytes * ABSENT_SHARE))
    return codes_max if codes_max >= CODES_MIN else 0


def absent_bytes(remembering_bytes: int) -> int:
    """What is set aside for absent keys, and lent to remembered rows as long as there are none."""
    codes_max = _absent_max(remembering_bytes)
    return CodeSet.bytes_for(codes_max) if codes_max else 0


def _frequency_bytes(relation: Relation, remembering_bytes: int, hot_set: HotSet | None) -> int:
    if hot_set is not None:
        return 0
    return FrequencySketch.bytes_for(frequency_counters(relation.info, remembering_bytes))


def frequency_counters(info: RelationInfo, remembering_bytes: int) -> int:
    """Counters in each row of the sketch."""
    keys = min(info.row_count, int(remembering_bytes / max(1.0, info.row_bytes_mean)))
    fitting = FrequencySketch.counters_fitting(int(remembering_bytes * FREQUENCY_SHARE))
    return max(1, min(fitting, int(COUNTERS_PER_KEY * keys)))


def whole_bytes(relation: Relation) -> int:
    """More than all of R would take: what a memory never needs to exceed."""
    return whole_bytes_of(relation.info)


def whole_bytes_of(info: RelationInfo) -> int:
    """The same for a relation that is not open."""
    return int(info.row_count * (info.row_bytes_mean + 128)) + 4096


def hot_layout(relation: Relation, bytes_max: int) -> tuple[HotLayout, int] | None:
    """How a hot set of so many bytes is divided, and the counters of its sketch; None where they are too few."""
    info = relation.info
    counters = frequency_counters(info, bytes_max)
    rows_bytes = bytes_max - state_bytes(SEGMENTS_MAX, counters)
    layout = HotLayout.of(relation.schema, rows_bytes, info.row_bytes_mean, info.row_count)
    return None if layout is None else (layout, counters)


class Knowledge:
    """Remembered rows, absent keys and frequencies of one relation.

    With a hot set, rows and frequencies are shared with others, and only the nursery and absent keys are charged here.
    """

    def __init__(
        self, relation: Relation, budget: MemoryBudget, remembering_bytes: int, hot_set: HotSet | None = None
    ) -> None:
        rows_bytes_max = remembering_bytes - hints_bytes(relation, remembering_bytes, hot_set)
        rows_bytes_max = min(rows_bytes_max, whole_bytes(relation))
        self._bytes_lent = absent_bytes(remembering_bytes)
        """What remembered rows may take until absent keys need it."""
        own = RememberedRows(relation.schema, rows_bytes_max + self._bytes_lent, relation.info.row_bytes_mean)
        self._bytes_max = rows_bytes_max if own.can_hold else 0
        self._bytes_granted = self._bytes_max
        """What they may take for good."""
        self.remembered: Remembered
        if hot_set is None:
            self.remembered = own
            self._frequency = FrequencySketch(frequency_counters(relation.info, remembering_bytes), period=NEVER)
        else:
            self.remembered = SharedRows(own, hot_set)
            self._frequency = hot_set.frequency
        self._absent_max = _absent_max(remembering_bytes)
        self._absent: CodeSet | None = None
        self._first_absent: list[Numbers] = []
        """Codes that wait until there is room for absent keys: those of one step."""
        self._hints_account = budget.account("absent keys and frequencies")
        self._hints_account.take(_frequency_bytes(relation, remembering_bytes, hot_set))
        self._account = budget.account("remembered rows")
        self._charge()

    @property
    def rows_bytes_max(self) -> int:
        """What remembered rows may take at most, with their index; 0 where none can be kept."""
        return self._bytes_max

    @property
    def evicted(self) -> int:
        """Keys that were remembered and are no more."""
        return self.remembered.evicted

    def known_absent(self, codes: Numbers) -> npt.NDArray[np.bool_]:
        """Which of these codes are known to be absent."""
        if self._absent is None:
            return np.zeros(len(codes), np.bool_)
        return self._absent.contains(codes)

    def count_missed(self, codes: Numbers, uses: Numbers) -> None:
        """Count codes that memory could not answer."""
        self._frequency.add_counts(codes, uses)

    def learn_absent(self, codes: Numbers) -> None:
        """Remember that R has no rows with these codes; the first ever from `settle` on."""
        if self._absent is not None:
            self._absent.add(codes)
        elif self._absent_max and len(codes):
            self._first_absent.append(codes)

    def learn(self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers) -> None:
        """Remember the best of these codes, each with all of its rows in the batch; those there are no news."""
        if self.remembered.wants(len(codes)):
            self.remembered.offer(batch, codes, first, count, self._frequency.estimate(codes))

    def price_reads(self, key_s: float) -> None:
        """Say what reading a key costs now, so that letting one in is not more work than it saves."""
        if isinstance(self.remembered, SharedRows):
            self.remembered.read_key_s = key_s

    def settle(self) -> None:
        """Let counts age when it is time, share what was learned, and charge what is held."""
        if halvings := self.remembered.halvings_due():
            self.remembered.age(halvings)
            self._frequency.halve(halvings)
        if self._first_absent:
            self._make_room_for_absent()
        self._charge()
        self.remembered.share(self._account.free_bytes)
        self._charge()

    def rest(self) -> None:
        """Nothing will be asked for a while."""
        self.remembered.rest(self._account.free_bytes)
        self._charge()

    def resize(self, rows_bytes_max: int) -> None:
        """Change what remembered rows may take; the least useful make room."""
        self._bytes_granted = min(rows_bytes_max, self._bytes_max)
        self.remembered.resize(self._bytes_granted + self._bytes_lent)
        self._charge()

    def forget(self) -> None:
        """Drop remembered rows and absent keys; how popular keys are stays true."""
        self.remembered.clear()
        self._first_absent.clear()
        if self._absent is not None:
            self._absent.clear()
        self._charge()

    def _make_room_for_absent(self) -> None:
        """Take back what was lent. Rows are moved, so nothing may point at them."""
        self._bytes_lent = 0
        self.resize(self._bytes_granted)
        self._absent = CodeSet(self._absent_max)
        self._hints_account.take(self._absent.nbytes)
        for codes in self._first_absent:
            self._absent.add(codes)
        self._first_absent.clear()

    def _charge(self) -> None:
        self._account.hold(self.remembered.used_bytes)
