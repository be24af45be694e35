"""The options of a window join, checked one by one; every mistake that can be seen before a query starts is refused.

What a function here returns is the option as the plan uses it. `window_plan` puts them together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from semistream.errors import ColumnCollision, ColumnNotFound, InvalidOption, KeyMismatch, check_choice, did_you_mean
from semistream.window.condition import Condition
from semistream.window.expression import SIDES, Column
from semistream.window.join import INDEX_NAMES
from semistream.window.predicate import Equality, Operand, check_can_be_equal
from semistream.window.windows import MICROSECONDS, Window

HIDDEN = "__semistream"
"""Name of the column that carries counts through Spark."""

SAMPLE = "sample"
"""Name of the column that tells how a pair was sampled."""

AUTO = "auto"

BY_KEY = "rows are shared out by key"
"""Why there can be several partitions."""

Schemas = tuple[pa.Schema, pa.Schema]


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column of the result."""

    side: int
    source: str
    name: str


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a window join as the user gave them."""

    on: str | Sequence[str] | Mapping[str, str] | None
    condition: str | None
    window_a: Window | None
    window_b: Window | None
    within: Window | None
    how: str
    state: str | None
    order_by: Any
    time: Any
    lateness: float
    shed: str
    rate: float | None
    index: str | tuple[str, str]
    per_key: bool
    partitions: int | None
    prefix_a: str
    prefix_b: str
    seed: int
    name: str


def check_names(schemas: Schemas) -> None:
    """Refuse columns of a stream that could not be told apart."""
    for side, schema in zip(SIDES, schemas, strict=True):
        for name in schema.names:
            if schema.names.count(name) > 1:
                raise ColumnCollision(
                    f"{side} has several columns {name!r}",
                    given=", ".join(schema.names),
                    hint="give each a name of its own, for example with `toDF`",
                )


def windows_of(options: Options) -> tuple[Window, Window]:
    """The windows of both sides."""
    given = {"window_a": options.window_a, "window_b": options.window_b, "within": options.within}
    for name, window in given.items():
        if window is not None and not isinstance(window, Window):
            raise InvalidOption(
                f"`{name}` is not a window", given=repr(window), allowed="rows(n), seconds(t) or arrivals(n)"
            )
    if options.within is not None:
        if options.window_a is not None or options.window_b is not None:
            raise InvalidOption(
                "`within` is given beside a window", given=str(given), allowed="`within`, or `window_a` and `window_b`"
            )
        if str(options.within).startswith("rows"):
            raise InvalidOption(
                "`within` cannot count the rows of one stream",
                given=str(options.within),
                allowed="seconds(t) or arrivals(n)",
                hint="write window_a=rows(n), window_b=rows(n)",
            )
        return options.within, options.within
    if options.window_a is None or options.window_b is None:
        raise InvalidOption(
            "a window is missing",
            given=", ".join(name for name, window in given.items() if window is not None) or "none",
            allowed="`window_a` and `window_b`, or `within`",
        )
    for name, window in (("window_a", options.window_a), ("window_b", options.window_b)):
        if str(window).startswith("arrivals"):
            raise InvalidOption(
                f"`{name}` cannot count arrivals of both streams", given=str(window), hint=f"write within={window}"
            )
    return options.window_a, options.window_b


def equal_columns(options: Options) -> dict[str, str] | None:
    """Columns of a that must equal columns of b; None where there is a condition instead."""
    on = options.on
    if (on is None) == (options.condition is None):
        raise InvalidOption(
            "a window join takes either `on` or `condition`",
            given="neither" if on is None else "both",
            hint='on="k" is short for condition="a.k = b.k"',
        )
    if on is None:
        return None
    if isinstance(on, str):
        return {on: on}
    if isinstance(on, Mapping):
        return dict(on)
    return {name: name for name in on}


def _pair(option: str, given: Any) -> tuple[Any, Any]:
    """The same for both sides, or one for each."""
    if isinstance(given, str):
        return given, given
    if isinstance(given, tuple) and len(given) == len(SIDES):
        return given[0], given[1]
    raise InvalidOption(
        f"`{option}` cannot be read", given=repr(given), allowed=f'{option}="ts", or {option}=("ts of a", "ts of b")'
    )


def _column_type(schemas: Schemas, side: int, name: str, option: str) -> pa.DataType:
    if name not in schemas[side].names:
        raise ColumnNotFound(
            f"{SIDES[side]} has no column {name!r}, which `{option}` names",
            given=name,
            allowed=", ".join(schemas[side].names),
            hint=did_you_mean(str(name), schemas[side].names),
        )
    return schemas[side].field(name).type


def time_columns(schemas: Schemas, options: Options, windows: tuple[Window, Window]) -> tuple[str, str] | None:
    """The columns that hold the time of a row; None where that is when it was accepted."""
    if options.time is None:
        return None
    if not any(window.is_time for window in windows):
        raise InvalidOption("`time` is given but no window is measured in time", given=repr(options.time))
    names = _pair("time", options.time)
    types = [_column_type(schemas, side, name, "time") for side, name in enumerate(names)]
    for side, name, data_type in zip(SIDES, names, types, strict=True):
        if not pa.types.is_timestamp(data_type) and not pa.types.is_date(data_type):
            raise KeyMismatch(
                f"the column {name!r} of {side}, which `time` names, is not a time",
                given=str(data_type),
                allowed="a timestamp or a date",
                hint=f'cast it, for example with F.col("{name}").cast("timestamp")',
            )
    if pa.types.is_timestamp(types[0]) != pa.types.is_timestamp(types[1]) or getattr(types[0], "tz", None) != getattr(
        types[1], "tz", None
    ):
        raise KeyMismatch(
            "the times of a and b cannot be compared",
            given=f"{types[0]} and {types[1]}",
            allowed="two dates, two timestamps with, or two without a zone",
            hint="cast one of them before the join",
        )
    return names


def order_columns(
    schemas: Schemas, options: Options, windows: tuple[Window, Window]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns of each side that give the order of rows."""
    if options.order_by is None:
        if not all(window.is_time for window in windows):
            raise InvalidOption(
                "a window that counts rows needs `order_by`",
                given="none",
                allowed="a column of both streams that gives the order of their rows, such as a sequence number",
                hint="Spark keeps no order inside a micro-batch, so there is no last row without one",
            )
        return (), ()
    names = [(name,) if isinstance(name, str) else tuple(name) for name in _pair("order_by", options.order_by)]
    if len(names[0]) != len(names[1]):
        raise InvalidOption("`order_by` names more columns of one side than of the other", given=repr(options.order_by))
    for name_a, name_b in zip(*names, strict=True):
        type_a, type_b = (_column_type(schemas, side, name, "order_by") for side, name in enumerate((name_a, name_b)))
        check_can_be_equal(Operand(Column(0, name_a), type_a), Operand(Column(1, name_b), type_b))
    return names[0], names[1]


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


