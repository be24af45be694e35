"""The rows that are remembered: those with the greatest benefit per byte.

A key's benefit is how often it was asked for lately; what a miss costs is the same for every key of one relation and
cancels out, so keys compete by *uses per byte*. That is the cache inequality of the many-to-many joins with the price
of reading put in.

Uses age (`aging`), so that a key that was hot yesterday makes room. While there is room everything is let in. Once
full, the lowest part (by bytes) has a price, its highest uses per byte; who is not clearly worth more is turned away
without any sorting, and who is makes the lowest part leave. That part is as large as those who come, within bounds:
small, because room that is freed is empty until others have come; not too small, because the arena is moved as a whole.

*Clearly* is some standard deviations of what chance does to a count, the more the longer the stream has been steady.
Those at the door are many, and of many the luckiest look better than they are; besides, the sketch they are counted in
errs only upwards. Without a margin lucky keys keep pushing out good ones whose uses are known exactly, the more so the
less keys differ. For the same reason whoever is let in counts as little more than the one it pushed out, whatever the
sketch said: from then on its uses are counted exactly, and if it was luck it is the next to leave.

`Remembered` is what a join sees of them. `RememberedRows` are those of one process, and `shared_rows` has those that
several processes remember together.

Memory: that of `HeldKeys`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.aging import Aging
from semistream.joins.base import Numbers, StreamRows
from semistream.joins.held_keys import Counters, HeldKeys, most_entries
from semistream.joins.matching import PairCursor, parted
from semistream.structures.compiled import F64, I64, READ_I32, VOID, WRITE_BOOL, Array, kernel

EVICTED_SHARE_MIN, EVICTED_SHARE_MAX = 1 / 512, 1 / 8
"""Share of what is held that is freed at once. Half of the least stands empty on average. Moving what stays costs less
than reading what comes, as long as few come: one in ten thousand rows of a settled stream. When many come at once,
after the hot set has moved, there is room for many at once."""

EVICTED_SHARE_NEW = 1 / 24
"""The least before a stream was steady for a period: then many come, one after the other. Each steady period halves it,
for fewer come."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What memory knows of some stream rows."""

    numbers: Numbers
    """Those that ask for a key that is remembered."""
    cursors: list[PairCursor]
    """Their pairs."""
    missed: StreamRows
    """The others."""


class Remembered(Protocol):
    """Rows of a relation that are remembered, here or together with others."""

    def __len__(self) -> int:
        """Keys that are remembered."""
        ...

    @property
    def used_bytes(self) -> int:
        """Bytes held by this process alone."""
        ...

    @property
    def evicted(self) -> int:
        """Keys that were remembered and are no more."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether there is hardly any room left."""
        ...

    def recall(self, rows: StreamRows) -> Recalled:
        """What is remembered for these rows. Pairs are valid until `share` or `offer`."""
        ...

    def wants(self, keys: int) -> bool:
        """Whether so many keys that were just read shall be offered; asked once for each batch of them."""
        ...

    def offer(self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, uses: Numbers) -> None:
        """Offer keys that are not remembered, each with all of its rows in `batch`; the best of them stay."""
        ...

    def share(self, free_bytes: int) -> None:
        """Exchange what was learned with others, if there are any; that may take so many bytes in passing."""
        ...

    def rest(self, free_bytes: int) -> None:
        """Nothing will be asked for a while: hold nothing that others wait for."""
        ...

    def halvings_due(self) -> int:
        """How often uses must be halved now, and other counts with them; asked once, for it is forgotten then."""
        ...

    def age(self, halvings: int = 1) -> None:
        """Halve all uses."""
        ...

    def marginal_uses_per_byte(self, probes: float) -> float:
        """How often the least useful that is remembered is asked for in so many probes, for each byte it takes."""
        ...

    def resize(self, bytes_max: int) -> None:
        """Change what this process may hold; the least useful make room."""
        ...

    def clear(self) -> None:
        """Forget everything."""
        ...


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


def worth_more(
    uses: Numbers,
    sizes: Numbers,
    prices: npt.NDArray[np.float64] | float,
    margin_deviations: int,
    effort_uses: float = 0.0,
) -> npt.NDArray[np.bool_]:
    """Whether newcomers are clearly worth more than what must leave for them, at these uses per byte.

    Where there is room, at no price, nobody must leave, and nothing is too much effort.
    """
    uses_to_beat = prices * sizes
    # A count of n events that come by chance deviates by the root of n.
    margin_uses = margin_deviations * np.sqrt(uses_to_beat) + np.where(uses_to_beat > 0, effort_uses, 0.0)
    is_more: npt.NDArray[np.bool_] = uses > uses_to_beat + margin_uses
    return is_more


def price_of(uses: Counters, sizes: Counters, sampled_max: int, evicted_share: float = EVICTED_SHARE_MAX) -> float:
    """The highest uses per byte in the lowest part, by bytes or by entries, whichever is more; from a sample."""
    sample = _sample(len(uses), sampled_max)
    bytes_held = sizes[sample]
    held = uses[sample] / bytes_held
    order = np.argsort(held, kind="stable")
    freed_bytes = np.cumsum(bytes_held[order], dtype=np.int64) * (len(uses) / len(sample))
    by_bytes = int(np.searchsorted(freed_bytes, int(sizes.sum(dtype=np.int64)) * evicted_share, side="left")) + 1
    leaving = min(max(by_bytes, int(len(sample) * evicted_share)), len(sample))
    return float(held[order[leaving - 1]])


