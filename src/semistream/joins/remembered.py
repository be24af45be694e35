"""The rows that are remembered: those with the greatest benefit per byte.

A key's benefit is how often it was asked for lately; what a miss costs is the same for every key of one relation and
cancels out, so keys compete by *uses per byte*. That is the cache inequality of the many-to-many joins with the price
of reading put in.

Uses age (`aging`), so that a key that was hot yesterday makes room. While there is room everything is let in. Once
full, the lowest eighth (by bytes) has a price, its highest uses per byte; who does not exceed that price is turned away
without any sorting, and who does makes the lowest eighth leave.

Memory: that of `HeldKeys`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.aging import Aging
from semistream.joins.base import Numbers
from semistream.joins.held_keys import HeldKeys, most_entries
from semistream.structures.compiled import F64, I64, READ_I32, VOID, WRITE_BOOL, Array, kernel
from semistream.structures.hash_multimap import SlotsFor, slots_for

EVICTED_SHARE = 1 / 8
"""Share of what is held that is freed at once: the arena is moved as a whole, so moving must be rare."""

_GOLDEN_RATIO = (5**0.5 - 1) / 2


@kernel(VOID(READ_I32, READ_I32, F64, I64, I64, WRITE_BOOL))
def _mark_leaving(uses: Array, sizes: Array, price: float, entries_min: int, bytes_min: int, stays: Array) -> None:
    """Let go who is below the price, and of those at the price, the oldest first, as many as the least demands."""
    for at_price in range(2):
        for i in range(stays.size):
            score = uses[i] / sizes[i]
            if at_price == 1 and (score != price or (entries_min <= 0 and bytes_min <= 0)):
                continue
            if at_price == 1 or score < price:
                stays[i] = False
                entries_min -= 1
                bytes_min -= sizes[i]


class RememberedRows(HeldKeys):
    """Keys of a relation with their rows, the best per byte, inside `bytes_max`."""

    # Its memory has one size for long, and every slot that is not needed is room for rows.
    slots_for: SlotsFor = staticmethod(slots_for)

    def __init__(self, schema: pa.Schema, bytes_max: int, row_bytes_mean: float) -> None:
        super().__init__(schema, bytes_max, row_bytes_mean)
        self._floor = 0.0
        self._aging = Aging(self.entries_max)
        self._probes_counted = 0.0
        """Probes in which uses were counted, those before the last aging at half of their weight, and so on."""

    def probe(self, codes: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first remembered row of each code and how many there are; 0 for a code that is not remembered."""
        first, count = super().probe(codes)
        self._probes_counted += len(codes)
        self._aging.note(len(codes), int(np.count_nonzero(count)))
        return first, count

    def halvings_due(self) -> int:
        """How often uses must be halved now, and other counts with them; asked once, for it is forgotten then."""
        return self._aging.due() if self.can_hold else 0

    def age(self, halvings: int = 1) -> None:
        """Halve all uses, and the price of room with them."""
        self.uses[:] >>= halvings
        self._floor /= 2.0**halvings
        self._probes_counted /= 2.0**halvings

    @property
    def is_full(self) -> bool:
        """Whether there is hardly any room left."""
        entries_left = self.entries_max - len(self)
        bytes_left = self.rows_bytes_max - self.rows_bytes
        return entries_left < self.entries_max * EVICTED_SHARE or bytes_left < self.rows_bytes_max * EVICTED_SHARE

    def marginal_uses_per_byte(self, probes: int) -> float:
        """How often the least useful that is remembered is asked for in so many probes, for each byte it takes."""
        if not len(self) or not self._probes_counted:
            return 0.0
        return self._price() * probes / self._probes_counted

    def resize(self, bytes_max: int) -> None:
        """Change what may be held; the least useful make room."""
        entries_max = most_entries(bytes_max, self._row_bytes_mean, self.slots_for)
        rows_bytes_max = bytes_max - self.index_bytes_for(max(1, entries_max))
        while len(self) and (len(self) > entries_max or self.rows_bytes > rows_bytes_max):
            self._floor = self._price()
            self.keep(self._staying())
        super().resize(bytes_max)
        self._aging.resize(self.entries_max)

    def offer(self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, uses: Numbers) -> None:
        """Offer keys that are not remembered, each with all of its rows in `batch`; the best of them stay."""
        if not self.can_hold or len(codes) == 0:
            return
        sizes = self.bytes_of(batch, first, count)
        score = uses / sizes
        # Who can never fit must not make others leave.
        wanted = np.flatnonzero((score > self._floor) & (sizes <= self.rows_bytes_max))
        if self.fitting(sizes[wanted]) < len(wanted):
            self._make_room(score[wanted])
            wanted = wanted[score[wanted] > self._floor]
            wanted = wanted[np.argsort(-score[wanted], kind="stable")]
            wanted = np.sort(wanted[: self.fitting(sizes[wanted])])
        self.add(batch, codes[wanted], first[wanted], count[wanted], sizes[wanted], uses[wanted])

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._floor = 0.0

    def _make_room(self, score: npt.NDArray[np.float64]) -> None:
        """Set the price of room, and let the cheapest entries leave if anyone pays more."""
        if len(self) == 0:
            return
        self._floor = self._price()
        if bool(np.any(score > self._floor)):
            self.keep(self._staying())

    def _price(self) -> float:
        """The highest uses per byte in the lowest eighth, by bytes or by entries, whichever is more; from a sample."""
        sample = self._sample()
        bytes_held = self.sizes[sample]
        held = self.uses[sample] / bytes_held
        order = np.argsort(held, kind="stable")
        freed_bytes = np.cumsum(bytes_held[order], dtype=np.int64) * (len(self) / len(sample))
        by_bytes = int(np.searchsorted(freed_bytes, self.rows_bytes * EVICTED_SHARE, side="left")) + 1
        leaving = min(max(by_bytes, int(len(sample) * EVICTED_SHARE)), len(sample))
        return float(held[order[leaving - 1]])

    def _sample(self) -> Numbers:
        """All entries if they are few, otherwise some that are spread evenly and without a period."""
        if len(self) <= self.part_entries:
            return np.arange(len(self), dtype=np.int64)
        places = np.arange(self.part_entries) * _GOLDEN_RATIO % 1
        return (places * len(self)).astype(np.int64)

    def _staying(self) -> npt.NDArray[np.bool_]:
        stays = np.ones(len(self), np.bool_)
        entries, bytes_ = int(len(self) * EVICTED_SHARE), int(self.rows_bytes * EVICTED_SHARE)
        _mark_leaving(self.uses, self.sizes, self._floor, entries, bytes_, stays)
        return stays
