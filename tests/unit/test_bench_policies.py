"""Simulated cache policies against slow ones that were written down from the papers, list by list."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from semistream.bench.cache import KEYS, CacheWorkload, HitRates, Length, fixed_choice, hit_rate
from semistream.bench.policies import Policy
from semistream.bench.policies.lru import Lru
from semistream.bench.policies.s3_fifo import S3Fifo
from semistream.bench.policies.w_tiny_lfu import COUNT_MAX, CountSketch, WTinyLfu
from semistream.lab.workloads.zipf import Zipf

SEEDS = range(5)


def skewed_keys(seed: int, count: int = 4_000, population: int = 300) -> list[int]:
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    return rng.permutation(population)[Zipf(population, 0.9).sample(rng, count)].tolist()


class SlowLru:
    def __init__(self, keys_max: int) -> None:
        self.keys_max, self.keys = keys_max, list[int]()

    def ask(self, key: int) -> bool:
        hit = key in self.keys
        self.keys = [key, *(other for other in self.keys if other != key)][: self.keys_max]
        return hit


class SlowS3Fifo:
    """Algorithm 1 of the paper; heads are at the front of the lists, tails at the end."""

    def __init__(self, keys_max: int) -> None:
        self.keys_max, self.small_max = keys_max, max(1, keys_max // 10)
        self.small, self.main, self.ghost = list[int](), list[int](), list[int]()
        self.freq: dict[int, int] = {}

    def ask(self, key: int) -> bool:
        if key in self.small or key in self.main:
            self.freq[key] = min(self.freq[key] + 1, 3)
            return True
        while len(self.small) + len(self.main) >= self.keys_max:
            self.evict_small() if len(self.small) >= self.small_max or not self.main else self.evict_main()
        (self.main if key in self.ghost else self.small).insert(0, key)
        self.ghost = [other for other in self.ghost if other != key]
        self.freq[key] = 0
        return False

    def evict_small(self) -> None:
        evicted = False
        while not evicted and self.small:
            tail = self.small.pop()
            if self.freq[tail] > 1:
                self.main.insert(0, tail)
                self.freq[tail] = 0
            else:
                self.ghost = [tail, *self.ghost][: self.keys_max - self.small_max]
                evicted = True

    def evict_main(self) -> None:
        evicted = False
        while not evicted and self.main:
            tail = self.main.pop()
            if self.freq[tail] > 0:
                self.main.insert(0, tail)
                self.freq[tail] -= 1
            else:
                evicted = True


class SlowWTinyLfu:
    """Three lists, most recent first, with the same sketch at the door."""

    def __init__(self, keys_max: int) -> None:
        self.window_max = max(1, keys_max // 100)
        self.main_max = keys_max - self.window_max
        self.protected_max = int(self.main_max * 0.8)
        self.window, self.probation, self.protected = list[int](), list[int](), list[int]()
        self.sketch = CountSketch(keys_max)

    def ask(self, key: int) -> bool:
        self.sketch.add(key)
        if key in self.window:
            self.window = [key, *(k for k in self.window if k != key)]
            return True
        if key in self.probation + self.protected:
            self.probation = [k for k in self.probation if k != key]
            self.protected = [key, *(k for k in self.protected if k != key)]
            self.probation = self.protected[self.protected_max :] + self.probation
            self.protected = self.protected[: self.protected_max]
            return True
        self.window = [key, *self.window]
        for candidate in self.window[self.window_max :]:
            if len(self.probation) + len(self.protected) < self.main_max:
                self.probation = [candidate, *self.probation]
            elif self.sketch.estimate(candidate) > self.sketch.estimate((self.probation or self.protected)[-1]):
                (self.probation or self.protected).pop()
                self.probation = [candidate, *self.probation]
        self.window = self.window[: self.window_max]
        return False


@pytest.mark.parametrize("keys_max", [2, 10, 37, 120])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("quick", "slow"), [(Lru, SlowLru), (S3Fifo, SlowS3Fifo), (WTinyLfu, SlowWTinyLfu)], ids=["lru", "s3", "w-tinylfu"]
)
def test_a_policy_answers_as_the_slow_one_does(quick: type[Lru], slow: type[SlowLru], keys_max: int, seed: int) -> None:
    one, other = quick(keys_max), slow(keys_max)
    for key in skewed_keys(seed):
        assert one.ask(key) == other.ask(key)
        assert len(one) <= keys_max


@pytest.mark.parametrize("policy", [Lru(500), S3Fifo(500), WTinyLfu(500)], ids=["lru", "s3", "w-tinylfu"])
def test_with_room_for_all_keys_only_the_first_request_misses(policy: Policy) -> None:
    keys = skewed_keys(1)
    assert sum(map(policy.ask, keys)) == len(keys) - len(set(keys))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_sketch_never_counts_too_little_before_it_is_halved(seed: int) -> None:
    keys = skewed_keys(seed, count=999)
    sketch = CountSketch(keys=100)
    for key in keys:
        sketch.add(key)
    assert all(sketch.estimate(key) >= min(COUNT_MAX, count) for key, count in Counter(keys).items())


def test_a_sketch_is_halved_after_ten_times_as_many_requests_as_there_are_keys() -> None:
    sketch = CountSketch(keys=100)
    for _ in range(999):
        sketch.add(7)
    assert sketch.estimate(7) == COUNT_MAX
    sketch.add(7)
    assert sketch.estimate(7) == COUNT_MAX // 2


def test_the_share_of_hits_leaves_the_warm_up_out() -> None:
    assert hit_rate(Lru(10), np.array([1, 2, 3, 1, 2, 4]), measured_from=3) == pytest.approx(2 / 3)


def test_the_best_fixed_choice_of_a_moving_stream_lies_where_the_hot_set_passes() -> None:
    length = Length(warm_up=400, measured=400)
    steady = fixed_choice(CacheWorkload("steady", 1.0), 1, length, 100)
    moving = fixed_choice(CacheWorkload("moving", 1.0, moves=True), 1, length, 100)
    assert steady.sum() == moving.sum() == 100
    assert len(steady) == KEYS
    # What is measured begins four slides behind the place where the steady one stands.
    assert not np.any(steady & moving)


def test_a_stream_that_moves_is_not_warmed_up_for_longer_than_it_is_measured() -> None:
    length = Length(warm_up=1_600, measured=400)
    assert length.of(CacheWorkload("steady", 1.0)) == length
    assert length.of(CacheWorkload("moving", 1.0, moves=True)) == Length(warm_up=400, measured=400)


def test_a_result_says_how_far_below_the_best_it_is() -> None:
    rates = HitRates("Zipf 1", 1_000, Length(10, 20), {"semistream": 0.57, "lru": 0.5, "best-fixed": 0.6})
    assert rates.below_best == pytest.approx(0.05)
    assert rates.as_json()["below-best"] == 0.05
