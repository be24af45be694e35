"""Rows that several processes remember together: a hot set, and before it a nursery of one's own.

What a process has read lies in its *nursery*, which is `RememberedRows` with little memory, until it has gathered
enough to be worth the work; then it becomes the writer of the hot set, if nobody else is, and moves those of its keys
there that are worth more than what they push out. What is not worth it stays, as long as the nursery has no better use
for its room. Who cannot become the writer tries again later: nobody waits.

The rules are those of `RememberedRows`, applied to each segment. Keys compete by uses per byte. Uses of keys in the hot
set are counted there, by all processes; those of all other keys in a sketch that they share as well, whether the key
was found in somebody's nursery or nowhere. Both are halved by whoever writes, by the rules of `aging`, for which the
writers keep a common memory. A segment that is full is written anew, without its lowest eighth; what was not asked for
once since counts were forgotten leaves as well.

Work: a segment is written only for as many bytes as are worth it, few segments are written anew at a time, and a key
that others must leave for must save more reads than it costs to write (`WRITE_KEY_S`).

Memory: the nursery's, and while moving what the caller says is free.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.joins.aging import ALL, Aging
from semistream.joins.base import Numbers, StreamRows
from semistream.joins.matching import PairCursor, parted
from semistream.joins.remembered import EVICTED_SHARE_MAX, Recalled, RememberedRows, price_of, staying, worth_more
from semistream.structures.frequency import FrequencySketch
from semistream.structures.hot_set import HotSet, HotSetWriter

SHARED_AT, SHARED_AT_REST = 1 / 2, 1 / 4
"""Part of the nursery's places that new keys must have taken before they are moved to the hot set."""

SEGMENT_SHARE = 1 / 4
"""Part of what the nursery holds for a segment on average that is worth writing to it."""

REWRITES_MAX = 4
"""Segments that are written anew at a time."""

CANDIDATE_BYTES, RESIDENT_BYTES = 96, 80
"""What moving takes for a key in the nursery, and for one in a segment that is written anew."""

LOOKED_AT, CHEAP_READ_S = 4, 5e-6
"""Of the batches of keys that come to a hot set without room, one in so many is looked at where reading a key costs no
more than this. Of a thousand keys five are worth the work of letting them in, and one that is will be missed again; to
look at one takes a quarter of a microsecond, about half of what reading it from the page cache does."""

SAMPLED_MAX = 4096
"""Keys of a segment from which the price of its room is taken."""

WRITE_KEY_S = 0.5e-6
"""What writing a key anew takes, about. A guess will do: what it is compared with, reading one, takes a microsecond
where R lies in the page cache, and a hundred or ten thousand where it does not."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Keys of the nursery that may be moved."""

    entries: Numbers
    """Their places in the nursery."""
    codes: Numbers
    segments: Numbers
    """Where in the hot set each would go."""
    batch: pa.RecordBatch
    first: Numbers
    count: Numbers
    """Where in `batch` their rows begin, and how many there are."""
    uses: Numbers
    sizes: Numbers

    def by_segment(self, chosen: Numbers, segments: int, worth_bytes: float) -> Iterator[tuple[int, Numbers]]:
        """Yield segments for which enough is chosen, with their keys, best first; those that gain most come first."""
        own_segments = self.segments[chosen]
        waiting_bytes = np.bincount(own_segments, self.sizes[chosen], segments)
        gain = np.bincount(own_segments, self.uses[chosen], segments)
        # By segment, and within each by what a key is worth.
        order = chosen[np.lexsort((-(self.uses[chosen] / self.sizes[chosen]), own_segments))]
        ends = np.cumsum(np.bincount(own_segments, minlength=segments))
        for segment in np.argsort(-gain, kind="stable").tolist():
            if waiting_bytes[segment] >= worth_bytes:
                yield segment, order[ends[segment - 1] if segment else 0 : ends[segment]]


