"""The laboratory: every experiment runs at its smallest size, and says what its claim is worth."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from semistream.clock import VirtualClock
from semistream.errors import InvalidOption
from semistream.lab.bare_relation import BareRelation
from semistream.lab.bench import MeteredBareRelation, batch_means, observe
from semistream.lab.beside_best import OURS, BesideBest, beside_best
from semistream.lab.claims import AT_FLOOR, ROWS, NotJudged, close, in_order, wins
from semistream.lab.conditions import Conditions, conditions_of
from semistream.lab.experiment import SIZES, Lines, Measure, Point, Series, Setting, Verdict
from semistream.lab.experiments import EXPERIMENTS, experiment_named, moij
from semistream.lab.plots import svg, write_svg
from semistream.lab.report import page
from semistream.lab.run import BARS, Result, run
from semistream.lab.sources import distinct_keys, relation_of, stream_codes
from semistream.lab.surface_claims import chooses_well, peaks_inside
from semistream.relations.metered import IoProfile

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


IDS = [
    *(f"pcsrj-3{letter}" for letter in "abcdef"),
    *("moij-6a", "moij-6b"),
    *(f"moij-7{letter}" for letter in "abcdef"),
    *("tuned-3", "tuned-5a", "tuned-5b", "tuned-6a", "tuned-6b"),
    *(f"sscj-4{letter}" for letter in "abcde"),
    *("sscj-5a", "sscj-5b", "sscj-6"),
    *("kang-2", "kang-3", "kang-4a", "kang-4b", "kang-4c", "kang-asymmetric", "kang-table3"),
    *("kang-5", "kang-6", "kang-7", "kang-buckets", "kang-choice"),
]
WINDOWS = [name for name in IDS if name.startswith("kang")]
"""Joins of two streams: there is no R, and the clock is this machine's."""

_results: dict[str, Result] = {}


def result_of(name: str) -> Result:
    """Run an experiment once for all tests."""
    if name not in _results:
        _results[name] = run(EXPERIMENTS[name], "small")
    return _results[name]


def line(*values: float) -> tuple[Point, ...]:
    return tuple(Point(x, y, 0.95 * y, 1.05 * y) for x, y in enumerate(values))


def told(name: str, series: dict[str, tuple[float, ...]], rows: float = 1.0) -> Verdict:
    """What is said of an experiment's claim where its series have these values at the points of its smallest size."""
    xs = EXPERIMENTS[name].values["small"]
    lines = {
        label: tuple(Point(x, y, 0.99 * y, 1.01 * y, {ROWS: rows}) for x, y in zip(xs, ys, strict=True))
        for label, ys in series.items()
    }
    return EXPERIMENTS[name].judge(lines)


def test_all_figures_have_an_experiment() -> None:
    assert list(EXPERIMENTS) == IDS


@pytest.mark.parametrize("name", IDS)
def test_an_experiment_runs_and_gives_a_verdict_in_json(name: str) -> None:
    experiment = EXPERIMENTS[name]
    answer = json.loads(json.dumps(result_of(name).as_json(), allow_nan=False))
    assert {"id", "size", "io", "seed", "series", "claim", "holds", "reason", "measured"} <= set(answer)
    assert answer["reason"].endswith(".")
    assert answer["measured"]
    for points in answer["series"].values():
        assert [point["x"] for point in points] == list(experiment.values["small"])


def test_progress_is_heard_before_every_point() -> None:
    heard: list[str] = []
    experiment = EXPERIMENTS["tuned-5b"]
    run(experiment, "small", progress=lambda doing, done, total: heard.append(doing))
    assert len(heard) == len(experiment.series) * len(experiment.values["small"])


