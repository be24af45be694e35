"""The join of Derakhshan et al.: order, recency, one query a step."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa
import pytest

from semistream.joins.derakhshan import RecentKeys
from semistream.joins.reference import reference_join
from semistream.keys import KeyCodec, KeyCodes
from semistream.relations.memory import MemoryRelation
from tests.support.oracle import assert_same_rows
from tests.support.running import make_driver, run_join

pytestmark = pytest.mark.long


ROWS = pa.record_batch({"__code": np.arange(100), "text": ["x" * 20] * 100})


@pytest.mark.parametrize("rows_per_step", [1, 30, 1000])
@pytest.mark.parametrize("memory_bytes", [1 << 14, 1 << 20])
def test_pairs_come_in_the_order_of_the_stream(rows_per_step: int, memory_bytes: int) -> None:
    rng = np.random.default_rng(rows_per_step)
    master = pa.table({"k": np.arange(900) // 3, "value": np.arange(900)})
    stream = pa.table({"s": np.minimum(rng.zipf(1.3, 2000), 400), "row": np.arange(2000)})
    relation = MemoryRelation.from_table(master, ["k"], page_rows=20)
    options = {"memory_bytes": memory_bytes, "rows_per_step": rows_per_step, "on_miss": "drop"}
    run = run_join(relation, stream, ["s"], algorithm="derakhshan", batch_rows=500, **options)
    rows = run.table["row"].to_numpy()
    assert bool(np.all(rows[1:] >= rows[:-1]))
    assert run.stats.hits > 0 or memory_bytes < 1 << 20
    assert_same_rows(run.table, reference_join(stream, master, ["s"], ["k"], "drop"))


WORKLOADS: dict[str, tuple[int, int]] = {
    # The highest key asked for, and how many rows of R share a key.
    "one to one": (300, 1),
    "some absent": (600, 1),
    "mostly absent": (6000, 1),
    "many to many": (60, 6),
    "many to many, some absent": (90, 6),
}


@pytest.mark.parametrize("on_miss", ["null", "default"])
@pytest.mark.parametrize("case", WORKLOADS)
@pytest.mark.parametrize("batch_rows", [1, 7, 53])
@pytest.mark.parametrize("rows_per_step", [1, 10, 1000])
def test_output_comes_in_the_order_of_the_stream_with_rows_that_have_no_partner(
    rows_per_step: int, batch_rows: int, case: str, on_miss: Literal["null", "default"]
) -> None:
    keys_below, rows_per_key = WORKLOADS[case]
    rng = np.random.default_rng(rows_per_step + batch_rows)
    master = pa.table({"k": np.arange(300) // rows_per_key, "value": np.arange(300)})
    asked = pa.array(rng.integers(0, keys_below, 200), mask=rng.random(200) < 0.1)
    stream = pa.table({"s": asked, "row": np.arange(200)})
    relation = MemoryRelation.from_table(master, ["k"], page_rows=20)
    for memory_bytes in (1 << 14, 1 << 20):
        run = run_join(
            relation,
            stream,
            ["s"],
            algorithm="derakhshan",
            batch_rows=batch_rows,
            rows_per_step=rows_per_step,
            memory_bytes=memory_bytes,
            on_miss=on_miss,
            defaults={"value": -1},
        )
        expected = reference_join(stream, master, ["s"], ["k"], on_miss, {"value": -1})
        assert run.table.to_pylist() == expected
        assert run.budget.peak_bytes <= memory_bytes


def test_rows_without_a_partner_stand_between_those_of_a_key_that_does_not_fit() -> None:
    master = pa.table({"k": np.repeat([1, 2], [3000, 1]), "value": np.arange(3001)})
    stream = pa.table({"s": pa.array([9, 1, None, 9, 1, None, 2, 9]), "row": range(8)})
    run = run_join(
        MemoryRelation.from_table(master, ["k"]), stream, ["s"], algorithm="derakhshan", memory_bytes=1 << 15
    )
    assert run.table["row"].to_pylist() == [0] + [1] * 3000 + [2, 3] + [4] * 3000 + [5, 6, 7]


def test_keys_whose_hashes_collide_keep_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def few_codes(self: KeyCodec, columns: list[pa.Array]) -> KeyCodes:
        return KeyCodes(np.array([len(str(text)) % 3 for text in columns[0].to_pylist()]), None)

    monkeypatch.setattr(KeyCodec, "encode", few_codes)
    master = pa.table({"k": ["a", "bb", "ccc", "dddd"], "value": range(4)})
    stream = pa.table({"s": ["zz", "a", "dddd", "x", "bb", "yyyy", "ccc"], "row": range(7)})
    for rows_per_step in (1, 3, 100):
        relation = MemoryRelation.from_table(master, ["k"])
        run = run_join(relation, stream, ["s"], algorithm="derakhshan", rows_per_step=rows_per_step)
        assert run.table["row"].to_pylist() == list(range(7))
        assert run.table["value"].to_pylist() == [None, 0, 3, None, 1, None, 2]


def test_rows_of_one_key_that_do_not_fit_come_in_order_too() -> None:
    master = pa.table({"k": np.repeat([1, 2, 3], [5000, 1, 2]), "value": np.arange(5003)})
    stream = pa.table({"s": [3, 1, 2, 1, 9, 3], "row": range(6)})
    relation = MemoryRelation.from_table(master, ["k"])
    run = run_join(relation, stream, ["s"], algorithm="derakhshan", memory_bytes=1 << 15, on_miss="drop")
    assert run.table["row"].to_pylist() == [0] * 2 + [1] * 5000 + [2] + [3] * 5000 + [5] * 2
    assert run.budget.peak_bytes <= 1 << 15


def test_a_step_asks_once_and_a_hit_asks_not_at_all() -> None:
    master = pa.table({"k": np.arange(50), "value": np.arange(50)})
    driver, _ = make_driver(
        MemoryRelation.from_table(master, ["k"]), pa.schema([("s", pa.int64())]), ["s"], algorithm="derakhshan"
    )
    for asked, reads, keys in (([4, 4, 8], 1, 2), ([8, 4], 1, 2), ([8, 5, 4, 6], 2, 4), ([60], 3, 5), ([60], 4, 6)):
        list(driver.push(pa.record_batch({"s": asked}), ["s"]))
        assert (driver.join.stats.reads, driver.join.stats.keys_read) == (reads, keys)
    assert driver.join.stats.hits == 4


def recent_keys(room: int) -> RecentKeys:
    row_bytes = RecentKeys(ROWS.schema, 1 << 20, 30.0).bytes_of(ROWS, np.array([0]), np.array([1]))[0]
    keys = RecentKeys(ROWS.schema, 1 << 20, float(row_bytes), entries_max=room)
    assert keys.entries_max == room
    return keys


def hold(keys: RecentKeys, codes: list[int]) -> None:
    codes_held = np.array(codes)
    keys.hold(ROWS, codes_held, codes_held, np.ones(len(codes), np.int64))


def held(keys: RecentKeys) -> list[int]:
    uses = keys.uses.copy()
    found = np.flatnonzero(keys.probe(np.arange(100))[1]).tolist()
    keys.uses[:] = uses
    return found


def test_the_least_recently_used_make_room() -> None:
    keys = recent_keys(4)
    for codes in ([1, 2], [3], [4]):
        keys.begin_step()
        hold(keys, codes)
    keys.begin_step()
    keys.probe(np.array([1, 77]))
    hold(keys, [5])
    assert held(keys) == [1, 3, 4, 5]
    keys.begin_step()
    hold(keys, [6, 7])
    assert held(keys) == [1, 5, 6, 7]
    assert keys.evicted == 3


@pytest.mark.parametrize("seed", range(5))
def test_recency_is_that_of_an_ordered_dictionary(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys, model = recent_keys(10), dict[int, int]()
    for step in range(200):
        keys.begin_step()
        asked = np.unique(rng.integers(0, 30, int(rng.integers(1, 6))))
        missed = asked[keys.probe(asked)[1] == 0]
        assert missed.tolist() == [code for code in asked.tolist() if code not in model], f"seed {seed}"
        hold(keys, missed.tolist())
        for code in asked.tolist():
            if code in model:
                model[code] = step
        needed = len(model) + len(missed) - 10
        for code in sorted(model, key=model.__getitem__)[: max(0, needed)]:
            del model[code]
        model |= dict.fromkeys(missed.tolist(), step)
        assert held(keys) == sorted(model), f"seed {seed}, step {step}"


def test_steps_never_turn_over() -> None:
    keys = recent_keys(4)
    keys.step_number = 2**30 - 3
    for code in range(6):
        keys.begin_step()
        hold(keys, [code])
    assert held(keys) == [2, 3, 4, 5]
    assert keys.step_number < 2**30
