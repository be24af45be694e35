"""One behaviour for every algorithm on every relation: the rows of the reference join, whatever happens on the way.

A new algorithm adds a line to the registry and inherits all of it; a new store adds a line to `RELATIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import Clock, VirtualClock
from semistream.errors import InvalidOption
from semistream.joins.adaptive import least_memory_bytes
from semistream.joins.driver import JoinDriver
from semistream.joins.reference import reference_join
from semistream.joins.registry import ALGORITHMS, algorithm_named
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.base import Codes
from semistream.relations.building.build import build_relation
from semistream.relations.counting import CountingRelation
from semistream.relations.failing import FailingRelation
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, MeteredRelation
from semistream.relations.wrapping import WrappedRelation
from tests.support.oracle import assert_same_rows
from tests.support.running import make_driver, run_join

Open = Callable[[Path, pa.Table, list[str]], Any]
Workload = tuple[pa.Table, pa.Table, list[str], list[str]]


def _mapped(path: Path, table: pa.Table, key: list[str]) -> Any:
    build_relation(table, key=key, out=path, page_bytes=512)
    return ArrowFileRelation(RelationDirectory(path), 1)


def _read(path: Path, table: pa.Table, key: list[str]) -> Any:
    build_relation(table, key=key, out=path, page_bytes=512)
    directory = RelationDirectory(path)
    buffer_bytes = max(1, 3 * directory.manifest(1).page_bytes_max)
    return ArrowFileRelation(directory, 1, access="read", disk_buffer_bytes=buffer_bytes)


def _in_partitions(path: Path, table: pa.Table, key: list[str]) -> Any:
    build_relation(table, key=key, out=path, page_bytes=512, partitions=3)
    return ArrowFileRelation(RelationDirectory(path), 1)


def _memory(_: Path, table: pa.Table, key: list[str]) -> Any:
    return MemoryRelation.from_table(table, key, page_rows=5)


def _wrapped(path: Path, table: pa.Table, key: list[str]) -> Any:
    return CountingRelation(MeteredRelation(_read(path, table, key), HDD, VirtualClock()))


RELATIONS: dict[str, Open] = {
    "arrow file, mapped": _mapped,
    "arrow file, read": _read,
    "arrow file in partitions": _in_partitions,
    "memory": _memory,
    "wrapped twice": _wrapped,
}


class FickleClock:
    """Time that jumps at random, so that every way to read is the cheapest now and then. The same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._now_s = 0.0

    def now_s(self) -> float:
        self._now_s += float(self._rng.exponential())
        return self._now_s


