"""The window join by its definition: every row against every earlier row of the other side. The oracle of the tests.

x is the later row, y the earlier one of the other side, accepted(side) counts the rows of a side up to and including x,
g is the number in the sequence of both, clock(x) the greatest time up to and including x. They are a pair iff y's code
lies in x's interval, neither key is null, and y is in its window:

- rows(n):     accepted(side of y) - row(y) <= n
- arrivals(n): g(x) - g(y) <= n
- seconds(T):  clock(x) - time(y) <= T + lateness; time(x) - time(y) <= T where y is not the later in time; and
               time(y) - time(x) <= T of x's side where it is and x's side has a time window too.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.structures.window_state import BY_ARRIVAL, BY_ROW
from semistream.window.pieces import Arrivals
from semistream.window.windows import Window


@dataclass(frozen=True, slots=True)
class _Row:
    side: int
    number: int
    arrival: int
    time_us: int
    code: int
    low: int
    high: int
    valid: bool


def reference_join(
    arrivals: Arrivals, window_a: Window, window_b: Window, *, lateness_us: int = 0
) -> tuple[list[tuple[int, int, bool]], list[int]]:
    """Return all pairs as (row of A, row of B, whether A's is the later), and the rows of A without a partner.

    Quadratic, in Python's unbounded numbers.
    """
    windows = (window_a, window_b)
    sequence: list[_Row] = []
    accepted = [0, 0]
    clock_us = None
    pairs = []
    for x in _rows(arrivals):
        accepted[x.side] += 1
        clock_us = x.time_us if clock_us is None else max(clock_us, x.time_us)
        for y in sequence:
            is_match = y.side != x.side and x.valid and y.valid and x.low <= y.code <= x.high
            if is_match and _is_within(x, y, windows, accepted[y.side], clock_us, lateness_us):
                pairs.append((x.number, y.number, True) if x.side == 0 else (y.number, x.number, False))
        sequence.append(x)
    partnered = {pair[0] for pair in pairs}
    return pairs, [number for number in range(accepted[0]) if number not in partnered]


def _rows(arrivals: Arrivals) -> list[_Row]:
    numbers = [0, 0]
    rows = []
    for arrival, (side, code, low, high, valid, time_us) in enumerate(
        zip(*(column.tolist() for column in arrivals.columns()), strict=True)
    ):
        rows.append(_Row(side, numbers[side], arrival, time_us, code, low, high, valid))
        numbers[side] += 1
    return rows


def _is_within(
    x: _Row, y: _Row, windows: tuple[Window, Window], accepted: int, clock_us: int, lateness_us: int
) -> bool:
    window = windows[y.side]
    if window.kind == BY_ROW:
        return accepted - y.number <= window.span
    if window.kind == BY_ARRIVAL:
        return x.arrival - y.arrival <= window.span
    if clock_us - y.time_us > window.span + lateness_us:
        return False
    if y.time_us <= x.time_us:
        return x.time_us - y.time_us <= window.span
    return not windows[x.side].is_time or y.time_us - x.time_us <= windows[x.side].span
