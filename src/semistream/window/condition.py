"""From a condition to what an index can serve and what is left to check on every pair.

A condition is taken apart at its ANDs. Of the parts, those that compare something of `a` with something of `b` can be
served by an index: equalities together first, for they leave the fewest candidates and can be shared out over tasks;
else a band; else an inequality. Comparisons that bound the same difference, such as `a.t >= b.t` and
`a.t <= b.t + interval 5 seconds`, are one band. All other parts become the *residual*, a condition on candidate pairs;
so does a part whose codes are not exact (see `predicate`). A condition of which no part can be served is refused, with
the reason for each part: without an index every row would have to meet every other.

Comparisons are first brought into the form f(a) - g(b) >= c by moving terms across. With whole numbers, dates,
timestamps and decimals that is exact. Sums of floats depend on their order, so there only one term of each side and one
constant are moved.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

import pyarrow as pa

from semistream.errors import ColumnNotFound, InvalidOption, SemistreamError, did_you_mean
from semistream.keys import COLUMNS_MAX
from semistream.window.expression import (
    COMPARISONS,
    SIDES,
    UNITS_US,
    Column,
    Interval,
    Literal,
    Node,
    Operation,
    columns_of,
    parse,
    sides_of,
    type_of,
)
from semistream.window.predicate import Bound, Equality, Operand, Span, check_can_be_equal, common_type

_Types = Mapping[tuple[int, str], pa.DataType]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition, ready to be joined on."""

    predicate: Equality | Span
    residual: Node | None
    """What must hold besides, on every candidate pair."""

    @property
    def residual_columns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The columns of each side that the residual looks at."""
        found = set(columns_of(self.residual)) if self.residual else set()
        name_a, name_b = (tuple(sorted(c.name for c in found if c.side == side)) for side in (0, 1))
        return name_a, name_b

    def __str__(self) -> str:
        if isinstance(self.predicate, Equality):
            pairs = zip(*self.predicate.operands, strict=True)
            served = " and ".join(f"{a.node} = {b.node}" for a, b in pairs)
        else:
            a, b = self.predicate.operands
            ends = [
                f"{end.value}{' (open)' if end.is_open else ''}" if end else "any"
                for end in (self.predicate.least, self.predicate.most)
            ]
            served = f"{a.node} - {b.node} from {ends[0]} to {ends[1]}"
        return served if self.residual is None else f"{served}; then {self.residual}"


def from_columns(on: Mapping[str, str], schema_a: pa.Schema, schema_b: pa.Schema) -> Condition:
    """Equality of columns of `a` with columns of `b`."""
    parts: list[Node] = [Operation("=", (Column(0, a), Column(1, b))) for a, b in on.items()]
    if not 1 <= len(parts) <= COLUMNS_MAX:
        raise InvalidOption("`on` has a wrong number of columns", given=str(len(parts)), allowed=f"1 to {COLUMNS_MAX}")
    types = _types(schema_a, schema_b)
    for part in parts:
        _check_columns(part, types)
    equality = _equality(parts, types)
    return Condition(equality, None if equality.exact else _all_of(parts))


def from_text(text: str, schema_a: pa.Schema, schema_b: pa.Schema) -> Condition:
    """A condition in the language of `expression`."""
    whole = parse(text)
    types = _types(schema_a, schema_b)
    _check_columns(whole, types)
    if not pa.types.is_boolean(type_of(whole, types)):
        raise InvalidOption("the condition is neither true nor false", given=text, allowed="a comparison")
    parts = list(_conjuncts(whole))
    refused: dict[Node, str] = {}
    served = _served_equalities(parts, types, refused)
    predicate: Equality | Span | None = _equality(served, types) if served else None
    if predicate is None:
        predicate, served = _best_span(parts, types, refused)
    if predicate is None:
        raise InvalidOption(
            "no index can serve the condition",
            given="; ".join(f"{part}: {reason}" for part, reason in refused.items()),
            allowed="at least one of the parts between ANDs is =, <, <=, >, >= or a band, abs(a.x - b.y) <= d, "
            "with columns of a on one side and columns of b on the other",
        )
    rest = [part for part in parts if part not in served or not predicate.exact]
    return Condition(predicate, _all_of(rest))


def _types(schema_a: pa.Schema, schema_b: pa.Schema) -> _Types:
    return {(side, f.name): f.type for side, schema in enumerate((schema_a, schema_b)) for f in schema}


def _check_columns(node: Node, types: _Types) -> None:
    for column in columns_of(node):
        if (column.side, column.name) not in types:
            names = [name for side, name in types if side == column.side]
            raise ColumnNotFound(
                f"{SIDES[column.side]} has no column {column.name!r}",
                given=str(column),
                allowed=", ".join(names),
                hint=did_you_mean(column.name, names),
            )


def _conjuncts(node: Node) -> Iterator[Node]:
    if isinstance(node, Operation) and node.name == "and":
        for part in node.parts:
            yield from _conjuncts(part)
    else:
        yield node


def _all_of(parts: Sequence[Node]) -> Node | None:
    return reduce(lambda left, right: Operation("and", (left, right)), parts) if parts else None


# ---------------------------------------------------------------------------------------------------------------------
# Equalities
# ---------------------------------------------------------------------------------------------------------------------


def _served_equalities(parts: Sequence[Node], types: _Types, refused: dict[Node, str]) -> list[Node]:
    served: list[Node] = []
    for part in parts:
        if not (isinstance(part, Operation) and part.name == "=" and len(served) < COLUMNS_MAX):
            continue
        if sorted(map(sorted, map(sides_of, part.parts))) == [[0], [1]]:
            try:
                check_can_be_equal(*_operands(part, types))
            except SemistreamError as problem:
                refused[part] = f"{problem.what}, {problem.given}"
            else:
                served.append(part)
    return served


def _equality(parts: Sequence[Node], types: _Types) -> Equality:
    operands = [_operands(part, types) for part in parts]
    for operand_a, operand_b in operands:
        check_can_be_equal(operand_a, operand_b)
    return Equality((tuple(a for a, _ in operands), tuple(b for _, b in operands)))


def _operands(part: Node, types: _Types) -> tuple[Operand, Operand]:
    assert isinstance(part, Operation), "only a comparison has two sides"
    left, right = (Operand(node, type_of(node, types)) for node in part.parts)
    return (left, right) if sides_of(left.node) == {0} else (right, left)


# ---------------------------------------------------------------------------------------------------------------------
# Bands and inequalities
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Difference:
    """f(a) - g(b) + constant, as read from a part of a condition."""

    f: Node
    g: Node
    constant: Fraction
    is_flipped: bool
    """Whether it stands for the negative of what was written."""
    is_plain: bool
    """Whether there was one term of each side and at most one constant, so that no sum of floats was reordered."""


def _best_span(parts: Sequence[Node], types: _Types, refused: dict[Node, str]) -> tuple[Span | None, list[Node]]:
    """The span with the most bounds, and the parts it stands for."""
    spans: dict[tuple[Node, Node], tuple[Span, list[Node]]] = {}
    for part in parts:
        try:
            found = _span_of(part, types)
        except SemistreamError as problem:
            refused.setdefault(part, f"{problem.what}, {problem.given}")
            continue
        if found is None:
            refused.setdefault(part, "does not compare something of a with something of b by <, <=, >, >= or =")
            continue
        key = found.operands[0].node, found.operands[1].node
        if key in spans:
            known, of_parts = spans[key]
            spans[key] = _both(known, found), [*of_parts, part]
        else:
            spans[key] = found, [part]
    best = max(spans.values(), key=lambda entry: entry[0].is_band, default=None)
    return best or (None, [])


def _span_of(part: Node, types: _Types) -> Span | None:
    if not (isinstance(part, Operation) and part.name in COMPARISONS and part.name != "!="):
        return None
    left, right = part.parts
    name = part.name
    if isinstance(right, Operation) and right.name == "abs":
        left, right, name = right, left, {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
    if isinstance(left, Operation) and left.name == "abs":
        return _band_of(left.parts[0], right, name, types)
    difference = _difference(Operation("-", (left, right)), types)
    if difference is None:
        return None
    if difference.is_flipped:
        name = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
    bound = Bound(-difference.constant, name in ("<", ">"))
    least = bound if name in (">", ">=", "=") else None
    most = bound if name in ("<", "<=", "=") else None
    return _made(difference, least, most, types)


def _band_of(inside: Node, distance: Node, name: str, types: _Types) -> Span | None:
    """`abs(inside) <= distance`; for other comparisons there is no interval."""
    if name not in ("<", "<="):
        return None
    value = _constant(distance)
    difference = _difference(inside, types)
    if value is None or difference is None:
        return None
    value /= _unit_us(types, difference, distance)
    centre = -difference.constant
    return _made(difference, Bound(centre - value, name == "<"), Bound(centre + value, name == "<"), types)


def _made(difference: _Difference, least: Bound | None, most: Bound | None, types: _Types) -> Span | None:
    operand_a, operand_b = (Operand(node, type_of(node, types)) for node in (difference.f, difference.g))
    common = common_type(operand_a, operand_b)
    if pa.types.is_floating(common) and not difference.is_plain:
        return None
    return Span((operand_a, operand_b), common, least, most)


def _both(one: Span, other: Span) -> Span:
    """The differences that lie in both spans."""
    lows = [b for b in (one.least, other.least) if b is not None]
    highs = [b for b in (one.most, other.most) if b is not None]
    return Span(
        one.operands,
        one.common,
        max(lows, key=lambda b: (b.value, b.is_open), default=None),
        min(highs, key=lambda b: (b.value, not b.is_open), default=None),
    )


def _difference(node: Node, types: _Types) -> _Difference | None:
    """Read a sum as f(a) - g(b) + constant, or as the negative of that."""
    of_a: list[tuple[int, Node]] = []
    of_b: list[tuple[int, Node]] = []
    constants: list[tuple[int, Node]] = []
    for sign, term in _terms(node, 1):
        sides = sides_of(term)
        if len(sides) > 1:
            return None
        place = constants if not sides else of_a if sides == {0} else of_b
        place.append((sign, term))
    values = [_constant(term) for _, term in constants]
    if not of_a or not of_b or None in values:
        return None
    is_flipped = all(sign < 0 for sign, _ in of_a)
    turn = -1 if is_flipped else 1
    f = _sum([(turn * sign, term) for sign, term in of_a])
    g = _sum([(-turn * sign, term) for sign, term in of_b])
    is_plain = len(of_a) == len(of_b) == 1 and len(constants) <= 1
    difference = _Difference(f, g, Fraction(0), is_flipped, is_plain)
    total = Fraction(0)
    for (sign, term), value in zip(constants, values, strict=True):
        assert value is not None, "checked above"
        total += turn * sign * value / _unit_us(types, difference, term)
    return _Difference(f, g, total, is_flipped, is_plain)


def _terms(node: Node, sign: int) -> Iterator[tuple[int, Node]]:
    if isinstance(node, Operation) and node.name in ("+", "-"):
        left, right = node.parts
        yield from _terms(left, sign)
        yield from _terms(right, sign if node.name == "+" else -sign)
    elif node != Literal(0):
        yield sign, node


def _sum(terms: Sequence[tuple[int, Node]]) -> Node:
    """Terms put together again, one that is added first."""
    ordered = sorted(terms, key=lambda term: -term[0])
    sign, total = ordered[0]
    if sign < 0:
        total = Operation("-", (Literal(0), total))
    for sign, term in ordered[1:]:
        total = Operation("+" if sign > 0 else "-", (total, term))
    return total


def _constant(node: Node) -> Fraction | None:
    if isinstance(node, Interval):
        return Fraction(node.duration_us)
    if isinstance(node, Literal) and not isinstance(node.value, str | bool):
        return Fraction(node.value)
    return None


def _unit_us(types: _Types, difference: _Difference, constant: Node) -> int:
    """Microseconds of a unit of the values, where a constant is a length of time; dates count days."""
    is_time = isinstance(constant, Interval)
    return UNITS_US["day"] if is_time and pa.types.is_date(type_of(difference.f, types)) else 1
