"""What is remembered: whole keys, the best per byte, inside the limit, and never yesterday's for long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from semistream.joins.aging import PERIOD_MIN
from semistream.joins.matching import codes_of, ranges_of
from semistream.joins.remembered import EVICTED_SHARE_MAX, EVICTED_SHARE_NEW, RememberedRows
from semistream.lab.workloads.zipf import Shuffle, Zipf
from semistream.structures.distinct import distinct
from semistream.structures.frequency import FrequencySketch
from semistream.structures.row_arena import fixed_bytes_per_row

Int64s = npt.NDArray[np.int64]

SCHEMA = pa.schema([("__code", pa.int64()), ("row", pa.int64()), ("text", pa.string())])
ROW_BYTES = fixed_bytes_per_row(SCHEMA)


@dataclass(frozen=True)
class Master:
    """All rows of a small relation, sorted by code."""

    batch: pa.RecordBatch
    codes: Int64s
    """The distinct codes, ascending."""

    def offer_to(self, memory: RememberedRows, codes: Int64s, uses: Int64s) -> None:
        first, count = ranges_of(codes, codes_of(self.batch))
        memory.offer(self.batch, codes, first, count, uses)

    def batch_of(self, codes: Int64s) -> pa.RecordBatch:
        """All rows of these codes, one code after the other."""
        first, count = ranges_of(codes, codes_of(self.batch))
        rows = [np.arange(begin, begin + length) for begin, length in zip(first, count, strict=True)]
        return self.batch.take(pa.array(np.concatenate(rows)))

    def bytes_of(self, codes: Int64s) -> Int64s:
        texts = np.array([len(text) for text in self.batch.column("text").to_pylist()], np.int64)
        until = np.concatenate(([0], np.cumsum(texts + ROW_BYTES)))
        first, count = ranges_of(codes, codes_of(self.batch))
        sizes: Int64s = until[first + count] - until[first]
        return sizes


def master(rows_per_key: list[int] | Int64s, text_bytes: list[int] | Int64s | int = 0) -> Master:
    """Keys 0, 10, 20, ..., with this many rows each, whose texts have this many bytes."""
    keys = 10 * np.arange(len(rows_per_key))
    codes = np.repeat(keys, rows_per_key)
    lengths = np.broadcast_to(text_bytes, len(rows_per_key)).repeat(rows_per_key)
    columns = [codes, np.arange(len(codes)), pa.array(["x" * int(length) for length in lengths], pa.string())]
    return Master(pa.record_batch(columns, schema=SCHEMA), keys)


def is_remembered(memory: RememberedRows, codes: Int64s) -> npt.NDArray[np.bool_]:
    _, count = memory.probe(codes)
    return count > 0


def full_memory(bytes_max: int, held: Master, uses: int) -> tuple[RememberedRows, Int64s]:
    """A memory that has no room left, and the codes it holds; each was used so often."""
    # A small mean makes many places, so that it is bytes that run out first.
    memory = RememberedRows(SCHEMA, bytes_max, ROW_BYTES / 2)
    held.offer_to(memory, held.codes, np.full(len(held.codes), uses))
    inside = held.codes[is_remembered(memory, held.codes)]
    assert 0 < len(inside) < len(held.codes), "the test must offer more than fits"
    memory.age()  # One use was added by looking; with an odd number this takes it back and halves the rest.
    return memory, inside


# What comes out ------------------------------------------------------------------------------------------------------


def test_while_there_is_room_everything_is_let_in_with_all_its_rows() -> None:
    known = master([1, 3, 2, 5], text_bytes=[0, 4, 9, 1])
    memory = RememberedRows(SCHEMA, 1 << 16, ROW_BYTES)
    known.offer_to(memory, known.codes, np.ones(4, np.int64))
    assert len(memory) == 4
    asked = np.array([30, 5, 0, 30, 20, 99])
    first, count = memory.probe(asked)
    assert count.tolist() == [5, 0, 1, 5, 2, 0]
    joined = memory.pairs(np.arange(6), first, count).next(100)
    found = joined.relation.take(pa.array(joined.relation_rows))
    assert joined.stream_rows.tolist() == [0] * 5 + [2] + [3] * 5 + [4] * 2
    assert found.equals(known.batch_of(np.array([30, 0, 30, 20])))


@pytest.mark.parametrize("seed", range(8))
def test_under_any_load_whole_keys_come_out_and_the_limit_holds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # A few keys have more rows than are moved at a time.
    rows_per_key = np.where(rng.random(300) < 0.02, 400, rng.integers(1, 6, 300))
    known = master(rows_per_key, text_bytes=rng.integers(0, 60, 300))
    bytes_max = int(rng.choice([3_000, 10_000, 40_000, 100_000]))
    memory = RememberedRows(SCHEMA, bytes_max, known.batch.nbytes / len(known.batch))
    for _ in range(60):
        codes = known.codes[np.minimum(rng.zipf(1.3, 200) - 1, 299)]
        first, count = memory.probe(codes)
        hit = count > 0
        if hit.any():
            joined = memory.pairs(np.arange(200), first, count).next(1 << 20)
            found = joined.relation.take(pa.array(joined.relation_rows))
            assert found.equals(known.batch_of(codes[hit]))
        missed, uses = np.unique(codes[~hit], return_counts=True)
        known.offer_to(memory, missed, uses)
        assert memory.used_bytes <= bytes_max
        assert len(memory) <= 300, "a key is remembered twice"
        if rng.random() < 0.1:
            memory.age()


# Who stays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_of_too_many_keys_those_with_most_uses_per_byte_are_let_in(seed: int) -> None:
    rng = np.random.default_rng(seed)
    known = master(rng.integers(1, 8, 400), text_bytes=rng.integers(0, 30, 400))
    uses = rng.integers(1, 1000, 400)
    memory = RememberedRows(SCHEMA, 20_000, known.batch.nbytes / len(known.batch))
    known.offer_to(memory, known.codes, uses)
    inside = is_remembered(memory, known.codes)
    score = uses / known.bytes_of(known.codes)
    assert 0 < inside.sum() < 400
    assert score[inside].min() >= score[~inside].max()


@pytest.mark.parametrize("coming_share", [0.0, 1 / 20, 1 / 2])
def test_the_lowest_by_uses_per_byte_make_room_for_as_many_as_come_within_bounds(coming_share: float) -> None:
    known = master([1] * 2000)
    memory, inside = full_memory(32_000, known, uses=1)
    # The i-th key is used i times, so the order in which they must leave is known.
    memory.probe(np.repeat(inside, np.arange(len(inside))))
    newcomers = np.setdiff1d(known.codes, inside)[: max(1, int(len(inside) * coming_share))]
    known.offer_to(memory, newcomers, np.full(len(newcomers), 10**6))
    assert is_remembered(memory, newcomers[:1]).all()
    stayed = is_remembered(memory, inside)
    left = int((~stayed).sum())
    assert memory.evicted == left
    assert not stayed[:left].any() and stayed[left:].all(), "somebody left before a key that was used less"
    share = min(max(EVICTED_SHARE_NEW, coming_share), EVICTED_SHARE_MAX)
    # The price is that of a sample, so a few more or less.
    assert left == pytest.approx(len(inside) * share, rel=0.1, abs=3)


def test_who_is_worth_a_little_more_than_the_cheapest_is_turned_away_because_luck_explains_it() -> None:
    known = master([1] * 2000)
    memory, inside = full_memory(32_000, known, uses=1)
    # Two periods in which every key is asked for equally often, so that the next must be exceeded by two deviations.
    for _ in range(2):
        while memory.halvings_due() == 0:
            memory.probe(inside)
    memory.uses[:] = 100
    outside = np.setdiff1d(known.codes, inside)[:10]
    known.offer_to(memory, outside, np.full(10, 120))
    assert not is_remembered(memory, outside).any()
    known.offer_to(memory, outside, np.full(10, 121))
    assert is_remembered(memory, outside).any()


def test_who_is_let_into_a_settled_memory_counts_as_little_more_than_who_left() -> None:
    known = master([1] * 2000)
    memory, inside = full_memory(32_000, known, uses=1)
    while memory.halvings_due() == 0:
        memory.probe(inside)
    memory.uses[:] = 100
    outside = np.setdiff1d(known.codes, inside)[:3]
    known.offer_to(memory, outside, np.full(3, 250))
    # A deviation of a hundred uses is ten; the sketch may have counted others along.
    assert sorted(memory.uses[memory.uses != 100].tolist()) == [111] * 3
    assert is_remembered(memory, outside).all()


def test_who_was_not_asked_for_once_makes_room_for_all_that_come() -> None:
    known = master([1] * 2000)
    memory, inside = full_memory(32_000, known, uses=1)
    memory.age()
    asked = inside[::4].copy()
    memory.probe(asked)
    newcomers = np.setdiff1d(known.codes, inside)[: len(inside) // 2]
    known.offer_to(memory, newcomers, np.ones(len(newcomers), np.int64))
    assert is_remembered(memory, asked).all()
    assert is_remembered(memory, newcomers).mean() > 0.95


def test_a_large_key_leaves_before_a_small_one_that_is_used_as_often() -> None:
    known = master([1, 8] * 500)
    memory, inside = full_memory(140_000, known, uses=5)
    was_large = inside % 20 == 10
    assert 0 < was_large.sum() < 500, "all small keys and some large ones fit"
    newcomers = np.setdiff1d(known.codes, inside)[:5]
    known.offer_to(memory, newcomers, np.full(5, 10**6))
    stayed = is_remembered(memory, inside)
    assert stayed[~was_large].all()
    assert not stayed[was_large].all()


def test_who_is_not_worth_more_than_the_cheapest_is_turned_away_and_nobody_leaves() -> None:
    known = master([1] * 2000)
    memory, inside = full_memory(32_000, known, uses=9)
    outside = np.setdiff1d(known.codes, inside)
    for uses in (1, 4, 5):
        known.offer_to(memory, outside, np.full(len(outside), uses))
        assert memory.evicted == 0
    assert is_remembered(memory, inside).all()
    known.offer_to(memory, outside, np.full(len(outside), 100))
    assert memory.evicted > 0


def test_the_price_of_room_falls_as_uses_age() -> None:
    known = master([1] * 2000)
    memory, inside = full_memory(32_000, known, uses=63)
    outside = np.setdiff1d(known.codes, inside)[:10]
    known.offer_to(memory, outside, np.full(10, 20))
    assert not is_remembered(memory, outside).any()
    memory.age()
    memory.age()
    known.offer_to(memory, outside, np.full(10, 20))
    assert is_remembered(memory, outside).all()


def test_a_key_that_can_never_fit_makes_nobody_leave() -> None:
    held, giant = master([1] * 2000), master([4000])
    memory, inside = full_memory(32_000, held, uses=3)
    giant = Master(giant.batch.set_column(0, "__code", pa.array([7] * 4000)), np.array([7]))
    for _ in range(3):
        giant.offer_to(memory, giant.codes, np.array([2**29]))
    assert memory.evicted == 0
    assert is_remembered(memory, inside).all()


def test_aging_is_due_once_every_place_was_probed_some_times() -> None:
    known = master([1] * 2000)
    memory, inside = full_memory(32_000, known, uses=1)
    for _ in range(PERIOD_MIN - 2):
        memory.probe(inside)
        assert memory.halvings_due() == 0
    for _ in range(PERIOD_MIN):
        memory.probe(inside)
    assert memory.halvings_due() == 1
    assert memory.halvings_due() == 0


# Limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bytes_max", [-5_000, 0, 1, 100])
def test_without_memory_nothing_is_remembered_and_nothing_breaks(bytes_max: int) -> None:
    known = master([2] * 10)
    memory = RememberedRows(SCHEMA, bytes_max, 50.0)
    known.offer_to(memory, known.codes, np.full(10, 5))
    assert memory.used_bytes <= max(0, bytes_max)
    assert not is_remembered(memory, known.codes).any()
    assert memory.halvings_due() == 0
    memory.clear()


def test_nested_columns_are_not_remembered() -> None:
    schema = pa.schema([("__code", pa.int64()), ("list", pa.list_(pa.int64()))])
    memory = RememberedRows(schema, 1 << 20, 50.0)
    batch = pa.record_batch({"__code": [1], "list": [[1, 2]]}, schema=schema)
    memory.offer(batch, np.array([1]), np.array([0]), np.array([1]), np.array([9]))
    assert len(memory) == memory.used_bytes == 0
    assert not is_remembered(memory, np.array([1])).any()


@pytest.mark.parametrize("bytes_max", [2_000, 100_000, 3_000_000])
@pytest.mark.parametrize(("text_bytes", "share"), [(0, 1 / 6), (80, 1 / 2), (1_000, 1 / 2)])
def test_a_fair_share_of_the_memory_is_for_the_rows_themselves(bytes_max: int, text_bytes: int, share: float) -> None:
    count = 2 * bytes_max // (ROW_BYTES + text_bytes) + 1
    known = master([1] * count, text_bytes)
    memory = RememberedRows(SCHEMA, bytes_max, ROW_BYTES + text_bytes)
    empty_bytes = memory.used_bytes
    known.offer_to(memory, known.codes, np.ones(count, np.int64))
    assert share * bytes_max <= memory.used_bytes - empty_bytes <= bytes_max - empty_bytes


def test_clear_forgets_everything_and_starts_afresh() -> None:
    known = master([1] * 2000)
    memory, inside = full_memory(32_000, known, uses=99)
    full_bytes = memory.used_bytes
    memory.clear()
    assert len(memory) == 0
    assert memory.used_bytes < full_bytes
    assert not is_remembered(memory, inside).any()
    known.offer_to(memory, known.codes[:5], np.ones(5, np.int64))
    assert is_remembered(memory, known.codes[:5]).all(), "the old price of room still holds"


# Streams -------------------------------------------------------------------------------------------------------------


class Stream:
    """Probes a memory batch by batch and offers what was missed, as an operator does."""

    def __init__(self, known: Master, bytes_max: int) -> None:
        self.known = known
        self.memory = RememberedRows(SCHEMA, bytes_max, known.batch.nbytes / len(known.batch))
        self._frequency = FrequencySketch(4096, period=2**62)

    def hit_rate(self, codes: Int64s, batch_rows: int = 500) -> float:
        hits = 0
        for begin in range(0, len(codes), batch_rows):
            batch = codes[begin : begin + batch_rows]
            missed = batch[~is_remembered(self.memory, batch)]
            hits += len(batch) - len(missed)
            unique, inverse = distinct(missed)
            self._frequency.add_counts(unique, np.bincount(inverse, minlength=len(unique)))
            self.known.offer_to(self.memory, unique, self._frequency.estimate(unique))
            if halvings := self.memory.halvings_due():
                self.memory.age(halvings)
                self._frequency.halve(halvings)
        return hits / len(codes)


def test_after_the_hot_set_has_moved_the_new_one_is_remembered() -> None:
    rng = np.random.default_rng(11)
    known = master([1] * 5000)
    stream = Stream(known, 60_000)
    for hot in np.split(known.codes[:1500], 3):
        # Nine of ten rows ask for 500 hot keys, which fit; the rest for any key.
        asked = rng.choice(hot, 60_000)
        anywhere = rng.random(len(asked)) < 0.1
        asked[anywhere] = rng.choice(known.codes, int(anywhere.sum()))
        stream.hit_rate(asked[:30_000])
        assert stream.hit_rate(asked[30_000:]) > 0.88
        assert is_remembered(stream.memory, hot).mean() > 0.97


@pytest.mark.parametrize("varied", [False, True], ids=["rows of one size", "rows of many sizes"])
def test_zipf_hit_rate_is_close_to_that_of_the_best_fixed_choice(varied: bool) -> None:
    rng = np.random.default_rng(5)
    population = 20_000
    known = master([1] * population, text_bytes=rng.integers(0, 200, population) if varied else 30)
    stream = Stream(known, 300_000)
    empty_bytes = stream.memory.used_bytes
    asked = known.codes[Shuffle(population, seed=3)(Zipf(population, exponent=1.0).sample(rng, 400_000))]
    stream.hit_rate(asked[:200_000])
    found = stream.hit_rate(asked[200_000:])

    # Who knows all probabilities beforehand fills the same bytes with the keys of most probability per byte, as many as
    # there are places for.
    probability = np.empty(population)
    probability[Shuffle(population, seed=3)(np.arange(population))] = 1 / (1 + np.arange(population))
    probability /= probability.sum()
    sizes = known.bytes_of(known.codes)
    best = np.argsort(-probability / sizes)
    fitting = np.cumsum(sizes[best]) <= 300_000 - empty_bytes
    best_rate = float(probability[best][fitting][: most_places(known, 300_000)].sum())
    assert best_rate - 0.05 <= found <= best_rate + 0.01, f"{found:.3f} of at best {best_rate:.3f}"


def most_places(known: Master, bytes_max: int) -> int:
    """Keys that fit at all: of equally used ones the smallest are taken."""
    memory = RememberedRows(SCHEMA, bytes_max, known.batch.nbytes / len(known.batch))
    known.offer_to(memory, known.codes, np.ones(len(known.codes), np.int64))
    return len(memory)
