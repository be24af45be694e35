"""`semistream algorithms`: what can be given to `enrich(..., algorithm=...)`."""

from __future__ import annotations

from typing import Annotated

import typer


def algorithms(
    json: Annotated[bool, typer.Option("--json", help="Print the table as one line of JSON.")] = False,
) -> None:
    """Show every algorithm: what it reads next, what it remembers, and which rows it lets wait.

    \b
    Example:
      semistream algorithms
      semistream algorithms --json | jq '.[] | select(.needs == "scan") | .name'
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.cli.output import print_json, print_table
    from semistream.joins.registry import ALGORITHMS

    if json:
        print_json([algorithm.as_json() for algorithm in ALGORITHMS.values()])
        return
    columns = ["name", "reads next", "remembers", "waits", "needs", "keys may repeat", "paper"]
    print_table(
        columns,
        [
            [a.name, a.reads, a.remembers, a.waits, a.needs, "yes" if a.many_to_many else "no", a.paper]
            for a in ALGORITHMS.values()
        ],
    )
