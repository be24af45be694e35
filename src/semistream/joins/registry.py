"""All algorithms by name: what each one reads, remembers and lets wait, what it needs, and how to build it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from semistream.errors import check_choice
from semistream.joins import adaptive, division, page_probing, pcsrj
from semistream.joins.adaptive import AdaptiveJoin
from semistream.joins.base import SemiStreamJoin
from semistream.joins.cachejoin import CacheJoin
from semistream.joins.derakhshan import OrderedCacheJoin
from semistream.joins.hybridjoin import HybridJoin
from semistream.joins.inlj import IndexNestedLoopJoin
from semistream.joins.meshjoin import MeshJoin
from semistream.joins.moij import MemoryOptimalIndexJoin
from semistream.joins.optimised_x_hybridjoin import OptimisedXHybridJoin
from semistream.joins.partition_join import PartitionJoin
from semistream.joins.pcsrj import ParallelCacheJoin
from semistream.joins.r_meshjoin import ReducedMeshJoin
from semistream.joins.ssbj import SemiStreamBalancedJoin
from semistream.joins.sscj import SemiStreamCacheJoin
from semistream.joins.ssij import SemiStreamedIndexJoin
from semistream.joins.tuned_x_hybridjoin import TunedXHybridJoin
from semistream.joins.x_hybridjoin import XHybridJoin
from semistream.relations.base import Relation

AUTO = "auto"
"""Leave the choice to us."""

Needs = Literal["keys", "index", "scan"]
"""How R must be readable: by batches of keys, by the page of a key, or from one end to the other."""

Build = Callable[..., SemiStreamJoin]
"""Builds an operator from a relation that can be read as needed, its resources, and settings of its own by name."""


def _least_for_keys(relation: Relation, stream_row_bytes: int) -> int:
    return adaptive.least_memory_bytes(relation.info.row_bytes_max)


def _least_for_two_pages(relation: Relation, stream_row_bytes: int) -> int:
    return division.least_memory_bytes(relation, stream_row_bytes, pages_held=2)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One line of the table of algorithms."""

    name: str
    reads: str
    remembers: str
    waits: str
    needs: Needs
    paper: str
    build: Build
    many_to_many: bool = True
    least_memory_bytes: Callable[[Relation, int], int] = division.least_memory_bytes
    """The smallest budget for a relation and stream rows of so many bytes."""

    def as_json(self) -> dict[str, Any]:
        """What a reader of the table sees."""
        names = ("name", "reads", "remembers", "waits", "paper", "needs_in_r", "many_to_many")
        return {name.removesuffix("_in_r"): getattr(self, name) for name in names}

    @property
    def needs_in_r(self) -> Literal["index", "scan"]:
        """What R must have: keys, too, are found by an index."""
        return "scan" if self.needs == "scan" else "index"


