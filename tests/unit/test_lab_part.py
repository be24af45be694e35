"""A part of a figure: what is run, what its claim is worth then, and what a mistake looks like."""

from __future__ import annotations

import json

import pytest

from semistream.errors import InvalidOption
from semistream.lab.claims import NotJudged, peaks_inside, wins
from semistream.lab.experiment import Point
from semistream.lab.experiments import EXPERIMENTS
from semistream.lab.part import part_of
from semistream.lab.plots import svg
from semistream.lab.report import page
from semistream.lab.run import run

FIGURE = EXPERIMENTS["moij-7a"]


def line(*values: float) -> tuple[Point, ...]:
    return tuple(Point(x, y, 0.95 * y, 1.05 * y) for x, y in enumerate(values))


def labels_of(series: str, name: str = "sscj-4a") -> list[str]:
    return [chosen.label for chosen in part_of(EXPERIMENTS[name], "paper", series=series).series]


def test_without_a_choice_it_is_the_figure() -> None:
    assert part_of(FIGURE, "paper") is FIGURE


def test_points_and_series_keep_the_order_of_the_figure() -> None:
    part = part_of(FIGURE, "paper", at="10, 1.0", series="CACHEJOIN,MOIJ")
    assert [x for x, _ in part.settings("paper")] == [1.0, 10.0]
    assert [series.label for series in part.series] == ["MOIJ", "CACHEJOIN"]
    assert part.values["small"] == FIGURE.values["small"]


def test_a_label_with_a_comma_is_one_label() -> None:
    assert labels_of("SSCJ,HYBRIDJOIN") == ["SSCJ", "HYBRIDJOIN"]
    assert labels_of("SSCJ, fixed cache") == ["SSCJ, fixed cache"]
    assert labels_of("SSCJ, SSCJ, fixed cache,MESHJOIN, a query a segment") == [
        "SSCJ",
        "SSCJ, fixed cache",
        "MESHJOIN, a query a segment",
    ]


@pytest.mark.parametrize(
    ("choice", "meant"),
    [({"series": "MOIJ,CASHJOIN"}, "CACHEJOIN"), ({"at": "1,100"}, "10"), ({"at": ""}, None), ({"series": ""}, None)],
)
def test_what_the_figure_does_not_have_is_an_error_with_the_nearest_word(
    choice: dict[str, str], meant: str | None
) -> None:
    with pytest.raises(InvalidOption, match="unknown value") as raised:
        part_of(FIGURE, "paper", **choice)
    assert meant is None or f"did you mean '{meant}'" in str(raised.value)


def test_a_claim_is_judged_at_the_points_that_were_run_and_says_so() -> None:
    lines = {"MOIJ": line(3.0)[:1], "CACHEJOIN": line(2.0)[:1]}
    moved = {label: tuple(Point(10.0, p.y, p.low, p.high) for p in points) for label, points in lines.items()}
    verdict = part_of(FIGURE, "paper", at="10", series="MOIJ,CACHEJOIN").judge(moved)
    assert verdict.holds is False
    assert verdict.measured["MOIJ : CACHEJOIN at 10"] == 1.5
    assert verdict.reason.endswith("Not run, and so not judged, at 1, 2, 5.")


def test_a_claim_about_a_series_that_was_not_run_is_not_judged_in_words_in_json_and_in_pictures() -> None:
    result = run(part_of(FIGURE, "small", series="MOIJ"), "small")
    answer = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert answer["holds"] is None
    assert answer["reason"].startswith("Not judged: it speaks of CACHEJOIN, which was not run. Measured: MOIJ ")
    assert list(answer["series"]) == ["MOIJ"]
    assert answer["adaptive"] == {}
    assert "was not judged" in svg(result)
    assert "not judged" in page([result])


def test_a_claim_about_all_pairs_of_indexes_is_not_judged_by_some() -> None:
    experiment = EXPERIMENTS["kang-asymmetric"]
    verdict = part_of(experiment, "small", series=experiment.series[0].label).judge({"HH": line(1.0)})
    assert verdict.holds is None


def test_growth_and_a_peak_are_not_seen_at_one_point() -> None:
    lines = {"a": line(2.0), "b": line(1.0)}
    with pytest.raises(NotJudged, match="grows"):
        wins("a", "b", grows=True)(lines)
    with pytest.raises(NotJudged, match="grows"):
        wins("a", "b", difference_grows=True)(lines)
    with pytest.raises(NotJudged, match="peak"):
        peaks_inside(("a", "b"))(lines)


def test_pairs_that_decide_nothing_may_be_missing() -> None:
    verdict = wins("a", "b", beside=(("a", "c"),))({"a": line(2.0), "b": line(1.0)})
    assert verdict.holds
    assert list(verdict.measured) == ["a : b at 0"]
