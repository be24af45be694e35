"""The cache inequality: keep a key's rows of R in memory if they are smaller than the stream rows that would wait.

Stated for SSBJ and again for MOIJ. A key j with m rows in R, of which n stream rows would wait at a time, needs m v_R
bytes in H_R or n v_S bytes in H_S. Choosing the smaller for every key (`is_cached`) makes the memory of both tables
together the least possible,

    sum over j of min(m_j v_R, n_j v_S)                            (Theorem 1; `least_bytes`)

and the rule is m_j v_R < n_j v_S (Theorem 2). v_S is here all that a waiting row costs, with its queue node: the papers
leave the node out as "a constant factor", which it is; set it to 0 bytes to have their rule to the letter.

`settled_cache` finds where the rule ends when memory is given and what the cache takes is missing to H_S. By Little's
law a row waits, on average, while h_S others are admitted; behind a cache with hit share p that is h_S / (1 - p) stream
rows. So n_j = (share of j) h_S / (1 - p), and the least popular cached key is the one for which

    (share of j) h_S v_S / (1 - p) = m v_R

In SSBJ every row waits exactly that long. In MOIJ the mean is the same, but the rows that are *found when a page is
read* are up to twice n_j, because its oldest row has just had its turn. A rule that counts at reads and is never
corrected caches keys that are up to twice too cold. At exponent 1 the excess is about 0.3 / (1 + ln(N / cached keys))
of the least memory, by the integral over those keys.

| symbol | name here                   | unit      | meaning                                                   |
|--------|-----------------------------|-----------|-----------------------------------------------------------|
| m_j    | `matches`                   | rows      | rows of R with key j                                      |
| n_j    | `waiting`                   | rows      | stream rows with key j expected over the queue's length   |
| h_S    | `waiting_rows`              | rows      | what is left for waiting rows                             |
| h_R    | `cached_keys * rows_per_key`| rows      | what the cache settles on                                 |
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.cost.base import Sizes, Workload
from semistream.cost.zipf import Floats

SCAN_POINTS = 16
"""Cache sizes tried to bracket the border, evenly in the logarithm, before the bracket is halved."""

HALVINGS = 30
"""Of the bracket: leaves the size of the cache exact far beyond what the rule means."""


def is_cached(
    matches: npt.ArrayLike, waiting: npt.ArrayLike, v_r_bytes: float, v_s_bytes: float
) -> npt.NDArray[np.bool_]:
    """Theorem 2, key by key. A tie stays where it is: on the disk side."""
    smaller: npt.NDArray[np.bool_] = np.asarray(matches) * v_r_bytes < np.asarray(waiting) * v_s_bytes
    return smaller


def least_bytes(matches: npt.ArrayLike, waiting: npt.ArrayLike, v_r_bytes: float, v_s_bytes: float) -> float:
    """Theorem 1: bytes of H_R and H_S under the best placement of every key, by looking at each."""
    in_cache: Floats = np.asarray(matches, dtype=np.float64) * v_r_bytes
    on_disk: Floats = np.asarray(waiting, dtype=np.float64) * v_s_bytes
    return float(np.minimum(in_cache, on_disk).sum())


def waiting_rows_beside(workload: Workload, sizes: Sizes, cached_keys: float) -> float:
    """Rows that may wait when so many keys are cached, at least one; `h_s_rows` is what may wait without a cache."""
    per_key_bytes = workload.rows_per_key * workload.v_r_bytes
    taken_rows = cached_keys * per_key_bytes / sizes.waiting_row_bytes(workload)
    return max(1.0, sizes.h_s_rows - taken_rows)


def settled_cache(workload: Workload, sizes: Sizes) -> float:
    """How many keys the inequality keeps in the cache: the hottest ones, down to where it turns."""
    popularity = workload.popularity
    per_key_bytes = workload.rows_per_key * workload.v_r_bytes
    row_bytes = sizes.waiting_row_bytes(workload)

    def gain_bytes(cached_keys: float) -> float:
        """What the least popular cached key saves; negative where it should not be cached."""
        waiting_rows = waiting_rows_beside(workload, sizes, cached_keys)
        stream_rows = waiting_rows / (1.0 - popularity.share_of_hottest(cached_keys))
        return popularity.share_of_rank(cached_keys) * stream_rows * row_bytes - per_key_bytes

    most = min(popularity.keys - 1.0, sizes.h_s_rows * row_bytes / per_key_bytes)
    if most < 1.0 or gain_bytes(1.0) <= 0:
        return 0.0
    low, high = 1.0, most
    for cached_keys in np.geomspace(1.0, most, SCAN_POINTS)[1:]:
        if gain_bytes(float(cached_keys)) <= 0:
            high = float(cached_keys)
            break
        low = float(cached_keys)
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if gain_bytes(middle) > 0:
            low = middle
        else:
            high = middle
    return low
