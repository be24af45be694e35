"""Why a claim does not hold, found in what a run has counted."""

from __future__ import annotations

from collections.abc import Callable

from semistream.lab.claims import ROWS
from semistream.lab.experiment import Lines


def serving(*labels: str, so: str = "") -> Callable[[Lines], str]:
    """Explain rates by the rows that an iteration of each series serves, where these were counted.

    Args:
        labels: Series that read one page in an iteration.
        so: What else is true of every run.
    """

    def explain(lines: Lines) -> str:
        counted = [label for label in labels if label in lines and all(ROWS in point.extra for point in lines[label])]
        if not counted:
            return so
        told = "; ".join(
            ", ".join(f"{label} {point.extra[ROWS]:.3g}" for label, point in zip(counted, points, strict=True))
            + f" at {points[0].x:g}"
            for points in zip(*(lines[label] for label in counted), strict=True)
        )
        rows = f"An iteration reads one page, so the rate follows the rows that it serves: {told}"
        return f"{rows}. {so}" if so else rows

    return explain
