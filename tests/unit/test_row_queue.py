"""The queue against an ordered dictionary."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest

from semistream.structures.row_queue import ABSENT, RowQueue

Int64s = npt.NDArray[np.int64]
Model = dict[int, int]
"""Row numbers and their codes, oldest first."""

INT64 = np.iinfo(np.int64)
EXTREMES = [0, -1, 1, INT64.min, INT64.max]


def ints(*values: int) -> Int64s:
    return np.array(values, dtype=np.int64)


def check_invariants(queue: RowQueue, model: Model) -> None:
    ring = [queue._anchor]
    while (following := int(queue._next[ring[-1]])) != queue._anchor:
        assert queue._previous[following] == ring[-1], "the list is broken backwards"
        ring.append(following)
        assert len(ring) <= queue.rows_max + 1, "the list does not end"
    assert queue._previous[queue._anchor] == ring[-1], "the newest row is not the last"
    assert ring[1:] == list(model)
    assert [int(queue._codes[row]) for row in model] == list(model.values())
    assert np.count_nonzero(queue._next[:-1] != ABSENT) == len(model), "a removed row is still linked"
    assert len(queue) == len(model)
    everything = np.arange(queue.rows_max)
    assert queue.holds(everything).tolist() == [row in model for row in everything]
    if model:
        row, code = next(iter(model.items()))
        assert queue.oldest() == (code, row)


def push_random_rows(queue: RowQueue, model: Model, rng: random.Random) -> None:
    free = sorted(set(range(queue.rows_max)) - model.keys())
    rows = rng.sample(free, rng.randint(0, len(free)))
    codes = rng.choices(EXTREMES, k=len(rows))
    queue.push(ints(*codes), ints(*rows))
    model.update(zip(rows, codes, strict=True))


def pop_random_rows(queue: RowQueue, model: Model, rng: random.Random) -> None:
    wanted = rng.randint(0, queue.rows_max + 2)
    expected = list(model.items())[:wanted]
    codes, rows = queue.pop(wanted)
    assert list(zip(rows.tolist(), codes.tolist(), strict=True)) == expected
    for row, _ in expected:
        del model[row]


def remove_random_rows(queue: RowQueue, model: Model, rng: random.Random) -> None:
    gone = rng.sample(list(model), rng.randint(0, len(model)))
    queue.remove(ints(*gone))
    for row in gone:
        del model[row]


@pytest.mark.parametrize("rows_max", [1, 2, 7, 40])
@pytest.mark.parametrize("seed", range(10))
def test_any_sequence_of_operations_leaves_the_rows_in_order_of_arrival(rows_max: int, seed: int) -> None:
    rng = random.Random(f"{seed} {rows_max}")
    queue, model = RowQueue(rows_max), Model()
    for _ in range(40):
        rng.choice([push_random_rows, push_random_rows, pop_random_rows, remove_random_rows])(queue, model, rng)
        if rng.random() < 0.05:
            queue.clear()
            model.clear()
        check_invariants(queue, model)


def test_a_full_queue_that_is_always_thinned_in_the_middle_never_runs_out_of_room() -> None:
    queue, model = RowQueue(8), {row: row for row in range(8)}
    queue.push(ints(*range(8)), ints(*range(8)))
    for turn in range(100):
        row = list(model)[1 + turn % 6]
        queue.remove(ints(row))
        queue.push(ints(turn), ints(row))
        del model[row]
        model[row] = turn
        check_invariants(queue, model)
    assert queue.oldest() == (0, 0)


def test_more_rows_than_there_are_can_be_asked_for() -> None:
    queue = RowQueue(5)
    queue.push(ints(70, 80), ints(4, 1))
    codes, rows = queue.pop(9)
    assert (codes.tolist(), rows.tolist()) == ([70, 80], [4, 1])
    assert queue.pop(9)[0].tolist() == []


def test_a_row_number_may_return_once_it_is_out() -> None:
    queue = RowQueue(2)
    queue.push(ints(1, 2), ints(0, 1))
    queue.pop(1)
    queue.push(ints(3), ints(0))
    assert queue.pop(2)[0].tolist() == [2, 3]


def test_arrays_may_be_read_only_or_empty() -> None:
    queue = RowQueue(3)
    codes, rows, none = ints(1, 2), ints(2, 0), ints()
    for array in (codes, rows, none):
        array.flags.writeable = False
    queue.push(codes, rows)
    queue.push(none, none)
    queue.remove(none)
    assert queue.holds(none).tolist() == []
    assert queue.holds(rows).tolist() == [True, True]
    queue.remove(rows)
    assert len(queue) == 0


def test_an_empty_queue_has_no_oldest_row() -> None:
    with pytest.raises(AssertionError, match="an empty queue has no oldest row"):
        RowQueue(3).oldest()


@pytest.mark.parametrize("rows", [(2,), (-1,), (0,), (1, 1)])
def test_a_row_number_beyond_the_capacity_or_already_there_is_refused(rows: tuple[int, ...]) -> None:
    queue = RowQueue(2)
    queue.push(ints(5), ints(0))
    with pytest.raises(AssertionError, match=f"row number {rows[-1]} is already in the queue, or not below its capac"):
        queue.push(ints(*rows), ints(*rows))


@pytest.mark.parametrize("rows", [(1,), (2,), (-1,), (0, 0)])
def test_removing_a_row_that_is_not_there_is_refused(rows: tuple[int, ...]) -> None:
    # Number 2 is the anchor's: the one that must not be mistaken for a row.
    queue = RowQueue(2)
    queue.push(ints(5), ints(0))
    with pytest.raises(AssertionError, match=f"row {rows[-1]} is not in the queue"):
        queue.remove(ints(*rows))


@pytest.mark.parametrize("row", [-1, 2])
def test_asking_for_a_row_number_beyond_the_capacity_is_refused(row: int) -> None:
    with pytest.raises(AssertionError, match="a row number is"):
        RowQueue(2).holds(ints(row))


def test_codes_and_rows_must_be_of_one_length() -> None:
    with pytest.raises(AssertionError, match="2 codes were given for 1 rows"):
        RowQueue(5).push(ints(1, 2), ints(0))


@pytest.mark.parametrize("rows_max", [0, -1, 2**31 - 1])
def test_a_capacity_that_cannot_be_numbered_is_refused(rows_max: int) -> None:
    with pytest.raises(AssertionError, match="can be numbered"):
        RowQueue(rows_max)


@pytest.mark.parametrize("rows_max", [1, 2, 3, 1000])
def test_what_a_capacity_costs_is_what_it_allocates(rows_max: int) -> None:
    assert RowQueue(rows_max).nbytes == RowQueue.bytes_for(rows_max)
