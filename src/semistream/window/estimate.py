"""From the pairs that a shed join has found to the count, sum and average of all pairs it would have found.

A row x probes with probability q, a row y of the other side is held with probability p, and each decides by a hash of
its own. So a pair is found with probability q p, and stands for w = 1 / (q p) pairs (Horvitz and Thompson). With
g = w f for the value f of a pair (1 to count), the sum of g over the pairs that were found is right on average.

*The variance is that of a join of samples*, not of a sample of the join: pairs that share a row come and go together.
Of two pairs, the joint probability is known, which makes this estimate of the variance right on average as well:

    V = sum_x (1 - q_x) G_x^2 + sum_y (1 - p_y) G_y^2 - sum_xy (1 - q_x)(1 - p_y) g_xy^2

G_x is the sum of g over the pairs of the probing row x, G_y that over the pairs of the held row y. A row that is held
may have lost some of its chance since it came (memory became short, p fell): its early pairs have a larger p than its
late ones. Being found late implies having been there early, so for two pairs of y the product g g' counts with
1 - max(p, p'), and the second sum becomes a sum over pairs of pairs, computed by prefix sums.

*Two directions.* A row decides to probe and to be held by two different hashes, so pairs in which A came later and
pairs in which B came later are independent of each other: their variances add.

*The average* is the ratio of sum and count. To first order it varies as (f - average) / count does, so its variance
follows from those of sum and count and their covariance, which is found the same way.

*Intervals.* If few rows make up most of the variance, its estimate is itself uncertain, and 1.96 standard errors hold
less than 95 %. How many rows there are in effect, n = V^2 / sum of the squares of what each row adds to V, is known
from the same sums, and Student's t for n degrees of freedom stands for 1.96. That does not help where a few giant rows
were not met at all. With no pair found nothing is known: the interval is everything. Pairs that had no chance (q or p
of 0) are not estimated; `semistream.window.allocation` gives each stream a least share for this reason. p follows the
number of rows that happen to be held, so it is not quite independent of the draws; at hundreds of held rows this cannot
be seen.

*What has to be held* between two calls of `add`: five numbers for each held row that has a pair and may get another.
`forget_before` lets go of rows that have left their window; so it is bounded by the rows that the join itself holds.
Tallies over streams that share no row (partitions by key) are added up by `merge`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]

Matrix = np.ndarray[tuple[int, int], np.dtype[np.float64]]

Z_95 = 1.959964
"""Standard deviations of a normal distribution that hold 95 %."""

COUNT, SUM = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
"""What is taken of the moments of (count, count with sum, sum) to make a variance."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """How far the interval reaches to either side."""
        return (self.high - self.low) / 2


@dataclass(frozen=True, slots=True)
class Estimates:
    """Of all pairs that an unshed join would have found."""

    count: Estimate
    sum: Estimate
    average: Estimate


@dataclass(frozen=True, slots=True)
class SampledPairs:
    """Pairs that were found, and with what probability."""

    probe_row: Numbers
    """Row number, on its side, of the row that came later and probed."""
    held_row: Numbers
    """Row number of the earlier row, which was held by the other side."""
    probe_share: Floats
    """q."""
    held_share: Floats
    """p, at the moment the pair was found."""
    a_is_later: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """The direction: whether the row that probed is of A."""
    value: Floats
    """f: what is summed and averaged."""


class _RowMoments:
    """What the pairs of each row add to the variance, for rows that may get further pairs, and the sum of all others.

    A row has its sums of (1 - share) g so far, counting and summing, and its three moments.
    """

    def __init__(self) -> None:
        self._rows: Numbers = np.empty(0, dtype=np.int64)
        self._sums: Matrix = np.empty((2, 0))
        self._moments: Matrix = np.empty((3, 0))
        self._closed = np.zeros(3)
        self._closed_squares: Matrix = np.zeros((3, 3))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def moments(self) -> Floats:
        """Over all rows."""
        total: Floats = self._closed + self._moments.sum(axis=1)
        return total

    @property
    def squares(self) -> Matrix:
        """The same of the products of a row's moments with each other."""
        total: Matrix = self._closed_squares + self._moments @ self._moments.T
        return total

    def add(self, rows: Numbers, share: Floats, g: Matrix) -> None:
        """Add g g' (1 - max(share, share')) over all pairs of pairs of one row of which one is new."""
        # Larger shares first: a row's share only ever falls, so what is there already has the larger one.
        order = np.lexsort((-share, rows))
        rows, g = rows[order], g[:, order]
        found, first, group = np.unique(rows, return_index=True, return_inverse=True)
        self._know(found)
        place = np.searchsorted(self._rows, found)
        part = g * (1 - share[order])
        running = np.cumsum(part, axis=1)
        before_group = running[:, first] - part[:, first]
        earlier = running - part - before_group[:, group] + self._sums[:, place][:, group]
        added = (
            g[0] * (2 * earlier[0] + part[0]),
            g[0] * earlier[1] + g[1] * earlier[0] + g[0] * part[1],
            g[1] * (2 * earlier[1] + part[1]),
        )
        self._moments[:, place] += np.stack([np.bincount(group, one) for one in added])
        last = np.append(first[1:], len(rows)) - 1
        self._sums[:, place] += running[:, last] - before_group

    def _know(self, rows: Numbers) -> None:
        """Make room for rows that have had no pair yet."""
        known = np.union1d(self._rows, rows)
        place = np.searchsorted(known, self._rows)
        sums, moments = np.zeros((2, len(known))), np.zeros((3, len(known)))
        sums[:, place], moments[:, place] = self._sums, self._moments
        self._rows, self._sums, self._moments = known, sums, moments

    def forget_before(self, row: int) -> None:
        """Rows below this number get no further pairs."""
        keep = int(np.searchsorted(self._rows, row))
        done = self._moments[:, :keep]
        self._closed += done.sum(axis=1)
        self._closed_squares += done @ done.T
        self._rows, self._sums, self._moments = self._rows[keep:], self._sums[:, keep:], self._moments[:, keep:]


