"""SSCJ: CACHEJOIN with a frequency recorder, which finds the least frequent rows when the cache is full.

Paper: Naeem, Weber, Dobbie, Lutteroth. SSCJ: a semi-stream cache join using a front-stage cache module. DaWaK 2013.
Reads:     the page of the oldest waiting key.
Remembers: keys for which at least `threshold` rows waited, the least frequent replaced first.
Waits:     only rows whose key is not remembered.

Assumes an index on R.

Memory: CACHEJOIN's, and 8·h_R for the recorder; here the counters of the cache, four bytes a key.

Deviates: what CACHEJOIN deviates in. Room is made for all newcomers of a page together: of the sixteenth that is used
least, those go that were used less than rows waited for the most frequent newcomer, and newcomers come in in the order
of the page. So a neighbour of a frequent key can take the place of one that was used more. Of keys with equally few
uses not the oldest go but some of all ages, or every key would go at the first pause of its uses once it is old. Uses
are halved after every round of R, so that the recorder follows a stream that changes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from semistream.joins.base import Numbers
from semistream.joins.cachejoin import CacheJoin


class SemiStreamCacheJoin(CacheJoin):
    """SSCJ: the least frequent of the cache makes room."""

    def _staying(self, frequency: Numbers) -> npt.NDArray[np.bool_]:
        uses, leaving = self.held.uses, self._leaving
        if leaving == 0:
            return np.ones(0, np.bool_)
        limit = min(int(np.partition(uses, leaving - 1)[leaving - 1]), int(frequency.max()) - 1)
        stays = uses >= limit
        at_limit = np.flatnonzero(uses == limit)
        stays[self._spread(at_limit, min(len(at_limit), leaving - int(np.count_nonzero(~stays))))] = False
        return stays

    def _end_iteration(self) -> None:
        if self.stats.iterations % self._round_iterations == 0:
            self.held.uses[:] >>= 1
        super()._end_iteration()
