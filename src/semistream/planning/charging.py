"""From what an operator has counted to seconds: the `Charge` of a timed run.

An operator counts its operations (`JoinStats`), a cost model prices them (`UnitCosts`). Put together they are what the
operations between two moments take, which moves a virtual clock in `joins.timed.run_timed`. Reading is left out: a
metered relation charges it itself, and it must not be paid twice.

A trap: an operator is charged only for what it counts. The join family counts everything; `inlj` and `adaptive` probe
without a table of waiting rows and count rows and outputs only.
"""

from __future__ import annotations

from semistream.cost import symbols
from semistream.cost.symbols import Counts, UnitCosts, cpu_seconds
from semistream.joins.base import JoinStats
from semistream.joins.timed import Charge
from semistream.relations import metered

NS = 1e-9


def typical(io: metered.IoProfile) -> UnitCosts:
    """Unit costs of a usual machine, for plans that must come out the same everywhere, with reads of this device.

    They are what `measuring.calibrate_here` found on one core of a cloud server, rounded: tables of 64 Ki rows, pages
    of 1 Ki, rows of R with a number and a text of 100 bytes. Another machine moves all of them by about one factor,
    and a plan follows from their ratios; beside a seek of 20 us or more they hardly matter.
    """
    return UnitCosts(
        c_h=12 * NS,
        c_o=90 * NS,
        c_e=60 * NS,
        c_s=15 * NS,
        c_a=30 * NS,
        c_f=20 * NS,
        c_i=80 * NS,
        c_v=2 * NS,
        io=io_of(io),
    )


def io_of(profile: metered.IoProfile) -> symbols.IoProfile:
    """The device of a metered relation, as cost models know it."""
    return symbols.IoProfile(seek_s=profile.seek_s, bytes_per_s=profile.bytes_per_s)


def counts_between(before: JoinStats, after: JoinStats) -> Counts:
    """What was done between two states of the counters, in the terms of the cost models, reads excepted.

    Example:
        >>> done = counts_between(JoinStats(rows=5), JoinStats(rows=8, stream_probes=3, disk_probes=10))
        >>> done.stream_reads, done.probes
        (3, 13)
    """
    return Counts(
        iterations=after.iterations - before.iterations,
        probes=after.stream_probes + after.disk_probes - before.stream_probes - before.disk_probes,
        outputs=after.outputs - before.outputs,
        deletions=after.left - before.left,
        stream_reads=after.rows - before.rows,
        appends=after.waited - before.waited,
        frequency_tests=after.frequency_tests - before.frequency_tests,
        inequality_tests=after.inequality_tests - before.inequality_tests,
        eviction_tests=after.eviction_tests - before.eviction_tests,
        lettings=after.lettings - before.lettings,
    )


def charge_of(unit_costs: UnitCosts) -> Charge:
    """What operations take at these prices, for `run_timed`."""

    def charge(before: JoinStats, after: JoinStats) -> float:
        return cpu_seconds(counts_between(before, after), unit_costs)

    return charge
