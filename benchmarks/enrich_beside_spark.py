"""Seconds per micro-batch of `enrich` beside Spark's own ways to join a stream with a table.

    python -m benchmarks.enrich_beside_spark --relation-rows 1M,10M --plot docs/figures/beside-spark.png

Contenders, all inner joins of the same stream with the same rows, each in a process of its own:

- `spark`: `stream.join(table)` without a hint,
- `spark-broadcast-stream`: `broadcast(stream).join(table)`, the fastest that Spark has for an inner join,
- `semistream`: `enrich(stream, relation, on_miss="drop")`.

One file is one micro-batch. The first two batches of each contender are left out (start-up, an empty memory); the
median of the others counts. All contenders must put out the same rows: their count and a checksum are compared.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import semistream as ss
from benchmarks.contenders import parse_count, run_contender, spark_session
from benchmarks.workload import write_products, write_sales

CONTENDERS = ("spark", "spark-broadcast-stream", "semistream")
WARM_UP_BATCHES = 2


def run_one(contender: str, folder: Path, memory: str) -> dict[str, Any]:
    """Run the whole stream through one contender."""
    from pyspark.sql import functions as F

    session = spark_session()
    table = session.read.parquet(str(folder / "products.parquet"))
    schema = session.read.parquet(str(folder / "sales")).schema
    sales = session.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / "sales"))
    if contender == "spark":
        joined = sales.join(table, "product_id")
    elif contender == "spark-broadcast-stream":
        joined = F.broadcast(sales).join(table, "product_id")
    else:
        joined = ss.enrich(sales, ss.relation(folder / "products"), memory=memory, on_miss="drop")
    checksum = F.sum(
        F.xxhash64("sale_id", "product_id", "name", "category", "price", "listed_on").cast("decimal(38,0)")
    )
    checked = joined.observe("checked", F.count(F.lit(1)).alias("rows"), checksum.alias("checksum"))
    query = checked.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [p for p in query.recentProgress if p.numInputRows]
    seconds = [p.durationMs["triggerExecution"] / 1000 for p in batches[WARM_UP_BATCHES:]]
    rows = sum(p.observedMetrics["checked"]["rows"] for p in batches)
    sums = sum(int(p.observedMetrics["checked"]["checksum"]) for p in batches)
    session.stop()
    return {"contender": contender, "seconds_per_batch": statistics.median(seconds), "rows": rows, "checksum": sums}


def plot(results: list[dict[str, Any]], batch_rows: int, target: Path) -> None:
    """Draw seconds per micro-batch, a group of bars for each size of the table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = {"spark": "#9aa5b1", "spark-broadcast-stream": "#52606d", "semistream": "#d64545"}
    labels = {
        "spark": "Spark: stream.join(table)",
        "spark-broadcast-stream": "Spark: broadcast(stream).join(table)",
        "semistream": "semistream.enrich, 256 MB",
    }
    sizes = sorted({r["relation_rows"] for r in results})
    figure, axes = plt.subplots(figsize=(8, 3.6))
    for i, name in enumerate(CONTENDERS):
        heights = [r["seconds_per_batch"] for r in results if r["contender"] == name]
        places = [group + (i - 1) * 0.27 for group in range(len(sizes))]
        bars = axes.bar(places, heights, width=0.25, color=colours[name], label=labels[name])
        axes.bar_label(bars, [f"{height:.2g} s" for height in heights], padding=2, fontsize=9)
    axes.set_xticks(range(len(sizes)), [f"a table of {size // 1_000_000} M rows" for size in sizes])
    axes.margins(y=0.15)
    axes.set_ylabel("seconds per micro-batch")
    axes.set_title(f"Joining micro-batches of {batch_rows:,} sales, Zipf 1, two cores (less is better)", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(target, dpi=150)


def main() -> None:
    """Parse, run every contender for every size, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--relation-rows", default="1M")
    parser.add_argument("--batch-rows", type=parse_count, default="100k")
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--skew", type=float, default=1.0)
    parser.add_argument("--memory", default="256MB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--contender", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(run_one(options.contender, options.folder, options.memory)))
        return
    results = []
    for relation_rows in map(parse_count, options.relation_rows.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            write_products(Path(folder), relation_rows, options.seed)
            write_sales(Path(folder), relation_rows, options.batches, options.batch_rows, options.skew, options.seed)
            for name in CONTENDERS:
                arguments = ["--contender", name, "--folder", folder, "--memory", options.memory]
                result = run_contender(__spec__.name, arguments) | {"relation_rows": relation_rows}
                results.append(result)
                text = json.dumps(result) if options.json else _line(result)
                print(text, flush=True)
            assert len({(r["rows"], r["checksum"]) for r in results[-len(CONTENDERS) :]}) == 1, "rows differ"
    if options.plot:
        plot(results, options.batch_rows, options.plot)


def _line(result: dict[str, Any]) -> str:
    seconds = result["seconds_per_batch"]
    return f"{result['relation_rows']:>12,} rows  {result['contender']:<24}{seconds:>8.2f} s per batch"


if __name__ == "__main__":
    main()
