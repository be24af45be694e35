"""The papers' equations and numbers, and what all models must agree on."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from semistream.cost import adaptive, cachejoin, hybridjoin, inlj, meshjoin, moij, pcsrj, r_meshjoin, sscj, x_hybridjoin
from semistream.cost.base import Sizes, Workload, h_s_rows_within
from semistream.cost.models import MODELS, model_of
from semistream.cost.symbols import Counts, IoProfile, UnitCosts, seconds
from semistream.cost.zipf import Popularity, partial_sum
from semistream.errors import BudgetExceeded, InvalidOption
from semistream.joins import cachejoin as operator

# All different, so that an operation at the wrong price shows.
COSTS = UnitCosts(1e-7, 2e-7, 3e-7, 4e-7, 5e-7, 6e-7, 7e-7, 8e-7, IoProfile(seek_s=0.01, bytes_per_s=1e8, call_s=1e-3))
WORKLOAD = Workload(r_rows=200_000, zipf_exponent=1.0)
SIZES = Sizes(h_s_rows=20_000, page_rows=500, h_r_rows=2_500, rows_per_step=10_000)


@pytest.mark.parametrize("algorithm", MODELS)
@pytest.mark.parametrize("layout", ("frequency", "shuffled"))
@pytest.mark.parametrize("rows_per_key", (1.0, 4.0))
def test_every_model_balances(algorithm: str, layout: str, rows_per_key: float) -> None:
    workload = replace(WORKLOAD, layout=layout, rows_per_key=rows_per_key)
    prediction = model_of(algorithm).predict(workload, SIZES, COSTS)
    counts = prediction.counts
    stream_rows = prediction.w_n + prediction.w_s
    assert counts.stream_reads == pytest.approx(stream_rows)
    assert counts.outputs == pytest.approx(stream_rows * rows_per_key)
    assert counts.appends == pytest.approx(counts.deletions), "what enters H_S leaves it"
    assert 0 <= prediction.hit_share < 1
    assert prediction.memory_bytes == pytest.approx(model_of(algorithm).memory_bytes(workload, SIZES))
    assert prediction.mu_rows_per_s == pytest.approx(stream_rows / prediction.seconds_per_iteration)
    assert prediction.keeps_up(prediction.mu_rows_per_s * 0.99)
    assert not prediction.keeps_up(prediction.mu_rows_per_s * 1.01)
    if algorithm != "pcsrj":  # whose nodes work at the same time
        assert prediction.seconds_per_iteration == pytest.approx(seconds(counts, COSTS))


@pytest.mark.parametrize("algorithm", sorted(set(MODELS) - {"inlj", "adaptive"}))
def test_the_memory_equation_can_be_solved_for_h_s(algorithm: str) -> None:
    model = model_of(algorithm)
    h_s_rows = h_s_rows_within(model, WORKLOAD, SIZES, 5_000_000)
    memory = model.memory_bytes(WORKLOAD, replace(SIZES, h_s_rows=h_s_rows))
    assert sum(memory.values()) == pytest.approx(5_000_000)


def test_an_unknown_algorithm_gets_the_nearest_name() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'hybridjoin'"):
        model_of("hibridjoin")


@pytest.mark.parametrize(
    "wrong", [{"r_rows": 0}, {"rows_per_key": 0.5}, {"layout": "sorted"}, {"v_r_bytes": -1.0}, {"zipf_exponent": -1.0}]
)
def test_an_impossible_workload_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        _ = replace(WORKLOAD, **wrong).popularity  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"h_s_rows": 0}, {"page_rows": 0}, {"h_r_rows": -1}, {"queue_node_bytes": -1}])
def test_impossible_sizes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidOption):
        replace(SIZES, **wrong)  # type: ignore[arg-type]


def test_a_loop_costs_the_sum_of_its_operations() -> None:
    counts = Counts(1, 1, 60_000, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    assert seconds(counts, COSTS) == pytest.approx(0.01 + 0.001 + 60_000 / 1e8 + 36e-7)
    assert seconds(counts.times(3), COSTS) == pytest.approx(3 * seconds(counts, COSTS))


# MESHJOIN


def test_meshjoin_reproduces_the_prototypes_queue() -> None:
    workload, sizes = Workload(2_000_000), Sizes(h_s_rows=1_595_550, page_rows=6069)
    assert meshjoin.cells(workload, sizes) == 330
    assert meshjoin.predict(workload, sizes, COSTS).w_s == pytest.approx(4835)


@pytest.mark.parametrize("exponent", (0.0, 1.0))
def test_meshjoin_is_as_printed_and_one_seek_a_round_whatever_the_skew(exponent: float) -> None:
    workload, sizes = Workload(200_000, exponent), Sizes(h_s_rows=20_000, page_rows=1000)
    prediction = meshjoin.predict(workload, sizes, COSTS)
    printed = meshjoin.c_loop_s(COSTS, 120, b=1000, w=100, sigma=100 / 1000)
    assert prediction.seconds_per_iteration == pytest.approx(printed + COSTS.io.seek_s / 200)
    assert prediction.memory_total_bytes == 1000 * 120 + 100 * 20 + 20_000 * (12 + 20)


def test_meshjoins_rate_falls_with_the_size_of_r() -> None:
    small, large = (meshjoin.tuned(Workload(rows), Sizes(), COSTS, 50e6)[1] for rows in (1_000_000, 8_000_000))
    assert small.mu_rows_per_s > 3 * large.mu_rows_per_s


def test_tuned_meshjoin_beats_other_buffers_in_the_same_memory() -> None:
    best_sizes, best = meshjoin.tuned(WORKLOAD, Sizes(), COSTS, 5e6)
    assert best.memory_total_bytes == pytest.approx(5e6)
    for factor in (0.3, 3.0):
        other = replace(best_sizes, page_rows=max(1, int(best_sizes.page_rows * factor)))
        other = replace(other, h_s_rows=h_s_rows_within(meshjoin, WORKLOAD, other, 5e6))
        assert meshjoin.predict(WORKLOAD, other, COSTS).mu_rows_per_s < best.mu_rows_per_s


def test_the_least_memory_for_a_rate_gives_just_that_rate() -> None:
    _, fast = meshjoin.tuned(WORKLOAD, Sizes(), COSTS, 5e6)
    _, least = meshjoin.least_memory(WORKLOAD, Sizes(), COSTS, fast.mu_rows_per_s)
    assert least.mu_rows_per_s == pytest.approx(fast.mu_rows_per_s)
    assert least.memory_total_bytes <= 5e6 * 1.001


def test_what_no_meshjoin_can_do_is_refused() -> None:
    with pytest.raises(BudgetExceeded):
        meshjoin.tuned(Workload(100_000_000), Sizes(), COSTS, 1000)
    with pytest.raises(InvalidOption, match="no memory makes the join as fast"):
        meshjoin.least_memory(WORKLOAD, Sizes(), COSTS, 1e9)


def test_r_meshjoin_with_one_segment_is_meshjoin() -> None:
    assert r_meshjoin.predict(WORKLOAD, SIZES, COSTS) == meshjoin.predict(WORKLOAD, SIZES, COSTS)
    parted = r_meshjoin.predict(WORKLOAD, replace(SIZES, segments=5), COSTS)
    assert parted.w_s == pytest.approx(meshjoin.predict(WORKLOAD, SIZES, COSTS).w_s / 5)
    assert parted.counts.pages_read == 1 / 5


# HYBRIDJOIN and its heirs


def test_hybridjoin_is_as_printed_once_w_is_known() -> None:
    prediction = hybridjoin.predict(WORKLOAD, SIZES, COSTS)
    assert prediction.seconds_per_iteration == pytest.approx(hybridjoin.c_loop_s(COSTS, 120, b=500, w=prediction.w_s))
    assert prediction.memory_bytes == {"disk buffer": 60_000, "H_S": 400_000, "queue": 240_000}
    assert SIZES.alpha(WORKLOAD) == 20 / 32


@pytest.mark.parametrize(("memory_mb", "published_w"), [(50, 130), (100, 250), (200, 495), (250, 620)])
def test_hybridjoin_admits_what_was_published(memory_mb: int, published_w: float) -> None:
    # |R| = 2 M, page 500, h_S = 256,710 at 50 MB; the published values were read off a plot, to 10 %.
    sizes = Sizes(h_s_rows=256_710 * memory_mb / 50, page_rows=500)
    predicted = hybridjoin.predict(Workload(2_000_000, generator="integral"), sizes, COSTS).w_s
    assert predicted == pytest.approx(published_w, rel=0.15)


def test_the_tuned_constants_give_the_papers_w() -> None:
    workload = Workload(2_000_000)
    assert (2_000_000 - 1500) / 950 == pytest.approx(2104, abs=0.5)
    assert workload.popularity.share_of_hottest(1500) == pytest.approx(0.523, abs=0.0005)
    assert x_hybridjoin.w_paper(workload, d_n=1500, d_s=950, h_s=512_567) == pytest.approx(510, abs=1)


def test_the_papers_average_misses_half_of_w() -> None:
    sizes = Sizes(h_s_rows=512_567, page_rows=950, h_r_rows=1500)
    prediction = x_hybridjoin.predict(Workload(2_000_000), sizes, COSTS)
    assert prediction.hit_share == pytest.approx(0.523, abs=0.0005)
    assert prediction.w_n + prediction.w_s == pytest.approx(1015, abs=5)


def test_x_hybridjoin_is_as_printed_once_w_is_known() -> None:
    prediction = x_hybridjoin.predict(WORKLOAD, SIZES, COSTS)
    printed = x_hybridjoin.c_loop_s(COSTS, 120, d_n=2500, d_s=500, w=prediction.w_n + prediction.w_s)
    assert prediction.seconds_per_iteration == pytest.approx(printed)


def test_probing_the_pinned_pages_is_cheaper_than_letting_them_probe() -> None:
    pinned = model_of("x-hybridjoin").predict(WORKLOAD, SIZES, COSTS)
    probed = model_of("optimised-x-hybridjoin").predict(WORKLOAD, SIZES, COSTS)
    assert probed.hit_share == pytest.approx(pinned.hit_share)
    assert probed.mu_rows_per_s > pinned.mu_rows_per_s


def test_cachejoin_charges_the_misses_for_their_probe_too() -> None:
    prediction = cachejoin.predict(WORKLOAD, SIZES, COSTS)
    printed = cachejoin.c_loop_s(COSTS, 120, b=500, w_n=prediction.w_n, w_s=prediction.w_s)
    assert prediction.seconds_per_iteration == pytest.approx(printed + prediction.w_s * COSTS.c_h)


def test_sscj_pays_eight_bytes_for_each_cached_row() -> None:
    plain, recorded = (sum(model.memory_bytes(WORKLOAD, SIZES).values()) for model in (cachejoin, sscj))
    assert recorded == plain + 8 * 2500
    assert sscj.predict(WORKLOAD, SIZES, COSTS).memory_bytes["frequency recorder"] == 8 * 2500


def test_a_cache_of_all_of_r_still_has_a_prediction() -> None:
    prediction = cachejoin.predict(WORKLOAD, replace(SIZES, h_r_rows=1e9), COSTS)
    assert prediction.hit_share == pytest.approx(1.0, abs=1e-5)
    assert math.isfinite(prediction.mu_rows_per_s)


# PCSRJ


def test_pcsrj_as_printed_predicts_no_gain() -> None:
    printed = {"b": 500.0, "w_n": 800.0, "w_s": 300.0}
    one_node = 1100 / cachejoin.c_loop_s(COSTS, 120, **printed)
    assert pcsrj.mu_printed_rows_per_s(COSTS, 120, **printed) == pytest.approx(one_node)
    assert pcsrj.mu_corrected_rows_per_s(COSTS, 120, **printed) == pytest.approx(2 * one_node)


def test_odd_keys_are_more_than_half_of_the_stream() -> None:
    odd, even = pcsrj.node_shares(Popularity(2_000_000, 1.0), 2)
    assert odd == pytest.approx(0.5 + math.log(2) / (2 * float(partial_sum(2_000_000, 1.0))), abs=1e-6)
    assert odd == pytest.approx(0.523, abs=0.0005)
    assert odd + even == pytest.approx(1.0)


@pytest.mark.parametrize("partitions", (1, 2, 3, 7))
def test_the_shares_of_nodes_are_those_of_their_keys(partitions: int) -> None:
    weights = np.arange(1, 1001) ** -0.8
    expected = [weights[first::partitions].sum() / weights.sum() for first in range(partitions)]
    assert pcsrj.node_shares(Popularity(1000, 0.8), partitions) == pytest.approx(expected)


def test_one_node_of_pcsrj_is_cachejoin() -> None:
    alone = pcsrj.predict(WORKLOAD, replace(SIZES, partitions=1), COSTS)
    assert alone.mu_rows_per_s == pytest.approx(cachejoin.predict(WORKLOAD, SIZES, COSTS).mu_rows_per_s)


def test_the_model_knows_the_shares_that_the_operator_goes_by() -> None:
    # A model imports no operator, so these stand in both.
    assert cachejoin.REPLACED_SHARE == operator.REPLACED_SHARE
    assert cachejoin.ROUNDS_WATCHED == operator.ROUNDS_WATCHED


def test_two_nodes_share_the_memory_of_one_and_are_less_than_twice_as_fast() -> None:
    # Half of H_S and of the cache each: a page of half of R still holds as many waiting rows. Operators with an H_S of
    # 19 983 and 9 466 rows and a cache of 2 537 and 1 211, the nearest that a budget gives, gain 1.83 on the metered
    # disk; of just these sizes the model says 1.65.
    halves = replace(SIZES, h_s_rows=10_000, h_r_rows=1250, partitions=2)
    gain = (
        pcsrj.predict(WORKLOAD, halves, COSTS).mu_rows_per_s / cachejoin.predict(WORKLOAD, SIZES, COSTS).mu_rows_per_s
    )
    assert gain == pytest.approx(1.83, rel=0.1)
    assert gain < 2.0


def test_pcsrj_refuses_what_it_has_no_shares_for() -> None:
    with pytest.raises(InvalidOption, match="Zipf's law only"):
        pcsrj.predict(replace(WORKLOAD, generator="integral"), SIZES, COSTS)
    with pytest.raises(InvalidOption, match="more partitions than keys"):
        pcsrj.predict(Workload(1), SIZES, COSTS)


# INLJ and adaptive


def test_textbook_inlj_reads_once_a_row() -> None:
    prediction = inlj.predict(WORKLOAD, replace(SIZES, rows_per_step=1), COSTS)
    assert prediction.counts.seeks == pytest.approx(1.0)


def test_a_larger_step_shares_more_reads() -> None:
    rates = [
        inlj.predict(WORKLOAD, replace(SIZES, rows_per_step=rows), COSTS).mu_rows_per_s for rows in (1, 100, 10_000)
    ]
    assert rates == sorted(rates)
    assert rates[2] > 2 * rates[0]


def test_adaptive_without_memory_and_pages_of_one_row_is_inlj() -> None:
    sizes = replace(SIZES, h_r_rows=0, page_rows=1, rows_per_step=10)
    ours, theirs = adaptive.predict(WORKLOAD, sizes, COSTS), inlj.predict(WORKLOAD, sizes, COSTS)
    assert ours.counts.seeks == pytest.approx(theirs.counts.seeks)
    assert ours.hit_share == 0.0


@pytest.mark.parametrize(
    ("io", "rows_per_step", "way"),
    [
        (IoProfile(0.0, 1e8), 1000, "keys"),
        (IoProfile(0.001, 1e9), 1000, "pages"),
        (IoProfile(0.01, 1e9), 100_000, "scan"),
    ],
)
def test_adaptive_reads_by_the_cheapest_way(io: IoProfile, rows_per_step: int, way: str) -> None:
    workload, sizes = replace(WORKLOAD, r_rows=4_000_000), replace(SIZES, rows_per_step=rows_per_step)
    counts = adaptive.predict(workload, sizes, replace(COSTS, io=io)).counts
    assert counts.bytes_read == adaptive.reads(workload, sizes)[way].bytes_read


@pytest.mark.parametrize("layout", ("frequency", "shuffled"))
def test_distinct_misses_and_pages_touched_are_those_of_a_drawn_step(layout: str) -> None:
    rng = np.random.default_rng(11)
    weights = np.arange(1, 20_001) ** -0.9
    place = np.arange(20_000) if layout == "frequency" else rng.permutation(20_000)
    keys, pages = [], []
    for _ in range(20):
        missed = np.unique(rng.choice(20_000, size=3000, p=weights / weights.sum()))
        missed = missed[missed >= 400]
        keys.append(len(missed))
        pages.append(len(np.unique(place[missed] // 50)))
    workload = Workload(20_000, 0.9, layout=layout)  # type: ignore[arg-type]
    sizes = Sizes(page_rows=50, h_r_rows=400, rows_per_step=3000)
    assert adaptive.distinct_misses(workload, sizes) == pytest.approx(np.mean(keys), rel=0.02)
    assert adaptive.pages_touched(workload, sizes) == pytest.approx(np.mean(pages), rel=0.02)


# MOIJ's printed equations


def test_moij_is_as_printed() -> None:
    assert moij.c_loop_s(COSTS, 120, b=500, h_r=1000, w_n=800, w_s=300) == pytest.approx(
        0.011
        + 60_000 / 1e8
        + 800 * (4e-7 + 1e-7 + 2e-7)
        + 300 * (4e-7 + 5e-7 + 2e-7 + 3e-7)
        + 500 * (1e-7 + 7e-7)
        + 1000 * 8e-7 / 10
    )
    assert moij.mu_rows_per_s(800, 300, 0.01) == pytest.approx(110_000)


def test_moijs_equation_six_is_memory_over_time_and_no_rate_of_rows() -> None:
    prediction = moij.predict(WORKLOAD, SIZES, COSTS)
    c_loop = prediction.seconds_per_iteration
    printed = moij.memory_per_loop_bytes_per_s(prediction.memory_bytes, c_loop)
    assert printed == pytest.approx(prediction.memory_total_bytes / c_loop)
    assert printed > 100 * prediction.mu_rows_per_s
