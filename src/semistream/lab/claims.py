"""Claims of the papers as functions of what was measured.

A comparison is judged twice. Its *direction*: the winner is not behind at any point, but for what the 95 % intervals
leave open. Its *size*: where the paper states a ratio, at least `NEAR` of it was measured. Both must hold. The measured
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

Judge = Callable[[Lines], Verdict]


def _ratio(over: Point, under: Point) -> float:
    return over.y / under.y if under.y else float("inf")


def _paired(lines: Lines, first: str, second: str) -> list[tuple[Point, Point]]:
    return list(zip(lines[first], lines[second], strict=True))


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
    explain: str = "",
) -> Judge:
    """The winner is ahead of the rival everywhere, by the stated ratios where the paper states them."""

    def judge(lines: Lines) -> Verdict:
        measured: dict[str, float] = {}
        for first, second in ((winner, rival), *beside):
            for over, under in _paired(lines, first, second):
                pair = (over, under) if larger_is_better else (under, over)
                measured[f"{first} : {second} at {over.x:g}"] = round(_ratio(*pair), 3)
        behind = [
            over.x
            for over, under in _paired(lines, winner, rival)
            if over.x not in except_at and _is_behind(over, under, larger_is_better)
        ]
        short, stated = [], []
        for x, published in (paper or {}).items():
            got = measured.get(f"{winner} : {rival} at {x:g}")
            if got is not None:
                measured[f"paper at {x:g}"] = published
                stated.append(f"{got:g} at {x:g} (paper {published:g})")
                short += [x] if got < NEAR * published else []
        holds = not behind and not short
        parts = [f"{winner} : {rival} is " + ", ".join(stated)] if stated else []
        if behind:
            parts.append(f"{winner} is behind {rival} at " + ", ".join(f"{x:g}" for x in behind))
        elif not stated:
            parts.append(f"{winner} is not behind {rival} anywhere")
        return Verdict(holds, _reason(parts, "" if holds else explain), measured)

    return judge


def close(pairs: tuple[tuple[str, str], ...], within: float, *, explain: str = "") -> Judge:
    """Each first series deviates from its second by at most `within`, at every point."""

    def judge(lines: Lines) -> Verdict:
        measured = {
            f"{first} : {second} at {one.x:g}": round(_ratio(one, other), 4)
            for first, second in pairs
            for one, other in _paired(lines, first, second)
        }
        worst = max(abs(ratio - 1) for ratio in measured.values())
        measured["largest deviation"] = round(worst, 4)
        holds = worst <= within
        reason = f"the largest deviation is {worst:.1%}, allowed are {within:.0%}"
        return Verdict(holds, _reason([reason], "" if holds else explain), measured)

    return judge


def in_order(*labels: str, explain: str = "") -> Judge:
    """Each series is not behind the next, at any point."""

    def judge(lines: Lines) -> Verdict:
        verdicts = [wins(first, second)(lines) for first, second in pairwise(labels)]
        measured = {name: ratio for verdict in verdicts for name, ratio in verdict.measured.items()}
        holds = all(verdict.holds for verdict in verdicts)
        broken = [verdict.reason.rstrip(".") for verdict in verdicts if not verdict.holds]
        return Verdict(
            holds, _reason(broken or [" ≥ ".join(labels) + " at every point"], "" if holds else explain), measured
        )

    return judge


def peaks_inside(labels: tuple[str, ...], *, explain: str = "") -> Judge:
    """The highest point of the surface is at neither end, neither along x nor along the series."""

    def judge(lines: Lines) -> Verdict:
        heights = {(label, place): point.y for label in labels for place, point in enumerate(lines[label])}
        best_label, best_place = max(heights, key=lambda key: heights[key])
        best = lines[best_label][best_place]
        measured = {f"{label} at {point.x:g}": round(point.y, 2) for label in labels for point in lines[label]}
        inside_x = 0 < best_place < len(lines[best_label]) - 1
        inside_series = best_label not in (labels[0], labels[-1])
        holds = inside_x and inside_series
        reason = f"the best of the grid is {best_label} at {best.x:g}" + ("" if holds else ", at its edge")
        return Verdict(holds, _reason([reason], "" if holds else explain), measured)

    return judge


def both(first: Judge, second: Judge) -> Judge:
    """Two claims at once."""

    def judge(lines: Lines) -> Verdict:
        one, other = first(lines), second(lines)
        return Verdict(one.holds and other.holds, f"{one.reason} {other.reason}", {**one.measured, **other.measured})

    return judge


def _reason(parts: list[str], explain: str) -> str:
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in [*parts, explain] if part)
