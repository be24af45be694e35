"""Tuned X-HYBRIDJOIN: how large the pinned and the swappable part of the disk buffer should be.

Fixed in the paper: R of 2 million rows of 120 bytes in the order of popularity, M of 50 to 250 MB, Zipf's exponent 1.
The published optimum for 100 MB is 1 500 pinned rows and 950 swappable ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from semistream.lab.claims import close, in_order, peaks_inside
from semistream.lab.experiment import Experiment, Series, Setting, Size
from semistream.lab.experiments.scale import ADAPTIVE, SCAN_NOTE, Scale, ends

PAPER = "Tuned X-HYBRIDJOIN for near-real-time data warehousing"

SCALES: Mapping[Size, Scale] = {
    "small": Scale(1000, page_rows=10, turns=3),
    "default": Scale(100, page_rows=20, turns=6),
    "paper": Scale(1, page_rows=950, turns=6),
}

PINNED_PAGES = {"small": 1, "default": 4, "paper": 2}
"""The non-swappable part when the swappable one varies, in pages of the scale's size: near the optimum of each size."""

TUNED = Series("Tuned X-HYBRIDJOIN", "tuned-x-hybridjoin", "tuned-pins")
PLAIN = Series("X-HYBRIDJOIN", "x-hybridjoin")
HYBRID = Series("HYBRIDJOIN", "hybridjoin")
MESH = Series("MESHJOIN", "meshjoin")
AT_OPTIMUM = Series("measured", "tuned-x-hybridjoin", "pins")
MODEL = Series("model", "tuned-x-hybridjoin", "pins", is_model=True)
SURFACE = tuple(Series(f"{pages} pinned", "tuned-x-hybridjoin", f"pinned_pages={pages}") for pages in (1, 2, 4, 8))

MODEL_NOTE = "The model sees sizes and skew only. The paper measured the w that it then put into its model."


def _setting(size: Size, *, millions: float = 2.0, megabytes: float = 100.0) -> Setting:
    scale = SCALES[size]
    return Setting(
        r_rows=scale.rows(millions),
        memory_bytes=scale.megabytes(megabytes),
        page_rows=scale.page_rows,
        pinned_pages=PINNED_PAGES[size],
        turns=scale.turns,
    )


def _swappable(size: Size, factor: float) -> Setting:
    """The swappable part so many times its usual size, and about the same rows pinned."""
    base = _setting(size)
    pinned_pages = max(1, round(base.pinned_pages / factor))
    return replace(base, page_rows=max(2, round(base.page_rows * factor)), pinned_pages=pinned_pages)


def _surface(size: Size, factor: float) -> Setting:
    base = _setting(size)
    return replace(base, page_rows=max(2, round(base.page_rows * factor)))


def _pinned(size: Size, factor: float) -> Setting:
    base = _setting(size)
    return replace(base, pinned_pages=max(1, round(base.pinned_pages * factor)))


FACTORS: Mapping[Size, tuple[float, ...]] = {
    "small": (0.5, 1.0, 2.0),
    "default": (0.25, 0.5, 1.0, 2.0, 4.0),
    "paper": (0.25, 0.5, 1.0, 2.0, 4.0),
}

ORDER_CLAIM = (TUNED.label, PLAIN.label, HYBRID.label, MESH.label)

EXPERIMENTS = (
    Experiment(
        id="tuned-3",
        paper=PAPER,
        figure="3",
        claim="The service rate over both parts of the disk buffer has its maximum inside, not at an edge",
        x_label="swappable part (times the usual page)",
        # Eight pinned pages of twice the size would be more than a small memory holds.
        values={**FACTORS, "small": (0.25, 0.5, 1.0)},
        setting=_surface,
        fixed="R = 2 million rows, M = 100 MB, skew 1",
        series=SURFACE,
        judge=peaks_inside(
            tuple(series.label for series in SURFACE),
            explain=(
                "A seek of 10 ms is worth a megabyte of reading, so a larger page costs next to nothing here until it "
                "takes the memory of the rows that wait; at reduced size pages are tiny beside that"
            ),
        ),
        note="Pinned rows are pages times the size of a page, so a line of the figure pins more rows to the right.",
    ),
    Experiment(
        id="tuned-5a",
        paper=PAPER,
        figure="5a",
        claim="Over sizes of the swappable part the model deviates by 0.5 % from the measured service rate",
        x_label="swappable part (times the usual page)",
        values=FACTORS,
        setting=_swappable,
        fixed="R = 2 million rows, M = 100 MB, skew 1, non-swappable part near its optimum",
        series=(AT_OPTIMUM, MODEL),
        judge=close(((MODEL.label, AT_OPTIMUM.label),), 0.1, explain=MODEL_NOTE),
        note=MODEL_NOTE + " Judged at 10 %.",
    ),
    Experiment(
        id="tuned-5b",
        paper=PAPER,
        figure="5b",
        claim="Over sizes of the non-swappable part the model deviates by 0.6 % from the measured service rate",
        x_label="non-swappable part (times the optimum)",
        values={**FACTORS, "small": (1.0, 2.0, 4.0)},
        setting=_pinned,
        fixed="R = 2 million rows, M = 100 MB, skew 1, swappable part at its usual size",
        series=(AT_OPTIMUM, MODEL),
        judge=close(((MODEL.label, AT_OPTIMUM.label),), 0.1, explain=MODEL_NOTE),
        note=MODEL_NOTE + " Judged at 10 %.",
    ),
    Experiment(
        id="tuned-6a",
        paper=PAPER,
        figure="6a",
        claim="For every R: Tuned X-HYBRIDJOIN ≥ X-HYBRIDJOIN ≥ HYBRIDJOIN ≥ MESHJOIN",
        x_label="R (million rows in the paper)",
        values=ends(0.5, 1.0, 2.0, 4.0, 8.0),
        setting=lambda size, x: _setting(size, millions=x, megabytes=50),
        fixed="M = 50 MB, skew 1",
        series=(TUNED, PLAIN, HYBRID, MESH, ADAPTIVE),
        judge=in_order(*ORDER_CLAIM, explain=SCAN_NOTE),
        note="Tuned pins as many pages as its model finds best; the swappable part is one page for all.",
    ),
    Experiment(
        id="tuned-6b",
        paper=PAPER,
        figure="6b",
        claim="For every M: Tuned X-HYBRIDJOIN ≥ X-HYBRIDJOIN ≥ HYBRIDJOIN ≥ MESHJOIN, and the gap widens with M",
        x_label="M (MB in the paper)",
        values=ends(50.0, 100.0, 150.0, 200.0, 250.0),
        setting=lambda size, x: _setting(size, megabytes=x),
        fixed="R = 2 million rows, skew 1",
        series=(TUNED, PLAIN, HYBRID, MESH, ADAPTIVE),
        judge=in_order(*ORDER_CLAIM, explain=SCAN_NOTE),
        note="Tuned pins as many pages as its model finds best; the swappable part is one page for all.",
    ),
)
