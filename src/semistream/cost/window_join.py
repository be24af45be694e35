"""Window joins of two streams: what each pair of indexes costs for each unit of time.

Kang, Naughton and Viglas, "Evaluating Window Joins over Unbounded Streams" (ICDE 2003). A row of A probes the window of
B, is inserted into the window of A, and the oldest row of A leaves. So the work on one window depends on the index of
this window alone, and the join is the sum of two *directions* (its equations 1 and 2):

    C(A join B) = C(A -> B) + C(B -> A)
    C(A -> B)   = lambda_a probe(b) + lambda_b (insert(b) + invalidate(b))
    C(B -> A)   = lambda_b probe(a) + lambda_a (insert(a) + invalidate(a))

`probe` is the tuples touched by a search times a weight P; `insert + invalidate` is the tuples touched by an update
times a weight I (equations 3 to 7; W is the window that is probed and updated):

| index  | letter | touched by a probe                            | touched by an insert and an invalidation |
|--------|--------|-----------------------------------------------|------------------------------------------|
| scan   | N      | W                                             | 2                                        |
| hash   | H      | W / |W|, the rows of a bucket                 | 2                                        |
| b+tree | B      | (ceil(log_{N+1} ceil(W/N)) + 1) ceil(log2 N)  | twice a probe                            |
| t-tree | T      | 1.5 (ceil(log2 ceil(W/N)) - 1) + ceil(log2 N) | twice a probe                            |

**A misprint.** Equations 6 and 7 print the update of a T-tree as 2 x 1.5 (L - 1) + ceil(log2 N), with the 2 before the
first term only. The paper's Table 3 comes out in all of its 24 cells with the 2 before both terms, which is what stands
here, and what the text says: an insert and an invalidation each search first. The printed form misses 15 cells.

Equations 8 to 11, the crossovers, are one formula here: two indexes of a window cost the same at
lambda_probing / lambda_updating = (update_2 - update_1) / (probe_1 - probe_2). Equation 12 is `output_rows_per_s`.

| symbol             | name here                  | unit                                                             |
|--------------------|----------------------------|------------------------------------------------------------------|
| lambda_a, lambda_b | `rate_a`, `rate_b`         | rows/s                                                           |
| A, B               | `window_a`, `window_b`     | rows                                                             |
| W / |W|            | `bucket_rows`              | rows of a hash bucket                                            |
| N                  | `node_rows`                | rows of a tree node                                              |
| P_d, I_d           | `Weight.search`, `.update` | cost of one tuple touched; the result has the same unit a second |
| sigma              | `selectivity`              | pairs that match, as a share of all pairs                        |

The paper does not name the unit of its weights. Milliseconds would fit a machine of its time: 7 us a row for two hash
indexes. `semistream.planning.window_calibrate` measures them in seconds.

**What the equations leave out**: anything that does not grow with the tuples touched. On a processor of today a probe
that touches one tuple costs far more than a hundredth of one that touches a hundred, and a window that leaves the cache
costs more for each tuple. `semistream.cost.window_curves` prices the same operations by measured curves, for choices;
everything below `IndexCosts` serves both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal, Protocol

IndexName = Literal["scan", "hash", "b+tree", "t-tree"]
INDEX_NAMES: tuple[IndexName, ...] = ("scan", "hash", "b+tree", "t-tree")

LETTERS: Mapping[IndexName, str] = {"scan": "N", "hash": "H", "b+tree": "B", "t-tree": "T"}
"""How the paper abbreviates: TN is a T-tree on the window of A and no index on that of B."""

Pair = tuple[IndexName, IndexName]
"""The index on the window of A, the index on the window of B."""

PAIRS: tuple[Pair, ...] = tuple(product(INDEX_NAMES, INDEX_NAMES))


class IndexCosts(Protocol):
    """What the two operations on a window of so many rows cost, by index."""

    def probe(self, index: IndexName, window_rows: float) -> float:
        """One search."""
        ...

    def update(self, index: IndexName, window_rows: float) -> float:
        """One insert and the invalidation that goes with it."""
        ...


# Equations 3 to 7 -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Weight:
    """What touching one tuple costs in a structure."""

    search: float
    """P_d."""
    update: float
    """I_d."""


PAPER_WEIGHTS: Mapping[IndexName, Weight] = {
    "scan": Weight(3.0e-4, 1.0e-4),
    "hash": Weight(5.5e-4, 7.8e-4),
    "b+tree": Weight(2.6e-4, 2.6e-4),
    "t-tree": Weight(2.6e-4, 2.7e-4),
}
"""Equation 7: Java 1.4 on an Athlon XP of 1533 MHz."""


@dataclass(frozen=True)
class TouchedTuples:
    """The paper's costs: tuples touched times weights.

    Example:
        >>> costs = TouchedTuples()
        >>> costs.touched_by_probe("t-tree", 9500), costs.touched_by_update("t-tree", 9500)
        (16.0, 32.0)
    """

    weights: Mapping[IndexName, Weight] = field(default_factory=lambda: PAPER_WEIGHTS)
    bucket_rows: float = 10.0
    node_rows: int = 100

    def touched_by_probe(self, index: IndexName, window_rows: float) -> float:
        """Tuples that one search looks at.

        A window that fits into one node of a tree has no level above it: where the equation would give less than
        nothing for the levels, it is nothing.
        """
        if index == "scan":
            return window_rows
        if index == "hash":
            return min(self.bucket_rows, window_rows)
        nodes = -(-max(1, round(window_rows)) // self.node_rows)
        inside_a_node = ceil_log(self.node_rows, 2)
        if index == "b+tree":
            return float((ceil_log(nodes, self.node_rows + 1) + 1) * inside_a_node)
        return 1.5 * max(0, ceil_log(nodes, 2) - 1) + inside_a_node

    def touched_by_update(self, index: IndexName, window_rows: float) -> float:
        """Tuples that an insert and an invalidation look at."""
        if index in ("scan", "hash"):
            return 2.0
        return 2.0 * self.touched_by_probe(index, window_rows)

    def probe(self, index: IndexName, window_rows: float) -> float:
        """Tuples touched times P."""
        return self.touched_by_probe(index, window_rows) * self.weights[index].search

    def update(self, index: IndexName, window_rows: float) -> float:
        """Tuples touched times I."""
        return self.touched_by_update(index, window_rows) * self.weights[index].update


def ceil_log(number: int, base: int) -> int:
    """The least power of `base` that reaches `number`, in whole numbers, so that no rounding adds a level.

    Example:
        >>> ceil_log(128, 2), ceil_log(129, 2), ceil_log(1, 101)
        (7, 8, 0)
    """
    power, reached = 0, 1
    while reached < number:
        reached *= base
        power += 1
    return power


# Equations 1, 2 and 12 ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WindowWorkload:
    """Two streams and their windows."""

    rate_a: float
    """lambda_a, rows/s."""
    rate_b: float
    """lambda_b, rows/s."""
    window_a: float
    """A, rows."""
    window_b: float
    """B, rows; of a window of T seconds, T lambda_b."""


def direction_cost(
    costs: IndexCosts, index: IndexName, *, probing_rate: float, updating_rate: float, window_rows: float
) -> float:
    """Equation 2: the work on one window in a unit of time; the other stream probes it, its own updates it."""
    return probing_rate * costs.probe(index, window_rows) + updating_rate * costs.update(index, window_rows)


def join_cost(costs: IndexCosts, pair: Pair, workload: WindowWorkload) -> float:
    """Equation 1: both directions.

    Example:
        >>> figure_4a = WindowWorkload(rate_a=2, rate_b=998, window_a=9500, window_b=500)
        >>> round(join_cost(TouchedTuples(), ("t-tree", "scan"), figure_4a), 2)
        4.67
    """
    index_a, index_b = pair
    rate_a, rate_b = workload.rate_a, workload.rate_b
    return direction_cost(
        costs, index_b, probing_rate=rate_a, updating_rate=rate_b, window_rows=workload.window_b
    ) + direction_cost(costs, index_a, probing_rate=rate_b, updating_rate=rate_a, window_rows=workload.window_a)


def cost_of_pairs(
    costs: IndexCosts, workload: WindowWorkload, allowed: tuple[IndexName, ...] = INDEX_NAMES
) -> dict[Pair, float]:
    """All pairs of the allowed indexes, the cheapest first."""
    bills = {pair: join_cost(costs, pair, workload) for pair in product(allowed, allowed)}
    return dict(sorted(bills.items(), key=lambda bill: bill[1]))


def best_pair(costs: IndexCosts, workload: WindowWorkload, allowed: tuple[IndexName, ...] = INDEX_NAMES) -> Pair:
    """The cheapest pair; an inequality is served by no hash, so it is then not among the allowed.

    Example:
        >>> best_pair(TouchedTuples(), WindowWorkload(rate_a=550, rate_b=450, window_a=4000, window_b=6000))
        ('hash', 'hash')
    """
    return next(iter(cost_of_pairs(costs, workload, allowed)))


def output_rows_per_s(workload: WindowWorkload, selectivity: float) -> float:
    """Equation 12: r_o = sigma (lambda_a B + lambda_b A)."""
    return selectivity * (workload.rate_a * workload.window_b + workload.rate_b * workload.window_a)


# Equations 8 to 11 ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where one pair takes over from another as the stream A becomes a larger part of the arrivals."""

    share_a: float
    """lambda_a / (lambda_a + lambda_b)."""
    before: Pair
    """The cheaper of the two below it."""
    after: Pair


