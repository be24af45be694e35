"""Options of a window join: every mistake is refused before a query starts, and says what is wrong."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pytest

from semistream.errors import (
    BudgetExceeded,
    ColumnCollision,
    ColumnNotFound,
    InvalidOption,
    KeyMismatch,
    SemistreamError,
)
from semistream.spark.window_join import window_join
from semistream.spark.window_options import Options
from semistream.spark.window_plan import WindowPlan, make_plan
from semistream.spark.window_worker import shared_columns
from semistream.window.windows import arrivals, rows, seconds

A = pa.schema([("k", pa.int64()), ("x", pa.float64()), ("ts", pa.timestamp("us")), ("seq", pa.int64())])
B = pa.schema([("k", pa.int32()), ("y", pa.float64()), ("ts", pa.timestamp("us")), ("seq", pa.int64())])

TIMED: dict[str, Any] = {"on": "k", "within": seconds(5)}
COUNTED: dict[str, Any] = {"on": "k", "window_a": rows(5), "window_b": rows(5), "order_by": "seq"}


def planned(
    a: pa.Schema = A, b: pa.Schema = B, *, memory_bytes: int = 10**7, streams: bool = True, **given: Any
) -> WindowPlan:
    defaults: dict[str, Any] = dict.fromkeys(Options.__dataclass_fields__)
    defaults |= {"how": "inner", "lateness": 0.0, "shed": "error", "index": "auto", "state": "/tmp/state", "seed": 0}
    defaults |= {"per_key": False, "prefix_a": "", "prefix_b": "b_", "name": "join"}
    return make_plan(
        (a, b),
        Options(**{**defaults, **given}),
        is_streaming=streams,
        memory_bytes=memory_bytes,
        workers=2,
        default_partitions=6,
        retained_batches=100,
    )


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({**TIMED, "on": None}, InvalidOption, "either `on` or `condition`"),
        ({**TIMED, "condition": "a.k = b.k"}, InvalidOption, "either `on` or `condition`"),
        ({"on": "k"}, InvalidOption, "a window is missing"),
        ({"on": "k", "window_a": rows(1)}, InvalidOption, "a window is missing"),
        ({**TIMED, "window_a": seconds(1)}, InvalidOption, "`within` is given beside a window"),
        ({"on": "k", "within": 10}, InvalidOption, "`within` is not a window"),
        ({"on": "k", "within": rows(3)}, InvalidOption, "cannot count the rows of one stream"),
        ({**COUNTED, "window_a": arrivals(3)}, InvalidOption, "write within=arrivals(3)"),
        ({**COUNTED, "order_by": None}, InvalidOption, "needs `order_by`"),
        ({"on": "k", "within": arrivals(3)}, InvalidOption, "needs `order_by`"),
        ({**COUNTED, "order_by": "sequ"}, ColumnNotFound, "did you mean 'seq'"),
        ({**COUNTED, "order_by": ["seq"]}, InvalidOption, "`order_by` cannot be read"),
        ({**COUNTED, "order_by": ("seq", "ts")}, KeyMismatch, "a.seq cannot be compared with b.ts"),
        ({**COUNTED, "time": "ts"}, InvalidOption, "no window is measured in time"),
        ({**COUNTED, "lateness": 1.0}, InvalidOption, "no window is measured in time"),
        ({**TIMED, "lateness": -1}, InvalidOption, "`lateness` must be a number of seconds"),
        ({**TIMED, "time": "tss"}, ColumnNotFound, "did you mean 'ts'"),
        ({**TIMED, "time": "seq"}, KeyMismatch, "is not a time; given: int64"),
        ({**TIMED, "how": "outer"}, InvalidOption, "`how` has an unknown value"),
        ({**TIMED, "shed": "some"}, InvalidOption, "`shed` has an unknown value"),
        ({**TIMED, "rate": 10}, InvalidOption, 'allowed: shed="sample"'),
        ({**TIMED, "rate": 0, "shed": "sample"}, InvalidOption, "`rate` must be"),
        ({**TIMED, "seed": -1}, InvalidOption, "`seed` must be a whole number"),
        ({**TIMED, "how": "left", "shed": "sample"}, InvalidOption, "a left join cannot be sampled"),
        ({**TIMED, "per_key": True}, InvalidOption, "for windows that count rows"),
        ({**COUNTED, "per_key": True, "shed": "sample"}, InvalidOption, "are not sampled"),
        ({**COUNTED, "on": None, "condition": "a.x < b.y", "per_key": True}, InvalidOption, "needs an equality"),
        ({**TIMED, "index": "hsah"}, InvalidOption, "did you mean 'hash'"),
        ({**TIMED, "on": None, "condition": "a.x < b.y", "index": "hash"}, InvalidOption, "finds equal keys only"),
        ({**TIMED, "partitions": 0}, InvalidOption, "`partitions` must be a whole number"),
        ({**COUNTED, "partitions": 2}, InvalidOption, "one task must join all rows"),
        ({**TIMED, "on": None, "condition": "a.x < b.y", "partitions": 2}, InvalidOption, "may be anywhere"),
        ({**TIMED, "state": None}, InvalidOption, "needs `state`"),
        ({**TIMED, "prefix_b": ""}, ColumnCollision, "'ts' of b collides with 'ts' of a"),
        ({**TIMED, "on": {"k": "y"}}, KeyMismatch, "b.y has a type that cannot be a key"),
        ({**TIMED, "on": {"ts": "k"}}, KeyMismatch, "a.ts cannot be compared with b.k"),
        ({**TIMED, "memory_bytes": 100}, BudgetExceeded, "give the join more memory"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_refused(given: dict[str, Any], error: type[SemistreamError], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        planned(**given)


def test_times_with_and_without_a_zone_cannot_be_compared() -> None:
    zoned = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
    with pytest.raises(KeyMismatch, match="the times of a and b cannot be compared"):
        planned(b=zoned, **TIMED, time="ts")


@pytest.mark.parametrize(
    ("given", "partitions", "why"),
    [
        (TIMED, 6, "by key"),
        ({**TIMED, "partitions": 3}, 3, "by key"),
        ({**TIMED, "order_by": "seq"}, 1, "one sequence"),
        (COUNTED, 1, "counts rows over a whole stream"),
        ({**COUNTED, "per_key": True}, 6, "by key"),
        ({**TIMED, "on": None, "condition": "abs(a.x - b.y) <= 1"}, 1, "may be anywhere"),
        ({**TIMED, "on": None, "condition": "a.k + 1 = b.k"}, 1, "expressions"),
        ({**TIMED, "on": None, "condition": "a.k = b.k AND a.x < b.y"}, 6, "by key"),
    ],
)
def test_the_plan_says_how_many_tasks_join_and_why(given: dict[str, Any], partitions: int, why: str) -> None:
    plan = planned(**given)
    assert plan.partitions == partitions
    assert why in plan.reason
    assert (plan.parallel_keys is not None) == (partitions > 1)


def test_an_index_may_be_asked_for_on_one_side_only() -> None:
    plan = planned(**TIMED, index=("auto", "t-tree"))
    assert plan.indexes_or(("hash", "scan")) == ("hash", "t-tree")


def test_a_key_that_has_one_name_is_put_out_once() -> None:
    assert [column.name for column in planned(**TIMED).output] == ["k", "x", "ts", "seq", "b_y", "b_ts", "b_seq"]
    other = planned(on={"k": "seq"}, within=seconds(5))
    assert [column.name for column in other.output][4:] == ["b_k", "b_y", "b_ts", "b_seq"]


def test_columns_of_one_type_share_a_place_on_the_way() -> None:
    wire = shared_columns(["long", "string"], ["long", "long", "string"])
    assert wire.slots == ((0, 1), (0, 2, 1))
    assert wire.count == 3


def test_unknown_options_and_things_that_are_no_frames_are_named() -> None:
    with pytest.raises(InvalidOption, match="did you mean 'within'"):
        window_join(None, None, on="k", witin=seconds(5))  # type: ignore[call-arg, arg-type]
    with pytest.raises(InvalidOption, match="`a` is not a DataFrame"):
        window_join(None, None, on="k", within=seconds(5))  # type: ignore[arg-type]