ALGORITHMS: dict[str, Algorithm] = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "adaptive",
            reads="the distinct missed keys, along the cheapest access path; or page after page, in sweeps",
            remembers="keys with all their rows, by uses per byte; absent keys",
            waits="nothing past the end of a step's rows; in sweeps, rows that missed, until the sweep comes by",
            needs="keys",
            paper="our own",
            build=AdaptiveJoin,
            least_memory_bytes=_least_for_keys,
        ),
        Algorithm(
            "inlj",
            reads="the key of each row",
            remembers="nothing",
            waits="nothing past the end of a step's rows",
            needs="keys",
            paper="textbook baseline",
            build=IndexNestedLoopJoin,
            least_memory_bytes=_least_for_keys,
        ),
        Algorithm(
            "meshjoin",
            reads="the next segment of a cyclic scan",
            remembers="nothing",
            waits="until all of R has passed by",
            needs="scan",
            paper="Polyzotis et al., TKDE 20(7), 2008",
            build=MeshJoin,
        ),
        Algorithm(
            "r-meshjoin",
            reads="the next segment of a cyclic scan, part by part",
            remembers="nothing",
            waits="until all of R has passed by",
            needs="scan",
            paper="Naeem et al., DOLAP 2010",
            build=ReducedMeshJoin,
        ),
        Algorithm(
            "hybridjoin",
            reads="the page of the oldest waiting key",
            remembers="nothing",
            waits="until its page is read",
            needs="index",
            paper="Naeem et al., IJDWM 7(4), 2011",
            build=HybridJoin,
        ),
        Algorithm(
            "x-hybridjoin",
            reads="the page of the oldest waiting key",
            remembers="the first pages of R, which probe the rows that wait",
            waits="until its page is read or, if that is pinned, until the next iteration",
            needs="index",
            paper="Naeem et al., BNCOD 2011",
            build=XHybridJoin,
            many_to_many=False,
            least_memory_bytes=_least_for_two_pages,
        ),
        Algorithm(
            "tuned-x-hybridjoin",
            reads="the page of the oldest waiting key",
            remembers="the first pages of R, as many as the tuner says; they probe the rows that wait",
            waits="until its page is read or, if that is pinned, until the next iteration",
            needs="index",
            paper="Naeem, APWeb 2013",
            build=TunedXHybridJoin,
            many_to_many=False,
            least_memory_bytes=_least_for_two_pages,
        ),
        Algorithm(
            "optimised-x-hybridjoin",
            reads="the page of the oldest waiting key",
            remembers="the first pages of R, which the stream probes",
            waits="rows that missed, until their page is read",
            needs="index",
            paper="Naeem et al., ADC 2012",
            build=OptimisedXHybridJoin,
            many_to_many=False,
        ),
        Algorithm(
            "cachejoin",
            reads="the page of the oldest waiting key",
            remembers="keys that enough rows waited for; every sixteenth makes room",
            waits="rows that missed, until their page is read",
            needs="index",
            paper="Naeem et al., DaWaK 2012",
            build=CacheJoin,
        ),
        Algorithm(
            "sscj",
            reads="the page of the oldest waiting key",
            remembers="keys that enough rows waited for; the least frequent makes room",
            waits="rows that missed, until their page is read",
            needs="index",
            paper="Naeem et al., DaWaK 2013",
            build=SemiStreamCacheJoin,
        ),
        Algorithm(
            "pcsrj",
            reads="the page of the oldest waiting key, in all parts of R side by side",
            remembers="in each part, keys that enough rows waited for",
            waits="rows that missed, until their page is read",
            needs="index",
            paper="Naeem et al., Electronics 9(8), 2020",
            build=ParallelCacheJoin,
            least_memory_bytes=pcsrj.least_memory_bytes,
        ),
        Algorithm(
            "ssbj",
            reads="the next segment of a cyclic scan",
            remembers="keys by the cache inequality",
            waits="rows that missed, until all of R has passed by",
            needs="scan",
            paper="Naeem et al., Distributed and Parallel Databases 37, 2018",
            build=SemiStreamBalancedJoin,
        ),
        Algorithm(
            "moij",
            reads="the page of the oldest waiting key",
            remembers="keys by the cache inequality",
            waits="rows that missed, until their page is read",
            needs="index",
            paper="Naeem et al., IEEE Access 8, 2020",
            build=MemoryOptimalIndexJoin,
        ),
        Algorithm(
            "ssij",
            reads="runs of pages with the most waiting rows per seek",
            remembers="pages, by the rows that asked for them",
            waits="rows whose page is not in memory, until a join phase reads it",
            needs="index",
            paper="Bornea et al., ICDE 2011",
            build=SemiStreamedIndexJoin,
            least_memory_bytes=page_probing.least_memory_bytes,
        ),
        Algorithm(
            "partition-join",
            reads="the page with the longest list of waiting rows",
            remembers="pages, by the rate of rows that ask for them",
            waits="in a list for each page that is not in memory",
            needs="index",
            paper="Chakraborty and Singh, IPDPS 2009",
            build=PartitionJoin,
            least_memory_bytes=page_probing.least_memory_bytes,
        ),
        Algorithm(
            "derakhshan",
            reads="all missed keys of a step in one batched query",
            remembers="the keys that were asked for last, with all their rows",
            waits="nothing past the end of a step's rows; pairs come in the order of the stream",
            needs="keys",
            paper="Derakhshan et al., CIKM 2013",
            build=OrderedCacheJoin,
            least_memory_bytes=_least_for_keys,
        ),
    )
}


def algorithm_named(name: str) -> Algorithm:
    """Return the algorithm of that name. An unknown name is an error with a suggestion.

    `auto` is `adaptive` here, where nothing is known of a relation; `enrich` plans first.
    """
    check_choice("algorithm", name, [AUTO, *ALGORITHMS])
    return ALGORITHMS["adaptive" if name == AUTO else name]
