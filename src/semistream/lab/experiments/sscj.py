"""SSCJ against HYBRIDJOIN, MESHJOIN and R-MESHJOIN: what a cache in front of the join is worth.

Fixed in the paper: R up to 100 million rows of 120 bytes, M from 1 to 10 % of R, stream rows of 20 bytes. How large
the cache was is not stated; here its model finds the best size.
"""

from __future__ import annotations

from dataclasses import replace

from semistream.lab.claims import both, close, wins
from semistream.lab.experiment import Experiment, Series, Setting, Size
from semistream.lab.experiments.moij import ALL_MB, PER_CENT, SCALES
from semistream.lab.experiments.scale import ADAPTIVE, SCAN_NOTE, ends

PAPER = "SSCJ: a semi-stream cache join using a front-stage cache module"

SSCJ = Series("SSCJ", "sscj", "tuned")
HYBRID = Series("HYBRIDJOIN", "hybridjoin")
MESH = Series("MESHJOIN", "meshjoin")
R_MESH = Series("R-MESHJOIN", "r-meshjoin")
SERIES = (SSCJ, HYBRID, MESH, R_MESH, ADAPTIVE)
BESIDE = ((SSCJ.label, MESH.label),)

EXPLAIN = (
    "A cache answers the hits and takes memory from the rows that wait. A waiting row takes some 60 bytes here and 204 "
    "in the prototype, so HYBRIDJOIN lets more rows share a read, and with R in the order of popularity one read of "
    "the first pages serves most of the hits already; --memory-model jvm charges rows as the prototype did"
)


def _share(size: Size, percent: float) -> Setting:
    return SCALES[size].setting(millions=100, megabytes=100 * 120 * percent / 100)


def _tpch(size: Size, percent: float) -> Setting:
    scale, row_bytes = SCALES[size], 223
    rows = scale.rows(20 if size == "paper" else 100)
    return Setting(
        r_rows=rows,
        memory_bytes=round(rows * row_bytes * percent / 100),
        page_rows=scale.page_rows,
        skew=0.0,
        row_bytes=row_bytes,
        stream_row_bytes=138,
        data="customer-orders",
        cached_rows=scale.published_cache_rows,
        turns=scale.turns,
    )


