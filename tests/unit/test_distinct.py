"""Distinct codes against `np.unique`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.structures.distinct import distinct
from semistream.structures.hash_multimap import home_slot

INT64 = np.iinfo(np.int64)
CODES = st.lists(
    st.one_of(st.integers(-3, 3), st.integers(INT64.min, INT64.max), st.sampled_from([INT64.min, INT64.max])),
    max_size=60,
)


def check_like_numpy(codes: npt.NDArray[np.int64]) -> None:
    unique, inverse = distinct(codes)
    expected_unique, expected_inverse = np.unique(codes, return_inverse=True)
    assert unique.dtype == inverse.dtype == np.int64
    np.testing.assert_array_equal(unique, expected_unique)
    np.testing.assert_array_equal(inverse, expected_inverse)


@given(CODES)
def test_any_codes_give_what_numpy_gives(codes: list[int]) -> None:
    check_like_numpy(np.array(codes, dtype=np.int64))


@pytest.mark.parametrize("count", [1, 2, 1_000, 20_000])
@pytest.mark.parametrize("exponent", [1.1, 2.0])
def test_skewed_codes_give_what_numpy_gives(count: int, exponent: float) -> None:
    rng = np.random.default_rng([count, int(10 * exponent)])
    check_like_numpy(np.minimum(rng.zipf(exponent, count), 10**15) - 1)


@pytest.mark.parametrize("step", [0, 1, -1, 2**40])
def test_equal_sorted_and_spaced_codes_give_what_numpy_gives(step: int) -> None:
    check_like_numpy(np.arange(5_000) * step)


def test_codes_that_meet_in_one_slot_give_what_numpy_gives() -> None:
    slots = 64
    colliding = [code for code in range(5_000) if home_slot(code, slots - 1) == slots - 1][:44]
    check_like_numpy(np.array(colliding[::-1], dtype=np.int64))


def test_read_only_codes_are_accepted() -> None:
    codes = np.array([5, 3, 5])
    codes.flags.writeable = False
    check_like_numpy(codes)
