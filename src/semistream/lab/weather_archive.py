"""The weather figures on reports of an archive, in place of invented stations.

Whoever has the collection (or a sample of it: files a month, or files a station) names a file or a directory. What was
reported in April and August is R, what was reported in December is the stream, in order of time, joined on longitude;
other months are not looked at. R is as large as the files make it, at every size of the figure; the memory stays the
share of R that the figure says, and pages and the length of the stream are those of the size.

Memory: a longitude, a month and an hour of each report, some 24 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidOption, RelationNotFound
from semistream.joins.base import Numbers
from semistream.lab.experiment import Experiment, Setting, Size
from semistream.lab.workloads.weather import OBSERVED_AT
from semistream.lab.workloads.weather_files import MONTH_NAMES, read_reports
from semistream.lab.workloads.weather_stations import JOIN_KEY, MASTER_MONTHS, STREAM_MONTHS


@dataclass(frozen=True)
class Longitudes:
    """What the join notices of an archive."""

    master: Numbers
    stream: Numbers
    """In order of time."""


@lru_cache(maxsize=1)
def longitudes_in(files: tuple[Path, ...]) -> Longitudes:
    """The longitudes of all reports in these files."""
    batches = [batch for path in files for batch in read_reports(path, (OBSERVED_AT, JOIN_KEY))]
    if not batches:
        raise InvalidOption("there are no weather reports at all", given=", ".join(path.name for path in files))
    reports = pa.Table.from_batches(batches)
    month = pc.month(reports[OBSERVED_AT])
    master, stream = (_of_months(reports, month, months) for months in (MASTER_MONTHS, STREAM_MONTHS))
    return Longitudes(codes_of(master[JOIN_KEY]), codes_of(stream.sort_by(OBSERVED_AT)[JOIN_KEY]))


def _of_months(reports: pa.Table, month: pa.ChunkedArray, months: tuple[int, ...]) -> pa.Table:
    chosen = reports.filter(pc.is_in(month, pa.array(months)))
    if not len(chosen):
        raise InvalidOption(
            f"there are no weather reports of {' or '.join(MONTH_NAMES[number - 1] for number in months)}",
            given=f"{len(reports)} reports of other months",
            allowed="reports of April or August, which are R, and of December, which are the stream",
        )
    return chosen


def codes_of(column: pa.ChunkedArray) -> Numbers:
    """Whole numbers as a join takes them."""
    codes: Numbers = column.to_numpy().astype(np.int64)
    return codes


def with_reports(experiment: Experiment, place: Path) -> Experiment:
    """The experiment with the reports of a file, or of all files in a directory."""
    settings = [setting for _, setting in experiment.settings("small")]
    if not all(isinstance(setting, Setting) and setting.data == "weather" for setting in settings):
        raise InvalidOption(
            "`reports` belong to figures of the weather", given=experiment.id, allowed="moij-7e, sscj-4e"
        )
    files = _files_at(place)
    master = longitudes_in(files).master

    def setting(size: Size, x: float) -> Setting:
        base = experiment.setting(size, x)
        assert isinstance(base, Setting), "figures of the weather have a relation"
        return replace(
            base,
            r_rows=len(master),
            memory_bytes=round(base.memory_bytes * len(master) / base.r_rows),
            rows_per_key=max(1, len(master) // len(np.unique(master))),
            cached_rows=max(1, round(base.cached_rows * len(master) / base.r_rows)),
            from_tables=True,
            reports=files,
        )

    return replace(
        experiment,
        setting=setting,
        archive=f"weather reports of an archive ({len(master)} rows in R, {len(np.unique(master))} longitudes)",
        note="The rivals' cache of fixed size has the share of R that it has with invented stations.",
    )


def _files_at(place: Path) -> tuple[Path, ...]:
    if not place.is_dir():
        return (place,)
    files = tuple(sorted(path for path in place.iterdir() if path.is_file() and not path.name.startswith(".")))
    if not files:
        raise RelationNotFound("there are no files of weather reports in this directory", given=repr(str(place)))
    return files
