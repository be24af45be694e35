"""Expressions over the columns of two streams: how they are written, and what they are worth on Arrow columns.

The language is a small part of SQL: columns as `a.x` and `b.y` (a name in backticks may hold anything), numbers,
strings, `true`, `false`, `interval 10 seconds`, `+ - * /`, `abs(…)`, the comparisons, `BETWEEN … AND …`,
`IS [NOT] NULL`, `AND`, `OR`, `NOT` and parentheses. Words are read in capitals and in small letters alike.

Values are computed by Arrow, a column at a time. Where SQL and Arrow differ, this is what holds here: integers are
widened to 64 bits before they are added or multiplied, and a result that 64 bits cannot hold is an error; `/` is a
division of floats; a comparison with null is null; and what is null in the end is not true.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import InvalidOption, KeyMismatch

SIDES = ("a", "b")
"""How the two streams are called; their numbers are the places in this tuple."""

UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}
"""Microseconds of each unit of an interval."""

Columns = Mapping[tuple[int, str], Any]
"""Arrow arrays by side and name."""


class Node:
    """Something that has a value on every pair of rows."""


@dataclass(frozen=True, slots=True)
class Column(Node):
    """A column of one of the streams."""

    side: int
    name: str

    def __str__(self) -> str:
        return f"{SIDES[self.side]}.{self.name}"


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A value that stands in the text."""

    value: int | Decimal | float | str | bool

    def __str__(self) -> str:
        return repr(self.value) if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True, slots=True)
class Interval(Node):
    """A length of time."""

    duration_us: int

    def __str__(self) -> str:
        return f"interval {self.duration_us} microseconds"


@dataclass(frozen=True, slots=True)
class Operation(Node):
    """A function of one or two values: arithmetic, a comparison, or logic."""

    name: str
    """`+ - * / abs = != < <= > >= and or not`, or `is null`."""
    parts: tuple[Node, ...]

    def __str__(self) -> str:
        if len(self.parts) == 1:
            return f"({self.parts[0]} is null)" if self.name == "is null" else f"{self.name}({self.parts[0]})"
        return f"({self.parts[0]} {self.name} {self.parts[1]})"


COMPARISONS = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_FUNCTIONS = {
    **COMPARISONS,
    "+": "add_checked",
    "-": "subtract_checked",
    "*": "multiply_checked",
    "/": "divide",
    "abs": "abs_checked",
    "and": "and_kleene",
    "or": "or_kleene",
    "not": "invert",
}
_WIDENED = {"+", "-", "*", "abs"}


def columns_of(node: Node) -> Iterator[Column]:
    """Every column an expression mentions, as often as it does."""
    if isinstance(node, Column):
        yield node
    elif isinstance(node, Operation):
        for part in node.parts:
            yield from columns_of(part)


def sides_of(node: Node) -> set[int]:
    """The streams an expression depends on."""
    return {column.side for column in columns_of(node)}


# ---------------------------------------------------------------------------------------------------------------------
# Values
# ---------------------------------------------------------------------------------------------------------------------


def evaluate(node: Node, columns: Columns) -> Any:
    """The value of an expression: an array, or a scalar where it mentions no column."""
    if isinstance(node, Column):
        return columns[node.side, node.name]
    if isinstance(node, Interval):
        return pa.scalar(node.duration_us, pa.duration("us"))
    if isinstance(node, Literal):
        return pa.scalar(node.value)
    assert isinstance(node, Operation), "there is no other kind of node"
    values = [evaluate(part, columns) for part in node.parts]
    if node.name == "is null":
        return pc.is_null(values[0])
    if node.name in _WIDENED:
        values = [v.cast(pa.int64()) if pa.types.is_integer(v.type) else v for v in values]
    elif node.name == "/":
        values = [v.cast(pa.float64()) for v in values]
    return pc.call_function(_FUNCTIONS[node.name], values)


def type_of(node: Node, types: Mapping[tuple[int, str], pa.DataType]) -> pa.DataType:
    """The type of an expression, found by computing it for no row at all; refuses what cannot be computed."""
    for part in node.parts if isinstance(node, Operation) else ():
        type_of(part, types)
    empty = {place: pa.array([], data_type) for place, data_type in types.items()}
    try:
        return evaluate(node, empty).type
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as problem:
        assert isinstance(node, Operation), "a column or a literal has its own type"
        parts = " and ".join(f"{part} of type {type_of(part, types)}" for part in node.parts)
        what = f"{parts} cannot be compared" if node.name in COMPARISONS else f"`{node.name}` does not take {parts}"
        raise KeyMismatch(what, given=str(node), hint="cast one of them before the join") from problem


def is_true(condition: Node, columns: Columns) -> pa.Array:
    """For every row whether a condition holds; what is null does not."""
    try:
        found = evaluate(condition, columns)
    except pa.ArrowInvalid as problem:
        raise InvalidOption(
            "a condition cannot be computed for some rows", given=f"{condition}: {problem}", hint="cast before the join"
        ) from problem
    return pc.fill_null(found, False)


