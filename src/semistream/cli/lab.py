"""`semistream lab`: the papers' figures, measured here.

An experiment may take hours, so whatever can be refused is refused before the first is run, and each is printed and
drawn as soon as it is done: who stops the last of many keeps the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from semistream.lab.conditions import Conditions
    from semistream.lab.experiment import Experiment
    from semistream.lab.run import Result

lab = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Run the papers' experiments and say which claims hold."
)

Size = Annotated[str, typer.Option(metavar="SIZE", help="small, default, or paper: as large as published.")]
Io = Annotated[str, typer.Option(metavar="IO", help="hdd or nvme, metered on a virtual clock, or real: this machine.")]
MemoryModel = Annotated[
    str,
    typer.Option(metavar="MODEL", help="actual: what is allocated; jvm: 204 bytes a waiting row, as the prototypes."),
]
Seed = Annotated[int, typer.Option(help="Of the stream's keys.")]
Generator = Annotated[
    str, typer.Option(metavar="NAME", help="exact: Zipf's law; integral: what the papers' generators draw.")
]
Order = Annotated[
    str, typer.Option(metavar="ORDER", help="Where popular keys lie in R: frequency, side by side; or shuffled.")
]
DriftRows = Annotated[
    str | None, typer.Option(metavar="ROWS", help="Other keys become popular after so many rows.", show_default="never")
]
Arrivals = Annotated[
    str,
    typer.Option(metavar="KIND", help="Of rows that come at a rate: constant, bursty, intermittent or published."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON: a line for each experiment, or one that lists all.")]


@lab.command("list")
def list_experiments(json: Json = False) -> None:
    """Show all experiments and what the papers claim.

    \b
    Example:
      semistream lab list
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.cli.output import print_json, print_table
    from semistream.lab.experiments import EXPERIMENTS

    if json:
        print_json([{"id": e.id, "paper": e.paper, "figure": e.figure, "claim": e.claim} for e in EXPERIMENTS.values()])
        return
    print_table(["id", "claim", "fixed"], [[e.id, e.claim, e.fixed] for e in EXPERIMENTS.values()])


@lab.command("run")
def run_experiments(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Experiments, as `lab list` shows them.")],
    size: Size = "default",
    at: Annotated[str | None, typer.Option(metavar="X,...", help="Only at these values of the x axis.")] = None,
    series: Annotated[str | None, typer.Option(metavar="LABEL,...", help="Only these series of the figure.")] = None,
    io: Io = "hdd",
    memory_model: MemoryModel = "actual",
    seed: Seed = 1,
    generator: Generator = "exact",
    order: Order = "frequency",
    drift: DriftRows = None,
    arrivals: Arrivals = "constant",
    reports: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Weather reports for moij-7e and sscj-4e: a file, or a directory of files."),
    ] = None,
    json: Json = False,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw the figures into this directory.")] = None,
) -> None:
    """Run experiments and judge their claims.

    \b
    Example:
      semistream lab run moij-7a --size small
      semistream lab run pcsrj-3a pcsrj-3b --out figures --json
      semistream lab run moij-7a --size paper --at 10 --series MOIJ,CACHEJOIN
      semistream lab run sscj-5b --size small --arrivals bursty
      semistream lab run moij-7a --size small --generator integral --order shuffled
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.lab.feasible import check_can_run
    from semistream.lab.part import part_of

    conditions = _conditions(io, memory_model, seed, generator, order, drift, arrivals)
    # All of it is checked before anything is run: a mistake should not show after hours.
    experiments = [part_of(_with_reports(name, reports), size, at, series) for name in dict.fromkeys(ids)]
    for experiment in experiments:
        check_can_run(experiment, size, conditions)
    if out is not None:
        from semistream.lab.plots import make_ready

        make_ready(out)
    for result in _results(experiments, size, conditions):
        _print(result, json)
        if out is not None:
            from semistream.lab.plots import write_svg

            write_svg(result, out)


@lab.command("report")
def report(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where report.html is written.")] = Path("lab-report"),
    size: Size = "default",
    io: Io = "hdd",
    memory_model: MemoryModel = "actual",
    seed: Seed = 1,
    generator: Generator = "exact",
    order: Order = "frequency",
    drift: DriftRows = None,
    arrivals: Arrivals = "constant",
    json: Json = False,
) -> None:
    """Run all experiments and put their figures on one HTML page.

    \b
    Example:
      semistream lab report --size small --out figures
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.errors import check_choice
    from semistream.lab.experiment import SIZES
    from semistream.lab.experiments import EXPERIMENTS
    from semistream.lab.plots import make_ready
    from semistream.lab.report import write_report

    check_choice("size", size, SIZES)
    experiments = list(EXPERIMENTS.values())
    conditions = _conditions(io, memory_model, seed, generator, order, drift, arrivals)
    make_ready(out)
    results: list[Result] = []
    try:
        for result in _results(experiments, size, conditions):
            results.append(result)
            _print(result, json)
    finally:
        # A page of some experiments is worth more than none when a later one fails or somebody stops it.
        if results:
            not_run = [experiment.id for experiment in experiments[len(results) :]]
            typer.echo(f"written: {write_report(results, out, not_run)}", err=True)


