"""Claims about a surface: one value for every point of every series, of which some are the highest.

The tuner's figure has such a surface, and two questions: whether its highest point lies inside, and whether the point
that a model likes best is about as high as the highest.
"""

from __future__ import annotations

import math

from semistream.lab.claims import Explain, Judge, NotJudged, Pairs, explained, paired, sentences
from semistream.lab.experiment import Lines, Verdict

POINTS_AROUND_A_PEAK = 3


def peaks_inside(labels: tuple[str, ...], *, explain: Explain = "") -> Judge:
    """The highest point of the surface is at neither end, neither along x nor along the series."""

    def judge(lines: Lines) -> Verdict:
        if len(lines[labels[0]]) < POINTS_AROUND_A_PEAK:
            raise NotJudged("a peak is not seen without a point on either side")
        heights = {(label, place): point.y for label in labels for place, point in enumerate(lines[label])}
        # Of equal points the last: lines run together where a page is larger than what most of them pin.
        best_label, best_place = max(reversed(heights), key=lambda key: heights[key])
        _check_heights(list(heights.values()))
        best = lines[best_label][best_place]
        measured = {f"{label} at {point.x:g}": round(point.y, 2) for label in labels for point in lines[label]}
        inside_x = 0 < best_place < len(lines[best_label]) - 1
        inside_series = best_label not in (labels[0], labels[-1])
        holds = inside_x and inside_series
        reason = f"the best of the grid is {best_label} at {best.x:g}" + ("" if holds else ", at its edge")
        found = f"{best_label} at {best.x:g}"
        reason = sentences([reason, explained(explain, lines, holds)])
        return Verdict(holds, reason, measured, found=found, published="inside")

    return judge


def _check_heights(heights: list[float]) -> None:
    """Heights have a highest that others can be compared with, or nothing is judged."""
    if not all(map(math.isfinite, heights)) or max(heights) <= 0:
        shown = ", ".join(f"{height:.3g}" for height in heights)
        raise NotJudged(f"there is no highest point to compare the others with among {shown}")


def chooses_well(pairs: Pairs, within: float, *, explain: Explain = "") -> Judge:
    """The point that the models like best was measured to be within this share of the best measured point.

    Args:
        pairs: Labels of a model and of what was measured, over one grid.
        within: What may be lost by following the models.
        explain: Why it does not hold.
    """

    def judge(lines: Lines) -> Verdict:
        grid = [both for model, run in pairs for both in paired(lines, model, run)]
        _check_heights([point.y for _, point in grid])
        best = max(point.y for _, point in grid)
        chosen = max(grid, key=lambda both: both[0].y)[1]
        share = chosen.y / best
        holds = share >= 1 - within
        reason = f"what the model chooses serves {share:.1%} of the best that was measured; {1 - within:.0%} is asked"
        measured = {"chosen by the model : best measured": round(share, 4)}
        reason = sentences([reason, explained(explain, lines, holds)])
        return Verdict(holds, reason, measured, found=f"tuner at {share:.1%}")

    return judge
