"""One run on disk: the rows that a micro-batch, or several of them, left in the windows of one partition.

A run is a file that appears with all of its bytes or not at all and never changes. Inside stand Arrow streams one
behind the other, each beginning at a multiple of 64 bytes so that its buffers can be used where they are mapped, then a
table of contents in JSON, its length, its checksum and a mark:

```
a.keys     row number, code and mark (see `windows`) of the rows of a, ascending by row
a.payload  the columns of the same rows
b.keys, b.payload
matched    left joins: rows of a that this run found partners for
a.held, b.held   where rows are shed: all rows of the window that are kept, and the level they were sampled at
```

What names the run also tells what most readers want to know, without opening the file: its partition, the batches it
covers, its level (how often it was merged), how many rows of each side it holds, and what had been counted when it was
written: rows of each side and the clock.

Checksums are those of zlib. Keys are read whole and checked each time; payload is checked once by each process, for
then only the rows that found a partner are looked at.

Memory: none to speak of; keys and payload stay in the map, and who wants to keep or change them makes a copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import EnvironmentUnfit, StateCorrupt

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

Payload = tuple[Iterable[pa.RecordBatch], Iterable[pa.RecordBatch]]

NO_CLOCK = -(2**63)
"""The clock before any row."""

ALIGNMENT = 64
MARK = b"SSRUN001"
SIDES = ("a", "b")
_KEY_COLUMNS = ("row", "code", "mark")
_NAME = re.compile(r"p(\d{5})-(\d{10})-(\d{10})-l(\d+)-k(\d+)-(\d+)-c(\d+)-(\d+)-(-?\d+)\.run")
_VERIFIED_MAX = 4096
_verified: dict[tuple[str, int, int, int], None] = {}
"""Files whose payload this process has checked, the oldest first."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What has been counted in a partition so far."""

    rows: tuple[int, int] = (0, 0)
    """Accepted on each side, null keys included."""
    clock_us: int = NO_CLOCK
    """The latest time of any row."""

    @property
    def arrivals(self) -> int:
        """Rows of both sides."""
        return sum(self.rows)


@dataclass(frozen=True, slots=True)
class RunName:
    """What the name of a run tells."""

    partition: int
    first_batch: int
    last_batch: int
    level: int
    kept: tuple[int, int]
    """Rows of each side that it holds."""
    after: Counters
    """As they were when the last of its batches was done."""

    @property
    def file_name(self) -> str:
        """How the file is called."""
        kept, counted = ("-".join(map(str, rows)) for rows in (self.kept, self.after.rows))
        return (
            f"p{self.partition:05d}-{self.first_batch:010d}-{self.last_batch:010d}-l{self.level}"
            f"-k{kept}-c{counted}-{self.after.clock_us}.run"
        )

    @staticmethod
    def parse(file_name: str) -> RunName | None:
        """Read a name; None when the file is no run."""
        match = _NAME.fullmatch(file_name)
        if match is None:
            return None
        partition, first, last, level, kept_a, kept_b, rows_a, rows_b, clock_us = map(int, match.groups())
        return RunName(partition, first, last, level, (kept_a, kept_b), Counters((rows_a, rows_b), clock_us))


@dataclass(frozen=True, slots=True)
class Keys:
    """What a join must know of rows, without their payload; ascending by row."""

    row: Int64s
    code: Int64s
    mark: Int64s

    def __len__(self) -> int:
        return len(self.row)

    def take(self, places: npt.NDArray[Any] | slice) -> Keys:
        """Some of the rows, by place or by flag, or a stretch of them, which is not copied."""
        return Keys(*(getattr(self, name)[places] for name in _KEY_COLUMNS))

    @staticmethod
    def joined(pieces: Sequence[Keys]) -> Keys:
        """Rows of several runs, one behind the other."""
        nothing = np.empty(0, np.int64)
        return Keys(*(np.concatenate([nothing, *(getattr(p, name) for p in pieces)]) for name in _KEY_COLUMNS))


NO_KEYS = Keys.joined([])


@dataclass(frozen=True, slots=True)
class Held:
    """Where rows are shed: which are kept, and at which level of sampling each was."""

    row: Int64s
    tag: Bytes


@dataclass(frozen=True, slots=True)
class Run:
    """The content of a run."""

    keys: tuple[Keys, Keys]
    payload: tuple[tuple[pa.RecordBatch, ...], tuple[pa.RecordBatch, ...]]
    """The rows of `keys`, in one piece or in several."""
    schemas: tuple[pa.Schema, pa.Schema]
    before: Counters
    """What had been counted before the first of its batches."""
    matched: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    held: tuple[Held, Held] | None = None
    levels: tuple[int, int] = (0, 0)
    """Levels of sampling of new rows."""

    @property
    def kept(self) -> tuple[int, int]:
        """Rows of each side."""
        return len(self.keys[0]), len(self.keys[1])


# ---------------------------------------------------------------------------------------------------------------------
# Writing
# ---------------------------------------------------------------------------------------------------------------------


