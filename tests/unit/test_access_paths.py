"""The cheapest way to read is found, kept, and left again; whichever it is, the rows are the same.

Time is virtual: a metered relation, or one whose prices the test sets, charges every read to the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from semistream.clock import Clock, VirtualClock
from semistream.joins.access_paths import TRIAL_READS, TRIAL_SHARE, AccessPaths
from semistream.joins.matching import codes_of
from semistream.relations.base import Codes
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, NVME, MeteredRelation
from semistream.relations.wrapping import WrappedRelation

PATHS = ("keys", "pages", "scan")
UNLIMITED = 1 << 30


def relation_of(row_count: int, page_rows: int, *, step: int = 1, text_bytes: int = 100) -> MemoryRelation:
    """Keys 0, step, 2 * step, ...; every third key has two rows."""
    keys = np.repeat(np.arange(row_count) * step, np.arange(row_count) % 3 // 2 + 1)
    table = pa.table({"id": keys, "text": ["x" * text_bytes] * len(keys), "row": np.arange(len(keys))})
    return MemoryRelation.from_table(table, ["id"], page_rows=page_rows)


class PricedRelation(WrappedRelation):
    """Charges what the test says: seconds for a key, for a page by key, and for a segment of a scan."""

    def __init__(self, inner: Any, clock: VirtualClock, **prices_s: float) -> None:
        super().__init__(inner)
        self.prices_s = prices_s
        self.spent_s = dict.fromkeys(PATHS, 0.0)
        self._clock = clock

    def _charge(self, path: str, reads: int) -> None:
        self.spent_s[path] += reads * self.prices_s[path]
        self._clock.advance(reads * self.prices_s[path])

    def _read_page(self, code: int) -> pa.RecordBatch:
        self._charge("pages", 1)
        return super()._read_page(code)

    def _read_segment(self, number: int) -> pa.RecordBatch:
        self._charge("scan", 1)
        return super()._read_segment(number)

    def _read_rows(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        self._charge("keys", len(codes))
        return super()._read_rows(codes, bytes_max)


class OnlyKeys:
    """A store like a database: it answers keys, counts no pages and knows no scan."""

    def __init__(self, inner: MemoryRelation) -> None:
        self._inner = inner
        self.info = inner.info
        self.schema = inner.schema

    def rows_for(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        return self._inner.rows_for(codes, bytes_max)


class UncountedPages(WrappedRelation):
    """A store that finds a key without reading its page: metering charges a seek and the bytes of the rows."""

    @property
    def page_reads(self) -> None:
        return None


def read_all(paths: AccessPaths, codes: npt.NDArray[np.int64]) -> str:
    for _ in paths.read(codes):
        pass
    return paths.last_path


def choices(paths: AccessPaths, codes: npt.NDArray[np.int64], times: int) -> list[str]:
    return [read_all(paths, codes) for _ in range(times)]


def random_keys(rng: np.random.Generator, population: int, count: int) -> npt.NDArray[np.int64]:
    return np.sort(rng.permutation(population)[:count])


# The rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cheapest", PATHS)
@pytest.mark.parametrize("seed", range(4))
def test_every_path_gives_all_rows_of_the_codes_once_and_in_order(cheapest: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    clock = VirtualClock()
    inner = relation_of(200, page_rows=7, step=5)
    expensive = dict.fromkeys(PATHS, 100.0) | {cheapest: 0.001}
    paths = AccessPaths(PricedRelation(inner, clock, **expensive), UNLIMITED, clock)
    taken = set()
    for _ in range(6):
        # Codes before the first, behind the last, and in the gaps between two pages are asked for as well.
        codes = np.unique(rng.integers(-20, 1020, int(rng.integers(1, 300))))
        read = [batch for batch in paths.read(codes) if batch.num_rows]
        found = np.concatenate([codes_of(batch) for batch in read] or [np.zeros(0, np.int64)])
        assert np.all(found[1:] >= found[:-1]), "the batches are not ascending"
        rows = pa.Table.from_batches(read, inner.schema).column("row").to_numpy()[np.isin(found, codes)]
        expected = np.concatenate(
            [b.column("row") for b in inner.rows_for(codes, UNLIMITED)] or [np.zeros(0, np.int64)]
        )
        assert np.sort(rows).tolist() == np.sort(expected).tolist()
        taken.add(paths.last_path)
    assert cheapest in taken


def test_absent_codes_in_a_gap_between_pages_do_not_bring_a_page_twice() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(4, page_rows=1, step=10), clock, keys=100.0, pages=0.1, scan=100.0)
    paths = AccessPaths(relation, UNLIMITED, clock)
    codes = np.array([0, 3, 4, 10, 15, 99])
    assert choices(paths, codes, 2) == ["keys", "keys"], "one read with cold caches, and one that counts"
    batches = list(paths.read(codes))
    assert paths.last_path == "pages"
    assert [batch.column(0).to_pylist() for batch in batches] == [[0], [10]]


@pytest.mark.parametrize("losing", ["pages", "scan"])
def test_a_path_that_loses_costs_a_few_reads_however_large_the_relation_is(losing: str) -> None:
    clock = VirtualClock()
    prices = {"keys": 1.0, "pages": 1e9, "scan": 1e9} | {losing: 100.0}
    relation = PricedRelation(relation_of(20_000, page_rows=8), clock, **prices)
    paths = AccessPaths(relation, UNLIMITED, clock)
    codes = random_keys(np.random.default_rng(7), 20_000, 8_000)
    for _ in range(4):
        found = np.concatenate([codes_of(batch) for batch in paths.read(codes)])
        assert np.array_equal(np.unique(found[np.isin(found, codes)]), codes)
    assert 0 < relation.spent_s[losing] <= TRIAL_READS * prices[losing]


def test_an_empty_relation_has_no_rows_on_any_path() -> None:
    clock = VirtualClock()
    empty = relation_of(3, page_rows=2)
    empty = MemoryRelation(empty._rows.slice(0, 0), ["id"])
    paths = AccessPaths(PricedRelation(empty, clock, keys=1.0, pages=0.5, scan=0.2), UNLIMITED, clock)
    for _ in range(5):
        assert list(paths.read(np.array([1, 2]))) == []


# The choice ----------------------------------------------------------------------------------------------------------


def test_on_a_disk_that_seeks_many_keys_are_read_by_a_scan() -> None:
    clock = VirtualClock()
    relation = MeteredRelation(relation_of(10_000, page_rows=100), HDD, clock)
    paths = AccessPaths(relation, UNLIMITED, clock)
    rng = np.random.default_rng(1)
    taken = [read_all(paths, random_keys(rng, 10_000, 5_000)) for _ in range(20)]
    assert set(taken[:4]) == set(PATHS), "each path is tried, as each could win"
    assert set(taken[4:]) == {"scan"}


def test_on_flash_a_few_keys_are_read_as_keys() -> None:
    clock = VirtualClock()
    relation = MeteredRelation(UncountedPages(relation_of(10_000, page_rows=100)), NVME, clock)
    paths = AccessPaths(relation, UNLIMITED, clock)
    rng = np.random.default_rng(2)
    taken = [read_all(paths, random_keys(rng, 10_000, 5)) for _ in range(50)]
    assert taken.count("scan") <= 1
    assert taken.count("pages") <= 2
    assert set(taken[10:]) == {"keys"}


def test_the_same_relation_is_read_by_keys_or_by_scan_as_the_misses_are_few_or_many() -> None:
    clock = VirtualClock()
    relation = MeteredRelation(relation_of(10_000, page_rows=100), HDD, clock)
    paths = AccessPaths(relation, UNLIMITED, clock)
    rng = np.random.default_rng(3)
    for _ in range(3):
        read_all(paths, random_keys(rng, 10_000, 5_000))
    assert read_all(paths, random_keys(rng, 10_000, 1)) != "scan"
    assert read_all(paths, random_keys(rng, 10_000, 5_000)) == "scan"


def test_a_path_that_has_become_expensive_is_left_at_once() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(1_000, page_rows=100), clock, keys=0.01, pages=1.0, scan=0.1)
    paths = AccessPaths(relation, UNLIMITED, clock)
    codes = np.arange(0, 1_000, 5)
    assert choices(paths, codes, 10)[-1] == "scan"
    relation.prices_s["scan"] = 10.0
    assert "scan" in choices(paths, codes, 2), "what it costs now cannot be known before it is read"
    assert set(choices(paths, codes, 3)) == {"keys"}


def test_a_path_that_has_become_cheap_is_found_again() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(1_000, page_rows=100), clock, keys=0.01, pages=1.0, scan=0.5)
    paths = AccessPaths(relation, UNLIMITED, clock)
    codes = np.arange(0, 1_000, 5)
    assert choices(paths, codes, 10)[-1] == "keys"
    relation.prices_s["scan"] = 0.01
    assert choices(paths, codes, 2_000)[-1] == "scan"


def test_trials_of_what_lost_stay_within_their_share() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(1_000, page_rows=100), clock, keys=0.01, pages=1.0, scan=0.5)
    paths = AccessPaths(relation, UNLIMITED, clock)
    codes = np.arange(0, 1_000, 5)
    choices(paths, codes, 10)
    before_s = dict(relation.spent_s)
    taken = choices(paths, codes, 3_000)
    spent_s = {path: relation.spent_s[path] - before_s[path] for path in PATHS}
    assert {"pages", "scan"} & set(taken), "a path that lost is tried now and then"
    assert spent_s["pages"] + spent_s["scan"] <= TRIAL_SHARE * clock.now_s() * 1.05


def test_the_first_call_of_a_path_that_cannot_win_is_never_made() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(1_000, page_rows=100), clock, keys=1e-9, pages=1e-3, scan=1e-3)
    paths = AccessPaths(relation, UNLIMITED, clock)
    # Two keys take 2 ns; not even memory moves a page in that time.
    assert set(choices(paths, np.array([3, 500]), 100)) == {"keys"}


def test_without_a_clock_that_moves_everything_is_read_by_keys() -> None:
    paths = AccessPaths(relation_of(1_000, page_rows=10), UNLIMITED, VirtualClock())
    assert set(choices(paths, np.arange(500), 20)) == {"keys"}


# What a relation offers ----------------------------------------------------------------------------------------------


def test_pages_that_do_not_fit_are_no_alternative() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(1_000, page_rows=100), clock, keys=10.0, pages=0.1, scan=0.01)
    page_bytes_max = relation.info.page_bytes_max
    codes = np.arange(900)
    assert set(choices(AccessPaths(relation, page_bytes_max - 1, clock), codes, 10)) == {"keys"}
    assert set(choices(AccessPaths(relation, page_bytes_max, clock), codes, 10)) == set(PATHS)


def test_a_store_that_only_answers_keys_is_asked_for_keys() -> None:
    clock: Clock = VirtualClock()
    paths = AccessPaths(OnlyKeys(relation_of(100, page_rows=10)), UNLIMITED, clock)
    assert set(choices(paths, np.arange(50), 5)) == {"keys"}


def test_a_read_that_breaks_off_sets_no_price() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(1_000, page_rows=100), clock, keys=1.0, pages=0.1, scan=0.1)
    paths = AccessPaths(relation, 2_000, clock)
    begun = paths.read(np.arange(500))
    next(begun)
    begun.close()  # type: ignore[attr-defined]
    assert read_all(paths, np.arange(5)) == "keys", "nothing was learned from half a read"


def test_a_single_page_is_one_read_however_many_keys_are_on_it() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(10, page_rows=100), clock, keys=1.0, pages=3.0, scan=5.0)
    taken = choices(AccessPaths(relation, UNLIMITED, clock), np.arange(10), 6)
    assert taken == ["keys", "keys", "pages", "scan", "pages", "pages"]


def test_what_is_done_with_many_small_batches_counts_as_their_price() -> None:
    clock = VirtualClock()
    relation = PricedRelation(relation_of(1_000, page_rows=10), clock, keys=0.01, pages=0.001, scan=0.001)
    paths = AccessPaths(relation, UNLIMITED, clock)
    codes = np.arange(0, 1_000, 5)
    taken = []
    for _ in range(20):
        for _ in paths.read(codes):
            clock.advance(0.5)  # what the join does with each batch, whatever its size
        taken.append(paths.last_path)
    assert set(taken[5:]) == {"keys"}, "a hundred cheap pages were preferred to one batch"
