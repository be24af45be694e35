"""Shares of pages, against shares that are added up key by key."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.cost.pages import SINGLE_PAGES, distinct_expected, page_shares, without_first_keys
from semistream.cost.zipf import Popularity


def key_shares(keys: int, exponent: float) -> np.ndarray:
    weights = np.arange(1, keys + 1) ** -exponent
    return weights / weights.sum()


@pytest.mark.parametrize("exponent", (0.0, 0.8, 1.2))
@pytest.mark.parametrize("cached", (0, 37, 250))
def test_pages_in_order_of_popularity_have_the_shares_of_their_keys(exponent: float, cached: int) -> None:
    shares = key_shares(1005, exponent)
    shares[:cached] = 0
    expected = np.add.reduceat(shares, np.arange(0, 1005, 100)) / shares.sum()
    found = page_shares(Popularity(1005, exponent), "frequency", 100, cached)
    np.testing.assert_allclose(found.share, np.sort(expected[expected > 0])[::-1], rtol=1e-9)


@pytest.mark.parametrize("layout", ("frequency", "shuffled"))
@pytest.mark.parametrize("keys", (100, 50_000, 3_000_000))
def test_shares_of_all_pages_sum_to_one_and_no_page_is_lost(layout: str, keys: int) -> None:
    found = page_shares(Popularity(keys, 1.0), layout, 7)  # type: ignore[arg-type]
    assert float((found.share * found.count).sum()) == pytest.approx(1.0)
    assert found.pages == pytest.approx(np.ceil(keys / 7))
    assert bool((np.diff(found.share) <= 1e-18).all()), "hottest first"
    assert len(found.share) < 4 * SINGLE_PAGES


def test_a_uniform_stream_does_not_see_the_order_of_r() -> None:
    ordered = page_shares(Popularity(3_000_000, 0.0), "frequency", 500)
    shuffled = page_shares(Popularity(3_000_000, 0.0), "shuffled", 500)
    assert ordered.share.max() == pytest.approx(500 / 3e6)
    assert shuffled.share.max() == pytest.approx(500 / 3e6, rel=0.01)


def test_a_shuffled_relation_spreads_the_hot_keys() -> None:
    ordered = page_shares(Popularity(200_000, 1.0), "frequency", 500)
    shuffled = page_shares(Popularity(200_000, 1.0), "shuffled", 500)
    assert ordered.share[0] > 0.5
    hottest_key = Popularity(200_000, 1.0).share_of_rank(1)
    assert hottest_key < shuffled.share[0] < 2 * hottest_key


def test_first_pages_are_the_hottest_only_in_order_of_popularity() -> None:
    popularity = Popularity(10_000, 1.0)
    assert without_first_keys(popularity, "frequency", 100, 500)[0] == pytest.approx(popularity.share_of_hottest(500))
    share, rest = without_first_keys(popularity, "shuffled", 100, 500)
    assert share == pytest.approx(0.05)
    assert rest.pages == 95


def test_a_part_of_a_page_is_a_part_of_its_share() -> None:
    uniform = Popularity(10_000, 0.0)
    share, rest = without_first_keys(uniform, "shuffled", 100, 530)
    assert share == pytest.approx(0.053)
    assert rest.pages == 95
    assert rest.share.min() == pytest.approx(0.7 * rest.share.max())


@pytest.mark.parametrize("exponent", (0.0, 0.5, 1.0, 1.2))
def test_the_expected_number_of_distinct_keys_is_the_mean_of_many_draws(exponent: float) -> None:
    rng = np.random.default_rng(7)
    shares = key_shares(5000, exponent)
    drawn = [len(np.unique(rng.choice(5000, size=800, p=shares))) for _ in range(40)]
    expected = distinct_expected(page_shares(Popularity(5000, exponent), "frequency", 1.0), 800)
    assert expected == pytest.approx(np.mean(drawn), rel=0.02)
