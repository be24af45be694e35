"""The files of a hot set: rows that several processes remember together.

```
<folder>/
  state              which generation of each segment counts; tallies; frequencies of all that was missed
  017.42             segment 17, generation 42: rows, index and uses (`hot_layout`)
  retired.017.41     a segment whose place was taken, as long as somebody may read it
  building           a segment that is being written
```

Readers map all segments (`HotTable`) and look for newer ones before they probe. Who wants to add rows tries to get the
lock on `state`, and does without when another has it. A writer adds rows behind those of a segment, or writes a
segment anew, under another name, and then says in `state` that it counts. It says so last: whoever dies at whatever
moment, `state` names complete segments, or one that says of itself that its writer died, which the next writer drops.
All that is remembered is a hint, so what cannot be believed is left out: a file of another length, of another layout,
of other rows.

**Who reads holds a shared lock** on the files it has mapped, from `begin` to `end`. A segment whose place was taken is
cut to nothing as soon as no lock is left on it, and its memory is free, although processes that rest between two
`begin`s still have it mapped: they look before they touch. As long as a retired one cannot be cut, no other segment is
written anew; so there is never more than one too many.

Memory: `layout.segment_bytes` for each segment and one more, and the state.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semistream.structures.address_space import AddressSpace, allocate, whole_pages
from semistream.structures.columns import Rows
from semistream.structures.frequency import FrequencySketch
from semistream.structures.hot_layout import APPENDING, CHECK, ENTRIES, FINGERPRINT, FLOOR, MAGIC, HotLayout
from semistream.structures.hot_removal import OPEN_FLAGS, STATE, removed_file
from semistream.structures.hot_table import Allocate, HotTable
from semistream.structures.packed_rows import RowSource

BUILDING, RETIRED = "building", "retired."

_MAGIC = 0x5345_4D49_484F_5433  # "SEMIHOT3"

# Words of the state, before the generations: the first three as in a segment's header.
_NEXT_GENERATION, _PROBES, _HITS, _MEMO = 4, 5, 6, 8
_MEMO_WORDS = 8
_GENERATIONS = 16


def state_bytes(layout_segments_max: int, counters: int) -> int:
    """What the state takes."""
    return whole_pages(8 * (_GENERATIONS + layout_segments_max)) + whole_pages(FrequencySketch.bytes_for(counters))


class HotSet:
    """Rows of one version of a relation, shared by the processes that open the same folder.

    `identity` names the rows: two processes that give the same one, with the same layout, mean the same rows.
    """

    def __init__(self, folder: Path, layout: HotLayout, counters: int, identity: str) -> None:
        self.folder = folder
        self.layout = layout
        self._counters = counters
        digest = hashlib.blake2b(repr((identity, layout, counters)).encode(), digest_size=7).digest()
        self._fingerprint = int.from_bytes(digest, "big")
        self.table = HotTable(layout)
        self._words_bytes = whole_pages(8 * (_GENERATIONS + layout.segments))
        self._state_bytes = state_bytes(layout.segments, counters)
        self._state_space = AddressSpace(self._state_bytes)
        self._words: npt.NDArray[np.int64] = self._state_space.array(np.int64, 0, self._words_bytes)
        counts = self._state_space.array(np.uint8, self._words_bytes, FrequencySketch.bytes_for(counters))
        self.frequency = FrequencySketch(counters, period=2**62, table=counts)
        self._files: dict[int, int] = {}
        """Descriptors of the segments that are mapped."""
        self._mapped = np.zeros(layout.segments, np.int64)
        """Their generations."""
        self.is_open = False
        """Whether it may be read now; a segment that is mapped may be cut to nothing otherwise."""
        self._used_bytes = self._state_bytes
        self._state = self._opened_state()
        self._let_go = weakref.finalize(self, _close_all, self._files, self._state)
        """Also when nobody calls `close`: descriptors are few, and some servers know a thousand only."""

    # Opening ---------------------------------------------------------------------------------------------------------

    def _opened_state(self) -> int:
        """Open the state, or make it; whoever is first makes it."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self.folder / STATE
        try:
            state = os.open(path, OPEN_FLAGS)
        except FileNotFoundError:
            self._make_state(path)
            state = os.open(path, OPEN_FLAGS)
        try:
            status = os.fstat(state)
            self._state_inode = status.st_dev, status.st_ino
            if status.st_size != self._state_bytes:
                raise OSError(f"{str(path)!r} is not the state of this hot set")
            self._state_space.map_file(0, state, 0, self._state_bytes)
            if self._words[MAGIC] != _MAGIC or self._words[FINGERPRINT] != self._fingerprint:
                raise OSError(f"{str(path)!r} is the state of another hot set")
        except OSError:
            os.close(state)
            raise
        return state

    def _make_state(self, path: Path) -> None:
        own = self.folder / f"{STATE}.{os.getpid()}"
        descriptor = os.open(own, OPEN_FLAGS | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            allocate(descriptor, 0, self._state_bytes)
            os.ftruncate(descriptor, self._state_bytes)
            words = np.zeros(_GENERATIONS, np.int64)
            words[[MAGIC, FINGERPRINT, _NEXT_GENERATION]] = _MAGIC, self._fingerprint, 1
            os.pwrite(descriptor, words.tobytes(), 0)
            with contextlib.suppress(FileExistsError):
                os.link(own, path)
        finally:
            os.close(descriptor)
            own.unlink()

    def is_gone(self) -> bool:
        """Whether somebody has removed the folder, or put another in its place; it must be opened anew then."""
        try:
            status = os.stat(self.folder / STATE, follow_symlinks=False)
        except FileNotFoundError:
            return True
        return (status.st_dev, status.st_ino) != self._state_inode

    def close(self) -> None:
        """Let go of all files, for good; whoever opens the same folder finds what was remembered."""
        self.is_open = False
        for segment in list(self._files):
            self._drop_map(segment)
        self._let_go()

    # Reading ---------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to read: what is mapped stays whole until `end`. `OSError` when it is gone."""
        if self.is_gone():
            raise FileNotFoundError(f"the hot set in {str(self.folder)!r} was removed")
        # A sign of life for whoever looks for folders that nobody uses.
        os.utime(self._state)
        for segment in list(self._files):
            if not self._is_locked_whole(self._files[segment]):
                self._drop_map(segment)
        self.is_open = True
        self.look()

    def end(self) -> None:
        """Cease to read, for a while or for good."""
        self._used_bytes = self.used_bytes
        self.is_open = False
        for descriptor in self._files.values():
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def look(self) -> None:
        """Map what is newer than what is mapped, and see all rows that are complete now."""
        generations = self._generations
        for segment in np.flatnonzero(generations != self._mapped).tolist():
            self._map_newest(segment, int(generations[segment]))
        self.table.look()

    def note(self, probes: int, hits: int) -> None:
        """So many keys were asked for, and so many of them were there."""
        self._words[_PROBES] += probes
        self._words[_HITS] += hits

    @property
    def memo(self) -> npt.NDArray[np.float64]:
        """A few numbers that writers leave for each other and for readers; zeros at first."""
        return self._words[_MEMO : _MEMO + _MEMO_WORDS].view(np.float64)

    @property
    def key_count(self) -> int:
        """Keys in all segments that are mapped; 0 while it may not be read."""
        return int(self.table.headers[: self.layout.segments, ENTRIES].sum()) if self.is_open else 0

    @property
    def used_bytes(self) -> int:
        """What the files take, as far as it was seen from here."""
        return self._state_bytes + self.table.used_bytes() if self.is_open else self._used_bytes

    @property
    def _generations(self) -> Rows:
        return self._words[_GENERATIONS : _GENERATIONS + self.layout.segments]

    def _path(self, segment: int, generation: int) -> Path:
        return self.folder / f"{segment:03d}.{generation}"

    def _map_newest(self, segment: int, generation: int) -> None:
        self._drop_map(segment)
        if generation == 0:
            return
        try:
            descriptor = os.open(self._path(segment, generation), OPEN_FLAGS)
        except OSError:
            return  # It was replaced just now; the next look finds what has come.
        if not self._is_locked_whole(descriptor) or not self._is_ours(descriptor, segment):
            os.close(descriptor)
            return
        self._take_map(segment, descriptor, generation)

    def _take_map(self, segment: int, descriptor: int, generation: int) -> None:
        self.table.map(segment, descriptor)
        self._files[segment] = descriptor
        self._mapped[segment] = generation

    def _is_locked_whole(self, descriptor: int) -> bool:
        """Lock a segment for reading, unless its memory was or is being taken back."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return os.fstat(descriptor).st_size == self.layout.file_bytes

    def _is_ours(self, descriptor: int, segment: int) -> bool:
        """Whether the header is that of this segment of these rows."""
        header = np.frombuffer(os.pread(descriptor, 8 * (CHECK + 1), 0), np.int64)
        return bool(header.tolist() == self._identifying(segment))

    def _identifying(self, segment: int) -> list[int]:
        return [_MAGIC, self._fingerprint, segment, (_MAGIC ^ self._fingerprint) + segment]

    def _drop_map(self, segment: int) -> None:
        if segment in self._files:
            self.table.unmap(segment)
            os.close(self._files.pop(segment))  # That ends the lock, too.
        self._mapped[segment] = 0

    # Writing ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def writing(self) -> Iterator[HotSetWriter | None]:
        """Become the one who writes; None when another is. Nobody waits."""
        try:
            fcntl.flock(self._state, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        try:
            if self.is_gone():
                yield None
                return
            self.look()
            yield HotSetWriter(self)
        finally:
            self.look()
            fcntl.flock(self._state, fcntl.LOCK_UN)


class HotSetWriter:
    """What only the one who holds the lock may do."""

    def __init__(self, hot: HotSet) -> None:
        self._hot = hot
        self._table, self.layout = hot.table, hot.layout
        self.may_rewrite = self._tidy_up()
        """Whether a segment can be written anew: nothing is left of those before."""
        for segment in np.flatnonzero(self._table.headers[: self.layout.segments, APPENDING]).tolist():
            # Its writer died.
            self.drop(segment)

    # What is counted -------------------------------------------------------------------------------------------------

    def take_tally(self) -> tuple[int, int]:
        """Probes and hits since the last call."""
        words = self._hot._words
        probes, hits = int(words[_PROBES]), int(words[_HITS])
        words[[_PROBES, _HITS]] = 0
        return probes, min(hits, probes)

    def set_floor(self, segment: int, price: float) -> None:
        """Set the price of room in a segment that exists."""
        self._table.headers[segment, FLOOR : FLOOR + 1].view(np.float64)[0] = price

    def halve(self, times: int) -> None:
        """Halve all uses, all frequencies and all prices."""
        for segment in list(self._hot._files):
            self._table.halve_uses(segment, times)
            self.set_floor(segment, self._table.floors[segment] / 2.0**times)
        self._hot.frequency.halve(times)

    # Segments --------------------------------------------------------------------------------------------------------

    def room(self, segment: int) -> tuple[int, int]:
        """Bytes of rows, and keys, that a segment has room for."""
        if segment not in self._hot._files:
            return self.layout.rows_bytes_max, self.layout.entries_max
        keys = self.layout.entries_max - int(self._table.headers[segment, ENTRIES])
        return self.layout.rows_bytes_max - int(self._table.rows_bytes(slice(segment, segment + 1))[0]), keys

    def append(
        self, segment: int, source: RowSource, codes: Rows, first: Rows, count: Rows, uses: npt.NDArray[Any]
    ) -> None:
        """Add keys that are not there and fit, each with all of its rows in `source`."""
        if segment not in self._hot._files:
            self._write(segment, source, codes, first, count, uses)
            return
        descriptor = self._hot._files[segment]
        self._table.append(segment, segment, _allocating(descriptor), source, codes, first, count, uses)
        self._table.look()

    def rewrite(self, segment: int, codes: Rows, first: Rows, count: Rows) -> None:
        """Write a segment anew with only these of its keys."""
        assert self.may_rewrite, "a segment was written anew before the one before it was gone"
        floor, uses = self._table.floors[segment], self._table.uses_of(first)
        self._write(segment, self._table.rows, codes, first, count, uses)
        self.set_floor(segment, floor)

    def drop(self, segment: int) -> None:
        """Let go of a whole segment."""
        generation = int(self._hot._mapped[segment])
        self._hot._generations[segment] = 0
        self._hot._drop_map(segment)
        self._retire(segment, generation)

    def _write(
        self, segment: int, source: RowSource, codes: Rows, first: Rows, count: Rows, uses: npt.NDArray[Any]
    ) -> None:
        hot, layout, place = self._hot, self.layout, self.layout.segments
        path = hot.folder / BUILDING
        descriptor = os.open(path, OPEN_FLAGS | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.ftruncate(descriptor, layout.file_bytes)
            allocate(descriptor, 0, layout.fixed_bytes)
            os.pwrite(descriptor, np.array(hot._identifying(segment), np.int64).tobytes(), 0)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            self._table.map(place, descriptor)
            self._table.begin_segment(place, segment, _allocating(descriptor))
            if len(first):
                self._table.append(place, segment, _allocating(descriptor), source, codes, first, count, uses)
            generation = int(hot._words[_NEXT_GENERATION])
            hot._words[_NEXT_GENERATION] = generation + 1
            path.rename(hot._path(segment, generation))
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        finally:
            self._table.unmap(place)
        before = int(hot._generations[segment])
        hot._generations[segment] = generation
        hot._drop_map(segment)
        hot._take_map(segment, descriptor, generation)
        self._table.look()
        self._retire(segment, before)

    def _retire(self, segment: int, generation: int) -> None:
        if generation:
            with contextlib.suppress(FileNotFoundError):
                self._hot._path(segment, generation).rename(self._hot.folder / f"{RETIRED}{segment:03d}.{generation}")
        self.may_rewrite = self._tidy_up()

    def _tidy_up(self) -> bool:
        """Remove what does not count any more; return whether nothing is left of it."""
        current = {self._hot._path(s, int(g)).name for s, g in enumerate(self._hot._generations) if g}
        left = 0
        for entry in os.scandir(self._hot.folder):
            if entry.name != STATE and entry.name not in current and not entry.name.startswith(f"{STATE}."):
                left += not removed_file(Path(entry.path))
        return left == 0


def _close_all(files: dict[int, int], state: int) -> None:
    for descriptor in (*files.values(), state):
        os.close(descriptor)


def _allocating(descriptor: int) -> Allocate:
    return lambda begin, end: allocate(descriptor, begin, end)
