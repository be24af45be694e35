"""Claims of the papers as functions of what was measured.

A comparison is judged three times. Its *direction*: the winner is not behind at any point, but for what the 95 %
intervals leave open. Its *size*: where the paper states a ratio, at least `NEAR` of it was measured, and where it says
that the ratio is *about* this, at most as much more. Its *trend*: where the paper says that the gain grows along the
axis, it is larger at the end than at the beginning. Two that the paper calls *equal*, and one that is *slightly below*
another, are judged from both sides, too (`is_within`). The measured ratio and the paper's stand beside each other in
the verdict, whatever came out, with the ratios against rivals tuned by us, which decide nothing.

Where neither of two has a number there is no ratio: no claim is judged by it, whatever else was measured.

Why a claim does not hold is said by whoever defined the experiment (`explain`): the numbers alone cannot tell. A text
must be true of every run, at every size and on every disk; what is true of one alone is found in what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise

from semistream.lab.experiment import Lines, Point, Verdict

NEAR = 0.8
"""A ratio counts as reproduced from this share of the paper's on; "about" a ratio is at most one over this times it."""

EQUAL = (0.9, 1 / 0.9)
"""Ratios of two that are equal: "very close", of models, is a tenth as well."""

SLIGHTLY_BELOW = (NEAR, 1.0)
"""Ratios of one that is slightly below the other."""

ROWS = "rows_per_loop"
"""What a point calls the rows of an iteration."""

AT_FLOOR = "at_floor"
"""What a point of memory for a rate has where every memory in which the join can run was enough."""

Judge = Callable[[Lines], Verdict]

Explain = str | Callable[[Lines], str]
"""Why a claim does not hold: words that are true of every run, or what finds them in the lines of one."""

Pairs = tuple[tuple[str, str], ...]
"""Labels of two series whose ratio is meant."""


class NotJudged(Exception):
    """Raised by a judge who has not seen enough, with what is missing."""


def _ratio(over: float, under: float) -> float:
    """How many times as much; NaN where neither is a number: two nothings and two infinities have no ratio."""
    if under:
        return over / under
    return math.inf if over > 0 else math.nan


def paired(lines: Lines, first: str, second: str) -> list[tuple[Point, Point]]:
    """The points of two series, those at one x together."""
    return list(zip(lines[first], lines[second], strict=True))


def _is_behind(ahead: Point, behind: Point, larger_is_better: bool) -> bool:
    """Whether the one that should be ahead is clearly not."""
    return ahead.high < behind.low if larger_is_better else ahead.low > behind.high


def _ratios(lines: Lines, first: str, second: str, larger_is_better: bool) -> dict[float, float]:
    """How many times better the first is, by x."""
    return {
        over.x: _ratio(over.y, under.y) if larger_is_better else _ratio(under.y, over.y)
        for over, under in paired(lines, first, second)
    }


def _judged_ratios(lines: Lines, first: str, second: str, larger_is_better: bool = True) -> dict[float, float]:
    """The ratios by which a claim is judged: there is one at every point, or nothing is judged."""
    ratios = _ratios(lines, first, second, larger_is_better)
    for one, other in paired(lines, first, second):
        if one.extra.get(AT_FLOOR) and other.extra.get(AT_FLOOR):
            raise NotJudged(f"at {one.x:g} both {first} and {second} need no more than what they can run in at all")
        if math.isnan(ratios[one.x]):
            states = " and ".join(
                f"{label} {_state(point.y, larger_is_better)}" for label, point in ((first, one), (second, other))
            )
            raise NotJudged(f"there is nothing to compare at {one.x:g}, where {states}")
    return ratios


def _state(y: float, larger_is_better: bool) -> str:
    if math.isinf(y):
        # Of what should be small only memory can be infinite.
        return "is too fast to be timed" if larger_is_better else "needs more memory than R has bytes"
    if math.isnan(y):
        return "was not measured"
    return "serves no row in so little memory" if y == 0 and larger_is_better else f"is {y:.3g}"


def _beside(lines: Lines, pairs: Pairs, larger_is_better: bool = True) -> dict[tuple[str, str], dict[float, float]]:
    """Ratios that decide nothing, of the pairs of which both were run."""
    return {pair: _ratios(lines, *pair, larger_is_better) for pair in pairs if all(label in lines for label in pair)}


def _named(ratios: Mapping[tuple[str, str], Mapping[float, float]], digits: int = 3) -> dict[str, float]:
    """Ratios by a name that says what was compared, and where."""
    return {
        f"{first} : {second} at {x:g}": round(ratio, digits)
        for (first, second), by_x in ratios.items()
        for x, ratio in by_x.items()
    }


