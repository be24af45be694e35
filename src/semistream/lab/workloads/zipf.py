"""Skewed keys: a few are asked for all the time, most hardly ever.

`Zipf` draws ranks 0 … N-1, where rank r has probability (r + 1)^-s / H(N, s), exactly and for every exponent s >= 0
(s = 0 is uniform). It uses rejection-inversion (Hörmann and Derflinger, 1996): the discrete curve is covered by the
integral of x^-s, which can be inverted in closed form, and a draw is thrown away with just the probability by which
the cover is too high. So there is no table of probabilities: a population of ten million costs as little as one of
ten.

`Shuffle` turns ranks into keys, so that popular keys do not stand side by side in the relation. It is a permutation
that is computed rather than stored: a small Feistel network over two mixed-radix digits.

Memory: both work on `CHUNK_ROWS` rows at a time; beside the result they hold a few arrays of that length (about
20 MiB), whatever the population.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidOption

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CHUNK_ROWS = 1 << 18
"""Rows drawn at a time: large enough to hide NumPy's cost per call, small enough to stay near the CPU's caches."""

SERIES_BELOW = 1e-8
"""Where a quotient tends to 0 / 0, two terms of its series are exact to the last bit below this."""

SHUFFLE_ROUNDS = 4
"""Each round mixes one digit into the other; two would leave visible diagonals, four leave none that tests find."""


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
        if not (exponent >= 0 and math.isfinite(exponent)):
            raise InvalidOption("a Zipf exponent must not be negative", given=str(exponent), allowed="0 or more")
        self.population = population
        self.exponent = float(exponent)
        first, last, third = self._area(np.array([1.5, population + 0.5, 2.5]))
        self._area_first = float(first) - 1.0
        self._area_last = float(last)
        # Candidates this close above their point are always under the curve; it saves most of the exact tests.
        inverse = self._area_inverse(np.array([float(third) - 2.0**-self.exponent]))
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
        point = self._area_inverse(area)
        ordinal = np.clip(np.rint(point), 1.0, float(self.population))
        accepted = ordinal - point <= self._accept_at_once
        unsure = np.flatnonzero(~accepted)
        height = np.exp(-self.exponent * np.log(ordinal[unsure]))
        accepted[unsure] = area[unsure] >= self._area(ordinal[unsure] + 0.5) - height
        return ordinal[accepted].astype(np.int64) - 1

    def _area(self, x: Floats) -> Floats:
        """The integral of t^-s from 1 to x; one formula, steady through s = 1, where it is log x."""
        log_x = np.log(x)
        return _expm1_over(log_x * (1.0 - self.exponent)) * log_x

    def _area_inverse(self, area: Floats) -> Floats:
        # Rounding may push the product a hair below -1, where the logarithm ends.
        scaled = np.maximum(area * (1.0 - self.exponent), -1.0)
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