class ListeningRelation(WrappedRelation):
    """Writes down what was asked for by key."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.asked: list[list[int]] = []

    def _read_rows(self, codes: Codes, bytes_max: int) -> Iterator[pa.RecordBatch]:
        self.asked.append(codes.tolist())
        return super()._read_rows(codes, bytes_max)

    def become(self, other: Any) -> None:
        """Turn into another version of the same relation."""
        self._inner = other


@pytest.fixture(params=ALGORITHMS)
def algorithm(request: pytest.FixtureRequest) -> str:
    """Each registered algorithm in turn."""
    return str(request.param)


@pytest.fixture(params=[name for name, entry in ALGORITHMS.items() if entry.needs == "keys"])
def asking(request: pytest.FixtureRequest) -> str:
    """Each algorithm that asks for batches of keys."""
    return str(request.param)


USUAL_STORES = ("memory", "arrow file, mapped", "arrow file in partitions")
PLACES = [
    pytest.param(algorithm, store, id=f"{algorithm}-{store}")
    for algorithm, entry in ALGORITHMS.items()
    for store in RELATIONS
    # Algorithms that read pages and segments see no difference between the others.
    if entry.needs == "keys" or store in USUAL_STORES
]


# Workloads -----------------------------------------------------------------------------------------------------------

STREAM_ROWS = 53
"""Not a multiple of any batch, so that the stream ends in the middle of one; nor are 37 relation rows of any page."""


def _tables(seed: int, stream_keys: dict[str, pa.Array], relation_keys: dict[str, pa.Array]) -> Workload:
    """Put columns of all layouts that can be remembered beside the keys."""
    rng = np.random.default_rng(seed)
    stream_rows, relation_rows = (len(next(iter(keys.values()))) for keys in (stream_keys, relation_keys))
    texts = pa.array([None if i % 7 == 0 else "text " * (i % 5) for i in range(relation_rows)], pa.string())
    payload = {
        "text": texts,
        "number": pa.array(rng.random(relation_rows), mask=rng.random(relation_rows) < 0.2),
        "flag": pa.array(rng.random(relation_rows) < 0.5),
    }
    stream = pa.table(stream_keys | {"row": pa.array(range(stream_rows), pa.int64())})
    return stream, pa.table(relation_keys | payload), list(stream_keys), list(relation_keys)


def _integers(seed: int, stream_below: int, relation: np.ndarray[Any, Any], nulls: float = 0.1) -> Workload:
    rng = np.random.default_rng(seed)
    asked = pa.array(rng.integers(0, stream_below, STREAM_ROWS), mask=rng.random(STREAM_ROWS) < nulls)
    return _tables(seed, {"s": asked}, {"k": pa.array(relation, pa.int64())})


def _strings(seed: int) -> Workload:
    rng = np.random.default_rng(seed)
    words = [f"{'word' * (i % 4)}{i}" for i in range(50)]
    asked = pa.array([words[i] for i in rng.integers(0, 50, STREAM_ROWS)], mask=rng.random(STREAM_ROWS) < 0.1)
    return _tables(seed, {"s": asked}, {"k": pa.array(words[:37])})


def _composite(seed: int) -> Workload:
    rng = np.random.default_rng(seed)

    def keys(count: int, names: str) -> dict[str, pa.Array]:
        letters = [("", "x", "yy")[i] for i in rng.integers(0, 3, count)]
        return {
            names[0]: pa.array(rng.integers(0, 5, count), pa.int32(), mask=rng.random(count) < 0.05),
            names[1]: pa.array(letters, mask=rng.random(count) < 0.05),
        }

    return _tables(seed, keys(STREAM_ROWS, "st"), keys(37, "kl"))


def _nested(seed: int) -> Workload:
    stream, master, *keys = _integers(seed, 40, np.arange(37) // 2)
    return stream, master.append_column("list", pa.array([[i] * (i % 3) for i in range(37)])), *keys


WORKLOADS: dict[str, Callable[[int], Workload]] = {
    "one to one": lambda seed: _integers(seed, 37, np.arange(37)),
    "one to many": lambda seed: _integers(seed, 9, np.arange(37) // 4),
    "many to many": lambda seed: _integers(seed, 7, np.arange(37) % 7),
    "one hot key": lambda seed: _integers(seed, 3, np.array([0] * 12 + [5, 6, 7])),
    "some absent": lambda seed: _integers(seed, 50, np.arange(37)),
    "mostly absent": lambda seed: _integers(seed, 10_000, np.arange(37) * 100),
    "all absent": lambda seed: _integers(seed, 10, np.arange(37) + 100),
    "all null": lambda seed: _integers(seed, 37, np.arange(37), nulls=1.0),
    "string keys": _strings,
    "composite keys": _composite,
    "nested column": _nested,
    "empty relation": lambda seed: _integers(seed, 37, np.arange(0)),
    "empty stream": lambda seed: _tables(seed, {"s": pa.array([], pa.int64())}, {"k": pa.array(range(37))}),
    "one row each": lambda seed: _tables(seed, {"s": pa.array([1])}, {"k": pa.array([1])}),
}


@pytest.fixture(params=WORKLOADS.values(), ids=list(WORKLOADS))
def workload(request: pytest.FixtureRequest) -> Callable[[int], Workload]:
    """Each kind of workload, to be drawn with a seed."""
    return request.param  # type: ignore[no-any-return]


# The same rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("algorithm", "store"), PLACES)
def test_the_rows_are_those_of_the_reference(
    algorithm: str, store: str, workload: Callable[[int], Workload], tmp_path: Path
) -> None:
    stream, master, stream_key, relation_key = workload(11)
    relation = RELATIONS[store](tmp_path / "relation", master, relation_key)
    if not relation.info.unique and not ALGORITHMS[algorithm].many_to_many:
        with pytest.raises(InvalidOption, match="unique keys"):
            run_join(relation, stream, stream_key, algorithm=algorithm)
        return
    little_bytes = 2 * max(
        least_memory_bytes(relation.info.row_bytes_max + 512), ALGORITHMS[algorithm].least_memory_bytes(relation, 512)
    )
    settings: list[tuple[int, int, int, Literal["null", "drop"]]] = [
        (1, 10, 1 << 20, "null"),
        (3, 1000, little_bytes, "drop"),
        (1000, 7, 1 << 20, "null"),
        (1000, 1000, little_bytes, "null"),
    ]
    # How the rows are cut does not depend on the store, so that one setting will do for the others.
    for rows_per_step, batch_rows, memory_bytes, on_miss in (
        settings if type(relation) is MemoryRelation else settings[-1:]
    ):
        run = run_join(
            relation,
            stream,
            stream_key,
            algorithm=algorithm,
            batch_rows=batch_rows,
            memory_bytes=memory_bytes,
            rows_per_step=rows_per_step,
            on_miss=on_miss,
            clock=FickleClock(rows_per_step + batch_rows),
        )
        assert_same_rows(run.table, reference_join(stream, master, stream_key, relation_key, on_miss))
        assert run.budget.peak_bytes <= run.budget.limit_bytes
        assert run.balance.rows_in == len(stream)


@pytest.mark.parametrize("batch_rows", [1, 7, 53])
def test_the_rows_do_not_depend_on_how_the_stream_is_cut(algorithm: str, batch_rows: int) -> None:
    case = "one to many" if ALGORITHMS[algorithm].many_to_many else "some absent"
    stream, master, stream_key, relation_key = WORKLOADS[case](batch_rows)
    relation = MemoryRelation.from_table(master, relation_key, page_rows=5)
    run = run_join(relation, stream, stream_key, algorithm=algorithm, batch_rows=batch_rows)
    assert_same_rows(run.table, reference_join(stream, master, stream_key, relation_key))


@pytest.mark.parametrize("rows_per_step", [1, 4, 1000])
def test_columns_are_answered_row_by_row_in_the_order_of_the_stream(algorithm: str, rows_per_step: int) -> None:
    stream, master, stream_key, relation_key = WORKLOADS["some absent"](rows_per_step)
    relation = MemoryRelation.from_table(master, relation_key, page_rows=5)
    driver, _ = make_driver(
        relation, stream.schema, stream_key, algorithm=algorithm, rows_per_step=rows_per_step, clock=VirtualClock()
    )
    expected = [row["text"] for row in reference_join(stream, master, stream_key, relation_key)]
    for _ in range(2):
        answered = driver.align([stream.column(name).combine_chunks() for name in stream_key])
        assert answered.columns[0].to_pylist() == expected


# Faults --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [VirtualClock, lambda: FickleClock(5)], ids=["by keys", "all ways"])
@pytest.mark.parametrize("case", ["some absent", "string keys"])
def test_whichever_read_fails_the_error_comes_out_and_a_fresh_run_is_right(
    algorithm: str, case: str, clock: Callable[[], Clock]
) -> None:
    stream, master, stream_key, relation_key = WORKLOADS[case](3)
    expected = reference_join(stream, master, stream_key, relation_key)
    inner = MemoryRelation.from_table(master, relation_key, page_rows=5)

    def run(relation: FailingRelation) -> pa.Table:
        options: dict[str, Any] = {"algorithm": algorithm, "rows_per_step": 11, "memory_bytes": 1 << 16}
        return run_join(relation, stream, stream_key, batch_rows=20, clock=clock(), **options).table

    sound = FailingRelation(inner, nth=10**9)
    assert_same_rows(run(sound), expected)
    assert sound.reads >= 3, "the workload must read more than once"
    # All of them where they are few; some of many, from the first to the last.
    for nth in sorted({*np.linspace(1, sound.reads, 20).astype(int).tolist()}):
        failing = FailingRelation(inner, nth)
        with pytest.raises(OSError, match="made to fail"):
            run(failing)
        assert failing.reads == nth
        assert_same_rows(run(failing), expected)


# Memory --------------------------------------------------------------------------------------------------------------


def _pushed(driver: JoinDriver, stream: pa.Table, key: list[str], batch_rows: int) -> list[dict[str, Any]]:
    """All rows of the stream through a driver that may have seen others before."""
    found = []
    for batch in stream.combine_chunks().to_batches(max_chunksize=batch_rows):
        found += [row for piece in driver.push(batch, key) for row in piece.to_pylist()]
    return found + [row for piece in driver.drain() for row in piece.to_pylist()]


def _listening_driver(
    algorithm: str, workload: Workload, batch_rows: int = 20
) -> tuple[ListeningRelation, JoinDriver, MemoryBudget]:
    stream, master, stream_key, relation_key = workload
    relation = ListeningRelation(MemoryRelation.from_table(master, relation_key, page_rows=5))
    driver, budget = make_driver(
        relation, stream.schema, stream_key, algorithm=algorithm, rows_per_step=batch_rows, clock=VirtualClock()
    )
    return relation, driver, budget


def test_what_was_forgotten_is_read_again(algorithm: str) -> None:
    workload = WORKLOADS["some absent"](5)
    stream, master, stream_key, relation_key = workload
    expected = reference_join(stream, master, stream_key, relation_key)
    relation, driver, _ = _listening_driver(algorithm, workload)
    assert_same_rows(_pushed(driver, stream, stream_key, 20), expected)
    first_asked = [code for call in relation.asked for code in call]
    driver.join.forget()
    relation.asked.clear()
    assert_same_rows(_pushed(driver, stream, stream_key, 20), expected)
    assert [code for call in relation.asked for code in call] == first_asked


def test_after_forgetting_nothing_of_an_older_version_comes_out(algorithm: str) -> None:
    workload = WORKLOADS["some absent"](7)
    stream, _, stream_key, relation_key = workload
    relation, driver, _ = _listening_driver(algorithm, workload)
    _pushed(driver, stream, stream_key, 20)
    # The next version has other texts, and keys that were absent before.
    keys = pa.array(np.unique(stream["s"].drop_null().to_numpy()))
    newer = pa.table(
        {
            "k": keys,
            "text": pa.array(["new"] * len(keys)),
            "number": pa.array([1.0] * len(keys)),
            "flag": [True] * len(keys),
        }
    )
    relation.become(MemoryRelation.from_table(newer, relation_key, page_rows=5))
    driver.join.forget()
    assert_same_rows(_pushed(driver, stream, stream_key, 20), reference_join(stream, newer, stream_key, relation_key))


# Counts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["one to one", "some absent", "all null", "string keys"])
def test_the_counts_are_those_of_an_observer(algorithm: str, case: str) -> None:
    workload = WORKLOADS[case](9)
    stream, _, stream_key, _ = workload
    listening, _, _ = _listening_driver(algorithm, workload)
    relation = CountingRelation(listening)
    run = run_join(
        relation, stream, stream_key, algorithm=algorithm, batch_rows=20, rows_per_step=20, clock=VirtualClock()
    )
    complete = len(stream) - stream[stream_key[0]].null_count
    assert run.stats.rows == complete == run.balance.rows_in - run.balance.null_keys
    assert run.stats.reads == relation.counts.calls
    assert run.stats.keys_read == relation.counts.keys
    assert run.stats.rows_read == relation.counts.rows
    assert run.stats.outputs == run.table.num_rows - run.balance.unmatched - run.balance.null_keys
    assert run.stats.waited == run.stats.left
    # Nobody, who was not answered from memory, or everybody: X-HYBRIDJOIN's pinned pages answer rows that wait.
    assert run.stats.waited in (0, run.stats.rows - run.stats.hits, run.stats.rows)
    assert 0 <= run.stats.hits <= run.stats.rows
    if ALGORITHMS[algorithm].needs == "keys":
        assert run.stats.reads == len(listening.asked)
        assert run.stats.keys_read == sum(map(len, listening.asked))


def test_every_row_is_answered_from_memory_or_by_a_read(asking: str) -> None:
    workload = WORKLOADS["some absent"](1)
    stream, _, stream_key, _ = workload
    stream = pa.concat_tables([stream, stream])
    relation, driver, _ = _listening_driver(asking, workload)
    misses = 0
    for batch in stream.combine_chunks().to_batches(max_chunksize=20):
        relation.asked.clear()
        list(driver.push(batch, stream_key))
        list(driver.drain())
        asked = {code for call in relation.asked for code in call}
        misses += sum(1 for code in batch.column("s").to_pylist() if code in asked)
    assert driver.join.stats.hits + misses == driver.join.stats.rows


def test_a_key_is_asked_for_once_in_a_step_however_many_rows_want_it(asking: str) -> None:
    relation, driver, _ = _listening_driver(asking, WORKLOADS["one to one"](3), batch_rows=100)
    batch = pa.record_batch({"s": [5, 7, 5, 5, 99, 7, 99, 3] * 10, "row": range(80)})
    assert len(list(driver.push(batch, ["s"]))) >= 1
    assert relation.asked == [[3, 5, 7, 99]]


# adaptive ------------------------------------------------------------------------------------------------------------


def test_adaptive_does_not_ask_again_for_keys_that_are_absent() -> None:
    relation, driver, _ = _listening_driver("adaptive", WORKLOADS["one to one"](3))
    batch = pa.record_batch({"s": [1000, 1001, 1000, 1002], "row": range(4)})
    for _ in range(5):
        list(driver.push(batch, ["s"]))
        list(driver.drain())
    assert relation.asked == [[1000, 1001, 1002]]
    assert driver.join.stats.hits == 4 * len(batch)
    assert driver.balance.unmatched == 5 * len(batch)


def test_adaptive_does_not_read_hot_keys_again() -> None:
    relation, driver, _ = _listening_driver("adaptive", WORKLOADS["one to many"](3))
    rng = np.random.default_rng(1)
    hot = np.array([2, 3, 5])
    for number in range(10):
        if number == 2:
            # Rows of one key that came in two batches are not remembered at first; then it is asked for alone.
            relation.asked.clear()
        batch = pa.record_batch({"s": np.concatenate([hot, rng.choice(hot, 12)]), "row": range(15)})
        list(driver.push(batch, ["s"]))
        list(driver.drain())
    assert relation.asked == []
    assert driver.join.stats.hits >= 8 * 15


def test_adaptive_reads_less_the_more_it_may_remember() -> None:
    rng = np.random.default_rng(4)
    relation = MemoryRelation.from_table(pa.table({"k": np.arange(3_000), "text": ["x" * 40] * 3_000}), ["k"])
    stream = pa.table({"s": np.minimum(rng.zipf(1.2, 10_000) - 1, 2_999)})
    keys_read = [
        run_join(relation, stream, ["s"], batch_rows=500, memory_bytes=limit, clock=VirtualClock()).stats.keys_read
        for limit in (1 << 15, 1 << 17, 1 << 20)
    ]
    assert keys_read[0] > keys_read[1] > keys_read[2]


# The registry --------------------------------------------------------------------------------------------------------


def test_auto_is_adaptive_and_an_unknown_name_is_answered_with_the_one_that_was_meant() -> None:
    assert algorithm_named("auto") is ALGORITHMS["adaptive"]
    with pytest.raises(InvalidOption, match=r"(?s)given: 'adaptve'; allowed: auto, adaptive.*did you mean 'adaptive'"):
        algorithm_named("adaptve")


def test_every_algorithm_says_what_it_reads_remembers_and_lets_wait(algorithm: str) -> None:
    entry = ALGORITHMS[algorithm]
    assert entry.name == algorithm
    assert entry.reads and entry.remembers and entry.waits
