"""`semistream bench`: speed, hits and steadiness, measured here beside what a user would pick instead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.bench_cluster import cluster
from semistream.cli.bench_window import window
from semistream.demo.display import thousands

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semistream.bench.results import Result
    from semistream.bench.soak import SoakResult

bench = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Measure speed, hits and steadiness beside the alternatives."
)

bench.command("window")(window)
bench.command("cluster")(cluster)

LARGE_ROWS = 100_000_000

Out = Annotated[Path, typer.Option(metavar="DIR", help="For data (kept for the next run), logs and figures.")]
OUT = Path("semistream-bench")
Json = Annotated[bool, typer.Option("--json", help="Print lines of JSON instead of a table.")]
Seed = Annotated[int, typer.Option(min=0, help="Of all data.")]


@bench.command("enrich")
def bench_enrich(
    relation_rows: Annotated[str, typer.Option(metavar="N[,N]", help="Rows of R.")] = "10M",
    batch_rows: Annotated[str, typer.Option(metavar="N[,N]", help="Rows of a micro-batch.")] = "100k",
    skew: Annotated[str, typer.Option(metavar="S[,S]", help="Zipf's exponent of the stream; 0 is uniform.")] = "1",
    memory: Annotated[str, typer.Option(metavar="SIZE", help="What ours, and the cache by hand, may hold.")] = "256MB",
    batches: Annotated[int, typer.Option(min=1, help="Measured micro-batches; the warm-up comes before.")] = 8,
    warm_up: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, max=86_400, help="How long a contender runs before it is measured."),
    ] = 75,
    contenders: Annotated[str | None, typer.Option(metavar="A[,B]", help="Who takes part.", show_default="all")] = None,
    large: Annotated[bool, typer.Option("--large", help="Also with R of 100 M rows: 30 GB of disk.")] = False,
    container: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Put each contender into a memory cgroup (root on Linux)."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, max=86_400, help="For a contender, start included.")
    ] = 900,
    seed: Seed = 1,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Join the same stream by every way a user has, each in a process of its own, and compare.

    Seconds are medians over micro-batches, as Spark reports them. Output checksums must agree. Compare ratios within
    one run, on a machine that does nothing else.

    \b
    Example:
      semistream bench enrich
      semistream bench enrich --relation-rows 1M,10M --batch-rows 10k,100k,1M --skew 0,0.8,1
      semistream bench enrich --contenders spark-broadcast-stream,semistream --json
      semistream bench enrich --large --container 4g --contenders semistream-inlj,semistream
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.budget import parse_bytes
    from semistream.cli.output import make_folder, parse_rows, print_json, watching
    from semistream.clock import RealClock

    sizes = [parse_rows(text) for text in _split("relation-rows", relation_rows)]
    batch_sizes = [parse_rows(text) for text in _split("batch-rows", batch_rows)]
    skews = [_parse_skew(text) for text in _split("skew", skew)]
    memory_bytes, container_bytes = parse_bytes(memory), None if container is None else parse_bytes(container)
    names = None if contenders is None else _split("contenders", contenders)
    results: list[Result] = []
    with watching(RealClock()) as display:
        display.begin("Loading libraries")
        from semistream.bench.contenders import USUAL, contenders_named
        from semistream.bench.race import Plan, race
        from semistream.bench.results import check_agreement
        from semistream.demo.session import check_java

        chosen = contenders_named(USUAL if names is None else names)
        check_java()
        display.end(f"{len(chosen)} contenders")
        plan = Plan(
            chosen,
            list(dict.fromkeys([*sizes, *([LARGE_ROWS] if large else [])])),
            batch_sizes,
            skews,
            memory_bytes,
            batches,
            warm_up,
            seed,
            time_limit,
            container_bytes,
            out,
        )
        make_folder(out)
        for result in race(plan, display, RealClock()):
            results.append(result)
            if json:
                print_json(result.as_json())
    if not json:
        _print_race(results)
    _draw(results, out / "enrich.png")
    for setting in plan.settings():
        check_agreement([result for result in results if result.setting == setting])
    if not any(result.status == "ok" for result in results):
        raise typer.Exit(1)


@bench.command("cache")
def bench_cache(
    accesses: Annotated[str, typer.Option(metavar="N", help="Lookups of each stream that count.")] = "4M",
    warm_up: Annotated[
        str, typer.Option(metavar="N", help="Lookups before them; a stream that moves has at most as many as count.")
    ] = "16M",
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Compare the share of lookups that memory answers with that of other cache policies, in the same bytes.

    Takes tens of minutes: with little skew it takes millions of lookups to learn which keys are popular.

    \b
    Example:
      semistream bench cache
      semistream bench cache --warm-up 200k --accesses 200k --json
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.cli.output import parse_rows, print_json, print_table, watching
    from semistream.clock import RealClock

    measured, before = parse_rows(accesses), parse_rows(warm_up)
    results = []
    with watching(RealClock()) as display:
        display.begin("Loading libraries")
        from semistream.bench.cache import Length, compare

        display.end("compiled kernels")
        display.begin("Comparing policies")
        for result in compare(Length(before, measured), seed, display.advance):
            results.append(result)
            if json:
                print_json(result.as_json())
        display.end(f"{len(results)} streams, {thousands(measured)} lookups of each")
    if not json:
        names = list(results[0].hit_rates)
        rows = [
            [result.workload, *(f"{result.hit_rates[name]:.1%}" for name in names), f"{result.below_best:.1%}"]
            for result in results
        ]
        print_table(["stream", *names, "below best"], rows)


@bench.command("soak")
def bench_soak(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long, from the first micro-batch on.")] = 30.0,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory of the join.")] = "64MB",
    seed: Seed = 1,
    json: Json = False,
    out: Out = OUT,
) -> None:
    """Enrich an endless stream, and watch whether memory, open files or disk use grow; exit code 1 if they do.

    \b
    Example:
      semistream bench soak
      semistream bench soak --minutes 0.5
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.budget import parse_bytes
    from semistream.cli.output import make_folder, print_json, watching
    from semistream.clock import RealClock

    memory_bytes = parse_bytes(memory)
    with watching(RealClock()) as display:
        display.begin("Loading libraries")
        from semistream.bench.plots import draw_soak
        from semistream.bench.soak import MINUTES_TO_JUDGE, SoakPlan, soak
        from semistream.demo.session import check_java

        check_java()
        display.end("ready")
        make_folder(out)
        result = soak(SoakPlan(minutes, memory_bytes, seed, out), display, RealClock())
    if json:
        print_json(result.as_json())
    else:
        _print_soak(result)
    figure = draw_soak(result.samples.seconds, result.samples.series, out / "soak.png")
    typer.echo(f"written: {figure}", err=True)
    if minutes >= MINUTES_TO_JUDGE and not result.is_flat:
        raise typer.Exit(1)


