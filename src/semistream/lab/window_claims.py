"""Claims about window joins as functions of what was computed or measured.

Costs and outputs are compared with what the paper prints, or with each other. A pair of indexes counts as the best
where no other is clearly below it: by the intervals, or by less than `NEARLY_BEST`. Two indexes that cost the same take
turns in being first, and a claim about winners is not about which of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from semistream.lab.claims import Judge
from semistream.lab.experiment import Lines, Point, Verdict

NEARLY_BEST = 1.05
"""A pair that costs at most so many times the cheapest is among the best."""


def equals_table(printed: Mapping[float, Mapping[str, float]]) -> Judge:
    """Every cell, by x and label, comes out to two decimals."""

    def judge(lines: Lines) -> Verdict:
        found = {(point.x, label): round(point.y, 2) for label, points in lines.items() for point in points}
        cells = {(x, label): cell for x, row in printed.items() for label, cell in row.items()}
        missed = [
            f"{label} at {x:g} ({found[x, label]:g})" for (x, label), cell in cells.items() if found[x, label] != cell
        ]
        equal = f"{len(cells) - len(missed)} of {len(cells)} cells"
        reason = f"{equal} equal the table to two decimals" + (f"; not {', '.join(missed)}" if missed else "")
        measured = {f"{label} at {x:g}": value for (x, label), value in found.items()}
        return Verdict(not missed, f"{reason}.", measured, found=equal, published=f"{len(cells)} cells")

    return judge


def wins_in_turn(labels: tuple[str, ...], crossovers: Mapping[str, tuple[float, str]]) -> Judge:
    """The cheapest series along the axis are these, one after the other, and change where the paper says.

    Args:
        labels: The winners, from the left.
        crossovers: What was computed and what is printed, by the two that cross.
    """

    def judge(lines: Lines) -> Verdict:
        winners = [
            min(lines, key=lambda label: lines[label][place].y) for place in range(len(next(iter(lines.values()))))
        ]
        in_turn = tuple(label for label, _ in groupby(winners))
        off = [
            f"{name} at {share:g}" for name, (share, printed) in crossovers.items() if not _rounds_to(share, printed)
        ]
        holds = in_turn == labels and not off
        shown = ", ".join(f"{name} at {share:.4g} %" for name, (share, _) in crossovers.items())
        return Verdict(
            holds,
            f"The winners are {', '.join(in_turn)}; they change at {shown}."
            + (f" Not as printed: {off}." if off else ""),
            {f"crossover {name}": round(share, 4) for name, (share, _) in crossovers.items()},
            found=", ".join(f"{share:.4g}" for share, _ in crossovers.values()),
            published=", ".join(printed for _, printed in crossovers.values()),
        )

    return judge


def _rounds_to(value: float, printed: str) -> bool:
    decimals = len(printed.partition(".")[2])
    return f"{value:.{decimals}f}" == printed


def is_among_best(named: Mapping[float, str], *, beside: tuple[str, str] | None = None, explain: str = "") -> Judge:
    """At every x the named series is among the best.

    Args:
        named: Labels by x.
        beside: Two labels whose ratio is reported at every x.
        explain: Why it does not hold.
    """

    def judge(lines: Lines) -> Verdict:
        measured: dict[str, float] = {}
        beaten: list[str] = []
        for place, x in enumerate(point.x for point in next(iter(lines.values()))):
            points = {label: points[place] for label, points in lines.items()}
            best = min(points, key=lambda label: points[label].y)
            label = named[x]
            ratio = points[label].y / points[best].y
            measured[f"{label} : best at {x:g}"] = round(ratio, 3)
            if beside is not None:
                measured[f"{beside[0]} : {beside[1]} at {x:g}"] = round(points[beside[0]].y / points[beside[1]].y, 3)
            if _is_beaten(points[label], points[best]):
                beaten.append(f"at {x:g} {best} is the best and {label} costs {ratio:.3g} times as much")
        reason = "; ".join(beaten) or "the paper's winner is among the best at every point"
        said = f"{reason[0].upper()}{reason[1:]}."
        if beaten and explain:
            said += f" {explain}."
        ratios = [ratio for name, ratio in measured.items() if ": best at" in name]
        found = f"winner : best {min(ratios):.3g} … {max(ratios):.3g}"
        return Verdict(not beaten, said, measured, found=found, published="1")

    return judge


def _is_beaten(point: Point, best: Point) -> bool:
    return point.y > NEARLY_BEST * best.y and point.low > best.high


def outputs_match(formula: str, run: str, printed: Mapping[float, float], within: float) -> Judge:
    """The formula gives what the paper's figure shows, and what was run is within a share of it."""

    def judge(lines: Lines) -> Verdict:
        computed = {point.x: point.y for point in lines[formula]}
        seen = {point.x: point.y for point in lines[run]}
        wrong = [x for x, y in printed.items() if x in computed and round(computed[x]) != y]
        off = [x for x, y in computed.items() if abs(seen[x] - y) > within * y]
        worst = max(abs(seen[x] / y - 1) for x, y in computed.items() if y)
        measured = {f"{label} at {point.x:g}": round(point.y, 2) for label, line in lines.items() for point in line}
        parts = [f"what was run deviates from the formula by up to {worst:.1%}, allowed are {within:.0%}"]
        parts += [f"not so at {', '.join(f'{x:g}' for x in off)}"] if off else []
        parts += (
            [f"the formula does not give the paper's value at {', '.join(f'{x:g}' for x in wrong)}"] if wrong else []
        )
        said = "; ".join(parts)
        return Verdict(
            not wrong and not off,
            f"{said[0].upper()}{said[1:]}.",
            measured,
            found=", ".join(f"{y:.4g}" for y in seen.values()),
            published=", ".join(f"{printed[x]:g}" for x in seen),
        )

    return judge


