"""How the papers' sizes are scaled down, and what is said about it beside every figure.

Rows of R and bytes of M are divided by one factor. The rivals' cache of fixed size is not: what it is worth depends on
the *share of the stream* that its rows answer, and by Zipf's law that share falls with the logarithm of R, not with R.
2 500 rows of 2 million answer 56 % of a stream; a hundredth of both, 25 of 20 000, only 36 %. So the scaled cache has
as many rows as answer the same share, and a rival is not made weaker by scaling.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from semistream.lab.experiment import Series, Setting, Size

MB = 1_000_000

PUBLISHED_CACHE_ROWS = 2500
"""H_R of CACHEJOIN's prototype, at any memory."""

EULER = 0.5772
"""The first n terms of Zipf's law with exponent 1 add up to about ln n + this."""

ADAPTIVE = Series("adaptive (ours)", "adaptive")
QUERIED_MESH = Series("MESHJOIN, a query a segment", "meshjoin", queries_segments=True)
MESH_TUNED = Series("MESHJOIN tuned", "meshjoin", tunes_page=True)
QUERIED_MESH_TUNED = Series("MESHJOIN tuned, a query a segment", "meshjoin", queries_segments=True, tunes_page=True)
HYBRID_TUNED = Series("HYBRIDJOIN tuned", "hybridjoin", tunes_page=True)
QUERIED_R_MESH = Series("R-MESHJOIN, a query a segment", "r-meshjoin", queries_segments=True)

SCAN_NOTE = (
    "The metered disk charges no seek to a scan that goes on where it ended; in the papers' prototypes every segment "
    "was a query. The series with a query a segment pay a seek for each, as published"
)

PAGE_NOTE = (
    "Claims are judged with one page for all. Dotted series have R in pages of the size that their models find best on "
    "this disk, and what else they let be chosen is chosen for it; the ratios against these stand in what was measured "
    "and decide nothing"
)


@dataclass(frozen=True, slots=True)
class Scale:
    """A size of a paper's experiments."""

    factor: int
    """What rows of R and bytes of M are divided by."""
    page_rows: int
    turns: float
    """Length of the stream, in rows that fit into M."""

    def rows(self, millions: float) -> int:
        """Rows of R for so many millions of the paper's."""
        return max(100, round(millions * 1_000_000 / self.factor))

    def megabytes(self, megabytes: float) -> int:
        """Bytes of M for so many MB of the paper's."""
        return round(megabytes * MB / self.factor)

    def setting(self, *, millions: float, megabytes: float, skew: float = 1.0) -> Setting:
        """A setting of the paper's, scaled."""
        return Setting(
            r_rows=self.rows(millions),
            memory_bytes=self.megabytes(megabytes),
            page_rows=self.page_rows,
            skew=skew,
            cached_rows=self.published_cache_rows(millions),
            turns=self.turns,
        )

    def published_cache_rows(self, millions: float) -> int:
        """As many rows as answer the share of the stream that the rivals' fixed cache answers, at skew 1.

        Example:
            >>> Scale(1, page_rows=500, turns=6).published_cache_rows(2)
            2500
        """
        share = (math.log(PUBLISHED_CACHE_ROWS) + EULER) / (math.log(millions * 1_000_000) + EULER)
        return max(2, round(math.exp(share * (math.log(self.rows(millions)) + EULER) - EULER)))


def ends(*values: float) -> Mapping[Size, tuple[float, ...]]:
    """All values for a figure, the first and the last for a quick look."""
    return {"small": (values[0], values[-1]), "default": values, "paper": values}
