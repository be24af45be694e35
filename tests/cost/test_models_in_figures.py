"""Models beside operators at points of the laboratory's figures, at their default size.

These are the points at which a model once said too much: a scan whose cells have a row or two, an H_R whose index
weighs half as much as its rows, and a small cache beside many waiting rows, which learns its threshold for many rounds.
The figures' streams end after eight rounds of R. Where the threshold then still lacks a step, or what came in under a
lower one has not gone yet, the stream is longer here: a model says what a cache comes to rest at.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from semistream.lab.bench import observe
from semistream.lab.conditions import Conditions
from semistream.lab.experiment import Setting
from semistream.lab.experiments import EXPERIMENTS
from semistream.lab.modelled import prediction, rows_per_loop

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("figure", "label", "x", "times_longer"),
    [
        ("sscj-6", "MESHJOIN", 1.0, 1),
        ("sscj-6", "MESHJOIN", 3.0, 1),
        ("moij-7f", "MOIJ", 10.0, 1),
        ("moij-7b", "MOIJ", 20.0, 1),
        ("moij-7a", "CACHEJOIN", 10.0, 1),
        ("moij-7b", "CACHEJOIN", 60.0, 1),
        ("moij-7f", "CACHEJOIN tuned", 1.0, 4),
        ("pcsrj-3b", "CACHEJOIN", 200.0, 1),
        ("pcsrj-3b", "PCSRJ", 200.0, 2),
        ("pcsrj-3a", "PCSRJ", 1.0, 2),
        ("pcsrj-3a", "PCSRJ", 4.0, 1),
    ],
)
def test_a_model_is_within_ten_per_cent_of_the_count(figure: str, label: str, x: float, times_longer: int) -> None:
    experiment = EXPERIMENTS[figure]
    series = next(series for series in experiment.series if series.label == label)
    setting = dict(experiment.settings("default"))[x]
    assert isinstance(setting, Setting)
    setting = replace(setting, turns=times_longer * setting.turns)
    told, seen = prediction(series, setting, Conditions()), observe(series, setting, Conditions())
    print(
        f"{figure}, {label} at {x:g}: hits {seen.hit_share:.3f} (told {told.hit_share:.3f}), "
        f"w {seen.rows_per_loop:.2f} ({rows_per_loop(told):.2f}), mu {seen.rate:.0f} ({told.mu_rows_per_s:.0f})"
    )
    assert seen.hit_share == pytest.approx(told.hit_share, rel=0.1, abs=0.01)
    assert seen.rows_per_loop == pytest.approx(rows_per_loop(told), rel=0.1)
    assert seen.rate == pytest.approx(told.mu_rows_per_s, rel=0.1)
