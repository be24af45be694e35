"""What a window is: how far back a row is still in it, by rows, by arrivals of both streams, or by time.

`rows(n)` holds the last n rows of its own stream, `seconds(t)` the rows of the last t seconds, and `arrivals(n)` the
rows that are at most n arrivals of both streams back. Everything is inclusive. A row's *mark* is what its window
measures it by: its number on its side, its number in the sequence of both streams, or its time in microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from semistream.errors import InvalidOption
from semistream.structures.window_state import BY_ARRIVAL, BY_ROW, BY_TIME

MICROSECONDS = 1_000_000
SPAN_MAX = 2**62
"""Longer windows would not leave room to add a lateness."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window of one side; made by `rows`, `seconds` or `arrivals`."""

    kind: int
    """`BY_ROW`, `BY_ARRIVAL` or `BY_TIME`: what the mark of a row is."""
    span: int
    """Rows, arrivals or microseconds."""

    @property
    def is_time(self) -> bool:
        """Whether rows are measured by their time."""
        return self.kind == BY_TIME

    @property
    def rows_max(self) -> int | None:
        """The most rows it can hold, where that is known beforehand."""
        return {BY_ROW: self.span, BY_ARRIVAL: self.span + 1}.get(self.kind)

    def __str__(self) -> str:
        if self.kind == BY_TIME:
            return f"seconds({self.span / MICROSECONDS:g})"
        return f"{'rows' if self.kind == BY_ROW else 'arrivals'}({self.span})"


def rows(count: int) -> Window:
    """The last `count` rows of the stream.

    Example:
        >>> print(rows(5000))
        rows(5000)
    """
    return Window(BY_ROW, _counted("rows", count))


def arrivals(count: int) -> Window:
    """Rows of the stream that are at most `count` arrivals of both streams back."""
    return Window(BY_ARRIVAL, _counted("arrivals", count))


def seconds(length_s: float) -> Window:
    """Rows of the stream of the last `length_s` seconds, to a microsecond."""
    span_us = _microseconds(length_s)
    if not 1 <= span_us <= SPAN_MAX:
        raise InvalidOption(
            "a window must have a positive length",
            given=f"seconds({length_s!r})",
            allowed="a number of seconds of at least a microsecond, such as seconds(10) or seconds(0.5)",
        )
    return Window(BY_TIME, span_us)


def _microseconds(length_s: object) -> int:
    """The length in microseconds; 0 for what is no length."""
    if not isinstance(length_s, int | float) or isinstance(length_s, bool) or not math.isfinite(length_s):
        return 0
    return round(length_s * MICROSECONDS)


def _counted(name: str, count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= SPAN_MAX:
        raise InvalidOption(
            "a window must have a positive length",
            given=f"{name}({count!r})",
            allowed=f"a whole number of at least 1, such as {name}(5000)",
        )
    return count
