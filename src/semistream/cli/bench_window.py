"""`semistream bench window`: two live streams, joined by us and by what a user would pick instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.demo.display import thousands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semistream.bench.window_race import Kind, WindowResult


def window(
    batch_rows: Annotated[str, typer.Option(metavar="N", help="Rows of a micro-batch on each side.")] = "100k",
    batches: Annotated[int, typer.Option(min=1, help="Measured micro-batches; the warm-up comes before.")] = 6,
    window_s: Annotated[float, typer.Option(metavar="SECONDS", help="How far apart two events may be.")] = 10,
    contenders: Annotated[str | None, typer.Option(metavar="A[,B]", help="Who takes part.", show_default="all")] = None,
    band: Annotated[
        bool, typer.Option("--band", help="Instead, a band join over count windows beside DuckDB, without Spark.")
    ] = False,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="What ours may hold.")] = "256MB",
    time_limit: Annotated[float, typer.Option(metavar="SECONDS", min=1, help="For a contender, start included.")] = 900,
    seed: Annotated[int, typer.Option(min=0, help="Of all data.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of a table.")] = False,
    out: Annotated[Path, typer.Option(metavar="DIR", help="For data, logs and figures.")] = Path("semistream-bench"),
) -> None:
    """Join two streams within a time window beside Spark's own stream-stream join, each in a process of its own.

    Seconds are medians over micro-batches; rows a second are those of both streams. The pairs must agree. Compare
    ratios within one run, on a machine that does nothing else.

    \b
    Example:
      semistream bench window
      semistream bench window --batch-rows 10k --window-s 30 --json
      semistream bench window --band
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.budget import parse_bytes
    from semistream.cli.output import make_folder, parse_rows, print_json, watching
    from semistream.clock import RealClock
    from semistream.window.windows import seconds

    kind: Kind = "band" if band else "equality"
    rows, memory_bytes = parse_rows(batch_rows), parse_bytes(memory)
    seconds(window_s)
    names = None if contenders is None else [name.strip() for name in contenders.split(",")]
    results: list[WindowResult] = []
    with watching(RealClock()) as display:
        display.begin("Loading libraries")
        from semistream.bench.window_plots import draw_windows
        from semistream.bench.window_race import (
            CONTENDERS,
            WindowPlan,
            check_contenders,
            check_same_pairs,
            window_race,
        )

        chosen = list(dict.fromkeys(CONTENDERS[kind] if names is None else names))
        check_contenders(kind, chosen)
        _check_engines(kind, chosen)
        display.end(", ".join(chosen))
        make_folder(out)
        plan = WindowPlan(kind, chosen, rows, batches, window_s, memory_bytes, seed, time_limit, out)
        for result in window_race(plan, display, RealClock()):
            results.append(result)
            if json:
                print_json(result.as_json())
    if not json:
        _print_windows(results)
    typer.echo(f"written: {draw_windows(results, out / f'window-{kind}.png')}", err=True)
    check_same_pairs(results)


def _check_engines(kind: Kind, contenders: Sequence[str]) -> None:
    if kind == "equality":
        from semistream.demo.session import check_java

        check_java()
    elif "duckdb" in contenders:
        from semistream.bench.window_band import duckdb_installed

        duckdb_installed()


def _print_windows(results: Sequence[WindowResult]) -> None:
    from semistream.budget import format_bytes
    from semistream.cli.output import print_table

    rows = []
    for result in results:
        seconds, rate = result.seconds_per_batch, result.rows_per_second
        rows.append(
            [
                result.contender,
                thousands(result.plan.batch_rows),
                "" if seconds is None else f"{seconds:.3f}",
                "" if rate is None else thousands(rate),
                thousands(result.pairs),
                "" if result.peak_bytes is None else format_bytes(result.peak_bytes),
                result.note,
            ]
        )
    print_table(["contender", "batch", "s/batch", "rows/s", "pairs", "memory", ""], rows)
