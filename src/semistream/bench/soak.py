"""`semistream bench soak`: does a query that runs for long stay as it is?

Every few seconds the processes of one streaming query are looked at from outside: memory of the Python workers, of the
JVM and of the script, open files, and the disk under the query's folder, where everything temporary is sent as well.

The verdict is a slope: the median of the slopes between all pairs of samples (Theil and Sen), which a few outliers do
not move, over the last two thirds of the time, because caches fill and Spark keeps a hundred batches of metadata before
it begins to delete. A measure is *flat* when by that slope it grew by less than a twentieth of its level in the time
that was watched, or by so little in all that it could not be told from noise.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from semistream.bench.child_process import ChildProcess, running
from semistream.bench.processes import can_be_seen, held_bytes, kind_of, open_files, tree_of
from semistream.bench.race import usable_cores
from semistream.bench.workload import Workload
from semistream.clock import Clock
from semistream.demo.display import Display
from semistream.errors import EnvironmentUnfit, SemistreamError

RELATION_ROWS = 1_000_000
BATCH_ROWS = 20_000
MODULE = "semistream.bench.soak_query"

SAMPLE_EVERY_S = 5.0
SAMPLES_MIN = 20
"""A short run is sampled more often."""

WATCHED_SHARE = 2 / 3
GROWTH_MAX = 0.05
MINUTES_TO_JUDGE = 5.0
"""In a shorter run the slope is mostly that of the start."""

NOISE = {"files": 16.0}
NOISE_BYTES = 16e6
"""Growth that is not told from noise: open files, bytes."""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """What to run."""

    minutes: float
    memory_bytes: int
    seed: int
    out: Path


@dataclass(frozen=True, slots=True)
class Trend:
    """How one measure went."""

    at_start: float
    """Where the watched part begins."""
    at_end: float
    per_hour: float
    is_flat: bool


@dataclass(slots=True)
class Samples:
    """What was seen, sample by sample."""

    seconds: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)

    def add(self, second: float, values: dict[str, float]) -> None:
        """Add one look at everything."""
        self.seconds.append(second)
        for name, value in values.items():
            self.series.setdefault(name, []).append(value)

    def trends(self) -> dict[str, Trend]:
        """How each measure went over the watched part."""
        first = int(len(self.seconds) * (1 - WATCHED_SHARE))
        return {name: trend(name, self.seconds[first:], values[first:]) for name, values in self.series.items()}


@dataclass(frozen=True, slots=True)
class SoakResult:
    """What came of it."""

    minutes: float
    batches: int
    samples: Samples
    trends: dict[str, Trend]

    @property
    def is_flat(self) -> bool:
        """Whether nothing grew."""
        return all(one.is_flat for one in self.trends.values())

    @property
    def verdict(self) -> str:
        """In a few words."""
        if self.minutes < MINUTES_TO_JUDGE:
            return f"too short to judge; {MINUTES_TO_JUDGE:g} minutes are the least"
        growing = [name for name, one in self.trends.items() if not one.is_flat]
        return "flat" if not growing else f"grows: {', '.join(growing)}"

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {
            "minutes": self.minutes,
            "batches": self.batches,
            "rows": self.batches * BATCH_ROWS,
            "samples": len(self.samples.seconds),
            "verdict": self.verdict,
            "is_flat": self.is_flat,
            "trends": {name: asdict(one) for name, one in self.trends.items()},
        }


def trend(name: str, seconds: list[float], values: list[float]) -> Trend:
    """The slope of a measure and what to think of it.

    Example:
        >>> trend("files", [0.0, 60.0, 120.0], [100.0, 130.0, 160.0]).is_flat
        False
        >>> trend("files", [0.0, 60.0, 120.0], [100.0, 103.0, 101.0]).is_flat
        True
    """
    times, levels = np.array(seconds), np.array(values)
    earlier, later = np.triu_indices(len(times), k=1)
    slopes = (levels[later] - levels[earlier]) / np.maximum(times[later] - times[earlier], 1e-9)
    slope = float(np.median(slopes)) if len(slopes) else 0.0
    span_s = float(times[-1] - times[0]) if len(times) else 0.0
    level = float(np.median(levels)) if len(levels) else 0.0
    allowed = max(GROWTH_MAX * level, NOISE.get(name, NOISE_BYTES))
    begin = level - slope * span_s / 2
    return Trend(round(begin, 1), round(begin + slope * span_s, 1), round(slope * 3600, 1), slope * span_s <= allowed)


def soak(plan: SoakPlan, display: Display, clock: Clock) -> SoakResult:
    """Run the query, look at it until its time is over, and judge."""
    if not can_be_seen():
        raise EnvironmentUnfit("this system does not show what its processes hold", allowed="Linux, with /proc")
    display.begin("Data for the soak")
    products = Workload(plan.out / "data", plan.seed).products(RELATION_ROWS)
    relation = products.make("relation", display.advance)
    display.end("ready")
    scratch = Path(tempfile.mkdtemp(prefix="scratch-", dir=plan.out)).resolve()
    log = (plan.out / "logs" / "soak.log").resolve()
    log.with_suffix(".spark.log").unlink(missing_ok=True)
    order = {
        "relation": str(relation.resolve()),
        "relation_rows": RELATION_ROWS,
        "batch_rows": BATCH_ROWS,
        "memory_bytes": plan.memory_bytes,
        "cores": usable_cores(),
        "seconds": plan.minutes * 60,
        "scratch": str(scratch),
        "spark_log": str(log.with_suffix(".spark.log")),
    }
    display.begin(f"Enriching for {plan.minutes:g} minutes")
    try:
        with running(MODULE, order, log, temporary=scratch) as child:
            batches, samples = _watch(child, plan, [scratch, relation], display, clock)
            failure = child.failure()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if failure is not None or not samples.seconds:
        raise SemistreamError("the query of the soak failed", given=failure or "no batch was done", hint=f"read {log}")
    result = SoakResult(plan.minutes, batches, samples, samples.trends())
    display.end(result.verdict)
    return result


def _watch(
    child: ChildProcess, plan: SoakPlan, folders: list[Path], display: Display, clock: Clock
) -> tuple[int, Samples]:
    every_s = min(SAMPLE_EVERY_S, plan.minutes * 60 / SAMPLES_MIN)
    samples, batches, begun_s, due_s = Samples(), 0, 0.0, 0.0
    for told in child.reports(every_s):
        now_s = clock.now_s()
        if told is not None:
            # The time counts from the first batch on.
            begun_s = begun_s or now_s
            batches = told["batches"]
            display.advance("sales", batches * BATCH_ROWS, None)
        if begun_s and now_s >= due_s and now_s - begun_s < plan.minutes * 60:
            samples.add(now_s - begun_s, look(child.pid, folders))
            due_s = now_s + every_s
    return batches, samples


def look(pid: int, folders: list[Path]) -> dict[str, float]:
    """Memory by kind of process, open files and bytes on disk, now."""
    pids = tree_of(pid)
    held: Counter[str] = Counter({"workers": 0, "jvm": 0, "driver": 0})
    for one in pids:
        held[kind_of(one)] += held_bytes(one)
    return {
        **{f"{kind}_bytes": float(count) for kind, count in held.items()},
        "files": float(sum(map(open_files, pids))),
        "disk_bytes": float(sum(map(_folder_bytes, folders))),
    }


def _folder_bytes(folder: Path) -> int:
    """What a folder takes on disk; what vanishes meanwhile takes nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total
