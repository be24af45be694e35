"""What a user may change about a figure: its stream, its disk, and where its weather comes from."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semistream.errors import InvalidOption, RelationNotFound
from semistream.lab.conditions import Conditions, StreamKind, conditions_of
from semistream.lab.experiment import Setting
from semistream.lab.experiments import EXPERIMENTS
from semistream.lab.feasible import check_can_run, stream_in, under
from semistream.lab.part import part_of
from semistream.lab.run import Result, run
from semistream.lab.sources import arrival_times, stream_codes
from semistream.lab.weather_archive import longitudes_in, with_reports
from semistream.lab.workloads.key_stream import Drift
from semistream.lab.workloads.weather_files import month_file_name, write_reports
from semistream.lab.workloads.weather_stations import month_reports, stations

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

KEYS, ROWS = 10_000, 200_000
REAL = Conditions(io="real")
SETTING = Setting(r_rows=KEYS, memory_bytes=100_000, page_rows=20, arrival_rows_per_s=500.0)


def codes_of(**changed: Any) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return stream_codes(SETTING, ROWS, seed=3, stream=conditions_of(**changed).stream)


def share_of(code: int, codes: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    return float(np.mean(codes == code))


# The stream


def test_the_integral_generator_is_flatter_at_the_top() -> None:
    harmonic = sum(1 / rank for rank in range(1, KEYS + 1))
    assert share_of(0, codes_of()) == pytest.approx(1 / harmonic, rel=0.03)
    assert share_of(0, codes_of(generator="integral")) == pytest.approx(math.log(2) / math.log(KEYS), rel=0.03)


def test_an_exponent_that_the_published_generator_does_not_know_is_drawn_all_the_same() -> None:
    setting = replace(SETTING, skew=1.3)
    codes = stream_codes(setting, ROWS, seed=3, stream=StreamKind("integral"))
    assert share_of(0, codes) == pytest.approx((1 - 2**-0.3) / (1 - KEYS**-0.3), rel=0.03)


def test_shuffled_keys_are_as_popular_and_lie_elsewhere() -> None:
    plain, shuffled = codes_of(), codes_of(order="shuffled")
    counts, strewn = (np.sort(np.bincount(codes, minlength=KEYS))[::-1] for codes in (plain, shuffled))
    assert (counts == strewn).all()
    assert np.mean(plain < KEYS // 10) > 0.7
    assert np.mean(shuffled < KEYS // 10) < 0.4


def test_the_hot_set_moves_after_the_rows_that_were_named() -> None:
    plain, drifting = codes_of(), codes_of(drift_rows=ROWS // 2)
    assert (plain[: ROWS // 2] == drifting[: ROWS // 2]).all()
    assert share_of(0, drifting[ROWS // 2 :]) < 0.01 < share_of(0, drifting[: ROWS // 2])


@pytest.mark.parametrize("arrivals", ["constant", "bursty", "intermittent", "published"])
def test_rows_come_in_order_and_at_the_stated_rate_on_average(arrivals: str) -> None:
    times = arrival_times(SETTING, ROWS, 3, conditions_of(arrivals=arrivals).stream.arrivals)
    assert len(times) == ROWS
    assert (np.diff(times) >= 0).all()
    assert times[-1] == pytest.approx(ROWS / 500.0, rel=0.02)
    per_second = np.histogram(times, bins=200)[0]
    assert (per_second.std() > 0.3 * per_second.mean()) == (arrivals != "constant")


def test_rows_without_a_rate_are_all_there_at_once() -> None:
    assert not arrival_times(replace(SETTING, arrival_rows_per_s=None), 100, 3, "bursty").any()


def waiting(arrivals: str) -> Result:
    part = part_of(EXPERIMENTS["sscj-5b"], "small", series="SSCJ,HYBRIDJOIN")
    return run(part, "small", conditions_of(arrivals=arrivals))


def test_a_run_says_which_series_keep_up_with_even_arrivals_and_with_bursts() -> None:
    even, bursty = waiting("constant"), waiting("bursty")
    for result in (even, bursty):
        hybrid = result.lines["HYBRIDJOIN"]
        assert [point.x for point in hybrid] == [0.5, 4.0]
        assert [point.extra["keeps_up"] for point in hybrid] == [True, False]
        for point in hybrid:
            # What is served of a stream that is too fast is the service rate; of any other, what comes.
            served = point.extra["rate"] / point.extra["arrival_rows_per_s"]
            assert (served > 0.9) == point.extra["keeps_up"]
    assert bursty.lines["HYBRIDJOIN"][0].y != even.lines["HYBRIDJOIN"][0].y
    answer = json.loads(json.dumps(bursty.as_json(), allow_nan=False))
    assert answer["data"] == "bursty arrivals"
    assert answer["series"]["HYBRIDJOIN"][1]["keeps_up"] is False
    assert "Found on bursty arrivals; reasons speak of the figure's own data" in answer["reason"]
    assert "bursty arrivals" in bursty.run_with
    assert even.as_json()["data"] == "as in the figure"


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("arrivals", ["constant", "published"])
def test_our_own_join_keeps_up_where_it_serves_what_comes(arrivals: str, seed: int) -> None:
    part = part_of(EXPERIMENTS["sscj-5b"], "small", series="adaptive (ours)")
    (ours,) = run(part, "small", conditions_of(seed=seed, arrivals=arrivals)).lines.values()
    for point in ours:
        assert point.extra["keeps_up"] == (point.extra["rate"] > 0.8 * point.extra["arrival_rows_per_s"])


def test_where_popular_keys_are_strewn_pinned_pages_answer_little() -> None:
    """X-HYBRIDJOIN pins the first pages of R, which is worth something in the order of popularity alone."""
    part = part_of(EXPERIMENTS["tuned-5b"], "small", at="4", series="measured")
    by_frequency, strewn = (run(part, "small", conditions_of(order=order)) for order in ("frequency", "shuffled"))
    hits = [result.lines["measured"][0].extra["hit_share"] for result in (by_frequency, strewn)]
    assert hits[1] < 0.6 * hits[0]


@pytest.mark.parametrize(
    ("name", "changed", "why"),
    [
        ("moij-7d", {"generator": "integral"}, "`generator`, for its keys are not drawn; given: keys by"),
        ("moij-7e", {"order": "shuffled"}, "`order`, for no drawn key is more popular"),
        ("kang-3", {"drift_rows": 100}, "`drift`, for no drawn key"),
        ("moij-7a", {"drift_rows": 100_000}, "or the stream ends before"),
        ("moij-7a", {"arrivals": "bursty"}, "nothing in moij-7a: `arrivals`, for its rows are all there at once"),
    ],
)
def test_a_change_that_would_change_nothing_is_refused(name: str, changed: dict[str, Any], why: str) -> None:
    conditions = conditions_of(**changed)
    with pytest.raises(InvalidOption, match=why):
        check_can_run(EXPERIMENTS[name], "small", conditions)
    check_can_run(EXPERIMENTS[name], "small", Conditions())
    assert stream_in(EXPERIMENTS[name], "small", conditions) == StreamKind()


def test_a_report_changes_what_it_can_and_says_so_only_there() -> None:
    conditions = conditions_of(order="shuffled", arrivals="bursty")
    assert stream_in(EXPERIMENTS["sscj-5b"], "small", conditions) == conditions.stream
    assert stream_in(EXPERIMENTS["moij-7a"], "small", conditions) == StreamKind(order="shuffled")
    with pytest.raises(InvalidOption) as refused:
        check_can_run(EXPERIMENTS["moij-7a"], "small", conditions)
    assert "`order`" not in str(refused.value)
    on_tables = run(part_of(EXPERIMENTS["moij-7d"], "small", series="MOIJ,CACHEJOIN"), "small", conditions)
    assert on_tables.as_json()["data"] == "as in the figure"
    assert "strewn" not in on_tables.verdict.reason


@pytest.mark.parametrize(
    ("name", "changed"),
    [("moij-7f", {"drift_rows": 100}), ("tuned-5a", {"order": "shuffled"}), ("pcsrj-3f", {"generator": "integral"})],
)
def test_no_model_is_judged_by_keys_that_it_does_not_know(name: str, changed: dict[str, Any]) -> None:
    result = run(EXPERIMENTS[name], "small", conditions_of(**changed))
    assert result.verdict.holds is None
    assert "model" in result.verdict.reason.partition("which was not run")[0]
    assert not any(series.is_model for series in result.experiment.series)


def test_a_hot_set_that_moves_before_the_first_row_is_refused() -> None:
    with pytest.raises(InvalidOption, match="at least one row"):
        Drift(every_rows=0)


# The disk


def test_on_this_machine_no_series_pretends_to_be_metered() -> None:
    for name in ("sscj-6", "tuned-6a", "pcsrj-3f"):
        run_here = under(EXPERIMENTS[name], REAL).series
        assert run_here
        assert not any(series.is_model or series.queries_segments for series in run_here)
    assert under(EXPERIMENTS["kang-3"], REAL) is EXPERIMENTS["kang-3"]
    assert all(under(experiment, REAL).series for experiment in EXPERIMENTS.values())
    with pytest.raises(InvalidOption, match="nothing else was asked for; given: moij-7f, MOIJ model"):
        check_can_run(part_of(EXPERIMENTS["moij-7f"], "small", series="MOIJ model"), "small", REAL)


@pytest.mark.parametrize(
    ("name", "missing"), [("moij-7f", "MOIJ model"), ("sscj-4c", "MESHJOIN, a query a segment"), ("tuned-5b", "model")]
)
def test_a_claim_about_what_this_machine_cannot_show_is_not_judged(name: str, missing: str) -> None:
    result = run(EXPERIMENTS[name], "small", REAL)
    assert result.verdict.holds is None
    assert f"it speaks of {missing}, which was not run" in result.verdict.reason
    assert "Found on this machine's disk and clock" in result.verdict.reason
    assert all(point.y > 0 for points in result.lines.values() for point in points)


def test_a_claim_about_joins_is_judged_on_this_machine() -> None:
    result = run(part_of(EXPERIMENTS["moij-7a"], "small", series="MOIJ,CACHEJOIN"), "small", REAL)
    assert result.verdict.holds is not None
    assert result.verdict.measured["MOIJ at 10"] == result.lines["MOIJ"][0].y


# The weather


def archive(directory: Path, *months: int, count: int = 40) -> dict[int, list[int]]:
    """Write files of invented reports, a month each; return the longitudes of each month."""
    world = stations(count, seed=5)
    found: dict[int, list[int]] = {}
    for month in months:
        days = list(month_reports(world, 1986, month))[:3]
        write_reports(iter(days), directory / month_file_name(1986, month))
        found[month] = [code for day in days for code in day["lon"].to_pylist()]
    return found


def test_reports_of_an_archive_are_joined_in_place_of_invented_ones(tmp_path: Path) -> None:
    written = archive(tmp_path, 4, 7, 8, 12, count=400)
    experiment = with_reports(EXPERIMENTS["moij-7e"], tmp_path)
    (_, setting), *_ = experiment.settings("small")
    assert isinstance(setting, Setting)
    assert setting.r_rows == len(written[4]) + len(written[8])
    assert setting.memory_bytes == pytest.approx(setting.r_rows * 128 * 0.1, rel=0.01)
    found = longitudes_in(setting.reports)
    assert sorted(found.master) == sorted(written[4] + written[8])
    assert found.stream.tolist() == written[12]
    answer = run(experiment, "small").as_json()
    assert answer["settings"][0]["reports"] == ["APR86L", "AUG86L", "DEC86L", "JUL86L"]
    assert answer["series"]["MOIJ"][0]["y"] > 0
    assert str(tmp_path) not in json.dumps(answer)
    counted = f"{setting.r_rows} rows in R, {len(set(found.master))} longitudes"
    assert answer["data"] == f"weather reports of an archive ({counted})"
    assert answer["data"] in answer["reason"]
    assert "invented stations" not in experiment.note.partition(" with invented stations")[0]
    assert experiment.fixed == EXPERIMENTS["moij-7e"].fixed


def test_files_of_stations_are_read_in_order_of_time(tmp_path: Path) -> None:
    header = "year,month,day,hour,lat,lon"
    for name, lon in (("1.csv", -10.5), ("2.csv", 20.25)):
        hours = [f"1999,{month},1,{hour},50,{lon}" for month in (4, 12) for hour in (0, 6)]
        (tmp_path / name).write_text("\n".join((header, *hours)) + "\n")
    found = longitudes_in(tuple(sorted(tmp_path.iterdir())))
    assert sorted(found.master) == [2025, 2025, 34950, 34950]
    assert found.stream.tolist() == [34950, 2025, 34950, 2025]


def test_reports_that_cannot_be_joined_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RelationNotFound, match="no files of weather reports in this directory"):
        with_reports(EXPERIMENTS["moij-7e"], tmp_path)
    with pytest.raises(RelationNotFound, match="no file of weather reports at this place"):
        with_reports(EXPERIMENTS["moij-7e"], tmp_path / "nowhere")
    (tmp_path / "reports").mkdir()
    with pytest.raises(RelationNotFound, match=r"did you mean '.*/reports'"):
        with_reports(EXPERIMENTS["moij-7e"], tmp_path / "report")
    (tmp_path / "reports").rmdir()
    (tmp_path / "1.csv").write_text("year,month,day,hour,lat,lon\n")
    with pytest.raises(InvalidOption, match=r"no weather reports at all; given: 1\.csv"):
        with_reports(EXPERIMENTS["moij-7e"], tmp_path)
    (tmp_path / "1.csv").unlink()
    archive(tmp_path, 4)
    with pytest.raises(InvalidOption, match="no weather reports of DEC"):
        with_reports(EXPERIMENTS["sscj-4e"], tmp_path)
    with pytest.raises(InvalidOption, match="belong to figures of the weather; given: moij-7a; allowed: moij-7e"):
        with_reports(EXPERIMENTS["moij-7a"], tmp_path)
