"""The operations of the cost models, done with the operators' own structures, so that they can be timed.

`cost.calibrate` knows statistics and no operators; here are the operations it measures. Each is done as the joins do
it: on arrays, a page or a step at a time, with tables that are as full as they are in a run. So a unit cost holds its
share of the Python call around it, and is that of batches of this size: with pages of ten rows everything costs more.

| symbol | what is timed                                                                                   |
|--------|-------------------------------------------------------------------------------------------------|
| c_h    | `HashMultimap.first`: look codes up among the waiting rows                                      |
| c_o    | `gather`: copy rows of R, a number and a text, into the output                                  |
| c_e    | `WaitingRows.take_codes`: take rows out of H_S and the queue                                    |
| c_s    | `KeyCodec.encode` and numbering: a stream row as the driver hands it over                       |
| c_a    | `WaitingRows.push`: append rows to H_S and the queue                                            |
| c_f    | count the rows that wait for each key of a page, and compare                                    |
| c_i    | the same, and the bytes that each key would take in H_R                                         |
| c_v    | uses against bytes for each key of H_R                                                          |
| c_IO   | `os.pread` of a file of `FILE_BYTES`, one page at a time                                        |

One more is timed for `loops`, and is no symbol of any paper: `LET_IN_KEYS` keys of a page are let into a full H_R.

The file is dropped from the system's cache before each sample, where the system can do that; where it cannot, or where
the directory lies in memory, reads are as fast as memory, which is what a run would find there, too.

Memory: the tables, some 20 MiB, and `FILE_BYTES` on the disk while it is measured.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from semistream.clock import Clock
from semistream.cost.calibrate import Calibration, Operation, calibrate, measure
from semistream.errors import InvalidOption
from semistream.joins.base import Numbers, StreamRows
from semistream.joins.cachejoin import REPLACED_SHARE
from semistream.joins.disk_probing import Page
from semistream.joins.held_keys import HeldKeys
from semistream.joins.waiting import WaitingRows
from semistream.keys import KeyCodec
from semistream.relations.base import CODE_COLUMN
from semistream.structures.gather import Part, gather
from semistream.structures.hash_multimap import HashMultimap

TABLE_ROWS = 1 << 16
"""Rows of the tables: more than the second cache of a processor holds, as in a run."""

PAGE_ROWS = 1024
"""Rows that are worked on at once."""

TEXT_BYTES = 100
"""With it a row of R is about as long as in the papers."""

LET_IN_KEYS = 16
"""Keys that are let into H_R at once: five to forty of a page of 256 to 4096 rows, in a cache at rest."""

READ_BYTES = (4096, 32_768, 262_144)
"""Sizes of pages that are read."""

FILE_BYTES = 32 << 20

SEED = 20_261


def calibrate_here(
    clock: Clock, directory: Path | None = None, on_operation: Callable[[str], None] | None = None
) -> Calibration:
    """Measure all unit costs on this machine, reads in `directory` or where temporary files are kept.

    `on_operation` is told of every operation before it is measured.
    """
    tell = on_operation or (lambda _: None)
    with _scratch_in(directory) as where, _ReadFile(where / "pages") as file:
        return calibrate(
            {symbol: _told(symbol, operation, tell) for symbol, operation in operations().items()},
            {b: _told(f"c_io, {b} bytes at random", _reads(file, b, sequential=False), tell) for b in READ_BYTES},
            {b: _told(f"c_io, {b} bytes in sequence", _reads(file, b, sequential=True), tell) for b in READ_BYTES},
            clock,
        )


@contextmanager
def _scratch_in(directory: Path | None) -> Iterator[Path]:
    try:
        scratch = tempfile.TemporaryDirectory(dir=directory)
    except OSError as problem:
        raise InvalidOption(
            "nothing can be written into this directory, so reads cannot be measured there",
            given=f"{directory or tempfile.gettempdir()} ({problem.strerror})",
            allowed="a directory to write to",
        ) from None
    with scratch as where:
        yield Path(where)


def _told(name: str, operation: Operation, tell: Callable[[str], None]) -> Operation:
    """The same operation, of which somebody is told when it is first done."""
    is_new = True

    def done(repeat: int, clock: Clock) -> tuple[float, float]:
        nonlocal is_new
        if is_new:
            is_new = False
            tell(name)
        return operation(repeat, clock)

    return done


def letting_s(clock: Clock) -> float:
    """Seconds that it takes to let the keys of a page into H_R."""
    return measure(_Tables().let_in, clock).median_s


def operations() -> dict[str, Operation]:
    """One operation for each symbol of the CPU."""
    tables = _Tables()
    return {
        "c_h": tables.probe,
        "c_o": tables.put_out,
        "c_e": tables.leave,
        "c_s": tables.read_stream,
        "c_a": tables.append,
        "c_f": tables.compare_frequency,
        "c_i": tables.apply_inequality,
        "c_v": tables.test_eviction,
    }


class _Tables:
    """H_S, H_R and a page, filled as in a run, and what is done with them."""

    def __init__(self) -> None:
        rng = np.random.default_rng(SEED)
        numbers = np.arange(TABLE_ROWS, dtype=np.int64)
        self._codes = rng.permutation(numbers)
        self._probed = HashMultimap(TABLE_ROWS)
        self._probed.insert(self._codes, numbers)
        self._page = Page.of(_rows_of_r(np.arange(0, 64 * PAGE_ROWS, 64, dtype=np.int64)))
        self._waiting = WaitingRows(2 * TABLE_ROWS)
        self._waiting.push(StreamRows(numbers, self._codes))
        self._held = HeldKeys(self._page.batch.schema, 8 << 20, self._page.batch.nbytes / PAGE_ROWS)
        self._fill_held()
        self._newest_code = 2 * int(self._held.codes.max())
        self._stream_keys = pa.array(self._codes[:PAGE_ROWS])
        self._codec = KeyCodec([pa.int64()])
        self._output_rows = rng.integers(0, PAGE_ROWS, PAGE_ROWS)
        # Pushed and taken again, from among codes that no other row has.
        self._coming = [
            StreamRows(numbers[part] + TABLE_ROWS, self._codes[part] + TABLE_ROWS)
            for part in _slices(TABLE_ROWS, PAGE_ROWS)
        ]

    def _fill_held(self) -> None:
        page = self._page
        sizes = self._held.bytes_of(page.batch, page.first, page.count)
        copy = 0
        while self._held.fitting(sizes) == len(sizes):
            self._held.add(page.batch, page.codes + copy, page.first, page.count, sizes, page.count)
            copy += 1

    def probe(self, repeat: int, clock: Clock) -> tuple[float, float]:
        parts = [self._codes[part] for part in _slices(TABLE_ROWS, PAGE_ROWS)]
        return _timed(clock, repeat, lambda turn: self._probed.first(parts[turn % len(parts)]))

    def append(self, repeat: int, clock: Clock) -> tuple[float, float]:
        return self._append_and_leave(repeat, clock)[0]

    def leave(self, repeat: int, clock: Clock) -> tuple[float, float]:
        return self._append_and_leave(repeat, clock)[1]

    def _append_and_leave(self, repeat: int, clock: Clock) -> tuple[tuple[float, float], tuple[float, float]]:
        """As many rows as there is room for come, then they leave in another order; each way is timed on its own."""
        turns = min(repeat, len(self._coming))
        leaving = [np.sort(rows.codes) for rows in self._coming[:turns]]
        appended_s = left_s = 0.0
        rounds = -(-repeat // turns)
        for _ in range(rounds):
            appended_s += _timed(clock, turns, lambda turn: self._waiting.push(self._coming[turn]))[1]
            left_s += _timed(clock, turns, lambda turn: self._waiting.take_codes(leaving[turn], PAGE_ROWS))[1]
        rows = float(rounds * turns * PAGE_ROWS)
        return (rows, appended_s), (rows, left_s)

    def put_out(self, repeat: int, clock: Clock) -> tuple[float, float]:
        part = Part(self._page.batch, self._output_rows, np.arange(PAGE_ROWS))
        return _timed(clock, repeat, lambda turn: gather([part], self._page.batch.schema, PAGE_ROWS))

    def read_stream(self, repeat: int, clock: Clock) -> tuple[float, float]:
        def read(turn: int) -> None:
            codes = self._codec.encode([self._stream_keys]).codes
            StreamRows(np.arange(turn, turn + len(codes), dtype=np.int64), codes)

        return _timed(clock, repeat, read)

    def compare_frequency(self, repeat: int, clock: Clock) -> tuple[float, float]:
        return _timed(clock, repeat, lambda turn: np.flatnonzero(self._waiting.count(self._page.codes) > 1))

    def apply_inequality(self, repeat: int, clock: Clock) -> tuple[float, float]:
        page = self._page

        def apply(turn: int) -> None:
            asked = np.flatnonzero(self._waiting.count(page.codes))
            sizes = self._held.bytes_of(page.batch, page.first[asked], page.count[asked])
            np.flatnonzero(sizes < TEXT_BYTES)

        return _timed(clock, repeat, apply)

    def let_in(self, repeat: int, clock: Clock) -> tuple[float, float]:
        """As CACHEJOIN does it: measure the rows, make room if there is none, and copy them."""
        held, page, wanted = self._held, self._page, np.arange(0, PAGE_ROWS, PAGE_ROWS // LET_IN_KEYS)

        def let_in(turn: int) -> None:
            first, count = page.first[wanted], page.count[wanted]
            sizes = held.bytes_of(page.batch, first, count)
            if held.fitting(sizes) < len(wanted):
                held.keep(np.arange(len(held)) >= REPLACED_SHARE * len(held))
            self._newest_code += PAGE_ROWS
            held.add(page.batch, wanted + self._newest_code, first, count, sizes, count)

        return float(repeat), _timed(clock, repeat, let_in)[1]

    def test_eviction(self, repeat: int, clock: Clock) -> tuple[float, float]:
        held = self._held
        done, seconds = _timed(clock, repeat, lambda turn: np.flatnonzero(held.uses < held.sizes / TEXT_BYTES))
        return done / PAGE_ROWS * len(held), seconds


def _timed(clock: Clock, repeat: int, work: Callable[[int], object]) -> tuple[float, float]:
    """Do the work of a page so many times: (rows worked on, seconds)."""
    begin_s = clock.now_s()
    for turn in range(repeat):
        work(turn)
    return float(repeat * PAGE_ROWS), clock.now_s() - begin_s


def _slices(length: int, step: int) -> list[slice]:
    return [slice(begin, begin + step) for begin in range(0, length, step)]


def _rows_of_r(codes: Numbers) -> pa.RecordBatch:
    texts = pa.array(np.full(len(codes), "x" * TEXT_BYTES))
    return pa.record_batch({CODE_COLUMN: pa.array(codes), "number": pa.array(codes), "text": texts})


class _ReadFile:
    """A file that is read without the system's cache, as far as the system lets us."""

    def __init__(self, path: Path) -> None:
        self._rng = np.random.default_rng(SEED)
        path.write_bytes(self._rng.bytes(FILE_BYTES))
        self._descriptor = os.open(path, os.O_RDONLY)
        os.fsync(self._descriptor)

    def __enter__(self) -> _ReadFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, offset: int, count_bytes: int) -> None:
        taken = os.pread(self._descriptor, count_bytes, offset)
        assert len(taken) == count_bytes, "a read went past the end of the file"

    def forget(self) -> None:
        """Drop it from the system's cache."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def offsets(self, count: int, read_bytes: int, *, sequential: bool) -> list[int]:
        """Where to read so many times: one after the other, or anywhere but never twice before all were read."""
        places = FILE_BYTES // read_bytes
        begin = int(self._rng.integers(places))
        order = (np.arange(count) + begin) % places if sequential else np.resize(self._rng.permutation(places), count)
        return [int(place) * read_bytes for place in order]


def _reads(file: _ReadFile, read_bytes: int, *, sequential: bool) -> Operation:
    def read(repeat: int, clock: Clock) -> tuple[float, float]:
        offsets = file.offsets(repeat, read_bytes, sequential=sequential)
        file.forget()
        begin_s = clock.now_s()
        for offset in offsets:
            file.read(offset, read_bytes)
        return float(repeat), clock.now_s() - begin_s

    return read
