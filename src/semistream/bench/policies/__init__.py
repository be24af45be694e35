"""Cache policies of others, as simulators: what would be hit and what would be held, key by key.

A policy is asked for one key after the other and says whether it held it; a key that it did not hold is read and may be
let in. Rows all have one size here, so room is a number of keys. They are written for `bench cache`, which runs them
over some hundred thousand keys, and to be read beside the papers; they are not fast.
"""

from __future__ import annotations

from typing import Protocol


class Policy(Protocol):
    """A cache for a fixed number of keys."""

    def ask(self, key: int) -> bool:
        """Return whether the key is held; afterwards it may be, whatever the answer."""
        ...

    def __len__(self) -> int:
        """How many keys are held."""
        ...