@pytest.mark.parametrize("name", [name for name in IDS if name not in WINDOWS])
def test_an_experiment_keeps_memory_a_share_of_r_at_every_size(name: str) -> None:
    experiment = EXPERIMENTS[name]
    shares = []
    for size in SIZES:
        x, setting = experiment.settings(size)[-1]
        assert isinstance(setting, Setting)
        if x == experiment.values["paper"][-1]:
            shares.append(setting.memory_bytes / (setting.r_rows * setting.row_bytes))
    assert shares == pytest.approx([shares[-1]] * len(shares), rel=0.01)


def test_the_report_is_one_page_with_all_figures(tmp_path: Path) -> None:
    html = page([result_of(name) for name in IDS])
    assert all(f'<section id="{name}">' in html for name in IDS)
    assert html.count("<svg") == len(IDS)
    assert "io hdd, size small" in html
    # Nothing is fetched from elsewhere, and every figure is summed up above all sections.
    assert "<img" not in html
    assert "<script" not in html
    top = html[: html.index("<section")]
    assert all(f'href="#{name}"' in top for name in IDS)
    assert f"of {len(IDS)} claims hold" in top
    assert write_svg(result_of(IDS[0]), tmp_path / "figures").name == f"{IDS[0]}.svg"


def test_our_own_join_is_compared_wherever_joins_are() -> None:
    for name in IDS:
        compared = result_of(name).ours.measured
        has_ours = any(series.algorithm in OURS for series in EXPERIMENTS[name].series)
        assert bool(compared) == has_ours
        if name not in WINDOWS:
            assert has_ours == (EXPERIMENTS[name].measure != "loop")
        assert set(compared) <= set(result_of(name).as_json()["measured"])


@pytest.mark.parametrize("name", [name for name in IDS if name not in WINDOWS])
def test_our_own_join_is_the_best_or_within_5_percent_of_it_even_where_r_is_small(name: str) -> None:
    ours = result_of(name).ours
    assert ours.is_near_everywhere, ours.measured


def test_the_same_seed_gives_the_same_result() -> None:
    setting = EXPERIMENTS["sscj-4a"].settings("small")[0][1]
    assert isinstance(setting, Setting)
    one, two = (observe(Series("m", "moij"), setting, Conditions(seed=3)) for _ in range(2))
    assert one == two


def test_rows_charged_as_in_the_prototypes_leave_room_for_fewer() -> None:
    setting = EXPERIMENTS["sscj-4a"].settings("small")[-1][1]
    assert isinstance(setting, Setting)
    actual, jvm = (
        observe(Series("h", "hybridjoin"), setting, Conditions(memory_model=model)).rows_per_loop
        for model in ("actual", "jvm")
    )
    assert jvm < actual


def test_the_real_device_is_read() -> None:
    setting = Setting(r_rows=2000, memory_bytes=100_000, page_rows=20, turns=1)
    assert observe(Series("h", "hybridjoin"), setting, Conditions(io="real")).rate > 0


@pytest.mark.parametrize(("given", "meant"), [("moij-7x", "moij-7"), ("sscj4a", "sscj-4a")])
def test_an_unknown_experiment_is_an_error_with_the_nearest(given: str, meant: str) -> None:
    with pytest.raises(InvalidOption, match=f"did you mean '{meant}"):
        experiment_named(given)


def test_an_unknown_size_is_an_error_with_the_nearest() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'small'"):
        run(EXPERIMENTS["tuned-5a"], "smal")


@pytest.mark.parametrize("name", ["kang-2", "kang-table3", "kang-5", "kang-6", "kang-7"])
def test_what_the_window_paper_computes_comes_out_at_every_size(name: str) -> None:
    assert result_of(name).verdict.holds, result_of(name).verdict.reason


# Claims


def test_a_winner_is_ahead_everywhere_and_near_the_stated_ratio() -> None:
    lines = {"a": line(2.0, 4.0), "b": line(1.0, 2.0)}
    assert wins("a", "b", paper={1: 2.2})(lines).holds
    assert not wins("a", "b", paper={1: 3.0})(lines).holds
    verdict = wins("b", "a", explain="it is slow")(lines)
    assert not verdict.holds
    assert "it is slow." in verdict.reason.lower()
    assert wins("b", "a", larger_is_better=False)(lines).holds
    assert not wins("a", "b", least=2.1)(lines).holds


