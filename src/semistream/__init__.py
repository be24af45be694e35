"""Semistream: enrich a live Spark stream with master data that is larger than memory, inside a memory budget.

    import semistream as ss

    products = ss.relation("products", key="product_id")
    enriched = ss.enrich(sales, products, on="product_id", memory="256MB")

and join two live streams over sliding windows:

    pairs = ss.window_join(clicks, views, on="ad", within=ss.seconds(10), time="at", state="state/pairs")

This is the front door; everything else is imported by its module path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semistream.errors import check_option_names

if TYPE_CHECKING:
    from semistream.relations.building.build import BuildProgress, BuildReport
    from semistream.relations.handle import RelationHandle
    from semistream.spark.advise import advise
    from semistream.spark.configure import configure
    from semistream.spark.enrich import enrich, explain, lookup
    from semistream.spark.window_estimate import estimate
    from semistream.spark.window_join import window_join
    from semistream.window.windows import arrivals, rows, seconds

__version__ = version("semistream")
__all__ = [
    "advise",
    "arrivals",
    "build_relation",
    "configure",
    "enrich",
    "estimate",
    "explain",
    "lookup",
    "relation",
    "rows",
    "seconds",
    "window_join",
]

_ELSEWHERE = {
    "advise": "semistream.spark.advise",
    "configure": "semistream.spark.configure",
    "enrich": "semistream.spark.enrich",
    "explain": "semistream.spark.enrich",
    "lookup": "semistream.spark.enrich",
    "window_join": "semistream.spark.window_join",
    "estimate": "semistream.spark.window_estimate",
    "arrivals": "semistream.window.windows",
    "rows": "semistream.window.windows",
    "seconds": "semistream.window.windows",
}
"""What is imported when it is first asked for: Spark is heavy, and the command line does not always need it."""


@check_option_names
def relation(
    path: str | Path,
    key: str | Sequence[str] | None = None,
    *,
    columns: Sequence[str] | None = None,
    verify: bool = True,
) -> RelationHandle:
    """Open master data that `build_relation` or `semistream index` has put on disk.

    Args:
        path: The relation's directory.
        key: Its key columns, to make sure it is what you think it is; may be left out.
        columns: Columns that enrichment adds; by default all but the key.
        verify: Check every byte against its checksum now. Takes as long as reading the file once; without it, pages
            are checked when they are first read.

    Example:
        products = ss.relation("products", key="product_id")
    """
    from semistream.relations.handle import open_handle

    return open_handle(path, key, columns, verify=verify)


@check_option_names
def build_relation(
    source: Any,
    *,
    key: str | Sequence[str],
    out: str | Path,
    columns: Sequence[str] | None = None,
    unique: bool = False,
    memory: str | int = "512MB",
    partitions: int = 1,
    on_progress: Callable[[BuildProgress], None] | None = None,
) -> BuildReport:
    """Put master data on disk, sorted by key, as a new version of the relation in `out`.

    Args:
        source: A path (Parquet, CSV or Arrow; a file, directory or glob), a PyArrow table, or a Spark DataFrame.
        key: One to four columns.
        out: The relation's directory. Queries that use it see the new version from their next batch on.
        columns: Columns to keep beside the key; by default all.
        unique: Refuse keys that occur twice.
        memory: What the sort may hold before it spills to disk.
        partitions: Hash partitions, from 1 to 1024, that `algorithm="pcsrj"` joins side by side, one in each task.
        on_progress: Called now and then with what has been done.

    Example:
        ss.build_relation("products.parquet", key="product_id", out="products", unique=True)
    """
    options: dict[str, Any] = {"key": key, "out": out, "columns": columns, "unique": unique, "memory": memory}
    options["partitions"] = partitions
    if type(source).__module__.startswith("pyspark."):
        from semistream.spark.build import build_from_dataframe

        return build_from_dataframe(source, on_progress=on_progress, **options)
    from semistream.relations.building.build import build_relation as build

    return build(source, on_progress=on_progress, **options)


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        return getattr(import_module(_ELSEWHERE[name]), name)
    raise AttributeError(f"module 'semistream' has no attribute {name!r}")
