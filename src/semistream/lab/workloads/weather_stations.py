"""Invented weather reports in the format NDP-026B: a world of stations, and what they would have reported.

The collection itself is no longer easy to get, and its join is one of the papers' experiments: reports of April and
August as master data, reports of December as the stream, joined on longitude. This generator makes reports like them —
like, not equal: say so beside every figure.

What a join notices is kept. Stations stand where there is land and people, so some longitudes have many stations, most
have few or none; a station never moves, and reports at up to eight fixed hours a day. Not all do: most stations report
every three hours, many every six, some only by day, and each forgets a share of its own. 7 000 stations come to about
a million reports a month, as in the collection. What a join does not notice is only plausible: clouds are drawn
by frequency, sun and moon are computed.

A month is made from the seed and the month alone, so months can be made in any order and again.

Memory: the reports of one day, some 20 MB for 11 000 stations.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import InvalidOption
from semistream.lab.workloads.weather import NDP_026B, TIME_TYPE, column_of
from semistream.lab.workloads.weather_files import MONTH_NAMES

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

JOIN_KEY = "lon"
MASTER_MONTHS = (4, 8)
STREAM_MONTHS = (12,)
"""April and August are master data, December is the stream."""

YEARS = tuple(range(1982, 1992))
"""The years of the collection that have all of these months, but for December 1991."""

STATION_COUNT = 7000
STATIONS_MAX = 97_999
STATION_ID_FIRST = 1000

HOURS = np.arange(0, 24, 3)
"""The synoptic hours, UTC."""
DAY_BEGINS_HOUR, DAY_ENDS_HOUR = 6, 18

# Where stations stand: share of all, and the box they stand in (degrees: west to east, south to north).
_REGIONS = np.array(
    [
        (0.26, -10, 45, 36, 66),  # Europe
        (0.16, 45, 140, 45, 70),  # northern Asia
        (0.18, 70, 145, 8, 45),  # southern and eastern Asia
        (0.14, -125, -65, 25, 60),  # North America
        (0.07, -80, -38, -40, 10),  # South America
        (0.09, -17, 50, -34, 35),  # Africa
        (0.05, 115, 153, -38, -12),  # Australia
        (0.05, -180, 180, -75, 80),  # islands, and the poles
    ]
)

EVERY_3_HOURS_SHARE, EVERY_6_HOURS_SHARE = 0.45, 0.35
"""How many stations report so often; the others report every three hours from six to six, by their own sun."""

_COVER_SHARES = (0.16, 0.07, 0.07, 0.07, 0.06, 0.07, 0.09, 0.17, 0.24)
"""How often 0 to 8 oktas are covered: clear or closed rather than in between."""

_WEATHER_UNSEEN, _LOWER_UNSEEN, _MIDDLE_UNSEEN, _HIGH_UNSEEN = 0.08, 0.04, 0.15, 0.20
"""Shares of reports without this observation; what hides a layer hides those above it too."""
_EDITED = 0.1

_MOON_DAYS = 29.530589
_FULL_MOON_DAY = 20.8
"""Days after the start of 1970 UTC of a full moon, 22 January."""

_EARTH_TILT_DEGREES = 23.44
_YEAR_DAYS = 365.2422
_SPRING_DAY = 79.0
"""Days after the start of 1970 at which the sun stands above the equator."""

BRIGHT_ENOUGH_SUN_DEGREES = -9.0
BRIGHT_ENOUGH_MOON = 0.11
"""At night clouds are seen if the sun is not far down, or the moon gives enough light."""


@dataclass(frozen=True)
class Stations:
    """The stations of the world, an element a station."""

    seed: int
    station_id: Integers
    lat_hundredths: Integers
    lon_hundredths: Integers
    """0 … 35999, east."""
    report_share: Floats
    """For each of the eight hours, a row a station: how often a report comes."""


def stations(count: int = STATION_COUNT, seed: int = 0) -> Stations:
    """Set up the stations.

    Example:
        >>> world = stations(100, seed=7)
        >>> len(world.station_id), bool(world.lon_hundredths.max() < 36000)
        (100, True)
    """
    if not 1 <= count <= STATIONS_MAX:
        raise InvalidOption(
            "a world has at least one weather station", given=str(count), allowed=f"1 to {STATIONS_MAX}"
        )
    rng = np.random.default_rng(seed)
    region = _REGIONS[rng.choice(len(_REGIONS), size=count, p=_REGIONS[:, 0])]
    longitude = rng.uniform(region[:, 1], region[:, 2])
    latitude = rng.uniform(region[:, 3], region[:, 4])
    habit = rng.random((count, 1))
    local_hour = (HOURS + longitude[:, None] / 15) % 24
    keeps_hour = np.select(
        [habit < EVERY_3_HOURS_SHARE, habit < EVERY_3_HOURS_SHARE + EVERY_6_HOURS_SHARE],
        [np.ones_like(local_hour, dtype=bool), np.broadcast_to(HOURS % 6 == 0, local_hour.shape)],
        (local_hour >= DAY_BEGINS_HOUR) & (local_hour < DAY_ENDS_HOUR),
    )
    reliability = rng.beta(8, 1.5, size=count)  # 0.84 on average, rarely under a half
    return Stations(
        seed=seed,
        station_id=STATION_ID_FIRST + np.sort(rng.choice(STATIONS_MAX, size=count, replace=False)),
        lat_hundredths=np.rint(latitude * 100).astype(np.int64),
        lon_hundredths=np.rint(longitude * 100).astype(np.int64) % 36000,
        report_share=keeps_hour * reliability[:, None],
    )


def master_reports(world: Stations, years: Iterable[int] = YEARS) -> Iterator[pa.RecordBatch]:
    """Yield the reports of April and August of these years: two million a year with 7 000 stations."""
    return _months(world, years, MASTER_MONTHS)


def stream_reports(world: Stations, years: Iterable[int] = YEARS) -> Iterator[pa.RecordBatch]:
    """Yield the reports of December of these years: a million a year with 7 000 stations."""
    return _months(world, years, STREAM_MONTHS)


def _months(world: Stations, years: Iterable[int], months: tuple[int, ...]) -> Iterator[pa.RecordBatch]:
    for year in years:
        for month in months:
            yield from month_reports(world, year, month)


def month_reports(world: Stations, year: int, month: int) -> Iterator[pa.RecordBatch]:
    """Yield the reports of a month in order of time, a day at a time."""
    assert 1 <= month <= len(MONTH_NAMES), "a month is a number from 1 to 12"
    rng = np.random.default_rng([world.seed, year, month])
    first_day = int(np.datetime64(f"{year:04d}-{month:02d}-01", "D").astype(np.int64))
    for day in range(first_day, first_day + calendar.monthrange(year, month)[1]):
        yield _day_reports(world, rng, day)


def _day_reports(world: Stations, rng: np.random.Generator, day: int) -> pa.RecordBatch:
    # Transposed, so that reports come hour by hour and within an hour by station.
    hour_number, station = np.nonzero(rng.random((len(HOURS), len(world.station_id))) < world.report_share.T)
    hour = HOURS[hour_number]
    lat, lon = world.lat_hundredths[station], world.lon_hundredths[station]
    sun_degrees = _sun_degrees(lat / 100, lon / 100, day, hour)
    moon = _moon(rng, day, len(station))
    bright = (sun_degrees >= BRIGHT_ENOUGH_SUN_DEGREES) | (moon >= BRIGHT_ENOUGH_MOON)
    columns = {
        "IB": bright.astype(np.int64),
        "lat": lat,
        "lon": lon,
        "station_id": world.station_id[station],
        "LO": np.ones(len(station), dtype=np.int64),
        "SA": np.rint(sun_degrees * 10).astype(np.int64),
        "RI": np.rint(moon * 100).astype(np.int64),
        **_clouds(rng, len(station)),
    }
    times = pa.array((day * 24 + hour) * 3600).cast(TIME_TYPE)
    return pa.record_batch(
        [times, *(column_of(columns[field.name], field) for field in NDP_026B.fields)], schema=NDP_026B.schema
    )


def _sun_degrees(latitude: Floats, longitude: Floats, day: int, hour: Integers) -> Floats:
    """Altitude of the sun; the equation of time is left out."""
    declination = np.radians(_EARTH_TILT_DEGREES) * np.sin(2 * np.pi * (day - _SPRING_DAY) / _YEAR_DAYS)
    hour_angle = np.radians(15.0 * (hour - 12) + longitude)
    phi = np.radians(latitude)
    height = np.sin(phi) * np.sin(declination) + np.cos(phi) * np.cos(declination) * np.cos(hour_angle)
    degrees: Floats = np.degrees(np.arcsin(np.clip(height, -1.0, 1.0)))
    return degrees


def _moon(rng: np.random.Generator, day: int, count: int) -> Floats:
    """Light of the moon: by its phase, and by how high it stands, which is drawn; negative below the horizon."""
    lit = (1 + np.cos(2 * np.pi * (day - _FULL_MOON_DAY) / _MOON_DAYS)) / 2
    light: Floats = lit * rng.uniform(-1.0, 1.0, count)
    return light


def _clouds(rng: np.random.Generator, count: int) -> dict[str, Integers]:
    """Codes and amounts that can stand together: no type without cover, no amount without a type."""
    cover = rng.choice(9, size=count, p=_COVER_SHARES)
    lower_unseen = rng.random(count) < _LOWER_UNSEEN
    middle_unseen = lower_unseen | (rng.random(count) < _MIDDLE_UNSEEN)
    high_unseen = middle_unseen | (rng.random(count) < _HIGH_UNSEEN)
    lower = np.minimum(rng.integers(0, 9, count), cover)
    middle_hundredths = rng.integers(0, 101, count) * (cover - lower)
    high_hundredths = rng.integers(0, 101, count) * (cover - lower)
    weather = np.minimum(rng.geometric(0.12, count) - 1, 99)

    def or_missing(values: Integers, unseen: Flags, missing: int) -> Integers:
        return np.where(unseen, missing, values)

    return {
        "ww": or_missing(weather, rng.random(count) < _WEATHER_UNSEEN, -1),
        "N": cover,
        "Nh": or_missing(lower, lower_unseen, -1),
        "h": or_missing(rng.integers(0, 10, count), lower_unseen | (lower == 0), -1),
        "CL": or_missing(rng.integers(0, 12, count) * (lower > 0), lower_unseen, -1),
        "CM": or_missing(rng.integers(0, 13, count) * (middle_hundredths > 0), middle_unseen, -1),
        "CH": or_missing(rng.integers(0, 10, count) * (high_hundredths > 0), high_unseen, -1),
        "AM": or_missing(middle_hundredths, middle_unseen, 900),
        "AH": or_missing(high_hundredths, high_unseen, 900),
        "UM": or_missing(middle_hundredths // 100, middle_unseen, 9),
        "UH": or_missing(high_hundredths // 100, high_unseen, 9),
        "IC": rng.integers(0, 10, count) * (rng.random(count) < _EDITED),
    }
