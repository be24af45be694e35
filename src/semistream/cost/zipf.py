"""How a skewed stream spreads over keys: sums of Zipf weights, for any exponent >= 0 and any number of keys.

The key of rank k (k = 1 is the most popular) has weight (k - 1 + offset)^-s. With offset 1 that is Zipf's law, exponent
0 is uniform. Other offsets are what a node of PCSRJ sees: of the ranks 1, 2, 3 ... the odd ones are weights
(2k - 1)^-s, which is offset 1/2, the even ones offset 1.

Sums are exact term by term for the first `HEAD_TERMS` ranks and by the Euler-Maclaurin formula after that; with the
third derivative and 64 exact terms the error is below the rounding of a float. Nothing is tabulated, so a relation of
a hundred million rows costs as much as one of a thousand.

The authors' generator inverts the integral of x^-s instead of the sum, so that its key k has the probability
F(k + 1) - F(k); at exponent 1 the hottest h of N have the share ln(h + 1) / ln N. It is offered because the published
figures were taken with it: it is less skewed (the first of 2 M keys gets 4.8 % instead of 6.6 %). It never draws key N.
Of its oddities (exponent "0" is 0.01, "0.25" is 0.5) nothing is copied: give the exponent that it really has.

| symbol | name here  | unit | meaning                                   |
|--------|------------|------|-------------------------------------------|
| N      | `keys`     | keys | distinct join values, all of them in R    |
| s      | `exponent` | -    | Zipf exponent, "skew" in the papers       |
| H(k)   | `partial_sum(k, ...)` | - | generalised harmonic number      |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidOption, check_choice

Floats = npt.NDArray[np.float64]

HEAD_TERMS = 64
"""Terms summed one by one; from here on the next term of the Euler-Maclaurin series is below 1e-13 of the sum."""

SERIES_BELOW = 1e-8
"""Where (e^x - 1) / x tends to 0 / 0, two terms of its series are exact to the last bit below this."""

EXPONENT_MAX = 1e6
"""From some 50 on the first key has all of the stream; a float cannot hold what beyond this is multiplied."""

Generator = Literal["exact", "integral"]
"""Whether shares follow Zipf's sum, or the integral that the papers' authors drew their streams from."""


def check_exponent(exponent: float) -> None:
    """Refuse what is no exponent of Zipf's law."""
    if not 0 <= exponent <= EXPONENT_MAX:
        raise InvalidOption(
            "a Zipf exponent must be a number from 0 on", given=str(exponent), allowed=f"0 to {EXPONENT_MAX:.0f}"
        )


def partial_sum(ranks: npt.ArrayLike, exponent: float, offset: float = 1.0) -> Floats:
    """Sum of the weights of the hottest `ranks` keys, element by element; between two ranks it is interpolated.

    Example:
        >>> partial_sum([1, 2, 4], exponent=1.0).tolist()
        [1.0, 1.5, 2.083333333333333]
    """
    upto = np.asarray(ranks, dtype=np.float64)
    head = (np.arange(HEAD_TERMS) + offset) ** -exponent
    sums = np.concatenate([[0.0], np.cumsum(head)])
    in_head = np.interp(upto, np.arange(HEAD_TERMS + 1), sums)
    far = np.maximum(upto, HEAD_TERMS) + offset
    total: Floats = np.where(upto <= HEAD_TERMS, in_head, sums[-1] + _tail_sum(HEAD_TERMS + offset, far, exponent))
    return total


def _tail_sum(begin: float, end: Floats, exponent: float) -> Floats:
    """Euler-Maclaurin for the sum of x^-s over x = begin, begin + 1, ... before `end`."""
    integral = _integral(begin, end, exponent)
    halves = (begin**-exponent - end**-exponent) / 2.0
    first = exponent * (begin ** (-exponent - 1.0) - end ** (-exponent - 1.0)) / 12.0
    rising = exponent * (exponent + 1.0) * (exponent + 2.0)
    third = rising * (begin ** (-exponent - 3.0) - end ** (-exponent - 3.0)) / 720.0
    total: Floats = integral + halves + first - third
    return total


def _integral(begin: float, end: Floats, exponent: float) -> Floats:
    """The integral of x^-s; one formula, steady through s = 1, where it is a logarithm."""
    log_ratio = np.log(end / begin)
    scaled = log_ratio * (1.0 - exponent)
    small = np.abs(scaled) < SERIES_BELOW
    safe = np.where(small, 1.0, scaled)
    growth = np.where(small, 1.0 + scaled / 2.0, np.expm1(safe) / safe)
    area: Floats = begin ** (1.0 - exponent) * log_ratio * growth
    return area


@dataclass(frozen=True, slots=True)
class Popularity:
    """What share of the stream asks for which key. Hashable, so that results may be remembered by it.

    Example:
        >>> round(Popularity(keys=2_000_000, exponent=1.0).share_of_hottest(1500), 3)
        0.523
    """

    keys: int
    exponent: float
    offset: float = 1.0
    generator: Generator = "exact"

    def __post_init__(self) -> None:
        if not self.keys >= 1:
            raise InvalidOption("a stream must ask for some key", given=f"keys={self.keys}", allowed="1 or more")
        check_exponent(self.exponent)
        if not self.offset > 0:
            raise InvalidOption("a Zipf offset must be positive", given=str(self.offset), allowed="more than 0")
        check_choice("generator", self.generator, get_args(Generator))
        if self.generator == "integral" and (self.offset != 1.0 or self.keys == 1):
            raise InvalidOption(
                "the authors' generator has no such variant",
                given=f"keys={self.keys}, offset={self.offset}",
                allowed="2 keys or more, offset 1",
            )

    def cumulative(self, ranks: npt.ArrayLike) -> Floats:
        """Share of the stream that asks for the hottest `ranks` keys, element by element."""
        upto = np.clip(np.asarray(ranks, dtype=np.float64), 0.0, float(self.keys))
        if self.generator == "integral":
            # Key k lies between k and k + 1, and the last key is never drawn.
            ends = np.minimum(upto + 1.0, float(self.keys))
            shares = _integral(1.0, ends, self.exponent) / _integral(1.0, np.asarray(float(self.keys)), self.exponent)
        else:
            total = partial_sum(self.keys, self.exponent, self.offset)
            shares = partial_sum(upto, self.exponent, self.offset) / total
        return np.minimum(shares, 1.0)

    def share_of_hottest(self, keys: float) -> float:
        """The hit share of a perfect cache of so many keys."""
        return float(self.cumulative(keys))

    def share_of_rank(self, rank: float) -> float:
        """Share of the stream that asks for the key of this rank, counted from 1."""
        return float(self.cumulative(rank) - self.cumulative(rank - 1.0))
