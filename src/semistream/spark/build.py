"""A relation from a Spark DataFrame.

A DataFrame may be larger than the memory of this process, so it is not collected: Spark writes it as Parquet into a
folder beside the relation, which the builder then reads like any other source, and the folder is removed.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.errors import InvalidOption
from semistream.relation.build import BuildProgress, BuildReport, build_relation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def build_from_dataframe(
    df: DataFrame,
    *,
    out: str | Path,
    columns: Sequence[str] | None,
    key: str | Sequence[str],
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
    target = Path(out).resolve()
    staging = target.parent / f".{target.name}-from-spark-{uuid.uuid4().hex}"
    try:
        df.write.parquet(str(staging))
        return build_relation(staging, key=key, out=target, columns=columns, on_progress=on_progress, **options)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