def _conditions(
    io: str, memory_model: str, seed: int, generator: str, order: str, drift: str | None, arrivals: str
) -> Conditions:
    from semistream.cli.output import parse_rows
    from semistream.lab.conditions import conditions_of

    drift_rows = None if drift is None else parse_rows(drift)
    return conditions_of(
        io, memory_model, seed, generator=generator, order=order, drift_rows=drift_rows, arrivals=arrivals
    )


def _with_reports(name: str, reports: Path | None) -> Experiment:
    from semistream.lab.experiments import experiment_named
    from semistream.lab.weather_archive import with_reports

    experiment = experiment_named(name)
    return experiment if reports is None else with_reports(experiment, reports)


def _results(experiments: list[Experiment], size: str, conditions: Conditions) -> Iterator[Result]:
    """Each as soon as it is done."""
    from semistream.cli.output import watching
    from semistream.clock import RealClock
    from semistream.lab.run import run

    for experiment in experiments:
        # A display of its own for each: while one is drawn, what is printed would go to the standard error.
        with watching(RealClock()) as display:
            display.begin(experiment.id)
            result = run(experiment, size, conditions, progress=partial(display.advance, unit="runs"))
            display.end(result.verdict.in_words)
        yield result


def _print(result: Result, json: bool) -> None:
    from semistream.cli.output import print_facts, print_json

    if json:
        print_json(result.as_json())
        return
    experiment, verdict = result.experiment, result.verdict
    print_facts(
        {
            "experiment": f"{experiment.id}, {experiment.paper}",
            "claim": experiment.claim,
            "holds": {True: "yes", False: "no", None: "not judged"}[verdict.holds],
            "reason": verdict.reason,
            "adaptive": _ours_in_words(result),
            **_keeping_up(result),
        }
    )


def _keeping_up(result: Result) -> dict[str, str]:
    """The verdict λ ≤ μ of every series, where rows come at a rate."""
    told = {
        label: ", ".join(f"{'yes' if point.extra['keeps_up'] else 'no'} at {point.x:g}" for point in points)
        for label, points in result.lines.items()
        if all("keeps_up" in point.extra for point in points)
    }
    return {"keeps up (λ ≤ μ)": "; ".join(f"{label}: {words}" for label, words in told.items())} if told else {}


def _ours_in_words(result: Result) -> str:
    ours = result.ours
    if result.experiment.is_part:
        return "not compared: other series or points of the figure were not run"
    if not ours.measured:
        return "not compared: the figure does not compare joins"
    ratios = [ratio for ratio in ours.measured.values() if math.isfinite(ratio)]
    times = f"{min(ratios):.3g} to {max(ratios):.3g} times the best other" if ratios else "no other gets anywhere"
    best = f"the best at {ours.best_at} of {len(ours.measured)} points, clearly at {ours.clearly_best_at}"
    return f"{best}; {times} at equal memory"
