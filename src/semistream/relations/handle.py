"""What a user holds of a relation: where it lies, its key, and which of its columns are wanted.

Opening a handle reads the manifest and checks every byte against its checksum, once for each version and process, so
that a damaged relation is refused before a query starts rather than at three in the morning. A handle is small and
can be sent to other processes; the rows are opened where they are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidOption, did_you_mean
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.base import RelationInfo

_verified: set[tuple[str, int, tuple[int, int] | None]] = set()


@dataclass(frozen=True, slots=True)
class RelationHandle:
    """A relation on disk, as `semistream.relation` returns it."""

    path: str
    info: RelationInfo
    """What was known of the version that was current when the handle was made."""
    columns: tuple[str, ...]
    """Columns that enrichment adds: those asked for, or all but the key."""
    edition: tuple[int, int] | None
    """Tells the version from another of its number; see `RelationDirectory.edition`."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        return self.info.name

    @property
    def key(self) -> tuple[str, ...]:
        """Its key columns."""
        return self.info.key

    @property
    def unique(self) -> bool:
        """Whether no key occurs twice."""
        return self.info.unique

    @property
    def key_types(self) -> tuple[pa.DataType, ...]:
        """Types of its key columns."""
        return tuple(self.info.schema.field(name).type for name in self.key)

    def on(self, *columns: str, prefix: str = "") -> Lookup:
        """Say which columns of the stream hold the key, in the order of `key`; `prefix` is put before added columns.

        Example:
            weather.on("origin", "hour", prefix="weather_")
        """
        return Lookup(self, columns or self.key, prefix)

    def open(self, version: int, *, with_key: bool) -> ArrowFileRelation:
        """Open the rows of a version: the wanted columns and, if asked for, those of the key."""
        key = (name for name in self.key if with_key and name not in self.columns)
        return ArrowFileRelation(RelationDirectory(self.path), version, (*self.columns, *key))

    def broken_promises(self, info: RelationInfo) -> Iterator[str]:
        """What a version of the relation lacks of that which this handle was made with."""
        if info.key != self.info.key:
            yield f"its key is {info.key}, not {self.info.key}"
        if self.info.unique and not info.unique:
            yield "its keys are no longer unique"
        for name in (*self.key, *self.columns):
            wanted = self.info.schema.field(name).type
            found = info.schema.field(name).type if name in info.schema.names else None
            if found != wanted:
                yield f"its column {name!r} is {found or 'gone'}, not {wanted}"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A relation and the columns of a stream that hold its key."""

    relation: RelationHandle
    on: tuple[str, ...]
    prefix: str = ""

    def __post_init__(self) -> None:
        """Refuse what names no columns."""
        relation = self.relation
        if not all(isinstance(name, str) for name in self.on):
            raise InvalidOption(
                "a column of the stream is not named by a string",
                given=", ".join(map(repr, self.on)),
                allowed=f"a name for each of {', '.join(relation.key)}",
                hint='several names are several arguments: weather.on("origin", "hour")',
            )
        if len(self.on) != len(relation.key):
            raise InvalidOption(
                f"relation {relation.name!r} has a key of {len(relation.key)} columns",
                given=f"{len(self.on)} columns of the stream: {', '.join(self.on)}",
                allowed=f"one for each of {', '.join(relation.key)}",
            )
        if not isinstance(self.prefix, str):
            raise InvalidOption("`prefix` is not a string", given=repr(self.prefix), allowed='such as "product_"')

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns it adds."""
        return tuple(self.prefix + name for name in self.relation.columns)

    def prefixed(self, prefix: str) -> Lookup:
        """The same lookup with another prefix."""
        return replace(self, prefix=prefix)


def open_handle(
    path: str | Path, key: str | Sequence[str] | None, columns: Sequence[str] | None, *, verify: bool
) -> RelationHandle:
    """Look at the relation in a directory and check it."""
    directory = RelationDirectory(path)
    version = directory.current_version()
    place, edition = str(Path(path).resolve()), directory.edition(version)
    stored = ArrowFileRelation(directory, version)
    if verify and (place, version, edition) not in _verified:
        stored.verify_all()
        _verified.add((place, version, edition))
    _check_key(stored.info, key)
    wanted = _wanted(stored.info, columns)
    return RelationHandle(place, ArrowFileRelation(directory, version, wanted).info, wanted, edition)


def _check_key(info: RelationInfo, key: str | Sequence[str] | None) -> None:
    if key is None:
        return
    given = column_names("key", key)
    if given != info.key:
        raise InvalidOption(
            f"relation {info.name!r} has another key",
            given=", ".join(given),
            allowed=", ".join(info.key),
            hint="leave `key` out to use the key it was built with, or build it anew with `semistream index --key`",
        )


def _wanted(info: RelationInfo, columns: Sequence[str] | None) -> tuple[str, ...]:
    names: list[str] = info.schema.names
    if columns is None:
        return tuple(name for name in names if name not in info.key)
    wanted = column_names("columns", columns)
    for column in wanted:
        if column not in names:
            raise ColumnNotFound(
                f"relation {info.name!r} has no column {column!r}",
                given=column,
                allowed=", ".join(names),
                hint=did_you_mean(column, names),
            )
    return tuple(dict.fromkeys(wanted))


def column_names(
    option: str, given: str | Sequence[str], of: str = "the relation", *, least: int = 0
) -> tuple[str, ...]:
    """One name, or several, as the user gave them."""
    names = [given] if isinstance(given, str) else given
    is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not is_list or len(names) < least:
        raise InvalidOption(
            f"`{option}` does not name columns of {of}",
            given=repr(given),
            allowed='a name or a list of names, such as "product_id" or ["shop", "day"]',
        )
    return tuple(names)


def payload_schema(handle: RelationHandle) -> pa.Schema:
    """The columns that enrichment adds, with their types in the relation."""
    return pa.schema([handle.info.schema.field(name) for name in handle.columns])
