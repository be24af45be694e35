"""Windows say what they hold, and refuse to be empty."""

from __future__ import annotations

import pytest

from semistream.errors import InvalidOption
from semistream.window.windows import arrivals, rows, seconds


def test_windows_print_as_they_are_written() -> None:
    assert [str(window) for window in (rows(5000), seconds(10), seconds(0.5), arrivals(7))] == [
        "rows(5000)",
        "seconds(10)",
        "seconds(0.5)",
        "arrivals(7)",
    ]


def test_only_windows_that_count_know_their_most_rows() -> None:
    assert rows(10).rows_max == 10
    assert arrivals(10).rows_max == 11, "a row and the ten before it"
    assert seconds(10).rows_max is None


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "7", None, 2**63])
def test_a_window_of_no_rows_is_refused(count: object) -> None:
    for window in (rows, arrivals):
        with pytest.raises(InvalidOption, match=r"positive length; given: (rows|arrivals)\("):
            window(count)  # type: ignore[arg-type]


@pytest.mark.parametrize("length_s", [0, -1, 1e-9, float("nan"), float("inf"), True, "10", None, 1e300])
def test_a_window_of_no_time_is_refused(length_s: object) -> None:
    with pytest.raises(InvalidOption, match=r"positive length; given: seconds\("):
        seconds(length_s)  # type: ignore[arg-type]
