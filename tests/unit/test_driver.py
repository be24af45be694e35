"""What the driver does around any operator: nulls, hashed keys, misses, pieces of output, and the balance."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.clock import VirtualClock
from semistream.errors import BalanceBroken, UnmatchedKey
from semistream.joins.balance import Balance
from semistream.joins.base import JoinResources, Numbers, SemiStreamJoin
from semistream.joins.driver import JoinDriver
from semistream.joins.output import ON_MISS, OutputColumns
from semistream.joins.reference import reference_join
from semistream.joins.registry import ALGORITHMS
from semistream.keys import KeyCodec, KeyCodes
from semistream.relations.base import CODE_COLUMN
from semistream.relations.memory import MemoryRelation
from tests.support.operators import FaultyJoin, WaitingJoin
from tests.support.oracle import assert_same_rows
from tests.support.running import make_driver, run_join

MIB = 1 << 20

PRODUCTS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, None], pa.int64()),
        "name": ["ant", None, "cow", "dog", "ghost"],
        "price": pa.array([1.5, 2.5, None, 4.5, 0.0]),
        "since": pa.array([datetime.date(2020, 1, day) for day in range(1, 6)]),
        "tags": pa.array([["a"], [], None, ["b", "c"], ["d"]], pa.list_(pa.string())),
    }
)
SALES = pa.table({"sku": pa.array([3, None, 9, 1, 3, 2, None, 1, 7], pa.int64()), "row": range(9)})
DEFAULTS = {"name": "unknown", "price": 0.0, "since": datetime.date(1970, 1, 1)}


@pytest.fixture(params=["adaptive", "inlj"])
def algorithm(request: pytest.FixtureRequest) -> str:
    """Each algorithm that answers in the order of the stream; the others are held by the contract suite."""
    return str(request.param)


def products() -> MemoryRelation:
    return MemoryRelation.from_table(PRODUCTS, ["id"])


def aligned_rows(driver: JoinDriver, keys: Sequence[pa.Array], names: Sequence[str]) -> list[dict[str, Any]]:
    answer = driver.align(keys)
    return list(pa.RecordBatch.from_arrays(answer.columns, names=list(names)).to_pylist())


# Misses and nulls ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_miss", ["null", "drop", "default"])
@pytest.mark.parametrize("batch_rows", [1, 4, 100])
def test_rows_without_a_partner_are_treated_as_asked(algorithm: str, on_miss: Any, batch_rows: int) -> None:
    run = run_join(
        products(), SALES, ["sku"], algorithm=algorithm, on_miss=on_miss, defaults=DEFAULTS, batch_rows=batch_rows
    )
    assert_same_rows(run.table, reference_join(SALES, PRODUCTS, ["sku"], ["id"], on_miss, DEFAULTS))
    assert run.balance == Balance(rows_in=9, matched=5, unmatched=2, null_keys=2)


@pytest.mark.parametrize(("keys", "named"), [([1, 8, 7], "8"), ([1, None], "None")])
def test_a_miss_can_be_an_error_that_names_the_key_and_the_ways_out(
    algorithm: str, keys: list[int | None], named: str
) -> None:
    stream = pa.table({"sku": pa.array(keys, pa.int64())})
    with pytest.raises(UnmatchedKey) as caught:
        run_join(products(), stream, ["sku"], algorithm=algorithm, on_miss="error")
    assert f"given: the first has the key ({named})" in str(caught.value)
    assert all(f'"{policy}"' in str(caught.value) for policy in ON_MISS if policy != "error")


def test_an_error_on_a_miss_lets_a_stream_without_misses_pass(algorithm: str) -> None:
    stream = pa.table({"sku": [4, 4, 1]})
    run = run_join(products(), stream, ["sku"], algorithm=algorithm, on_miss="error")
    assert run.table.column("name").to_pylist() == ["dog", "dog", "ant"]


def test_the_key_in_an_error_is_that_of_all_its_columns() -> None:
    relation = MemoryRelation.from_table(pa.table({"a": [1], "b": ["x"], "v": [0]}), ["a", "b"])
    stream = pa.table({"a": [1, 1], "b": ["x", "why"]})
    with pytest.raises(UnmatchedKey, match=r"\(1, why\)"):
        run_join(relation, stream, ["a", "b"], on_miss="error")


def test_a_default_does_not_replace_a_null_that_the_relation_holds(algorithm: str) -> None:
    stream = pa.table({"sku": pa.array([2, 5, None], pa.int64())})
    defaults = DEFAULTS | {"price": 0}
    run = run_join(products(), stream, ["sku"], algorithm=algorithm, on_miss="default", defaults=defaults)
    by_key = {row["sku"]: row for row in run.table.to_pylist()}
    assert by_key[2]["name"] is None
    assert by_key[5]["name"] == by_key[None]["name"] == "unknown"
    assert by_key[5]["price"] == 0.0, "a default is cast to the type of its column"
    assert by_key[5]["tags"] is None, "a column without a default stays null"


def test_a_batch_of_nothing_but_nulls_never_reaches_the_operator(algorithm: str) -> None:
    stream = pa.table({"sku": pa.nulls(5, pa.int64()), "row": range(5)})
    run = run_join(products(), stream, ["sku"], algorithm=algorithm)
    assert run.table.column("row").to_pylist() == list(range(5))
    assert run.table.column("name").null_count == 5
    assert run.stats.rows == 0
    assert run.balance == Balance(rows_in=5, null_keys=5)


def test_empty_batches_pass_without_a_trace(algorithm: str) -> None:
    driver, _ = make_driver(products(), SALES.schema, ["sku"], algorithm=algorithm)
    empty = SALES.to_batches()[0].slice(0, 0)
    for _ in range(3):
        assert list(driver.push(empty, ["sku"])) == []
    assert list(driver.drain()) == []
    assert driver.is_idle
    assert driver.balance == Balance()
    assert driver.align([empty.column("sku")]).columns[0].to_pylist() == []


def test_columns_of_the_stream_come_through_whatever_their_type(algorithm: str) -> None:
    stream = SALES.append_column("list", pa.array([[i] * i for i in range(9)]))
    stream = stream.append_column("dictionary", pa.array(list("abcabcabc")).dictionary_encode())
    run = run_join(products(), stream, ["sku"], algorithm=algorithm, batch_rows=4)
    assert_same_rows(run.table, reference_join(stream, PRODUCTS, ["sku"], ["id"]))


def test_output_columns_can_be_a_choice_under_other_names() -> None:
    relation = products()
    budget = MemoryBudget(MIB)
    join = ALGORITHMS["adaptive"].build(relation, JoinResources(budget, VirtualClock(), 100))
    output = OutputColumns(
        pa.schema([("price", pa.float64()), ("name", pa.string())]),
        ("product price", "product"),
        on_miss="default",
        defaults={"product": "?"},
    )
    driver = JoinDriver(join, KeyCodec([pa.int64()]), output, budget)
    batch = pa.record_batch({"sku": [3, 9]})
    rows = [row for piece in [*driver.push(batch, ["sku"]), *driver.drain()] for row in piece.to_pylist()]
    assert sorted(rows, key=lambda row: row["sku"]) == [
        {"sku": 3, "product price": None, "product": "cow"},
        {"sku": 9, "product price": None, "product": "?"},
    ]


# Hashed keys ---------------------------------------------------------------------------------------------------------


class CrowdedCodec(KeyCodec):
    """All keys share three codes."""

    def encode(self, columns: Sequence[pa.Array]) -> KeyCodes:
        encoded = super().encode(columns)
        return KeyCodes(np.mod(encoded.codes, 3), encoded.null)


def crowded_driver(table: pa.Table, algorithm: str, rows_per_step: int = 1000) -> JoinDriver:
    """A driver over a relation whose keys share three codes, for a stream whose keys share them too."""
    codec = CrowdedCodec([pa.string()])
    codes = codec.encode([table.column("key").combine_chunks()]).codes
    order = np.argsort(codes, kind="stable")
    rows = table.take(pa.array(order)).add_column(0, CODE_COLUMN, pa.array(codes[order]))
    relation = MemoryRelation(rows, ["key"], page_rows=4, unique=len(set(table["key"].to_pylist())) == len(table))
    budget = MemoryBudget(MIB)
    join = ALGORITHMS[algorithm].build(relation, JoinResources(budget, VirtualClock(), rows_per_step))
    return JoinDriver(join, codec, OutputColumns(table.select(["value"]).schema, ("value",), ("key",)), budget)


KEYED = pa.table({"key": [f"key {i}" for i in range(20)], "value": range(20)})
KEYED_TWICE = pa.table({"key": [f"key {i // 2}" for i in range(20)], "value": range(20)})
ASKED = pa.table({"s": [f"key {i}" for i in (3, 99, 3, 0, 19, 41, 7, 8, 9, 40)], "row": range(10)})


@pytest.mark.parametrize("master", [KEYED, KEYED_TWICE], ids=["unique", "two rows a key"])
@pytest.mark.parametrize("rows_per_step", [1, 4, 1000])
def test_keys_that_share_a_code_are_told_apart(algorithm: str, master: pa.Table, rows_per_step: int) -> None:
    driver = crowded_driver(master, algorithm, rows_per_step)
    for _ in range(3):  # The second and third time from memory, where the operator has one.
        found = [row for piece in driver.push(ASKED.to_batches()[0], ["s"]) for row in piece.to_pylist()]
        found += [row for piece in driver.drain() for row in piece.to_pylist()]
        assert_same_rows(found, reference_join(ASKED, master, ["s"], ["key"]))
    assert driver.balance.unmatched == 3 * sum(
        1 for key in ASKED["s"].to_pylist() if key not in master["key"].to_pylist()
    )


@pytest.mark.parametrize("rows_per_step", [1, 4, 1000])
def test_keys_that_share_a_code_are_told_apart_in_columns_too(algorithm: str, rows_per_step: int) -> None:
    keys = [ASKED["s"].combine_chunks()]
    unique = crowded_driver(KEYED, algorithm, rows_per_step)
    expected = [row["value"] for row in reference_join(ASKED, KEYED, ["s"], ["key"])]
    for _ in range(2):
        assert unique.align(keys).columns[0].to_pylist() == expected
    grouped = crowded_driver(KEYED_TWICE, algorithm, rows_per_step).group(keys)
    assert grouped.columns[0].to_pylist() == [6, 7, 6, 7, 0, 1, 14, 15, 16, 17, 18, 19]


# One answer a row ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_per_step", [1, 2, 1000])
def test_align_answers_in_the_order_of_the_stream(algorithm: str, rows_per_step: int) -> None:
    driver, budget = make_driver(products(), SALES.schema, ["sku"], algorithm=algorithm, rows_per_step=rows_per_step)
    keys = SALES["sku"].combine_chunks()
    names = ["name", "price", "since", "tags"]
    expected = [{name: row[name] for name in names} for row in reference_join(SALES, PRODUCTS, ["sku"], ["id"])]
    for _ in range(3):
        assert aligned_rows(driver, [keys], names) == expected
        assert driver.is_idle
    assert driver.align([keys]).matched.tolist() == [True, False, False, True, True, True, False, True, False]
    assert driver.balance == Balance(rows_in=36, matched=20, unmatched=8, null_keys=8)
    assert budget.peak_bytes <= budget.limit_bytes


def test_align_fills_in_defaults_and_refuses_misses(algorithm: str) -> None:
    keys = [pa.array([1, None, 6])]
    driver, _ = make_driver(
        products(), SALES.schema, ["sku"], algorithm=algorithm, on_miss="default", defaults=DEFAULTS
    )
    assert driver.align(keys).columns[0].to_pylist() == ["ant", "unknown", "unknown"]
    strict, _ = make_driver(products(), SALES.schema, ["sku"], algorithm=algorithm, on_miss="error")
    with pytest.raises(UnmatchedKey, match="None"):
        strict.align(keys)


@pytest.mark.parametrize("rows_per_step", [1, 2, 1000])
def test_group_answers_each_row_with_all_its_partners(algorithm: str, rows_per_step: int) -> None:
    table = pa.table({"id": [5, 1, 5, 2, 5], "v": [10, 20, 30, 40, 50]})
    stream = pa.schema([("sku", pa.int64())])
    driver, _ = make_driver(
        MemoryRelation.from_table(table, ["id"]), stream, ["sku"], algorithm=algorithm, rows_per_step=rows_per_step
    )
    for _ in range(2):
        grouped = driver.group([pa.array([2, 7, 5, None, 5, 1])])
        lists = np.split(grouped.columns[0].to_numpy(), grouped.offsets[1:-1])
        assert [sorted(values.tolist()) for values in lists] == [[40], [], [10, 30, 50], [], [10, 30, 50], [20]]
        assert grouped.offsets[0] == 0 and grouped.offsets[-1] == len(grouped.columns[0])
    nothing = driver.group([pa.array([], pa.int64())])
    assert nothing.offsets.tolist() == [0]


# Output in pieces ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("memory_bytes", [64 << 10, 256 << 10, 4 * MIB])
def test_pieces_of_output_stay_within_what_the_operator_leaves_free(algorithm: str, memory_bytes: int) -> None:
    # One hot key with many large partners: far more output than any of the budgets.
    table = pa.table({"id": [1] * 300 + [2], "text": ["x" * 700] * 300 + ["y"], "v": range(301)})
    stream = pa.table({"sku": [1, 2, 1, 3] * 20, "note": ["n" * 20] * 80, "row": range(80)})
    relation = MemoryRelation.from_table(table, ["id"])
    driver, budget = make_driver(relation, stream.schema, ["sku"], algorithm=algorithm, memory_bytes=memory_bytes)
    rows = 0
    for batch in stream.to_batches(max_chunksize=64):
        for piece in driver.push(batch, ["sku"]):
            # Offsets have one number more than rows, and bits come in bytes.
            assert piece.nbytes <= driver.join.output_bytes_max + 8 * piece.num_columns
            rows += len(piece)
    rows += sum(len(piece) for piece in driver.drain())
    assert rows == 40 * 300 + 20 + 20
    assert budget.peak_bytes <= budget.limit_bytes
    assert budget.used_by_account()["output"] == 0


def test_a_row_larger_than_a_piece_still_goes_out_alone() -> None:
    relation = MemoryRelation.from_table(pa.table({"id": [1, 2], "text": ["x" * 20_000, "y" * 20_000]}), ["id"])
    stream = pa.table({"sku": [1, 2, 1], "note": ["n" * 10_000] * 3})
    driver, _ = make_driver(relation, stream.schema, ["sku"], memory_bytes=MIB)
    driver.join.output_bytes_max = 100
    pieces = [*driver.push(stream.to_batches()[0], ["sku"]), *driver.drain()]
    assert [len(piece) for piece in pieces] == [1, 1, 1]


# Rows that wait ------------------------------------------------------------------------------------------------------


def waiting_driver(
    join: Callable[[pa.RecordBatch], SemiStreamJoin], master: pa.Table, on_miss: Any = "null"
) -> JoinDriver:
    relation = MemoryRelation.from_table(master, ["id"])
    whole = pa.Table.from_batches([relation.segment(i) for i in range(relation.segment_count)]).combine_chunks()
    payload = pa.schema([field for field in master.schema if field.name != "id"])
    output = OutputColumns(payload, tuple(payload.names), on_miss=on_miss)
    return JoinDriver(join(whole.to_batches()[0]), KeyCodec([pa.int64()]), output, MemoryBudget(4 * MIB))


MANY = pa.table({"id": [0, 1, 1, 2, 4, 4, 4], "v": range(7)})


def random_stream(seed: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    keys = pa.array(rng.integers(0, 6, rows), mask=rng.random(rows) < 0.1)
    return pa.table({"sku": keys, "row": range(rows)})


@pytest.mark.parametrize("on_miss", ["null", "drop"])
@pytest.mark.parametrize(("capacity", "patience"), [(1, 1), (5, 3), (17, 50), (1000, 7)])
@pytest.mark.parametrize("batch_rows", [1, 10, 33])
def test_rows_may_wait_over_several_batches(capacity: int, patience: int, batch_rows: int, on_miss: Any) -> None:
    driver = waiting_driver(lambda master: WaitingJoin(master, capacity, patience), MANY, on_miss)
    stream = random_stream(capacity, 100)
    found: list[dict[str, Any]] = []
    waited = 0
    for batch in stream.to_batches(max_chunksize=batch_rows):
        found += [row for piece in driver.push(batch, ["sku"]) for row in piece.to_pylist()]
        waited = max(waited, driver.join.waiting_rows)
    assert waited <= capacity
    found += [row for piece in driver.drain() for row in piece.to_pylist()]
    assert driver.is_idle
    assert driver.balance.rows_in == 100
    assert_same_rows(found, reference_join(stream, MANY, ["sku"], ["id"], on_miss))


def test_a_driver_goes_on_after_it_was_drained() -> None:
    driver = waiting_driver(lambda master: WaitingJoin(master, 20, 5), MANY)
    stream = random_stream(3, 60)
    found = []
    for batch in stream.to_batches(max_chunksize=20):
        pieces = [*driver.push(batch, ["sku"]), *driver.drain()]
        found += [row for piece in pieces for row in piece.to_pylist()]
        assert driver.is_idle
    assert_same_rows(found, reference_join(stream, MANY, ["sku"], ["id"]))


def test_rows_that_wait_are_answered_within_one_call_of_align() -> None:
    unique = pa.table({"id": [0, 1, 2, 4], "v": range(4)})
    driver = waiting_driver(lambda master: WaitingJoin(master, 6, 4), unique)
    stream = random_stream(4, 40)
    expected = [row["v"] for row in reference_join(stream, unique, ["sku"], ["id"])]
    assert driver.align([stream["sku"].combine_chunks()]).columns[0].to_pylist() == expected


# The balance ---------------------------------------------------------------------------------------------------------


FAULTS: dict[str, Callable[[Numbers, int], Numbers]] = {
    "a row is never finished": lambda rows, step: rows[1:] if step == 2 else rows,
    "the last row is never finished": lambda rows, step: rows[1:] if step == 3 else rows,
    "a row is finished in two steps": lambda rows, step: np.append(rows, 0) if step == 3 else rows,
    "a row is finished twice in one step": lambda rows, step: rows[[0, 1, 1]] if step == 2 else rows,
    "one row is finished twice, another never": lambda rows, step: rows[[0, 0]] if step == 2 else rows,
}


def test_an_operator_without_a_fault_balances() -> None:
    driver = waiting_driver(lambda master: FaultyJoin(master, lambda rows, _: rows), MANY)
    stream = pa.table({"sku": [0, 1, 2, 9, 4, 4], "row": range(6)})
    pieces = [*driver.push(stream.to_batches()[0], ["sku"]), *driver.drain()]
    assert_same_rows([row for p in pieces for row in p.to_pylist()], reference_join(stream, MANY, ["sku"], ["id"]))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("way", ["push", "align"])
def test_a_row_that_is_lost_or_doubled_stops_everything(fault: Callable[[Numbers, int], Numbers], way: str) -> None:
    unique = pa.table({"id": [0, 1, 2, 4], "v": range(4)})
    driver = waiting_driver(lambda master: FaultyJoin(master, fault), unique)
    batch = pa.record_batch({"sku": [0, 1, 2, 9, 4, 4]})
    with pytest.raises(BalanceBroken, match=r"(balance|finished|lost|doubled)"):
        if way == "push":
            list(driver.push(batch, ["sku"]))
            list(driver.drain())
        else:
            driver.align(batch.columns)


def test_a_balance_that_does_not_add_up_shows_all_its_parts() -> None:
    Balance(rows_in=7, matched=4, unmatched=2, null_keys=1).check()
    with pytest.raises(BalanceBroken, match="in 7, matched 4, unmatched 2, null keys 0"):
        Balance(rows_in=7, matched=4, unmatched=2).check()
