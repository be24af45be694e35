"""How remembered rows, absent keys and frequencies share what is for remembering."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MemoryBudget
from semistream.joins.knowledge import Knowledge, hints_bytes
from semistream.relations.memory import MemoryRelation

KEYS = 5_000
REMEMBERING_BYTES = 100_000


@pytest.fixture(scope="module")
def relation() -> MemoryRelation:
    table = pa.table({"k": np.arange(KEYS), "n": np.arange(KEYS)})
    return MemoryRelation.from_table(table, ["k"], page_rows=KEYS)


def filled(relation: MemoryRelation) -> tuple[Knowledge, MemoryBudget]:
    """Knowledge that has no room left, and its budget, which is for nothing else."""
    budget = MemoryBudget(REMEMBERING_BYTES)
    knowledge = Knowledge(relation, budget, REMEMBERING_BYTES)
    codes = np.arange(KEYS)
    knowledge.count_missed(codes, np.ones(KEYS, np.int64))
    knowledge.learn(relation.segment(0), codes, codes, np.ones(KEYS, np.int64))
    knowledge.settle()
    return knowledge, budget


def test_while_no_key_is_absent_nearly_all_of_the_memory_is_used(relation: MemoryRelation) -> None:
    knowledge, budget = filled(relation)
    rows_bytes = REMEMBERING_BYTES - hints_bytes(relation, REMEMBERING_BYTES)
    assert knowledge.remembered.used_bytes > rows_bytes
    assert 0.97 * REMEMBERING_BYTES <= sum(budget.used_by_account().values()) <= REMEMBERING_BYTES
    assert not knowledge.known_absent(np.array([-1, KEYS])).any()


def test_the_first_absent_keys_make_room_for_themselves(relation: MemoryRelation) -> None:
    knowledge, budget = filled(relation)
    absent = np.array([-1, KEYS])
    knowledge.learn_absent(absent)
    knowledge.settle()
    assert knowledge.known_absent(absent).all()
    assert knowledge.remembered.used_bytes <= REMEMBERING_BYTES - hints_bytes(relation, REMEMBERING_BYTES)
    assert sum(budget.used_by_account().values()) <= REMEMBERING_BYTES
    assert len(knowledge.remembered) > 0.9 * len(filled(relation)[0].remembered)


def test_nothing_is_moved_before_all_is_settled(relation: MemoryRelation) -> None:
    knowledge, _ = filled(relation)
    keys = len(knowledge.remembered)
    knowledge.learn_absent(np.array([-1]))
    assert len(knowledge.remembered) == keys


def test_what_was_lent_is_lent_again_when_the_rows_get_another_size(relation: MemoryRelation) -> None:
    knowledge, _ = filled(relation)
    knowledge.resize(knowledge.rows_bytes_max // 2)
    half_bytes = knowledge.remembered.used_bytes
    assert half_bytes <= REMEMBERING_BYTES
    knowledge.learn_absent(np.array([-1]))
    knowledge.settle()
    assert knowledge.remembered.used_bytes <= knowledge.rows_bytes_max // 2 < half_bytes