def write_run(folder: Path, name: RunName, run: Run, payload: Payload | None = None) -> None:
    """Let a run appear, whole and durable; one of the same name is replaced.

    `payload` takes the place of the run's own, for what shall not be in memory at once.
    """
    temporary = folder / f".{name.file_name}-{uuid.uuid4().hex}"
    try:
        with temporary.open("xb") as file:
            _write(file, run, payload or run.payload)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / name.file_name)
        sync_directory(folder)
    except OSError as problem:
        raise EnvironmentUnfit(
            f"the state of a window join cannot be written to {str(folder)!r}",
            given=problem.strerror or str(problem),
            hint="the query stops cleanly; make room or give rights there and start it again",
        ) from problem
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def sync_directory(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write(file: BinaryIO, run: Run, payload: Payload) -> None:
    contents: dict[str, list[int]] = {}
    for name, schema, batches in _sections(run, payload):
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        begin = file.tell()
        checked = _Checked(file)
        with pa.ipc.new_stream(pa.PythonFile(checked, "w"), schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        contents[name] = [begin, file.tell() - begin, checked.checksum]
    before = {"rows_before": run.before.rows, "clock_us_before": run.before.clock_us}
    table = {"sections": contents, **before, "levels": run.levels}
    text = json.dumps(table).encode()
    file.write(text)
    file.write(len(text).to_bytes(8, "little") + zlib.crc32(text).to_bytes(8, "little") + MARK)


def _sections(run: Run, payload: Payload) -> Iterator[tuple[str, pa.Schema, Iterable[pa.RecordBatch]]]:
    for side, keys, batches, schema in zip(SIDES, run.keys, payload, run.schemas, strict=True):
        batch = pa.record_batch({name: getattr(keys, name) for name in _KEY_COLUMNS})
        yield f"{side}.keys", batch.schema, [batch]
        yield f"{side}.payload", schema, batches
    matched = pa.record_batch({"row": run.matched})
    yield "matched", matched.schema, [matched]
    if run.held is not None:
        for side, held in zip(SIDES, run.held, strict=True):
            batch = pa.record_batch({"row": held.row, "tag": held.tag})
            yield f"{side}.held", batch.schema, [batch]


class _Checked:
    """A file that sums up what is written to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.checksum = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """The file is flushed once, when all is written."""

    def close(self) -> None:
        """The file stays open: it is not ours."""


# ---------------------------------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------------------------------


def read_run(path: Path) -> Run:
    """Open a run: keys are copied, payload stays where it is. Raise `StateCorrupt` unless every byte is as written."""
    try:
        with pa.memory_map(str(path)) as mapped:
            whole = mapped.read_buffer()
        status = os.stat(path)
    except (OSError, pa.ArrowException) as problem:
        raise _corrupt(path, str(problem)) from problem
    table = _contents(path, whole)
    file_id = (str(path), status.st_ino, status.st_mtime_ns, status.st_size)
    try:
        sections = {
            name: _section(path, name, whole, place, verify=not name.endswith("payload") or file_id not in _verified)
            for name, place in table["sections"].items()
        }
        run = _run_of(table, sections)
    except (pa.ArrowException, KeyError, OSError) as problem:
        raise _corrupt(path, repr(problem)) from problem
    for keys, batches in zip(run.keys, run.payload, strict=True):
        if sum(batch.num_rows for batch in batches) != len(keys):
            raise _corrupt(path, "there are more or fewer keys than rows")
    _verified[file_id] = None
    while len(_verified) > _VERIFIED_MAX:
        del _verified[next(iter(_verified))]
    return run


def _contents(path: Path, whole: pa.Buffer) -> dict[str, Any]:
    tail_bytes = 24
    if whole.size < tail_bytes:
        raise _corrupt(path, f"it has {whole.size} bytes")
    tail = whole[whole.size - tail_bytes :].to_pybytes()
    length, checksum = int.from_bytes(tail[:8], "little"), int.from_bytes(tail[8:16], "little")
    if tail[16:] != MARK or length > whole.size - tail_bytes:
        raise _corrupt(path, "its end is missing")
    text = whole[whole.size - tail_bytes - length : whole.size - tail_bytes].to_pybytes()
    if zlib.crc32(text) != checksum:
        raise _corrupt(path, "its table of contents has another checksum")
    contents: dict[str, Any] = json.loads(text)
    return contents


def _section(
    path: Path, name: str, whole: pa.Buffer, place: Sequence[int], *, verify: bool
) -> tuple[pa.Schema, tuple[pa.RecordBatch, ...]]:
    begin, length, checksum = place
    data = whole[begin : begin + length]
    if verify and zlib.crc32(data) != checksum:
        raise _corrupt(path, f"{name} has another checksum")
    with pa.ipc.open_stream(pa.BufferReader(data)) as stream:
        return stream.schema, tuple(batch for batch in stream if batch.num_rows)


def _run_of(table: dict[str, Any], sections: dict[str, tuple[pa.Schema, tuple[pa.RecordBatch, ...]]]) -> Run:
    def column(section: str, name: str) -> npt.NDArray[Any]:
        schema, batches = sections[section]
        assert len(batches) <= 1, f"{section} is written in one piece"
        return batches[0].column(name).to_numpy() if batches else np.empty(0, schema.field(name).type.to_pandas_dtype())

    keys_a, keys_b = (Keys(*(column(f"{side}.keys", name) for name in _KEY_COLUMNS)) for side in SIDES)
    held = None
    if "a.held" in sections:
        held_a, held_b = (Held(column(f"{side}.held", "row"), column(f"{side}.held", "tag")) for side in SIDES)
        held = held_a, held_b
    rows_a, rows_b = table["rows_before"]
    return Run(
        keys=(keys_a, keys_b),
        payload=(sections["a.payload"][1], sections["b.payload"][1]),
        schemas=(sections["a.payload"][0], sections["b.payload"][0]),
        before=Counters((rows_a, rows_b), table["clock_us_before"]),
        matched=column("matched", "row"),
        held=held,
        levels=(table["levels"][0], table["levels"][1]),
    )


def _corrupt(path: Path, found: str) -> StateCorrupt:
    return StateCorrupt(
        f"the run {str(path)!r} of a window join is not what was written",
        given=found,
        hint="restore the file from a copy, or start the query anew with an empty state and an empty checkpoint",
    )
