"""Invented weather: as many reports as the real collection, from places as uneven, in its exact format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from semistream.errors import InvalidOption
from semistream.lab.workloads.weather import NDP_026B
from semistream.lab.workloads.weather_files import month_file_name, read_reports, write_reports
from semistream.lab.workloads.weather_stations import (
    JOIN_KEY,
    STATION_COUNT,
    Stations,
    master_reports,
    month_reports,
    stations,
    stream_reports,
)

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def world() -> Stations:
    return stations(600, seed=80)


@pytest.fixture(scope="module")
def april(world: Stations) -> pa.Table:
    return pa.Table.from_batches(month_reports(world, 1985, 4))


def test_a_month_has_as_many_reports_as_in_the_collection() -> None:
    day = next(month_reports(stations(STATION_COUNT, seed=81), 1985, 9))
    assert day.num_rows * 30 == pytest.approx(1_013_800, rel=0.05)


def test_a_month_is_written_and_read_as_records_of_56_characters(april: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / month_file_name(1985, 4)
    assert write_reports(iter(april.to_batches()), path) == april.num_rows
    assert path.stat().st_size == april.num_rows * 57
    assert pa.Table.from_batches(read_reports(path)).equals(april)


def test_reports_come_in_order_of_time_at_the_eight_hours(april: pa.Table) -> None:
    times = april["observed_at"].to_numpy()
    assert np.all(np.diff(times) >= np.timedelta64(0))
    assert set(pc.unique(pc.hour(april["observed_at"])).to_pylist()) == set(range(0, 24, 3))
    assert {str(day) for day in np.unique(times.astype("datetime64[D]"))} == {
        f"1985-04-{day:02d}" for day in range(1, 31)
    }


def test_no_station_reports_twice_in_an_hour_or_moves(april: pa.Table) -> None:
    assert april.group_by(["observed_at", "station_id"]).aggregate([]).num_rows == april.num_rows
    places = april.group_by(["station_id", "lat", "lon"]).aggregate([])
    assert places.num_rows == len(pc.unique(april["station_id"]))


def test_stations_report_unevenly(april: pa.Table) -> None:
    counts = april.group_by("station_id").aggregate([([], "count_all")])["count_all"].to_numpy()
    assert counts.max() > 230, "some miss hardly any of the 240 hours"
    assert np.quantile(counts, 0.2) < 110, "some report by day only"
    per_day = counts.mean() / 30
    assert 4 < per_day < 5.5


def test_longitudes_are_keys_of_0_to_35999_and_some_are_crowded() -> None:
    lon = stations(7000, seed=82).lon_hundredths
    assert lon.min() >= 0
    assert lon.max() < 36000
    per_degree = np.bincount(lon // 100, minlength=360)
    assert per_degree.max() > 2.5 * per_degree.mean()
    assert np.quantile(per_degree, 0.2) < 0.25 * per_degree.mean()


def test_every_value_is_in_its_documented_range(april: pa.Table) -> None:
    ranges = {"IB": (0, 1), "lat": (-9000, 9000), "lon": (0, 36000), "station_id": (1000, 98999), "LO": (1, 1)}
    ranges |= {"ww": (0, 99), "N": (0, 8), "Nh": (0, 8), "h": (0, 9), "CL": (0, 11), "CM": (0, 12), "CH": (0, 9)}
    ranges |= {"AM": (0, 800), "AH": (0, 800), "UM": (0, 8), "UH": (0, 8), "IC": (0, 9)}
    ranges |= {"SA": (-900, 900), "RI": (-110, 117)}
    assert set(ranges) == {field.name for field in NDP_026B.fields}
    for name, (low, high) in ranges.items():
        found = pc.min_max(april[name]).as_py()
        assert low <= found["min"] <= found["max"] <= high, name
    assert pc.all(pc.less_equal(april["Nh"], april["N"])).as_py()
    clear = april.filter(pc.equal(april["N"], 0))
    assert pc.max(clear["AM"]).as_py() == pc.max(clear["CL"]).as_py() == 0


def test_the_sun_is_up_at_noon_and_down_at_midnight(april: pa.Table) -> None:
    local_hour = (pc.hour(april["observed_at"]).to_numpy() + april["lon"].to_numpy() / 1500) % 24
    middle = np.abs(april["lat"].to_numpy()) < 4000
    sun = april["SA"].to_numpy()
    assert np.all(sun[middle & (np.abs(local_hour - 12) < 3)] > 0)
    assert np.all(sun[middle & (np.minimum(local_hour, 24 - local_hour) < 3)] < 0)


def test_april_and_august_are_master_data_and_december_is_the_stream() -> None:
    few = stations(20, seed=83)
    master, stream = (pa.Table.from_batches(make(few, [1982, 1983])) for make in (master_reports, stream_reports))
    assert pc.unique(pc.month(master["observed_at"])).to_pylist() == [4, 8]
    assert pc.unique(pc.month(stream["observed_at"])).to_pylist() == [12]
    assert pc.unique(pc.year(master["observed_at"])).to_pylist() == [1982, 1983]
    assert pc.all(pc.is_in(stream[JOIN_KEY], pc.unique(master[JOIN_KEY]))).as_py(), "stations stay where they are"


def test_a_month_needs_no_other_month_and_a_seed_gives_it_again(world: Stations, april: pa.Table) -> None:
    list(month_reports(world, 1985, 3))
    assert pa.Table.from_batches(month_reports(stations(600, seed=80), 1985, 4)).equals(april)
    assert not pa.Table.from_batches(month_reports(stations(600, seed=84), 1985, 4)).equals(april)


@pytest.mark.parametrize("count", [0, -1, 98_000])
def test_an_impossible_world_is_refused(count: int) -> None:
    with pytest.raises(InvalidOption, match="weather station"):
        stations(count)
