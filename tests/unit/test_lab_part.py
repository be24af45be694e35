"""A part of a figure: what is run, what its claim is worth then, and what a mistake looks like.

What a claim is worth where nothing was measured stands here, too.
"""

from __future__ import annotations

import json
import math

import pytest

from semistream.errors import InvalidOption
from semistream.lab.claims import EQUAL, NotJudged, close, in_order, is_within, wins
from semistream.lab.conditions import conditions_of
from semistream.lab.experiment import Point
from semistream.lab.experiments import EXPERIMENTS
from semistream.lab.part import part_of
from semistream.lab.plots import svg
from semistream.lab.report import page
from semistream.lab.run import run
from semistream.lab.surface_claims import chooses_well, peaks_inside

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
    part = part_of(experiment, "small", series=experiment.series[0].label)
    with pytest.raises(NotJudged, match="all series at all points"):
        part.judge({"HH": line(1.0)})


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


@pytest.mark.parametrize("nothing", [0.0, math.inf, math.nan])
def test_a_claim_is_not_judged_where_neither_side_has_a_number(nothing: float) -> None:
    lines = {"a": line(2.0, nothing, 1.0), "b": line(1.0, nothing, 1.0)}
    judges = [
        wins("a", "b"),
        wins("a", "b", larger_is_better=False),
        is_within("a", "b", 1.0, EQUAL, means="equal"),
        close((("a", "b"),), 0.5),
        in_order("a", "b"),
    ]
    for judge in judges:
        with pytest.raises(NotJudged, match=r"nothing to compare at 1, where a .* and b "):
            judge(lines)
    flat = {"a": line(nothing, nothing, nothing), "b": line(nothing, nothing, nothing)}
    for judge in (peaks_inside(("a", "b")), chooses_well((("a", "b"),), 0.05)):
        with pytest.raises(NotJudged, match="no highest point"):
            judge(flat)


def test_one_that_has_no_number_loses_to_one_that_has() -> None:
    lines = {"a": line(1.0), "b": line(0.0), "c": line(math.inf)}
    assert wins("a", "b")(lines).holds
    assert not wins("b", "a", paper={0: 1.0})(lines).holds
    assert wins("a", "c", larger_is_better=False)(lines).holds


def test_a_claim_about_a_point_that_was_not_run_is_not_judged() -> None:
    with pytest.raises(NotJudged, match="it speaks of 7, which was not run"):
        is_within("a", "b", 7.0, EQUAL, means="equal")({"a": line(2.0), "b": line(1.0)})


def test_a_memory_that_neither_join_can_do_with_is_not_judged() -> None:
    neither = {"a": line(math.inf), "b": line(math.inf)}
    with pytest.raises(
        NotJudged, match="nothing to compare at 0, where a needs more memory than R has bytes and b needs"
    ):
        wins("a", "b", larger_is_better=False)(neither)


def test_a_memory_that_one_join_cannot_do_with_has_no_number() -> None:
    part = part_of(EXPERIMENTS["moij-6a"], "small", at="100000", series="MOIJ,CACHEJOIN")
    result = run(part, "small", conditions_of("hdd", "jvm", 1))
    answer = json.loads(json.dumps(result.as_json(), allow_nan=False))
    assert answer["measured"]["CACHEJOIN at 100000"] is None
    assert answer["measured"]["MOIJ at 100000"] > 0