def test_a_gain_that_should_grow_is_larger_at_the_end() -> None:
    lines = {"a": line(2.0, 3.0), "b": line(1.0, 1.0), "c": line(1.0, 2.0)}
    assert wins("a", "b", grows=True)(lines).holds
    assert not wins("a", "c", grows=True)(lines).holds


def test_a_tuner_is_judged_by_what_its_choice_was_measured_to_serve() -> None:
    lines = {"run": line(10.0, 9.7, 5.0), "near": line(1.0, 2.0, 1.0), "far": line(1.0, 1.0, 2.0)}
    assert chooses_well((("near", "run"),), 0.05)(lines).holds
    assert not chooses_well((("far", "run"),), 0.05)(lines).holds


def test_our_own_join_is_compared_at_equal_memory_and_equal_nodes() -> None:
    ours, on_two = Series("ours", "adaptive"), Series("ours, 2", "adaptive", nodes=2)
    rivals = (Series("a", "moij"), Series("b", "pcsrj", nodes=2), Series("c", "pcsrj", nodes=2, memory_times=2))
    lines = {"ours": line(3.0), "ours, 2": line(5.0), "a": line(2.0), "b": line(10.0), "c": line(99.0)}
    experiment = replace(EXPERIMENTS["pcsrj-3a"], series=(ours, on_two, *rivals))
    assert beside_best(experiment, lines).measured == {"ours : best other at 0": 1.5, "ours, 2 : best other at 0": 0.5}
    assert beside_best(replace(experiment, measure="processing"), lines).measured["ours : best other at 0"] == 0.667


def test_our_own_join_is_clearly_the_best_where_no_interval_reaches_it() -> None:
    experiment = replace(
        EXPERIMENTS["moij-7a"], series=(Series("ours", "adaptive"), Series("a", "moij"), Series("b", "ssbj"))
    )
    lines = {"ours": line(2.0, 2.0, 2.0), "a": line(1.0, 1.85, 1.0), "b": line(1.0, 1.0, 2.5)}
    compared = beside_best(experiment, lines)
    assert (compared.best_at, compared.clearly_best_at) == (2, 1)
    assert beside_best(replace(experiment, measure="waiting"), lines).clearly_best_at == 0


def test_where_no_join_gets_anywhere_there_is_no_best() -> None:
    experiment = replace(EXPERIMENTS["moij-7a"], series=(Series("ours", "adaptive"), Series("a", "moij")))
    lines = {"ours": line(0.0, 2.0), "a": line(0.0, 0.0)}
    assert beside_best(experiment, lines).measured == {"ours : best other at 1": math.inf}
    needed = {"ours": line(math.inf, 2.0), "a": line(math.inf, 2.0)}
    assert beside_best(replace(experiment, measure="memory"), needed).measured == {"ours : best other at 1": 1.0}


def test_memory_that_is_the_least_a_join_can_run_in_is_no_comparison() -> None:
    floor = (Point(0.0, 10.0, 5.0, 15.0, {AT_FLOOR: True}),)
    with pytest.raises(NotJudged, match="both a and b need no more than what they can run in"):
        wins("a", "b", larger_is_better=False)({"a": floor, "b": floor})
    assert wins("a", "b", larger_is_better=False)({"a": floor, "b": line(20.0)}).holds


def test_an_order_names_what_only_the_intervals_leave_open() -> None:
    assert (
        "but for what the 95 % intervals leave open (a : b at 0: 0.97)"
        in in_order("a", "b")({"a": line(0.97), "b": line(1.0)}).reason
    )


def test_what_the_intervals_leave_open_is_not_held_against_a_winner() -> None:
    assert wins("a", "b")({"a": line(0.97), "b": line(1.0)}).holds


