"""Where the rows of a relation come from: files, or Arrow batches in memory, as a bounded stream of batches.

A path is a file, a directory (searched to its depths; names that begin with `_` or `.` are left out) or a glob.
Directories named `column=value`, as Spark and Hive write them, become columns: integers where all values are, text
otherwise. All files must agree with the first one in the columns that are used.

Formats are those of `semistream.relations.building.source_formats`; batches leave in the types that
`semistream.relations.building.stored_types` lists.

Memory: a batch is at most `BATCH_BYTES`, unless one row is larger, beside what the format must hold.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias
from urllib.parse import unquote

import pyarrow as pa

from semistream.errors import InvalidOption, RelationNotFound, did_you_mean_beside
from semistream.relations.building.external_sort import split_to_bytes
from semistream.relations.building.source_formats import BATCH_BYTES, explained, format_of
from semistream.relations.building.stored_types import stored_field, stored_rows

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


class ArrowStream(Protocol):
    """Whatever hands out its rows through Arrow's C interface: tables, readers, data frames."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule that holds an Arrow stream."""
        ...


SourceLike: TypeAlias = str | os.PathLike[str] | ArrowStream | pa.RecordBatch | Iterable[pa.RecordBatch]
"""What a relation can be built from."""


@dataclass(frozen=True, slots=True)
class Source:
    """Rows to be read once."""

    name: str
    """How messages call it."""
    schema: pa.Schema
    """The columns as they stand in the source."""
    row_count: int | None
    """None where only reading would tell."""
    _read: Callable[[Sequence[str]], Iterator[tuple[str, pa.RecordBatch]]]
    """Yields batches with these columns and perhaps others, each with the name of the file it is from."""

    def stored_schema(self, columns: Sequence[str]) -> pa.Schema:
        """Return these columns with the types in which they are stored."""
        return pa.schema([stored_field(self.schema.field(name), self.name) for name in columns])

    def batches(self, stored: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield all rows, with the columns and types of `stored`, in batches of a few MiB."""
        for where, batch in self._read(stored.names):
            for part in split_to_bytes(batch, BATCH_BYTES):
                yield stored_rows(part, stored, where)


def open_source(source: SourceLike) -> Source:
    """Look at a source without reading its rows.

    Raises:
        RelationNotFound: if the path does not exist or holds no file.
        InvalidOption: if the format is unknown, a file cannot be read, or two columns have the same name.
    """
    opened = _open_files(os.fspath(source)) if isinstance(source, str | os.PathLike) else _open_batches(source)
    names = opened.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidOption(
            f"two columns of {opened.name} have the same name", given=repr(twice[0]), hint="rename one of them"
        )
    return opened


# ---------------------------------------------------------------------------------------------------------------------
# Batches in memory
# ---------------------------------------------------------------------------------------------------------------------


def _open_batches(source: object) -> Source:
    name = f"the given {type(source).__name__}"
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if hasattr(source, "__arrow_c_stream__"):
        reader = pa.RecordBatchReader.from_stream(source)
        row_count = source.num_rows if isinstance(source, pa.Table) else None
        return Source(name, reader.schema, row_count, lambda _: _named(iter(reader), name))
    if not isinstance(source, Iterable):
        raise InvalidOption(
            "`source` is nothing that rows can be read from",
            given=type(source).__name__,
            allowed="a path, a pyarrow Table or RecordBatchReader, or an iterable of RecordBatches",
        )
    return _open_iterable(iter(source), name)


def _open_iterable(batches: Iterator[pa.RecordBatch], name: str) -> Source:
    first = next(batches, None)
    if not isinstance(first, pa.RecordBatch):
        raise InvalidOption(
            "`source` yields no RecordBatch to take a schema from",
            given="nothing" if first is None else type(first).__name__,
            allowed="an iterable of RecordBatches",
            hint="`pa.RecordBatchReader.from_batches(schema, batches)` has a schema even without rows",
        )
    return Source(name, first.schema, None, lambda _: _named(itertools.chain([first], batches), name))


def _named(batches: Iterator[pa.RecordBatch], name: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    with explained(name):
        for batch in batches:
            yield name, batch


# ---------------------------------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------------------------------


def _open_files(pattern: str) -> Source:
    paths = _listed(pattern)
    formats = {format_of(path) for path in paths}
    if len(formats) > 1:
        raise InvalidOption(
            f"{pattern!r} holds files of several formats",
            given=", ".join(sorted({Path(path).suffix for path in paths})),
            allowed="files of one format",
            hint="choose them by a glob, such as 'data/*.parquet'",
        )
    form = formats.pop()
    with explained(repr(paths[0])):
        schema = form.schema(paths[0])
    partitions = _Partitions.found_in(paths, pattern) if os.path.isdir(pattern) else _Partitions({}, {})

    def read(columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        in_files = [column for column in columns if column not in partitions.types]
        for path in paths:
            with explained(repr(path), schema):
                for batch in form.batches(path, in_files, schema):
                    yield repr(path), partitions.added_to(batch, path)

    counts: list[int | None] = []
    for path in paths:
        with explained(repr(path)):
            counts.append(form.row_count(path))
    known = [count for count in counts if count is not None]
    return Source(
        repr(pattern), partitions.added_fields(schema), sum(known) if len(known) == len(counts) else None, read
    )


def _listed(pattern: str) -> list[str]:
    """Return the files a path means, in a fixed order."""
    if os.path.isdir(pattern):
        found = [str(path) for path in Path(pattern).rglob("*") if path.is_file() and not _is_hidden(path, pattern)]
    elif os.path.exists(pattern):
        found = [pattern]
    else:
        found = [path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)]
    if not found:
        is_glob = glob.has_magic(pattern)
        what = "holds no file" if os.path.isdir(pattern) else "matches no file" if is_glob else "does not exist"
        raise RelationNotFound(
            f"the source {what}",
            given=repr(pattern),
            allowed="a file, a directory or a glob such as 'data/*.parquet'",
            hint=None if is_glob or os.path.isdir(pattern) else did_you_mean_beside(pattern),
        )
    return sorted(found)


def _is_hidden(path: Path, root: str) -> bool:
    # Spark and Hive put marks such as _SUCCESS and .part-0.crc beside the data.
    return any(part.startswith(("_", ".")) for part in path.relative_to(root).parts)


@dataclass(frozen=True, slots=True)
class _Partitions:
    """Columns whose values stand in the names of directories."""

    types: Mapping[str, pa.DataType]
    values: Mapping[str, Mapping[str, str | None]]
    """For each path, the value of each column."""

    @classmethod
    def found_in(cls, paths: Sequence[str], root: str) -> _Partitions:
        values = {path: _partition_values(Path(path).relative_to(root)) for path in paths}
        names = list(values[paths[0]])
        for path in paths:
            if list(values[path]) != names:
                raise InvalidOption(
                    f"{path!r} stands under other columns than the first file",
                    given=", ".join(values[path]) or "no directory named column=value",
                    allowed=", ".join(names) or "no directory named column=value",
                )
        types = {name: _partition_type([values[path][name] for path in paths]) for name in names}
        return cls(types, values)

    def added_fields(self, schema: pa.Schema) -> pa.Schema:
        return pa.schema([*schema, *self.types.items()]) if self.types else schema

    def added_to(self, batch: pa.RecordBatch, path: str) -> pa.RecordBatch:
        for name, data_type in self.types.items():
            text = self.values[path][name]
            value = int(text) if text is not None and pa.types.is_integer(data_type) else text
            batch = batch.append_column(name, pa.repeat(pa.scalar(value, data_type), batch.num_rows))
        return batch


def _partition_values(path: Path) -> dict[str, str | None]:
    named = [part.split("=", 1) for part in path.parts[:-1] if "=" in part]
    return {unquote(name): None if value == _HIVE_NULL else unquote(value) for name, value in named}


def _partition_type(values: Iterable[str | None]) -> pa.DataType:
    # Up to 18 digits, which 64 bits always hold; a leading zero is part of a code, not of a number.
    are_integers = all(value is None or re.fullmatch(r"-?[1-9][0-9]{0,17}|0", value) for value in values)
    return pa.int64() if are_integers else pa.string()
