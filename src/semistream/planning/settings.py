"""What an algorithm lets be chosen, and the search for the best of it.

A share of memory is tried on an even grid and refined by golden section around the best point; a number of pages is
tried on a grid that is even in the logarithm. The grid comes first because a rate has more than one peak: a cache comes
to rest at a threshold, a whole number, and each has a best share of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from semistream.planning.capacities import Room, Settings
from semistream.relations.base import Relation

SETTINGS: dict[str, tuple[str, Literal["share", "pages"]] | None] = {
    "cachejoin": ("cache_share", "share"),
    "sscj": ("cache_share", "share"),
    "pcsrj": ("cache_share", "share"),
    "optimised-x-hybridjoin": ("pinned_share", "share"),
    "x-hybridjoin": ("pinned_pages", "pages"),
    "tuned-x-hybridjoin": ("pinned_pages", "pages"),
    "hybridjoin": None,
    "meshjoin": None,
    "r-meshjoin": None,
}
"""What each algorithm lets be chosen beside the page size: its name, and whether it is a share or a number of pages.
The others find their own split."""

SHARE_MIN, SHARE_MAX = 0.05, 0.9
"""Neither table can be left without any memory."""

MODEL_POINTS = 25
"""Values of a setting that a model is asked about."""

GOLDEN = (5**0.5 - 1) / 2
GOLDEN_STEPS = 6
"""Each leaves 62 % of the interval: together a twentieth of two steps of the grid."""

RateAt = Callable[[Settings], float]
"""Rows a second with these settings; 0 where they do not fit."""


def values_of(algorithm: str, relation: Relation, room: Room, points: int) -> list[dict[str, float]]:
    """Settings to try; one without anything in it where there is nothing to choose."""
    setting = SETTINGS.get(algorithm)
    if setting is None:
        return [{}]
    name, kind = setting
    if kind == "share":
        return [{name: float(share)} for share in np.linspace(SHARE_MIN, SHARE_MAX, points)]
    info = relation.info
    most = max(1, min(info.page_count - 1, room.memory_bytes // max(1, info.page_bytes_max)))
    return [{name: int(pages)} for pages in np.unique(np.rint(np.geomspace(1, most, points)).astype(np.int64))]


def best_setting(algorithm: str, relation: Relation, room: Room, rate_at: RateAt) -> dict[str, float]:
    """The setting with the highest rate."""
    values = values_of(algorithm, relation, room, MODEL_POINTS)
    if len(values) == 1:
        return values[0]
    rates = [rate_at(settings) for settings in values]
    place = int(np.argmax(rates))
    setting = SETTINGS[algorithm]
    assert setting is not None, "an algorithm with several values has a setting"
    name, kind = setting
    if kind != "share":
        return values[place]
    low, high = (values[min(max(at, 0), len(values) - 1)][name] for at in (place - 1, place + 1))
    share, rate = _golden_section(lambda share: rate_at({name: share}), low, high)
    return {name: share} if rate > rates[place] else values[place]


def _golden_section(rate_at: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Close in on a maximum between `low` and `high`; return the last and best point with its rate."""
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = rate_at(left), rate_at(right)
    for _ in range(GOLDEN_STEPS):
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = rate_at(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = rate_at(right)
    return (left, at_left) if at_left >= at_right else (right, at_right)
