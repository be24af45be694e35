"""Predicates as closed intervals of 64-bit codes: all that the indexes of a window join ever see of a key.

Every row gets a code, and when it probes the other stream an interval [low, high] of codes that its partners there
have. An interval whose low end is above its high end has no partner. Two kinds of predicates can be put that way:

- `Equality` of one to four values on each side, of any type that `semistream.keys` can make a code of. The interval is
  the code itself. Strings and composite keys have hashed codes, so pairs must be checked afterwards.
- `Span`: f(a) - g(b) lies between two bounds, of which one may be missing. `a.x < b.y` is one with a single bound, the
  band `abs(a.x - b.y) <= d` one with two.

Codes of a span keep the order of the values. Integers, booleans, dates (days), timestamps (microseconds) and decimals
of up to 18 digits (unscaled) are their own codes, and bounds become whole numbers of the same unit: exact. Floats get
the bits of IEEE 754, those of negative numbers turned round, with -0.0 as 0.0; integers beside floats become floats, as
in Spark. A bound other than 0 would have to be rounded with every value, so intervals of floats are a few units in the
last place too wide and pairs must be checked afterwards. `exact` says whether they must.

Null and NaN never match; rows that hold one are not valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from semistream.errors import KeyMismatch
from semistream.keys import KeyCodec, family_of
from semistream.window.expression import SIDES, Column, Node, evaluate

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Side = int

CODE_MIN, CODE_MAX = -(2**63), 2**63 - 1
DIGITS_MAX = 18
"""Decimal digits that 64 bits always hold."""

_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_ROUNDING = 2.0**-50
"""Four units in the last place, relative: more than a sum of two numbers and its comparison can be off."""


@dataclass(frozen=True, slots=True)
class RowCodes:
    """What the indexes see of a batch of rows of one side."""

    code: Codes
    low: Codes
    high: Codes
    valid: Flags
    """False where a key is null or NaN."""


@dataclass(frozen=True, slots=True)
class Operand:
    """One side of a predicate: an expression over the columns of one stream."""

    node: Node
    type: pa.DataType

    def values(self, side: Side, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Its value in every row."""
        return evaluate(self.node, {(side, name): column for name, column in columns.items()})

    @property
    def is_column(self) -> bool:
        """Whether it is a column as it stands."""
        return isinstance(self.node, Column)


# ---------------------------------------------------------------------------------------------------------------------
# Equality
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equality:
    """The values of `operands[0]` equal, in order, those of `operands[1]`."""

    operands: tuple[tuple[Operand, ...], tuple[Operand, ...]]

    @property
    def exact(self) -> bool:
        """Whether rows with equal codes have equal keys."""
        return all(self._codec(side).exact for side in (0, 1))

    def encode(self, side: Side, columns: Mapping[str, pa.Array]) -> RowCodes:
        """Codes and intervals of a batch of rows."""
        values = [_plain(operand.values(side, columns)) for operand in self.operands[side]]
        encoded = self._codec(side).encode(values)
        code = np.ascontiguousarray(encoded.codes)
        valid = np.ones(len(code), np.bool_) if encoded.null is None else ~encoded.null
        return RowCodes(code, code, code, valid)

    def _codec(self, side: Side) -> KeyCodec:
        operands = self.operands[side]
        return KeyCodec([o.type for o in operands], [str(o.node) for o in operands])


def check_can_be_equal(operand_a: Operand, operand_b: Operand) -> None:
    """Raise unless values of both can be keys and can be compared."""
    families = []
    for side, operand in enumerate((operand_a, operand_b)):
        family = family_of(operand.type)
        if family is None:
            raise KeyMismatch(
                f"{operand.node} has a type that cannot be a key",
                given=str(operand.type),
                allowed="integers, booleans, dates, timestamps, decimals, strings and binaries",
                hint="equality of floats depends on rounding; use a band, abs(a.x - b.y) <= d, or cast to a decimal"
                if pa.types.is_floating(operand.type)
                else f"cast it to string in {SIDES[side]}",
            )
        families.append(family)
    if families[0] != families[1]:
        raise KeyMismatch(
            f"{operand_a.node} cannot be compared with {operand_b.node}",
            given=f"{operand_a.type} ({families[0]}) and {operand_b.type} ({families[1]})",
            allowed="two types of one family; decimals must have the same scale",
            hint="cast one of them before the join",
        )


