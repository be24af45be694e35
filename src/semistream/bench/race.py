"""`semistream bench enrich`: contenders, one after the other, over the same stream.

Each contender is a process (`contend`) that starts a Spark of its own; this one makes the data, watches the memory of
the whole tree of processes, keeps the time limit, and compares what came out. A contender that dies or takes too long
is a result as well, and the others go on.

Java compiles, workers start, caches fill: each contender has the same *time* to warm up, and the batches behind it are
measured, of which the median counts. By a number of batches it would be unfair: a contender that reads all of R in
each of them has Java compiled everything after two, and one that touches a thousandth of it needs dozens.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from semistream.bench.child_process import running, scratch_in
from semistream.bench.container import Container, container
from semistream.bench.contenders.base import Contender
from semistream.bench.page_cache import chill, warm
from semistream.bench.results import Result, Setting, Status
from semistream.bench.watch import Watch
from semistream.bench.workload import Products, Workload
from semistream.clock import Clock
from semistream.demo.display import Display, thousands

WARM_UP_BATCHES = 2
"""At least."""

STREAM_BATCHES_PER_S, STREAM_ROWS_PER_S = 8, 800_000
"""How long the stream is for those who are fast, for each second of the warm-up, whichever is less: what they have not
measured when it ends, they measure at its end."""

HEAP_BYTES = 4 << 30
"""Of the JVM; in a container it is half of what there is, if that is less."""

MODULE = "semistream.bench.contend"


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure, and how."""

    contenders: Sequence[Contender]
    relation_rows: Sequence[int]
    batch_rows: Sequence[int]
    skews: Sequence[float]
    memory_bytes: int
    batches: int
    """Measured ones; the warm-up comes on top."""
    warm_up_s: float
    seed: int
    seconds_max: float
    """For one contender at one setting, its start included."""
    container_bytes: int | None
    out: Path

    def settings(self) -> list[Setting]:
        """All combinations, the size of R outermost."""
        return [Setting(*values) for values in product(self.relation_rows, self.batch_rows, self.skews)]


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def race(plan: Plan, display: Display, clock: Clock) -> Iterator[Result]:
    """Yield the result of each contender at each setting, as they come."""
    workload = Workload(plan.out / "data", plan.seed)
    for setting in plan.settings():
        for contender in plan.contenders:
            yield _Run(plan, setting, contender, workload, display, clock).result()


class _Run:
    """One contender at one setting."""

    def __init__(
        self, plan: Plan, setting: Setting, contender: Contender, workload: Workload, display: Display, clock: Clock
    ) -> None:
        self._plan = plan
        self._setting = setting
        self._contender = contender
        self._workload = workload
        self._display = display
        self._watch = Watch(self._batches_min, plan.seconds_max, clock)

    @property
    def _batches_min(self) -> int:
        return WARM_UP_BATCHES + self._plan.batches

    @property
    def _batches_in_stream(self) -> int:
        per_s = min(STREAM_BATCHES_PER_S, STREAM_ROWS_PER_S / self._setting.batch_rows)
        return self._batches_min + int(self._plan.warm_up_s * per_s)

    @property
    def _title(self) -> str:
        setting = self._setting
        rows = f"R {thousands(setting.relation_rows)}, {thousands(setting.batch_rows)} a batch"
        return f"{self._contender.name} ({rows}, Zipf {setting.skew:g})"

    def result(self) -> Result:
        """Make what is missing of the data, run the contender, and say what came of it."""
        products = self._workload.products(self._setting.relation_rows)
        order = self._order(products)
        self._display.begin(self._title)
        log = self._log()
        with scratch_in(self._plan.out) as scratch, self._contained() as group:
            order |= {
                "scratch": str(scratch),
                "spark_log": str(log.with_suffix(".spark.log")),
                "container": str(group.path) if group else None,
            }
            log.with_suffix(".spark.log").unlink(missing_ok=True)
            with running(MODULE, order, log, temporary=scratch) as child:
                status, note = self._watch.follow(child, self._show)
            if status != "ok" and group is not None and group.kills():
                note = f"killed by the system: no memory left in the container; {note}"
        result = self._as_result(status, note)
        self._display.end(_in_words(result))
        return result

    def _order(self, products: Products) -> dict[str, Any]:
        """Make the data, warm or cold, and return what the contender is told."""
        plan, setting, cores = self._plan, self._setting, usable_cores()
        batch_rows = 0 if self._contender.puts_out == "nothing" else setting.batch_rows
        self._display.begin(f"Data for {self._contender.name}")
        table = products.make(self._contender.reads, self._display.advance)
        stream = self._workload.sales(setting.relation_rows, batch_rows, setting.skew, self._batches_in_stream, cores)
        stream.make(self._display.advance)
        for path in (table, stream.folder):
            if plan.container_bytes is None:
                warm(path)
            else:
                chill(path)
        self._display.end("cold" if plan.container_bytes else "warm")
        return {
            "contender": self._contender.name,
            "products": str(table.resolve()),
            "sales": str(stream.folder.resolve()),
            "files_per_batch": cores,
            "batches": self._batches_in_stream,
            "warm_up_batches": WARM_UP_BATCHES,
            "warm_up_s": plan.warm_up_s,
            "measured_batches": plan.batches,
            "memory_bytes": plan.memory_bytes,
            "cores": cores,
            "settings": {},
            "heap_bytes": min(HEAP_BYTES, (plan.container_bytes or 2 * HEAP_BYTES) // 2),
        }

    def _log(self) -> Path:
        setting = self._setting
        name = f"{self._contender.name}-{setting.relation_rows}-{setting.batch_rows}-{setting.skew:g}.log"
        return (self._plan.out / "logs" / name).resolve()

    def _contained(self) -> AbstractContextManager[Container | None]:
        if self._plan.container_bytes is None:
            return nullcontext(None)
        return container(f"semistream-bench-{os.getpid()}", self._plan.container_bytes)

    def _show(self, _told: dict[str, Any]) -> None:
        rows = self._setting.batch_rows
        self._display.advance("sales", len(self._watch.batches) * rows, self._batches_in_stream * rows)

    def _as_result(self, status: Status, note: str) -> Result:
        done = len(self._watch.batches)
        return Result(
            contender=self._contender.name,
            setting=self._setting,
            status=status,
            note=note,
            is_compared=self._contender.puts_out == "joined",
            batches=tuple(self._watch.batches),
            # Whoever was stopped shows what it has done, be it a single batch.
            warm_up_batches=done - self._plan.batches if status == "ok" else min(WARM_UP_BATCHES, max(0, done - 1)),
            checked_batches=self._batches_min,
            peak_bytes=self._watch.peak_bytes,
        )


def _in_words(result: Result) -> str:
    seconds, rate = result.seconds_per_batch, result.rows_per_second
    speed = "" if seconds is None else f"{seconds:.2f} s a batch, {thousands(rate or 0)} rows/s"
    failed = "" if result.status == "ok" else f"{result.status}: {result.note}"
    return "; ".join(part for part in (speed, failed) if part)
