"""One algorithm at one point of a figure: build it, let the stream run, and look at the steady state.

Time is a virtual clock's: a metered relation charges the reads of a stated device, and what the operators count is
charged at the unit costs of a usual machine (`semistream.planning.charging.typical`). So a figure is the same on every
machine. `io="real"` writes R into a directory and uses the machine's clock; R then lies in the system's page cache
unless it is larger than memory.

*Warm-up*: until half of the rows are admitted; caches fill and queues turn over several times. *Window*: from there
until `WINDOW_END_SHARE` of the rows are admitted; what drains afterwards is not a steady state. A read of a hot page
finishes thousands of rows at once, and rows are admitted behind such a burst: it counts where the window ends and not
where it begins, or there would be one too many. *Interval*: 95 % by batch means: the window is cut into `BATCHES` equal
times, whose rates are nearly independent, because a batch is long against the time that a row waits.

A series on several nodes has a part of R on each. Each part runs on a clock of its own, and the stream is as fast as
the part that falls behind first: μ = min over parts of (μ of the part / its share of the stream), which is what PCSRJ's
cost model says. What is said of an iteration is the mean over the iterations of all parts: which of them falls behind
is often chance. The time to route rows to nodes is not charged, for the paper does not say what it was. With
`io="real"` a node is this machine by itself: parts run one after the other, each with the whole processor and disk.

*Arrivals*: where rows come at a rate, a run also says whether the join keeps up (`joins.timed`).
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.budget import MemoryBudget
from semistream.clock import RealClock, VirtualClock
from semistream.joins.base import JoinResources, Numbers, SemiStreamJoin, StepOutput
from semistream.joins.registry import algorithm_named
from semistream.joins.timed import Seconds, TimedRun, run_timed
from semistream.lab.bare_relation import BareRelation
from semistream.lab.conditions import Conditions
from semistream.lab.experiment import JVM_WAITING_ROW_BYTES, Series, Setting
from semistream.lab.options import Place, beginning_threshold, settings_for
from semistream.lab.sources import arrival_times, distinct_keys, relation_of, stream_codes
from semistream.planning.charging import charge_of, typical
from semistream.relations.metered import MeteredRelation
from semistream.relations.partitioned import partition_of

BATCHES = 10
T_95 = 2.262
"""Student's t for 95 % and `BATCHES` - 1 degrees of freedom."""

ROWS_PER_STEP = 10_000
"""Rows that an operator may work on at once."""

SCANNING = ("meshjoin", "r-meshjoin")
SCAN_TURNS_MAX = 3.0
"""A scan that remembers nothing serves the same rows in every round, so a short stream shows its steady state."""

WARM_UP_SHARE, WINDOW_END_SHARE = 0.5, 0.97

