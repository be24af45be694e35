"""What every cost model is: a function from a workload and a split of memory to a prediction.

A model is a module with two functions, `memory_bytes` and `predict`; `CostModel` is their shape, so that planning can
ask any of them the same way. Models of one family share the helpers below; what a paper says differently stands in
the paper's own file.

Two rules hold for all models:

- **Counts are what is done, not what is printed.** The papers charge the look-up in H_R only to the w_N rows that are
  found there; the others are looked up as well before they go to H_S, so `Counts.probes` has w_N + w_S of them. Each
  module keeps the printed equation beside it, as `c_loop_s`.
- **Every key of the stream is in R**, with `rows_per_key` rows on average.

| symbol | name here          | unit       | meaning                                                                |
|--------|--------------------|------------|------------------------------------------------------------------------|
| R_t    | `r_rows`           | rows       | rows of R                                                              |
| m      | `rows_per_key`     | rows/key   | rows of R that share a join value                                      |
| v_R    | `v_r_bytes`        | bytes/row  | a row of R in memory, with what a hash table adds to it                |
| v_S    | `v_s_bytes`        | bytes/row  | a stream row in memory                                                 |
| h_S    | `h_s_rows`         | rows       | stream rows that H_S holds when full                                   |
| h_R    | `h_r_rows`         | rows       | rows of R held in memory: the cache, or the pinned pages (d_N)         |
| b, d, d_S | `page_rows`     | rows       | rows of the disk buffer: one page                                      |
| l      | `segments`         | -          | logical segments of R-MESHJOIN's disk buffer                           |
| f      | `hash_fudge`       | -          | bytes of H_S per byte of stream row in it                              |
| alpha  | `Sizes.alpha(...)` | -          | share of H_S in the memory of H_S and queue; 1 - alpha is the queue's  |
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Protocol, get_args

from semistream.cost.pages import Layout
from semistream.cost.symbols import Counts, UnitCosts, cpu_seconds, io_seconds
from semistream.cost.zipf import Generator, Popularity
from semistream.errors import InvalidOption, check_choice

MemoryBytes = dict[str, float]
"""Bytes by component: `disk buffer`, `H_S`, `queue` and, where there is one, `H_R`, `frequency recorder` ..."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A relation and the stream that asks for its rows."""

    r_rows: int
    """Rows of R."""
    zipf_exponent: float = 1.0
    """Skew of the stream: 0 is uniform."""
    rows_per_key: float = 1.0
    """Rows of R per key, on average."""
    layout: Layout = "frequency"
    """Whether R stands in order of popularity."""
    v_r_bytes: float = 120.0
    """A row of R; 120 in the papers."""
    v_s_bytes: float = 20.0
    """A stream row; 20 in the papers."""
    zipf_offset: float = 1.0
    """Of Zipf's law; other than 1 for a part of R that holds every n-th key (see `semistream.cost.zipf`)."""
    generator: Generator = "exact"
    """Zipf's law, or the authors' approximation of it."""

    def __post_init__(self) -> None:
        check_choice("layout", self.layout, get_args(Layout))
        _check_positive(self, ("r_rows", "v_r_bytes", "v_s_bytes"))
        if not 1 <= self.rows_per_key <= self.r_rows:
            raise InvalidOption(
                "`rows_per_key` does not fit the relation",
                given=f"{self.rows_per_key} of {self.r_rows} rows",
                allowed="from 1 to all rows",
            )

    @property
    def keys(self) -> int:
        """Distinct keys of R."""
        return max(1, round(self.r_rows / self.rows_per_key))

    @property
    def popularity(self) -> Popularity:
        """Which share of the stream asks for which key."""
        return Popularity(self.keys, self.zipf_exponent, self.zipf_offset, self.generator)

    def keys_per_page(self, page_rows: float) -> float:
        """Keys on a page of so many rows; a page never splits a key."""
        return min(float(self.keys), max(1.0, page_rows / self.rows_per_key))


