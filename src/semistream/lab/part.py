"""A part of a figure: some of its points, some of its series.

At the papers' size one series at one point takes minutes and a figure has dozens, so a user may ask for some. A part
is an experiment like any other, with fewer values and fewer series. What it can say of the claim depends on what the
claim speaks of: a claim about each point is judged at the points that were run, and says so; one about a series that
was left out, about growth along an axis of one point, or about all pairs of indexes at once, is not judged.

Labels may have commas in them, as in `SSCJ, fixed cache`. In a list of labels the longest that is known counts, so
`SSCJ, fixed cache` is one series and `SSCJ,HYBRIDJOIN` are two.

Some series cannot be had under some conditions, whoever asks for them (`under`). With `--io real` nothing makes a
solid-state disk seek for every segment of a scan, and a model of unit costs knows neither this machine's page cache nor
what a call from Python takes; what models say of this machine's clock is shown by `semistream calibrate --loops`. And
models know Zipf's law in the order of popularity: of other keys they say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from semistream.errors import InvalidOption, check_choice
from semistream.lab.bench import stream_rows
from semistream.lab.claims import Judge, NotJudged
from semistream.lab.conditions import Conditions, StreamKind
from semistream.lab.experiment import SIZES, Experiment, Lines, Point, Setting, Verdict, values_by_name

VAIN = {
    "generator": "`generator`, for its keys are not drawn",
    "order": "`order`, for no drawn key is more popular than another",
    "drift": "`drift`, for no drawn key is more popular than another, or the stream ends before",
    "arrivals": "`arrivals`, for its rows are all there at once",
}
"""What of a stream a figure may not have, and why a change of it is refused there."""


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
        judge=_judge_of_part(experiment, left_out=[word for word in values if word not in points]),
        is_part=True,
    )


def under(experiment: Experiment, conditions: Conditions) -> Experiment:
    """The experiment without the series that cannot be had under these conditions."""
    if experiment.is_timed_here:
        return experiment
    has_models = not (conditions.is_real or conditions.stream.changes_keys)
    can_run = [
        series
        for series in experiment.series
        if not (series.is_model and not has_models) and not (series.queries_segments and conditions.is_real)
    ]
    if not can_run:
        raise InvalidOption(
            "neither models nor scans by queries are run under these conditions, and nothing else was asked for",
            given=f"{experiment.id}, {', '.join(series.label for series in experiment.series)}",
            allowed="other series of the figure, io hdd or nvme, and the figure's own keys",
        )
    if len(can_run) == len(experiment.series):
        return experiment
    return replace(experiment, series=tuple(can_run), judge=_judge_of_part(experiment, left_out=[]))


def stream_in(experiment: Experiment, size: str, conditions: Conditions) -> StreamKind:
    """What changes in this figure of what was asked to be changed."""
    asked = conditions.stream
    settings = [setting for _, setting in experiment.settings(size) if isinstance(setting, Setting)]
    drawn = [setting for setting in settings if setting.data == "synthetic"]
    rows_max = max((stream_rows(setting, conditions) for setting in drawn), default=0)
    is_skewed, has_rate = any(s.skew > 0 for s in drawn), any(s.arrival_rows_per_s for s in settings)
    own = StreamKind()
    return StreamKind(
        asked.generator if drawn else own.generator,
        asked.order if is_skewed else own.order,
        asked.drift if is_skewed and asked.drift is not None and asked.drift.every_rows < rows_max else None,
        asked.arrivals if has_rate else own.arrivals,
    )


def check_can_run(experiment: Experiment, size: str, conditions: Conditions) -> None:
    """Refuse what leaves nothing to run, and changes of a stream that would change nothing in this figure."""
    under(experiment, conditions)
    asked, changed = conditions.stream, stream_in(experiment, size, conditions)
    vain = [why for name, why in VAIN.items() if getattr(asked, name) != getattr(changed, name)]
    if vain:
        raise InvalidOption(
            f"this would change nothing in {experiment.id}: {'; '.join(vain)}",
            given=asked.in_words,
            hint="`semistream lab report` changes what it can in every figure",
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


def _judge_of_part(experiment: Experiment, left_out: list[str]) -> Judge:
    def judge(lines: Lines) -> Verdict:
        if experiment.is_timed_here:
            raise NotJudged("it speaks of all series at all points, which were not all run")
        verdict = experiment.judge(_LinesOfPart(lines))
        reason = verdict.reason + (f" Not run, and so not judged, at {', '.join(left_out)}." if left_out else "")
        return replace(verdict, reason=reason, measured={**verdict.measured, **values_by_name(lines)})

    return judge
