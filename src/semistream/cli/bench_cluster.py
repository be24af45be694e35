"""`semistream bench cluster`: the same enrichment on a real Spark cluster with one executor and with two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.demo.display import thousands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semistream.bench.cluster import ClusterResult


def cluster(
    relation_rows: Annotated[str, typer.Option(metavar="N", help="Rows of R.")] = "1M",
    batch_rows: Annotated[str, typer.Option(metavar="N", help="Rows of a micro-batch.")] = "400k",
    skew: Annotated[float, typer.Option(min=0, help="Zipf's exponent of the stream; 0 is uniform.")] = 1,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="What each executor may hold.")] = "64MB",
    batches: Annotated[int, typer.Option(min=2, help="Measured micro-batches; twelve more come before.")] = 8,
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="For one cluster, start included.")] = 900,
    seed: Annotated[int, typer.Option(min=0, help="Of all data.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of a table.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="For data and logs.")] = Path("semistream-bench"),
) -> None:
    """Enrich a stream on a standalone cluster with one worker, with two, and with one of two killed halfway.

    All three must put out the same rows. Compare processor time a row; the rate can only double where there are four
    cores or more.

    \b
    Example:
      semistream bench cluster
      semistream bench cluster --relation-rows 10M --memory 256MB --json
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.budget import parse_bytes
    from semistream.cli.output import make_folder, parse_rows, print_json, watching
    from semistream.clock import RealClock

    sizes, memory_bytes = (parse_rows(relation_rows), parse_rows(batch_rows)), parse_bytes(memory)
    results: list[ClusterResult] = []
    with watching(RealClock()) as display:
        display.begin("Loading libraries")
        from semistream.bench.cluster import ClusterPlan, compare
        from semistream.bench.results import Setting, check_agreement
        from semistream.demo.session import check_java

        check_java()
        display.end("ready")
        make_folder(out)
        plan = ClusterPlan(Setting(*sizes, skew), memory_bytes, batches, seed, time_limit, out)
        for result in compare(plan, display, RealClock()):
            results.append(result)
            if json:
                print_json(result.as_json())
    if not json:
        _print(results)
    check_agreement([result.result for result in results])
    if any(result.result.status != "ok" for result in results):
        raise typer.Exit(1)


def _print(results: Sequence[ClusterResult]) -> None:
    from semistream.cli.output import print_table

    rows = []
    for one in results:
        seconds, rate, cpu = one.result.seconds_per_batch, one.result.rows_per_second, one.cpu_us_per_row
        rows.append(
            [
                one.name,
                "" if seconds is None else f"{seconds:.3f}",
                "" if rate is None else thousands(rate),
                "" if cpu is None else f"{cpu:.2f}",
                one.result.note,
            ]
        )
    print_table(["cluster", "s/batch", "rows/s", "µs of processor a row", ""], rows)
