"""PCSRJ, the parallelised cache-based stream-relation join: CACHEJOIN on every part of R, side by side.

Naeem, Khan, Aslam, Jamil: Parallelisation of a cache-based stream-relation join for a near-real-time data warehouse
(Electronics 9(8), 2020). R and the stream are split by the key: the paper uses two nodes, odd keys and even keys. It
prints

    M      = 2 b v_R + 2 h_R v_R + alpha [M - 2 (b + h_R) v_R] + (1 - alpha)[M - 2 (b + h_R) v_R]             (1)
    c_loop = 2 c_IO(b) + 2 b (c_H + c_F) + 2 w_S (c_S + c_A + c_O + c_E) + 2 w_N (c_S + c_H + c_O)            (2)
    mu     = 2 (w_N + w_S) / c_loop                                                                          (3)

**Equations 2 and 3 cancel.** The loops of two nodes run at the same time, so their seconds do not add; with both sides
doubled, mu is the rate of one node, and no gain is predicted, whatever the number of nodes (`mu_printed_rows_per_s`).
With the c_loop of one node below the line, equation 3 gives twice the rate (`mu_corrected_rows_per_s`).

**Twice is still too much.** If keys are ranks, the odd node gets the most popular key: at exponent 1 its share is
1/2 + ln 2 / (2 H_N), 52.3 % of two million keys. The stream is as fast as the node that falls behind first, so

    mu = min over nodes of (mu of the node / its share of the stream)

`predict` does that for any number of nodes, where node c holds the keys of ranks c, c + n, c + 2n ... Each node is a
CACHEJOIN of its own (`semistream.cost.cachejoin`) over a part of R and with a Zipf law whose offset is c / n. One
iteration of the prediction is one of the slowest node; w_N, w_S and the counts are those of all nodes in that time.
All sizes are those of one node; memory is that of all.

| symbol | name here    | unit           | meaning                                          |
|--------|--------------|----------------|--------------------------------------------------|
| b      | `page_rows`  | rows           | disk buffer of one node                          |
| h_R    | `h_r_rows`   | rows           | cache of one node                                |
| 2      | `partitions` | -              | nodes                                            |
"""

from __future__ import annotations

from dataclasses import fields, replace

from semistream.cost import cachejoin
from semistream.cost.base import MemoryBytes, Prediction, Sizes, Workload
from semistream.cost.symbols import Counts, UnitCosts
from semistream.cost.zipf import Popularity, partial_sum
from semistream.errors import InvalidOption

PRINTED_NODES = 2
"""Equations 1 to 3 are written for two."""


def memory_bytes(workload: Workload, sizes: Sizes) -> MemoryBytes:
    """Equation 1, for any number of nodes."""
    return {name: sizes.partitions * size for name, size in cachejoin.memory_bytes(workload, sizes).items()}


def c_loop_printed_s(unit_costs: UnitCosts, v_r_bytes: float, *, b: float, w_n: float, w_s: float) -> float:
    """Equation 2 as printed, in seconds."""
    return PRINTED_NODES * cachejoin.c_loop_s(unit_costs, v_r_bytes, b=b, w_n=w_n, w_s=w_s)


def mu_printed_rows_per_s(unit_costs: UnitCosts, v_r_bytes: float, *, b: float, w_n: float, w_s: float) -> float:
    """Equation 3 as printed: the rate of one node."""
    return PRINTED_NODES * (w_n + w_s) / c_loop_printed_s(unit_costs, v_r_bytes, b=b, w_n=w_n, w_s=w_s)


def mu_corrected_rows_per_s(unit_costs: UnitCosts, v_r_bytes: float, *, b: float, w_n: float, w_s: float) -> float:
    """Equation 3 over the loop of one node: two balanced nodes at the same time."""
    return PRINTED_NODES * (w_n + w_s) / cachejoin.c_loop_s(unit_costs, v_r_bytes, b=b, w_n=w_n, w_s=w_s)


def node_shares(popularity: Popularity, partitions: int) -> list[float]:
    """Share of the stream that goes to the node of ranks 1, 1 + n, ..., to that of 2, 2 + n, ... and so on."""
    if popularity.generator != "exact" or popularity.offset != 1.0:
        raise InvalidOption(
            "shares of nodes are known for Zipf's law only",
            given=f"generator={popularity.generator!r}, offset={popularity.offset}",
            allowed="generator 'exact', offset 1",
        )
    if partitions > popularity.keys:
        raise InvalidOption(
            "there are more partitions than keys", given=str(partitions), allowed=f"up to {popularity.keys}"
        )
    exponent = popularity.exponent
    total = float(partial_sum(popularity.keys, exponent))
    return [
        float(partial_sum(keys, exponent, first / partitions)) * partitions**-exponent / total
        for first, keys in _nodes(popularity.keys, partitions)
    ]


def predict(workload: Workload, sizes: Sizes, unit_costs: UnitCosts) -> Prediction:
    """A CACHEJOIN per node; the stream is as fast as the node that falls behind first."""
    shares = node_shares(workload.popularity, sizes.partitions)
    nodes = [
        cachejoin.predict(_node_workload(workload, first, keys, sizes.partitions), sizes, unit_costs)
        for first, keys in _nodes(workload.keys, sizes.partitions)
    ]
    slowest, share = min(zip(nodes, shares, strict=True), key=lambda pair: pair[0].mu_rows_per_s / pair[1])
    stream_rows = (slowest.w_n + slowest.w_s) / share
    # Iterations that each node makes while the slowest makes one.
    turns = [stream_rows * share / (node.w_n + node.w_s) for node, share in zip(nodes, shares, strict=True)]
    return Prediction(
        w_n=sum(turn * node.w_n for turn, node in zip(turns, nodes, strict=True)),
        w_s=sum(turn * node.w_s for turn, node in zip(turns, nodes, strict=True)),
        counts=_summed([node.counts.times(turn) for turn, node in zip(turns, nodes, strict=True)]),
        memory_bytes=memory_bytes(workload, sizes),
        cpu_s=slowest.cpu_s,
        io_s=slowest.io_s,
        waiting_rows=sum(node.waiting_rows for node in nodes),
        remembered_rows=sum(node.remembered_rows for node in nodes),
    )


def _nodes(keys: int, partitions: int) -> list[tuple[int, int]]:
    """The first rank of every node, and how many keys it holds."""
    return [(first, (keys - first) // partitions + 1) for first in range(1, partitions + 1)]


def _node_workload(workload: Workload, first: int, keys: int, partitions: int) -> Workload:
    node_rows = max(1, round(keys * workload.rows_per_key))
    return replace(workload, r_rows=node_rows, zipf_offset=first / partitions)


def _summed(parts: list[Counts]) -> Counts:
    return Counts(**{field.name: sum(getattr(part, field.name) for part in parts) for field in fields(Counts)})
