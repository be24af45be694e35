"""`semistream index`: make a relation out of master data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.budget import format_bytes
from semistream.demo.display import thousands

if TYPE_CHECKING:
    from semistream.relations.building.build import BuildReport


def index(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A file, directory or glob: Parquet, CSV or Arrow.", show_default=False),
    ],
    key: Annotated[str, typer.Option(metavar="A[,B]", help="The column or columns that identify a row.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The directory of the relation; made if there is none.")],
    columns: Annotated[
        str | None, typer.Option(metavar="C[,D]", help="Columns to keep beside the key.", show_default="all")
    ] = None,
    unique: Annotated[bool, typer.Option("--unique", help="Refuse the source if a key occurs twice.")] = False,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory for sorting; the rest goes over disk.")] = "512MB",
    partitions: Annotated[
        int, typer.Option(metavar="N", help="Hash partitions that the algorithm pcsrj joins side by side.")
    ] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")] = False,
) -> None:
    """Index master data, so that streams can be enriched from it.

    Writes a new version into the relation's directory and publishes it by one rename: a running query sees it from its
    next micro-batch on.

    \b
    Example:
      semistream index products.parquet --key product_id --unique --out relations/products
      semistream index 'prices/*.csv' --key shop,article --columns price --out relations/prices
      semistream index customers.parquet --key customer_id --partitions 8 --out relations/customers
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.cli.output import print_json, split_names, watching
    from semistream.clock import RealClock

    key_columns, kept_columns = split_names(key), split_names(columns)
    assert key_columns is not None, "typer let a missing key pass"
    with watching(RealClock()) as display:
        display.begin(f"Indexing {source}")
        from semistream.relations.building.build import build_relation

        report = build_relation(
            source,
            key=key_columns,
            out=out,
            columns=kept_columns,
            unique=unique,
            memory=memory,
            partitions=partitions,
            on_progress=lambda progress: display.advance(progress.phase, progress.rows_done, progress.rows_total),
        )
        display.end(f"{thousands(report.row_count)} rows in {format_bytes(report.bytes_written)}")
    if json:
        print_json({**asdict(report), "path": str(report.path), "seconds": round(report.seconds, 3)})
    else:
        _print_report(report)


def _print_report(report: BuildReport) -> None:
    from semistream.cli.output import print_facts

    keys = "unique" if report.unique else f"up to {thousands(report.rows_per_code_max)} rows a key"
    left_out = f", {thousands(report.null_key_rows)} left out for a null in the key" if report.null_key_rows else ""
    print_facts(
        {
            "relation": f"{report.path} (version {report.version})",
            "rows": f"{thousands(report.row_count)}{left_out}",
            "keys": keys,
            **({"partitions": str(report.partitions)} if report.partitions > 1 else {}),
            "on disk": format_bytes(report.bytes_written),
            "time": f"{report.seconds:.1f} s",
            "use it": f"ss.relation({str(report.path)!r})",
        }
    )