STREAM_ROWS_MIN, STREAM_ROWS_MAX = 800, 200_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run has shown in its window."""

    rate: float
    rate_low: float
    rate_high: float
    processing_s: float
    waiting_s: float
    loop_s: float
    """Seconds of one iteration; NaN for an algorithm without iterations."""
    rows_per_loop: float
    """w: rows served in one iteration."""
    hit_share: float
    """Rows answered from memory."""
    arrival_rows_per_s: float
    """λ: infinite where all rows are there at once."""
    keeps_up: bool
    """The verdict: λ ≤ μ."""
    settings: dict[str, Any]
    """What the operator was built with."""


class PassingTime(VirtualClock):
    """The machine's clock where a virtual one is expected: to let time pass is to wait."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = RealClock()
        self._begun_s = self._clock.now_s()

    def now_s(self) -> float:
        """Seconds since it was made."""
        return self._clock.now_s() - self._begun_s

    def advance(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


class MeteredBareRelation(MeteredRelation):
    """A metered relation whose rows all have one length: what was read is told by counting them."""

    def _bytes_of(self, batch: pa.RecordBatch) -> int:
        return len(batch) * self.info.row_bytes_max


class QueriedRelation(MeteredBareRelation):
    """A metered relation whose scan begins anew with every segment: a query, and a seek."""

    def _read_segment(self, number: int) -> pa.RecordBatch:
        self._next_segment = None
        return super()._read_segment(number)


def observe(series: Series, setting: Setting, conditions: Conditions) -> Seen:
    """Run a series at a setting."""
    if series.algorithm in SCANNING:
        setting = replace(setting, turns=min(setting.turns, SCAN_TURNS_MAX))
    rows = stream_rows(setting, conditions)
    codes = stream_codes(setting, rows, conditions.seed, conditions.stream)
    arrived_s = arrival_times(setting, rows, conditions.seed, conditions.stream.arrivals)
    keys = distinct_keys(setting)
    setting = replace(setting, memory_bytes=setting.memory_bytes * series.memory_times)
    if series.nodes == 1:
        return _observed(series, setting, conditions, keys, codes, arrived_s)
    return _side_by_side(series, setting, conditions, keys, codes, arrived_s)


def _side_by_side(
    series: Series, setting: Setting, conditions: Conditions, keys: Numbers, codes: Numbers, arrived_s: Seconds
) -> Seen:
    """Every part by itself; the stream is as fast as the part that falls behind first."""
    # A CACHEJOIN is what PCSRJ runs in each part.
    node = replace(series, algorithm="cachejoin" if series.algorithm == "pcsrj" else series.algorithm)
    part_of_key, part_of_row = partition_of(keys, series.nodes), partition_of(codes, series.nodes)
    part_setting = replace(
        setting, r_rows=setting.r_rows // series.nodes, memory_bytes=setting.memory_bytes // series.nodes
    )
    nodes = []
    for part in range(series.nodes):
        is_own = part_of_row == part
        seen = _observed(node, part_setting, conditions, keys[part_of_key == part], codes[is_own], arrived_s[is_own])
        nodes.append((seen, float(is_own.mean())))
    return _of_all_nodes(nodes)


def _of_all_nodes(nodes: list[tuple[Seen, float]]) -> Seen:
    """The rate of the slowest of several nodes, each with its share of the stream, and the means of their loops."""
    slowest, share = min(nodes, key=lambda node: node[0].rate / node[1])
    loops = [share / seen.rows_per_loop for seen, share in nodes]
    """Iterations of each node for a row of the stream."""
    return replace(
        slowest,
        rate=slowest.rate / share,
        rate_low=slowest.rate_low / share,
        rate_high=slowest.rate_high / share,
        loop_s=sum(seen.loop_s * count for (seen, _), count in zip(nodes, loops, strict=True)) / sum(loops),
        rows_per_loop=1.0 / sum(loops),
        hit_share=sum(seen.hit_share * share for seen, share in nodes),
        arrival_rows_per_s=sum(seen.arrival_rows_per_s for seen, _ in nodes),
        keeps_up=all(seen.keeps_up for seen, _ in nodes),
    )


def _observed(
    series: Series, setting: Setting, conditions: Conditions, keys: Numbers, codes: Numbers, arrived_s: Seconds
) -> Seen:
    clock = PassingTime() if conditions.is_real else VirtualClock()
    resources = JoinResources(
        MemoryBudget(setting.memory_bytes), clock, ROWS_PER_STEP, conditions.stream_row_bytes(setting)
    )
    unit_costs = typical(conditions.profile)
    with _opened(relation_of(setting, keys), series, setting, conditions, clock) as relation:
        place = Place(setting, relation, resources, unit_costs)
        options = settings_for(series.options, place)
        options |= beginning_threshold(series.algorithm, place, options)
        join = algorithm_named(series.algorithm).build(relation, resources, **options)
        log = _Log(join, clock)
        charge = None if conditions.is_real else charge_of(unit_costs)
        run = run_timed(join, codes, arrived_s, clock, charge, log, _window(len(codes)))
    return _seen(run, log, options)


@contextmanager
def _opened(
    relation: BareRelation, series: Series, setting: Setting, conditions: Conditions, clock: VirtualClock
) -> Iterator[Any]:
    """R on the device of the conditions."""
    if not conditions.is_real:
        metered = QueriedRelation if series.queries_segments else MeteredBareRelation
        yield metered(relation, conditions.profile, clock)
        return
    from semistream.relations.building.build import build_relation
    from semistream.relations.handle import open_handle

    schema = relation.info.schema
    batches = (
        pa.RecordBatch.from_arrays(relation.segment(number).columns, schema=schema)
        for number in range(relation.segment_count)
    )
    with tempfile.TemporaryDirectory(prefix="semistream-lab-") as directory:
        path = Path(directory) / "r"
        build_relation(batches, key="key", out=path, page_bytes=setting.page_rows * setting.row_bytes)
        handle = open_handle(path, None, None, verify=False)
        yield handle.open(handle.info.version, with_key=False)


def stream_rows(setting: Setting, conditions: Conditions) -> int:
    """How long the stream is."""
    row_bytes = JVM_WAITING_ROW_BYTES if conditions.memory_model == "jvm" else 50 + setting.stream_row_bytes
    return int(np.clip(setting.turns * setting.memory_bytes / row_bytes, STREAM_ROWS_MIN, STREAM_ROWS_MAX))


def _window(rows: int) -> tuple[int, int]:
    """The rows with whose admission the window begins and ends."""
    return int((rows - 1) * WARM_UP_SHARE), int((rows - 1) * WINDOW_END_SHARE)


class _Log:
    """Notes the counters after every step."""

    def __init__(self, join: SemiStreamJoin, clock: VirtualClock) -> None:
        self._join = join
        self._clock = clock
        # Four numbers a step, and steps are millions: a list of tuples would take six times the memory.
        self._noted = array("d")

    def __call__(self, step: StepOutput) -> None:
        stats = self._join.stats
        self._noted.extend((self._clock.now_s(), stats.iterations, stats.rows, stats.hits))

    def between(self, begin_s: float, end_s: float) -> tuple[float, int, int, int]:
        """Seconds, iterations, rows and hits between the first notes at or after two moments."""
        noted = np.frombuffer(self._noted).reshape(-1, 4)
        first, last = (min(int(np.searchsorted(noted[:, 0], at)), len(noted) - 1) for at in (begin_s, end_s))
        seconds, iterations, rows, hits = noted[last] - noted[first]
        return float(seconds), int(iterations), int(rows), int(hits)


def _seen(run: TimedRun, log: _Log, options: dict[str, Any]) -> Seen:
    begin_s, end_s = (float(run.admitted_s[row]) for row in _window(len(run.admitted_s)))
    inside = (run.finished_s > begin_s) & (run.finished_s <= end_s)
    if not inside.any():
        # The stream was over before it had begun: memory holds all of it.
        begin_s, end_s = 0.0, float(run.finished_s.max())
        inside = run.finished_s <= end_s
    rate, low, high = batch_means(run.finished_s[inside], begin_s, end_s)
    seconds, iterations, rows, hits = log.between(begin_s, end_s)
    return Seen(
        rate=rate,
        rate_low=low,
        rate_high=high,
        processing_s=float(run.processing_s[inside].mean()),
        waiting_s=float(run.waiting_s[inside].mean()),
        loop_s=seconds / iterations if iterations else float("nan"),
        rows_per_loop=rows / iterations if iterations else float("nan"),
        hit_share=hits / rows if rows else float("nan"),
        arrival_rows_per_s=run.arrival_rows_per_s,
        keeps_up=run.keeps_up,
        settings=options,
    )


def batch_means(finished_s: Seconds, begin_s: float, end_s: float) -> tuple[float, float, float]:
    """Rows a second that were finished between two moments, with the 95 % interval.

    Example:
        >>> [round(rate, 6) for rate in batch_means(np.arange(0.25, 50, 0.5), 0.0, 50.0)]
        [2.0, 2.0, 2.0]
    """
    if end_s <= begin_s:
        return float("inf"), float("inf"), float("inf")
    counts, _ = np.histogram(finished_s, bins=BATCHES, range=(begin_s, end_s))
    rates = counts * BATCHES / (end_s - begin_s)
    rate = float(rates.mean())
    half = T_95 * float(rates.std(ddof=1)) / BATCHES**0.5
    return rate, max(0.0, rate - half), rate + half