def _is_whole_number(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def lateness_us_of(options: Options, windows: tuple[Window, Window]) -> int:
    """How much longer rows are kept for late ones, in microseconds."""
    lateness = options.lateness
    if not _is_number(lateness) or not math.isfinite(lateness) or lateness < 0:
        raise InvalidOption("`lateness` must be a number of seconds", given=repr(lateness), allowed="0 or more")
    if lateness and not any(window.is_time for window in windows):
        raise InvalidOption("`lateness` is given but no window is measured in time", given=repr(lateness))
    return round(lateness * MICROSECONDS)


def check_per_key(options: Options, condition: Condition, windows: tuple[Window, Window]) -> None:
    """Refuse windows of single keys where they mean nothing."""
    if not options.per_key:
        return
    if any(window.is_time for window in windows):
        raise InvalidOption(
            "`per_key` is for windows that count rows",
            given=", ".join(str(window) for window in windows),
            hint="time is the same for all keys; leave `per_key` out",
        )
    if not isinstance(condition.predicate, Equality):
        raise InvalidOption("`per_key` needs an equality", given=str(condition), hint="use `on`")
    if options.shed == "sample":
        raise InvalidOption("windows of single keys are not sampled", given='per_key=True, shed="sample"')


def check_sampling(options: Options) -> None:
    """Refuse to sample without consent, or where a sample would be wrong."""
    if not _is_whole_number(options.seed) or options.seed < 0:
        raise InvalidOption("`seed` must be a whole number", given=repr(options.seed), allowed="0 or more")
    rate = options.rate
    if rate is not None and (not _is_number(rate) or not rate > 0 or not math.isfinite(rate)):
        raise InvalidOption("`rate` must be a number of probes a second", given=repr(rate), allowed="more than 0")
    if rate is not None and options.shed != "sample":
        raise InvalidOption(
            "with `rate` some rows do not look for partners, so the answer is a sample",
            given=f"rate={rate!r}, shed={options.shed!r}",
            allowed='shed="sample"',
        )
    if options.shed == "sample" and options.how == "left":
        raise InvalidOption(
            "a left join cannot be sampled: a row without a partner could not be told from one whose partner was shed",
            given='how="left", shed="sample"',
            allowed='how="inner"',
        )


def indexes_of(options: Options, condition: Condition) -> tuple[str, str]:
    """The indexes by name; `AUTO` where one is chosen while the query runs."""
    names = _pair("index", options.index)
    for name in names:
        check_choice("index", name, (AUTO, *INDEX_NAMES))
        if name == "hash" and not isinstance(condition.predicate, Equality):
            raise InvalidOption(
                "a hash table finds equal keys only",
                given=f"index={options.index!r} for {condition}",
                allowed="auto, scan, b+tree or t-tree",
            )
    return names


def partitions_of(
    options: Options, condition: Condition, windows: tuple[Window, Window], default: int
) -> tuple[int, str]:
    """How many partitions there are, and why."""
    given = options.partitions
    if given is not None and (not _is_number(given) or given < 1 or given != int(given)):
        raise InvalidOption("`partitions` must be a whole number", given=repr(given), allowed="1 or more")
    why_one = None
    if not isinstance(condition.predicate, Equality):
        why_one = "the partners of an inequality may be anywhere"
    elif key_columns(condition) is None:
        why_one = "the equality is one of expressions and not of columns"
    elif not options.per_key and not all(window.is_time for window in windows):
        why_one = "a window that counts rows over a whole stream must see all of it"
    elif not options.per_key and options.order_by is not None:
        why_one = "`order_by` makes one sequence of all rows; without it rows of a batch are taken in order of time"
    if why_one is None:
        return given or default, BY_KEY
    if given is not None and given > 1:
        raise InvalidOption(
            f"one task must join all rows: {why_one}",
            given=f"partitions={given}",
            allowed="1",
            hint="per_key=True gives every key windows of its own, which is another meaning and runs in parallel"
            if isinstance(condition.predicate, Equality)
            else None,
        )
    return 1, why_one


def key_columns(condition: Condition) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The columns that are equal in every pair; None where what is equal are not columns."""
    if not isinstance(condition.predicate, Equality):
        return None
    nodes = [[operand.node for operand in operands] for operands in condition.predicate.operands]
    if not all(isinstance(node, Column) for of_side in nodes for node in of_side):
        return None
    keys_a, keys_b = (tuple(node.name for node in of_side if isinstance(node, Column)) for of_side in nodes)
    return keys_a, keys_b


def output_columns(schemas: Schemas, on: Mapping[str, str], options: Options) -> tuple[OutputColumn, ...]:
    """All columns of a, then those of b; a key column that `on` names once is put out once."""
    said_once = {b for a, b in on.items() if a == b}
    columns = [OutputColumn(0, name, options.prefix_a + name) for name in schemas[0].names]
    columns += [OutputColumn(1, n, options.prefix_b + n) for n in schemas[1].names if n not in said_once]
    taken = {HIDDEN: "a name that is used inside"}
    if options.shed == "sample":
        taken[SAMPLE] = "the column that tells how a pair was sampled"
    for column in columns:
        if column.name.lower() in taken:
            raise ColumnCollision(
                f"the column {column.name!r} of {SIDES[column.side]} collides with {taken[column.name.lower()]}",
                given=column.name,
                hint="give one of them another name, for example with prefix_b='b_'",
            )
        taken[column.name.lower()] = f"{column.name!r} of {SIDES[column.side]}"
    return tuple(columns)
