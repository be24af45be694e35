"""Which version of a relation a query reads: the newest one, when it is planned and again in each micro-batch.

A query is planned with what a version promises: its key, its types, unique keys, the size of its rows. Whoever
publishes a version that breaks one of them, or that cannot be read, must not break the query: it stays with the newest
version that keeps them all, and says why in the log. What a handle promises holds likewise for whoever plans with it
much later, as in `foreachBatch`.

A micro-batch may have been leased a version before this query, or this part of it, was planned. That version is looked
at as well, and there is no other to turn to.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from semistream.budget import format_bytes
from semistream.errors import RelationCorrupt, RelationRefused
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.handle import RelationHandle
from semistream.spark.plan import LookupPlan

_log = logging.getLogger(__name__)


def renewed(handle: RelationHandle) -> RelationHandle:
    """The same handle as of the newest version that keeps its promises: its own may be gone since it was made.

    It promises no more than it did: a micro-batch that is planned anew may read an older version, by its lease.
    """
    directory = RelationDirectory(handle.path)

    def broken(version: int) -> str | None:
        return next(handle.broken_promises(ArrowFileRelation(directory, version).info), None)

    version = _newest(handle, directory, broken)
    if _is_of(handle, directory, version):
        return handle
    info = ArrowFileRelation(directory, version, handle.columns).info
    info = replace(info, unique=handle.unique and info.unique)
    return replace(handle, info=info, edition=directory.edition(version))


def newest_fitting_version(plan: LookupPlan, memory_bytes: int) -> int:
    """The newest version that keeps what the query was planned with; one that breaks it is refused and named."""
    handle = plan.lookup.relation
    directory = RelationDirectory(handle.path)

    def broken(version: int) -> str | None:
        return next(_broken_promises(plan, directory, version, memory_bytes), None)

    return _newest(handle, directory, broken)


def must_fit(plan: LookupPlan, version: int, memory_bytes: int) -> None:
    """Refuse a version that a micro-batch was leased, if it breaks what the query was planned with."""
    handle = plan.lookup.relation
    directory = RelationDirectory(handle.path)
    if _is_of(handle, directory, version):
        return
    if why := list(_broken_promises(plan, directory, version, memory_bytes)):
        raise RelationRefused(
            f"this micro-batch has begun with version {version} of relation {handle.name!r}, which does not keep what "
            "the query was planned with",
            given="; ".join(why),
            hint="begin with a new checkpoint: the relation can only be opened as it is now",
        )


def _newest(handle: RelationHandle, directory: RelationDirectory, broken: Callable[[int], str | None]) -> int:
    """The newest version of which nothing is broken; the handle's own is what others are compared with."""
    current = directory.current_version()
    refused = []
    # The current version is asked for even where its manifest is lost, so that somebody says so.
    for version in sorted({current, *(v for v in directory.versions() if v <= current)}, reverse=True):
        why = None if _is_of(handle, directory, version) else _broken_or_unreadable(broken, version)
        if why is None:
            return version
        _log.error("version %d of relation %r is refused: %s; an older one stays in use", version, handle.name, why)
        refused.append(f"version {version}: {why}")
    raise RelationRefused(
        f"no version of relation {handle.name!r} keeps what the query was planned with",
        given="; ".join(refused),
        hint="publish a version that does, or open the relation anew and restart the query",
    )


def _broken_or_unreadable(broken: Callable[[int], str | None], version: int) -> str | None:
    try:
        return broken(version)
    except RelationCorrupt as problem:
        return problem.what


def _is_of(handle: RelationHandle, directory: RelationDirectory, version: int) -> bool:
    return version == handle.info.version and directory.edition(version) == handle.edition


def _broken_promises(plan: LookupPlan, directory: RelationDirectory, version: int, memory_bytes: int) -> Iterator[str]:
    handle = plan.lookup.relation
    info = ArrowFileRelation(directory, version).info
    yield from handle.broken_promises(info)
    if plan.is_by_partition and info.partition_count != handle.info.partition_count:
        yield f"it has {info.partition_count} hash partitions, not {handle.info.partition_count}"
    if plan.least_memory_bytes(version) > memory_bytes:
        row_bytes_max = plan.open(version).info.row_bytes_max
        yield f"its largest row has {format_bytes(row_bytes_max)}, too much for the memory of the query"
