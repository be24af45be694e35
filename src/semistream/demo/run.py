"""The demo from end to end: make a shop, index its master data, stream its sales into a warehouse, ask it.

Every number is counted where it arises and compared at the end. *Balanced* means four independent counts agree: the
sales written to the stream, the rows Spark says it read, the rows the join says it answered (with exactly the unknown
articles and guests that the generator put in), and the rows found in the fact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

import semistream as ss
from semistream.budget import format_bytes, parse_bytes
from semistream.clock import Clock, RealClock
from semistream.demo import warehouse
from semistream.demo.display import Display, Silent, StreamView, thousands
from semistream.demo.progress import progress_from
from semistream.demo.session import check_java, quiet_spark
from semistream.demo.tally import METRICS, StreamTally
from semistream.demo.warehouse import TopProduct
from semistream.demo.workspace import Workspace
from semistream.errors import SemistreamError
from semistream.lab.workloads import retail
from semistream.lab.workloads.retail import SalesWritten, Shop, ShopSize

BURSTS = 12
"""One a month: enough to watch, and few enough that Spark's cost per micro-batch does not rule the demo."""

CORES = 2

TOP_PLACES = 2

POLL_S = 0.2
"""Seconds between two looks at the query: often enough for a display, too seldom to cost anything."""


@dataclass(frozen=True, slots=True)
class Master:
    """One table of master data, its relation and its dimension."""

    name: str
    batches: Callable[[Shop], Iterator[pa.RecordBatch]]
    natural_key: str
    surrogate_key: str
    dimension: str
    measures: tuple[str, ...] = ()
    """Columns the fact wants beside the surrogate key."""

    @property
    def wanted_columns(self) -> list[str]:
        """What enrichment adds to a sale."""
        return [self.surrogate_key, *self.measures]


