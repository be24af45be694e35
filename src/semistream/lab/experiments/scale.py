"""How the papers' sizes are scaled down, and what is said about it beside every figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from semistream.lab.experiment import Series, Setting, Size

MB = 1_000_000

PUBLISHED_CACHE_ROWS = 2500
"""H_R of CACHEJOIN's prototype, at any memory."""

ADAPTIVE = Series("adaptive (ours)", "adaptive")

SCAN_NOTE = (
    "The metered disk charges no seek to a scan that goes on where it ended; in the paper every segment was a query. "
    "Scans therefore look far better here, and the more so the smaller R is, because a scan shrinks with R and a seek "
    "does not"
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
            cached_rows=self.published_cache_rows,
            turns=self.turns,
        )

    @property
    def published_cache_rows(self) -> int:
        """The fixed cache of the rivals, scaled like everything else."""
        return max(2, round(PUBLISHED_CACHE_ROWS / self.factor))


def ends(*values: float) -> Mapping[Size, tuple[float, ...]]:
    """All values for a figure, the first and the last for a quick look."""
    return {"small": (values[0], values[-1]), "default": values, "paper": values}
