"""A part of a figure: some of its points, some of its series.

At the papers' size one series at one point takes minutes and a figure has dozens, so a user may ask for some. A part
is an experiment like any other, with fewer values and fewer series. What it can say of the claim depends on what the
claim speaks of: a claim about each point is judged at the points that were run, and says so; one about a series that
was left out, about growth along an axis of one point, or about all pairs of indexes at once, is not judged.

Labels may have commas in them, as in `SSCJ, fixed cache`. In a list of labels the longest that is known counts, so
`SSCJ, fixed cache` is one series and `SSCJ,HYBRIDJOIN` are two.

What is left of a figure under conditions that are not the papers' is said by `semistream.lab.feasible`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from semistream.errors import check_choice
from semistream.lab.claims import Judge, NotJudged
from semistream.lab.experiment import SIZES, Experiment, Lines, Point, Verdict, values_by_name


def part_of(experiment: Experiment, size: str, at: str | None = None, series: str | None = None) -> Experiment:
    """The experiment at these values of its x axis and with these series, both in words and parted by commas.

    Example:
        >>> from semistream.lab.experiments import experiment_named
        >>> part = part_of(experiment_named("moij-7a"), "paper", at="1, 10", series="MOIJ,CACHEJOIN tuned")
        >>> part.values["paper"], [series.label for series in part.series]
        ((1.0, 10.0), ['MOIJ', 'CACHEJOIN tuned'])
    """
    check_choice("size", size, SIZES)
    if at is None and series is None:
        return experiment
    chosen_size = next(known for known in SIZES if known == size)
    values = {f"{value:g}": value for value in experiment.values[chosen_size]}
    labels = [known.label for known in experiment.series]
    points = list(values) if at is None else [_as_shown(word) for word in at.split(",")]
    chosen = labels if series is None else _labels_in(series, labels)
    for word in points:
        check_choice("at", word, values)
    for label in chosen:
        check_choice("series", label, labels)
    return replace(
        experiment,
        values={**experiment.values, chosen_size: tuple(values[word] for word in values if word in points)},
        series=tuple(known for known in experiment.series if known.label in chosen),
        judge=judge_of_part(experiment, left_out=[word for word in values if word not in points]),
        is_part=True,
    )


def _as_shown(word: str) -> str:
    """A number as values of an axis are shown; any other word as it is, for an error to show."""
    try:
        return f"{float(word):g}"
    except ValueError:
        return word.strip()


def _labels_in(text: str, known: Iterable[str]) -> list[str]:
    """Cut a list at those commas that are not part of a known label."""
    pieces = text.split(",")
    labels = []
    while pieces:
        lengths = range(len(pieces), 0, -1)
        length = next((n for n in lengths if ",".join(pieces[:n]).strip() in known), 1)
        labels.append(",".join(pieces[:length]).strip())
        del pieces[:length]
    return labels


class _LinesOfPart(dict[str, tuple[Point, ...]]):
    """Lines in which a series that was left out is told from a mistake."""

    def __missing__(self, label: str) -> tuple[Point, ...]:
        raise NotJudged(f"it speaks of {label}, which was not run")


def judge_of_part(experiment: Experiment, left_out: list[str]) -> Judge:
    """The judge of an experiment of which these points, or some series, are not run."""

    def judge(lines: Lines) -> Verdict:
        if experiment.is_timed_here:
            raise NotJudged("it speaks of all series at all points, which were not all run")
        verdict = experiment.judge(_LinesOfPart(lines))
        reason = verdict.reason + (f" Not run, and so not judged, at {', '.join(left_out)}." if left_out else "")
        return replace(verdict, reason=reason, measured={**verdict.measured, **values_by_name(lines)})

    return judge
