"""`semistream algorithms`: what can be given to `enrich(..., algorithm=...)`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from semistream.joins.registry import Algorithm


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
    # A column for each would be too narrow for its words on a usual terminal, so that they stand below each other.
    print_table(["name", "", ""], [line for algorithm in ALGORITHMS.values() for line in _lines(algorithm)])


def _lines(algorithm: Algorithm) -> list[tuple[str, str, str]]:
    """What is said of an algorithm, and its name before the first of it."""
    keys = "may repeat" if algorithm.many_to_many else "must be unique"
    return [
        (algorithm.name, "reads next", algorithm.reads),
        ("", "remembers", algorithm.remembers),
        ("", "waits", algorithm.waits),
        ("", "needs", f"{algorithm.needs_in_r}; keys of R {keys}"),
        ("", "paper", algorithm.paper),
    ]