def wins(
    winner: str,
    rival: str,
    *,
    paper: Mapping[float, float] | None = None,
    about: bool = False,
    beside: Pairs = (),
    larger_is_better: bool = True,
    except_at: tuple[float, ...] = (),
    grows: bool = False,
    difference_grows: bool = False,
    clearly: bool = False,
    least: float = 0.0,
    most: float = math.inf,
    explain: Explain = "",
    explain_more: Explain = "",
) -> Judge:
    """The winner is ahead of the rival everywhere, by the stated ratios where the paper states them.

    Args:
        winner: Label of the series that should be ahead.
        rival: Label of the other.
        paper: The paper's ratios, by x.
        about: Whether it says that they are about this: much more is then no more what it says than much less.
        beside: Further pairs whose ratios are reported and decide nothing.
        larger_is_better: False for times and memory.
        except_at: Values of x of which the paper does not claim it.
        grows: Whether the ratio is larger at the end of the axis than at its beginning.
        difference_grows: The same of the difference.
        clearly: Whether the 95 % intervals part the two at every point, where the paper says "faster" and no more.
        least: What the ratio is at every point where the paper says so in words: above 1 where it is "better".
        most: The same from above, where the paper says "up to".
        explain: Why it does not hold.
        explain_more: Why the ratio is larger than the paper's.
    """

    def judge(lines: Lines) -> Verdict:
        ratios = _judged_ratios(lines, winner, rival, larger_is_better)
        stated = {x: ratio for x, ratio in (paper or {}).items() if x in ratios}
        claimed = {x: ratio for x, ratio in ratios.items() if x not in except_at}
        pairs = [(over, under) for over, under in paired(lines, winner, rival) if over.x in claimed]
        differences = _differences(lines, winner, rival)
        behind = [over.x for over, under in pairs if _is_behind(over, under, larger_is_better)]
        level = [a.x for a, b in pairs if a.x not in behind and not _is_behind(b, a, larger_is_better)]
        less = [
            *_where(f"{winner} is behind {rival}", behind),
            *_where("within the 95 % intervals the two are level", level if clearly else []),
            *_where(f"less than {NEAR:g} of the paper's", [x for x in stated if ratios[x] < NEAR * stated[x]]),
            *_where(f"less than {least:g}", [x for x, ratio in claimed.items() if ratio < least]),
            *(_shrinking("gain", ratios) if grows else ()),
            *(_shrinking("difference", differences) if difference_grows else ()),
        ]
        above = [x for x in stated if about and ratios[x] > stated[x] / NEAR]
        more = [
            *_where(f"more than {1 / NEAR:g} times the paper's, which is not about as much", above),
            *_where(f"more than {most:.3g}", [x for x, ratio in claimed.items() if ratio > most]),
        ]
        shown = {x: ratios[x] for x in (stated or (next(iter(ratios)), list(ratios)[-1]))}
        gap = f"the difference is {_at(differences)}" if difference_grows else ""
        reasons = [gap, *less, explained(explain, lines, not less), *more, explained(explain_more, lines, not more)]
        return Verdict(
            not less and not more,
            sentences([f"{winner} : {rival} is {_at(shown, stated)}", *reasons]),
            _named({(winner, rival): ratios})
            | _named(_beside(lines, beside, larger_is_better))
            | {f"paper at {x:g}": published for x, published in stated.items()},
            found=_at(shown if stated else ratios),
            published=_at(stated),
        )

    return judge


def _differences(lines: Lines, first: str, second: str) -> dict[float, float]:
    return {one.x: abs(one.y - other.y) for one, other in paired(lines, first, second)}


def _shrinking(what: str, values: Mapping[float, float]) -> list[str]:
    """An objection where something is not larger at the end of the axis than at its beginning."""
    if len(values) == 1:
        raise NotJudged("whether a gain grows along the axis is not seen at one point")
    (first_x, first), *_, (last_x, last) = values.items()
    return [] if last > first else [f"the {what} does not grow: {_at({first_x: first, last_x: last})}"]


def _where(what: str, places: list[float]) -> list[str]:
    """An objection and where it is raised; none where there is no such place."""
    return [f"{what} at {', '.join(f'{x:g}' for x in places)}"] if places else []


def _at(ratios: Mapping[float, float], published: Mapping[float, float] | None = None) -> str:
    return ", ".join(
        f"{ratio:.3g} at {x:g}" + (f" (paper {published[x]:g})" if published and x in published else "")
        for x, ratio in ratios.items()
    )