def test_closeness_order_and_peaks_are_judged() -> None:
    lines = {"a": line(1.0, 3.0, 2.0), "b": line(1.0, 3.2, 2.0), "c": line(0.5, 1.0, 1.5)}
    assert close((("a", "b"),), 0.1)(lines).holds
    assert not close((("a", "c"),), 0.1)(lines).holds
    assert in_order("b", "c")(lines).holds
    assert not in_order("c", "b")(lines).holds
    assert peaks_inside(("a", "b", "c"))(lines).holds
    assert not peaks_inside(("c", "a", "b"))(lines).holds


def test_a_run_in_which_nothing_was_measured_is_not_judged_and_its_json_is_finite() -> None:
    def nothing_measured(lines: Lines) -> Verdict:
        raise NotJudged("nothing was seen")

    experiment = replace(EXPERIMENTS["tuned-5b"], judge=nothing_measured)
    result = run(experiment, "small")
    assert result.verdict.holds is None
    assert result.verdict.reason.startswith("Not judged: nothing was seen. Measured: measured at 1 ")
    beside_nothing = BesideBest({"ours : best other at 1": math.inf, "ours : best other at 2": math.nan})
    answer = replace(result, ours=beside_nothing).as_json()
    assert json.loads(json.dumps(answer, allow_nan=False))["adaptive"]["least"] is None
    assert "1 could not be judged" in page([result])


def test_faster_is_more_than_the_intervals_leave_open() -> None:
    assert wins("a", "b", clearly=True)({"a": line(1.2), "b": line(1.0)}).holds
    verdict = wins("a", "b", clearly=True)({"a": line(1.2, 1.04), "b": line(1.0, 1.0)})
    assert not verdict.holds
    assert "Within the 95 % intervals the two are level at 1." in verdict.reason


def test_about_a_ratio_is_judged_from_both_sides() -> None:
    lines = {"a": line(2.0, 6.0), "b": line(1.0, 2.0)}
    assert wins("a", "b", paper={1: 2.0})(lines).holds
    verdict = wins("a", "b", paper={1: 2.0}, about=True, explain="it is slow", explain_more="it is fast")(lines)
    assert verdict.holds is False
    assert "More than 1.25 times the paper's" in verdict.reason
    assert "It is fast." in verdict.reason
    assert "slow" not in verdict.reason
    assert wins("a", "b", paper={1: 2.5}, about=True)(lines).holds
    assert not wins("a", "b", most=2.5)(lines).holds


@pytest.mark.parametrize(("ratio", "holds"), [(0.2, False), (0.95, True), (1.0, True), (1.05, True), (5.0, False)])
def test_equal_at_skew_0_means_neither_more_nor_less(ratio: float, holds: bool) -> None:
    verdict = told("moij-7c", {"MOIJ": (ratio, 12.0), "CACHEJOIN": (1.0, 2.0)})
    assert verdict.holds is holds, verdict.reason
    assert "equal is 0.9 to 1.11" in verdict.reason


@pytest.mark.parametrize(("ratio", "holds"), [(0.01, False), (0.9, True), (1.2, False), (100.0, False)])
def test_slightly_below_meshjoin_means_neither_far_below_nor_above(ratio: float, holds: bool) -> None:
    series = {"SSCJ": (ratio, 300.0), "HYBRIDJOIN": (ratio, 100.0)}
    queried, scan = "MESHJOIN, a query a segment", "MESHJOIN"
    verdict = told("sscj-4c", {**series, queried: (1.0, 1.0), scan: (50.0, 50.0)})
    assert verdict.holds is holds, verdict.reason
    assert "SSCJ : MESHJOIN is" in verdict.reason
    assert ("twice as long as an average page" in verdict.reason) == (ratio > 1)


