"""When keys come in; what follows for a cache stands beside the operators in `test_models_at_rest`."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from semistream.cost import cachejoin
from semistream.cost.base import Sizes, Workload
from semistream.cost.letting_in import RoomMaking, rows_per_let_through, rows_until_let_in, share_with_some
from semistream.cost.pages import Layout

WORKLOAD = Workload(r_rows=50_000, zipf_exponent=1.0, layout="shuffled")
SIZES = Sizes(h_s_rows=2000, page_rows=100, h_r_rows=1000)

DRAWS = 200_000


@pytest.mark.parametrize(("exponent", "popular_out"), [(1.5, 1 / 16), (1.5, 0.3), (1.0, 1 / 16), (0.5, 0.5)])
def test_rows_for_one_let_through_are_those_of_keys_that_are_out_by_chance(exponent: float, popular_out: float) -> None:
    """Beside draws of who is out, with groups of keys at the cold end."""
    seed = 17
    rng = np.random.default_rng(seed)
    count = np.concatenate([np.ones(40), np.full(20, 100.0)])
    rank = np.cumsum(count) - (count - 1.0) / 2.0
    share = rank**-exponent / (count * rank**-exponent).sum()
    out = np.linspace(popular_out, 0.9, len(count))
    is_out = rng.binomial(count.astype(np.int64), out, size=(DRAWS, len(count)))
    told = rows_per_let_through(count, share, out)
    for key in (0, 1, 5, 39):
        others = is_out.copy()
        others[:, key] = 1
        drawn = (1.0 / (others @ share)).mean()
        assert told[key] == pytest.approx(drawn, rel=0.01), f"key {key}, seed {seed}"


def test_a_key_that_goes_with_others_comes_back_after_fewer_rows() -> None:
    loop = cachejoin.learned(replace(WORKLOAD, zipf_exponent=1.5, layout="frequency"), SIZES)
    alone, together = (rows_until_let_in(loop, 1, RoomMaking(60, share)) for share in (0.0, 1 / 16))
    assert np.all(together <= alone)
    assert together[0] < 0.95 * alone[0]


@pytest.mark.parametrize("layout", ("frequency", "shuffled"))
@pytest.mark.parametrize("a_read", (0.01, 0.7, 20.0))
def test_where_pages_are_alike_a_read_lets_keys_in_as_often_as_a_poisson_number_is_not_0(
    layout: Layout, a_read: float
) -> None:
    loop = cachejoin.learned(replace(WORKLOAD, layout=layout), SIZES)
    coming = loop.count * a_read / loop.keys_per_page
    assert share_with_some(loop, coming, np.ones_like(coming)) == pytest.approx(-math.expm1(-a_read))


def test_where_only_the_first_page_lets_keys_in_only_its_reads_count() -> None:
    loop = cachejoin.learned(replace(WORKLOAD, layout="frequency"), SIZES)
    assert loop.page is not None
    is_first = loop.page == 0
    reads = np.where(is_first, 30.0, 1.0)
    share = share_with_some(loop, np.where(is_first, 1e6, 0.0), reads)
    assert share == pytest.approx(30.0 / (30.0 + loop.pages - 1), rel=0.01)
