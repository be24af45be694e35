"""Measure what the operations cost on this machine.

This file does the statistics; the operations come from outside, because cost models know no operators. An operation is
a function that is told how often to repeat itself, times itself with the clock it is given (so that what it must
prepare first stays outside), and says how many operations it did and how many seconds they took.

1. *Warm up*: repetitions are doubled until one sample takes `SAMPLE_S`. That pays for compilation and cold caches, and
   makes the clock's own grain small beside the sample.
2. *Sample* until the 95 % interval of the median is within `PRECISION` of it, or `SAMPLES_MAX` are taken. The median,
   because what disturbs a measurement only ever makes it longer; its interval comes from the order of the samples
   (binomial), which assumes nothing about their distribution.

c_IO is a line: a call, a seek for reads at random places, and bytes at a steady pace. The three are fitted together to
random and sequential reads of several sizes, by least squares on the relative error, so that small pages count as much
as large ones, and none may be negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from semistream.clock import Clock
from semistream.cost.symbols import CPU_SYMBOLS, IoProfile, UnitCosts
from semistream.cost.zipf import Floats
from semistream.errors import InvalidOption, did_you_mean

Operation = Callable[[int, Clock], tuple[float, float]]
"""`operation(repeat, clock)` returns (operations done, seconds they took)."""

SAMPLE_S = 0.002
"""A sample this long is a thousand times the grain of the clock and short enough to fit between two interruptions."""

SAMPLES_MIN = 11
SAMPLES_MAX = 101
"""The first number with a meaningful interval, and the one where the effort ends."""

PRECISION = 0.03
"""Half the width of the interval, relative to the median, at which sampling stops."""

REPEAT_MAX = 1 << 24
"""An operation that is still too short after so many repetitions takes no time that could be measured."""

BYTE_S_MIN = 1e-15
"""A pace faster than any memory, for devices whose reads were all too short to show one."""

Z_95 = 1.96
"""Standard deviations of a normal distribution that hold 95 %."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A median with its 95 % interval, in seconds per operation."""

    median_s: float
    low_s: float
    high_s: float
    samples: int

    @property
    def relative_half_width(self) -> float:
        """How uncertain the median is, as a share of it."""
        return (self.high_s - self.low_s) / 2.0 / self.median_s if self.median_s > 0 else 0.0


@dataclass(frozen=True)
class Calibration:
    """What was measured, and the unit costs that follow."""

    unit_costs: UnitCosts
    operations: dict[str, Measured]
    """By symbol: c_h, c_o ..."""
    random_reads: dict[int, Measured]
    """Seconds of one read at a random place, by its size in bytes."""
    sequential_reads: dict[int, Measured]
    """Seconds of one read that goes on where the last one ended, by its size in bytes."""


def median_interval(samples: list[float]) -> Measured:
    """The median and its 95 % interval by order statistics.

    Example:
        >>> median_interval([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0])
        Measured(median_s=6.0, low_s=2.0, high_s=10.0, samples=11)
    """
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    count = len(ordered)
    reach = Z_95 * math.sqrt(count) / 2.0
    low = max(0, math.floor((count - 1) / 2.0 - reach))
    high = min(count - 1, math.ceil((count - 1) / 2.0 + reach))
    return Measured(float(np.median(ordered)), float(ordered[low]), float(ordered[high]), count)


def measure(operation: Operation, clock: Clock) -> Measured:
    """Seconds per operation: warmed up, and repeated until the median is certain."""
    repeat = _warmed_up(operation, clock)
    samples: list[float] = []
    while len(samples) < SAMPLES_MAX:
        samples.append(_sample(operation, repeat, clock))
        if len(samples) >= SAMPLES_MIN and median_interval(samples).relative_half_width <= PRECISION:
            break
    return median_interval(samples)


