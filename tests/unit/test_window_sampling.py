"""Micro-batches of a window join that sheds: too little memory and too few probes give samples, never errors.

Without Spark; what is written between batches and read again is what it is on Spark.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.spark.window_batch import WindowBatch
from semistream.spark.window_counts import WindowCounts
from semistream.spark.window_plan import WindowPlan
from semistream.spark.window_sequence import BatchRows
from semistream.window.estimate import Estimates, SampledPairs, estimate
from semistream.window.join import INDEX_NAMES
from semistream.window.run_file import Run
from semistream.window.state import StateDirectory
from semistream.window.windows import rows, seconds
from tests.unit.test_window_batch import SCHEMA, plan_of

KEYS = 400


@pytest.fixture(autouse=True)
def no_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@dataclass
class Stream:
    """Two streams of random keys, a batch of them a second, and what a join makes of them."""

    folder: Path
    seed: int
    rows_each: tuple[int, int]
    batch: int = 0
    keys: list[tuple[Any, Any]] = field(default_factory=list)
    pairs: list[pa.RecordBatch] = field(default_factory=list)
    counts: list[WindowCounts] = field(default_factory=list)

    def run(self, plan: WindowPlan, batches: int) -> None:
        for _ in range(batches):
            rng = np.random.default_rng((self.seed, self.batch))
            sides = []
            for count in self.rows_each:
                columns = dict.fromkeys(SCHEMA.names, pa.nulls(count))
                columns["k"] = pa.array(rng.integers(0, KEYS, count))
                columns["x"] = pa.array(rng.random(count))
                columns["n"] = pa.array(self.batch * count + np.arange(count))
                times = self.batch * 1_000_000 + np.arange(count) * (1_000_000 // count)
                columns["ts"] = pa.array(times, pa.timestamp("us"))
                sides.append(pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in SCHEMA], schema=SCHEMA))
            self.keys.append(tuple(side["k"].to_numpy() for side in sides))
            self._join(plan, (sides[0], sides[1]))
            self.batch += 1

    def _join(self, plan: WindowPlan, sides: tuple[pa.RecordBatch, pa.RecordBatch]) -> None:
        directory = StateDirectory(self.folder, plan.reach)
        directory.claim(plan.identity)
        ties = sides[0]["n"].to_numpy(), sides[1]["n"].to_numpy()
        joining = WindowBatch(plan, 0, directory.begin(0, self.batch))
        self.pairs += joining.run(BatchRows(sides, self.batch * 1_000_000, ties))
        self.counts.append(WindowCounts(*joining.take_counts()))

    def newest_run(self, plan: WindowPlan) -> Run:
        return StateDirectory(self.folder, plan.reach).begin(0, self.batch).runs[-1]

    def all_pairs(self) -> int:
        """How many there are if every row meets all rows of the other side with its key."""
        count_a, count_b = (Counter(np.concatenate([both[s] for both in self.keys]).tolist()) for s in (0, 1))
        return sum(count * count_b[key] for key, count in count_a.items())

    def estimates(self) -> Estimates:
        found = pa.Table.from_batches(self.pairs)
        sample = {
            name: column.to_numpy(zero_copy_only=False) for name, column in zip(*_fields(found["sample"]), strict=True)
        }
        return estimate(
            SampledPairs(
                sample["probe_row"],
                sample["held_row"],
                sample["probe_share"],
                sample["held_share"],
                sample["probe_side"] == "a",
                found["x"].to_numpy(),
            )
        )


def _fields(column: pa.ChunkedArray) -> tuple[list[str], list[pa.Array]]:
    whole = column.combine_chunks()
    return [f.name for f in whole.type], whole.flatten()


def sampling_plan(seed: int, memory_bytes: int, **given: Any) -> WindowPlan:
    options: dict[str, Any] = {"on": "k", "within": seconds(10_000), "time": "ts", "shed": "sample", **given}
    return plan_of(seed=seed, memory_bytes=memory_bytes, **options)


@pytest.mark.parametrize("seed", range(2))
def test_windows_fifty_times_the_budget_are_sampled_and_the_estimate_holds(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    stream = Stream(tmp_path, seed, (400, 400))
    plan = sampling_plan(seed, memory_bytes=72_000)
    stream.run(plan, 40)
    held = stream.counts[-1].held_rows
    assert held < 32_000 / 50
    assert sum(c.shed for c in stream.counts) == 32_000 - held
    assert max(c.bytes_held for c in stream.counts) <= plan.memory_bytes
    count = stream.estimates().count
    assert count.low < stream.all_pairs() < count.high
    assert count.half_width < 0.5 * count.value


@pytest.mark.parametrize("seed", range(2))
def test_a_query_that_goes_on_with_less_memory_sheds_what_is_too_much(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    stream = Stream(tmp_path, seed, (1000, 500))
    roomy, tight = sampling_plan(seed, memory_bytes=4_000_000), sampling_plan(seed, memory_bytes=100_000)
    stream.run(roomy, 12)
    assert sum(c.shed for c in stream.counts) == 0
    stream.run(tight, 6)
    assert max(c.bytes_held for c in stream.counts[12:]) <= tight.memory_bytes
    assert sum(c.shed for c in stream.counts) == 1500 * 18 - stream.counts[-1].held_rows
    assert stream.newest_run(tight).held is not None
    count = stream.estimates().count
    assert count.low < stream.all_pairs() < count.high


def test_a_sample_is_whole_again_when_what_was_shed_is_out_of_reach(tmp_path: Path) -> None:
    stream = Stream(tmp_path, 1, (1000, 1000))
    tight, roomy = (sampling_plan(1, memory_bytes=size, within=seconds(2)) for size in (40_000, 4_000_000))
    stream.run(tight, 4)
    assert stream.newest_run(tight).held is not None
    stream.run(roomy, 8)
    assert stream.newest_run(roomy).held is None
    assert stream.counts[-1].held_rows == pytest.approx(4000, abs=4)


@pytest.mark.parametrize("seed", range(2))
def test_a_rate_lets_as_many_probe_and_most_from_the_small_window_into_the_large(seed: int, tmp_path: Path) -> None:
    print(f"seed {seed}")
    stream = Stream(tmp_path, seed, (1000, 1000))
    plan = sampling_plan(
        seed, memory_bytes=8_000_000, within=None, window_a=seconds(2), window_b=seconds(20_000), rate=500
    )
    stream.run(plan, 12)
    probed = [2000 - c.probes_skipped for c in stream.counts]
    # 500 rows a batch of a second, each by its own draw: five standard deviations.
    assert all(abs(count - 500) < 5 * 500**0.5 for count in probed[1:]), probed
    samples = [piece["sample"] for piece in stream.pairs]
    shares = {
        (row["probe_side"], round(row["probe_share"], 3))
        for row in pa.chunked_array(samples[len(samples) // 2 :]).to_pylist()
    }
    # Nine tenths of the probes are of a, whose rows look into the large window; the least share is b's.
    assert shares == {("a", 0.45), ("b", 0.05)}
    assert stream.counts[-1].shed == 0


def test_a_rate_holds_for_windows_that_count_rows_too(tmp_path: Path) -> None:
    stream = Stream(tmp_path, 2, (400, 400))
    counted: dict[str, Any] = {"within": None, "time": None, "window_a": rows(300), "window_b": rows(300)}
    plan = sampling_plan(2, memory_bytes=8_000_000, rate=200, order_by="n", **counted)
    stream.run(plan, 8)
    probed = [800 - c.probes_skipped for c in stream.counts]
    assert all(abs(count - 200) < 5 * 200**0.5 for count in probed), probed


def test_short_memory_goes_to_the_slower_stream(tmp_path: Path) -> None:
    stream = Stream(tmp_path, 3, (100, 1000))
    plan = sampling_plan(3, memory_bytes=150_000)
    stream.run(plan, 25)
    held = stream.newest_run(plan).held
    assert held is not None
    assert len(held[0].row) > 3 * len(held[1].row) > 0
    count = stream.estimates().count
    assert count.low < stream.all_pairs() < count.high


def test_the_metrics_name_the_indexes_that_were_chosen(tmp_path: Path) -> None:
    def used(stream: Stream) -> list[tuple[str, str]]:
        names = {1 << place: name for place, name in enumerate(INDEX_NAMES)}
        return [(names[c.index_a], names[c.index_b]) for c in stream.counts]

    even = Stream(tmp_path / "even", 4, (2000, 2000))
    even.run(plan_of(on="k", within=seconds(5), time="ts"), 3)
    assert used(even)[-1] == ("hash", "hash")
    # Five rows do not pay for an index over thousands.
    uneven = Stream(tmp_path / "uneven", 4, (5, 4000))
    uneven.run(plan_of(on="k", within=seconds(5), time="ts"), 3)
    assert used(uneven)[-1][1] == "scan"
    band = Stream(tmp_path / "band", 4, (1000, 1000))
    band.run(plan_of(condition="abs(a.x - b.x) <= 0.0001", within=seconds(5), time="ts"), 3)
    assert "hash" not in used(band)[-1]
    assert "scan" not in used(band)[-1]
    asked = Stream(tmp_path / "asked", 4, (1000, 1000))
    asked.run(plan_of(on="k", within=seconds(5), time="ts", index=("t-tree", "auto")), 2)
    assert used(asked)[-1] == ("t-tree", "hash")
