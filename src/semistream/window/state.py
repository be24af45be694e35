"""The state of a window join on disk: a directory of immutable runs, so that a replay sees what the first try saw.

State is nothing but recent input. The task that joins partition p in micro-batch n reads runs of batches below n, and
only those, and leaves what its batch added as a run of its own: whoever does batch n again, after a crash or beside a
slow twin, starts from the same rows and writes the same run over it.

```
state/
  JOIN.json                                        what the state belongs to
  p00003-0000000012-0000000012-l0-….run            what batch 12 left in partition 3
  p00003-0000000000-0000000011-l1-….run            batches 0 to 11 in one
  p00003-0000000013.begun                          batch 13 is being joined, or was given up in the middle
```

A partition that gets no rows in a batch writes nothing, so batches may be missing; that none was *lost* is seen from
the counters: each run says what had been counted before it, and that must be what the run below it ends with. A task
that was left before its end, because whatever takes its rows wanted only some of them, leaves its mark, and the next
batch refuses to go on without the run that is missing.

**Merging.** When `RUNS_PER_LEVEL` runs of a level are there, they are merged into one of the next, without the rows
that no batch to come can reach; so the runs of a partition are few, and a row is written again a few times at most. A
merged run ends with the batch before the one that merges.

**Removing.** Spark may go back to any of the last batches it remembers. A run is removed when no such batch would read
it: all its rows are out of reach, or a merged run that ends early enough holds them.

Spark promises that a batch that is repeated has the same rows. Whoever winds a query back by hand and lets it read
something else must give it new state.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import EnvironmentUnfit, InvalidOption, StateCorrupt, StateRefused
from semistream.structures.gather import Part, gather
from semistream.structures.window_state import BY_ARRIVAL, BY_ROW
from semistream.window.run_file import Counters, Keys, Run, RunName, read_run, sync_directory, write_run
from semistream.window.windows import Window

Int64s = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

JOIN = "JOIN.json"
RUNS_PER_LEVEL = 16
MERGED_BATCH_ROWS = 65_536
"""Rows of a piece of a merged run's payload: few pieces to gather from, and little memory to build one."""

_BEGUN = re.compile(r"p(\d{5})-(\d{10})\.begun")


