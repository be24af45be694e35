"""`enrich` and `lookup`: the two entry points on Spark.

Both run on classic Spark and on Spark Connect, on streaming and on batch DataFrames, and use only public DataFrame
operations: an iterator Arrow UDF or `mapInArrow`, and `observe`.

`observe` is not only for metrics. Without it Spark may push a filter on the answer below the UDF and evaluate the UDF
twice; a node that collects metrics stops that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkRuntimeError, PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import ArrayType, DataType

from semistream.budget import parse_bytes
from semistream.errors import InvalidOption, check_option_names, check_options_of
from semistream.relations.handle import Lookup, RelationHandle, column_names
from semistream.spark import worker
from semistream.spark.clearing_up import clear_up_after
from semistream.spark.counts import observed
from semistream.spark.crossing import (
    ColumnsBody,
    arrow_udf,
    by_answers,
    by_rows,
    is_kept,
    shared_out_by_key,
    struct_of,
    taken_apart,
)
from semistream.spark.environment import (
    arrow_batch_rows,
    ensure_workers_can_import,
    shuffle_partitions,
    worker_count,
)
from semistream.spark.plan import EnrichPlan, in_words, make_plan, metric_names
from semistream.spark.plan_checks import BY_PARTITION, COUNTS, check_argument_count, check_arguments
from semistream.spark.versions import renewed

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

MEMORY = "256MB"
"""What an enrichment may hold in each executor unless told otherwise."""


@check_option_names
def enrich(
    df: DataFrame,
    relation: RelationHandle | Lookup | Sequence[RelationHandle | Lookup],
    *,
    on: str | Sequence[str] | None = None,
    memory: str | int = MEMORY,
    algorithm: str = "auto",
    on_miss: str = "null",
    defaults: Mapping[str, Any] | None = None,
    prefix: str | None = None,
    shuffle: str = "auto",
    name: str | None = None,
) -> DataFrame:
    """Add the columns of master data to every row of a streaming or batch DataFrame.

    Use it where a stream-static join is slow or does not fit into memory: the relation may be any size and may change
    while the query runs. Do not use it for a relation of a few thousand rows that never changes; Spark's broadcast
    join does that well.

    Args:
        df: A streaming or batch DataFrame.
        relation: What `semistream.relation` returned, or a list of relations with the stream columns that hold each
            one's key: `[products.on("product_id"), weather.on("origin", "hour")]`. A list costs one pass.
        on: Columns of `df` that hold the key of a single relation; by default those with the names of its key.
        memory: Bytes that all Python workers of one executor together may hold, such as `"256MB"`.
        algorithm: Which join; `"auto"` is right unless you are comparing algorithms. `"pcsrj"` joins each hash
            partition of the relation in a task of its own, for which it shuffles the stream.
        on_miss: What happens to a row without a partner. `"null"` keeps it with nulls, `"drop"` leaves it out,
            `"default"` fills in `defaults`, `"error"` stops the query. A null key never has a partner.
        defaults: Values by output column for `on_miss="default"`.
        prefix: Put before the names of added columns, for a single relation.
        shuffle: Whether rows with the same key are sent to the same task first. `"auto"` does it where it pays, which
            is with hardly any memory and thousands of tasks (`explain` says why, or why not); `"always"` and `"never"`
            are for comparing. A key that is too frequent for one task goes to all of them.
        name: Name of the metrics in `progress.observedMetrics`; by default made of the relations' prefixes and
            names. It must be the only one of its name in a query.

    Returns:
        `df` with the relations' columns, their keys left out. A row appears once for each partner.

    Example:
        products = ss.relation("products", key="product_id")
        enriched = ss.enrich(sales, products, on="product_id", memory="256MB")
    """
    if name is not None and not isinstance(name, str):
        raise InvalidOption("`name` does not name metrics", given=repr(name), allowed="a string")
    plan = enrichment(
        df,
        relation,
        on=on,
        memory=memory,
        algorithm=algorithm,
        on_miss=on_miss,
        defaults=defaults,
        prefix=prefix,
        shuffle=shuffle,
    )
    ensure_workers_can_import(df.sparkSession)
    clear_up_after(df.sparkSession, plan, may_stream=df.isStreaming)
    lookups = [p.lookup for p in plan.lookups]
    lookup_names = metric_names(lookups)
    label = name or "_".join(("enrich", *lookup_names))
    counted = shared_out_by_key(_counted(df, label), plan)
    joined = by_answers(counted, plan) if plan.way == "answers" else by_rows(counted, plan)
    kept = is_kept(plan)
    seen = joined.observe(label, *observed(F.col(COUNTS), lookup_names, kept)).where(kept)
    return taken_apart(seen, plan)


def explain(
    df: DataFrame, relation: RelationHandle | Lookup | Sequence[RelationHandle | Lookup], **options: Any
) -> str:
    """Say what `enrich` would do with the same arguments, and why; nothing runs.

    Args:
        df: As for `enrich`.
        relation: As for `enrich`.
        options: As for `enrich`.

    Example:
        print(ss.explain(sales, products, on="product_id", memory="256MB"))
    """
    check_options_of(enrich, options, called="explain")
    options.pop("name", None)
    return in_words(enrichment(df, relation, **options))


@check_option_names
def lookup(
    relation: RelationHandle,
    *columns: str | Column,
    memory: str | int = MEMORY,
    algorithm: str = "auto",
    on_miss: str = "null",
    defaults: Mapping[str, Any] | None = None,
) -> Any:
    """Look a key up as a column: a struct of the relation's columns, or an array of structs where keys repeat.

    With columns it is a `Column`; without, a function of columns that can also be registered for SQL. A key that the
    relation lacks is answered by null, or by an empty array. Use `enrich` for whole pipelines: it reports metrics and
    serves several relations in one pass. A column has no piece smaller than the answer to one row, so where keys repeat
    all rows of one key must fit the memory at once; `enrich` puts them out in pieces.

    Args:
        relation: What `semistream.relation` returned.
        columns: Columns that hold its key, in order.
        memory: As for `enrich`.
        algorithm: As for `enrich`.
        on_miss: `"null"`, `"default"` or `"error"`; a column cannot leave rows out.
        defaults: Values by column for `on_miss="default"`.

    Example:
        sales.select("*", ss.lookup(products, "product_id").alias("product"))
        spark.udf.register("product", ss.lookup(products))
    """
    if on_miss == "drop":
        raise InvalidOption(
            "a lookup cannot leave rows out",
            given='on_miss="drop"',
            allowed='"null", "default" or "error"',
            hint="filter on the struct being null, or use `enrich`",
        )
    if algorithm == BY_PARTITION:
        raise InvalidOption(
            "a lookup cannot send rows to the task of their hash partition",
            given=f"algorithm={BY_PARTITION!r}",
            hint="use `enrich`, or another algorithm",
        )
    if on_miss == "default" and not relation.unique:
        raise InvalidOption(
            f"a lookup in relation {relation.name!r}, whose keys repeat, answers a key it lacks with an empty array",
            given='on_miss="default"',
            allowed='"null" or "error"',
            hint="use `enrich`, or `coalesce` after `explode_outer`",
        )
    session = _active_session()
    if columns:
        check_argument_count(relation, len(columns))
    arguments = _arguments_of(relation)
    binding = relation.on(*arguments.names)
    plan = _planned(
        session,
        arguments,
        [binding],
        memory=memory,
        algorithm=algorithm,
        on_miss=on_miss,
        defaults=defaults,
        shuffle="never",
    )
    ensure_workers_can_import(session)
    # A column function does not know of what it will be a column.
    clear_up_after(session, plan, may_stream=True)
    struct = struct_of(plan.lookups[0])
    if relation.unique:
        function = arrow_udf(_checking(worker.structs(plan), relation), struct)
    else:
        function = arrow_udf(_checking(worker.lists(plan), relation), ArrayType(struct))
    return function(*columns) if columns else function


# ---------------------------------------------------------------------------------------------------------------------
# Planning
# ---------------------------------------------------------------------------------------------------------------------


def enrichment(
    df: DataFrame,
    relation: RelationHandle | Lookup | Sequence[RelationHandle | Lookup],
    *,
    on: str | Sequence[str] | None = None,
    memory: str | int = MEMORY,
    prefix: str | None = None,
    algorithm: str = "auto",
    on_miss: str = "null",
    defaults: Mapping[str, Any] | None = None,
    shuffle: str = "auto",
) -> EnrichPlan:
    """The plan for what a user asks `enrich` to do."""
    if not isinstance(df, DataFrame):
        raise InvalidOption(
            "`df` is not a DataFrame of Spark", given=type(df).__name__, allowed="pyspark.sql.DataFrame"
        )
    lookups = _as_lookups(relation, on, prefix)
    return _planned(
        df.sparkSession,
        _arrow_schema(df, lookups),
        lookups,
        memory=memory,
        algorithm=algorithm,
        on_miss=on_miss,
        defaults=defaults,
        shuffle=shuffle,
    )


def _as_lookups(
    relation: RelationHandle | Lookup | Sequence[RelationHandle | Lookup],
    on: str | Sequence[str] | None,
    prefix: str | None,
) -> list[Lookup]:
    if isinstance(relation, RelationHandle | Lookup):
        # Where none are given, the stream has the names of the relation's key.
        columns = () if on is None else column_names("on", on, "the stream", least=1)
        if isinstance(relation, Lookup):
            if columns:
                raise InvalidOption(
                    "the stream's key columns are given twice", given=f"on={on!r} beside .on({relation.on})"
                )
            bound = relation
        else:
            bound = relation.on(*columns)
        return [bound if prefix is None else bound.prefixed(prefix)]
    for item in relation if isinstance(relation, list | tuple) else [relation]:
        if not isinstance(item, RelationHandle | Lookup):
            raise InvalidOption(
                "there is something that is not a relation",
                given=repr(relation),
                allowed="what `semistream.relation` returns, or a list of such",
            )
    if on is not None or prefix is not None:
        raise InvalidOption(
            "`on` and `prefix` are for a single relation",
            given=f"{len(relation)} relations",
            hint='write [products.on("product_id", prefix="product_"), …]',
        )
    return [item.on() if isinstance(item, RelationHandle) else item for item in relation]


def _planned(
    session: SparkSession, stream: pa.Schema, lookups: Sequence[Lookup], *, memory: str | int, **options: Any
) -> EnrichPlan:
    # A relation that is looked up twice is looked up in one version.
    renewed_once = cache(renewed)
    return make_plan(
        stream,
        [replace(lookup, relation=renewed_once(lookup.relation)) for lookup in lookups],
        memory_bytes=parse_bytes(memory),
        workers=worker_count(session),
        batch_rows=arrow_batch_rows(session),
        tasks=shuffle_partitions(session),
        **options,
    )


def _active_session() -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError as error:
        raise InvalidOption(
            "there is no active Spark session", given="none", allowed="a session created before `lookup` is called"
        ) from error


def _counted(df: DataFrame, label: str) -> DataFrame:
    """Let Spark count the rows that go in. Spark Connect finds out later that a name is taken, and says it itself."""
    try:
        return df.observe(f"{label}_in", F.count(F.lit(1)).alias("rows_in"))
    except AnalysisException as error:
        if error.getCondition() != "DUPLICATED_METRICS_NAME":
            raise
        raise InvalidOption(
            "the query has metrics of this name already",
            given=label,
            hint="give one of its enrichments another with `name=`, or enrich with all relations in one pass",
        ) from error


def _arrow_schema(df: DataFrame, lookups: Sequence[Lookup]) -> pa.Schema:
    """All columns and their types; one that holds no key may be of a type that Arrow does not have."""
    keys = {column for lookup in lookups for column in lookup.on}
    return pa.schema([(field.name, _arrow_type(field.dataType, field.name in keys)) for field in df.schema.fields])


def _arrow_type(data_type: DataType, is_key: bool) -> pa.DataType:
    try:
        return to_arrow_type(data_type, timezone="UTC")
    except PySparkTypeError:
        if is_key:
            raise
        return pa.null()


def _arguments_of(relation: RelationHandle) -> pa.Schema:
    """The stream that a column function sees: its arguments, as wide as those of the key's family can be."""
    return pa.schema(
        [
            (f"argument for {name}", pa.decimal128(38, key_type.scale) if pa.types.is_decimal(key_type) else key_type)
            for name, key_type in zip(relation.key, relation.key_types, strict=True)
        ]
    )


def _checking(body: ColumnsBody, relation: RelationHandle) -> ColumnsBody:
    """The same function of batches, whose columns are first checked against the relation's key."""

    def checked(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            check_arguments(relation, [batch.type] if isinstance(batch, pa.Array) else [c.type for c in batch])
            yield batch

    def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
        return body(checked(batches))

    run.__name__ = relation.name  # names the column where the user does not
    return run