@pytest.mark.parametrize("name", ["tuned-6a", "tuned-6b"])
def test_an_order_that_is_judged_by_a_query_a_segment_names_the_plain_scan_too(name: str) -> None:
    labels = ("Tuned X-HYBRIDJOIN", "X-HYBRIDJOIN", "HYBRIDJOIN", "MESHJOIN, a query a segment")
    series = {label: (8.0 / 2**place, 9.0 / 2**place + 1 - place) for place, label in enumerate(labels[:3])}
    for queried in (0.1, 100.0):
        verdict = told(name, {**series, labels[3]: (queried, queried), "MESHJOIN": (16.0, 16.0)})
        assert verdict.holds == (queried < 1), verdict.reason
        assert "HYBRIDJOIN : MESHJOIN is 0.125 at" in verdict.reason
        assert ("rows that it serves" in verdict.reason) == (not verdict.holds)


def test_no_explanation_speaks_of_what_was_not_looked_at() -> None:
    for name in ("moij-6a", "moij-6b", "moij-7a", "sscj-4a"):
        reason = result_of(name).verdict.reason
        assert "models" not in reason, "no model is asked at this size"
    reason = told("pcsrj-3a", {"PCSRJ": (1.17, 1.18), "CACHEJOIN": (1.0, 1.0)}, rows=4.5).reason
    assert "near 2" not in reason
    assert "PCSRJ 4.5, CACHEJOIN 4.5 at 1" in reason


@pytest.mark.parametrize(
    ("name", "pairs"),
    [
        ("pcsrj-3f", {"PCSRJ tuned": "model"}),
        ("moij-7f", {"MOIJ": "MOIJ model", "CACHEJOIN tuned": "CACHEJOIN model"}),
        ("sscj-6", {"SSCJ": "SSCJ model", "HYBRIDJOIN": "HYBRIDJOIN model", "MESHJOIN": "MESHJOIN model"}),
    ],
)
def test_a_model_that_is_off_is_explained(name: str, pairs: dict[str, str]) -> None:
    points = len(EXPERIMENTS[name].values["small"])
    verdict = told(name, dict.fromkeys(pairs, (1.0,) * points) | dict.fromkeys(pairs.values(), (1.5,) * points))
    assert verdict.holds is False
    assert "the iterations that the ends of a short window cut" in verdict.reason


# Pieces


def test_a_seed_is_not_negative() -> None:
    with pytest.raises(InvalidOption, match="`seed` is negative; given: -1; allowed: "):
        conditions_of("hdd", "actual", -1)


@pytest.mark.parametrize(
    ("measure", "bars"),
    [("rate", "95 % intervals. The"), ("memory", "too small to one that is enough"), ("loop", "intervals of the rate")],
)
def test_a_caption_says_what_its_bars_are(measure: Measure, bars: str) -> None:
    result = result_of("tuned-5b")
    drawn = replace(result, experiment=replace(result.experiment, measure=measure))
    caption = "".join(re.findall(r"<!-- (.*?) -->", svg(drawn), re.DOTALL))
    assert bars in caption
    assert set(BARS) == set(get_args(Measure))


def test_the_interval_of_batch_means_holds_the_true_rate() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        rate, low, high = batch_means(np.cumsum(rng.exponential(0.5, 2000)), 0.0, 900.0)
        assert low <= rate <= high
        inside += low <= 2.0 <= high
    assert inside >= 180


def test_a_burst_at_an_end_of_the_window_is_counted_once() -> None:
    """A thousand rows every ten seconds: a window of hundred seconds has ten bursts, wherever it begins."""
    bursts_s = np.repeat(np.arange(10.0, 300.0, 10.0), 1000)
    assert batch_means(bursts_s, 95.0, 195.0)[0] == pytest.approx(100.0)


def test_a_scan_by_queries_pays_a_seek_for_every_segment() -> None:
    setting = Setting(r_rows=2000, memory_bytes=100_000, page_rows=20, turns=3)
    scan, queries = (
        observe(Series("m", "meshjoin", queries_segments=asks), setting, Conditions()) for asks in (False, True)
    )
    assert queries.loop_s - scan.loop_s == pytest.approx(0.01, rel=0.05)


