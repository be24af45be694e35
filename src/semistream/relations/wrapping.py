"""What all wrappers of relations share: a wrapper can be read in exactly the ways its inner relation can.

Whoever asks `isinstance(relation, KeyBatch)` must get the same answer for a wrapped relation. Methods are found on
the class, so there is one class for each wrapper and each set of ways, made when it is first needed.

A wrapper overrides the `_read_…` methods; the public ones come from the mixins below, as far as the inner relation has
them. Hash partitions show through: each is wrapped as the whole is, by `_wrapped`, which a wrapper overrides if it is
made with more than its inner relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

import pyarrow as pa

from semistream.relations.base import (
    ChangeFeed,
    Codes,
    CyclicScan,
    KeyBatch,
    PageByKey,
    Relation,
    RelationInfo,
)


class WrappedRelation:
    """A relation in front of another; reads pass through."""

    _inner: Any
    _kind: type[Self]
    """The class of wrapper, without regard to the ways it has."""

    def __new__(cls, inner: Relation, *_: Any, **__: Any) -> Self:
        """Choose the class that has the ways of `inner`."""
        ways = tuple(way for protocol, way in _WAYS if isinstance(inner, protocol))
        return cast("Self", object.__new__(_class_with(cls, ways)))

    def __init__(self, inner: Relation) -> None:
        self._inner = inner

    @property
    def info(self) -> RelationInfo:
        """What is known without reading."""
        info: RelationInfo = self._inner.info
        return info

    @property
    def schema(self) -> pa.Schema:
        """The schema of what is read."""
        return self._inner.schema

    @property
    def page_reads(self) -> int | None:
        """Pages the store at the bottom has touched; None when it does not count them."""
        return getattr(self._inner, "page_reads", None)

    @cached_property
    def partitions(self) -> tuple[Self, ...]:
        """The hash partitions of the inner relation, each behind a wrapper of its own; none where it has none."""
        return tuple(self._wrapped(part) for part in getattr(self._inner, "partitions", ()))

    def _wrapped(self, part: Relation) -> Self:
        return self._kind(part)

    def _read_page(self, code: int) -> pa.RecordBatch:
        return self._inner.page_for(code)

    def _read_segment(self, number: int) -> pa.RecordBatch:
        return self._inner.segment(number)

    def _read_rows(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        yield from self._inner.rows_for(codes, bytes_max)

    if TYPE_CHECKING:
        # True of a wrapper whose inner relation has them, which is for `isinstance` to say.
        @property
        def segment_count(self) -> int: ...  # noqa: D102
        def page_for(self, code: int) -> pa.RecordBatch: ...  # noqa: D102
        def page_numbers(self, codes: Codes) -> Codes: ...  # noqa: D102
        def segment(self, number: int) -> pa.RecordBatch: ...  # noqa: D102
        def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]: ...  # noqa: D102
        def changed_since(self, version: int) -> Codes | None: ...  # noqa: D102


class _ReadsPages(WrappedRelation):
    def page_for(self, code: int) -> pa.RecordBatch:
        """Return the page on which rows of `code` stand, or would stand."""
        return self._read_page(code)

    def page_numbers(self, codes: Codes) -> Codes:
        """Return for each code the number of the page on which its rows stand, or would stand."""
        numbers: Codes = self._inner.page_numbers(codes)
        return numbers


class _ReadsSegments(WrappedRelation):
    @property
    def segment_count(self) -> int:
        """Number of segments."""
        count: int = self._inner.segment_count
        return count

    def segment(self, number: int) -> pa.RecordBatch:
        """Return segment `number`, counted from 0."""
        return self._read_segment(number)


class _ReadsRows(WrappedRelation):
    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        """Yield all rows whose code is among `codes`."""
        return self._read_rows(codes, bytes_max)


class _KnowsChanges(WrappedRelation):
    def changed_since(self, version: int) -> Codes | None:
        """Return the codes whose rows differ from those of `version`."""
        changed: Codes | None = self._inner.changed_since(version)
        return changed


_WAYS: tuple[tuple[Any, type[WrappedRelation]], ...] = (
    (PageByKey, _ReadsPages),
    (CyclicScan, _ReadsSegments),
    (KeyBatch, _ReadsRows),
    (ChangeFeed, _KnowsChanges),
)


_classes: dict[tuple[type[WrappedRelation], ...], type[WrappedRelation]] = {}


def _class_with(wrapper: type[WrappedRelation], ways: tuple[type[WrappedRelation], ...]) -> type[WrappedRelation]:
    bases = (wrapper, *ways)
    if bases not in _classes:
        content = {"__module__": wrapper.__module__, "__doc__": wrapper.__doc__, "_kind": wrapper}
        _classes[bases] = type(wrapper.__name__, bases, content)
    return _classes[bases]
