"""One contender of `bench window --band` in a process of its own: `python -m semistream.bench.window_band '{…}'`.

The question is |a.x - b.x| <= d over windows of so many rows: every row with the rows of the other stream that were the
last ones when it came. All rows are in memory before the first batch, as each side likes them: arrays for us, tables
for DuckDB. A batch is what comes next on both sides; its pairs are those whose later row is in it. What is put out is a
count and a sum over both row numbers, so both do the same with a pair.

DuckDB has no windows over two streams, so the window becomes a range of row numbers, and a batch two range joins: new
rows of A with earlier ones of B, and the other way round. It may use all cores; the operator here uses one. It does
not have to carry state from batch to batch, which is in its favour.

Trap. DuckDB's range join is driven by few of the inequalities, and it chooses them itself: given the window as two
inequalities on row numbers, which rule out little, it put one of them first and took a hundred times as long. So the
window is written as a difference of columns of both sides, which cannot drive the join, and `x` does. An equality join
over buckets of `x`, which a user would have to write by hand, was a little faster still at 100 000 rows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from semistream.bench.child_process import report
from semistream.bench.window_streams import BAND_WIDTH, BAND_WINDOW_ROWS, SIDES
from semistream.clock import RealClock
from semistream.errors import EnvironmentUnfit

if TYPE_CHECKING:
    from types import ModuleType

MIX_A, MIX_B, MIX_MODULUS = 2_654_435_761, 1_597_334_677, 2_147_483_629
"""A pair is worth (n of a · MIX_A + n of b · MIX_B) mod MIX_MODULUS; in 64 bits for a billion rows."""

INDEX = "b+tree"
"""What `window_join` takes for a band."""

Integers = npt.NDArray[np.int64]
Sums = tuple[int, int]
"""How many pairs, and the sum of what they are worth."""

Answer = Callable[[int, int], Sums]
"""Called with where a batch begins and ends in either stream."""


def duckdb_installed() -> ModuleType:
    """The library, or what to install."""
    try:
        import duckdb
    except ImportError:
        raise EnvironmentUnfit(
            "the band join is measured beside DuckDB, which is not installed", hint="pip install 'semistream[dev]'"
        ) from None
    return duckdb


def by_semistream(folder: Path, order: dict[str, Any]) -> Answer:
    """The operator itself, in this process and on one core."""
    import pyarrow.parquet as pq

    from semistream.budget import MemoryBudget
    from semistream.window.join import WindowJoin
    from semistream.window.pieces import Arrivals
    from semistream.window.windows import rows

    tables = [pq.read_table(folder / f"{side}.parquet") for side in SIDES]
    before, x = ([table[name].to_numpy() for table in tables] for name in ("before", "x"))
    window = rows(BAND_WINDOW_ROWS)
    budget = MemoryBudget(int(order["memory_bytes"]))
    join = WindowJoin(window, window, budget=budget, index_a=INDEX, index_b=INDEX)

    def answer(begin: int, end: int) -> Sums:
        count = 2 * (end - begin)
        side, code = np.zeros(count, np.int8), np.zeros(count, np.int64)
        numbers = np.arange(begin, end)
        for here in (0, 1):
            # A batch has as many rows of each stream, so its first place in the sequence is twice `begin`.
            places = numbers + before[here][begin:end] - 2 * begin
            side[places], code[places] = here, x[here][begin:end]
        always = np.ones(count, np.bool_)
        piece = Arrivals(side, code, code - BAND_WIDTH, code + BAND_WIDTH, always, np.zeros(count, np.int64))
        pairs = checksum = 0
        for found in join.push(piece):
            pairs += len(found.row_a)
            checksum += worth(found.row_a, found.row_b)
        return pairs, checksum

    return answer


def worth(row_a: Integers, row_b: Integers) -> int:
    """The sum of what these pairs are worth."""
    return int(np.sum((row_a * MIX_A + row_b * MIX_B) % MIX_MODULUS))


def by_duckdb(folder: Path, order: dict[str, Any]) -> Answer:
    """Range joins of DuckDB, on all cores that may be used."""
    connection = duckdb_installed().connect()
    connection.execute(f"SET threads TO {int(order['cores'])}")
    for side in SIDES:
        connection.execute(f"CREATE TABLE {side} AS SELECT * FROM read_parquet(?)", [str(folder / f"{side}.parquet")])

    def answer(begin: int, end: int) -> Sums:
        pairs, checksum = connection.execute(band_query(begin, end)).fetchone()
        return int(pairs), int(checksum or 0)

    return answer


def band_query(begin: int, end: int) -> str:
    """SQL for the pairs whose later row is one of those from `begin` to before `end` of its stream."""
    first_held = begin - BAND_WINDOW_ROWS
    halves = [
        f"""
        SELECT a.n AS n_a, b.n AS n_b
        FROM (SELECT * FROM {later} WHERE n >= {begin} AND n < {end}) {later}
        JOIN (SELECT * FROM {earlier} WHERE n >= {first_held} AND n < {end}) {earlier}
        ON {earlier}.x >= {later}.x - {BAND_WIDTH} AND {earlier}.x <= {later}.x + {BAND_WIDTH}
        AND {earlier}.n - {later}.before BETWEEN -{BAND_WINDOW_ROWS} AND -1
        """
        for later, earlier in (SIDES, SIDES[::-1])
    ]
    value = f"(n_a * {MIX_A} + n_b * {MIX_B}) % {MIX_MODULUS}"
    return f"SELECT count(*), sum({value}) FROM ({halves[0]} UNION ALL {halves[1]})"


CONTENDERS: dict[str, Callable[[Path, dict[str, Any]], Answer]] = {"semistream": by_semistream, "duckdb": by_duckdb}


def main(order: dict[str, Any]) -> None:
    """Join batch by batch, and report each."""
    answer = CONTENDERS[order["contender"]](Path(order["events"]), order)
    for seen in _timed(answer, int(order["batch_rows"]), int(order["batches"])):
        report(**seen)


def _timed(answer: Answer, batch_rows: int, batches: int) -> Iterator[dict[str, Any]]:
    clock = RealClock()
    for batch in range(batches):
        begun_s = clock.now_s()
        rows, checksum = answer(batch * batch_rows, (batch + 1) * batch_rows)
        yield {"batch": batch, "seconds": clock.now_s() - begun_s, "rows": rows, "checksum": checksum}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
