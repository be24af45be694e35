"""Whether it pays to send stream rows with the same key to the same task before they are looked up.

What it saves: a key that memory does not know is read once in a micro-batch instead of once in each task that asks for
it. What it costs: every row is written, sent and read once more, and its key crosses into Python a second time to be
hashed. What it does not do: bring a key to where it is remembered. Spark hands the tasks behind a shuffle to any
executor, so every executor remembers what is popular, with a shuffle or without.

So there are two sides to compare for a micro-batch of n rows in N tasks, D(m) being the distinct keys among m rows that
memory cannot answer:

    saved = (N * D(m / N) - D(m)) * seconds of a repeated read        cost = n * seconds of a row in a shuffle

Rows that miss are rows of rare keys, of which few meet again in one micro-batch, and a page that another task has just
read comes out of the system's cache of pages. With a relation on a local disk the first side is therefore not the
larger one, whatever the skew, unless nothing is remembered and a thousand tasks or more read for some hundred rows
each. It would be with a store far away, where the second read costs as much as the first.

Before a query runs neither skew nor rate are known: Zipf's law with exponent 1 and a micro-batch of `MICRO_BATCH_ROWS`
are assumed.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.cost.base import Workload
from semistream.cost.inlj import distinct_keys
from semistream.relations.base import RelationInfo

ZIPF_EXPONENT = 1.0

MICRO_BATCH_ROWS = 100_000

SHUFFLED_ROW_S = 1.6e-6
"""Processor seconds in which a row of six columns is hashed in Python, written and read again: a million rows of
`bench enrich` took two cores 0.8 s longer with `shuffle="always"`."""

REPEATED_READ_S = 2.5e-6
"""Seconds in which a row is found and gathered from a page that is in the system's cache: a hundred thousand rows of
ten million, some thousand at a time, took 0.3 s."""


@dataclass(frozen=True, slots=True)
class ShuffleChoice:
    """Whether rows are shared out by key, and why."""

    pays: bool
    reason: str
    """One sentence, without its full stop."""


def choose_shuffle(
    info: RelationInfo, remembered_keys: float, tasks: int, repeated_read_s: float = REPEATED_READ_S
) -> ShuffleChoice:
    """Decide for a relation, how many of its keys are remembered, and the tasks of a micro-batch."""
    if tasks <= 1:
        return ShuffleChoice(False, "all rows are in one task already")
    if info.row_count == 0:
        return ShuffleChoice(False, f"{info.name!r} is empty")
    if remembered_keys >= info.row_count:
        return ShuffleChoice(False, f"all of {info.name!r} can be remembered")
    workload = Workload(info.row_count, ZIPF_EXPONENT, v_r_bytes=max(1.0, info.row_bytes_mean))
    missed_rows = MICRO_BATCH_ROWS * (1 - workload.popularity.share_of_hottest(remembered_keys))
    reads = tasks * distinct_keys(workload, missed_rows / tasks, remembered_keys)
    repeated = reads - distinct_keys(workload, missed_rows, remembered_keys)
    saved_s, cost_s = repeated * repeated_read_s, MICRO_BATCH_ROWS * SHUFFLED_ROW_S
    bill = (
        f"in a micro-batch of {MICRO_BATCH_ROWS:,} rows it would save {repeated:,.0f} of {reads:,.0f} reads or "
        f"{1e3 * saved_s:,.1f} ms, and cost {1e3 * cost_s:,.0f} ms"
    )
    return ShuffleChoice(saved_s > cost_s, bill)
