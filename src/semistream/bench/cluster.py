"""`semistream bench cluster`: what a second executor brings, and what the loss of one costs.

The same stream is enriched on a real cluster (`standalone`) with one worker, with two, and with two of which one is
killed halfway. Each has one core. All three must put out the same rows.

Processor time a row is what can be compared on any machine: that of the workers with their executors and Python
workers, over the measured batches. The rate can only double where there are cores for it: an executor with one task
slot keeps its JVM and its Python worker busy at the same time, so two executors want four.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semistream.bench.child_process import running, scratch_in
from semistream.bench.page_cache import warm
from semistream.bench.race import MODULE
from semistream.bench.results import Result, Setting, Status
from semistream.bench.standalone import Standalone, standalone
from semistream.bench.watch import Watch
from semistream.bench.workload import Workload
from semistream.clock import Clock
from semistream.demo.display import Display, thousands

WARM_UP_BATCHES = 12
"""More than elsewhere: each executor's Java compiles for itself, and of two each sees half of the rows. With 4 of them
two executors took 1.34 times the processor time of one, for compiling."""

TASKS_PER_BATCH = 4
"""The same for one executor and for two."""

HEAP_BYTES = 1 << 30
CONTENDER = "semistream"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """What to measure, and how."""

    setting: Setting
    memory_bytes: int
    batches: int
    """Measured ones; the warm-up comes on top."""
    seed: int
    seconds_max: float
    out: Path


@dataclass(frozen=True, slots=True)
class ClusterResult:
    """One run on one cluster."""

    workers: int
    loses_a_worker: bool
    result: Result
    cpu_us_per_row: float | None
    """Of the measured batches; None where a worker was lost, and its time with it."""

    @property
    def name(self) -> str:
        """In words."""
        if self.loses_a_worker:
            return f"{self.workers} workers, one of them killed"
        return f"{self.workers} worker{'s' if self.workers > 1 else ''}"

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        cpu = None if self.cpu_us_per_row is None else round(self.cpu_us_per_row, 3)
        own = {"workers": self.workers, "loses_a_worker": self.loses_a_worker, "cpu_us_per_row": cpu}
        return {**own, **self.result.as_json()}


def compare(plan: ClusterPlan, display: Display, clock: Clock) -> Iterator[ClusterResult]:
    """Yield the result of each cluster, as they come."""
    order = _order(plan, display)
    for workers, loses_a_worker in ((1, False), (2, False), (2, True)):
        yield _Run(plan, workers, loses_a_worker, display, clock).result(order)


def _order(plan: ClusterPlan, display: Display) -> dict[str, Any]:
    """Make the data, and return what each run is told."""
    setting, batches = plan.setting, WARM_UP_BATCHES + plan.batches
    workload = Workload(plan.out / "data", plan.seed)
    display.begin("Data")
    table = workload.products(setting.relation_rows).make("relation", display.advance)
    stream = workload.sales(setting.relation_rows, setting.batch_rows, setting.skew, batches, TASKS_PER_BATCH)
    stream.make(display.advance)
    warm(table)
    warm(stream.folder)
    display.end("warm")
    return {
        "contender": CONTENDER,
        "products": str(table.resolve()),
        "sales": str(stream.folder.resolve()),
        "files_per_batch": TASKS_PER_BATCH,
        "batches": batches,
        "warm_up_batches": WARM_UP_BATCHES,
        "warm_up_s": 0.0,
        "measured_batches": plan.batches,
        "memory_bytes": plan.memory_bytes,
        "cores": 1,
        "heap_bytes": HEAP_BYTES,
        "container": None,
    }


class _Run:
    """The stream through one cluster."""

    def __init__(self, plan: ClusterPlan, workers: int, loses_a_worker: bool, display: Display, clock: Clock) -> None:
        self._plan = plan
        self._workers = workers
        self._loses_a_worker = loses_a_worker
        self._display = display
        self._watch = Watch(WARM_UP_BATCHES + plan.batches, plan.seconds_max, clock)
        self._cpu_begin_s = self._cpu_end_s = 0.0

    def result(self, order: dict[str, Any]) -> ClusterResult:
        """Start the cluster, run the stream, and say what came of it."""
        name = f"{self._workers}-workers{'-one-lost' if self._loses_a_worker else ''}"
        self._display.begin(f"A cluster of {name.replace('-', ' ')}")
        logs = (self._plan.out / "logs" / f"cluster-{name}").resolve()
        shutil.rmtree(logs, ignore_errors=True)
        with scratch_in(self._plan.out) as scratch, standalone(logs, self._workers) as cluster:
            own = {"scratch": str(scratch), "spark_log": str(logs / "spark.log"), "settings": cluster.settings}
            with running(MODULE, {**order, **own}, logs / "driver.log", temporary=scratch) as child:
                status, note = self._watch.follow(child, lambda _: self._note(cluster))
        found = self._as_result(status, note)
        speed = "" if found.result.rows_per_second is None else f"{thousands(found.result.rows_per_second)} rows/s"
        self._display.end("; ".join(part for part in (speed, note) if part))
        return found

    def _note(self, cluster: Standalone) -> None:
        """A batch is done."""
        done = len(self._watch.batches)
        self._display.advance("stream", done, WARM_UP_BATCHES + self._plan.batches, unit="batches")
        if done == WARM_UP_BATCHES:
            self._cpu_begin_s = cluster.cpu_seconds()
        self._cpu_end_s = cluster.cpu_seconds()
        if self._loses_a_worker and done == WARM_UP_BATCHES + self._plan.batches // 2:
            cluster.lose_a_worker()

    def _as_result(self, status: Status, note: str) -> ClusterResult:
        result = Result(
            contender=CONTENDER,
            setting=self._plan.setting,
            status=status,
            note=note,
            is_compared=True,
            batches=tuple(self._watch.batches),
            warm_up_batches=WARM_UP_BATCHES,
            checked_batches=WARM_UP_BATCHES + self._plan.batches,
            peak_bytes=None,
        )
        rows = sum(batch.rows for batch in result.measured)
        cpu_us = 1e6 * (self._cpu_end_s - self._cpu_begin_s) / rows if rows and not self._loses_a_worker else None
        return ClusterResult(self._workers, self._loses_a_worker, result, cpu_us)
