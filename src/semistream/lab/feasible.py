"""What is left of a figure under conditions that are not the papers'.

Some series cannot be had under some conditions, whoever asks for them (`under`). With `--io real` nothing makes a
solid-state disk seek for every segment of a scan, and a model of unit costs knows neither this machine's page cache nor
what a call from Python takes; what models say of this machine's clock is shown by `semistream calibrate --loops`. And
models know Zipf's law in the order of popularity: of other keys they say nothing.

Some changes of a stream change nothing in some figures (`stream_in`): keys that come from tables are not drawn, and
rows that are all there at once do not arrive. Who asks for just that in one figure is told so (`check_can_run`).
"""

from __future__ import annotations

from dataclasses import replace

from semistream.errors import InvalidOption
from semistream.lab.bench import stream_rows
from semistream.lab.conditions import Conditions, StreamKind
from semistream.lab.experiment import Experiment, Setting
from semistream.lab.part import judge_of_part

VAIN = {
    "generator": "`generator`, for its keys are not drawn",
    "order": "`order`, for no drawn key is more popular than another",
    "drift": "`drift`, for no drawn key is more popular than another, or the stream ends before",
    "arrivals": "`arrivals`, for its rows are all there at once",
}
"""What of a stream a figure may not have, and why a change of it is refused there."""


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
    return replace(experiment, series=tuple(can_run), judge=judge_of_part(experiment, left_out=[]))


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
    """Refuse what leaves nothing to run, and changes that would change nothing in this figure."""
    under(experiment, conditions)
    asked, changed = conditions.stream, stream_in(experiment, size, conditions)
    vain = [why for name, why in VAIN.items() if getattr(asked, name) != getattr(changed, name)]
    given = [asked.in_words] if vain else []
    if conditions.memory_model != Conditions().memory_model and experiment.is_timed_here:
        vain.append("`memory_model`, for no row waits for a relation")
        given.append(f"memory model {conditions.memory_model}")
    if vain:
        raise InvalidOption(
            f"this would change nothing in {experiment.id}: {'; '.join(vain)}",
            given=", ".join(given),
            hint="`semistream lab report` changes what it can in every figure",
        )