# ---------------------------------------------------------------------------------------------------------------------
# Spans
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a span."""

    value: Fraction
    """In units of the values: numbers, days or microseconds."""
    is_open: bool
    """Whether the bound itself lies outside."""


@dataclass(frozen=True, slots=True)
class Span:
    """`operands[0]` minus `operands[1]` lies between two bounds; at least one is there."""

    operands: tuple[Operand, Operand]
    common: pa.DataType
    """The type in which values of both sides are compared."""
    least: Bound | None
    most: Bound | None

    @property
    def exact(self) -> bool:
        """Whether rows that meet by code satisfy the predicate."""
        return not pa.types.is_floating(self.common) or all(b is None or b.value == 0 for b in (self.least, self.most))

    @property
    def is_band(self) -> bool:
        """Whether there are bounds on both ends."""
        return self.least is not None and self.most is not None

    def encode(self, side: Side, columns: Mapping[str, pa.Array]) -> RowCodes:
        """Codes and intervals of a batch of rows."""
        values = _plain(self.operands[side].values(side, columns))
        # What a holds is b plus something between the bounds; what b holds is a plus something between their negatives.
        from_low, to_high = (_negated(self.most), _negated(self.least)) if side == 0 else (self.least, self.most)
        if pa.types.is_floating(self.common):
            return _float_codes(values, from_low, to_high)
        return _integer_codes(values.cast(self.common), from_low, to_high)


def _negated(bound: Bound | None) -> Bound | None:
    return None if bound is None else Bound(-bound.value, bound.is_open)


def _plain(values: pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _integer_codes(values: pa.Array, from_low: Bound | None, to_high: Bound | None) -> RowCodes:
    encoded = KeyCodec([values.type]).encode([values])
    valid = np.ones(len(values), np.bool_) if encoded.null is None else ~encoded.null
    # What lies in a null slot is arbitrary; a number there would only confuse whoever looks.
    code = np.where(valid, encoded.codes, 0)
    scale = 10**values.type.scale if pa.types.is_decimal(values.type) else 1
    low = np.full(len(code), CODE_MIN, np.int64)
    high = np.full(len(code), CODE_MAX, np.int64)
    empty = np.zeros(len(code), np.bool_)
    if from_low is not None:
        low, below, above = _shifted(code, _least_whole(from_low, scale))
        low[below] = CODE_MIN
        empty |= above
    if to_high is not None:
        high, below, above = _shifted(code, -_least_whole(Bound(-to_high.value, to_high.is_open), scale))
        high[above] = CODE_MAX
        empty |= below
    low[empty], high[empty] = 1, 0
    return RowCodes(code, low, high, valid)


def _least_whole(bound: Bound, scale: int) -> int:
    """The least whole number of units that is inside the bound, seen from below."""
    units = bound.value * scale
    return math.floor(units) + 1 if bound.is_open else math.ceil(units)


def _shifted(codes: Codes, by: int) -> tuple[Codes, Flags, Flags]:
    """Codes plus a number of any size, and where the sum is below or above what 64 bits hold."""
    never = np.zeros(len(codes), np.bool_)
    if abs(by) >= CODE_MAX - CODE_MIN + 1:
        return codes.copy(), ~never if by < 0 else never, ~never if by > 0 else never
    if not CODE_MIN <= by <= CODE_MAX:
        # Two steps the same way: what passes the end in the first stays beyond it in the second.
        half, below, above = _shifted(codes, by // 2)
        half[below], half[above] = CODE_MIN, CODE_MAX
        return _shifted(half, by - by // 2)
    below = codes < CODE_MIN - by if by < 0 else never
    above = codes > CODE_MAX - by if by > 0 else never
    with np.errstate(over="ignore"):
        return codes + np.int64(by), below, above


def _float_codes(values: pa.Array, from_low: Bound | None, to_high: Bound | None) -> RowCodes:
    floats = pc.fill_null(values.cast(pa.float64()), math.nan).to_numpy(zero_copy_only=False)
    valid = ~np.isnan(floats)
    floats = np.where(valid, floats, 0.0)
    low = np.full(len(floats), CODE_MIN, np.int64)
    high = np.full(len(floats), CODE_MAX, np.int64)
    if from_low is not None:
        low = _float_bound(floats, from_low, -1)
    if to_high is not None:
        high = _float_bound(floats, to_high, +1)
    return RowCodes(_ordered_bits(floats), low, high, valid)


def _float_bound(floats: npt.NDArray[np.float64], bound: Bound, outwards: int) -> Codes:
    if bound.value == 0:
        return _ordered_bits(floats) - outwards * int(bound.is_open)
    by = float(bound.value)
    margin = np.where(np.isfinite(floats), _ROUNDING * (np.abs(floats) + abs(by)), 0.0)
    return _ordered_bits(floats + by + outwards * margin)


def _ordered_bits(floats: npt.NDArray[np.float64]) -> Codes:
    """Whole numbers in the order of the floats."""
    bits = (floats + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
    ordered: Codes = bits ^ ((bits >> 63) & CODE_MAX)
    return ordered


def common_type(operand_a: Operand, operand_b: Operand) -> pa.DataType:
    """The type in which the values of both keep their order in 64 bits; raise where there is none."""
    a, b = operand_a.type, operand_b.type
    if pa.types.is_floating(a) or pa.types.is_floating(b):
        if all(pa.types.is_floating(t) or pa.types.is_integer(t) for t in (a, b)):
            return pa.float64()
    elif pa.types.is_integer(a) and pa.types.is_integer(b):
        if not pa.types.is_uint64(a) and not pa.types.is_uint64(b):
            return pa.int64()
    elif all(pa.types.is_integer(t) or pa.types.is_decimal(t) for t in (a, b)):
        whole, scale = (max(sizes) for sizes in zip(_digits(a), _digits(b), strict=True))
        if whole + scale <= DIGITS_MAX:
            return pa.decimal128(whole + scale, scale)
    elif family_of(a) == family_of(b):
        if pa.types.is_boolean(a):
            return pa.bool_()
        if pa.types.is_date(a):
            return pa.date32()
        if pa.types.is_timestamp(a):
            return pa.timestamp("us", tz=a.tz and "UTC")
    if family_of(a) == family_of(b) and family_of(a) in ("string", "binary"):
        raise KeyMismatch(
            f"no index can serve an order of {operand_a.node} and {operand_b.node}",
            given=f"{a} and {b}",
            allowed="numbers, dates, timestamps, and decimals of up to 18 digits; for strings, equality",
            hint="add an equality, or compare numbers",
        )
    raise KeyMismatch(
        f"{operand_a.node} and {operand_b.node} have no common order that fits 64 bits",
        given=f"{a} and {b}",
        allowed="two numbers, two dates, two timestamps with or two without a zone, decimals of up to 18 digits",
        hint="cast one of them before the join",
    )


def _digits(data_type: pa.DataType) -> tuple[int, int]:
    """Digits before and behind the point."""
    if pa.types.is_decimal(data_type):
        return int(data_type.precision - data_type.scale), int(data_type.scale)
    return _INTEGER_DIGITS[data_type.bit_width], 0
