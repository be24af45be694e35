"""All experiments by id, one module a paper."""

from __future__ import annotations

from semistream.errors import check_choice
from semistream.lab.experiment import Experiment
from semistream.lab.experiments import kang, moij, pcsrj, sscj, tuned

EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment for module in (pcsrj, moij, tuned, sscj, kang) for experiment in module.EXPERIMENTS
}


def experiment_named(name: str) -> Experiment:
    """Return the experiment with this id; an unknown one is an error with a suggestion."""
    check_choice("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]
