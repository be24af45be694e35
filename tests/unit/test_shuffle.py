"""When rows are sent to the task of their key, and where frequent keys go."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.planning.shuffle import MICRO_BATCH_ROWS, choose_shuffle
from semistream.relations.base import RelationInfo
from semistream.relations.memory import MemoryRelation
from semistream.spark.sharing_out import spread_by_key

FAR_AWAY_S = 1e-3


def info_of(rows: int) -> RelationInfo:
    relation = MemoryRelation.from_table(pa.table({"id": np.arange(rows), "name": ["x" * 90] * rows}), ["id"])
    return relation.info


# The choice ----------------------------------------------------------------------------------------------------------


def test_a_shuffle_never_pays_for_a_relation_on_a_local_disk() -> None:
    for rows in (1_000, 50_000):
        for remembered_keys in (0, 100, 10_000):
            for tasks in (1, 2, 64, 400):
                assert not choose_shuffle(info_of(rows), remembered_keys, tasks).pays


def test_a_shuffle_pays_where_a_second_read_costs_as_much_as_the_first() -> None:
    choice = choose_shuffle(info_of(50_000), 100, tasks=16, repeated_read_s=FAR_AWAY_S)
    assert choice.pays
    assert "it would save" in choice.reason


def test_a_shuffle_of_what_is_remembered_saves_nothing() -> None:
    choice = choose_shuffle(info_of(1_000), 1_000, tasks=16, repeated_read_s=FAR_AWAY_S)
    assert not choice.pays
    assert "can be remembered" in choice.reason


def test_there_is_nothing_to_save_of_an_empty_relation() -> None:
    choice = choose_shuffle(info_of(0), 0, tasks=16, repeated_read_s=FAR_AWAY_S)
    assert not choice.pays
    assert choice.reason.endswith("is empty")


def test_the_reads_of_the_bill_are_those_of_a_drawn_stream() -> None:
    """An independent count: draw a micro-batch by Zipf's law, cut it into tasks, count distinct keys behind memory."""
    rows, tasks, remembered = 50_000, 8, 2_000
    info = info_of(rows)
    choice = choose_shuffle(info, remembered, tasks)
    weights = 1 / np.arange(1, rows + 1)
    ranks = np.random.default_rng(5).choice(rows, MICRO_BATCH_ROWS, p=weights / weights.sum())
    missed_by_task = [np.unique(part[part >= remembered]) for part in np.array_split(ranks, tasks)]
    reads = sum(len(missed) for missed in missed_by_task)
    repeated = reads - len(np.unique(np.concatenate(missed_by_task)))
    told = [float(word.replace(",", "")) for word in choice.reason.split() if word.replace(",", "").isdigit()]
    assert told[1:3] == pytest.approx([repeated, reads], rel=0.05)


# Where rows go -------------------------------------------------------------------------------------------------------


def test_rows_of_a_rare_key_stay_together() -> None:
    codes = np.random.default_rng(1).integers(0, 2_000, 10_000)
    numbers = spread_by_key(codes, 7)
    assert set(numbers.tolist()) == set(range(7))
    for code in range(2_000):
        assert len(set(numbers[codes == code].tolist())) <= 1


def test_keys_of_a_small_batch_stay_together_although_each_is_a_large_part_of_it() -> None:
    codes = np.array([1, 2, 1, 2, 1, 3])
    numbers = spread_by_key(codes, 200)
    assert len(set(numbers[codes == 1].tolist())) == len(set(numbers[codes == 2].tolist())) == 1


@pytest.mark.parametrize("hot_share", [0.3, 0.99, 1.0])
def test_no_task_gets_much_more_than_its_part_whatever_is_frequent(hot_share: float) -> None:
    rng, tasks = np.random.default_rng(2), 8
    codes = np.where(rng.random(10_000) < hot_share, 5, rng.integers(0, 10**9, 10_000))
    loads = np.bincount(spread_by_key(codes, tasks), minlength=tasks)
    assert loads.max() <= 1.3 * len(codes) / tasks


def test_a_repeated_task_sends_every_row_the_same_way() -> None:
    codes = np.random.default_rng(3).zipf(1.3, 10_000)
    assert np.array_equal(spread_by_key(codes, 5), spread_by_key(codes.copy(), 5))
