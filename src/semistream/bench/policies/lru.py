"""LRU: the key that was not asked for longest makes room."""

from __future__ import annotations

from collections import OrderedDict


class Lru:
    """Keys in the order in which they were last asked for.

    Example:
        >>> cache = Lru(keys_max=2)
        >>> [cache.ask(key) for key in (1, 2, 1, 3, 2)]
        [False, False, True, False, False]
    """

    def __init__(self, keys_max: int) -> None:
        self._keys_max = keys_max
        self._keys: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._keys)

    def ask(self, key: int) -> bool:
        """Return whether the key is held, and hold it."""
        if key in self._keys:
            self._keys.move_to_end(key)
            return True
        self._keys[key] = None
        if len(self._keys) > self._keys_max:
            self._keys.popitem(last=False)
        return False
