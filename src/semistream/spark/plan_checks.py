"""What a user can get wrong about keys, names, partitions and defaults, refused before a query runs.

No Spark object appears here: the stream's columns come in as an Arrow schema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from semistream.errors import ColumnCollision, ColumnNotFound, InvalidOption, did_you_mean
from semistream.keys import check_same_family
from semistream.relations.handle import Lookup, RelationHandle, payload_schema

HIDDEN, COUNTS = "__semistream", "__semistream_counts"
"""Names of the columns that carry answers, or the number of a task, and counts through Spark."""

BY_PARTITION = "pcsrj"
"""The algorithm that joins each hash partition of a relation in a task of its own."""


def check_key(stream: pa.Schema, lookup: Lookup) -> None:
    """Refuse a lookup whose key the stream lacks, or has in a type that cannot be compared."""
    for column in lookup.on:
        if column not in stream.names:
            raise ColumnNotFound(
                f"the stream has no column {column!r}, which should hold the key of {lookup.relation.name!r}",
                given=column,
                allowed=", ".join(stream.names),
                hint=did_you_mean(column, stream.names) or f"`on` names the stream's columns for {lookup.relation.key}",
            )
    relation = lookup.relation
    for stream_column, key_column, key_type in zip(lookup.on, relation.key, relation.key_types, strict=True):
        check_same_family({stream_column: stream.field(stream_column).type}, {key_column: key_type})


def check_partitions(lookups: Sequence[Lookup]) -> None:
    """Refuse what cannot be joined partition by partition."""
    if len(lookups) > 1:
        raise InvalidOption(
            f"{BY_PARTITION} shares a stream out by the key of one relation",
            given=f"{len(lookups)} relations",
            allowed="one",
            hint="enrich with one after the other",
        )
    info = lookups[0].relation.info
    if info.partition_count == 1:
        raise InvalidOption(
            f"{BY_PARTITION} joins each hash partition of a relation in a task of its own, "
            f"and relation {info.name!r} is not in partitions",
            given="1 partition",
            allowed="2 or more",
            hint="build it anew with `semistream index … --partitions N` or `build_relation(…, partitions=N)`, where N "
            "is the number of tasks that run at a time, or a few times as many",
        )


def check_argument_count(relation: RelationHandle, given: int) -> None:
    """Refuse a number of arguments of a `lookup` other than that of key columns."""
    if given != len(relation.key):
        raise InvalidOption(
            f"relation {relation.name!r} has a key of {len(relation.key)} columns",
            given=f"a lookup with {given} columns",
            allowed=f"one for each of {', '.join(relation.key)}",
        )


def check_arguments(relation: RelationHandle, given: Sequence[pa.DataType]) -> None:
    """Refuse arguments of a `lookup` that cannot be compared with the relation's key.

    Unlike the columns of a stream, the arguments of a column function are not known before it runs.
    """
    check_argument_count(relation, len(given))
    for i, (given_type, key_column, key_type) in enumerate(zip(given, relation.key, relation.key_types, strict=True)):
        check_same_family({f"argument {i + 1}": given_type}, {key_column: key_type})


def check_names(stream: pa.Schema, lookups: Sequence[Lookup]) -> None:
    """Refuse names that a user could not tell apart; like Spark, without regard to case."""
    for name in stream.names:
        if name.lower() in (HIDDEN, COUNTS):
            raise ColumnCollision(f"the stream has a column {name!r}, a name that is used inside", given=name)
        if stream.names.count(name) > 1:
            raise ColumnCollision(
                f"the stream has several columns {name!r}",
                given=", ".join(stream.names),
                hint="give each a name of its own, for example with `toDF`",
            )
    taken = {name.lower(): f"{name!r} of the stream" for name in stream.names}
    taken |= dict.fromkeys((HIDDEN, COUNTS), "a name that is used inside")
    for lookup in lookups:
        for name in lookup.output_names:
            if name.lower() in taken:
                raise ColumnCollision(
                    f"the column {name!r} of relation {lookup.relation.name!r} collides with {taken[name.lower()]}",
                    given=name,
                    hint=f"give one of them another name, for example "
                    f"with prefix={lookup.relation.name + '_'!r}, or select other columns of the relation",
                )
            taken[name.lower()] = f"{name!r} of relation {lookup.relation.name!r}"


def checked_defaults(lookups: Sequence[Lookup], on_miss: str, defaults: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The defaults by output column, once each is known to fit."""
    if on_miss != "default":
        if defaults:
            raise InvalidOption(
                "`defaults` are given but never used", given=f"on_miss={on_miss!r}", allowed='on_miss="default"'
            )
        return {}
    types = {
        name: field.type
        for lookup in lookups
        for name, field in zip(lookup.output_names, payload_schema(lookup.relation), strict=True)
    }
    if not defaults:
        raise InvalidOption(
            'on_miss="default" needs `defaults`',
            given="none",
            allowed="a value for at least one of " + ", ".join(types),
        )
    for name, value in defaults.items():
        if name not in types:
            raise ColumnNotFound(
                f"there is a default for {name!r}, which no relation adds",
                given=name,
                allowed=", ".join(types),
                hint=did_you_mean(name, types),
            )
        if not _can_be(value, types[name]):
            raise InvalidOption(
                f"the default for {name!r} has the wrong type", given=repr(value), allowed=str(types[name])
            )
    return dict(defaults)


def _can_be(value: Any, data_type: pa.DataType) -> bool:
    """Whether a column of this type can hold the value as it is."""
    try:
        held = pa.scalar(value, data_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return False
    # Arrow cuts 1.5 to an integer, takes numbers for times and a time without a zone for one in UTC.
    rounds = pa.types.is_integer(data_type) or pa.types.is_temporal(data_type)
    return not rounds or bool(held.as_py() == value)
