"""Skewed keys: a few are asked for all the time, most hardly ever.

`Zipf` draws ranks 0 … N-1, where rank r has probability (r + 1)^-s / H(N, s), exactly and for every exponent s >= 0
(s = 0 is uniform). It uses rejection-inversion (Hörmann and Derflinger, 1996): the discrete curve is covered by the
integral of x^-s, which can be inverted in closed form, and a draw is thrown away with just the probability by which
the cover is too high. So there is no table of probabilities: a population of ten million costs as little as one of
ten.

`IntegralZipf` is another distribution under the same name: what the generators of the HYBRIDJOIN family of papers
draw, kept so that their figures can be repeated with their own skew. It rounds the inverse of that integral down and
rejects nothing, and so is flatter at the top: with exponent 1 and two million keys the first one gets ln 2 / ln N,
4.8 % of the rows, where Zipf's law says 6.6 %.

`Shuffle` turns ranks into keys, so that popular keys do not stand side by side in the relation. It is a permutation
that is computed rather than stored: a small Feistel network over two mixed-radix digits.

Memory: both work on `CHUNK_ROWS` rows at a time; beside the result they hold a few arrays of that length (about
20 MiB), whatever the population.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from semistream.cost.zipf import check_exponent
from semistream.errors import InvalidOption

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CHUNK_ROWS = 1 << 18
"""Rows drawn at a time: large enough to hide NumPy's cost per call, small enough to stay near the CPU's caches."""

SERIES_BELOW = 1e-8
"""Where a quotient tends to 0 / 0, two terms of its series are exact to the last bit below this."""

SHUFFLE_ROUNDS = 4
"""Each round mixes one digit into the other; two would leave visible diagonals, four leave none that tests find."""

PUBLISHED_EXPONENTS: dict[float, tuple[float, float]] = {
    0.0: (0.01, 0.99),
    0.25: (0.5, 1.0),
    0.5: (0.5, 1.0),
    0.75: (0.75, 1.0),
    1.0: (1.0, 1.0),
}
"""For each exponent that the published generator knows: the exponent it really draws, and how far up the keys go.

