"""`window_join`: two live streams joined over sliding windows, with windows and predicates that Spark's own join lacks.

Both streams are laid side by side into one (`union`), shared out by our own partition number and joined by
`mapInArrow`. For Spark the query is stateless; the windows are state of ours, on disk under `state`, of which every try
at a micro-batch sees the same and leaves the same (`semistream.window.state`). So the join is exactly-once with any
idempotent sink. It runs on classic Spark and on Spark Connect, on streaming and on batch DataFrames; a batch query is
one batch that begins and ends with empty windows and needs no state.

Rows are accepted when Spark begins a micro-batch: it fixes `current_timestamp` for the batch and writes it down, so a
replay has the same.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from semistream.budget import parse_bytes
from semistream.errors import InvalidOption, check_option_names
from semistream.spark import window_worker
from semistream.spark.environment import ensure_workers_can_import, worker_count
from semistream.spark.window_counts import is_row, observed
from semistream.spark.window_options import HIDDEN, Options
from semistream.spark.window_plan import WindowPlan, make_plan
from semistream.spark.window_worker import WireColumns, empty_output, shared_columns
from semistream.window.expression import SIDES
from semistream.window.state import StateDirectory, state_path
from semistream.window.windows import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_log = logging.getLogger(__name__)

MEMORY = "256MB"
"""What a window join may hold in each executor unless told otherwise."""

RETAINED_BATCHES = "100"
"""How many batches Spark remembers unless told otherwise."""


@check_option_names
def window_join(
    a: DataFrame,
    b: DataFrame,
    *,
    on: str | Sequence[str] | Mapping[str, str] | None = None,
    condition: str | None = None,
    window_a: Window | None = None,
    window_b: Window | None = None,
    within: Window | None = None,
    how: str = "inner",
    state: str | None = None,
    order_by: Any = None,
    time: Any = None,
    lateness: float = 0.0,
    memory: str | int = MEMORY,
    shed: str = "error",
    rate: float | None = None,
    index: str | tuple[str, str] = "auto",
    per_key: bool = False,
    partitions: int | None = None,
    prefix_a: str = "",
    prefix_b: str = "",
    seed: int = 0,
    name: str = "window_join",
) -> DataFrame:
    """Join two streams: every row with the rows of the other stream that are in that stream's window.

    Use it for count windows, for inequalities and bands, and for time windows where Spark's stream-stream join is slow.
    Do not use it where the other side is master data that is there already; `enrich` does that.

    Args:
        a: A streaming or batch DataFrame.
        b: Another of the same kind.
        on: Columns that must be equal: a name, several, or `{"column of a": "column of b"}`. A column that has one
            name on both sides is put out once.
        condition: Instead of `on`, a condition such as `"a.k = b.k AND abs(a.x - b.y) <= 2.5"`.
        window_a: How long rows of `a` can be found: `rows(n)` or `seconds(t)`.
        window_b: How long rows of `b` can be found.
        within: For both windows, `seconds(t)` or `arrivals(n)` of each other.
        how: `"inner"`, or `"left"`: a row of `a` that found no partner is put out when it leaves its window.
        state: A directory that survives restarts, as a path or file:// URI, seen by the driver and all executors.
            Streaming queries need it. It belongs to one join of one query.
        order_by: A column of both streams, or a pair of columns, that gives the order of rows inside a micro-batch;
            windows that count rows need it.
        time: A column, or a pair of columns, with the time of a row; by default that is when it was accepted.
        lateness: Seconds that rows of time windows are kept longer for partners that come late.
        memory: Bytes that all Python workers of one executor together may hold, such as `"256MB"`.
        shed: What happens when the windows do not fit the memory: `"error"`, or `"sample"` to keep a random part of
            them. Then a column `sample` tells the weight of every pair and how it was sampled, and `estimate` says
            what all pairs come to.
        rate: With `shed="sample"`, how many rows a second of stream time may look for partners, most of them in the
            larger window; others, chosen at random, only wait to be found.
        index: `"auto"`, chosen for every batch by what it costs; or the name of an index: scan, hash, b+tree or t-tree;
            or a pair for `a` and `b`.
        per_key: Give every key count windows of its own. That is another join, and runs in parallel.
        partitions: How many tasks join at a time where rows are shared out by key. State keeps the number.
        prefix_a: Put before the names of the columns of `a`.
        prefix_b: Put before the names of the columns of `b`.
        seed: Decides which rows are shed.
        name: Name of the metrics in `progress.observedMetrics`; the only one of its name in a query.

    Returns:
        A row for every pair: the columns of `a`, then those of `b`.

    Example:
        pairs = ss.window_join(clicks, views, on="ad", within=ss.seconds(10), time="at", state="/data/state/pairs")
    """
    _check_frames(a, b)
    session = a.sparkSession
    options = Options(
        on=on,
        condition=condition,
        window_a=window_a,
        window_b=window_b,
        within=within,
        how=how,
        state=None if state is None else str(state_path(state)),
        order_by=order_by,
        time=time,
        lateness=lateness,
        shed=shed,
        rate=rate,
        index=index,
        per_key=per_key,
        partitions=partitions,
        prefix_a=prefix_a,
        prefix_b=prefix_b,
        seed=seed,
        name=name,
    )
    plan = make_plan(
        (_arrow_schema(a, 0), _arrow_schema(b, 1)),
        options,
        is_streaming=a.isStreaming,
        memory_bytes=parse_bytes(memory),
        workers=worker_count(session),
        default_partitions=_default_partitions(session, options.state),
        retained_batches=int(str(session.conf.get("spark.sql.streaming.minBatchesToRetain", RETAINED_BATCHES))),
    )
    if plan.state is not None:
        StateDirectory(state_path(plan.state), plan.reach).check(plan.identity)
    ensure_workers_can_import(session)
    if not plan.is_by_key:
        _log.warning("%s is joined by one task at a time: %s", name, plan.reason)
    return _joined((a, b), plan)


def _check_frames(a: DataFrame, b: DataFrame) -> None:
    for side, df in zip(SIDES, (a, b), strict=True):
        if not isinstance(df, DataFrame):
            raise InvalidOption(
                f"`{side}` is not a DataFrame of Spark", given=type(df).__name__, allowed="pyspark.sql.DataFrame"
            )
    if a.isStreaming != b.isStreaming:
        raise InvalidOption(
            "one of the DataFrames is a stream and the other is not",
            given=f"a {'streams' if a.isStreaming else 'is a batch'}, b {'streams' if b.isStreaming else 'is a batch'}",
            allowed="two streams, or two batches",
            hint="`enrich` joins a stream with data that is there already",
        )


def _arrow_schema(df: DataFrame, side: int) -> pa.Schema:
    """All columns, which cross to Python with every row; refuses one of a type that cannot."""
    fields = []
    for field in df.schema.fields:
        try:
            fields.append((field.name, to_arrow_type(field.dataType, timezone="UTC")))
        except PySparkTypeError as error:
            raise InvalidOption(
                f"the column {field.name!r} of {SIDES[side]} has a type that cannot cross to Python",
                given=field.dataType.simpleString(),
                hint="cast it, for example to string, or drop it before",
            ) from error
    return pa.schema(fields)


def _default_partitions(session: SparkSession, state: str | None) -> int:
    """As many as there were when the state was begun, else as many as can run at a time, as far as that is known."""
    if state is not None:
        known = StateDirectory.identity_at(state_path(state)).get("partitions")
        if isinstance(known, int) and known > 0:
            return known
    executors = int(str(session.conf.get("spark.executor.instances", "1")))
    running = worker_count(session) * executors
    return running or int(str(session.conf.get("spark.sql.shuffle.partitions", "2")))


# ---------------------------------------------------------------------------------------------------------------------
# The plan of Spark
# ---------------------------------------------------------------------------------------------------------------------


def _joined(frames: tuple[DataFrame, DataFrame], plan: WindowPlan) -> DataFrame:
    types = [[field.dataType for field in df.schema.fields] for df in frames]
    wire = shared_columns(*([data_type.json() for data_type in of_side] for of_side in types))
    tagged = [_tagged(df, side, plan, wire, types) for side, df in enumerate(frames)]
    both = _counted(tagged[0].union(tagged[1]), plan.name)
    shared_out = both.repartitionById(plan.partitions, F.col("partition"))
    output = empty_output(plan)
    result = StructType([StructField(field.name, _spark_type(field.type)) for field in output])
    result = result.add(HIDDEN, ArrayType(LongType()))
    body = _with_names(window_worker.rows(plan, wire), result.names)
    joined = shared_out.mapInArrow(body, result)
    counts = F.col(HIDDEN)
    at_a_time = min(plan.partitions, plan.workers or plan.partitions)
    metrics = observed(counts, parallelism=plan.partitions, budget_bytes=plan.memory_bytes, tasks_at_a_time=at_a_time)
    return joined.observe(plan.name, *metrics).where(is_row(counts)).drop(HIDDEN)


def _counted(both: DataFrame, name: str) -> DataFrame:
    """Let Spark count the rows that go in. Spark Connect finds out later that a name is taken, and says it itself."""
    rows_in = [F.count(F.when(F.col("side") == side, 1)).alias(f"rows_in_{SIDES[side]}") for side in (0, 1)]
    try:
        return both.observe(f"{name}_in", *rows_in)
    except AnalysisException as error:
        if error.getCondition() != "DUPLICATED_METRICS_NAME":
            raise
        raise InvalidOption(
            "the query has metrics of this name already", given=name, hint="give another with `name=`"
        ) from error


def _tagged(df: DataFrame, side: int, plan: WindowPlan, wire: WireColumns, types: list[list[DataType]]) -> DataFrame:
    """Rows of one stream, laid out as both share it, with their partition, side, time of acceptance and hash."""
    slots: list[Column | None] = [None] * wire.count
    slot_types: list[DataType | None] = [None] * wire.count
    for of_side, of_types in zip(wire.slots, types, strict=True):
        for slot, data_type in zip(of_side, of_types, strict=True):
            slot_types[slot] = data_type
    for slot, name in zip(wire.slots[side], df.columns, strict=True):
        slots[slot] = _column(name)
    filled = [
        (F.lit(None).cast(data_type) if slot is None else slot).alias(f"c{i}")
        for i, (slot, data_type) in enumerate(zip(slots, slot_types, strict=True))
        if data_type is not None
    ]
    tie = _row_hash(df) if plan.needs_tie_break else F.lit(0).cast("long")
    return df.select(
        _partition(df, side, plan).alias("partition"),
        F.lit(side).cast("byte").alias("side"),
        F.current_timestamp().alias("accepted"),
        tie.alias("tie"),
        *filled,
    )


def _partition(df: DataFrame, side: int, plan: WindowPlan) -> Column:
    if plan.parallel_keys is None:
        return F.lit(0)
    types = {field.name: field.dataType for field in df.schema.fields}
    names = plan.parallel_keys[side]
    key_hash = F.xxhash64(*(_comparable(_column(name), types[name]) for name in names))
    # Rows without a key meet nobody, so they may go anywhere; all to one place would be too many.
    has_no_key = reduce(or_, (_column(name).isNull() for name in names))
    return F.pmod(F.when(has_no_key, _row_hash(df)).otherwise(key_hash), F.lit(plan.partitions)).cast("int")


def _comparable(column: Column, data_type: DataType) -> Column:
    """The same for equal keys of both sides, whatever their widths."""
    if isinstance(data_type, IntegralType):
        return column.cast("long")
    if isinstance(data_type, DecimalType):
        return column.cast(DecimalType(38, data_type.scale))
    if isinstance(data_type, StringType):
        return column.cast("string")
    return column


def _row_hash(df: DataFrame) -> Column:
    """A hash of all columns, the same in every try."""
    return F.xxhash64(*(_hashable(_column(field.name), field.dataType) for field in df.schema.fields))


def _hashable(column: Column, data_type: DataType) -> Column:
    """The same value without maps, which Spark does not hash, wherever they are inside."""
    if isinstance(data_type, VariantType):
        return column.cast("string")
    if isinstance(data_type, MapType):
        entry = StructType([StructField("key", data_type.keyType), StructField("value", data_type.valueType)])
        return _hashable(F.map_entries(column), ArrayType(entry))
    if isinstance(data_type, ArrayType):
        element_type = data_type.elementType
        return F.transform(column, lambda element: _hashable(element, element_type))
    if isinstance(data_type, StructType):
        # Whether it is null counts, too: it is not the same as one whose fields are all null.
        fields = [_hashable(column.getField(field.name), field.dataType) for field in data_type.fields]
        return F.struct(column.isNull(), *fields)
    return column


def _with_names(body: Any, names: list[str]) -> Any:
    def run(batches: Any) -> Any:
        return (batch.rename_columns(names) for batch in body(batches))

    return run


def _spark_type(data_type: pa.DataType) -> DataType:
    return from_arrow_type(data_type, prefer_timestamp_ntz=True)


def _column(name: str) -> Column:
    """A column by its name, whatever dots or blanks are in it."""
    return F.col("`" + name.replace("`", "``") + "`")
