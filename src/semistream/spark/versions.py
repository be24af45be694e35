"""Which version of a relation a query reads in a new micro-batch.

A query is planned with what a version promises: its key, its types, unique keys, the size of its rows. Whoever
publishes a version that breaks one of them must not break the query: it stays with the newest version that keeps them
all, and says why in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from semistream.budget import format_bytes
from semistream.errors import RelationRefused
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.spark.plan import LookupPlan

_log = logging.getLogger(__name__)


def newest_fitting_version(plan: LookupPlan, memory_bytes: int) -> int:
    """The newest version that keeps what the query was planned with; one that breaks it is refused and named."""
    handle = plan.lookup.relation
    directory = RelationDirectory(handle.path)
    current = directory.current_version()
    refused = []
    for version in sorted((v for v in directory.versions() if v <= current), reverse=True):
        broken = next(_broken_promises(plan, directory, version, memory_bytes), None)
        if broken is None:
            return version
        _log.error("version %d of relation %r is refused: %s; an older one stays in use", version, handle.name, broken)
        refused.append(f"version {version}: {broken}")
    raise RelationRefused(
        f"no version of relation {handle.name!r} keeps what the query was planned with",
        given="; ".join(refused),
        hint="publish a version that does, or restart the query",
    )


def _broken_promises(plan: LookupPlan, directory: RelationDirectory, version: int, memory_bytes: int) -> Iterator[str]:
    handle = plan.lookup.relation
    if version == handle.info.version and directory.edition(version) == handle.edition:
        return
    info = ArrowFileRelation(directory, version).info
    if info.key != handle.info.key:
        yield f"its key is {info.key}, not {handle.info.key}"
    if handle.info.unique and not info.unique:
        yield "its keys are no longer unique"
    if plan.is_by_partition and info.partition_count != handle.info.partition_count:
        yield f"it has {info.partition_count} hash partitions, not {handle.info.partition_count}"
    for name in (*handle.key, *handle.columns):
        wanted = handle.info.schema.field(name).type
        found = info.schema.field(name).type if name in info.schema.names else None
        if found != wanted:
            yield f"its column {name!r} is {found or 'gone'}, not {wanted}"
    if plan.least_memory_bytes(version) > memory_bytes:
        row_bytes_max = plan.open(version).info.row_bytes_max
        yield f"its largest row has {format_bytes(row_bytes_max)}, too much for the memory of the query"