def state_path(uri: str | os.PathLike[str]) -> Path:
    """The directory that a URI names; raise unless it is one of a file system."""
    text = os.fspath(uri)
    scheme = urlsplit(text).scheme
    if not text or (scheme not in ("", "file") and "://" in text):
        raise InvalidOption(
            "`state` must name a directory",
            given=repr(text),
            allowed="a path or file:///path that the driver and all executors see under the same name",
            hint="object stores have no atomic rename; mount one, or use a network file system",
        )
    return Path(unquote(urlsplit(text).path) if scheme == "file" else text).absolute()


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back rows count: which are out of reach once so much has been counted."""

    windows: tuple[Window, Window]
    lateness_us: int = 0
    for_ever: bool = False
    """Whether a window has no end that its counters could tell, as with a window for each key."""

    def alive(self, side: int, marks: Int64s, now: Counters) -> Flags:
        """Which rows of a side a row that comes next can still meet."""
        alive: Flags = marks >= self._newest(side, now) - self._span(side)
        return alive

    def of_chain(self, chain: Sequence[RunName]) -> list[RunName]:
        """The newest of these runs, back to the oldest that can have a row in reach; from their names alone.

        The newest is always among them, for its counters.
        """
        alive = [i for i, name in enumerate(chain) if name is chain[-1] or self._may_hold_alive(name, chain[-1].after)]
        return list(chain[alive[0] :]) if alive else []

    def _may_hold_alive(self, name: RunName, now: Counters) -> bool:
        ends = [self._newest(side, name.after) - (not self.windows[side].is_time) for side in (0, 1)]
        return any(
            name.kept[side] and (self.for_ever or self._newest(side, now) - ends[side] <= self._span(side))
            for side in (0, 1)
        )

    def _newest(self, side: int, counted: Counters) -> int:
        """The mark that everything is measured from."""
        kind = self.windows[side].kind
        if kind == BY_ROW:
            return counted.rows[side]
        return counted.arrivals if kind == BY_ARRIVAL else counted.clock_us

    def _span(self, side: int) -> int:
        window = self.windows[side]
        return window.span + self.lateness_us if window.is_time else window.span


class StateDirectory:
    """The runs of one window join."""

    def __init__(self, path: Path, reach: Reach) -> None:
        self.path = path
        self.reach = reach

    # To whom it belongs ----------------------------------------------------------------------------------------------

    def claim(self, identity: Mapping[str, object]) -> None:
        """Note what the state belongs to, or raise `StateRefused` when it belongs to something else."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not (self.path / JOIN).exists():
                self._write_identity(identity)
        except OSError as problem:
            raise EnvironmentUnfit(
                f"the state of a window join cannot be kept in {str(self.path)!r}",
                given=problem.strerror or str(problem),
                hint="name a directory that the driver and all executors may write to",
            ) from problem
        self.check(identity)

    def check(self, identity: Mapping[str, object]) -> None:
        """Raise `StateRefused` when the state, if there is any, belongs to something else."""
        known = self.identity_at(self.path)
        for name, value in identity.items() if known else ():
            if name in known and known[name] != value:
                raise StateRefused(
                    f"the state in {str(self.path)!r} belongs to a window join with another {name}",
                    given=str(value),
                    allowed=str(known[name]),
                    hint="a changed query starts anew: give it another `state` and another checkpoint",
                )

    @staticmethod
    def identity_at(path: Path) -> dict[str, object]:
        """What the state in a directory belongs to; nothing where there is none."""
        try:
            text = (path / JOIN).read_text("utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        try:
            known = json.loads(text)
        except ValueError as problem:
            raise _corrupt(path / JOIN, str(problem)) from problem
        if not isinstance(known, dict):
            raise _corrupt(path / JOIN, text[:80])
        return known

    def _write_identity(self, identity: Mapping[str, object]) -> None:
        temporary = self.path / f".{JOIN}-{uuid.uuid4().hex}"
        try:
            with temporary.open("x", encoding="utf-8") as file:
                json.dump(dict(identity), file, indent=2)
                file.flush()
                os.fsync(file.fileno())
            # Fails where another task was first; what that one wrote is compared like anything else.
            with contextlib.suppress(FileExistsError):
                os.link(temporary, self.path / JOIN)
            sync_directory(self.path)
        finally:
            temporary.unlink(missing_ok=True)

    # What a batch reads ----------------------------------------------------------------------------------------------

    def begin(self, partition: int, batch: int) -> PartitionState:
        """What a task of this batch must know of the batches before it; leaves a mark that it has begun."""
        names, begun = self._names()
        own = [name for name in names if name.partition == partition]
        chain = _chain(own, batch)
        given_up = [b for p, b in begun if p == partition and b < batch and not any(_covers(n, b) for n in own)]
        if given_up:
            raise StateCorrupt(
                f"batch {max(given_up)} of a window join was left before its end, so its rows are not in the state",
                given=f"partition {partition} in {str(self.path)!r}",
                hint="whatever follows the join must take all of its rows: in foreachBatch write or cache the whole "
                "frame, not only its first rows",
            )
        clock_us = max((n.after.clock_us for n in names if n.last_batch < batch), default=Counters().clock_us)
        self._mark(partition, batch).touch()
        tried = [name for name in own if name.first_batch == name.last_batch == batch]
        return PartitionState(self, partition, batch, tuple(chain), tried, clock_us)

    def _names(self) -> tuple[list[RunName], list[tuple[int, int]]]:
        entries = os.listdir(self.path)
        runs = [name for entry in entries if (name := RunName.parse(entry)) is not None]
        marks = (_BEGUN.fullmatch(entry) for entry in entries if entry.endswith(".begun"))
        return runs, [(int(m.group(1)), int(m.group(2))) for m in marks if m]

    def _mark(self, partition: int, batch: int) -> Path:
        return self.path / f"p{partition:05d}-{batch:010d}.begun"

    # What a batch leaves ---------------------------------------------------------------------------------------------

    def finish(self, name: RunName, run: Run, tried: Sequence[RunName]) -> None:
        """Write what a batch has left; from now on the next one can begin.

        What earlier tries at the batch have left is the same, unless the query was given other memory meanwhile and
        keeps another sample.
        """
        write_run(self.path, name, run)
        for other in tried:
            if other != name:
                (self.path / other.file_name).unlink(missing_ok=True)
        self._mark(name.partition, name.last_batch).unlink(missing_ok=True)

    def remove_old(self, partition: int, oldest_batch: int) -> list[RunName]:
        """Remove runs that no batch from `oldest_batch` on would read; return their names."""
        names, begun = self._names()
        own = [name for name in names if name.partition == partition]
        chain = _chain(own, oldest_batch)
        kept = {name for name in own if name.last_batch >= oldest_batch}
        kept |= set(self.reach.of_chain(chain))
        removed = [name for name in own if name not in kept]
        for name in removed:
            (self.path / name.file_name).unlink(missing_ok=True)
        for marked_partition, batch in begun:
            if marked_partition == partition and batch < oldest_batch:
                self._mark(partition, batch).unlink(missing_ok=True)
        return removed


def _corrupt(path: Path, found: str) -> StateCorrupt:
    return StateCorrupt(
        f"{str(path)!r} does not say what the state of a window join belongs to",
        given=found,
        hint="restore it from a copy, or start the query anew with an empty state and an empty checkpoint",
    )


def _covers(name: RunName, batch: int) -> bool:
    return name.first_batch <= batch <= name.last_batch


def _chain(names: Sequence[RunName], before_batch: int) -> list[RunName]:
    """Runs that together hold everything of the batches below a number, oldest first; merged ones where there are."""
    chain: list[RunName] = []
    end = before_batch
    for name in sorted(names, key=lambda name: (-name.last_batch, name.first_batch)):
        if name.last_batch < end:
            chain.append(name)
            end = name.first_batch
    return chain[::-1]


@dataclass(frozen=True, slots=True)
class Kept:
    """Rows of a side that are still in reach, of all rows of some runs."""

    keys: Keys
    places: Int64s
    """Which they are among all, thought one run behind the other."""

    def __len__(self) -> int:
        return len(self.places)


class PartitionState:
    """What the batches before one have left in a partition."""

    def __init__(
        self,
        directory: StateDirectory,
        partition: int,
        batch: int,
        chain: tuple[RunName, ...],
        tried: Sequence[RunName],
        clock_us: int,
    ) -> None:
        self._directory = directory
        self._partition = partition
        self._batch = batch
        self._tried = tried
        self.counters = chain[-1].after if chain else Counters()
        self.clock_us = clock_us
        """The latest time of any row in any partition."""
        self._names = directory.reach.of_chain(chain)
        self.runs = [read_run(directory.path / name.file_name) for name in self._names]
        # What is in reach is the newest end of the chain; below its first there may be one more that is not.
        below = [None, *chain][-len(self.runs) - 1 : -1]
        for lower, name, run in zip(below, self._names, self.runs, strict=True):
            if lower is not None and run.before.rows != lower.after.rows:
                self._refuse_gap(lower, name, run)

    def _refuse_gap(self, below: RunName, name: RunName, run: Run) -> None:
        raise StateCorrupt(
            f"a run between {below.file_name!r} and {name.file_name!r} is missing",
            given=f"{below.after.rows} rows counted before, {run.before.rows} expected",
            hint="restore it from a copy, or start the query anew with an empty state and an empty checkpoint",
        )

    def finish(self, run: Run, after: Counters) -> None:
        """Write what this batch has left."""
        name = RunName(self._partition, self._batch, self._batch, 0, run.kept, after)
        self._directory.finish(name, run, self._tried)

    def merge(self, kept: tuple[Kept, Kept], retained_batches: int) -> None:
        """Merge `runs` if there are many, with the rows that are kept, and remove what nobody needs any more."""
        count, level = self._due()
        if count:
            self._write_merged(count, level, kept)
        self._directory.remove_old(self._partition, self._batch - retained_batches)

    def _due(self) -> tuple[int, int]:
        """How many of the newest runs to merge, and into which level; none if they are few."""
        if self._directory.reach.for_ever:
            # Only all rows together tell which of them are out of reach.
            return (len(self.runs), 1) if len(self.runs) >= RUNS_PER_LEVEL else (0, 0)
        count = level = 0
        levels = [name.level for name in reversed(self._names)]
        while levels[count : count + RUNS_PER_LEVEL - (level > 0)].count(level) == RUNS_PER_LEVEL - (level > 0):
            count += RUNS_PER_LEVEL - (level > 0)
            level += 1
        return count, level

    def _write_merged(self, count: int, level: int, kept: tuple[Kept, Kept]) -> None:
        runs, names = self.runs[-count:], self._names[-count:]
        keys, places = [], []
        for side in (0, 1):
            # Where the first row of the first run that is merged stands.
            first = sum(len(run.keys[side]) for run in self.runs[:-count])
            own = slice(int(np.searchsorted(kept[side].places, first)), None)
            keys.append(kept[side].keys.take(own))
            places.append(kept[side].places[own] - first)
        matched = np.concatenate([run.matched for run in runs])
        merged = Run(
            keys=(keys[0], keys[1]),
            payload=((), ()),
            schemas=runs[0].schemas,
            before=runs[0].before,
            # A run may tell of partners that were found for rows of older runs, which are not merged now.
            matched=np.intersect1d(matched, kept[0].keys.row),
            held=runs[-1].held,
            levels=runs[-1].levels,
        )
        name = RunName(self._partition, names[0].first_batch, names[-1].last_batch, level, merged.kept, names[-1].after)
        payload = _merged_payload(runs, 0, places[0]), _merged_payload(runs, 1, places[1])
        write_run(self._directory.path, name, merged, payload)


def _merged_payload(runs: Sequence[Run], side: int, places: Int64s) -> Iterator[pa.RecordBatch]:
    """The payload of some rows of runs, in pieces of a good size."""
    schema = runs[0].schemas[side]
    batches = [batch for run in runs for batch in run.payload[side]]
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    for begin in range(0, len(places), MERGED_BATCH_ROWS):
        columns = gathered(batches, starts, places[begin : begin + MERGED_BATCH_ROWS], schema)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def gathered(batches: Sequence[pa.RecordBatch], starts: Int64s, places: Int64s, schema: pa.Schema) -> list[pa.Array]:
    """Columns of rows by their place in batches thought one behind the other; `starts` are the batches' first places.

    A place of -1 stands for a row of nulls.
    """
    parts = [Part(batches[number], rows, own) for number, rows, own in by_batch(starts, places)]
    return gather(parts, schema, len(places))


def by_batch(starts: Int64s, places: Int64s) -> Iterator[tuple[int, Int64s, Int64s]]:
    """For each batch that places lie in: its number, the rows in it, and which of the places they are."""
    # A place of -1 lies before all of them.
    source = np.searchsorted(starts, places, side="right")
    for number in np.flatnonzero(np.bincount(source)).tolist():
        if number > 0:
            own = np.flatnonzero(source == number)
            yield number - 1, places[own] - starts[number - 1], own
