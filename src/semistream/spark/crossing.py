"""How rows cross from Spark to Python and back: by answers or by rows, with or without a shuffle before.

`plan` has decided which; here are the DataFrame operations, all of them public: an iterator Arrow UDF, `mapInArrow` and
`repartitionById`. What comes out of Python has a hidden column with counts and, where only keys have crossed, another
with the answers. They are observed as they are, and answers are taken apart behind that: Spark copies every row that it
observes, and a struct is copied in one piece. Counts are a column of their own by then: an aggregate that asks for a
field of a struct goes through Spark's interpreter with every row, a sixteenth of what rows cost in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkTypeError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type
from pyspark.sql.types import ArrayType, BooleanType, DataType, IntegerType, LongType, StructField, StructType

from semistream.errors import InvalidOption
from semistream.spark import sharing_out, worker
from semistream.spark.counts import CARRIES_ROW
from semistream.spark.plan import EnrichPlan, LookupPlan
from semistream.spark.plan_checks import COUNTS, HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import Column

ColumnsBody = Callable[[Iterator[Any]], Iterator[pa.Array]]
_RowsBody = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

_COUNTS_TYPE = ArrayType(LongType())


def _spark_type(data_type: pa.DataType) -> DataType:
    return from_arrow_type(data_type, prefer_timestamp_ntz=True)


def struct_of(plan: LookupPlan) -> StructType:
    """The columns that a lookup adds, as one."""
    return StructType(
        [
            StructField(name, _spark_type(field.type), nullable=True)
            for name, field in zip(plan.lookup.output_names, plan.payload, strict=True)
        ]
    )


def by_answers(df: DataFrame, plan: EnrichPlan) -> DataFrame:
    """The rows with what was found for each, and counts, in hidden columns: only keys cross to Python."""
    function = arrow_udf(worker.answers(plan), _answer_type(plan))
    answered = df.withColumn(HIDDEN, function(*(column_named(column) for p in plan.lookups for column in p.lookup.on)))
    return answered.withColumn(COUNTS, F.col(HIDDEN)["counts"])


def _answer_type(plan: EnrichPlan) -> StructType:
    """One struct with everything; Spark would copy one in it for each lookup row by row once more."""
    types = [field.dataType for p in plan.lookups for field in struct_of(p).fields]
    fields = [StructField(f"c{i}", data_type) for i, data_type in enumerate(types)]
    if plan.drops_misses:
        fields.append(StructField("kept", BooleanType()))
    return StructType([*fields, StructField("counts", _COUNTS_TYPE)])


def by_rows(df: DataFrame, plan: EnrichPlan) -> DataFrame:
    """The joined rows with counts in a hidden column: whole rows cross to Python."""
    _check_crossing(df)
    added = [field for p in plan.lookups for field in struct_of(p).fields]
    stream = [StructField(field.name, field.dataType, nullable=True) for field in df.schema.fields]
    result = StructType([*stream, *added, StructField(COUNTS, _COUNTS_TYPE)])
    body = worker.rows(plan)
    if plan.lookups[0].is_by_partition:
        df, body = _shared_out(df, plan), worker.rows_by_partition(plan)
    # `mapInArrow` reads names as expressions: a dot or a backtick would lead it astray, a plain name does not.
    plain = df.toDF(*(f"c{i}" for i in range(len(df.columns))))
    return plain.mapInArrow(_with_names(body, df.columns, result.names), result)


def _shared_out(df: DataFrame, plan: EnrichPlan) -> DataFrame:
    """The rows of each hash partition in a task of their own, with its number in one more column."""
    lookup = plan.lookups[0].lookup
    number = arrow_udf(sharing_out.partition_numbers(plan), IntegerType())
    numbered = df.withColumn(HIDDEN, number(*(column_named(column) for column in lookup.on)))
    return numbered.repartitionById(lookup.relation.info.partition_count, F.col(HIDDEN))


def shared_out_by_key(df: DataFrame, plan: EnrichPlan) -> DataFrame:
    """The same rows, those with the same key in one task, if the plan says so."""
    if plan.shuffle is None:
        return df
    number = arrow_udf(sharing_out.task_numbers(plan, plan.shuffle), IntegerType())
    keys = plan.lookups[plan.shuffle.lookup].lookup.on
    numbered = df.withColumn(HIDDEN, number(*(column_named(column) for column in keys)))
    return numbered.repartitionById(plan.shuffle.tasks, F.col(HIDDEN)).drop(HIDDEN)


def _check_crossing(df: DataFrame) -> None:
    """All columns cross to Python; refuse one of a type that cannot, before the query starts."""
    for field in df.schema.fields:
        try:
            to_arrow_type(field.dataType, timezone="UTC")
        except PySparkTypeError as error:
            raise InvalidOption(
                f"the stream's column {field.name!r} has a type that cannot cross to Python, where whole rows must go "
                "because keys of a relation repeat or memory is little",
                given=field.dataType.simpleString(),
                hint="cast it, for example to string, or drop it before",
            ) from error


def _with_names(body: _RowsBody, stream: Sequence[str], result: Sequence[str]) -> _RowsBody:
    """The same function of batches, whose columns get the stream's names before and those of the result behind it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        named = (batch.rename_columns(stream) for batch in batches)
        return (batch.rename_columns(result) for batch in body(named))

    return run


def is_kept(plan: EnrichPlan) -> Column:
    """Whether a row belongs to the output: neither left out by `on_miss` nor there only to carry counts."""
    if plan.way == "rows":
        return F.coalesce(F.col(COUNTS)[CARRIES_ROW], F.lit(1)) == 1
    return F.col(HIDDEN)["kept"] if plan.drops_misses else F.lit(True)


def taken_apart(joined: DataFrame, plan: EnrichPlan) -> DataFrame:
    """The stream's columns and those of the relations, without the hidden ones."""
    if plan.way == "rows":
        return joined.drop(COUNTS)
    names = [name for p in plan.lookups for name in p.lookup.output_names]
    added = [F.col(HIDDEN)[f"c{i}"].alias(name) for i, name in enumerate(names)]
    return joined.select(*(column_named(column) for column in joined.columns if column not in (HIDDEN, COUNTS)), *added)


def column_named(name: str) -> Column:
    """A column by its name, whatever dots or blanks are in it."""
    return F.col("`" + name.replace("`", "``") + "`")


def arrow_udf(body: ColumnsBody, result: DataType) -> Any:
    """A function of columns, from one of batches."""
    # Spark tells the kinds of Arrow UDF apart by their annotations, which must be types here and not strings.
    body.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
    # Public as `pyspark.sql.functions.arrow_udf`, which the type stubs forgot.
    return F.arrow_udf(body, result)  # type: ignore[attr-defined]
