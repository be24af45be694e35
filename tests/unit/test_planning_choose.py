"""Which algorithm: every one has its bill or a reason, and the choice follows from the bills."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.cost.base import Workload
from semistream.errors import InvalidOption
from semistream.joins.registry import ALGORITHMS
from semistream.planning.capacities import Room, workload_of
from semistream.planning.charging import typical
from semistream.planning.choose import MARGIN, NO_MODEL, Choice, choose
from semistream.relations.building.build import build_relation
from semistream.relations.handle import open_handle
from semistream.relations.memory import MemoryRelation
from semistream.relations.metered import HDD, NVME

# A bill for every algorithm takes half a minute where other work goes on beside.
pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


ROWS = 20_000


def relation(rows_per_key: int = 1, page_rows: int = 50) -> MemoryRelation:
    codes = np.repeat(np.arange(ROWS // rows_per_key), rows_per_key)
    table = pa.table({"k": codes, "text": np.full(ROWS, "x" * 80)})
    return MemoryRelation.from_table(table, ["k"], page_rows=page_rows)


def chosen(
    rate: float | None, *, memory_bytes: int = 1_000_000, exponent: float = 1.0, rows_per_key: int = 1, io: object = HDD
) -> Choice:
    r, room = relation(rows_per_key), Room(memory_bytes)
    workload: Workload = workload_of(r, room, zipf_exponent=exponent, rows_per_key=rows_per_key)
    return choose(r, room, workload, typical(NVME if io is NVME else HDD), rate)


def test_every_algorithm_has_a_bill_or_a_reason() -> None:
    found = chosen(1000.0)
    assert {bill.algorithm for bill in found.bills} == set(ALGORITHMS)
    for bill in found.bills:
        assert (bill.refused is None) == (bill.service_rows_per_s > 0)
    assert {bill.algorithm for bill in found.bills if bill.refused == NO_MODEL} == {
        "ssij",
        "partition-join",
        "derakhshan",
    }


def test_partitions_without_keys_are_one_bill_that_is_missing(tmp_path: Path) -> None:
    build_relation(pa.table({"id": [1, 2], "name": ["ant", "bee"]}), key="id", out=tmp_path / "r", partitions=16)
    handle, room = open_handle(tmp_path / "r", None, None, verify=False), Room(1_000_000)
    opened = handle.open(handle.info.version, with_key=False)
    found = choose(opened, room, workload_of(opened, room, zipf_exponent=1.0), typical(HDD))
    reasons = {bill.algorithm: bill.refused for bill in found.bills}
    assert reasons["pcsrj"] == "its model needs a key in each of the 16 partitions"
    assert reasons["cachejoin"] is None


@pytest.mark.parametrize("exponent", [5.0, 50.0])
def test_a_stream_that_asks_for_hardly_more_than_one_key_has_a_bill_too(exponent: float) -> None:
    found = chosen(None, memory_bytes=4_000_000, exponent=exponent)
    assert all(0 < bill.service_rows_per_s < np.inf for bill in found.bills if bill.refused is None)
    assert found.chosen.algorithm == "adaptive"


def test_where_none_keeps_up_the_fastest_is_chosen() -> None:
    found = chosen(1e12)
    assert not any(bill.keeps_up for bill in found.bills)
    assert found.chosen.service_rows_per_s == max(bill.service_rows_per_s for bill in found.bills)
    assert found.bills[0] == found.chosen


def test_where_several_keep_up_the_one_whose_rows_wait_the_shortest_is_chosen() -> None:
    found = chosen(10.0)
    assert found.chosen.keeps_up
    enough = [bill for bill in found.bills if bill.keeps_up]
    assert len(enough) > 1
    assert found.chosen.wait_s == min(bill.wait_s for bill in enough)


def test_keeping_up_has_a_margin() -> None:
    fastest = chosen(1e12).bills[0].service_rows_per_s
    assert chosen(fastest / (1.01 * MARGIN)).bills[0].keeps_up
    assert not chosen(fastest / (0.99 * MARGIN)).bills[0].keeps_up


def test_adaptive_is_billed_for_answering_at_once_where_that_keeps_up() -> None:
    slow, fast = (next(bill for bill in chosen(rate).bills if bill.algorithm == "adaptive") for rate in (1000.0, 1e12))
    assert slow.keeps_up
    assert slow.wait_s < fast.wait_s
    assert slow.service_rows_per_s < fast.service_rows_per_s


def test_without_a_rate_the_fastest_is_chosen_and_nobody_is_said_to_keep_up() -> None:
    found = chosen(None)
    assert found.chosen.service_rows_per_s == max(bill.service_rows_per_s for bill in found.bills)
    assert not any(bill.keeps_up for bill in found.bills)
    assert found.as_json()["arrival_rows_per_s"] is None


def test_algorithms_for_unique_keys_are_left_out_where_keys_repeat() -> None:
    refused = {bill.algorithm: bill.refused for bill in chosen(10.0, rows_per_key=4).bills if bill.refused}
    assert refused["x-hybridjoin"] == refused["optimised-x-hybridjoin"] == "keys of the relation repeat"
    assert "moij" not in refused


def test_more_memory_never_makes_the_best_slower() -> None:
    rates = [chosen(1e12, memory_bytes=size).chosen.service_rows_per_s for size in (300_000, 1_000_000, 3_000_000)]
    assert rates == sorted(rates)


def test_memory_that_is_too_small_for_pages_leaves_those_that_read_keys() -> None:
    found = chosen(1.0, memory_bytes=15_000)
    possible = {bill.algorithm for bill in found.bills if bill.refused is None}
    assert possible <= {"adaptive", "inlj"}
    assert possible
    with pytest.raises(InvalidOption, match="no algorithm can join"):
        chosen(1.0, memory_bytes=3000)


def test_the_bills_can_be_printed_and_sent() -> None:
    found = chosen(1000.0, io=NVME)
    assert found.as_text().count("<- chosen") == 1
    assert len(found.as_text().splitlines()) == 1 + len(ALGORITHMS)
    assert json.loads(json.dumps(found.as_json()))["chosen"]["algorithm"] == found.chosen.algorithm
