"""All algorithms by name: what each one reads, remembers and lets wait, and how to build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from semistream.errors import check_choice
from semistream.joins.adaptive import AdaptiveJoin
from semistream.joins.base import JoinResources, SemiStreamJoin
from semistream.joins.inlj import IndexNestedLoopJoin
from semistream.relations.base import KeyBatch

AUTO = "auto"
"""Leave the choice to us."""

Build = Callable[[KeyBatch, JoinResources], SemiStreamJoin]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One line of the table of algorithms."""

    name: str
    reads: str
    remembers: str
    waits: str
    build: Build


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "adaptive",
            reads="the distinct missed keys, along the cheapest access path",
            remembers="keys with all their rows, by uses per byte; absent keys",
            waits="nothing past the end of a step's rows",
            build=AdaptiveJoin,
        ),
        Algorithm(
            "inlj",
            reads="the key of each row",
            remembers="nothing",
            waits="nothing",
            build=IndexNestedLoopJoin,
        ),
    )
}


def algorithm_named(name: str) -> Algorithm:
    """Return the algorithm of that name; `auto` is `adaptive`. An unknown name is an error with a suggestion."""
    check_choice("algorithm", name, [AUTO, *ALGORITHMS])
    return ALGORITHMS["adaptive" if name == AUTO else name]
