"""MESHJOIN's expiry: rows leave with the cell they came in, when all of R has passed, and nobody leaves with them."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.joins.base import JoinResources, StreamRows
from semistream.joins.registry import ALGORITHMS
from semistream.joins.scan_probing import ScanProbingJoin
from semistream.relations.base import CODE_COLUMN
from semistream.relations.memory import MemoryRelation

KEYS, PAGE_ROWS = 1_000, 64
CODES_ASKED = 3
"""So few that rows of all cells have the same codes: expiry by key would take younger rows along."""


def fed_at_random(join: ScanProbingJoin, rng: random.Random, iterations: int) -> tuple[list[set[int]], list[set[int]]]:
    """Admit some rows or none before each iteration; return what was admitted for it and what it finished."""
    admitted: list[set[int]] = []
    finished: list[set[int]] = []
    numbered = 0
    for iteration in range(iterations):
        admitted.append(set())
        finished.append(set())
        wanted = rng.choice([0, 1, join.cell_rows_max])
        while len(admitted[-1]) < wanted:
            codes = np.array([rng.randrange(CODES_ASKED) for _ in range(wanted - len(admitted[-1]))])
            taken = join.admit(StreamRows(np.arange(numbered, numbered + len(codes)), codes))
            admitted[-1].update(range(numbered, numbered + taken))
            numbered += taken
        while join.stats.iterations == iteration:
            leaving = join.step().finished.tolist()
            assert finished[-1].isdisjoint(leaving), "a row is finished once"
            finished[-1].update(leaving)
    return admitted, finished


@pytest.mark.parametrize("algorithm", ["meshjoin", "r-meshjoin"])
@pytest.mark.parametrize("seed", range(3))
def test_expiry_removes_exactly_the_rows_for_which_all_of_r_has_passed(algorithm: str, seed: int) -> None:
    table = pa.table({CODE_COLUMN: np.arange(KEYS), "p": np.arange(KEYS)})
    relation = MemoryRelation(table, ["p"], page_rows=PAGE_ROWS)
    join = ALGORITHMS[algorithm].build(relation, JoinResources(MemoryBudget(200_000), VirtualClock(), 512, 20))
    assert isinstance(join, ScanProbingJoin)
    round_iterations = join.iterations_per_round
    admitted, finished = fed_at_random(join, random.Random(seed), 5 * round_iterations)
    assert max(map(len, admitted)) == join.cell_rows_max, "cells are filled"
    # A row meets the segment of the iteration that admits it first, so it leaves with the one before that, a round on.
    last_of_round = round_iterations - 1
    assert finished[:last_of_round] == [set()] * last_of_round
    assert finished[last_of_round:] == admitted[: len(admitted) - last_of_round]
