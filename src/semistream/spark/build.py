"""A relation from a Spark DataFrame.

A DataFrame may be larger than the memory of this process, so it is not collected: Spark writes it as Parquet into a
folder beside the relation, which the builder then reads like any other source, and the folder is removed.

Left to itself, Spark writes instants in an old form of Parquet that forgets that they are instants: they would come
back as times without a zone, and no key of a stream would match them. While the folder is written, and only then, a
setting of the session asks for the new form.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StructType,
    TimeType,
    VariantType,
    YearMonthIntervalType,
)

from semistream.errors import ColumnNotFound, InvalidOption, did_you_mean
from semistream.relations.building.build import BuildProgress, BuildReport, build_relation, check_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INSTANT_FORM = "spark.sql.parquet.outputTimestampType"


def build_from_dataframe(
    df: DataFrame,
    *,
    out: str | Path,
    columns: Sequence[str] | None,
    key: str | Sequence[str],
    partitions: int,
    on_progress: Callable[[BuildProgress], None] | None,
    **options: Any,
) -> BuildReport:
    """Write the DataFrame beside `out` and build the relation from it."""
    if df.isStreaming:
        raise InvalidOption(
            "a relation is built from data that ends",
            given="a streaming DataFrame",
            allowed="a batch DataFrame",
            hint="build it inside `foreachBatch`, once for each version",
        )
    check_partitions(partitions)
    keys = [key] if isinstance(key, str) else list(key)
    wanted = df.columns if columns is None else list(dict.fromkeys([*keys, *columns]))
    _check_columns(df, [*keys, *wanted])
    _check_types(df, wanted)
    target = Path(out).resolve()
    staging = target.parent / f".{target.name}-from-spark-{uuid.uuid4().hex}"
    try:
        _write(df.select(*("`" + name.replace("`", "``") + "`" for name in wanted)), staging)
        return build_relation(
            staging, key=key, out=target, columns=columns, partitions=partitions, on_progress=on_progress, **options
        )
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_columns(df: DataFrame, wanted: Sequence[str]) -> None:
    for name in wanted:
        if df.columns.count(name) > 1:
            raise InvalidOption(
                f"the DataFrame has several columns {name!r}",
                given=", ".join(df.columns),
                hint="give each a name of its own, for example with `toDF`",
            )
        if name not in df.columns:
            raise ColumnNotFound(
                f"the DataFrame has no column {name!r}",
                given=name,
                allowed=", ".join(df.columns),
                hint=did_you_mean(name, df.columns),
            )


def _check_types(df: DataFrame, wanted: Sequence[str]) -> None:
    """Refuse what Spark cannot write as Parquet, or writes as something else."""
    for field in df.schema.fields:
        if field.name in wanted and _changes_in_parquet(field.dataType):
            raise InvalidOption(
                f"the column {field.name!r} of the DataFrame has a type that does not survive the way to disk",
                given=field.dataType.simpleString(),
                hint="leave it out with `columns=`, or cast it, for example to string",
            )


def _changes_in_parquet(data_type: DataType) -> bool:
    if isinstance(data_type, StructType):
        return any(_changes_in_parquet(field.dataType) for field in data_type.fields)
    if isinstance(data_type, ArrayType):
        return _changes_in_parquet(data_type.elementType)
    if isinstance(data_type, MapType):
        return _changes_in_parquet(data_type.keyType) or _changes_in_parquet(data_type.valueType)
    return isinstance(data_type, TimeType | DayTimeIntervalType | YearMonthIntervalType | VariantType)


def _write(df: DataFrame, folder: Path) -> None:
    conf = df.sparkSession.conf
    before = str(conf.get(_INSTANT_FORM))
    conf.set(_INSTANT_FORM, "TIMESTAMP_MICROS")
    try:
        df.write.parquet(str(folder))
    finally:
        conf.set(_INSTANT_FORM, before)