MASTERS = (
    Master("products", retail.product_batches, "product_id", "product_key", "product_dim", ("unit_cost",)),
    Master("stores", retail.store_batches, "store_id", "store_key", "store_dim"),
    Master("customers", retail.customer_batches, "customer_id", "customer_key", "customer_dim"),
)


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What the demo counted."""

    rows_in: int
    """Sales that Spark read from the stream."""
    rows_out: int
    """Rows found in the fact."""
    balanced: bool
    """All counts of the same rows agree; see the module."""
    hit_rate: float
    """Share of the lookups that were answered from memory."""
    budget_bytes: int
    peak_bytes: int
    """Most bytes that were ever held against the budget."""
    rows_per_second: float
    """Rows over the seconds of the streaming part: from the start of the query to its end."""
    streaming_seconds: float
    total_seconds: float
    batches: int
    unknown_products: int
    guests: int
    warehouse: Path
    top_products: tuple[TopProduct, ...]

    def as_json(self) -> dict[str, object]:
        """The same as plain JSON values."""
        fields = {name: value for name, value in asdict(self).items() if name not in ("warehouse", "top_products")}
        top = [{**asdict(product), "revenue": float(product.revenue)} for product in self.top_products]
        return {**fields, "warehouse": str(self.warehouse), "top_products": top}


def run_demo(
    rows: int,
    memory: str | int,
    workspace: str | Path,
    *,
    display: Display | None = None,
    seed: int = 42,
    size: ShopSize | None = None,
    clock: Clock | None = None,
) -> DemoResult:
    """Run the demo in a directory of its own and return what it counted.

    Starts a Spark of its own and ends it, so it cannot run beside another Spark in the same process, nor outside the
    main thread.

    Args:
        rows: Sales in the stream.
        memory: Budget of the join, in bytes or such as "64MB".
        workspace: Directory for everything that is written; an earlier demo in it is replaced.
        display: Who watches; nobody unless given.
        seed: Another seed makes another shop.
        size: Rows of the master data.
        clock: What seconds are measured with.
    """
    run = _Run(Workspace(Path(workspace).resolve()), parse_bytes(memory), display or Silent(), clock or RealClock())
    return run.whole(Shop(size or ShopSize(), seed), rows)


class _Run:
    """One run on its way; the methods stand in the order in which they are called."""

    def __init__(self, places: Workspace, budget_bytes: int, display: Display, clock: Clock) -> None:
        self._places = places
        self._budget_bytes = budget_bytes
        self._display = display
        self._clock = clock

    def whole(self, shop: Shop, rows: int) -> DemoResult:
        """Everything, from an empty directory to the answer."""
        started_s = self._clock.now_s()
        check_java()  # now, rather than after half the work
        self._places.prepare()
        written = self._make_data(shop, rows)
        for master in MASTERS:
            self._index(master)
        self._display.begin("Starting Spark")
        # Spark forgets old progress reports, and the tally needs all of them; one batch more may be empty.
        settings = {"spark.sql.streaming.numRecentProgressUpdates": str(written.bursts + 1)}
        with quiet_spark(self._places.spark_log, cores=CORES, settings=settings) as spark:
            self._display.end(f"Spark {spark.version}, {CORES} cores")
            tally, streaming_seconds = self._load_fact(spark, written)
            self._load_dimensions()
            rows_out, top = self._ask(spark)
        agreed = (
            tally.balanced
            and written.rows == tally.rows_read == rows_out
            and written.unknown_products == tally.count("products", "unmatched")
            and written.guests == tally.count("customers", "null_keys")
        )
        return DemoResult(
            rows_in=tally.rows_read,
            rows_out=rows_out,
            balanced=agreed,
            hit_rate=round(tally.hit_rate or 0.0, 4),
            budget_bytes=self._budget_bytes,
            peak_bytes=tally.peak_bytes,
            rows_per_second=round(tally.rows_read / streaming_seconds, 1),
            streaming_seconds=round(streaming_seconds, 3),
            total_seconds=round(self._clock.now_s() - started_s, 3),
            batches=tally.batches,
            unknown_products=written.unknown_products,
            guests=written.guests,
            warehouse=self._places.warehouse,
            top_products=top,
        )

    def _make_data(self, shop: Shop, rows: int) -> SalesWritten:
        self._display.begin("Making a shop and its sales")
        master_rows = 0
        for master in MASTERS:
            master_rows += retail.write_parquet(master.batches(shop), self._places.source(master.name))
        written = retail.write_sales(shop, rows, BURSTS, self._places.stream)
        self._display.end(f"{thousands(master_rows)} rows and {thousands(rows)} sales")
        return written

    def _index(self, master: Master) -> None:
        self._display.begin(f"Indexing {master.name}")
        report = ss.build_relation(
            self._places.source(master.name),
            key=master.natural_key,
            out=self._places.relation(master.name),
            unique=True,
            on_progress=lambda progress: self._display.advance(progress.phase, progress.rows_done, progress.rows_total),
        )
        self._display.end(f"{thousands(report.row_count)} rows, {format_bytes(report.bytes_written)} on disk")

    def _load_fact(self, spark: SparkSession, written: SalesWritten) -> tuple[StreamTally, float]:
        """Stream all sales into the fact; return what was counted, and the seconds from start to end."""
        self._display.begin("Streaming sales into the warehouse")
        sales = (
            spark.readStream.schema(from_arrow_schema(retail.SALES_SCHEMA))
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self._places.stream))
        )
        rows = warehouse.fact_rows(self._enriched(sales))
        tally = StreamTally([master.name for master in MASTERS])
        started_s = self._clock.now_s()
        query = warehouse.start_loading(rows, self._places.table("sales_fact"), self._places.checkpoint)
        try:
            while not query.awaitTermination(POLL_S):  # type: ignore[arg-type]  # takes fractions, says int
                self._follow(query, tally, written, self._clock.now_s() - started_s)
        except StreamingQueryException as error:
            raise SemistreamError(
                "the stream failed", given=str(error).splitlines()[0], hint=f"read {self._places.spark_log}"
            ) from error
        finally:
            query.stop()
        seconds = self._clock.now_s() - started_s
        self._follow(query, tally, written, seconds)
        self._display.end(f"{thousands(tally.rows_read)} sales in {tally.batches} batches")
        return tally, seconds

    def _enriched(self, sales: DataFrame) -> DataFrame:
        """Give each sale its surrogate keys and its cost; whatever is unknown points to the unknown member."""
        lookups = [
            ss.relation(
                str(self._places.relation(master.name)), key=master.natural_key, columns=master.wanted_columns
            ).on(master.natural_key)
            for master in MASTERS
        ]
        defaults = {master.surrogate_key: warehouse.UNKNOWN_KEY for master in MASTERS}
        return ss.enrich(sales, lookups, memory=self._budget_bytes, on_miss="default", defaults=defaults, name=METRICS)

    def _follow(self, query: StreamingQuery, tally: StreamTally, written: SalesWritten, seconds: float) -> None:
        """Take in the progress reports that came since the last look."""
        for progress in progress_from(query, tally.next_batch):
            if tally.see(progress):
                self._display.stream(
                    StreamView(
                        batches=tally.batches,
                        batches_total=written.bursts,
                        rows=tally.rows_read,
                        rows_total=written.rows,
                        rows_per_second=tally.rows_read / seconds,
                        hit_rate=tally.hit_rate,
                        held_bytes=tally.held_bytes,
                        budget_bytes=self._budget_bytes,
                    )
                )

    def _load_dimensions(self) -> None:
        self._display.begin("Loading the dimensions")
        rows = warehouse.write_date_dimension(self._places.table("date_dim"), retail.YEAR)
        for master in MASTERS:
            rows += warehouse.write_dimension(
                self._places.source(master.name), self._places.table(master.dimension), master.surrogate_key
            )
        self._display.end(f"{thousands(rows)} rows in {len(MASTERS) + 1} tables")

    def _ask(self, spark: SparkSession) -> tuple[int, tuple[TopProduct, ...]]:
        self._display.begin("Asking the warehouse")
        warehouse.open_warehouse(spark, self._places.warehouse)
        rows_out = warehouse.count_sales(spark)
        top = tuple(warehouse.top_products(spark, TOP_PLACES))
        self._display.end(f"{thousands(rows_out)} rows in the fact")
        return rows_out, top