def _sample(count: int, sampled_max: int) -> Numbers:
    """All entries if they are few, otherwise some that are spread evenly and without a period."""
    if count <= sampled_max:
        return np.arange(count, dtype=np.int64)
    places = np.arange(sampled_max) * _GOLDEN_RATIO % 1
    return (places * count).astype(np.int64)


def staying(
    uses: Counters, sizes: Counters, price: float, evicted_share: float = EVICTED_SHARE_MAX
) -> npt.NDArray[np.bool_]:
    """Who stays when room is made at this price: all but about this share."""
    stays = np.ones(len(uses), np.bool_)
    bytes_min = int(np.ceil(int(sizes.sum(dtype=np.int64)) * evicted_share))
    _mark_leaving(uses, sizes, price, int(np.ceil(len(uses) * evicted_share)), bytes_min, stays)
    return stays


class RememberedRows(HeldKeys):
    """Keys of a relation with their rows, the best per byte, inside `bytes_max`."""

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

    def recall(self, rows: StreamRows) -> Recalled:
        """What is remembered for these rows."""
        numbers, first, count, missed = parted(rows, *self.probe(rows.codes))
        return Recalled(numbers, [self.pairs(numbers, first, count)] if len(numbers) else [], missed)

    def keep_some(self, stays: npt.NDArray[np.bool_]) -> None:
        """Let all entries go that do not stay; whoever comes next finds room for nothing."""
        self.keep(stays)
        self._floor = 0.0

    def share(self, free_bytes: int) -> None:
        """There is nobody to share with."""

    def rest(self, free_bytes: int) -> None:
        """Nothing is held that others wait for."""

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
        share = EVICTED_SHARE_MAX
        return entries_left < self.entries_max * share or bytes_left < self.rows_bytes_max * share

    def marginal_uses_per_byte(self, probes: float) -> float:
        """How often the least useful that is remembered is asked for in so many probes, for each byte it takes."""
        if not len(self) or not self._probes_counted:
            return 0.0
        return self._price(EVICTED_SHARE_MAX) * probes / self._probes_counted

    def resize(self, bytes_max: int) -> None:
        """Change what may be held; the least useful make room."""
        entries_max = most_entries(bytes_max, self._row_bytes_mean)
        rows_bytes_max = bytes_max - self.index_bytes_for(max(1, entries_max))
        while len(self) and (len(self) > entries_max or self.rows_bytes > rows_bytes_max):
            self._evict(max(1 - entries_max / len(self), 1 - rows_bytes_max / self.rows_bytes))
        super().resize(bytes_max)
        self._aging.resize(self.entries_max)

    def wants(self, keys: int) -> bool:
        """Whoever comes is looked at."""
        return True

    def offer(self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, uses: Numbers) -> None:
        """Offer keys that are not remembered, each with all of its rows in `batch`; the best of them stay."""
        if not self.can_hold or len(codes) == 0:
            return
        sizes = self.bytes_of(batch, first, count)
        # Who can never fit must not make others leave.
        wanted = np.flatnonzero(self._pays(uses, sizes) & (sizes <= self.rows_bytes_max))
        if self.fitting(sizes[wanted]) < len(wanted):
            self._make_room(uses[wanted], sizes[wanted])
            wanted = wanted[self._pays(uses[wanted], sizes[wanted])]
            wanted = wanted[np.argsort(-(uses[wanted] / sizes[wanted]), kind="stable")]
            wanted = np.sort(wanted[: self.fitting(sizes[wanted])])
        sizes, uses = sizes[wanted], uses[wanted]
        self.add(batch, codes[wanted], first[wanted], count[wanted], sizes, self._uses_credited(uses, sizes))

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._floor = 0.0

    def _pays(self, uses: Numbers, sizes: Numbers) -> npt.NDArray[np.bool_]:
        """Whether newcomers are clearly worth more than the price of room."""
        return worth_more(uses, sizes, self._floor, self._aging.margin_deviations)

    def _uses_credited(self, uses: Numbers, sizes: Numbers) -> Numbers:
        """What newcomers are let in with: no more than a standard deviation above the price."""
        if self._aging.margin_deviations == 0:
            return uses
        uses_beaten = self._floor * sizes
        uses_max: Numbers = (uses_beaten + np.sqrt(uses_beaten)).astype(np.int64) + 1
        return np.minimum(uses, uses_max)

    def _make_room(self, uses: Numbers, sizes: Numbers) -> None:
        """Set the price of room, and let the cheapest entries leave if anyone is worth more."""
        if len(self) == 0:
            return
        coming_share = max(len(sizes) / len(self), int(sizes.sum()) / self.rows_bytes)
        share = self._evicted_share(coming_share)
        self._floor = self._price(share)
        if self._floor == 0.0:
            # Who was not asked for once since counts were forgotten is no loss, however many they are.
            share = max(share, min(coming_share, 1.0))
        if self._pays(uses, sizes).any():
            self.keep(staying(self.uses, self.sizes, self._floor, share))

    def _evict(self, share_wanted: float) -> None:
        """Let about this share go, or as much as may go at once."""
        share = self._evicted_share(share_wanted)
        self._floor = self._price(share)
        self.keep(staying(self.uses, self.sizes, self._floor, share))

    def _evicted_share(self, share_wanted: float) -> float:
        least = max(EVICTED_SHARE_MIN, EVICTED_SHARE_NEW / 2.0**self._aging.margin_deviations)
        return min(max(least, share_wanted), EVICTED_SHARE_MAX)

    def _price(self, evicted_share: float) -> float:
        return price_of(self.uses, self.sizes, self.part_entries, evicted_share)
