"""What workers have room for, beside the operators that are built in that room."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from semistream.budget import MIB
from semistream.clock import VirtualClock
from semistream.joins.cachejoin import CacheJoin
from semistream.joins.derakhshan import OrderedCacheJoin
from semistream.joins.partition_join import PartitionJoin
from semistream.joins.ssij import SemiStreamedIndexJoin
from semistream.planning.capacities import Room
from semistream.relations.memory import MemoryRelation
from semistream.spark.memory_parts import BATCH_ROWS, MemoryParts, remembered_keys

ROWS, STREAM_ROW_BYTES = 200_000, 40


@pytest.fixture(scope="module")
def relation() -> MemoryRelation:
    return MemoryRelation.from_table(pa.table({"id": np.arange(ROWS), "name": np.full(ROWS, "x" * 60)}), ["id"])


def told(algorithm: str, relation: MemoryRelation, memory_bytes: int) -> float:
    return remembered_keys(algorithm, relation, MemoryParts(memory_bytes, 0, 0), STREAM_ROW_BYTES, BATCH_ROWS)


@pytest.mark.parametrize("memory_bytes", [4 * MIB, 16 * MIB])
def test_keys_that_are_told_are_about_those_that_operators_have_room_for(
    relation: MemoryRelation, memory_bytes: int
) -> None:
    room, row_bytes = Room(memory_bytes, STREAM_ROW_BYTES, BATCH_ROWS), relation.info.row_bytes_mean
    cached = CacheJoin(relation, room.resources(VirtualClock())).held.entries_max
    assert told("cachejoin", relation, memory_bytes) == pytest.approx(cached, rel=0.01)
    for name, build in (("ssij", SemiStreamedIndexJoin), ("partition-join", PartitionJoin)):
        resident = build(relation, room.resources(VirtualClock())).resident.bytes_max / row_bytes
        assert 0.5 * resident < told(name, relation, memory_bytes) < resident
    recent = OrderedCacheJoin(relation, room.resources(VirtualClock())).cache.entries_max
    assert recent < told("derakhshan", relation, memory_bytes) < 5 * recent


@pytest.mark.parametrize("algorithm", ["cachejoin", "moij", "ssij", "partition-join", "derakhshan"])
def test_no_more_keys_are_told_than_there_are(relation: MemoryRelation, algorithm: str) -> None:
    assert told(algorithm, relation, 256 * MIB) == ROWS
