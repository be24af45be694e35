"""Who gets what when a window join has too little processor time, too little memory, or both.

The output of a join of two windows is r_o = sigma (lambda_a B + lambda_b A) (Kang, Naughton, Viglas: equation 12).
Short of processor time, only mu rows a second can probe: lambda_a' + lambda_b' = mu, rows are still inserted
(equations 13 and 14). Short of memory, only M rows can be held: A' + B' = M, a random part of each window (equations 15
and 16). Short of both, both hold (equations 17 to 19). No stream gets more than it has use for: lambda' <= lambda,
A' <= A; what it leaves goes to the other.

A *strategy* is the share of a resource that goes to A; the same words serve rates and windows:

| strategy    | A gets                        | figure                                                        |
|-------------|-------------------------------|---------------------------------------------------------------|
| `max-a`     | everything                    | 5, 6, 7                                                       |
| `max-b`     | nothing                       | 5, 6, 7                                                       |
| `by-rate`   | lambda_a of all arrivals      | 5, 6                                                          |
| `by-window` | A of all rows in windows      | 5                                                             |
| `inverse`   | lambda_b of all arrivals      | 6                                                             |
| `equal`     | a half                        | 5, 6, 7                                                       |
| `cross-a`   | all memory and no probes      | 7: A is held, B probes                                        |
| `cross-b`   | all probes and no memory      | 7: B is held, A probes                                        |
| `optimum`   | what makes r_o largest        |                                                               |

*The optimum.* r_o is linear in the share of one resource and bilinear in the shares of two, so it is largest at an end:
short of processor time, probes go from the smaller window into the larger; short of memory, the slower stream is held;
short of both, one stream is held and the other probes. Ends that give the same are no better than the middle, and the
middle is fairer: then it is `equal`.

*Why each stream has a least share.* The paper maximises pairs. A direction that gets nothing has no pairs at all, and
no estimate can make up for what had no chance to be seen (`semistream.window.estimate`). So each stream gets
`LEAST_SHARE` of a scarce resource unless a caller asks for less; with 0 the figures are the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, get_args

from semistream.errors import InvalidOption, check_choice

Strategy = Literal["max-a", "max-b", "by-rate", "by-window", "inverse", "equal", "cross-a", "cross-b", "optimum"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

ENDS: tuple[Strategy, ...] = ("equal", "max-a", "max-b")
"""Where a linear function is largest; first what is taken if all are the same."""

CROSSED: Mapping[Strategy, tuple[Strategy, Strategy]] = {"cross-a": ("max-b", "max-a"), "cross-b": ("max-a", "max-b")}
"""Strategies for rates and for windows: one stream probes, the other is held."""

LEAST_SHARE = 0.1
"""Of a scarce resource, for each stream."""

LEAST_SHARE_MAX = 0.5
"""Two streams cannot both have more."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What the streams would need if nothing were short."""

    rate_a: float
    """lambda_a, rows/s."""
    rate_b: float
    """lambda_b, rows/s."""
    window_a: float
    """A, rows of the full window."""
    window_b: float
    """B, rows of the full window."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise InvalidOption(
                    f"`{name}` must not be negative", given=repr(getattr(self, name)), allowed="0 or more"
                )


@dataclass(frozen=True, slots=True)
class Allocation:
    """What the streams get of it."""

    demand: Demand
    rate_a: float
    """lambda_a': rows/s of A that probe."""
    rate_b: float
    window_a: float
    """A': rows of A that are held."""
    window_b: float

    @property
    def probe_shares(self) -> tuple[float, float]:
        """With what probability a row of A, of B, probes."""
        return _share(self.rate_a, self.demand.rate_a), _share(self.rate_b, self.demand.rate_b)

    @property
    def held_shares(self) -> tuple[float, float]:
        """With what probability a row of A, of B, is held."""
        return _share(self.window_a, self.demand.window_a), _share(self.window_b, self.demand.window_b)

    def output_rows_per_s(self, selectivity: float) -> float:
        """r_o, with selectivity sigma = min(sigma_a, sigma_b)."""
        return selectivity * (self.rate_a * self.window_b + self.rate_b * self.window_a)