@dataclass(frozen=True, slots=True)
class _Bar:
    """By how much newcomers must exceed the price of room."""

    margin_deviations: int
    effort_uses: float
    """Uses that pay for the work of letting one in."""

    def is_cleared(
        self, uses: Numbers, sizes: Numbers, prices: npt.NDArray[np.float64] | float
    ) -> npt.NDArray[np.bool_]:
        """Whether newcomers are worth it; all are where room has no price."""
        return worth_more(uses, sizes, prices, self.margin_deviations, self.effort_uses)


class SharedRows:
    """What this process remembers together with others."""

    def __init__(self, nursery: RememberedRows, hot: HotSet) -> None:
        self._nursery = nursery
        self._hot = hot
        self._offered_keys = 0
        """Keys that could be offered since somebody saw to it that counts age."""
        self._offers = 0
        self._fresh_keys = 0
        """Keys that came to the nursery since it was looked through."""
        self._turn = 0
        self._moved_keys = 0
        self._dropped_keys = 0
        self._is_lost = False
        """Whether the hot set cannot be used for now."""
        self.read_key_s = math.inf
        """What reading a key costs, as far as it is known: nothing is too much effort before."""

    # As a join sees it -----------------------------------------------------------------------------------------------

    @property
    def frequency(self) -> FrequencySketch:
        """How often keys were asked for that the hot set lacks."""
        return self._hot.frequency

    def __len__(self) -> int:
        """Keys that are remembered, by this process and by all."""
        return len(self._nursery) + self._hot.key_count

    @property
    def used_bytes(self) -> int:
        """Bytes held by this process alone."""
        return self._nursery.used_bytes

    @property
    def evicted(self) -> int:
        """Keys that were remembered and are no more, as far as this process made them go."""
        return self._nursery.evicted - self._moved_keys + self._dropped_keys

    @property
    def is_full(self) -> bool:
        """Whether the nursery has hardly any room left."""
        return self._nursery.is_full

    def recall(self, rows: StreamRows) -> Recalled:
        """What is remembered for these rows, in the hot set or in the nursery."""
        if not self._begun():
            return self._nursery.recall(rows)
        table = self._hot.table
        first, count = table.probe(rows.codes)
        table.use(first, count)
        numbers, first, count, missed = parted(rows, first, count)
        self._hot.note(len(rows), len(numbers))
        cursors = [PairCursor(table.rows, numbers, first, count)] if len(numbers) else []
        if not len(missed):
            return Recalled(numbers, cursors, missed)
        young = self._nursery.recall(missed)
        if len(young.numbers):
            self.frequency.add(missed.codes[np.searchsorted(missed.numbers, young.numbers)])
        return Recalled(np.concatenate([numbers, young.numbers]), [*cursors, *young.cursors], young.missed)

    def wants(self, keys: int) -> bool:
        """Whether these are looked at; where the hot set is full and reads are cheap, only some are."""
        self._offered_keys += keys
        self._offers += 1
        if self._offers % LOOKED_AT == 0 or self.read_key_s > CHEAP_READ_S:
            return True
        return not self._hot.is_open or not self._hot.table.floors.all()

    def offer(self, batch: pa.RecordBatch, codes: Numbers, first: Numbers, count: Numbers, uses: Numbers) -> None:
        """Offer keys that are not remembered, each with all of its rows in `batch`; the best of them stay.

        Where the hot set is full, most that come are asked for once and never again: to keep them in the nursery, and
        to look at each when keys are moved, would cost more than reading them anew when they are.
        """
        if self._hot.is_open and len(codes):
            may_come = self._exceed_floors(codes, self._hot.table.sizes_of(batch, first, count), uses)
            codes, first, count, uses = codes[may_come], first[may_come], count[may_come], uses[may_come]
        nursery = self._nursery
        keys_before = len(nursery) + nursery.evicted
        nursery.offer(batch, codes, first, count, uses)
        self._fresh_keys += len(nursery) + nursery.evicted - keys_before

    def _exceed_floors(self, codes: Numbers, sizes: Numbers, uses: Numbers) -> npt.NDArray[np.bool_]:
        """Whether keys are worth more than the price of room in their segments; 0 as long as there is room."""
        table = self._hot.table
        return self._bar(self._common_aging()).is_cleared(uses, sizes, table.floors[table.segments_of(codes)])

    def share(self, free_bytes: int) -> None:
        """See what others have added, and move what has gathered."""
        if self._hot.is_open:
            self._hot.look()
            self._move_if_due(SHARED_AT, free_bytes)

    def rest(self, free_bytes: int) -> None:
        """Move what has gathered, and let others take the place of segments."""
        if self._hot.is_open:
            self._move_if_due(SHARED_AT_REST, free_bytes)
            self._hot.end()
        self._is_lost = False

    def halvings_due(self) -> int:
        """None: who writes halves all counts, those of the nursery are not used."""
        return 0

    def age(self, halvings: int = 1) -> None:
        """Halve the uses of the nursery."""
        self._nursery.age(halvings)

    def marginal_uses_per_byte(self, probes: float) -> float:
        """How often the least useful in the nursery is asked for in so many probes, for each byte it takes."""
        return self._nursery.marginal_uses_per_byte(probes)

    def resize(self, bytes_max: int) -> None:
        """Change what the nursery may hold."""
        self._nursery.resize(bytes_max)

    def clear(self) -> None:
        """Forget everything, for all; what another is just writing escapes."""
        self._nursery.clear()
        self._offered_keys = self._fresh_keys = 0
        if self._begun():
            with self._hot.writing() as writer:
                if writer is not None:
                    for segment in range(writer.layout.segments):
                        writer.drop(segment)

    def _begun(self) -> bool:
        """Whether the hot set can be read; where it cannot, the nursery must do until the next rest."""
        if not self._hot.is_open and not self._is_lost:
            try:
                self._hot.begin()
            except OSError as problem:
                _log.warning("the hot set in %s cannot be used for now: %s", self._hot.folder, problem)
                self._is_lost = True
        return self._hot.is_open

    # Moving ----------------------------------------------------------------------------------------------------------

    def _move_if_due(self, due_share: float, free_bytes: int) -> None:
        due_keys = self._nursery.entries_max * due_share
        if self._offered_keys <= due_keys:
            return
        try:
            with self._hot.writing() as writer:
                if writer is not None:
                    # Also where nobody comes in: that may be because counts are those of yesterday.
                    bar = self._age_all(writer)
                    self._offered_keys = 0
                    if self._fresh_keys > due_keys:
                        self._move(writer, free_bytes, bar)
                        self._fresh_keys = 0
        except OSError as problem:
            # A disk that is full, a folder that was removed: others may have more luck, and so may we the next time.
            _log.warning("the hot set in %s could not be written: %s", self._hot.folder, problem)
            self._offered_keys = self._fresh_keys = 0

    def _age_all(self, writer: HotSetWriter) -> _Bar:
        """Halve all counts when it is time, as `Knowledge` does for one process; return what newcomers must exceed."""
        aging = self._common_aging()
        aging.note(*writer.take_tally())
        if halvings := aging.due():
            writer.halve(min(halvings, ALL))
        numbers = aging.as_numbers()
        self._hot.memo[: len(numbers)] = numbers
        return self._bar(aging)

    def _common_aging(self) -> Aging:
        """As the last writer left it."""
        layout = self._hot.layout
        aging = Aging(layout.segments * layout.entries_max)
        aging.go_on_from(self._hot.memo.tolist())
        return aging

    def _bar(self, aging: Aging) -> _Bar:
        """A segment is written anew for an eighth of its keys, so each that comes costs eight times what one does."""
        effort_s = WRITE_KEY_S / EVICTED_SHARE_MAX
        return _Bar(aging.margin_deviations, effort_s / (self.read_key_s * aging.outlook))

    def _move(self, writer: HotSetWriter, free_bytes: int, bar: _Bar) -> None:
        """Move the best of the nursery's keys, to the segments that gain most by it first."""
        keys = self._some_of_nursery(free_bytes // 2 // CANDIDATE_BYTES)
        if len(keys.entries) == 0:
            return
        # Another may have moved the same key.
        leaves = self._hot.table.probe(keys.codes)[1] > 0
        floors = self._hot.table.floors
        wanted = ~leaves & bar.is_cleared(keys.uses, keys.sizes, floors[keys.segments])
        worth_bytes = SEGMENT_SHARE * self._nursery.rows_bytes_max / writer.layout.segments
        rewrites_left = REWRITES_MAX if free_bytes // 2 >= RESIDENT_BYTES * writer.layout.entries_max else 0
        for segment, coming in keys.by_segment(np.flatnonzero(wanted), writer.layout.segments, worth_bytes):
            own = coming
            fitting = _fitting(writer.room(segment), keys.sizes[own])
            if fitting < len(own) and rewrites_left > 0 and writer.may_rewrite:
                late = own[fitting:]
                rewrites_left -= self._make_room(writer, segment, keys.uses[late], keys.sizes[late], bar)
                floor = float(self._hot.table.floors[segment])
                own = own[bar.is_cleared(keys.uses[own], keys.sizes[own], floor)]
                fitting = _fitting(writer.room(segment), keys.sizes[own])
            moving = np.sort(own[:fitting])
            if len(moving):
                rows = keys.codes[moving], keys.first[moving], keys.count[moving]
                writer.append(segment, keys.batch, *rows, keys.uses[moving])
                leaves[moving] = True
        self._let_go(keys.entries[leaves])

    def _some_of_nursery(self, count_max: int) -> _Candidates:
        entries = self._in_turn(count_max)
        table = self._hot.table
        codes = self._nursery.codes[entries]
        batch, first, count = self._nursery.rows
        first, count = first[entries], count[entries]
        uses, sizes = self.frequency.estimate(codes), table.sizes_of(batch, first, count)
        return _Candidates(entries, codes, table.segments_of(codes), batch, first, count, uses, sizes)

    def _in_turn(self, count_max: int) -> Numbers:
        """The nursery's keys, or some of them, others each time."""
        count = len(self._nursery)
        if count <= count_max:
            return np.arange(count, dtype=np.int64)
        self._turn = (self._turn + count_max) % count
        return np.sort((self._turn + np.arange(max(0, count_max), dtype=np.int64)) % count)

    def _make_room(self, writer: HotSetWriter, segment: int, new_uses: Numbers, new_sizes: Numbers, bar: _Bar) -> int:
        """Set the price of room in a segment, and write it anew if anyone is worth more; return how many were."""
        table = self._hot.table
        codes, first, count = table.entries(segment)
        if len(first) == 0:
            return 0
        sizes = table.sizes_of(table.rows, first, count).astype(np.int32)
        uses = table.uses_of(first)
        price = price_of(uses, sizes, SAMPLED_MAX)
        writer.set_floor(segment, price)
        if not bar.is_cleared(new_uses, new_sizes, price).any():
            return 0
        # At no price at all, nothing was asked for since counts were forgotten.
        stays = staying(uses, sizes, price) if price > 0 else uses > 0
        self._dropped_keys += len(stays) - int(np.count_nonzero(stays))
        writer.rewrite(segment, codes[stays], first[stays], count[stays])
        return 1

    def _let_go(self, entries: Numbers) -> None:
        self._moved_keys += len(entries)
        stays = np.ones(len(self._nursery), np.bool_)
        stays[entries] = False
        self._nursery.keep_some(stays)


def _fitting(room: tuple[int, int], sizes: Numbers) -> int:
    """How many of these keys, from the first on, there is room for."""
    room_bytes, room_keys = room
    return min(int(np.searchsorted(np.cumsum(sizes), room_bytes, side="right")), room_keys)