def _weather(size: Size, percent: float) -> Setting:
    base = _tpch(size, percent)
    rows_per_key = max(4, base.r_rows // 50_000)
    memory_bytes = round(base.r_rows * 128 * percent / 100)
    return replace(
        base, row_bytes=128, stream_row_bytes=128, data="weather", rows_per_key=rows_per_key, memory_bytes=memory_bytes
    )


def _arriving(size: Size, share: float) -> Setting:
    """Rows that arrive at so many times a rate that HYBRIDJOIN can just not serve."""
    scale = SCALES[size]
    base = _share(size, 10)
    return replace(base, arrival_rows_per_s=share * 60 * scale.page_rows)


EXPERIMENTS = (
    Experiment(
        id="sscj-4a",
        paper=PAPER,
        figure="4a",
        claim="SSCJ serves 3 times the rate of HYBRIDJOIN with 1 % of R in memory and 4.5 times with 10 %",
        x_label="M (% of R)",
        values=PER_CENT,
        setting=_share,
        fixed="R = 100 million rows, skew 1",
        series=SERIES,
        judge=wins(SSCJ.label, HYBRID.label, paper={1: 3.0, 10: 4.5}, beside=BESIDE, explain=EXPLAIN),
        note=SCAN_NOTE + ".",
    ),
    Experiment(
        id="sscj-4b",
        paper=PAPER,
        figure="4b",
        claim="SSCJ serves up to 3 times the rate of HYBRIDJOIN, for every R",
        x_label="R (million rows in the paper)",
        values=ends(20.0, 60.0, 100.0),
        setting=lambda size, x: SCALES[size].setting(millions=x, megabytes=ALL_MB),
        fixed="M = 1.12 GB, skew 1",
        series=SERIES,
        judge=wins(SSCJ.label, HYBRID.label, paper={100: 3.0}, beside=BESIDE, explain=EXPLAIN),
        note=SCAN_NOTE + ".",
    ),
    Experiment(
        id="sscj-4c",
        paper=PAPER,
        figure="4c",
        claim="At skew 1 SSCJ serves about 3 times the rate of HYBRIDJOIN; at skew 0 it is slightly below MESHJOIN",
        x_label="skew (Zipf's exponent)",
        values=ends(0.0, 0.5, 0.75, 1.0),
        setting=lambda size, x: SCALES[size].setting(millions=100, megabytes=ALL_MB, skew=x),
        fixed="R = 100 million rows, M = 10 % of R",
        series=SERIES,
        judge=wins(SSCJ.label, HYBRID.label, paper={1: 3.0}, beside=BESIDE, except_at=(0.0,), explain=EXPLAIN),
        note=SCAN_NOTE + ".",
    ),
    Experiment(
        id="sscj-4d",
        paper=PAPER,
        figure="4d",
        claim="On TPC-H, customers with orders, SSCJ is remarkably better than HYBRIDJOIN and MESHJOIN",
        x_label="M (% of R)",
        values=PER_CENT,
        setting=_tpch,
        fixed="the keys of customer and orders; rows of 223 and 138 bytes",
        series=SERIES,
        judge=both(
            wins(
                SSCJ.label,
                HYBRID.label,
                explain=(
                    "Orders ask evenly for two of three customers, so no row is worth remembering: a cache only takes "
                    "memory from the rows that wait, and the paper's gain cannot come from these keys"
                ),
            ),
            wins(SSCJ.label, MESH.label, explain=SCAN_NOTE),
        ),
        note="Only the key law of TPC-H is used; texts do not matter to a join.",
    ),
    Experiment(
        id="sscj-4e",
        paper=PAPER,
        figure="4e",
        claim="On weather reports joined by longitude, SSCJ is remarkably better than HYBRIDJOIN and MESHJOIN",
        x_label="M (% of R)",
        values=PER_CENT,
        setting=_weather,
        fixed="NDP-026B-like invented stations, rows of 128 bytes",
        series=(Series("SSCJ", "sscj"), HYBRID, MESH, ADAPTIVE),
        judge=both(
            wins(
                SSCJ.label,
                HYBRID.label,
                explain=(
                    "Stations stand unevenly over longitudes, but far less so than Zipf's law, and a longitude has "
                    "many rows, so a cache answers few stream rows for the memory it takes"
                ),
            ),
            wins(SSCJ.label, MESH.label, explain=SCAN_NOTE),
        ),
        note=(
            "The paper's join is one to many, longitudes repeat in R: all rows of a key are joined here. Every "
            "longitude has the mean number of rows; R has more longitudes and fewer rows of each."
        ),
    ),
    Experiment(
        id="sscj-5a",
        paper=PAPER,
        figure="5a",
        claim="A row spends much less time in SSCJ than in HYBRIDJOIN, for every R",
        x_label="R (million rows in the paper)",
        values=ends(20.0, 60.0, 100.0),
        setting=lambda size, x: SCALES[size].setting(millions=x, megabytes=ALL_MB),
        fixed="M = 1.12 GB, skew 1, a stream without pauses",
        series=(SSCJ, HYBRID, MESH, R_MESH),
        judge=wins(
            SSCJ.label, HYBRID.label, larger_is_better=False, beside=((SSCJ.label, MESH.label),), explain=EXPLAIN
        ),
        measure="processing",
        note="From admission to the last pair, mean over rows, H_S full. " + SCAN_NOTE + ".",
    ),
    Experiment(
        id="sscj-5b",
        paper=PAPER,
        figure="5b",
        claim="A row waits much less for admission to SSCJ than to HYBRIDJOIN, at every arrival rate",
        x_label="arrival rate (times one that HYBRIDJOIN can about serve)",
        values=ends(0.5, 1.0, 2.0, 4.0),
        setting=_arriving,
        fixed="R = 100 million rows, M = 10 % of R, skew 1, constant arrivals",
        series=(SSCJ, HYBRID),
        judge=wins(SSCJ.label, HYBRID.label, larger_is_better=False, explain=EXPLAIN),
        measure="waiting",
        note=(
            "Time in the stream buffer, mean over rows; above the service rate it grows for as long as one looks. "
            "MESHJOIN and R-MESHJOIN are left out: their scan never rests, which takes long to simulate."
        ),
    ),
    Experiment(
        id="sscj-6",
        paper=PAPER,
        figure="6",
        claim="The cost of an iteration by the models is close to the measured cost, for every algorithm",
        x_label="M (% of R)",
        values=PER_CENT,
        setting=_share,
        fixed="R = 100 million rows, skew 1 (the paper does not give its setting)",
        series=(
            SSCJ,
            Series("SSCJ model", "sscj", "tuned", is_model=True),
            HYBRID,
            Series("HYBRIDJOIN model", "hybridjoin", is_model=True),
            MESH,
            Series("MESHJOIN model", "meshjoin", is_model=True),
        ),
        judge=close(
            (("SSCJ model", SSCJ.label), ("HYBRIDJOIN model", HYBRID.label), ("MESHJOIN model", MESH.label)), 0.1
        ),
        measure="loop",
        note="On this disk the seek is nearly all of an index join's loop, so look at rows_per_loop, too.",
    ),
)
