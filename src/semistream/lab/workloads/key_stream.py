"""Which keys a stream asks for: skew, where the popular keys lie in the relation, and whether they stay popular.

Three choices make a stream of keys. A `RankSampler` says how skewed it is. The order says where a rank lies: in
"frequency" order the key is the rank, so the popular rows stand side by side at the start of the relation, as in the
papers' synthetic data and as some of their algorithms assume; "shuffled" strews them over all pages. A `Drift` moves
the popularity on after a number of rows, so that what was worth remembering no longer is.

A stream holds no position of its own: `keys` is told the number of its first row, and with it knows how far popularity
has drifted. So a stream can be read from the middle, and batches may end anywhere within a period.

Memory: that of the sampler and of `Shuffle`; nothing that grows with the population.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidOption, check_choice
from semistream.lab.workloads.zipf import RankSampler, Shuffle

Integers = npt.NDArray[np.int64]

KeyOrder = Literal["frequency", "shuffled"]
"""Where popular keys lie: side by side from key 0 on, or strewn over the relation."""


@dataclass(frozen=True, slots=True)
class Drift:
    """How popularity moves on.

    Example:
        >>> Drift(every_rows=100_000, slide_keys=50).slide_keys
        50
    """

    every_rows: int
    """Rows after which the popular keys change."""
    slide_keys: int | None = None
    """Keys by which the order of popularity turns: each key inherits the rank of the one this many places before it,
    so a small step leaves most of a large hot set in place. None deals all ranks anew: nothing stays."""

    def __post_init__(self) -> None:
        if self.every_rows < 1:
            raise InvalidOption("popularity drifts after at least one row", given=str(self.every_rows), allowed="> 0")


def key_order(order: KeyOrder, population: int, seed: int) -> Callable[[Integers], Integers]:
    """Return the function from ranks to keys; stream and relation agree if they use the same order and seed.

    Example:
        >>> key_order("frequency", 10, seed=1)(np.array([0, 9])).tolist()
        [0, 9]
    """
    check_choice("order", order, get_args(KeyOrder))
    return Shuffle(population, seed) if order == "shuffled" else _rank_is_key


def _rank_is_key(ranks: Integers) -> Integers:
    return ranks


class KeyStream:
    """Draw the keys of a stream.

    Example:
        >>> from semistream.lab.workloads.zipf import Zipf
        >>> stream = KeyStream(Zipf(1000, 1.0), "shuffled", seed=7, drift=Drift(every_rows=500))
        >>> keys = stream.keys(np.random.default_rng(7), first_row=0, count=2000)
        >>> len(keys), bool(keys.max() < 1000)
        (2000, True)
    """

    def __init__(
        self, ranks: RankSampler, order: KeyOrder = "frequency", seed: int = 0, drift: Drift | None = None
    ) -> None:
        self.population = ranks.population
        self._ranks = ranks
        self._key_of = key_order(order, ranks.population, seed)
        self._seed = seed
        self._drift = drift

    def keys(self, rng: np.random.Generator, first_row: int, count: int) -> Integers:
        """Return the keys of the rows `first_row` to `first_row + count - 1`, each between 0 and population - 1."""
        ranks = self._ranks.sample(rng, count)
        if self._drift is None:
            return self._key_of(ranks)
        if self._drift.slide_keys is not None:
            period = np.arange(first_row, first_row + count, dtype=np.int64) // self._drift.every_rows
            return self._key_of((ranks + period * self._drift.slide_keys) % self.population)
        return self._key_of(self._dealt_anew(ranks, first_row, self._drift.every_rows))

    def _dealt_anew(self, ranks: Integers, first_row: int, every_rows: int) -> Integers:
        dealt = ranks.copy()
        row_end = first_row + len(ranks)
        # The first period keeps the plain order, so that a stream without and with drift begin alike.
        for period in range(max(first_row // every_rows, 1), -(-row_end // every_rows)):
            start = max(period * every_rows - first_row, 0)
            part = slice(start, (period + 1) * every_rows - first_row)
            dealt[part] = Shuffle(self.population, self._seed + period)(ranks[part])
        return dealt