def equal_cost_ratio(costs: IndexCosts, one: IndexName, other: IndexName, window_rows: float) -> float | None:
    """Probes for each update at which two indexes of a window cost the same; None where one is always cheaper.

    Example:
        >>> round(equal_cost_ratio(TouchedTuples(), "scan", "hash", 500), 4)
        0.0094
    """
    update_gap = costs.update(other, window_rows) - costs.update(one, window_rows)
    probe_gap = costs.probe(one, window_rows) - costs.probe(other, window_rows)
    if update_gap * probe_gap <= 0:
        return None
    return update_gap / probe_gap


def crossovers(
    costs: IndexCosts, window_a: float, window_b: float, allowed: tuple[IndexName, ...] = INDEX_NAMES
) -> list[Crossover]:
    """Where the best pair changes on the way from streams where all rows are of B to streams where all are of A.

    Each window has crossovers of its own, because the directions do not depend on each other. The best index of a
    window can only change where two indexes cost the same, so the pair is asked for between all such places.
    """
    places = sorted({*_equal_shares(costs, window_a, window_b, allowed)})
    between = [(low + high) / 2 for low, high in zip([0.0, *places], [*places, 1.0], strict=True)]
    best = [best_pair(costs, WindowWorkload(share, 1 - share, window_a, window_b), allowed) for share in between]
    return [
        Crossover(share, before, after)
        for share, before, after in zip(places, best, best[1:], strict=False)
        if before != after
    ]


def _equal_shares(
    costs: IndexCosts, window_a: float, window_b: float, allowed: tuple[IndexName, ...]
) -> Iterator[float]:
    for place, one in enumerate(allowed):
        for other in allowed[place + 1 :]:
            on_b = equal_cost_ratio(costs, one, other, window_b)
            if on_b is not None:
                yield on_b / (1 + on_b)
            # A's window is probed by B, so its ratio is lambda_b / lambda_a.
            on_a = equal_cost_ratio(costs, one, other, window_a)
            if on_a is not None:
                yield 1 / (1 + on_a)