def costs_more_by(over: str, shares: Mapping[str, float], within: float, at: float, *, explain: str = "") -> Judge:
    """Each series takes so many times more than another, at one x, give or take `within`."""

    def judge(lines: Lines) -> Verdict:
        at_x = {label: next(point for point in points if point.x == at) for label, points in lines.items()}
        more = {label: at_x[label].y / at_x[over].y - 1 for label in shares}
        measured = {f"{label} over {over}": round(share, 4) for label, share in more.items()}
        for label, points in lines.items():
            for point in points:
                measured |= {f"{name}, {label} at {point.x:g}": round(value, 3) for name, value in point.extra.items()}
                measured[f"bytes/row, {label} at {point.x:g}"] = round(point.y, 2)
        off = {label for label, share in shares.items() if abs(more[label] - share) > within}
        said = ", ".join(f"{label} takes {share:+.0%}" for label, share in more.items())
        reason = f"Of {over}: {said}." + (f" {explain}." if off and explain else "")
        published = ", ".join(f"{label} {share:+.0%}" for label, share in shares.items())
        return Verdict(not off, reason, measured, found=said, published=published)

    return judge


def chosen_is_near_best(chosen: str, best: str, *, within: float, least_share: float, beside: str) -> Judge:
    """What the model chose costs at most `within` more than the best, in at least this share of all workloads.

    Args:
        chosen: Label of the choice.
        best: Label of what was the fastest.
        within: What a choice may cost more, as a share.
        least_share: In how many of the workloads, as a share.
        beside: Label of another choice, which is reported and decides nothing.
    """

    def judge(lines: Lines) -> Verdict:
        ratios = _ratios_to(best, chosen, lines)
        near, other = (
            sum(ratio <= 1 + within for ratio in _ratios_to(best, label, lines)) for label in (chosen, beside)
        )
        exact, share = sum(ratio == 1 for ratio in ratios), near / len(ratios)
        said = (
            f"Of {len(ratios)} workloads the choice is the measured best in {exact}, within {within:.0%} of it in "
            f"{near} ({share:.1%}, asked are {least_share:.0%}); at worst it costs {max(ratios):.3g} times the best. "
            f"What is {beside} is within {within:.0%} in {other}."
        )
        measured = {
            "workloads": len(ratios),
            "best": exact,
            "near": near,
            "worst": max(ratios),
            f"near, {beside}": other,
        }
        return Verdict(share >= least_share, said, measured, found=f"{share:.1%}", published=f"{least_share:.0%} asked")

    return judge


def _ratios_to(best: str, label: str, lines: Lines) -> list[float]:
    return [one.y / least.y for one, least in zip(lines[label], lines[best], strict=True)]


def asymmetric_beats(symmetric: str, *, published: float, least: float, explain: str = "") -> Judge:
    """The best pair of two different indexes costs so many times less than a symmetric one, each at its best x.

    Args:
        symmetric: Label of the symmetric pair.
        published: The paper's ratio.
        least: What counts as a clear margin.
        explain: Why it does not hold.
    """

    def judge(lines: Lines) -> Verdict:
        pairs = [label for label in lines if len(label) == len(symmetric) and label[0] != label[1]]
        costs = {label: min(lines[label], key=lambda point: point.y) for label in (symmetric, *pairs)}
        best = min(pairs, key=lambda label: costs[label].y)
        ratio = costs[symmetric].y / costs[best].y
        told = {label: f"{label} {costs[label].y:.3g} (at {costs[label].x:g})" for label in (symmetric, best)}
        return Verdict(
            ratio >= least,
            f"At their best, {told[symmetric]} costs {ratio:.3g} times as much as {told[best]}; a clear margin is "
            f"{least:g}." + (f" {explain}." if explain and ratio < least else ""),
            {f"{symmetric} : {best}": round(ratio, 3)},
            found=f"{ratio:.3g}",
            published=f"{published:.3g}",
        )

    return judge
