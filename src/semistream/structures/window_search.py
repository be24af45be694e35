"""Binary search in the sorted codes of a tree's node."""

from __future__ import annotations

from typing import Any

from semistream.structures.compiled import helper
from semistream.structures.raw_memory import Pointer


@helper
def count_below(words: Pointer, codes: Any, count: Any, code: Any) -> Any:
    """How many of the sorted codes from a place on are less than a code."""
    first, end = 0, count
    while first < end:
        middle = (first + end) >> 1
        if words[codes + middle] < code:
            first = middle + 1
        else:
            end = middle
    return first


@helper
def count_up_to(words: Pointer, codes: Any, count: Any, code: Any) -> Any:
    """How many of the sorted codes from a place on are not greater than a code."""
    first, end = 0, count
    while first < end:
        middle = (first + end) >> 1
        if words[codes + middle] <= code:
            first = middle + 1
        else:
            end = middle
    return first
