"""Micro-batches of a window join, without Spark: however a sequence is cut, its pairs are those of the definition.

Rows are kept on disk between batches, as on Spark; merged early and removed early, and batches are repeated.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import BudgetExceeded, StateCorrupt
from semistream.spark.window_batch import WindowBatch
from semistream.spark.window_options import Options
from semistream.spark.window_plan import WindowPlan, make_plan
from semistream.spark.window_sequence import BatchRows
from semistream.window import state as state_module
from semistream.window.pieces import Arrivals
from semistream.window.reference import reference_join
from semistream.window.state import StateDirectory
from semistream.window.windows import Window, arrivals, rows, seconds

SCHEMA = pa.schema(
    [("k", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("ts", pa.timestamp("us")), ("n", pa.int64())]
)
BATCHES, ROWS_MAX = 14, 14

Piece = tuple[pa.RecordBatch, pa.RecordBatch]


@pytest.fixture(autouse=True)
def merges_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_module, "RUNS_PER_LEVEL", 3)
    # Thousands of small files, which no power cut threatens.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def plan_of(**given: Any) -> WindowPlan:
    names = Options.__dataclass_fields__
    defaults: dict[str, Any] = dict.fromkeys(names) | {
        "how": "inner",
        "lateness": 0.0,
        "shed": "error",
        "index": "auto",
    }
    defaults |= {"per_key": False, "prefix_a": "", "prefix_b": "b_", "seed": 0, "name": "join"}
    memory_bytes = given.pop("memory_bytes", 4_000_000)
    options = Options(**{**defaults, **given})
    return make_plan(
        (SCHEMA, SCHEMA),
        options,
        is_streaming=False,
        memory_bytes=memory_bytes,
        workers=1,
        default_partitions=1,
        retained_batches=3,
    )


def random_pieces(seed: int, keys: int = 6, late: bool = False) -> list[Piece]:
    """Batches of both streams, some of one only; `n` numbers all rows in the order of their arrival."""
    rng = np.random.default_rng(seed)
    pieces = []
    arrived = 0
    now_us = 0
    for _ in range(BATCHES):
        counts = rng.integers(0, ROWS_MAX, 2) * (rng.random(2) > 0.15)
        numbers = arrived + rng.permutation(int(counts.sum()))
        arrived += int(counts.sum())
        sides = []
        for count, own in zip(counts, np.split(numbers, [counts[0]]), strict=True):
            times = now_us + rng.integers(0, 4, count) * 500_000 - (rng.integers(0, 5_000_000, count) if late else 0)
            columns = {
                "k": pa.array(rng.integers(0, keys, count), mask=rng.random(count) < 0.1),
                "x": pa.array(rng.integers(0, 8, count) / 4, mask=rng.random(count) < 0.1),
                "s": pa.array(
                    [None if rng.random() < 0.1 else f"k{rng.integers(keys)}" for _ in range(count)], pa.string()
                ),
                "ts": pa.array(times, pa.timestamp("us")),
                "n": pa.array(own),
            }
            sides.append(pa.RecordBatch.from_pydict(columns, schema=SCHEMA))
        pieces.append((sides[0], sides[1]))
        now_us += int(rng.integers(0, 3)) * 1_000_000
    return pieces


@dataclass
class Joined:
    pairs: list[tuple[int, int | None]]
    counts: list[list[int]]


def joined(plan: WindowPlan, pieces: list[Piece], folder: Path, seed: int) -> Joined:
    """Join batch by batch, some of them twice; every try must give the same."""
    rng = np.random.default_rng(seed)
    directory = StateDirectory(folder, plan.reach)
    directory.claim({"query": "q", **plan.identity})
    found = Joined([], [])
    for batch, piece in enumerate(pieces):
        if not piece[0].num_rows and not piece[1].num_rows:
            continue
        tries = [list(one_try(plan, directory, batch, piece, found)) for _ in range(1 + int(rng.integers(2)))]
        assert all(Counter(attempt) == Counter(tries[0]) for attempt in tries), f"batch {batch} differs when repeated"
        found.pairs += tries[0]
    return found


def one_try(
    plan: WindowPlan, directory: StateDirectory, batch: int, piece: Piece, found: Joined, partition: int = 0
) -> Iterator[tuple[int, int | None]]:
    ties = tuple(side.column("n").to_numpy() for side in piece)
    joining = WindowBatch(plan, partition, directory.begin(partition, batch))
    for output in joining.run(
        BatchRows(piece, batch * 1_000_000, (ties[0], ties[1]) if plan.needs_tie_break else None)
    ):
        yield from zip(output["n"].to_pylist(), output["b_n"].to_pylist(), strict=True)
    found.counts.append(joining.take_counts())


def expected(plan: WindowPlan, pieces: list[Piece]) -> tuple[Counter[Any], set[int]]:
    """Pairs of the definition over the whole sequence, as numbers `n`, and rows of a that have none."""
    sequence: list[tuple[Any, ...]] = []
    for batch, piece in enumerate(pieces):
        both = []
        for side, rows_ in enumerate(piece):
            codes = plan.condition.predicate.encode(side, dict(zip(SCHEMA.names, rows_.columns, strict=True)))
            times = rows_["ts"].cast(pa.int64()).to_pylist() if plan.time else [batch * 1_000_000] * rows_.num_rows
            for i, n in enumerate(rows_["n"].to_pylist()):
                both.append((side, n, times[i], codes.code[i], codes.low[i], codes.high[i], codes.valid[i]))
        key = (lambda row: row[1]) if plan.order_by[0] else (lambda row: (row[2], row[0]))
        sequence += sorted(both, key=key)
    columns = [np.array(column) for column in zip(*sequence, strict=True)]
    side, number, time_us, code, low, high, valid = columns
    pairs, alone = reference_join(
        Arrivals(side.astype(np.int8), code, low, high, valid, time_us), *plan.windows, lateness_us=plan.lateness_us
    )
    numbers_a, numbers_b = number[side == 0], number[side == 1]
    return Counter((int(numbers_a[a]), int(numbers_b[b])) for a, b, _ in pairs), {int(numbers_a[a]) for a in alone}


CASES: dict[str, dict[str, Any]] = {
    "equality, time of acceptance": {"on": "k", "within": seconds(3)},
    "equality, time of a column": {"on": "k", "within": seconds(2), "time": "ts"},
    "equality, lateness": {"on": "k", "window_a": seconds(1), "window_b": seconds(4), "time": "ts", "lateness": 2.0},
    "equality, rows": {"on": "k", "window_a": rows(9), "window_b": rows(20), "order_by": "n"},
    "equality, arrivals": {"on": "k", "within": arrivals(30), "order_by": "n"},
    "rows and time": {"on": "k", "window_a": rows(9), "window_b": seconds(4), "order_by": "n"},
    "strings": {"on": "s", "within": seconds(3)},
    "two columns": {"on": ["s", "k"], "within": seconds(6)},
    "band": {"condition": "abs(a.x - b.x) <= 0.25", "within": seconds(2), "time": "ts"},
    "inequality, rows": {"condition": "a.k < b.k", "window_a": rows(5), "window_b": rows(12), "order_by": "n"},
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("case", CASES)
def test_batches_give_the_pairs_of_the_definition(case: str, how: str, seed: int, tmp_path: Path) -> None:
    plan = plan_of(how=how, **CASES[case])
    pieces = random_pieces(seed, late="time" in CASES[case])
    found = joined(plan, pieces, tmp_path, seed)
    pairs, alone = expected(plan, pieces)
    assert Counter(pair for pair in found.pairs if pair[1] is not None) == pairs
    put_out_alone = Counter(a for a, b in found.pairs if b is None)
    assert max(put_out_alone.values(), default=1) == 1
    if how == "left":
        # What is still in its window when the stream stops has not been put out yet.
        assert set(put_out_alone) <= alone
        assert len(alone) - len(put_out_alone) <= 40
    else:
        assert not put_out_alone


@pytest.mark.parametrize("seed", range(2))
def test_how_many_partitions_there_are_does_not_matter_even_for_late_rows(seed: int, tmp_path: Path) -> None:
    plan = plan_of(on="k", window_a=seconds(1), window_b=seconds(3), time="ts", lateness=1.0)
    pieces = random_pieces(seed, late=True)
    directory = StateDirectory(tmp_path, plan.reach)
    directory.claim(plan.identity)
    found: list[tuple[int, int | None]] = []
    for batch, piece in enumerate(pieces):
        for partition in range(3):
            keys = [np.array([0 if k is None else k for k in side["k"].to_pylist()], np.int64) for side in piece]
            own = [side.filter(pa.array(key % 3 == partition)) for side, key in zip(piece, keys, strict=True)]
            if own[0].num_rows or own[1].num_rows:
                attempt = one_try(plan, directory, batch, (own[0], own[1]), Joined([], []), partition)
                found += attempt
    assert Counter(found) == expected(plan, pieces)[0]


@pytest.mark.parametrize("seed", range(2))
def test_a_residual_decides_which_rows_of_a_left_join_are_alone(seed: int, tmp_path: Path) -> None:
    plan = plan_of(how="left", condition="a.k = b.k AND a.x < b.x", window_a=rows(6), window_b=rows(6), order_by="n")
    pieces = random_pieces(seed)
    found = joined(plan, pieces, tmp_path, seed)
    values = [
        {n: x for piece in pieces for n, x in zip(piece[s]["n"].to_pylist(), piece[s]["x"].to_pylist(), strict=True)}
        for s in (0, 1)
    ]
    candidates, _ = expected(plan, pieces)
    pairs = {
        (a, b)
        for a, b in candidates
        if values[0][a] is not None and values[1][b] is not None and values[0][a] < values[1][b]
    }
    assert {pair for pair in found.pairs if pair[1] is not None} == pairs
    alone = {a for a, b in found.pairs if b is None}
    assert alone.isdisjoint({a for a, _ in pairs})
    assert len(alone | {a for a, _ in pairs}) >= len(values[0]) - 6


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("window", [rows(1), rows(3), arrivals(4)], ids=str)
def test_with_a_window_for_each_key_other_keys_do_not_count(window: Window, seed: int, tmp_path: Path) -> None:
    windows = {"within": window} if str(window).startswith("arr") else {"window_a": window, "window_b": rows(2)}
    plan = plan_of(on="k", order_by="n", per_key=True, how="left", **windows)
    pieces = random_pieces(seed)
    found = joined(plan, pieces, tmp_path, seed)
    pairs: Counter[Any] = Counter()
    for key in range(6):
        of_key = [tuple(side.filter(pa.compute.equal(side["k"], key)) for side in piece) for piece in pieces]
        if any(side.num_rows for piece in of_key for side in piece):
            pairs += expected(replace(plan, per_key=False), of_key)[0]  # type: ignore[arg-type]
    assert Counter(pair for pair in found.pairs if pair[1] is not None) == pairs
    alone = {a for a, b in found.pairs if b is None}
    assert alone.isdisjoint({a for a, _ in pairs})


def test_few_runs_stay_and_old_ones_go(tmp_path: Path) -> None:
    plan = plan_of(on="k", within=seconds(4))
    joined(plan, random_pieces(1) + random_pieces(2), tmp_path, 1)
    assert len([path for path in tmp_path.iterdir() if path.suffix == ".run"]) < 16
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".begun"]


def test_windows_that_do_not_fit_are_an_error_that_names_the_numbers(tmp_path: Path) -> None:
    plan = plan_of(on="k", within=seconds(100), memory_bytes=4_000)
    with pytest.raises(BudgetExceeded, match=r"do not fit the memory.*4000 bytes"):
        joined(plan, random_pieces(1), tmp_path, 1)


@pytest.mark.parametrize("seed", range(2))
def test_a_sample_is_some_of_the_pairs_and_repeats_exactly(seed: int, tmp_path: Path) -> None:
    plan = plan_of(on="k", within=seconds(100), memory_bytes=9_000, shed="sample", seed=seed)
    pieces = random_pieces(seed)
    found = joined(plan, pieces, tmp_path, seed)
    pairs, _ = expected(plan_of(on="k", within=seconds(100)), pieces)
    assert not Counter(found.pairs) - pairs
    assert 0 < len(found.pairs) < pairs.total()


def test_a_batch_that_was_left_in_the_middle_is_missed_by_the_next(tmp_path: Path) -> None:
    plan = plan_of(on="k", within=seconds(100))
    directory = StateDirectory(tmp_path, plan.reach)
    directory.claim(plan.identity)
    first, second = [piece for piece in random_pieces(1, keys=1) if piece[0].num_rows and piece[1].num_rows][:2]
    next(one_try(plan, directory, 0, first, Joined([], [])))
    with pytest.raises(StateCorrupt, match="batch 0 of a window join was left before its end"):
        list(one_try(plan, directory, 1, second, Joined([], [])))
    list(one_try(plan, directory, 0, first, Joined([], [])))
    list(one_try(plan, directory, 1, second, Joined([], [])))
