"""R, the master data: four narrow ways in which it can be read.

An operator asks for the least it needs and a store offers what it can:

- `PageByKey`  the page around one key (what HYBRIDJOIN and its heirs need),
- `CyclicScan` numbered segments in a fixed order, to be read for ever (what MESHJOIN needs),
- `KeyBatch`   all rows of many keys in one call (what a database or an index answers best),
- `ChangeFeed` which keys changed since a version.

Keys are int64 codes here (see `semistream.keys`); a store never sees a stream's key columns. Whatever is read comes
as an Arrow `RecordBatch` whose first column, `CODE_COLUMN`, holds the codes, in ascending order, followed by the
columns the relation was opened with. A store is opened at one version and never changes under its reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

CODE_COLUMN = "__code"
"""Name of the first column of everything a relation returns: the int64 code of the row's key."""

Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RelationInfo:
    """What can be known of a relation without reading its rows."""

    name: str
    """The last part of its path; used in messages and metrics."""
    key: tuple[str, ...]
    """Key columns, in order."""
    schema: pa.Schema
    """All columns a user sees, key columns included, the code column not."""
    version: int
    """Number of the version that was opened."""
    row_count: int
    """Rows with a complete key; a row with a null in its key can never match and is not stored."""
    unique: bool
    """No key occurs twice."""
    rows_per_code_max: int
    """Most rows that share one code: 1 unless keys repeat or their hashes collide; 0 when empty."""
    row_bytes_mean: float
    """Mean Arrow bytes of a row as it is read: the code and the columns the relation was opened with."""
    row_bytes_max: int
    """Arrow bytes that no row as it is read exceeds."""
    page_count: int
    """Pages, which are also the segments of a cyclic scan."""
    page_bytes_max: int
    """Bytes of the largest page."""
    partition_count: int = 1
    """Hash partitions, each of which can be read as a relation of its own; see `semistream.relations.partitioned`."""


class Relation(Protocol):
    """What every store has."""

    @property
    def info(self) -> RelationInfo:
        """What is known without reading."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """The schema of what is read: the code column, then the columns this relation was opened with."""
        ...


@runtime_checkable
class PageByKey(Relation, Protocol):
    """Reads the one page that holds a key, and tells keys of one page from others without reading."""

    def page_for(self, code: int) -> pa.RecordBatch:
        """Return the page on which rows of `code` stand, or would stand.

        A page never splits the rows of one code. An empty relation returns an empty batch.
        """
        ...

    def page_numbers(self, codes: Codes) -> Codes:
        """Return for each code the number of the page that `page_for` would read, without reading it.

        Pages are numbered from 0 to before `info.page_count`, as the segments of a scan are. All numbers are 0 when
        the relation is empty.
        """
        ...


@runtime_checkable
class CyclicScan(Relation, Protocol):
    """Reads all of R in a fixed order; who reads keeps the position, so that one store serves many readers."""

    @property
    def segment_count(self) -> int:
        """Number of segments; 0 when the relation is empty."""
        ...

    def segment(self, number: int) -> pa.RecordBatch:
        """Return segment `number`, counted from 0."""
        ...


@runtime_checkable
class KeyBatch(Relation, Protocol):
    """Reads all rows of many keys in one call."""

    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows whose code is among `codes`, ascending by code.

        `codes` is sorted and free of duplicates. Each batch is freshly allocated, not empty, and at most
        `bytes_max` large unless a single row is larger; the rows of one code may stand in several batches.
        """
        ...


@runtime_checkable
class ChangeFeed(Relation, Protocol):
    """Tells what changed."""

    def changed_since(self, version: int) -> Codes | None:
        """Return the sorted codes whose rows differ from those of `version`; None when that cannot be known."""
        ...
