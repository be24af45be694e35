"""The papers' symbols: what one operation costs, and how many operations a loop makes.

A model first counts (`Counts`, exact or expected numbers of operations) and only then multiplies by seconds
(`UnitCosts`). So a run can be compared with its prediction operation by operation, on any machine and with any I/O.

| symbol    | name here           | unit                     | meaning                                                 |
|-----------|---------------------|--------------------------|---------------------------------------------------------|
| c_H       | `c_h`               | s / probe                | look up one row in a hash table, H_R or H_S             |
| c_O       | `c_o`               | s / output row           | make one joined row                                     |
| c_E       | `c_e`               | s / row                  | delete one stream row from H_S and the queue            |
| c_S       | `c_s`               | s / row                  | read one stream row from the stream buffer              |
| c_A       | `c_a`               | s / row                  | append one stream row to H_S and the queue              |
| c_F       | `c_f`               | s / test                 | compare the frequency of one row of R with a threshold  |
| c_I       | `c_i`               | s / test                 | evaluate the cache inequality for one key of R          |
| c_V       | `c_v`               | s / test                 | test one key of H_R for eviction                        |
| c_IO(b)   | `io.read_s(bytes)`  | s                        | bring `bytes` of R into the disk buffer                 |
| c_loop    | `seconds(...)`      | s / iteration            | one turn of the outer loop                              |
| mu        | `mu_rows_per_s`     | stream rows / s          | service rate: (w_N + w_S) / c_loop                      |

The papers give the unit costs in nanoseconds and write 1e-9 before every sum; here everything is in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from semistream.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class IoProfile:
    """What reading R costs: a call, a seek unless it goes on where the last one ended, then bytes at a steady pace.

    Example:
        >>> IoProfile(seek_s=0.01, bytes_per_s=100e6).read_s(1_000_000, sequential=False)
        0.02
    """

    seek_s: float
    """Seconds before the first byte of a read that does not follow the last one."""
    bytes_per_s: float
    """Bytes a second once the read runs."""
    call_s: float = 0.0
    """Seconds that every read takes beside that, sequential or not: a query, a system call. Without it nothing speaks
    against a scan in segments of one row."""

    def __post_init__(self) -> None:
        if not (min(self.seek_s, self.call_s) >= 0 and self.bytes_per_s > 0):
            raise InvalidOption(
                "an I/O profile must be possible",
                given=f"seek_s={self.seek_s}, bytes_per_s={self.bytes_per_s}, call_s={self.call_s}",
                allowed="a seek and a call of 0 s or more, and more than 0 bytes a second",
            )

    def read_s(self, count_bytes: float, *, sequential: bool) -> float:
        """c_IO: seconds to read this many bytes, with a seek unless they follow the last read."""
        return self.call_s + (0.0 if sequential else self.seek_s) + count_bytes / self.bytes_per_s


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """Seconds per operation, by the papers' symbols, and the profile of the device that holds R."""

    c_h: float
    c_o: float
    c_e: float
    c_s: float
    c_a: float
    c_f: float
    c_i: float
    c_v: float
    io: IoProfile

    def __post_init__(self) -> None:
        negative = [name for name in CPU_SYMBOLS if not getattr(self, name) >= 0]
        if negative:
            raise InvalidOption(
                "a unit cost must not be negative", given=", ".join(negative), allowed="0 seconds or more"
            )


CPU_SYMBOLS = tuple(field.name for field in fields(UnitCosts) if field.name != "io")
"""The unit costs that are plain seconds, in the order of `UnitCosts`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Operations of one iteration, or of many after `times`; expected values, so not always whole numbers."""

    iterations: float = 1.0
    """Turns of the outer loop."""
    pages_read: float = 0.0
    """Reads: pages (disk partitions, segments) of R brought into the disk buffer."""
    bytes_read: float = 0.0
    """Bytes of R in those pages."""
    seeks: float = 0.0
    """Reads that do not follow the one before: all of an index join, none of a cyclic scan."""
    probes: float = 0.0
    """Look-ups: rows of R in H_S, and stream rows in H_R whether they are found or not."""
    outputs: float = 0.0
    """Joined rows."""
    deletions: float = 0.0
    """Stream rows that left H_S and the queue."""
    stream_reads: float = 0.0
    """Stream rows taken from the stream buffer."""
    appends: float = 0.0
    """Stream rows put into H_S and the queue."""
    frequency_tests: float = 0.0
    """Rows of R compared with a threshold."""
    inequality_tests: float = 0.0
    """Keys of R tried by the cache inequality."""
    eviction_tests: float = 0.0
    """Keys of H_R looked at by the eviction."""
    lettings: float = 0.0
    """Reads after which keys of the page were let into H_R. No paper has a symbol for it, and it has no unit cost: what
    it takes is mostly the calls, which only count on a real processor (`semistream.planning.loops`)."""

    def times(self, factor: float) -> Counts:
        """The counts of `factor` such loops."""
        return Counts(**{field.name: getattr(self, field.name) * factor for field in fields(self)})


def cpu_seconds(counts: Counts, unit_costs: UnitCosts) -> float:
    """c_loop without its I/O term."""
    return (
        counts.probes * unit_costs.c_h
        + counts.outputs * unit_costs.c_o
        + counts.deletions * unit_costs.c_e
        + counts.stream_reads * unit_costs.c_s
        + counts.appends * unit_costs.c_a
        + counts.frequency_tests * unit_costs.c_f
        + counts.inequality_tests * unit_costs.c_i
        + counts.eviction_tests * unit_costs.c_v
    )


def io_seconds(counts: Counts, io: IoProfile) -> float:
    """The I/O term of c_loop."""
    return counts.pages_read * io.call_s + counts.seeks * io.seek_s + counts.bytes_read / io.bytes_per_s


def seconds(counts: Counts, unit_costs: UnitCosts) -> float:
    """c_loop: all operations at their unit costs.

    Example:
        >>> disk = IoProfile(seek_s=0.01, bytes_per_s=1e8)
        >>> free = UnitCosts(1e-7, 0, 0, 0, 0, 0, 0, 0, disk)
        >>> round(seconds(Counts(bytes_read=60_000, seeks=1, probes=500), free), 6)
        0.01065
    """
    return cpu_seconds(counts, unit_costs) + io_seconds(counts, unit_costs.io)
