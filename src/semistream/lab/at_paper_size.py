"""What the models say of a comparison at the papers' size, beside what they say of it at the size that was run.

A scaled experiment keeps M a share of R. It cannot keep what that share is worth: by Zipf's law the rows that fit into
a hundredth of R answer the more of the stream the larger R is. A gain over a join without a cache is therefore smaller
here than in the paper, and the models say by how much: they need sizes and skew only, and R of a hundred million rows
costs them no more than one of a thousand. How far to trust them is seen at the size that was run, where the measured
ratio stands beside theirs.
"""

from __future__ import annotations

from dataclasses import replace

from semistream.lab.conditions import Conditions
from semistream.lab.experiment import Experiment, Setting, Size, Verdict
from semistream.lab.modelled import prediction

SIZE: Size = "default"
"""The size at which models are asked: the smallest is too small for them, the largest needs no extrapolation."""


def with_models(experiment: Experiment, size: str, conditions: Conditions, verdict: Verdict) -> Verdict:
    """The verdict, and the ratios by the models at the ends of the axis at both sizes."""
    here, there = (_ratios(experiment, chosen, conditions) for chosen in (size, "paper"))
    measured = dict(verdict.measured)
    for words, ratios in (("at this size", here), ("at the paper's size", there)):
        measured |= {f"by the models {words} at {x:g}": round(ratio, 3) for x, ratio in ratios.items()}
    assert experiment.modelled is not None, "an experiment that no models compare"
    pair = " : ".join(series.label for series in experiment.modelled)
    said = f" By the models {pair} is {_at(here)} at this size, and {_at(there)} at the paper's."
    return replace(verdict, reason=verdict.reason + said, measured=measured)


def _ratios(experiment: Experiment, size: str, conditions: Conditions) -> dict[float, float]:
    assert experiment.modelled is not None, "an experiment that no models compare"
    winner, rival = experiment.modelled
    settings = experiment.settings(size)
    return {
        x: prediction(winner, setting, conditions).mu_rows_per_s / prediction(rival, setting, conditions).mu_rows_per_s
        for x, setting in (settings[0], settings[-1])
        if isinstance(setting, Setting)
    }


def _at(ratios: dict[float, float]) -> str:
    return ", ".join(f"{ratio:.3g} at {x:g}" for x, ratio in ratios.items())