def is_within(
    first: str,
    second: str,
    at: float,
    bounds: tuple[float, float],
    *,
    means: str,
    beside: Pairs = (),
    explain: Explain = "",
) -> Judge:
    """At one point the first is so many times as much as the second, and neither more nor less.

    Args:
        first: Label of a series.
        second: Label of the other.
        at: The point.
        bounds: The least ratio and the largest.
        means: What the paper calls such a ratio.
        beside: Further pairs whose ratios stand in the reason and decide nothing.
        explain: Why it does not hold.
    """

    def judge(lines: Lines) -> Verdict:
        here = {label: tuple(point for point in lines[label] if point.x == at) for label in (first, second)}
        if not here[first]:
            raise NotJudged(f"it speaks of {at:g}, which was not run")
        ratio = _judged_ratios(here, first, second)[at]
        least, most = bounds
        holds = least <= ratio <= most
        compared = _beside(lines, beside)
        return Verdict(
            holds,
            sentences(
                [
                    f"{first} : {second} is {ratio:.3g} at {at:g}; {means} is {least:.3g} to {most:.3g}",
                    _beside_in_words({pair: {at: ratios[at]} for pair, ratios in compared.items()}),
                    explained(explain, lines, holds),
                ]
            ),
            _named({(first, second): {at: ratio}}) | _named(compared),
            found=_at({at: ratio}),
            published=f"{means} at {at:g}",
        )

    return judge


def _beside_in_words(compared: Mapping[tuple[str, str], Mapping[float, float]]) -> str:
    told = "; ".join(f"{first} : {second} is {_at(ratios)}" for (first, second), ratios in compared.items())
    return f"Beside, and deciding nothing: {told}" if told else ""


def close(
    pairs: Pairs,
    within: float,
    *,
    beside: Pairs = (),
    with_rows: bool = False,
    published: str = "",
    explain: Explain = "",
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
        measured = _named({pair: _judged_ratios(lines, *pair) for pair in pairs}, digits=4)
        worst_at = max(measured, key=lambda name: abs(measured[name] - 1))
        worst = abs(measured[worst_at] - 1)
        holds = worst <= within
        where = "" if holds else f", of {worst_at}"
        parts = [f"the largest deviation is {worst:.1%}{where}, allowed are {within:.1%}"]
        measured |= {"largest deviation": round(worst, 4)} | _named(_beside(lines, beside), digits=4)
        if with_rows:
            rows = {
                f"rows of an iteration, {first} : {second} at {one.x:g}": round(
                    _ratio(one.extra[ROWS], other.extra[ROWS]), 4
                )
                for first, second in pairs
                for one, other in paired(lines, first, second)
            }
            measured |= rows
            parts.append(f"the rows of an iteration deviate by up to {max(abs(r - 1) for r in rows.values()):.1%}")
        reason = sentences([*parts, explained(explain, lines, holds)])
        return Verdict(holds, reason, measured, found=f"{worst:.2%} off", published=published)

    return judge


def in_order(*labels: str, gap_grows: bool = False, beside: Pairs = (), explain: Explain = "") -> Judge:
    """Each series is not behind the next, at any point; with `gap_grows` the first leaves the second behind."""

    def judge(lines: Lines) -> Verdict:
        verdicts = [
            wins(first, second, grows=gap_grows and first == labels[0])(lines) for first, second in pairwise(labels)
        ]
        measured = {name: ratio for verdict in verdicts for name, ratio in verdict.measured.items()}
        compared = _beside(lines, beside)
        holds = all(verdict.holds for verdict in verdicts)
        broken = [verdict.reason.rstrip(".") for verdict in verdicts if not verdict.holds]
        level = [f"{name}: {ratio:.3g}" for name, ratio in measured.items() if ratio < 1]
        in_words = f"{' ≥ '.join(labels)} at every point"
        if level:
            in_words += f", but for what the 95 % intervals leave open ({', '.join(level)})"
        decided = broken or [in_words]
        return Verdict(
            holds,
            sentences([*decided, _beside_in_words(compared), explained(explain, lines, holds)]),
            measured | _named(compared),
            found=f"{labels[0]} : {labels[1]} {verdicts[0].found}",
            published="all ≥ 1",
        )

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


def explained(explain: Explain, lines: Lines, holds: bool) -> str:
    """The explanation, where there is something to explain."""
    if holds:
        return ""
    return explain if isinstance(explain, str) else explain(lines)


def sentences(parts: list[str]) -> str:
    """Parts of a reason as a text, none of them twice."""
    return " ".join(f"{part[0].upper()}{part[1:].rstrip('.')}." for part in dict.fromkeys(parts) if part)
