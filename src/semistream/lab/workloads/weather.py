"""Synoptic weather reports as records of fixed length: the formats NDP-026B and NDP-026C (EECRA).

A record is a line of right-aligned whole numbers without separators: the hour of the report, the station and its place,
and what the clouds were like; NDP-026C adds pressure, wind and temperature. One table of fields describes them all, and
reading and writing are the same walk along it. The length of a line tells the format:

| characters | format                                                                   |
| ---------- | ------------------------------------------------------------------------ |
| 56         | NDP-026B, December 1981 to November 1991                                 |
| 80         | NDP-026C, until 1996                                                     |
| 82         | NDP-026C from 1997 on, when the year got four digits                     |

Of NDP-026B no format description was at hand: its length is that of the cloud fields of NDP-026C, which it shares.

Values keep the unit of the file (`lon` is in hundredths of a degree, east, 0 … 36000), so a key stays a whole number.
A value that stands for "missing" becomes null. Values are not checked against their documented range: real
files do not always keep to it.

Records are never touched one by one. A block of lines is looked at as a matrix of bytes, a row a line, and a field is
a few of its columns; digits become numbers for all lines at once.

Memory: about ten times the bytes of the block, while a block is read or written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidOption, did_you_mean

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]

OBSERVED_AT = "observed_at"
TIME_TYPE = pa.timestamp("s", tz="UTC")
CENTURY = 1900
"""Years of two digits are of this century: both collections begin after 1950 and change to four digits before 2000."""

_BLANK, _MINUS, _ZERO, _NEWLINE = b" -0\n"
_INT8_CHARACTERS, _INT16_CHARACTERS = 2, 4
_DIGITS = 10
_MONTHS, _DAY_HOURS, _HOUR_SECONDS = 12, 24, 3600


@dataclass(frozen=True, slots=True)
class Field:
    """A number in a record."""

    name: str
    """As the documentation of the collection spells it."""
    width: int
    meaning: str
    missing: tuple[int, ...] = ()
    """Numbers that stand for no value; the first one is written."""
    per_unit: int = 1
    """How many of this number make up one of the unit in `meaning`."""
    zero_filled: bool = False
    """Whether it is written with leading zeros instead of blanks; both are read."""

    @property
    def data_type(self) -> pa.DataType:
        """The smallest type that holds all numbers of this width."""
        if self.width <= _INT8_CHARACTERS:
            return pa.int8()
        return pa.int16() if self.width <= _INT16_CHARACTERS else pa.int32()


CLOUD_FIELDS = (
    Field("IB", 1, "whether the sky was bright enough to see clouds"),
    Field("lat", 5, "latitude, degrees north", per_unit=100),
    Field("lon", 5, "longitude, degrees east", per_unit=100),
    Field("station_id", 5, "number of a land station; deck and type of a ship", zero_filled=True),
    Field("LO", 1, "1 on land, 2 at sea"),
    Field("ww", 2, "present weather, code", missing=(-1,)),
    Field("N", 1, "total cloud cover, oktas"),
    Field("Nh", 2, "amount of lower clouds, oktas", missing=(-1,)),
    Field("h", 2, "height of the lower clouds' base, code", missing=(-1,)),
    Field("CL", 2, "type of low clouds", missing=(-1,)),
    Field("CM", 2, "type of middle clouds", missing=(-1,)),
    Field("CH", 2, "type of high clouds", missing=(-1,)),
    Field("AM", 3, "amount of middle clouds, oktas", missing=(900,), per_unit=100),
    Field("AH", 3, "amount of high clouds, oktas", missing=(900,), per_unit=100),
    Field("UM", 1, "amount of middle clouds that is not overlapped, oktas", missing=(9,)),
    Field("UH", 1, "amount of high clouds that is not overlapped, oktas", missing=(9,)),
    Field("IC", 2, "what the editors changed, code"),
    Field("SA", 4, "altitude of the sun, degrees", per_unit=10),
    Field("RI", 4, "relative illuminance by the moon", missing=(9999,), per_unit=100),
)

SURFACE_FIELDS = (
    Field("SLP", 5, "pressure at sea level, hPa", missing=(-1, 99999), per_unit=10),
    Field("WS", 3, "wind speed, m/s", missing=(-1,), per_unit=10),
    Field("WD", 3, "wind direction, degrees", missing=(-1,)),
    Field("AT", 4, "air temperature, °C", missing=(900,), per_unit=10),
    Field("DD", 3, "dew point depression, °C", missing=(900,), per_unit=10),
    Field("EL", 4, "elevation of the station, m", missing=(9000,)),
    Field("IW", 1, "how wind speed was found, code", missing=(9,)),
    Field("IP", 1, "how pressure was found, code", missing=(9,)),
)


@dataclass(frozen=True)
class RecordFormat:
    """The fields of a record, in order; a date and hour come first."""

    name: str
    year_digits: int
    fields: tuple[Field, ...]

    @cached_property
    def time_fields(self) -> tuple[Field, ...]:
        """Year, month, day and hour."""
        year = Field("year", self.year_digits, "year", zero_filled=True)
        return (year, *(Field(name, 2, name, zero_filled=True) for name in ("month", "day", "hour")))

    @cached_property
    def record_bytes(self) -> int:
        """Characters of a record, without the end of its line."""
        return sum(field.width for field in (*self.time_fields, *self.fields))

    @cached_property
    def schema(self) -> pa.Schema:
        """Columns of a report: when, and then the fields."""
        return pa.schema([(OBSERVED_AT, TIME_TYPE), *((field.name, field.data_type) for field in self.fields)])

    def chosen(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        """Return the columns that were asked for, all if none were; refuse one that there is not."""
        names = self.schema.names
        for column in columns or ():
            if column not in names:
                raise ColumnNotFound(
                    f"a weather report of the format {self.name} has no such column",
                    given=repr(column),
                    allowed=", ".join(names),
                    hint=did_you_mean(column, names),
                )
        return tuple(names if columns is None else columns)


NDP_026B = RecordFormat("NDP-026B", 2, CLOUD_FIELDS)
NDP_026C = RecordFormat("NDP-026C", 2, CLOUD_FIELDS + SURFACE_FIELDS)
NDP_026C_1997 = RecordFormat("NDP-026C since 1997", 4, CLOUD_FIELDS + SURFACE_FIELDS)

FORMATS = {record.record_bytes: record for record in (NDP_026B, NDP_026C, NDP_026C_1997)}
"""The formats by the length of their records."""


class Origin(NamedTuple):
    """Where a block of lines comes from, for messages."""

    name: str
    first_line: int = 1


# Reading


def parse_records(
    lines: Bytes, record: RecordFormat, origin: Origin, columns: Sequence[str] | None = None
) -> pa.RecordBatch:
    """Turn lines into rows.

    Args:
        lines: A matrix with a line a row, and `record.record_bytes` columns (an end of line behind them is ignored).
        record: The format of the lines.
        origin: What to call them in an error.
        columns: Columns to read, in this order; others are neither read nor checked. None reads all.

    Raises:
        InvalidOption: naming the line, if a field is not a number or a date is not in the calendar.
    """
    # Turned round, the characters of a field lie side by side for all lines.
    by_character = np.ascontiguousarray(lines.T)
    places = _places(record)

    def numbers(field: Field) -> Integers:
        return _numbers(by_character[places[field.name]], field, origin)

    fields = {field.name: field for field in record.fields}
    arrays = []
    for name in record.chosen(columns):
        if name == OBSERVED_AT:
            arrays.append(_times([numbers(field) for field in record.time_fields], record, origin))
        else:
            arrays.append(column_of(numbers(fields[name]), fields[name]))
    return pa.record_batch(arrays, schema=pa.schema([record.schema.field(name) for name in record.chosen(columns)]))


def column_of(numbers: Integers, field: Field) -> pa.Array:
    """Return a column of these numbers, in which those that stand for "missing" are null."""
    missing = np.isin(numbers, field.missing)
    return pa.array(numbers.astype(field.data_type.to_pandas_dtype()), mask=missing if missing.any() else None)


def _places(record: RecordFormat) -> dict[str, slice]:
    places = {}
    start = 0
    for field in (*record.time_fields, *record.fields):
        places[field.name] = slice(start, start + field.width)
        start += field.width
    return places


def _numbers(characters: Bytes, field: Field, origin: Origin) -> Integers:
    """Read blanks, perhaps a minus, and digits; `characters` has a row a character."""
    digit_value = characters - np.uint8(_ZERO)  # what is before "0" wraps round to far above 9
    is_digit = digit_value < _DIGITS
    is_minus = characters == _MINUS
    begun = is_digit | is_minus
    wrong = ~is_digit[-1] | ~(begun | (characters == _BLANK)).all(axis=0) | (begun[:-1] & ~is_digit[1:]).any(axis=0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidOption(
            f"line {origin.first_line + row} of {origin.name} has no number in the field {field.name!r}",
            given=repr(characters[:, row].tobytes().decode("latin-1")),
            allowed=f"a whole number in {field.width} characters, right-aligned",
        )
    value = np.zeros(characters.shape[1], dtype=np.int64)
    for digits, present in zip(digit_value, is_digit, strict=True):
        value = value * _DIGITS + np.where(present, digits, 0)
    return np.where(is_minus.any(axis=0), -value, value)


def _times(parts: list[Integers], record: RecordFormat, origin: Origin) -> pa.Array:
    year, month, day, hour = parts
    return time_column(year + CENTURY if record.year_digits == len("yy") else year, month, day, hour, origin)


def time_column(year: Integers, month: Integers, day: Integers, hour: Integers, origin: Origin) -> pa.Array:
    """Return a column of these hours; refuse one that is not in the calendar."""
    months = ((year - 1970) * _MONTHS + np.clip(month, 1, _MONTHS) - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    in_calendar = (month >= 1) & (month <= _MONTHS) & (days.astype("datetime64[M]") == months)
    in_calendar &= (hour >= 0) & (hour < _DAY_HOURS)
    if not in_calendar.all():
        row = int(np.argmin(in_calendar))
        raise InvalidOption(
            f"line {origin.first_line + row} of {origin.name} has an hour that is not in the calendar",
            given=f"{year[row]}-{month[row]:02d}-{day[row]:02d} {hour[row]:02d} h",
        )
    return pa.array(days.astype("datetime64[s]").astype(np.int64) + hour * _HOUR_SECONDS).cast(TIME_TYPE)


# Writing


def format_records(reports: pa.RecordBatch, record: RecordFormat) -> bytes:
    """Return the reports as lines of the format, each with a newline.

    Raises:
        ColumnNotFound: if the reports lack a column of the format.
        InvalidOption: if a value does not fit its field, or a null has no number to stand for it.
    """
    for name in record.schema.names:
        if name not in reports.schema.names:
            raise ColumnNotFound(f"a record of the format {record.name} needs a column", given=repr(name))
    characters = np.full((record.record_bytes + 1, reports.num_rows), _NEWLINE, dtype=np.uint8)
    places = _places(record)
    for field, numbers in zip(record.time_fields, _time_parts(reports, record), strict=True):
        characters[places[field.name]] = _digits(numbers, field)
    for field in record.fields:
        column = reports.column(field.name)
        if column.null_count > 0 and not field.missing:
            raise InvalidOption(f"the field {field.name!r} of a weather record cannot be missing", given="null")
        filled = column.fill_null(field.missing[0]) if column.null_count > 0 else column
        characters[places[field.name]] = _digits(filled.to_numpy(zero_copy_only=False).astype(np.int64), field)
    return characters.T.tobytes()


def _time_parts(reports: pa.RecordBatch, record: RecordFormat) -> tuple[Integers, ...]:
    seconds = reports.column(OBSERVED_AT)
    if seconds.null_count > 0:
        raise InvalidOption("the time of a weather record cannot be missing", given="null")
    hours = seconds.cast(TIME_TYPE).cast(pa.int64()).to_numpy() // _HOUR_SECONDS
    days = (hours // _DAY_HOURS).astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    month_number = months.astype(np.int64)
    year = month_number // _MONTHS + 1970 - (CENTURY if record.year_digits == len("yy") else 0)
    day = (days - months.astype("datetime64[D]")).astype(np.int64) + 1
    return year, month_number % _MONTHS + 1, day, hours % _DAY_HOURS


def _digits(numbers: Integers, field: Field) -> Bytes:
    """Right-aligned digits of the numbers, a row a character."""
    size = np.abs(numbers)
    powers = 10 ** np.arange(field.width, dtype=np.int64)
    length = np.maximum((size >= powers[:, None]).sum(axis=0), 1)
    too_long = (size >= 10**field.width) | (length + (numbers < 0) > field.width)
    if too_long.any():
        raise InvalidOption(
            f"a value does not fit into the field {field.name!r} of a weather record",
            given=str(numbers[np.argmax(too_long)]),
            allowed=f"{field.width} characters",
        )
    characters = (size // powers[::-1, None] % 10 + _ZERO).astype(np.uint8)
    place = np.arange(field.width - 1, -1, -1)[:, None]  # counted from the right
    if not field.zero_filled:
        characters[place >= length] = _BLANK
    # The sign stands before the first digit, or before the zeros that fill up.
    sign_place = np.where(numbers < 0, field.width - 1 if field.zero_filled else length, -1)
    characters[place == sign_place] = _MINUS
    return characters
