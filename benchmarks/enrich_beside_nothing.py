"""How close `enrich` comes to a Python pass that does nothing.

Both contenders read the same Parquet files, send the same key column through the same kind of Arrow UDF with the same
result type, observe the same metrics and write to Spark's noop sink. `nothing` returns a prebuilt answer of the same
types and string lengths; its rate is the price of crossing into Python and back, and no lookup can be faster.

    python -m benchmarks.enrich_beside_nothing --relation-rows 1M --stream-rows 4M

Each contender has a process of its own; they take turns, and the ratio of the medians is what counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import semistream as ss
from benchmarks.contenders import median_seconds, parse_count, run_contender, spark_session
from benchmarks.workload import write_products, write_sales

CONTENDERS = ("semistream", "nothing")
FILES = 4


def run_one(contender: str, folder: Path, memory: str, repeats: int) -> dict[str, Any]:
    """Measure one contender in this process."""
    session = spark_session()
    sales = session.read.parquet(str(folder / "sales"))
    if contender == "nothing":
        _do_nothing()
    enriched = ss.enrich(sales, ss.relation(folder / "products"), memory=memory)
    seconds = median_seconds(
        lambda: enriched.write.format("noop").mode("overwrite").save(), warm_ups=2, repeats=repeats
    )
    rows = sales.count()
    session.stop()
    return {"contender": contender, "rows": rows, "seconds": seconds, "rows_per_second": rows / seconds}


def _do_nothing() -> None:
    """Put a prebuilt answer, that of the first batch, in the place of the lookup."""
    from semistream.spark import enrich, worker

    def nothing(plan: Any) -> Callable[[Iterator[Any]], Iterator[pa.Array]]:
        def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
            prebuilt: pa.Array | None = None
            for keys in batches:
                if prebuilt is None or len(prebuilt) < len(keys):
                    prebuilt = worker._serve(plan, rows_may_wait=False).answer((keys,))
                yield prebuilt if len(prebuilt) == len(keys) else prebuilt.slice(0, len(keys))

        return run

    enrich.worker.answers = nothing


def main() -> None:
    """Parse, run the contenders in turns, print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relation-rows", type=parse_count, default="1M")
    parser.add_argument("--stream-rows", type=parse_count, default="4M")
    parser.add_argument("--skew", type=float, default=1.0)
    parser.add_argument("--memory", default="256MB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(run_one(options.contender, options.folder, options.memory, options.repeats)))
        return
    with tempfile.TemporaryDirectory() as folder:
        write_products(Path(folder), options.relation_rows, options.seed)
        rows_per_file = options.stream_rows // FILES
        write_sales(Path(folder), options.relation_rows, FILES, rows_per_file, options.skew, options.seed)
        rates: dict[str, list[float]] = {name: [] for name in CONTENDERS}
        for _ in range(options.rounds):
            for name in CONTENDERS:
                arguments = ["--contender", name, "--folder", folder, "--memory", options.memory]
                result = run_contender(__spec__.name, [*arguments, "--repeats", str(options.repeats)])
                rates[name].append(result["rows_per_second"])
                if not options.json:
                    print(f"{name:<12}{result['rows_per_second']:>14,.0f} rows/s", flush=True)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratio = medians["semistream"] / medians["nothing"]
    if options.json:
        print(json.dumps({**{f"{name}_rows_per_second": rate for name, rate in medians.items()}, "ratio": ratio}))
    else:
        print(f"semistream reaches {ratio:.2f} of a pass that does nothing")


if __name__ == "__main__":
    main()
