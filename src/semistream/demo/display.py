"""What the demo tells whoever watches: stages, and one look at the stream after every micro-batch.

The demo only talks; how it looks is somebody else's business. The command line draws bars on a terminal and writes
plain lines elsewhere; `Silent` is for programs and tests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StreamView:
    """The stream after a micro-batch."""

    batches: int
    batches_total: int
    rows: int
    rows_total: int
    rows_per_second: float
    """Mean since the query started."""
    hit_rate: float | None
    """Share of the lookups answered from memory so far; None before the first."""
    held_bytes: int
    """Bytes held against the budget in the latest batch."""
    budget_bytes: int


class Display(Protocol):
    """Somebody who watches. Stages never overlap: `begin`, then any number of updates, then `end`."""

    def begin(self, stage: str) -> None:
        """A stage starts."""
        ...

    def advance(self, doing: str, done: int, total: int | None, unit: str = "rows") -> None:
        """The current stage is `doing` something and has come this far; None where the end is not known."""
        ...

    def stream(self, view: StreamView) -> None:
        """A micro-batch is done."""
        ...

    def end(self, result: str) -> None:
        """The stage is over; `result` says in a few words what came of it."""
        ...


class Silent:
    """Nobody watches."""

    def begin(self, stage: str) -> None:
        """Say nothing."""

    def advance(self, doing: str, done: int, total: int | None, unit: str = "rows") -> None:
        """Say nothing."""

    def stream(self, view: StreamView) -> None:
        """Say nothing."""

    def end(self, result: str) -> None:
        """Say nothing."""


def thousands(number: float) -> str:
    """Return a whole number in groups of three, set apart by narrow spaces that do not break.

    Example:
        >>> thousands(1_000_000).split()
        ['1', '000', '000']
    """
    return f"{number:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")