# ---------------------------------------------------------------------------------------------------------------------
# Reading
# ---------------------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)
      | (?P<text>'(?:[^']|'')*')
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<word>[^\W\d]\w*)
      | (?P<sign><=|>=|<>|!=|==|[-+*/()=<>.,])
    )""",
    re.VERBOSE,
)
_END = "the end"


def parse(text: str) -> Node:
    """Read a condition.

    Example:
        >>> print(parse("a.k = b.k AND abs(a.x - b.y) <= 2.5"))
        ((a.k = b.k) and (abs((a.x - b.y)) <= 2.5))
    """
    reader = _Reader(text)
    node = reader.disjunction()
    if reader.kind != _END:
        raise reader.unexpected("the end, AND or OR")
    return node


class _Reader:
    """Reads an expression from left to right, one token ahead; each method reads one level of precedence."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._next = 0

    @property
    def kind(self) -> str:
        _, kind, _ = self._tokens[self._next]
        return kind

    def unexpected(self, allowed: str) -> InvalidOption:
        place, kind, token = self._tokens[self._next]
        found = _END if kind == _END else repr(token)
        return InvalidOption(
            f"the condition cannot be read at {found}",
            given=f"{self._text[:place]} ⟨here⟩ {self._text[place:]}".strip(),
            allowed=allowed,
            hint='write it like "a.k = b.k AND abs(a.x - b.y) <= 2.5"',
        )

    def _take(self, *tokens: str) -> str | None:
        _, kind, token = self._tokens[self._next]
        word = token.lower() if kind == "word" else token
        if kind in ("word", "sign") and word in tokens:
            self._next += 1
            return word
        return None

    def _must_take(self, token: str) -> None:
        if self._take(token) is None:
            raise self.unexpected(repr(token))

    def disjunction(self) -> Node:
        return self._chain(self._conjunction, "or")

    def _conjunction(self) -> Node:
        return self._chain(self._negation, "and")

    def _negation(self) -> Node:
        return Operation("not", (self._negation(),)) if self._take("not") else self._comparison()

    def _comparison(self) -> Node:
        left = self._sum()
        if sign := self._take("=", "==", "!=", "<>", "<", "<=", ">", ">="):
            return Operation({"==": "=", "<>": "!="}.get(sign, sign), (left, self._sum()))
        if self._take("is"):
            negated = self._take("not")
            self._must_take("null")
            is_null = Operation("is null", (left,))
            return Operation("not", (is_null,)) if negated else is_null
        negated = self._take("not")
        if self._take("between"):
            low = self._sum()
            self._must_take("and")
            both = Operation("and", (Operation(">=", (left, low)), Operation("<=", (left, self._sum()))))
            return Operation("not", (both,)) if negated else both
        if negated:
            raise self.unexpected("BETWEEN")
        return left

    def _sum(self) -> Node:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Node:
        return self._chain(self._factor, "*", "/")

    def _chain(self, part: Callable[[], Node], *names: str) -> Node:
        node = part()
        while name := self._take(*names):
            node = Operation(name, (node, part()))
        return node

    def _factor(self) -> Node:
        if self._take("-"):
            return _negative(self._factor())
        function = self._take("abs")
        if self._take("("):
            inner = self.disjunction()
            self._must_take(")")
            return Operation(function, (inner,)) if function else inner
        if function:
            raise self.unexpected("'('")
        if self._take("interval"):
            return self._interval()
        if word := self._take("true", "false"):
            return Literal(word == "true")
        return self._literal_or_column()

    def _literal_or_column(self) -> Node:
        _, kind, token = self._tokens[self._next]
        if kind == "number":
            self._next += 1
            return Literal(_number(token))
        if kind == "text":
            self._next += 1
            return Literal(token[1:-1].replace("''", "'"))
        side = self._take(*SIDES)
        if side is None:
            raise self.unexpected("a column as a.x or b.y, a number, a string or a parenthesis")
        self._must_take(".")
        _, kind, token = self._tokens[self._next]
        if kind not in ("word", "quoted"):
            raise self.unexpected("the name of a column")
        self._next += 1
        return Column(SIDES.index(side), token[1:-1].replace("``", "`") if kind == "quoted" else token)

    def _interval(self) -> Node:
        _, kind, token = self._tokens[self._next]
        if kind not in ("number", "text"):
            raise self.unexpected("a number, as in interval 10 seconds")
        self._next += 1
        names = [name for unit in UNITS_US for name in (unit, unit + "s")]
        unit = self._take(*names)
        if unit is None:
            raise self.unexpected("one of " + ", ".join(UNITS_US))
        try:
            duration_us = Decimal(token.strip("'")) * UNITS_US[unit.rstrip("s")]
        except ArithmeticError as problem:
            raise InvalidOption("an interval must be a number", given=token, allowed="interval 10 seconds") from problem
        if duration_us != int(duration_us):
            raise InvalidOption("an interval must be whole microseconds", given=f"interval {token} {unit}")
        return Interval(int(duration_us))


def _negative(node: Node) -> Node:
    if isinstance(node, Interval):
        return Interval(-node.duration_us)
    if isinstance(node, Literal) and isinstance(node.value, int | Decimal | float):
        return Literal(-node.value)
    return Operation("-", (Literal(0), node))


def _number(token: str) -> int | Decimal | float:
    if re.fullmatch(r"\d+", token) and int(token) < 2**63:
        return int(token)
    return float(token) if "e" in token.lower() else Decimal(token)


def _tokens(text: str) -> Iterator[tuple[int, str, str]]:
    place = 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            raise InvalidOption(
                "the condition has a character that means nothing here",
                given=f"{text[start]!r} in {text!r}",
                hint="put names with such characters into backticks, as in a.`unit price`",
            )
        kind = match.lastgroup
        assert kind is not None, "every alternative of the pattern has a name"
        yield match.start(kind), kind, match.group(kind)
        place = match.end()
    yield len(text), _END, ""
