"""`semistream calibrate`: what the operations of the cost models take on this machine."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistream.cli.planned import Json

if TYPE_CHECKING:
    from semistream.cli.planned import Stages
    from semistream.cost.calibrate import Calibration, Measured
    from semistream.planning.loops import LoopCosts

MEANINGS = {
    "c_h": "look up a row in a hash table",
    "c_o": "make a joined row",
    "c_e": "take a stream row out of H_S and the queue",
    "c_s": "read a stream row",
    "c_a": "append a stream row to H_S and the queue",
    "c_f": "compare the frequency of a row of R with a threshold",
    "c_i": "evaluate the cache inequality for a key of R",
    "c_v": "test a key of H_R for eviction",
}


def calibrate(
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where reads are measured.", show_default="where temporary files are kept"),
    ] = None,
    loops: Annotated[
        bool, typer.Option("--loops", help="Also time iterations of each join, and try the model of c_loop on them.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure the unit costs of the cost models on this machine: c_H, c_O, … c_V and c_IO(b).

    Each is a median with its 95 % interval. Reads leave out the system's cache where the system allows that. With
    --loops, which takes minutes, the fixed cost of an iteration of each join is found as well, and what its model says
    of iterations of other sizes stands beside what they take.

    \b
    Example:
      semistream calibrate
      semistream calibrate --loops
      semistream calibrate --directory relations --json
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.cli.output import print_json, watching
    from semistream.cli.planned import Stages
    from semistream.clock import RealClock
    from semistream.errors import InvalidOption, did_you_mean_beside

    if directory is not None and not directory.is_dir():
        raise InvalidOption(
            "there is no such directory",
            given=str(directory),
            allowed="a directory to write to",
            hint=did_you_mean_beside(directory, Path.is_dir),
        )
    with watching(RealClock()) as display:
        stages = Stages(display)
        stages.begin("Loading libraries")
        from semistream.planning.measuring import calibrate_here

        found = calibrate_here(RealClock(), directory, on_operation=lambda name: stages.begin(f"Measuring {name}"))
        measured = _loops(found, stages) if loops else []
        stages.end()
    if json:
        print_json(_as_json(found) | ({"loops": [asdict(one) for one in measured]} if loops else {}))
    else:
        _print(found)
        if loops:
            _print_loops(measured)


def _loops(found: Calibration, stages: Stages) -> list[LoopCosts]:
    from semistream.clock import CpuClock
    from semistream.planning.loops import measure_loops

    told = partial(_begin_loops, stages)
    return list(measure_loops(found.unit_costs, CpuClock(), on_algorithm=told))


def _begin_loops(stages: Stages, algorithm: str) -> None:
    stages.begin(f"Measuring iterations of {algorithm}")


def _print_loops(measured: list[LoopCosts]) -> None:
    from semistream.cli.output import print_table

    rows = [
        [
            one.algorithm,
            f"{one.fixed_s * 1e6:.0f} µs",
            f"{one.factor:.2f}",
            ", ".join(f"{point.measured_s * 1e6:.0f} µs ({point.deviation:+.0%})" for point in one.tried),
        ]
        for one in measured
    ]
    print_table(["c_loop of", "fixed", "factor of unit costs", "iterations of other sizes, and the model beside"], rows)


def _as_json(found: Calibration) -> dict[str, Any]:
    reads = {"random": found.random_reads, "sequential": found.sequential_reads}
    return {
        "unit_costs_s": {symbol: one.median_s for symbol, one in found.operations.items()},
        "io": asdict(found.unit_costs.io),
        "operations": {symbol: asdict(one) for symbol, one in found.operations.items()},
        "reads": {kind: {str(size): asdict(one) for size, one in sizes.items()} for kind, sizes in reads.items()},
    }


def _print(found: Calibration) -> None:
    from semistream.budget import format_bytes
    from semistream.cli.output import print_facts, print_table

    rows = [
        [f"c_{symbol[-1].upper()}", *_told(found.operations[symbol], 1e9, "ns"), words]
        for symbol, words in MEANINGS.items()
    ]
    for kind, reads in (("at random", found.random_reads), ("in sequence", found.sequential_reads)):
        rows += [["c_IO", *_told(one, 1e6, "µs"), f"read {format_bytes(size)} {kind}"] for size, one in reads.items()]
    print_table(["symbol", "median", "95 % interval", "what it is"], rows)
    io = found.unit_costs.io
    call, seek, pace = f"{io.call_s * 1e6:.1f} µs", f"{io.seek_s * 1e6:.1f} µs", f"{io.bytes_per_s / 1e6:,.0f} MB/s"
    print_facts({"c_IO(b)": f"{call}, {seek} for a seek, and b bytes at {pace}"})


def _told(one: Measured, factor: float, unit: str) -> list[str]:
    return [
        f"{one.median_s * factor:.1f} {unit}",
        f"{one.low_s * factor:.1f} … {one.high_s * factor:.1f} {unit}",
    ]
