"""Claims of the papers as functions of what was measured.

A comparison is judged three times. Its *direction*: the winner is not behind at any point, but for what the 95 %
intervals leave open. Its *size*: where the paper states a ratio, at least `NEAR` of it was measured. Its *trend*: where
the paper says that the gain grows along the axis, it is larger at the end than at the beginning. The measured
ratio and the paper's stand beside each other in the verdict, whatever came out, with the ratios against rivals tuned by
us, which decide nothing.

Why a claim does not hold is said by whoever defined the experiment (`explain`): the numbers alone cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

from semistream.lab.experiment import Lines, Point, Verdict

NEAR = 0.8
"""A ratio counts as reproduced from this share of the paper's on."""

POINTS_AROUND_A_PEAK = 3

ROWS = "rows_per_loop"
"""What a point calls the rows of an iteration."""

Judge = Callable[[Lines], Verdict]


class NotJudged(Exception):
    """Raised by a judge who has not seen enough, with what is missing."""


def _ratio(over: Point, under: Point) -> float:
    return over.y / under.y if under.y else float("inf")


def _paired(lines: Lines, first: str, second: str) -> list[tuple[Point, Point]]:
    return list(zip(lines[first], lines[second], strict=True))


def _run_of(lines: Lines, pairs: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    """Those of which both were run: pairs that decide nothing may be missing."""
    return [pair for pair in pairs if all(label in lines for label in pair)]


def _is_behind(ahead: Point, behind: Point, larger_is_better: bool) -> bool:
    """Whether the one that should be ahead is clearly not."""
    return ahead.high < behind.low if larger_is_better else ahead.low > behind.high


def wins(
    winner: str,
    rival: str,
    *,
    paper: Mapping[float, float] | None = None,
    beside: tuple[tuple[str, str], ...] = (),
    larger_is_better: bool = True,
    except_at: tuple[float, ...] = (),
    grows: bool = False,
    difference_grows: bool = False,
    least: float = 0.0,
    explain: str = "",
) -> Judge:
    """The winner is ahead of the rival everywhere, by the stated ratios where the paper states them.

    Args:
        winner: Label of the series that should be ahead.
        rival: Label of the other.
        paper: The paper's ratios, by x.
        beside: Further pairs whose ratios are reported and decide nothing.
        larger_is_better: False for times and memory.
        except_at: Values of x of which the paper does not claim it.
        grows: Whether the ratio is larger at the end of the axis than at its beginning.
        difference_grows: The same of the difference.
        least: What the ratio is at every point where the paper says so in words: above 1 where it is "better".
        explain: Why it does not hold.
    """

    def judge(lines: Lines) -> Verdict:
        ratios = _ratios(lines, winner, rival, larger_is_better)
        if (grows or difference_grows) and len(ratios) == 1:
            raise NotJudged("whether a gain grows along the axis is not seen at one point")
        measured = {f"{winner} : {rival} at {x:g}": round(ratio, 3) for x, ratio in ratios.items()}
        for first, second in _run_of(lines, beside):
            for x, ratio in _ratios(lines, first, second, larger_is_better).items():
                measured[f"{first} : {second} at {x:g}"] = round(ratio, 3)
        behind = [
            over.x
            for over, under in _paired(lines, winner, rival)
            if over.x not in except_at and _is_behind(over, under, larger_is_better)
        ]
        stated = {x: ratio for x, ratio in (paper or {}).items() if x in ratios}
        measured |= {f"paper at {x:g}": published for x, published in stated.items()}
        short = [x for x, published in stated.items() if ratios[x] < NEAR * published]
        first_x, last_x = next(iter(ratios)), list(ratios)[-1]
        shrinks = grows and ratios[last_x] <= ratios[first_x]
        differences = [abs(over.y - under.y) for over, under in _paired(lines, winner, rival)]
        narrows = difference_grows and differences[-1] <= differences[0]
        below = [x for x, ratio in ratios.items() if x not in except_at and ratio < least]
        holds = not behind and not short and not shrinks and not narrows and not below
        shown = ", ".join(
            f"{ratios[x]:.3g} at {x:g}" + (f" (paper {stated[x]:g})" if x in stated else "")
            for x in (stated or {first_x: 0, last_x: 0})
        )
        parts = [f"{winner} : {rival} is {shown}"]
        if behind:
            parts.append(f"{winner} is behind {rival} at " + ", ".join(f"{x:g}" for x in behind))
        if below:
            parts.append(f"less than {least:g} at " + ", ".join(f"{x:g}" for x in below))
        if difference_grows:
            parts.append(
                f"the difference is {differences[0]:.3g} at {first_x:g} and {differences[-1]:.3g} at {last_x:g}"
            )
        if shrinks:
            parts.append(
                f"the gain does not grow: {ratios[first_x]:.3g} at {first_x:g}, {ratios[last_x]:.3g} at the end"
            )
        return Verdict(
            holds,
            _reason(parts, "" if holds else explain),
            measured,
            found=_at(ratios if not stated else {x: ratios[x] for x in stated}),
            published=_at(stated),
        )

    return judge


def _ratios(lines: Lines, first: str, second: str, larger_is_better: bool) -> dict[float, float]:
    """How many times better the first is, by x."""
    return {
        over.x: _ratio(over, under) if larger_is_better else _ratio(under, over)
        for over, under in _paired(lines, first, second)
    }


def _at(ratios: Mapping[float, float]) -> str:
    return ", ".join(f"{ratio:.3g} at {x:g}" for x, ratio in ratios.items())


def close(
    pairs: tuple[tuple[str, str], ...],
    within: float,
    *,
    beside: tuple[tuple[str, str], ...] = (),
    with_rows: bool = False,
    published: str = "",
    explain: str = "",
) -> Judge:
    """Each first series deviates from its second by at most `within`, at every point.

    Args:
        pairs: Labels of models and of what was measured.
        within: The largest deviation that is allowed, as a share.
        beside: Further pairs whose ratios are reported and decide nothing.
        with_rows: Report the rows of an iteration, too; they decide nothing.
        published: The paper's deviation, in words.
        explain: Why it does not hold.
    """

    def judge(lines: Lines) -> Verdict:
        measured = {
            f"{first} : {second} at {one.x:g}": round(_ratio(one, other), 4)
            for first, second in pairs
            for one, other in _paired(lines, first, second)
        }
        worst = max(abs(ratio - 1) for ratio in measured.values())
        measured["largest deviation"] = round(worst, 4)
        holds = worst <= within
        parts = [f"the largest deviation is {worst:.1%}, allowed are {within:.0%}"]
        for first, second in _run_of(lines, beside):
            for one, other in _paired(lines, first, second):
                measured[f"{first} : {second} at {one.x:g}"] = round(_ratio(one, other), 4)
        if with_rows:
            rows = {
                f"rows of an iteration, {first} : {second} at {one.x:g}": round(one.extra[ROWS] / other.extra[ROWS], 4)
                for first, second in pairs
                for one, other in _paired(lines, first, second)
            }
            measured |= rows
            parts.append(f"the rows of an iteration deviate by up to {max(abs(r - 1) for r in rows.values()):.1%}")
        found = f"{worst:.2%} off"
        return Verdict(holds, _reason(parts, "" if holds else explain), measured, found=found, published=published)

    return judge


def in_order(
    *labels: str, gap_grows: bool = False, beside: tuple[tuple[str, str], ...] = (), explain: str = ""
) -> Judge:
    """Each series is not behind the next, at any point; with `gap_grows` the first leaves the second behind."""

    def judge(lines: Lines) -> Verdict:
        verdicts = [
            wins(first, second, grows=gap_grows and first == labels[0])(lines) for first, second in pairwise(labels)
        ]
        measured = {name: ratio for verdict in verdicts for name, ratio in verdict.measured.items()}
        for first, second in _run_of(lines, beside):
            for x, ratio in _ratios(lines, first, second, larger_is_better=True).items():
                measured[f"{first} : {second} at {x:g}"] = round(ratio, 3)
        holds = all(verdict.holds for verdict in verdicts)
        broken = [verdict.reason.rstrip(".") for verdict in verdicts if not verdict.holds]
        return Verdict(
            holds,
            _reason(broken or [" ≥ ".join(labels) + " at every point"], "" if holds else explain),
            measured,
            found=f"{labels[0]} : {labels[1]} {verdicts[0].found}",
            published="all ≥ 1",
        )

    return judge


def peaks_inside(labels: tuple[str, ...], *, explain: str = "") -> Judge:
    """The highest point of the surface is at neither end, neither along x nor along the series."""

    def judge(lines: Lines) -> Verdict:
        if len(lines[labels[0]]) < POINTS_AROUND_A_PEAK:
            raise NotJudged("a peak is not seen without a point on either side")
        heights = {(label, place): point.y for label in labels for place, point in enumerate(lines[label])}
        # Of equal points the last: lines run together where a page is larger than what most of them pin.
        best_label, best_place = max(reversed(heights), key=lambda key: heights[key])
        best = lines[best_label][best_place]
        measured = {f"{label} at {point.x:g}": round(point.y, 2) for label in labels for point in lines[label]}
        inside_x = 0 < best_place < len(lines[best_label]) - 1
        inside_series = best_label not in (labels[0], labels[-1])
        holds = inside_x and inside_series
        reason = f"the best of the grid is {best_label} at {best.x:g}" + ("" if holds else ", at its edge")
        found = f"{best_label} at {best.x:g}"
        return Verdict(holds, _reason([reason], "" if holds else explain), measured, found=found, published="inside")

    return judge


def chooses_well(pairs: tuple[tuple[str, str], ...], within: float, *, explain: str = "") -> Judge:
    """The point that the models like best was measured to be within this share of the best measured point.

    Args:
        pairs: Labels of a model and of what was measured, over one grid.
        within: What may be lost by following the models.
        explain: Why it does not hold.
    """

    def judge(lines: Lines) -> Verdict:
        grid = [both for model, run in pairs for both in _paired(lines, model, run)]
        best = max(point.y for _, point in grid)
        chosen = max(grid, key=lambda both: both[0].y)[1]
        share = chosen.y / best
        holds = share >= 1 - within
        reason = f"what the model chooses serves {share:.1%} of the best that was measured; {1 - within:.0%} is asked"
        measured = {"chosen by the model : best measured": round(share, 4)}
        return Verdict(holds, _reason([reason], "" if holds else explain), measured, found=f"tuner at {share:.1%}")

    return judge


def both(first: Judge, second: Judge) -> Judge:
    """Two claims at once."""

    def judge(lines: Lines) -> Verdict:
        one, other = first(lines), second(lines)
        return Verdict(
            bool(one.holds and other.holds),
            f"{one.reason} {other.reason}",
            {**one.measured, **other.measured},
            found="; ".join(filter(None, (one.found, other.found))),
            published="; ".join(filter(None, (one.published, other.published))),
        )

    return judge


def _reason(parts: list[str], explain: str) -> str:
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in [*parts, explain] if part)
