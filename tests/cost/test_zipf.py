"""Zipf sums, against plain sums and against shares that are known."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.cost.zipf import Popularity, partial_sum
from semistream.errors import InvalidOption

EXPONENTS = (0.0, 0.25, 0.5, 0.99, 1.0, 1.01, 1.2, 2.0)


@pytest.mark.parametrize("exponent", EXPONENTS)
@pytest.mark.parametrize("offset", (0.5, 1.0, 1 / 3))
def test_sums_are_those_of_adding_term_by_term(exponent: float, offset: float) -> None:
    plain = np.cumsum((np.arange(50_000) + offset) ** -exponent)
    ranks = np.array([1, 2, 63, 64, 65, 66, 1000, 50_000])
    np.testing.assert_allclose(partial_sum(ranks, exponent, offset), plain[ranks - 1], rtol=1e-12)


def test_a_hundred_million_terms_are_the_logarithm_and_eulers_constant() -> None:
    assert float(partial_sum(100_000_000, 1.0)) == pytest.approx(np.log(1e8) + np.euler_gamma + 0.5e-8, rel=1e-14)


@pytest.mark.parametrize("exponent", EXPONENTS)
def test_the_shares_of_all_keys_are_one(exponent: float) -> None:
    popularity = Popularity(1234, exponent)
    assert popularity.share_of_hottest(1234) == pytest.approx(1.0)
    assert popularity.share_of_hottest(9999) == pytest.approx(1.0)
    assert popularity.share_of_hottest(0) == 0.0
    assert sum(popularity.share_of_rank(rank) for rank in range(1, 1235, 7)) == pytest.approx(
        float(np.diff(popularity.cumulative(np.arange(1235)))[::7].sum())
    )


def test_uniform_shares_are_proportional() -> None:
    assert Popularity(1000, 0.0).share_of_hottest(250) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("cached", "keys", "share"),
    [
        (2_500, 1_000_000, 0.566),
        (2_500, 2_000_000, 0.539),
        (2_500, 4_000_000, 0.515),
        (2_500, 8_000_000, 0.492),
        (2_500, 100_000_000, 0.425),
        (100_000, 100_000_000, 0.625),
        (1_000_000, 100_000_000, 0.75),
    ],
)
def test_the_authors_generator_gives_a_cache_its_known_hit_share(cached: int, keys: int, share: float) -> None:
    popularity = Popularity(keys, 1.0, generator="integral")
    assert popularity.share_of_hottest(cached) == pytest.approx(share, abs=0.0006)
    assert popularity.share_of_hottest(cached) == pytest.approx(np.log(cached + 1) / np.log(keys))


def test_the_authors_generator_is_less_skewed_than_zipf() -> None:
    assert Popularity(2_000_000, 1.0).share_of_rank(1) == pytest.approx(0.066, abs=0.0005)
    assert Popularity(2_000_000, 1.0, generator="integral").share_of_rank(1) == pytest.approx(0.048, abs=0.0005)
    assert Popularity(2_000_000, 1.0, generator="integral").share_of_rank(2_000_000) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"keys": 0, "exponent": 1.0},
        {"keys": 10, "exponent": -0.1},
        {"keys": 10, "exponent": float("nan")},
        {"keys": 10, "exponent": 1.0, "offset": 0.0},
        {"keys": 10, "exponent": 1.0, "generator": "integer"},
        {"keys": 10, "exponent": 1.0, "offset": 0.5, "generator": "integral"},
    ],
)
def test_an_impossible_popularity_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        Popularity(**wrong)  # type: ignore[arg-type]
