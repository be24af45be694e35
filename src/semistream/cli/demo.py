"""`semistream demo`: the whole way from a stream of sales to a warehouse, to watch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semistream.budget import format_bytes
from semistream.demo.display import thousands

if TYPE_CHECKING:
    from rich.table import Table

    from semistream.demo.run import DemoResult


def demo(
    rows: Annotated[str, typer.Option(metavar="ROWS", help="Sales in the stream, such as 200k or 1M.")] = "1M",
    memory: Annotated[
        str, typer.Option(metavar="SIZE", help="Memory budget of the join, such as 64MB or 1GB.")
    ] = "64MB",
    products: Annotated[str, typer.Option(metavar="ROWS", help="Products in the master data.")] = "1M",
    seed: Annotated[int, typer.Option(metavar="NUMBER", min=0, help="Another seed makes another shop.")] = 42,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Where everything is put; an earlier demo there is replaced.")
    ] = Path("semistream-demo"),
    json: Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON.")] = False,
) -> None:
    """Enrich a year of sales and load them into a star schema.

    Makes a shop, indexes its products, stores and customers, lets Spark enrich a skewed and bursty stream of sales with
    all three in one pass, loads a warehouse in Parquet and asks it for the top products by month.

    \b
    Example:
      semistream demo
      semistream demo --rows 200k --memory 16MB
      semistream demo --json
    """  # noqa: D301 - typer keeps the lines behind this mark as they are
    from semistream.budget import parse_bytes
    from semistream.cli.output import parse_rows, print_json, watching
    from semistream.clock import RealClock

    sales_rows, memory_bytes, product_rows = parse_rows(rows), parse_bytes(memory), parse_rows(products)
    clock = RealClock()
    with watching(clock) as display:
        # Loading Spark and the compiled kernels is the first thing a user waits for: inside, where something moves.
        display.begin("Loading libraries")
        from semistream.demo.run import run_demo
        from semistream.lab.workloads.retail import ShopSize

        display.end("Spark, Arrow, compiled kernels")
        result = run_demo(
            sales_rows, memory_bytes, out, display=display, seed=seed, size=ShopSize(products=product_rows), clock=clock
        )
    if json:
        print_json(result.as_json())
    else:
        _print_summary(result)


def _print_summary(result: DemoResult) -> None:
    from semistream.cli.output import print_facts

    used = result.peak_bytes / result.budget_bytes
    print_facts(
        {
            "sales": f"{thousands(result.rows_in)} in, {thousands(result.rows_out)} out, "
            + ("balanced" if result.balanced else "NOT BALANCED"),
            "unknown": f"{thousands(result.unknown_products)} unknown products and {thousands(result.guests)} guests "
            "kept, under the unknown member",
            "hit rate": f"{result.hit_rate:.1%} of all lookups answered from memory",
            "memory": f"{format_bytes(result.peak_bytes)} held at most, of a budget of "
            f"{format_bytes(result.budget_bytes)} ({used:.0%})",
            "speed": f"{thousands(result.rows_per_second)} rows/s over {result.streaming_seconds:.1f} s of streaming",
            "warehouse": str(result.warehouse),
            "look at it": f'spark.read.parquet("{result.warehouse}/sales_fact")',
        },
        _top_table(result),
    )


def _top_table(result: DemoResult) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title="Top products by month", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("month", no_wrap=True)
    table.add_column("product")
    table.add_column("category")
    table.add_column("units", justify="right", no_wrap=True)
    table.add_column("revenue", justify="right", no_wrap=True)
    for product in result.top_products:
        month = product.month if product.place == 1 else ""
        table.add_row(
            month, product.product_name, product.category, thousands(product.units), thousands(float(product.revenue))
        )
    return table
