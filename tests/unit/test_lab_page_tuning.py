"""Rivals in pages of their own: which figures have them, how the page is found, and that no claim is judged by them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.container import ErrorbarContainer

from semistream.lab.conditions import Conditions
from semistream.lab.experiment import Point, Series, Setting
from semistream.lab.experiments import EXPERIMENTS
from semistream.lab.experiments.scale import HYBRID_TUNED, MESH_TUNED, QUERIED_MESH_TUNED
from semistream.lab.modelled import prediction
from semistream.lab.page_tuning import best_page_rows, in_own_pages
from semistream.lab.part import part_of
from semistream.lab.plots import draw
from semistream.lab.run import run

COMPARED = [*(f"sscj-4{letter}" for letter in "abcde"), "tuned-6a", "tuned-6b"]

SETTING = Setting(r_rows=2500, memory_bytes=30_000, page_rows=10, turns=3)


@pytest.mark.parametrize("name", COMPARED)
def test_rivals_stand_in_their_figures_with_tuned_pages_too_and_decide_nothing(name: str) -> None:
    experiment = EXPERIMENTS[name]
    labels = {series.label for series in experiment.series}
    assert {"HYBRIDJOIN", "HYBRIDJOIN tuned", "MESHJOIN tuned", "MESHJOIN tuned, a query a segment"} <= labels
    tuned = {series.label for series in experiment.series if series.tunes_page}
    verdicts = []
    for rate in (1.0, 1000.0):
        lines = {
            label: tuple(Point(x, y, y, y) for x in experiment.values["small"])
            for label, y in ((label, rate if label in tuned else 10.0) for label in labels)
        }
        verdicts.append(experiment.judge(lines))
    assert verdicts[0].holds == verdicts[1].holds
    at = f"{experiment.values['small'][-1]:g}"
    winner = "SSCJ" if name.startswith("sscj") else "Tuned X-HYBRIDJOIN"
    assert [verdict.measured[f"{winner} : HYBRIDJOIN tuned at {at}"] for verdict in verdicts] == [10.0, 0.01]


def test_the_rival_of_moij_is_tuned_on_weather_too() -> None:
    assert "CACHEJOIN tuned" in [series.label for series in EXPERIMENTS["moij-7e"].series]


@pytest.mark.parametrize(("best", "found"), [(10, 10), (75, 80), (1, 1), (5000, 640)])
def test_a_page_is_doubled_or_halved_for_as_long_as_that_is_no_loss(best: int, found: int) -> None:
    assert best_page_rows(lambda rows: -abs(rows - best), 10, 1, 1000) == found


def test_a_page_that_is_as_good_is_passed_and_one_that_does_not_fit_is_not_taken() -> None:
    rates = {10: 3.0, 20: 3.0, 40: 5.0, 80: 0.0}
    assert best_page_rows(rates.__getitem__, 10, 1, 80) == 40
    assert best_page_rows(lambda rows: 1.0 if rows <= 2 else 0.0, 10, 1, 80) == 2
    assert best_page_rows(lambda rows: 0.0, 10, 1, 80) == 10
    assert best_page_rows(lambda rows: 1.0 / rows, 10, 5, 80) == 5


def test_no_page_is_smaller_than_what_a_file_system_reads() -> None:
    pages = [in_own_pages(MESH_TUNED, replace(SETTING, page_rows=rows), Conditions()).page_rows for rows in (10, 80)]
    assert pages == [10, 40]


def test_a_series_in_the_pages_of_the_figure_has_its_setting() -> None:
    assert in_own_pages(Series("h", "hybridjoin"), SETTING, Conditions()) is SETTING


def test_what_pays_a_seek_for_a_page_has_larger_pages_than_a_scan() -> None:
    hybrid, scan, queries = (
        in_own_pages(series, SETTING, Conditions()).page_rows
        for series in (HYBRID_TUNED, MESH_TUNED, QUERIED_MESH_TUNED)
    )
    assert scan <= SETTING.page_rows < min(hybrid, queries)


def test_the_page_depends_on_the_disk() -> None:
    on_disks = [in_own_pages(QUERIED_MESH_TUNED, SETTING, Conditions(io=io)).page_rows for io in ("nvme", "hdd")]
    assert on_disks == sorted(on_disks)


def test_with_the_page_that_the_model_likes_a_rival_is_faster_by_the_model_and_by_the_clock() -> None:
    conditions, figure = Conditions(), EXPERIMENTS["tuned-6b"]
    setting = figure.settings("small")[-1][1]
    assert isinstance(setting, Setting)
    tuned = in_own_pages(HYBRID_TUNED, setting, conditions)
    told = [prediction(HYBRID_TUNED, given, conditions).mu_rows_per_s for given in (tuned, setting)]
    part = part_of(figure, "small", at="250", series="HYBRIDJOIN, HYBRIDJOIN tuned")
    lines = run(part, "small", conditions).lines
    (plain,), (point,) = lines["HYBRIDJOIN"], lines["HYBRIDJOIN tuned"]
    assert point.extra["page_rows"] == tuned.page_rows > setting.page_rows
    assert told[0] > 2 * told[1]
    assert point.y > 2 * plain.y


def test_in_pictures_a_rival_in_its_own_pages_has_the_colour_of_the_rival() -> None:
    part = part_of(EXPERIMENTS["tuned-6b"], "small", at="250", series="X-HYBRIDJOIN, HYBRIDJOIN, HYBRIDJOIN tuned")
    axes = draw(run(part, "small")).axes[0]
    drawn = {str(bars.get_label()): bars.lines[0] for bars in axes.containers if isinstance(bars, ErrorbarContainer)}
    colours = {label: line.get_color() for label, line in drawn.items()}
    assert colours["HYBRIDJOIN tuned"] == colours["HYBRIDJOIN"] != colours["X-HYBRIDJOIN"]
    assert drawn["HYBRIDJOIN tuned"].get_linestyle() == ":"
