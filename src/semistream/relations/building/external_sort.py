"""Sorting more rows than memory holds, by code.

Rows come in batches whose first column is `CODE_COLUMN`. They are collected until a *run* is full; a full run is
sorted in memory and spilled to disk as an Arrow stream of small *blocks*. At the end the runs are merged, not row by
row but in *rounds* of many rows, so that NumPy and Arrow do all the work:

1. Blocks are loaded in the order of their first codes, whichever run they come from, until a round is full.
2. Every block still on disk starts at some code `bound` or later, so the loaded rows below `bound` are complete: they
   are joined together, sorted and handed on. At most one unfinished block of each run waits for the next round.
3. When no loaded row is below `bound`, the rows of that one code are more than a round holds. They need no sorting:
   each run hands on its rows of the code, block by block, run after run.

So a single code of any number of rows passes in bounded memory. The sort is stable: rows of one code leave in the order
in which they came. Rows that fit into one run never touch the disk. When there are more than `_FAN_IN` runs,
neighbours are merged into longer runs first.

Memory: a run or a round is at most a third of `memory_bytes`; joining it together needs as much again for a moment, and
codes and order 24 bytes a row. A batch stays in memory until its last row is spilled and a row is never cut, so the
bound holds for whoever adds batches that are small beside `memory_bytes`. Runs are read, not mapped: mapped pages would
count as resident memory.

Gathering rows in their new order takes half the time. Two threads of our own do it, a few pieces ahead of the consumer:
Arrow releases the interpreter lock meanwhile, and whoever consumes the pieces writes files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.budget import GIB, KIB
from semistream.relations.base import CODE_COLUMN, Codes

_FAN_IN = 64
"""Runs merged at once: each holds a file descriptor and, between rounds, up to one block."""

_RUN_BYTES_MAX = GIB
"""Half of what 32-bit string offsets can address, so that a run can always be joined into one array a column."""

_BLOCK_BYTES_MIN = 4 * KIB
"""Below this the Arrow message around a block weighs as much as its rows."""

_PIECE_BLOCKS = 4
"""Blocks in one sorted batch that is handed on: few enough to be small beside a round, enough to amortise a call."""

_GATHER_THREADS = 2
"""Enough to gather one piece while another is written; memory bandwidth is soon the limit."""


class ExternalSort:
    """Sorts any number of rows by code: `add` batches, then read `sorted_batches` once.

    Spilled runs stand in `scratch_dir`; each is deleted as soon as it has been read to its end, and the rest belong to
    whoever owns the directory.

    Example:
        >>> schema = pa.schema([(CODE_COLUMN, pa.int64()), ("name", pa.string())])
        >>> sort = ExternalSort(schema, Path("unused: all fits"), memory_bytes=1_000_000)
        >>> sort.add(pa.record_batch([pa.array([7, 3]), pa.array(["seven", "three"])], schema=schema))
        >>> [batch.column("name").to_pylist() for batch in sort.sorted_batches()]
        [['three', 'seven']]
    """

    def __init__(self, schema: pa.Schema, scratch_dir: Path, *, memory_bytes: int) -> None:
        assert schema.names[:1] == [CODE_COLUMN], "the first column must hold the codes"
        assert memory_bytes > 0, "a sort needs some memory"
        self._schema = schema
        self._scratch_dir = scratch_dir
        self._run_bytes_max = min(memory_bytes // 3, _RUN_BYTES_MAX)
        # Half a round for the unfinished blocks of all runs leaves the other half for new ones.
        self._block_bytes = max(self._run_bytes_max // (2 * _FAN_IN), _BLOCK_BYTES_MIN)
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0
        self._runs: list[_Run] = []
        self._runs_written = 0
        self._gatherers = ThreadPoolExecutor(_GATHER_THREADS, thread_name_prefix="semistream-sort")
        self.row_count = 0

    @property
    def spilled_run_count(self) -> int:
        """Runs written to disk so far, by collecting and by merging."""
        return self._runs_written

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in any order; spill a run whenever one is full."""
        assert batch.schema.equals(self._schema), "a batch does not have the schema of the sort"
        if batch.num_rows == 0:
            return
        # Cut, so that a batch larger than a run does not make a run of its own size.
        for part in split_to_bytes(batch, max(1, self._run_bytes_max // 4)):
            part_bytes = part.nbytes
            if self._collected and self._collected_bytes + part_bytes > self._run_bytes_max:
                self._spill()
            self._collected.append(part)
            self._collected_bytes += part_bytes
        self.row_count += batch.num_rows

    def sorted_batches(self) -> Generator[pa.RecordBatch, None, None]:
        """Yield all rows, ascending by code; rows of one code may stand in neighbouring batches."""
        if not self._runs:
            return self._take_collected(self._block_bytes * _PIECE_BLOCKS)
        if self._collected:
            self._spill()
        while len(self._runs) > _FAN_IN:
            self._lengthen_runs()
        return self._merged(self._runs, self._block_bytes * _PIECE_BLOCKS)

    def _spill(self) -> None:
        self._runs.append(self._write_run(self._take_collected(self._block_bytes)))
        _give_back_unused_memory()

    def _take_collected(self, piece_bytes: int) -> Generator[pa.RecordBatch, None, None]:
        collected, self._collected, self._collected_bytes = self._collected, [], 0
        return _sorted_pieces(collected, piece_bytes, self._gatherers)

    def _lengthen_runs(self) -> None:
        groups = [self._runs[start : start + _FAN_IN] for start in range(0, len(self._runs), _FAN_IN)]
        self._runs = [self._write_run(self._merged(group, self._block_bytes)) for group in groups]

    def _write_run(self, blocks: Iterable[pa.RecordBatch]) -> _Run:
        run = _Run(self._scratch_dir / f"run{self._runs_written:06d}.arrows", [], [])
        self._runs_written += 1
        with pa.OSFile(str(run.path), "wb") as file, pa.ipc.new_stream(file, self._schema) as writer:
            for block in blocks:
                writer.write_batch(block)
                run.first_codes.append(block.column(0)[0].as_py())
                run.block_bytes.append(block.nbytes)
        return run

    def _merged(self, runs: list[_Run], piece_bytes: int) -> Generator[pa.RecordBatch, None, None]:
        readers = [_RunReader(run) for run in runs]
        try:
            while any(reader.holds_rows for reader in readers):
                # 1. Load. What an earlier round left over counts as well.
                bound = self._fill_round(readers)
                # 2. Sort what is complete; in the order of the runs, which keeps equal codes in order of arrival.
                complete = [rows for reader in readers for rows in reader.take_below(bound)]
                if complete:
                    yield from _sorted_pieces(complete, piece_bytes, self._gatherers)
                else:
                    # 3. One code fills more than a round.
                    assert bound is not None, "with every block loaded, every row is complete"
                    for reader in readers:
                        yield from reader.take_code(bound)
                _give_back_unused_memory()
        finally:
            for reader in readers:
                reader.close()

    def _fill_round(self, readers: list[_RunReader]) -> int | None:
        """Load blocks by first code until the round is full; return the first code not loaded, None at the end."""
        held_bytes = sum(reader.loaded_bytes for reader in readers)
        while True:
            code, nearest = min(((reader.next_code, reader) for reader in readers), key=_code_or_end)
            if code is None or held_bytes >= self._run_bytes_max:
                return code
            held_bytes += nearest.load_block()


@dataclass(frozen=True, slots=True)
class _Run:
    """A sorted run on disk; what is known of its blocks decides when each is loaded."""

    path: Path
    first_codes: list[int]
    block_bytes: list[int]


class _RunReader:
    """Reads the blocks of one run in order and keeps those rows that wait for their round."""

    def __init__(self, run: _Run) -> None:
        self._run = run
        self._file = pa.OSFile(str(run.path), "rb")
        self._stream = pa.ipc.open_stream(self._file)
        self._blocks_read = 0
        self._loaded: list[pa.RecordBatch] = []

    @property
    def next_code(self) -> int | None:
        """First code of the next block on disk; None when all are loaded."""
        codes = self._run.first_codes
        return codes[self._blocks_read] if self._blocks_read < len(codes) else None

    @property
    def holds_rows(self) -> bool:
        return bool(self._loaded) or self.next_code is not None

    @property
    def loaded_bytes(self) -> int:
        return sum(rows.nbytes for rows in self._loaded)

    def load_block(self) -> int:
        """Load the next block and return its bytes."""
        self._loaded.append(self._stream.read_next_batch())
        self._blocks_read += 1
        return self._run.block_bytes[self._blocks_read - 1]

    def take_below(self, bound: int | None) -> list[pa.RecordBatch]:
        """Hand over the loaded rows below `bound`, or all of them without one."""
        if bound is None:
            taken, self._loaded = self._loaded, []
            return taken
        taken = []
        while self._loaded:
            head, tail = _split(self._loaded[0], int(np.searchsorted(_codes(self._loaded[0]), bound, side="left")))
            taken += head
            self._loaded[:1] = tail
            if tail:
                break
        return taken

    def take_code(self, code: int) -> Iterator[pa.RecordBatch]:
        """Hand over all rows of `code`, the smallest code left, loading one block at a time."""
        while True:
            if not self._loaded:
                if self.next_code != code:
                    return
                self.load_block()
            block = self._loaded.pop(0)
            head, tail = _split(block, int(np.searchsorted(_codes(block), code, side="right")))
            self._loaded[:0] = tail
            yield from head
            if tail:
                return

    def close(self) -> None:
        """Delete the run: it is read once."""
        self._loaded.clear()
        self._file.close()
        self._run.path.unlink(missing_ok=True)


def split_to_bytes(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Yield consecutive slices of at most `bytes_max`, or of one row if that is larger; nothing is copied."""
    # Halving, not dividing by the mean: a few huge rows between many small ones must not share a slice.
    pending = [batch]
    while pending:
        part = pending.pop()
        if part.num_rows > 1 and part.nbytes > bytes_max:
            half = part.num_rows // 2
            pending += [part.slice(half), part.slice(0, half)]
        else:
            yield part


def _sorted_pieces(
    batches: list[pa.RecordBatch], piece_bytes: int, gatherers: ThreadPoolExecutor
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows of `batches`, which is emptied, ascending by code and in pieces of about `piece_bytes`."""
    if not batches:
        return
    whole = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    batches.clear()
    codes = _codes(whole)
    if _is_sorted(codes):
        yield from split_to_bytes(whole, piece_bytes)
        return
    order = stable_order(codes)
    rows_per_piece = max(1, whole.num_rows * piece_bytes // whole.nbytes)
    ahead: deque[Future[pa.RecordBatch]] = deque()
    for start in range(0, whole.num_rows, rows_per_piece):
        ahead.append(gatherers.submit(whole.take, pa.array(order[start : start + rows_per_piece])))
        if len(ahead) > _GATHER_THREADS:
            yield from split_to_bytes(ahead.popleft().result(), 2 * piece_bytes)
    while ahead:
        yield from split_to_bytes(ahead.popleft().result(), 2 * piece_bytes)


def stable_order(codes: Codes) -> npt.NDArray[np.int64]:
    """Return the row numbers that sort `codes`, those of equal codes ascending."""
    # Merge sort finds the sorted stretches of a round and merges them; on rows in random order, NumPy's vectorised
    # quicksort followed by a repair of the ties is twice as fast.
    descents = int(np.count_nonzero(codes[1:] < codes[:-1]))
    if descents < _FAN_IN * _FAN_IN:
        return np.argsort(codes, kind="stable")
    order = np.argsort(codes)
    in_order = codes[order]
    changes = in_order[1:] != in_order[:-1]
    if changes.all():
        return order
    # Group number first, row number second, in one integer: both are below the row count of a run, far below 2^31.
    group = np.zeros(len(codes), dtype=np.int64)
    np.cumsum(changes, out=group[1:])
    group *= len(codes)
    group += order
    group.sort()
    return group % len(codes)


def _codes(batch: pa.RecordBatch) -> Codes:
    codes: Codes = batch.column(0).to_numpy()
    return codes


def _is_sorted(codes: Codes) -> bool:
    return bool((codes[1:] >= codes[:-1]).all())


def _split(batch: pa.RecordBatch, row: int) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    """Cut before `row`; a part without rows is an empty list."""
    if row == 0:
        return [], [batch]
    if row == batch.num_rows:
        return [batch], []
    return [batch.slice(0, row)], [batch.slice(row)]


def _code_or_end(candidate: tuple[int | None, object]) -> tuple[bool, int]:
    code = candidate[0]
    return code is None, code or 0


def _give_back_unused_memory() -> None:
    # Arrow's allocator keeps what was freed; the next phase allocates other sizes and the process would only grow.
    pa.default_memory_pool().release_unused()