class PairTally:
    """Adds up pairs as they are found, and says what they stand for.

    Example:
        >>> half = np.full(2, 0.5)
        >>> rows, held = np.array([7, 8]), np.array([1, 1])
        >>> found = SampledPairs(rows, held, half, np.ones(2), np.array([True, True]), np.array([10.0, 20.0]))
        >>> tally = PairTally()
        >>> tally.add(found)
        >>> tally.estimates().count.value, tally.estimates().average.value
        (4.0, 15.0)
    """

    def __init__(self) -> None:
        self.pairs = 0
        """Pairs that were found."""
        self._count = 0.0
        self._sum = 0.0
        self._twice = np.zeros(3)
        """Moments of pairs by themselves, as far as rows count them too often."""
        self._merged = np.zeros(3)
        self._merged_squares = np.zeros((3, 3))
        self._probing = {True: _RowMoments(), False: _RowMoments()}
        self._held = {True: _RowMoments(), False: _RowMoments()}

    @classmethod
    def of_sums(cls, pairs: int, count: float, total: float, moments: Floats, squares: Matrix) -> PairTally:
        """A tally of pairs that were added up elsewhere.

        Args:
            pairs: Pairs that were found.
            count: Sum of their weights.
            total: Sum of their weights times values.
            moments: (count, count with sum, sum) of what all rows add to the variance, less what pairs count twice.
            squares: Products of these moments with each other, summed up over rows.
        """
        tally = cls()
        tally.pairs, tally._count, tally._sum = pairs, count, total
        tally._merged, tally._merged_squares = moments, squares
        return tally

    @property
    def open_rows(self) -> int:
        """Rows for which something is held, because they may get further pairs."""
        return sum(map(len, self._row_moments()))

    def add(self, found: SampledPairs) -> None:
        """Take in further pairs; those of one probing row may come in several pieces, one after the other."""
        self.pairs += len(found.value)
        weight = 1 / (found.probe_share * found.held_share)
        g = np.stack((weight, weight * found.value))
        self._count += float(g[0].sum())
        self._sum += float(g[1].sum())
        for a_is_later in (True, False):
            chosen = np.flatnonzero(found.a_is_later == a_is_later)
            if len(chosen):
                self._add_direction(found, chosen, a_is_later, g[:, chosen])

    def _add_direction(self, found: SampledPairs, chosen: Numbers, a_is_later: bool, g: Matrix) -> None:
        probe_row, probe_share = found.probe_row[chosen], found.probe_share[chosen]
        held_row, held_share = found.held_row[chosen], found.held_share[chosen]
        self._probing[a_is_later].add(probe_row, probe_share, g)
        # Rows probe in the order of their numbers, so only the last may have further pairs.
        self._probing[a_is_later].forget_before(int(probe_row.max()))
        self._held[a_is_later].add(held_row, held_share, g)
        # A pair by itself is among those of both of its rows.
        twice = (1 - probe_share) * (1 - held_share)
        self._twice += np.array(
            [(twice * one * other).sum() for one, other in ((g[0], g[0]), (g[0], g[1]), (g[1], g[1]))]
        )

    def forget_before(self, row_a: int, row_b: int) -> None:
        """Rows of A and of B below these numbers have left their windows and get no further pairs."""
        self._held[True].forget_before(row_b)
        self._held[False].forget_before(row_a)

    def merge(self, other: PairTally) -> None:
        """Add what another tally has found on streams that share no row with these."""
        self.pairs += other.pairs
        self._count += other._count
        self._sum += other._sum
        self._merged += other._moments()
        self._merged_squares += other._squares()

    def _row_moments(self) -> list[_RowMoments]:
        return [*self._probing.values(), *self._held.values()]

    def _moments(self) -> Floats:
        total: Floats = self._merged - self._twice + sum(rows.moments for rows in self._row_moments())
        return total

    def _squares(self) -> Matrix:
        total: Matrix = self._merged_squares + sum(rows.squares for rows in self._row_moments())
        return total

    def estimates(self) -> Estimates:
        """Count, sum and average of all pairs there would have been."""
        if not self.pairs:
            unknown = Estimate(0.0, -math.inf, math.inf)
            return Estimates(Estimate(0.0, 0.0, math.inf), unknown, Estimate(math.nan, -math.inf, math.inf))
        average = self._sum / self._count
        of_average = np.array([average**2, -2 * average, 1.0]) / self._count**2
        count = self._interval(self._count, COUNT)
        # As many as were found there are at least.
        count = Estimate(count.value, max(count.low, float(self.pairs)), count.high)
        return Estimates(count, self._interval(self._sum, SUM), self._interval(average, of_average))

    def _interval(self, value: float, taken: Floats) -> Estimate:
        # The estimate of a variance is right on average and may be below nothing in a small sample.
        variance = max(0.0, float(taken @ self._moments()))
        fourth = float(taken @ self._squares() @ taken)
        reach = student_t_95(variance**2 / fourth) * math.sqrt(variance) if fourth > 0 else 0.0
        return Estimate(value, value - reach, value + reach)


def estimate(found: SampledPairs) -> Estimates:
    """Count, sum and average of all pairs, from those that were found."""
    tally = PairTally()
    tally.add(found)
    return tally.estimates()


def student_t_95(degrees: float) -> float:
    """Student's t for 95 %, by its expansion around the normal distribution; one degree is the least.

    Example:
        >>> [round(student_t_95(degrees), 2) for degrees in (5, 20, 1e9)]
        [2.57, 2.09, 1.96]
    """
    z, n = Z_95, max(1.0, degrees)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )
