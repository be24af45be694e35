"""`semistream bench window`: window joins beside Spark's own, and band joins beside DuckDB, over the same rows.

Each contender is a process (`window_contend`, `window_band`), one after the other; this one writes the streams, watches
the memory of the whole tree of processes, keeps the time limit, and compares what came out. Inner joins put a pair
out in the batch that brings its later row, so the sums over all batches must agree.

The first batches are left out: Java compiles, workers start, and windows are not full yet. The median of the others
counts. Rows a second are those that go in, of both streams.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from semistream.bench.child_process import running, scratch_in
from semistream.bench.page_cache import warm
from semistream.bench.race import HEAP_BYTES, WARM_UP_BATCHES, usable_cores
from semistream.bench.results import CHECKSUM_BITS, Batch, Status
from semistream.bench.watch import Watch
from semistream.bench.window_streams import BAND_WINDOW_ROWS, BATCH_S, SIDES, write_band, write_events
from semistream.clock import Clock
from semistream.demo.display import Display, thousands
from semistream.errors import BalanceBroken, EnvironmentUnfit, InvalidOption, did_you_mean

Kind = Literal["equality", "band"]

CONTENDERS: dict[Kind, tuple[str, ...]] = {"equality": ("semistream", "spark"), "band": ("semistream", "duckdb")}
MODULES: dict[Kind, str] = {"equality": "semistream.bench.window_contend", "band": "semistream.bench.window_band"}

STATE_FORMAT = 4
"""The version of the state of Spark's join that ours is compared with."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """What to measure, and how."""

    kind: Kind
    contenders: Sequence[str]
    batch_rows: int
    """Of each stream."""
    batches: int
    """Measured ones; the warm-up comes on top."""
    window_s: float
    """Of the equality join; the band join has windows of `BAND_WINDOW_ROWS`."""
    memory_bytes: int
    seed: int
    seconds_max: float
    """For one contender, its start included."""
    out: Path

    @property
    def warm_up_batches(self) -> int:
        """The first batches, and those that fill the windows."""
        fill_batches = self.window_s / BATCH_S if self.kind == "equality" else BAND_WINDOW_ROWS / self.batch_rows
        return WARM_UP_BATCHES + math.ceil(fill_batches)

    @property
    def batches_total(self) -> int:
        """With the warm-up."""
        return self.warm_up_batches + self.batches


@dataclass(frozen=True, slots=True)
class WindowResult:
    """One contender."""

    plan: WindowPlan
    contender: str
    status: Status
    note: str
    """What there is to say about the status; empty where all went well."""
    batches: tuple[Batch, ...]
    peak_bytes: int | None
    """The most that all its processes held together; None where the system does not show it."""

    @property
    def seconds_per_batch(self) -> float | None:
        """The median of the measured batches; None if there is none."""
        measured = self.batches[self.plan.warm_up_batches :]
        return statistics.median(batch.seconds for batch in measured) if measured else None

    @property
    def rows_per_second(self) -> float | None:
        """Rows of both streams that go into a batch, in the median time; None if no batch was measured."""
        seconds = self.seconds_per_batch
        return None if seconds is None else len(SIDES) * self.plan.batch_rows / seconds

    @property
    def pairs(self) -> int:
        """All that was put out."""
        return sum(batch.rows for batch in self.batches)

    @property
    def checksum(self) -> str | None:
        """Of all output; None for a contender that did not come to the end."""
        if self.status != "ok":
            return None
        return f"{sum(batch.checksum for batch in self.batches) % 2**CHECKSUM_BITS:016x}"

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        plan, rate, seconds = self.plan, self.rows_per_second, self.seconds_per_batch
        is_band = plan.kind == "band"
        return {
            "contender": self.contender,
            "join": plan.kind,
            "batch_rows": plan.batch_rows,
            "window_s": None if is_band else plan.window_s,
            "window_rows": BAND_WINDOW_ROWS if is_band else None,
            "rows_per_second": None if rate is None else round(rate, 1),
            "seconds_per_batch": None if seconds is None else round(seconds, 4),
            "pairs": self.pairs,
            "checksum": self.checksum,
            "peak_bytes": self.peak_bytes,
            "status": self.status,
            "note": self.note,
            "batch_seconds": [round(batch.seconds, 4) for batch in self.batches],
            "warm_up_batches": plan.warm_up_batches,
        }


