"""When rows come: in bursts, because real streams are never even.

A stream is cut into bursts of log-normal size: most are near the middle, some are several times larger. The sizes
always add up to exactly the rows that were asked for, so that whoever counts at the far end can demand equality.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.errors import InvalidOption

BURST_SPREAD = 0.7
"""Standard deviation of the logarithm of a burst: one burst in forty is four times the median."""


def burst_sizes(
    rng: np.random.Generator, rows: int, bursts: int, spread: float = BURST_SPREAD
) -> npt.NDArray[np.int64]:
    """Return the rows of each burst; they add up to `rows`, and no burst is empty.

    With fewer rows than bursts there are as many bursts as rows. A spread of 0 makes all bursts equal, give or take
    a row.

    Example:
        >>> sizes = burst_sizes(np.random.default_rng(7), rows=1000, bursts=8)
        >>> len(sizes), int(sizes.sum())
        (8, 1000)
    """
    if rows < 0:
        raise InvalidOption("a stream cannot have fewer than no rows", given=str(rows), allowed="0 or more")
    if bursts < 1:
        raise InvalidOption("a stream needs at least one burst", given=str(bursts), allowed="1 or more")
    bursts = min(bursts, rows)
    if bursts == 0:
        return np.zeros(0, dtype=np.int64)
    weights = rng.lognormal(mean=0.0, sigma=spread, size=bursts)
    # One row each, and the rest by weight: rounding the running sum instead of each share keeps the total exact.
    ends = np.rint(np.cumsum(weights) / weights.sum() * (rows - bursts)).astype(np.int64)
    sizes: npt.NDArray[np.int64] = np.diff(ends, prepend=np.int64(0)) + 1
    assert int(sizes.sum()) == rows, "rounding lost or added a row"
    return sizes