def nothing_short(demand: Demand) -> Allocation:
    """Every row is held and every row probes."""
    return Allocation(demand, demand.rate_a, demand.rate_b, demand.window_a, demand.window_b)


def allocate(
    demand: Demand,
    *,
    probes_per_s: float | None = None,
    held_rows: float | None = None,
    strategy: Strategy = "optimum",
    least_share: float = LEAST_SHARE,
) -> Allocation:
    """Share what is short.

    Args:
        demand: Rates and full windows.
        probes_per_s: mu, what the processor can do; None when it is enough.
        held_rows: M, what fits into memory; None when it is enough.
        strategy: A word of the table above.
        least_share: What each stream gets at least, as a share of what is short.

    Example:
        >>> demand = Demand(rate_a=800, rate_b=200, window_a=100, window_b=200)
        >>> allocate(demand, probes_per_s=100, least_share=0).output_rows_per_s(0.01)
        200.0
        >>> allocate(demand, probes_per_s=100).probe_shares
        (0.1125, 0.05)
    """
    check_choice("strategy", strategy, STRATEGIES)
    if not 0 <= least_share <= LEAST_SHARE_MAX:
        raise InvalidOption(
            "`least_share` is no share that two streams can have", given=repr(least_share), allowed="0 to 0.5"
        )
    if strategy == "optimum":
        ways = list(product(ENDS, ENDS))
    else:
        ways = [CROSSED.get(strategy, (strategy, strategy))]
    results = [_allocated(demand, probes_per_s, held_rows, way, least_share) for way in ways]
    return max(results, key=lambda result: result.output_rows_per_s(1.0))


def _allocated(
    demand: Demand,
    probes_per_s: float | None,
    held_rows: float | None,
    way: tuple[Strategy, Strategy],
    least_share: float,
) -> Allocation:
    result = nothing_short(demand)
    if probes_per_s is not None:
        wish = _part_of_a(demand, way[0])
        rate_a, rate_b = _divided(probes_per_s, wish, demand.rate_a, demand.rate_b, least_share)
        result = replace(result, rate_a=rate_a, rate_b=rate_b)
    if held_rows is not None:
        wish = _part_of_a(demand, way[1])
        window_a, window_b = _divided(held_rows, wish, demand.window_a, demand.window_b, least_share)
        result = replace(result, window_a=window_a, window_b=window_b)
    return result


def _part_of_a(demand: Demand, strategy: Strategy) -> float:
    """What A gets of a resource, as a share, before anything else is looked at."""
    if strategy == "by-window":
        return _share_or_half(demand.window_a, demand.window_b)
    if strategy == "by-rate":
        return _share_or_half(demand.rate_a, demand.rate_b)
    if strategy == "inverse":
        return _share_or_half(demand.rate_b, demand.rate_a)
    parts: dict[Strategy, float] = {"max-a": 1.0, "max-b": 0.0, "equal": 0.5}
    assert strategy in parts, f"{strategy} is no share of one resource"
    return parts[strategy]


def _divided(total: float, wish: float, need_a: float, need_b: float, least_share: float) -> tuple[float, float]:
    """What A and B get: as wished, but each its least share, none more than it needs, and nothing left over."""
    if not total > 0:
        raise InvalidOption("what is to be shared must be positive", given=repr(total), allowed="more than 0")
    total = min(total, need_a + need_b)
    least_a, least_b = min(least_share * total, need_a), min(least_share * total, need_b)
    lowest, highest = max(least_a, total - need_b), min(need_a, total - least_b)
    part_a = min(max(wish * total, lowest), highest)
    return part_a, total - part_a


def _share(part: float, whole: float) -> float:
    return min(1.0, part / whole) if whole else 1.0


def _share_or_half(part: float, other: float) -> float:
    return part / (part + other) if part + other else 0.5
