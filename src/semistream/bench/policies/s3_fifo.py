"""S3-FIFO: three queues, and a key must be asked for again before it may stay.

Paper: Yang, Zhang, Qiu, Yue, Rashmi: FIFO queues are all you need for cache eviction, SOSP 2023, algorithm 1.

New keys enter a small queue, a tenth of the room. At its end, who was asked for more than once since it came moves to
the main queue; the others leave, and only their names stay, in the ghost queue. A key that comes while its name is
there enters the main queue at once. At the end of the main queue a key that was asked for goes round again, at the
price of one of its (at most three) uses.

Memory beside the rows: the names in the ghost queue, as many as the main queue has keys.
"""

from __future__ import annotations

from collections import OrderedDict, deque

SMALL_SHARE = 0.1
USES_MAX = 3
USES_TO_STAY = 2
"""Times a key must have been asked for in the small queue, beside the one that brought it in."""


class S3Fifo:
    """The three queues.

    Example:
        >>> cache = S3Fifo(keys_max=10)
        >>> [cache.ask(key) for key in (1, 2, 1)]
        [False, False, True]
    """

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._small_max = max(1, int(keys_max * SMALL_SHARE))
        self._ghosts_max = keys_max - self._small_max
        self._small: deque[int] = deque()
        self._main: deque[int] = deque()
        self._uses: dict[int, int] = {}
        """Of every key that is held, in either queue."""
        self._ghosts: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._uses)

    def ask(self, key: int) -> bool:
        """Return whether the key is held, and hold it."""
        if key in self._uses:
            self._uses[key] = min(USES_MAX, self._uses[key] + 1)
            return True
        while len(self._uses) >= self._keys_max:
            self._evict()
        if key in self._ghosts:
            del self._ghosts[key]
            self._main.append(key)
        else:
            self._small.append(key)
        self._uses[key] = 0
        return False

    def _evict(self) -> None:
        """Let at least one key go, or move keys from the small queue to the main one."""
        if len(self._small) >= self._small_max or not self._main:
            self._evict_small()
        else:
            self._evict_main()

    def _evict_small(self) -> None:
        while self._small:
            key = self._small.popleft()
            if self._uses[key] < USES_TO_STAY:
                del self._uses[key]
                self._remember_name(key)
                return
            self._uses[key] = 0
            self._main.append(key)

    def _evict_main(self) -> None:
        while True:
            key = self._main.popleft()
            if self._uses[key] == 0:
                del self._uses[key]
                return
            self._uses[key] -= 1
            self._main.append(key)

    def _remember_name(self, key: int) -> None:
        self._ghosts[key] = None
        if len(self._ghosts) > self._ghosts_max:
            self._ghosts.popitem(last=False)
