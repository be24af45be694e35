"""The statistics of calibration, on operations whose cost is known because the clock is virtual."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.clock import Clock, VirtualClock
from semistream.cost.calibrate import (
    SAMPLES_MAX,
    SAMPLES_MIN,
    Operation,
    calibrate,
    fit_io,
    measure,
    median_interval,
)
from semistream.cost.symbols import CPU_SYMBOLS
from semistream.errors import InvalidOption


def operation(virtual: VirtualClock, each_s: float, noise: float = 0.0, cold_calls: int = 0) -> Operation:
    """Something that takes `each_s` a time, ten times as much while cold, and now and then is interrupted."""
    rng, calls = np.random.default_rng(5), 0

    def run(repeat: int, clock: Clock) -> tuple[float, float]:
        nonlocal calls
        calls += 1
        began = clock.now_s()
        factor = (10.0 if calls <= cold_calls else 1.0) * (1.0 + noise * rng.exponential())
        virtual.advance(repeat * 4 * each_s * factor)
        return 4.0 * repeat, clock.now_s() - began

    return run


def test_a_steady_operation_needs_the_fewest_samples() -> None:
    clock = VirtualClock()
    measured = measure(operation(clock, 2e-7), clock)
    assert measured.median_s == pytest.approx(2e-7)
    assert measured.samples == SAMPLES_MIN
    assert measured.relative_half_width == pytest.approx(0, abs=1e-6)


def test_the_first_calls_do_not_count() -> None:
    clock = VirtualClock()
    assert measure(operation(clock, 1e-7, cold_calls=8), clock).median_s == pytest.approx(1e-7)


def test_a_disturbed_operation_is_sampled_longer_and_says_how_uncertain_it_is() -> None:
    clock = VirtualClock()
    measured = measure(operation(clock, 1e-6, noise=1.0), clock)
    assert SAMPLES_MIN < measured.samples <= SAMPLES_MAX
    assert measured.low_s < measured.median_s < measured.high_s
    assert measured.low_s <= 1e-6 * (1 + np.log(2)) <= measured.high_s


def test_the_interval_holds_the_true_median_in_95_of_100_cases() -> None:
    rng = np.random.default_rng(17)
    held = 0
    for _ in range(1000):
        measured = median_interval(rng.exponential(size=41).tolist())
        held += measured.low_s <= np.log(2) <= measured.high_s
    assert 940 <= held <= 995


def test_a_calibration_finds_all_costs() -> None:
    clock = VirtualClock()
    costs = {symbol: (number + 1) * 1e-7 for number, symbol in enumerate(CPU_SYMBOLS)}
    sizes = (4096, 65_536, 1_048_576)
    random = {size: operation(clock, 0.006 + size / 2e8) for size in sizes}
    sequential = {size: operation(clock, 0.001 + size / 2e8) for size in sizes}
    found = calibrate({symbol: operation(clock, each) for symbol, each in costs.items()}, random, sequential, clock)
    assert {symbol: getattr(found.unit_costs, symbol) for symbol in costs} == pytest.approx(costs)
    assert found.unit_costs.io.seek_s == pytest.approx(0.005)
    assert found.unit_costs.io.call_s == pytest.approx(0.001)
    assert found.unit_costs.io.bytes_per_s == pytest.approx(2e8)
    assert found.operations["c_v"].median_s == pytest.approx(8e-7)
    assert found.random_reads[4096].samples == SAMPLES_MIN


def test_a_misspelt_or_missing_operation_is_named() -> None:
    clock = VirtualClock()
    some = {symbol: operation(clock, 1e-7) for symbol in CPU_SYMBOLS}
    with pytest.raises(InvalidOption, match="did you mean 'c_h'"):
        calibrate({**some, "c_hh": some["c_h"]}, {}, {}, clock)
    with pytest.raises(InvalidOption, match="c_v missing"):
        calibrate({symbol: some[symbol] for symbol in CPU_SYMBOLS[:-1]}, {}, {}, clock)


def test_a_profile_is_fitted_by_relative_error() -> None:
    rng = np.random.default_rng(2)
    sizes = [4096 * 4**step for step in range(6)]
    taken = {size: (0.0001 + size / 1e9) * rng.uniform(0.95, 1.05) for size in sizes}
    profile = fit_io(taken, {})
    for size in sizes:
        assert profile.read_s(size, sequential=False) == pytest.approx(0.0001 + size / 1e9, rel=0.08)


def test_reads_without_a_seek_or_without_a_pace_give_a_profile_that_is_possible() -> None:
    pace = {1000: 1e-6, 2000: 2.2e-6}
    assert fit_io(pace, pace).seek_s == 0.0
    assert fit_io(pace, pace).call_s == 0.0
    flat = fit_io({1000: 2e-3, 2000: 1.9e-3}, {1000: 1e-3, 2000: 1e-3})
    assert flat.call_s + flat.seek_s == pytest.approx(2e-3, rel=0.05)
    assert flat.call_s == pytest.approx(1e-3, rel=0.05)
    assert flat.bytes_per_s > 1e12


def test_one_size_of_read_makes_no_profile() -> None:
    with pytest.raises(InvalidOption, match="different sizes"):
        fit_io({4096: 0.001}, {4096: 0.001, 8192: 0.002})