@dataclass(frozen=True, slots=True)
class Sizes:
    """How memory is split, and the few settings that are not sizes. A model reads what it knows of."""

    h_s_rows: float = 1.0
    """Stream rows that may wait. For MOIJ and SSBJ: if nothing were cached."""
    page_rows: int = 1
    """Rows of R read at a time."""
    h_r_rows: float = 0.0
    """Rows of R held in memory. MOIJ and SSBJ find their own."""
    segments: int = 1
    """l of R-MESHJOIN."""
    partitions: int = 2
    """Nodes of PCSRJ; the other sizes are then of one node."""
    rows_per_step: int = 1
    """Stream rows that share a read: INLJ and adaptive, which let no row wait longer."""
    page_fits: bool = True
    """Whether adaptive has memory for a whole page at a time, without which it reads keys only."""
    sweep_splits: tuple[tuple[float, float], ...] = ()
    """Pairs (h_S, h_R) between which adaptive chooses when it sweeps; none where it cannot."""
    queue_node_bytes: float = 12.0
    """What the queue adds to a waiting row; 12 in most of the papers, 4 in MOIJ and SSBJ."""
    hash_fudge: float = 1.0
    """f: bytes of H_S per byte of stream row in it. 4.8 was quoted for MESHJOIN."""

    def __post_init__(self) -> None:
        _check_positive(self, ("h_s_rows", "page_rows", "segments", "partitions", "rows_per_step", "hash_fudge"))
        if min(self.h_r_rows, self.queue_node_bytes) < 0:
            raise InvalidOption(
                "a size must not be negative",
                given=f"h_r_rows={self.h_r_rows}, queue_node_bytes={self.queue_node_bytes}",
                allowed="0 or more",
            )

    def waiting_row_bytes(self, workload: Workload) -> float:
        """Bytes of one waiting row in H_S and the queue."""
        return self.hash_fudge * workload.v_s_bytes + self.queue_node_bytes

    def alpha(self, workload: Workload) -> float:
        """The papers' memory weight of H_S; that of the queue is 1 - alpha."""
        return self.hash_fudge * workload.v_s_bytes / self.waiting_row_bytes(workload)


def _check_positive(holder: Workload | Sizes, names: tuple[str, ...]) -> None:
    for field in fields(holder):
        value = getattr(holder, field.name)
        if field.name in names and not value > 0:
            raise InvalidOption(f"`{field.name}` must be positive", given=str(value), allowed="more than 0")


@dataclass(frozen=True)
class Prediction:
    """What a model says of one iteration in the steady state."""

    w_n: float
    """Stream rows answered from memory, per iteration."""
    w_s: float
    """Stream rows answered from the page that is read, per iteration."""
    counts: Counts
    """Operations of one iteration."""
    memory_bytes: MemoryBytes
    """Bytes by component."""
    cpu_s: float
    """c_loop without its I/O term."""
    io_s: float
    """The I/O term of c_loop."""
    waiting_rows: float
    """Stream rows in H_S when it is full."""
    remembered_rows: float
    """Rows of R held in memory, apart from the disk buffer."""

    @property
    def hit_share(self) -> float:
        """Share of the stream that is answered from memory."""
        return self.w_n / (self.w_n + self.w_s)

    @property
    def seconds_per_iteration(self) -> float:
        """c_loop."""
        return self.cpu_s + self.io_s

    @property
    def mu_rows_per_s(self) -> float:
        """mu, the service rate; infinite when nothing costs anything."""
        seconds = self.seconds_per_iteration
        return (self.w_n + self.w_s) / seconds if seconds > 0 else float("inf")

    @property
    def memory_total_bytes(self) -> float:
        """M."""
        return sum(self.memory_bytes.values())

    def keeps_up(self, arrival_rows_per_s: float) -> bool:
        """Whether lambda <= mu, without which no join is exact for ever."""
        return arrival_rows_per_s <= self.mu_rows_per_s


class CostModel(Protocol):
    """What planning asks of a model. Every model of this package is a module of this shape."""

    def memory_bytes(self, workload: Workload, sizes: Sizes) -> MemoryBytes:
        """Bytes by component for this split."""
        ...

    def predict(self, workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
        """What one iteration does and costs."""
        ...


def waiting_memory(workload: Workload, sizes: Sizes, waiting_rows: float) -> MemoryBytes:
    """The disk buffer, and H_S and the queue with so many rows: what all of the family have."""
    return {
        "disk buffer": sizes.page_rows * workload.v_r_bytes,
        "H_S": waiting_rows * sizes.hash_fudge * workload.v_s_bytes,
        "queue": waiting_rows * sizes.queue_node_bytes,
    }


def h_s_rows_within(model: CostModel, workload: Workload, sizes: Sizes, limit_bytes: float) -> float:
    """Solve the memory equation for h_S: the waiting rows for which `model` needs just `limit_bytes`.

    `sizes` gives everything else. The result may be negative: then the rest alone is too large.
    """
    # Memory is a straight line in h_S; two points far from its beginning, where a cache could take more than there is.
    few, many = 1e5, 2e5
    at_few, at_many = (
        sum(model.memory_bytes(workload, replace(sizes, h_s_rows=rows)).values()) for rows in (few, many)
    )
    return few + (limit_bytes - at_few) * (many - few) / (at_many - at_few)


def predicted(
    w_n: float,
    w_s: float,
    counts: Counts,
    memory: MemoryBytes,
    unit_costs: UnitCosts,
    *,
    waiting_rows: float,
    remembered_rows: float,
) -> Prediction:
    """Put seconds to the counts."""
    return Prediction(
        w_n,
        w_s,
        counts,
        memory,
        cpu_seconds(counts, unit_costs),
        io_seconds(counts, unit_costs.io),
        waiting_rows,
        remembered_rows,
    )
