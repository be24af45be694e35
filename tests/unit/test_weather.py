"""Weather reports: every record is read as it was written, and a bad one is named by its line."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.errors import ColumnNotFound, EnvironmentUnfit, InvalidOption, RelationNotFound
from semistream.lab.workloads import weather_files
from semistream.lab.workloads.weather import (
    FORMATS,
    NDP_026B,
    NDP_026C,
    NDP_026C_1997,
    OBSERVED_AT,
    Origin,
    RecordFormat,
    column_of,
    format_records,
    parse_records,
)
from semistream.lab.workloads.weather_files import month_file_name, read_reports, write_reports

pytestmark = pytest.mark.long


# Written out by hand: 18 h on 30 September 1985, 47.25 south, 203.01 east, station 01234, clouds seen in part.
RECORD = b"850930181-472520301012341-18 7 5 4-1-1"
RECORD += b"26790039 0-123  42"

EXPECTED = {
    "observed_at": "1985-09-30 18:00:00",
    **{"IB": 1, "lat": -4725, "lon": 20301, "station_id": 1234, "LO": 1, "ww": None, "N": 8, "Nh": 7, "h": 5},
    **{"CL": 4, "CM": None, "CH": None, "AM": 267, "AH": None, "UM": 3, "UH": None, "IC": 0, "SA": -123, "RI": 42},
}


def parsed(lines: bytes, record: RecordFormat) -> pa.RecordBatch:
    matrix = np.frombuffer(lines, dtype=np.uint8).reshape(-1, record.record_bytes + 1)
    return parse_records(matrix, record, Origin("a test"))


def read(path: Path, columns: list[str] | None = None) -> pa.Table:
    return pa.Table.from_batches(read_reports(path, columns))


def random_reports(record: RecordFormat, rows: int, seed: int) -> pa.RecordBatch:
    """Any value that a field can hold, missing ones included."""
    rng = np.random.default_rng(seed)
    year_last = 1999 if record.year_digits == 2 else 2100
    first, last = (int(np.datetime64(f"{year}-12-31", "s").astype(np.int64)) for year in (1950, year_last))
    columns = [pa.array(rng.integers(first // 3600, last // 3600, rows) * 3600).cast(pa.timestamp("s", tz="UTC"))]
    for field in record.fields:
        low = -(10 ** (field.width - 1)) + 1
        numbers = rng.integers(low, 10**field.width, rows)
        if field.missing:
            numbers[rng.random(rows) < 0.2] = rng.choice(field.missing)
        columns.append(column_of(numbers, field))
    return pa.record_batch(columns, schema=record.schema)


def read_one_by_one(line: str, record: RecordFormat) -> dict[str, int | None]:
    """The slow way, for comparison."""
    values: dict[str, int | None] = {}
    start = 0
    for field in (*record.time_fields, *record.fields):
        number = int(line[start : start + field.width])
        values[field.name] = None if number in field.missing else number
        start += field.width
    assert start == len(line)
    return values


def test_records_have_the_length_of_their_format() -> None:
    assert [(record.record_bytes, record.year_digits) for record in FORMATS.values()] == [(56, 2), (80, 2), (82, 4)]
    assert len(RECORD) == 56


def test_a_record_by_hand_is_read_field_by_field() -> None:
    (row,) = parsed(RECORD + b"\n", NDP_026B).to_pylist()
    row["observed_at"] = row["observed_at"].strftime("%Y-%m-%d %H:%M:%S")
    assert row == EXPECTED


def test_a_report_is_written_as_the_record_by_hand() -> None:
    assert format_records(parsed(RECORD + b"\n", NDP_026B), NDP_026B) == RECORD + b"\n"


@given(record=st.sampled_from(list(FORMATS.values())), seed=st.integers(0, 2**32), rows=st.integers(0, 50))
def test_what_was_written_is_read_back(record: RecordFormat, seed: int, rows: int) -> None:
    reports = random_reports(record, rows, seed)
    lines = format_records(reports, record)
    assert len(lines) == rows * (record.record_bytes + 1)
    assert parsed(lines, record).equals(reports)
    assert format_records(parsed(lines, record), record) == lines


@pytest.mark.parametrize("record", FORMATS.values(), ids=lambda record: record.name)
def test_reading_all_at_once_is_reading_one_by_one(record: RecordFormat) -> None:
    reports = random_reports(record, 300, seed=70)
    lines = format_records(reports, record).decode().splitlines()
    for line, row in zip(lines, reports.to_pylist(), strict=True):
        expected = read_one_by_one(line, record)
        year = row["observed_at"].year - (1900 if record.year_digits == 2 else 0)
        when = [year, row["observed_at"].month, row["observed_at"].day, row["observed_at"].hour]
        assert [expected[name] for name in ("year", "month", "day", "hour")] == when
        assert {field.name: expected[field.name] for field in record.fields} == {
            field.name: row[field.name] for field in record.fields
        }


def test_zeros_and_blanks_may_fill_a_field() -> None:
    blank = RECORD.replace(b"850930", b"85 930").replace(b"01234", b" 1234")
    zeros = RECORD.replace(b"  42", b"0042")
    assert parsed(blank + b"\n", NDP_026B).equals(parsed(zeros + b"\n", NDP_026B))


# Files


@pytest.fixture
def reports() -> pa.Table:
    return pa.Table.from_batches([random_reports(NDP_026B, 1000, seed=71)])


def packed_by_compress(content: bytes) -> bytes:
    """What Unix compress might write: codes of nine bits, and the table cleared before they would need ten."""
    codes = []
    for start in range(0, len(content), 200):
        codes += [*content[start : start + 200], 256]
        codes += [0] * (-len(codes) % 8)  # after a clear, the rest of a group of eight is skipped
    bits = sum(code << (9 * place) for place, code in enumerate(codes[:-1] if codes[-1] == 256 else codes))
    return b"\x1f\x9d\x90" + bits.to_bytes((9 * len(codes) + 7) // 8, "little")


@pytest.mark.parametrize("name", ["SEP85L", "SEP85L.gz"])
def test_a_file_is_read_back(reports: pa.Table, tmp_path: Path, name: str) -> None:
    assert write_reports(iter(reports.to_batches(max_chunksize=300)), tmp_path / name) == 1000
    assert read(tmp_path / name).equals(reports)


def test_a_file_packed_by_unix_compress_is_read(tmp_path: Path) -> None:
    path = tmp_path / "SEP85L.Z"
    path.write_bytes(packed_by_compress((RECORD + b"\n") * 3))
    assert read(path)["lon"].to_pylist() == [20301] * 3


def test_a_file_longer_than_a_block_is_read_in_blocks(
    reports: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "SEP85L"
    write_reports(iter(reports.to_batches()), path)
    monkeypatch.setattr(weather_files, "BLOCK_LINES", 64)
    assert [batch.num_rows for batch in read_reports(path)] == [64] * 15 + [40]
    assert read(path).equals(reports)


@pytest.mark.parametrize(
    "change",
    [lambda lines: lines[:-1], lambda lines: lines.replace(b"\n", b"\r\n"), lambda lines: lines[:57]],
    ids=["no end of the last line", "line ends of Windows", "one line"],
)
def test_line_ends_may_differ(reports: pa.Table, tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "SEP85L"
    lines = change(format_records(reports.to_batches()[0], NDP_026B))
    path.write_bytes(lines)
    assert read(path).equals(reports.slice(0, lines.count(b"\n") + (not lines.endswith(b"\n"))))


def test_only_the_columns_asked_for_are_read(reports: pa.Table, tmp_path: Path) -> None:
    path = tmp_path / "SEP85L"
    write_reports(iter(reports.to_batches()), path)
    assert read(path, ["lon", OBSERVED_AT]).equals(reports.select(["lon", OBSERVED_AT]))
    with pytest.raises(ColumnNotFound, match="did you mean 'lon'"):
        read(path, ["long"])


BAD_LINES = [
    (RECORD[:-1], "has another length .* given: 55 characters; allowed: 56"),
    (RECORD + b" ", "has another length .* given: 57 characters"),
    (b"", "has another length .* given: 0 characters"),
    (RECORD[:20] + b"\n" + RECORD[21:], "has another length .* given: 20 characters"),
    (RECORD + b"\r", "has another length"),
    (RECORD.replace(b"20301", b"203x1"), "no number in the field 'lon'; given: '203x1'"),
    (RECORD.replace(b"20301", b"2 301"), "no number in the field 'lon'"),
    (RECORD.replace(b"20301", b"     "), "no number in the field 'lon'"),
    (RECORD.replace(b"20301", b"2030-"), "no number in the field 'lon'"),
    (RECORD.replace(b"20301", b"--301"), "no number in the field 'lon'"),
    (RECORD.replace(b"20301", b"- 301"), "no number in the field 'lon'"),
    (RECORD.replace(b"20301", b"203.1"), "no number in the field 'lon'"),
    (RECORD.replace(b"20301", b"+0301"), "no number in the field 'lon'"),
    (RECORD.replace(b"20301", b"2030\xb9"), "no number in the field 'lon'"),
    (RECORD.replace(b"850930", b"850931"), "not in the calendar; given: 1985-09-31"),
    (RECORD.replace(b"850930", b"851330"), "not in the calendar; given: 1985-13-30"),
    (RECORD.replace(b"850930", b"850900"), "not in the calendar"),
    (RECORD.replace(b"85093018", b"85093024"), "not in the calendar; given: 1985-09-30 24 h"),
    (RECORD.replace(b"85093018", b"8509-118"), "not in the calendar"),
]


@pytest.mark.parametrize(("line", "match"), BAD_LINES)
@pytest.mark.parametrize("before", [0, 35])
def test_a_bad_line_is_named(
    line: bytes, match: str, before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weather_files, "BLOCK_LINES", 16)
    path = tmp_path / "SEP85L"
    good = [RECORD] * 40
    path.write_bytes(b"\n".join([RECORD, *good[:before], line, *good]) + b"\n")
    with pytest.raises(InvalidOption, match=f"line {before + 2} of SEP85L .*{match}"):
        list(read_reports(path))


@given(place=st.integers(0, 57 * 20 - 1), value=st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused_with_its_line(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    content = bytearray((RECORD + b"\n") * 20)
    content[place] = value
    path = tmp_path_factory.mktemp("weather") / "SEP85L"
    path.write_bytes(content)
    try:
        assert read(path).num_rows == 20
    except InvalidOption as refused:
        assert f"line {place // 57 + 1} of" in str(refused)


def test_a_first_line_of_no_known_length_names_those_known(tmp_path: Path) -> None:
    path = tmp_path / "SEP85L"
    path.write_bytes(RECORD[:40] + b"\n")
    with pytest.raises(InvalidOption, match=r"given: 40 characters; allowed: 56 \(NDP-026B\), 80 \(NDP-026C\), 82"):
        list(read_reports(path))


def test_a_file_that_is_not_there_or_empty_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RelationNotFound, match="no file of weather reports"):
        list(read_reports(tmp_path / "SEP85L"))
    (tmp_path / "SEP85L").touch()
    with pytest.raises(InvalidOption, match="no weather reports in SEP85L"):
        list(read_reports(tmp_path / "SEP85L"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.gz", gzip.compress((RECORD + b"\n") * 30)[:-20]),
        ("a.gz", b"not packed at all"),
        ("a.Z", b"not packed at all"),
        ("a.Z", b""),
    ],
)
def test_a_file_that_cannot_be_unpacked_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidOption, match=r"cannot be unpacked|no weather reports"):
        list(read_reports(tmp_path / name))


def test_without_gzip_a_file_by_unix_compress_is_refused_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "a.Z").write_bytes(packed_by_compress(RECORD))
    with pytest.raises(EnvironmentUnfit, match="install gzip"):
        list(read_reports(tmp_path / "a.Z"))


def test_what_does_not_fit_a_record_is_not_written() -> None:
    report = parsed(RECORD + b"\n", NDP_026B)

    def with_column(name: str, values: pa.Array) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({**dict(zip(report.schema.names, report.columns, strict=True)), name: values})

    for name, value in [("lon", 100_000), ("lon", -10_000), ("N", -1), ("IB", 10)]:
        with pytest.raises(InvalidOption, match=f"does not fit into the field '{name}'"):
            format_records(with_column(name, pa.array([value])), NDP_026B)
    with pytest.raises(InvalidOption, match="'lon' of a weather record cannot be missing"):
        format_records(with_column("lon", pa.array([None], pa.int32())), NDP_026B)
    with pytest.raises(InvalidOption, match="time of a weather record cannot be missing"):
        format_records(with_column(OBSERVED_AT, pa.array([None], pa.timestamp("s", "UTC"))), NDP_026B)
    with pytest.raises(InvalidOption, match="field 'year'"):
        late = pa.array([1_000_000_000]).cast(pa.timestamp("s", "UTC"))
        format_records(with_column(OBSERVED_AT, late), NDP_026B)
    with pytest.raises(ColumnNotFound, match="'SLP'"):
        format_records(report, NDP_026C)


# CSV

CSV_HEADER = "year,month,day,hour," + ",".join(field.name for field in NDP_026C.fields)
CSV_ROWS = [
    "1996,2,29,3,1,69.3,16.1,1010,1,3,8,4,5,2,2,-1,2.67,9.0,4,9,0,-31.8,0.54,1023.3,17.0,290,-6.1,4.0,10,9,1",
    "2009,12,31,21,0,60.13,-1.18,3005,1,-1,7,-1,-1,-1,-1,-1,9.0,9.0,9,9,0,-32.2,99.99,-0.1,-0.1,-1,90.0,90.0,14,0,0",
]


def csv_file(directory: Path, *rows: str, header: str = CSV_HEADER) -> Path:
    path = directory / "1010.csv.gz"
    path.write_bytes(gzip.compress("\n".join([header, *rows, ""]).encode()))
    return path


def test_a_station_in_csv_is_read_into_the_units_of_a_record(tmp_path: Path) -> None:
    table = read(csv_file(tmp_path, *CSV_ROWS))
    assert table.schema == NDP_026C_1997.schema
    early, late = table.to_pylist()
    assert (early["lat"], early["lon"], early["AM"], early["AH"]) == (6930, 1610, 267, None)
    assert (early["SA"], early["RI"], early["SLP"], early["WS"], early["AT"]) == (-318, 54, 10233, 170, -61)
    assert (late["lon"], late["observed_at"].year, late["observed_at"].hour) == (35882, 2009, 21)
    assert [late[name] for name in ("ww", "RI", "SLP", "WS", "WD", "AT", "DD")] == [None] * 7


def test_a_station_in_csv_can_be_written_as_records(tmp_path: Path) -> None:
    table = read(csv_file(tmp_path, *CSV_ROWS))
    for record, rows in ((NDP_026C_1997, 2), (NDP_026C, 1), (NDP_026B, 1)):
        write_reports(iter(table.slice(0, rows).to_batches()), tmp_path / "out", record)
        assert read(tmp_path / "out").equals(table.slice(0, rows).select(record.schema.names))


def test_only_the_columns_asked_for_are_read_from_csv(tmp_path: Path) -> None:
    path = csv_file(tmp_path, *CSV_ROWS)
    assert read(path, ["lon"]).to_pydict() == {"lon": [1610, 35882]}
    assert read(path, ["N", OBSERVED_AT]).column_names == ["N", OBSERVED_AT]


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (CSV_ROWS[0].replace("16.1,", "x,"), "cannot be read"),
        (CSV_ROWS[0].replace("16.1,", ","), "cannot be read"),
        (CSV_ROWS[0].replace("16.1,", "nan,"), "line 3 of .* 'lon' cannot hold; given: nan"),
        (CSV_ROWS[0].replace("16.1,", "4000.0,"), "line 3 of .* 'lon' cannot hold; given: 4000"),
        (CSV_ROWS[0].replace("1996,2,29", "1997,2,29"), "line 3 of .* not in the calendar; given: 1997-02-29"),
        (CSV_ROWS[0] + ",1", "cannot be read"),
    ],
)
def test_a_bad_row_of_csv_is_refused(row: str, match: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=match):
        read(csv_file(tmp_path, CSV_ROWS[1], row))


def test_csv_without_a_column_or_not_packed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ColumnNotFound, match="lon"):
        read(csv_file(tmp_path, *CSV_ROWS, header=CSV_HEADER.replace("lon", "longitude")))
    (tmp_path / "bad.csv.gz").write_bytes(b"not packed at all")
    with pytest.raises(InvalidOption, match="cannot be read"):
        read(tmp_path / "bad.csv.gz")


def test_months_are_named_as_in_the_collection() -> None:
    assert [month_file_name(year, month) for year, month in ((1982, 4), (1990, 12))] == ["APR82L", "DEC90L"]


def test_no_two_columns_differ_in_case_alone() -> None:
    names = NDP_026C.schema.names
    assert len({name.lower() for name in names}) == len(names)