def _print_soak(result: SoakResult) -> None:
    from semistream.budget import format_bytes
    from semistream.cli.output import print_facts, print_table

    rows = []
    for name, trend in result.trends.items():
        values = [trend.at_start, trend.at_end, abs(trend.per_hour)]
        told = [format_bytes(value) if name.endswith("bytes") else f"{value:.0f}" for value in values]
        sign = "-" if trend.per_hour < 0 else ""
        rows.append([name, told[0], told[1], sign + told[2], "flat" if trend.is_flat else "grows"])
    print_table(["measure", "begin", "end", "an hour", ""], rows)
    print_facts({"verdict": result.verdict, "batches": thousands(result.batches)})


def _split(option: str, text: str) -> list[str]:
    from semistream.errors import InvalidOption

    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise InvalidOption(f"the list in --{option} has an empty place", given=repr(text), allowed="a value, or a,b")
    return parts


def _parse_skew(text: str) -> float:
    from semistream.errors import InvalidOption

    try:
        skew = float(text)
    except ValueError:
        skew = -1.0
    if not 0 <= skew < float("inf"):
        raise InvalidOption("a skew could not be read", given=repr(text), allowed="a number from 0 on, such as 0.8")
    return skew


def _draw(results: Sequence[Result], path: Path) -> None:
    from semistream.bench.plots import draw_growth, draw_race

    typer.echo(f"written: {draw_race(results, path)}", err=True)
    if len({result.setting.relation_rows for result in results}) > 1:
        typer.echo(f"written: {draw_growth(results, path.with_stem(f'{path.stem}-growth'))}", err=True)


def _print_race(results: Sequence[Result]) -> None:
    from semistream.budget import format_bytes
    from semistream.cli.output import print_table

    rows = []
    for result in results:
        setting, seconds = result.setting, result.seconds_per_batch
        rows.append(
            [
                result.contender,
                thousands(setting.relation_rows),
                thousands(setting.batch_rows),
                f"{setting.skew:g}",
                "" if seconds is None else f"{seconds:.3f}",
                "" if result.rows_per_second is None else thousands(result.rows_per_second),
                "" if result.peak_bytes is None else format_bytes(result.peak_bytes),
                result.note,
            ]
        )
    print_table(["contender", "R", "batch", "Zipf", "s/batch", "rows/s", "memory", ""], rows)