def test_generated_tables_have_the_keys_that_their_law_says() -> None:
    for data, rows_per_key in (("customer-orders", 1), ("partsupp-lineitem", 4)):
        setting = replace(moij.tpch("small", 10.0), r_rows=2400, data=data, rows_per_key=rows_per_key, from_tables=True)
        keys, codes = distinct_keys(setting), stream_codes(setting, 3000, seed=1)
        assert keys.tolist() == list(range(1, 2400 // rows_per_key + 1))
        assert relation_of(setting, keys).info.rows_per_code_max == rows_per_key
        assert np.isin(codes, keys).all()
        if data == "customer-orders":
            assert (codes % 3 != 0).all()


def test_generated_weather_has_more_rows_where_more_stations_stand() -> None:
    setting = replace(moij.weather("small", 10.0), r_rows=60_000, from_tables=True)
    keys = distinct_keys(setting)
    relation = relation_of(setting, keys)
    assert relation.info.row_count == 60_000
    assert relation.info.rows_per_code_max > 3 * relation.info.row_count / len(keys)
    assert np.isin(stream_codes(setting, 10_000, seed=2), keys).mean() > 0.95


def test_a_bare_relation_has_its_keys_on_pages_of_the_stated_bytes() -> None:
    relation = BareRelation(np.arange(0, 200, 2), page_rows=10, row_bytes=120, rows_per_key=2)
    page_rows = relation.page_for(50)
    assert 50 in page_rows.column(0).to_pylist()
    assert page_rows.nbytes == pytest.approx(10 * 120, abs=8)
    found = list(relation.rows_for(np.array([2, 3, 198]), bytes_max=130))
    assert [row for batch in found for row in batch.column(0).to_pylist()] == [2, 2, 198, 198]
    scanned = [code for n in range(relation.segment_count) for code in relation.segment(n).column(0).to_pylist()]
    assert scanned == sorted([*range(0, 200, 2)] * 2)
    assert math.isclose(relation.info.row_count, 200)


@pytest.mark.parametrize("row_bytes", [9, 120, 128, 223])
def test_what_is_charged_for_rows_of_a_bare_relation_is_what_arrow_adds_up(row_bytes: int) -> None:
    relation, clock = BareRelation(np.arange(25), page_rows=10, row_bytes=row_bytes), VirtualClock()
    charging = MeteredBareRelation(relation, IoProfile("slow", seek_s=0, bytes_per_s=1), clock)
    read = [charging.segment(0), charging.page_for(24)]
    assert [len(batch) for batch in read] == [10, 5]
    assert clock.now_s() == sum(batch.nbytes for batch in read)


def test_the_page_of_one_key_is_the_one_that_all_are_told() -> None:
    for rows_per_key in (2, np.array([3, 1, 12, 2, 2, 6])):
        relation = BareRelation(np.arange(0, 60, 10), page_rows=8, row_bytes=120, rows_per_key=rows_per_key)
        asked = np.arange(-5, 70)
        pages = [relation.segment(number) for number in relation.page_numbers(asked).tolist()]
        assert [relation.page_for(code) for code in asked.tolist()] == pages


def test_a_bare_relation_may_have_another_number_of_rows_for_each_key() -> None:
    counts = np.array([3, 1, 12, 2, 2, 6])
    relation = BareRelation(np.arange(0, 60, 10), page_rows=8, row_bytes=120, rows_per_key=counts)
    pages = [relation.segment(n).column(0).to_pylist() for n in range(relation.segment_count)]
    assert [sorted(set(codes)) for codes in pages] == [[0, 10], [20], [30, 40], [50]]
    assert sum(map(len, pages)) == relation.info.row_count == 26
    assert len(relation.page_for(25)) == 12
    found = [code for batch in relation.rows_for(np.array([5, 10, 50]), 10_000) for code in batch.column(0).to_pylist()]
    assert found == [10, *[50] * 6]