def calibrate(
    operations: Mapping[str, Operation],
    random_reads: Mapping[int, Operation],
    sequential_reads: Mapping[int, Operation],
    clock: Clock,
) -> Calibration:
    """Measure every unit cost.

    `operations` has one for each of c_h, c_o, c_e, c_s, c_a, c_f, c_i and c_v; the reads have one for each size in
    bytes, at least two of them, whose operations are single reads of that size.
    """
    missing = [symbol for symbol in CPU_SYMBOLS if symbol not in operations]
    unknown = [name for name in operations if name not in CPU_SYMBOLS]
    if missing or unknown:
        raise InvalidOption(
            "the operations to measure are not those of the cost models",
            given=", ".join(operations) or "none",
            allowed=", ".join(CPU_SYMBOLS),
            hint=did_you_mean(unknown[0], CPU_SYMBOLS) if unknown else f"{', '.join(missing)} missing",
        )
    measured = {symbol: measure(operations[symbol], clock) for symbol in CPU_SYMBOLS}
    at_random, in_sequence = (
        {read_bytes: measure(reads[read_bytes], clock) for read_bytes in sorted(reads)}
        for reads in (random_reads, sequential_reads)
    )
    io = fit_io(_medians(at_random), _medians(in_sequence))
    costs = UnitCosts(**{symbol: one.median_s for symbol, one in measured.items()}, io=io)
    return Calibration(costs, measured, at_random, in_sequence)


def fit_io(random_s: Mapping[int, float], sequential_s: Mapping[int, float]) -> IoProfile:
    """The call, the seek and the pace that explain these seconds by bytes best.

    Example:
        >>> profile = fit_io({1_000_000: 0.021, 4_000_000: 0.051}, {1_000_000: 0.011, 4_000_000: 0.041})
        >>> round(profile.call_s, 6), round(profile.seek_s, 6), round(profile.bytes_per_s)
        (0.001, 0.01, 100000000)
    """
    taken = np.array([*random_s.values(), *sequential_s.values()], dtype=np.float64)
    if len(random_s) <= 1 or taken.min() <= 0:
        raise InvalidOption(
            "an I/O profile needs random reads of different sizes, and all reads must have taken some time",
            given=f"random {dict(random_s)}, sequential {dict(sequential_s)}",
            allowed="two sizes or more, each longer than 0 s",
        )
    sizes = np.array([*random_s, *sequential_s], dtype=np.float64)
    is_random = np.arange(len(taken)) < len(random_s)
    # Dividing each equation by its seconds makes relative errors of them.
    columns = np.stack([np.ones(len(taken)), is_random, sizes], axis=1) / taken[:, None]
    call_s, seek_s, byte_s = _least_squares_not_negative(columns, np.ones(len(taken)))
    return IoProfile(seek_s=seek_s, bytes_per_s=1.0 / max(byte_s, BYTE_S_MIN), call_s=call_s)


def _least_squares_not_negative(columns: Floats, target: Floats) -> list[float]:
    """Try every choice of unknowns that are not 0; few unknowns make this the plainest exact way."""
    best, best_error = [0.0] * columns.shape[1], math.inf
    for chosen in product((False, True), repeat=columns.shape[1]):
        solution = np.zeros(columns.shape[1])
        solution[list(chosen)] = np.linalg.lstsq(columns[:, chosen], target, rcond=None)[0]
        error = float(((columns @ solution - target) ** 2).sum())
        if solution.min() >= 0 and error < best_error:
            best, best_error = solution.tolist(), error
    return best


def _medians(measured: Mapping[int, Measured]) -> dict[int, float]:
    return {read_bytes: one.median_s for read_bytes, one in measured.items()}


def _warmed_up(operation: Operation, clock: Clock) -> int:
    """The repetitions that make a sample long enough."""
    repeat = 1
    while repeat < REPEAT_MAX:
        _, seconds = operation(repeat, clock)
        if seconds >= SAMPLE_S:
            break
        repeat *= 2
    return repeat


def _sample(operation: Operation, repeat: int, clock: Clock) -> float:
    done, seconds = operation(repeat, clock)
    assert done > 0, "an operation reported that it did nothing"
    return seconds / done