Two of them are slips. "0" integrates x^-0.01, and the last hundredth of the keys never comes. "0.25" divides integers
(4 / 3 = 1) and inverts to 0.75^4 y^2; of that only keys below N are kept, so the square root of a key is even between
1 and the root of N, which is exponent 0.5 to the letter. Whether any published figure used that line is not known.
"""


class RankSampler(Protocol):
    """Something that draws ranks of popularity, 0 for the most popular."""

    population: int

    def sample(self, rng: np.random.Generator, count: int) -> Integers:
        """Return `count` ranks between 0 and population - 1."""
        ...


class Zipf:
    """Draw ranks of a bounded Zipf distribution; rank 0 is the most popular.

    Example:
        >>> ranks = Zipf(10_000_000, exponent=1.0).sample(np.random.default_rng(7), 1000)
        >>> bool(ranks.min() >= 0), bool(ranks.max() < 10_000_000)
        (True, True)
    """

    def __init__(self, population: int, exponent: float) -> None:
        if population < 1:
            raise InvalidOption("a Zipf population must not be empty", given=str(population), allowed="1 or more")
        check_exponent(exponent)
        self.population = population
        self.exponent = float(exponent)
        first, last, third = _area(np.array([1.5, population + 0.5, 2.5]), self.exponent)
        self._area_first = float(first) - 1.0
        self._area_last = float(last)
        # Candidates this close above their point are always under the curve; it saves most of the exact tests.
        inverse = _area_inverse(np.array([float(third) - 2.0**-self.exponent]), self.exponent)
        self._accept_at_once = 2.0 - float(inverse[0])

    def sample(self, rng: np.random.Generator, count: int) -> Integers:
        """Return `count` ranks between 0 and population - 1."""
        ranks = np.empty(count, dtype=np.int64)
        for start in range(0, count, CHUNK_ROWS):
            chunk = ranks[start : start + CHUNK_ROWS]
            filled = 0
            while filled < len(chunk):
                accepted = self._draw(rng, len(chunk) - filled)
                chunk[filled : filled + len(accepted)] = accepted
                filled += len(accepted)
        return ranks

    def _draw(self, rng: np.random.Generator, count: int) -> Integers:
        """Try `count` times; return the ranks that were not rejected (well over half of them)."""
        area = self._area_last + rng.random(count) * (self._area_first - self._area_last)
        point = _area_inverse(area, self.exponent)
        ordinal = np.clip(np.rint(point), 1.0, float(self.population))
        accepted = ordinal - point <= self._accept_at_once
        unsure = np.flatnonzero(~accepted)
        height = np.exp(-self.exponent * np.log(ordinal[unsure]))
        accepted[unsure] = area[unsure] >= _area(ordinal[unsure] + 0.5, self.exponent) - height
        return ordinal[accepted].astype(np.int64) - 1


class IntegralZipf:
    """Draw ranks as the generators of the papers do: the integral of x^-s, inverted and rounded down.

    Rank r has probability (F(r + 2) - F(r + 1)) / (F(N) - F(1)), where F is that integral; for s = 1 it is
    ln((r + 2) / (r + 1)) / ln N. The last rank, N - 1, never comes. For anything but a comparison with those papers
    use `Zipf`.

    Example:
        >>> ranks = IntegralZipf(2_000_000, exponent=1.0).sample(np.random.default_rng(7), 100_000)
        >>> abs(float(np.mean(ranks == 0)) - math.log(2) / math.log(2_000_000)) < 0.003
        True
    """

    def __init__(self, population: int, exponent: float) -> None:
        if population <= 1:
            raise InvalidOption(
                "an integral Zipf population needs two keys, for the last never comes",
                given=str(population),
                allowed="2 or more",
            )
        check_exponent(exponent)
        self.population = population
        self.exponent = float(exponent)
        self._key_end = float(population)

    @classmethod
    def as_published(cls, population: int, exponent: float) -> IntegralZipf:
        """Return the generator that the papers ran under this exponent, slips included (`PUBLISHED_EXPONENTS`)."""
        if exponent not in PUBLISHED_EXPONENTS:
            raise InvalidOption(
                "the published Zipf generator does not know this exponent",
                given=str(exponent),
                allowed=", ".join(map(str, PUBLISHED_EXPONENTS)),
                hint="IntegralZipf(population, exponent) takes any exponent, and without the slips",
            )
        drawn_exponent, key_share = PUBLISHED_EXPONENTS[exponent]
        sampler = cls(population, drawn_exponent)
        sampler._key_end = population * key_share
        return sampler

    def sample(self, rng: np.random.Generator, count: int) -> Integers:
        """Return `count` ranks between 0 and population - 2."""
        ranks = np.empty(count, dtype=np.int64)
        area_end = float(_area(np.array([self._key_end]), self.exponent)[0])
        key_last = math.ceil(self._key_end) - 1
        for start in range(0, count, CHUNK_ROWS):
            chunk = ranks[start : start + CHUNK_ROWS]
            point = _area_inverse(rng.random(len(chunk)) * area_end, self.exponent)
            # Rounding may lift a point to the end, which is not part of the range.
            chunk[:] = np.minimum(point, float(key_last)).astype(np.int64) - 1
        return ranks


def _area(x: Floats, exponent: float) -> Floats:
    """The integral of t^-s from 1 to x; one formula, steady through s = 1, where it is log x."""
    log_x = np.log(x)
    return _expm1_over(log_x * (1.0 - exponent)) * log_x


def _area_inverse(area: Floats, exponent: float) -> Floats:
    # Rounding may push the product a hair below -1, where the logarithm ends.
    scaled = np.maximum(area * (1.0 - exponent), -1.0)
    return np.exp(_log1p_over(scaled) * area)


def _expm1_over(x: Floats) -> Floats:
    """(e^x - 1) / x, and its series where the quotient would be 0 / 0."""
    small = np.abs(x) < SERIES_BELOW
    safe = np.where(small, 1.0, x)
    return np.where(small, 1.0 + x / 2.0, np.expm1(safe) / safe)


def _log1p_over(x: Floats) -> Floats:
    """log(1 + x) / x, and its series where the quotient would be 0 / 0."""
    small = np.abs(x) < SERIES_BELOW
    safe = np.where(small, 1.0, x)
    with np.errstate(divide="ignore"):  # x = -1 means infinity, which `_draw` clips to the last rank
        return np.where(small, 1.0 - x / 2.0, np.log1p(safe) / safe)


class Shuffle:
    """A seeded permutation of 0 … population - 1 that needs no table.

    Example:
        >>> sorted(Shuffle(5, seed=1)(np.arange(5)).tolist())
        [0, 1, 2, 3, 4]
    """

    def __init__(self, population: int, seed: int) -> None:
        if population < 1:
            raise InvalidOption("a shuffled population must not be empty", given=str(population), allowed="1 or more")
        self.population = population
        # The digits span population … population + radix numbers, so almost none has to walk the cycle.
        self._high_radix = math.isqrt(population - 1) + 1
        self._low_radix = -(-population // self._high_radix)
        self._round_keys = np.random.SeedSequence(seed).generate_state(SHUFFLE_ROUNDS, np.uint64)

    def __call__(self, numbers: Integers) -> Integers:
        """Return the key at each of these positions."""
        keys = np.empty(len(numbers), dtype=np.int64)
        for start in range(0, len(numbers), CHUNK_ROWS):
            chunk = self._permute(numbers[start : start + CHUNK_ROWS])
            # A number outside the population is permuted again until it comes back: still one-to-one.
            outside = np.flatnonzero(chunk >= self.population)
            while len(outside) > 0:
                chunk[outside] = self._permute(chunk[outside])
                outside = outside[chunk[outside] >= self.population]
            keys[start : start + CHUNK_ROWS] = chunk
        return keys

    def _permute(self, numbers: Integers) -> Integers:
        high, low = np.divmod(numbers, self._low_radix)
        for number, round_key in enumerate(self._round_keys):
            if number % 2 == 0:
                high = (high + _mix(low, round_key) % self._high_radix) % self._high_radix
            else:
                low = (low + _mix(high, round_key) % self._low_radix) % self._low_radix
        return high * self._low_radix + low


def _mix(numbers: Integers, round_key: np.uint64) -> Integers:
    """Scramble 64 bits (the finaliser of SplitMix64) and return 62 of them, so that sums stay positive."""
    bits = numbers.astype(np.uint64) + round_key
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((bits ^ (bits >> np.uint64(31))) >> np.uint64(2)).astype(np.int64)