def check_contenders(kind: Kind, names: Sequence[str]) -> None:
    """Refuse a name that takes no part in this join."""
    for name in names:
        if name not in CONTENDERS[kind]:
            raise InvalidOption(
                f"there is no such contender for the {kind} join",
                given=repr(name),
                allowed=", ".join(CONTENDERS[kind]),
                hint=did_you_mean(name, CONTENDERS[kind]),
            )


def window_race(plan: WindowPlan, display: Display, clock: Clock) -> Iterator[WindowResult]:
    """Yield the result of each contender, as they come."""
    with scratch_in(plan.out) as folder:
        events = folder / "events"
        display.begin("Data")
        if plan.kind == "band":
            write_band(events, plan.batch_rows, plan.batches_total, plan.seed, display.advance)
        else:
            files = usable_cores()
            write_events(events, plan.batch_rows, plan.batches_total, files, plan.window_s, plan.seed, display.advance)
        display.end(f"{plan.batches_total} batches of {thousands(plan.batch_rows)} rows a side")
        for contender in plan.contenders:
            warm(events)
            yield _Run(plan, contender, events, display, clock).result()


class _Run:
    """One contender."""

    def __init__(self, plan: WindowPlan, contender: str, events: Path, display: Display, clock: Clock) -> None:
        self._plan = plan
        self._contender = contender
        self._events = events
        self._display = display
        self._watch = Watch(plan.batches_total, plan.seconds_max, clock)

    def result(self) -> WindowResult:
        """Run the contender, and say what came of it."""
        plan = self._plan
        self._display.begin(f"{self._contender} ({plan.kind} join)")
        log = (plan.out / "logs" / f"window-{plan.kind}-{self._contender}.log").resolve()
        spark_log = log.with_suffix(".spark.log")
        spark_log.unlink(missing_ok=True)
        with scratch_in(plan.out) as scratch:
            order = {
                "contender": self._contender,
                "events": str(self._events),
                "batch_rows": plan.batch_rows,
                "batches": plan.batches_total,
                "window_s": plan.window_s,
                "memory_bytes": plan.memory_bytes,
                "cores": usable_cores(),
                "heap_bytes": HEAP_BYTES,
                "scratch": str(scratch),
                "spark_log": str(spark_log),
            }
            with running(MODULES[plan.kind], order, log, temporary=scratch) as child:
                status, note = self._watch.follow(child, self._take)
        result = WindowResult(plan, self._contender, status, note, tuple(self._watch.batches), self._watch.peak_bytes)
        self._display.end(_in_words(result))
        return result

    def _take(self, told: dict[str, Any]) -> None:
        if "state" in told:
            check_state(told["state"], told["partitions"])
            return
        rows = len(SIDES) * self._plan.batch_rows
        self._display.advance("events", len(self._watch.batches) * rows, self._plan.batches_total * rows)


def check_state(state: dict[str, Any], partitions: int) -> None:
    """Raise unless Spark's join keeps its state as it was told to."""
    if state != {"format": STATE_FORMAT, "is_rocksdb": True, "stores": partitions}:
        store = "RocksDB" if state["is_rocksdb"] else "another store"
        raise EnvironmentUnfit(
            "Spark's own join does not run with the state it was set to, so there is nothing to compare with",
            given=f"format {state['format']} in {store}, {state['stores']} stores for {partitions} partitions",
            allowed=f"format {STATE_FORMAT} in RocksDB, one store a partition",
            hint="use the Spark that this version of semistream is made for",
        )


def _in_words(result: WindowResult) -> str:
    seconds, rate = result.seconds_per_batch, result.rows_per_second
    speed = "" if seconds is None else f"{seconds:.2f} s a batch, {thousands(rate or 0)} rows/s"
    failed = "" if result.status == "ok" else f"{result.status}: {result.note}"
    return "; ".join(part for part in (speed, failed) if part)


def check_same_pairs(results: Sequence[WindowResult]) -> None:
    """Raise unless all contenders that came to the end have put out the same pairs."""
    ended = [result for result in results if result.status == "ok"]
    if len({(result.pairs, result.checksum) for result in ended}) > 1:
        raise BalanceBroken(
            "contenders have joined the same streams and put out different pairs",
            given=", ".join(f"{result.contender}: {result.pairs} pairs, {result.checksum}" for result in ended),
            allowed="one checksum",
        )
