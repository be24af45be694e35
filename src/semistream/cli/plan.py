"""`semistream plan`: which algorithm for a relation, a memory, a rate and a skew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from semistream.cli.planned import Io, Json, Memory, RelationPath, Skew

if TYPE_CHECKING:
    from semistream.planning.choose import Choice


def plan(
    relation: RelationPath,
    memory: Memory = "64MB",
    rate: Annotated[
        str | None,
        typer.Option(metavar="ROWS", help="Stream rows a second, such as 20k.", show_default="as fast as the join"),
    ] = None,
    skew: Skew = 1.0,
    io: Io = "nvme",
    json: Json = False,
) -> None:
    """Choose an algorithm for a relation, with the bill of every alternative.

    The bill is what the cost model of each algorithm predicts at its best split of the memory: rows a second, bytes,
    the share of the stream that memory answers, reads for each row, rows that wait. Nothing is run. Whether it keeps up
    is known only where --rate is given; without, `keeps_up` is null in JSON.

    \b
    Example:
      semistream plan relations/products --memory 64MB
      semistream plan relations/products --memory 16MB --rate 20k --skew 0.8 --io hdd --json
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.budget import parse_bytes
    from semistream.cli.output import parse_rows, print_json, watching
    from semistream.cli.planned import check_io, device_shown, opened
    from semistream.clock import RealClock

    check_io(io)
    memory_bytes, rows_per_s = parse_bytes(memory), None if rate is None else float(parse_rows(rate))
    _, rows = opened(relation)
    with watching(RealClock()) as display:
        device = device_shown(io, display)
        display.begin("Asking every cost model")
        from semistream.planning.capacities import Room, sampled_rows_per_key, workload_of
        from semistream.planning.choose import choose

        room = Room(memory_bytes)
        workload = workload_of(rows, room, zipf_exponent=skew, rows_per_key=sampled_rows_per_key(rows))
        choice = choose(rows, room, workload, device.unit_costs, rows_per_s)
        display.end(f"{choice.chosen.algorithm} is chosen")
    if json:
        print_json(choice.as_json())
    else:
        typer.echo(f"{choice.as_text()}\n")
        typer.echo(_verdict(choice) if rows.info.row_count else "the relation is empty: any algorithm will do")


def _verdict(choice: Choice) -> str:
    chosen, rate = choice.chosen, choice.arrival_rows_per_s
    fastest = f"{chosen.algorithm} is the fastest: {chosen.service_rows_per_s:,.0f} rows/s"
    if rate is None:
        return fastest
    if chosen.keeps_up:
        return f"{chosen.algorithm} keeps up with {rate:,.0f} rows/s, and lets rows wait the shortest of those that do"
    return f"none keeps up with {rate:,.0f} rows/s; {fastest}"
