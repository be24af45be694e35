"""What `enrich` decides before Spark is asked: the way, the shares of the memory, the names, the checks."""

from __future__ import annotations

import datetime
import decimal
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import BudgetExceeded, ColumnCollision, ColumnNotFound, InvalidOption, KeyMismatch
from semistream.joins.registry import ALGORITHMS
from semistream.planning import auto
from semistream.planning.capacities import Room
from semistream.planning.shuffle import choose_shuffle
from semistream.relations.base import Relation
from semistream.relations.building.build import build_relation
from semistream.relations.handle import Lookup, RelationHandle, open_handle
from semistream.spark.plan import EnrichPlan, Shuffle, in_words, metric_names
from semistream.spark.plan_checks import BY_PARTITION, check_arguments
from tests.support import plans

Publish = Callable[..., RelationHandle]

SALES = pa.schema([("id", pa.int64()), ("store", pa.string()), ("n", pa.int32())])


@pytest.fixture
def publish(tmp_path: Path) -> Publish:
    def build(table: pa.Table, key: str | Sequence[str] = "id", name: str = "products") -> RelationHandle:
        build_relation(table, key=key, out=tmp_path / name, columns=None, unique=False, memory="64MB")
        return open_handle(tmp_path / name, None, None, verify=True)

    return build


@pytest.fixture
def products(publish: Publish) -> RelationHandle:
    return publish(pa.table({"id": range(100), "name": ["x" * 20] * 100}))


def planned(*lookups: Lookup, stream: pa.Schema = SALES, **changed: Any) -> EnrichPlan:
    return plans.planned(*lookups, stream=stream, **{"memory_bytes": 64 << 20, "workers": 2, **changed})


# ---------------------------------------------------------------------------------------------------------------------
# Ways
# ---------------------------------------------------------------------------------------------------------------------


def test_unique_keys_and_room_for_a_batch_are_answered_key_by_key(products: RelationHandle) -> None:
    plan = planned(products.on())
    assert (plan.way, plan.lookups[0].algorithm) == ("answers", "adaptive")


def test_one_relation_whose_keys_repeat_sends_whole_rows(products: RelationHandle, publish: Publish) -> None:
    offers = publish(pa.table({"id": [1, 1], "shop": ["a", "b"]}), name="offers")
    plan = planned(products.on(), offers.on())
    assert plan.way == "rows"
    assert plan.reasons[0] == "keys of 'offers' repeat, so a row can have several partners"
    assert plan.reasons[2].startswith("for 'products' adaptive")


@pytest.mark.parametrize("changed", [{"memory_bytes": 1 << 20}, {"batch_rows": 0}])
def test_a_batch_that_may_not_fit_sends_whole_rows(products: RelationHandle, changed: dict[str, int]) -> None:
    plan = planned(products.on(), **changed)
    assert plan.way == "rows"
    assert "Arrow batch" in plan.reasons[0]


def test_a_batch_that_is_larger_than_usual_is_answered_in_pieces(products: RelationHandle) -> None:
    assert planned(products.on(), batch_rows=10**7).way == "answers"


def test_one_long_row_decides(publish: Publish) -> None:
    lengths = [10] * 99 + [100_000]
    plan = planned(publish(pa.table({"id": range(100), "text": ["x" * n for n in lengths]})).on())
    assert plan.way == "rows"


# ---------------------------------------------------------------------------------------------------------------------
# Shuffles
# ---------------------------------------------------------------------------------------------------------------------


def test_rows_are_not_shared_out_where_that_does_not_pay(products: RelationHandle) -> None:
    plan = planned(products.on())
    assert plan.shuffle is None
    assert "a shuffle does not pay: all of 'products' can be remembered" in in_words(plan)


def test_keys_are_counted_that_a_worker_has_room_for(publish: Publish) -> None:
    """All rows would fit into the memory of the executor, but not into an eighth of it, which each worker has."""
    long_rows = publish(pa.table({"id": range(20_000), "text": ["x" * 700] * 20_000}))
    info = long_rows.info
    assert info.row_count * info.row_bytes_mean < 16 << 20
    told = planned(long_rows.on(), memory_bytes=16 << 20, workers=8, algorithm="adaptive", tasks=64).reasons[1]
    assert "it would save" in told
    alone = planned(long_rows.on(), memory_bytes=2 << 20, workers=1, algorithm="adaptive", tasks=64).reasons[1]
    assert told == alone


@pytest.mark.parametrize("algorithm", ["inlj", "hybridjoin"])
@pytest.mark.parametrize("workers", [1, 8])
def test_who_remembers_nothing_remembers_nothing_of_a_small_relation(
    products: RelationHandle, algorithm: str, workers: int
) -> None:
    told = planned(products.on(), algorithm=algorithm, workers=workers).reasons[1]
    assert told.endswith(choose_shuffle(products.info, 0, 2).reason)
    assert "it would save" in told


REMEMBERING = [
    name
    for name, algorithm in ALGORITHMS.items()
    if algorithm.remembers != "nothing" and algorithm.needs != "scan" and name != BY_PARTITION
]


@pytest.mark.parametrize("algorithm", REMEMBERING)
def test_whoever_remembers_can_remember_all_of_a_small_relation(products: RelationHandle, algorithm: str) -> None:
    told = planned(products.on(), algorithm=algorithm).reasons[1]
    assert told.endswith("a shuffle does not pay: all of 'products' can be remembered")


@pytest.mark.parametrize("algorithm", ["meshjoin", "r-meshjoin", "ssbj"])
def test_a_scan_is_as_long_with_a_shuffle_as_without(products: RelationHandle, algorithm: str) -> None:
    plan = planned(products.on(), algorithm=algorithm, tasks=10_000)
    assert plan.shuffle is None
    assert f"{algorithm} reads all of 'products', whichever keys rows have" in plan.reasons[1]


@pytest.mark.parametrize("algorithm", ["adaptive", "inlj", "hybridjoin"])
def test_nothing_is_read_twice_of_an_empty_relation(publish: Publish, algorithm: str) -> None:
    empty = publish(pa.table({"id": pa.array([], pa.int64()), "name": pa.array([], pa.string())}))
    plan = planned(empty.on(), memory_bytes=256 << 20, algorithm=algorithm, tasks=64)
    assert plan.shuffle is None
    assert plan.reasons[1].endswith("a shuffle does not pay: 'products' is empty")


def test_rows_are_shared_out_by_the_key_of_the_largest_relation(products: RelationHandle, publish: Publish) -> None:
    small = publish(pa.table({"id": [1], "city": ["a"]}), name="stores")
    plan = planned(small.on(), products.on(), shuffle="always")
    assert plan.shuffle == Shuffle(lookup=1, tasks=2)
    assert "by the key of 'products' to 2 tasks" in in_words(plan)


def test_an_unknown_shuffle_is_refused(products: RelationHandle) -> None:
    with pytest.raises(InvalidOption, match="always"):
        planned(products.on(), shuffle="alway")


# ---------------------------------------------------------------------------------------------------------------------
# Algorithms
# ---------------------------------------------------------------------------------------------------------------------


def test_auto_says_what_it_chose_and_why(products: RelationHandle) -> None:
    plan = planned(products.on())
    assert plan.lookups[0].algorithm == "adaptive"
    assert "for 'products' adaptive is planned for" in "; ".join(plan.reasons)
    assert "rows/s at skew 1, and the best of the others" in "; ".join(plan.reasons)
    named = planned(products.on(), algorithm="adaptive")
    assert "planned" not in "; ".join(named.reasons)
    assert named.id == plan.id, "the same algorithm is the same enrichment, whoever chose it"


@pytest.mark.parametrize("no_limit", [0, -1])
def test_auto_plans_with_the_usual_steps_where_batches_have_no_limit(products: RelationHandle, no_limit: int) -> None:
    usual = planned(products.on(), batch_rows=10_000)
    assert planned(products.on(), batch_rows=no_limit).reasons[1:] == usual.reasons[1:]


def test_auto_follows_the_bill_for_each_relation_on_its_own(
    products: RelationHandle, publish: Publish, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(i) for i in range(2000)]
    other = publish(pa.table({"store": names, "city": ["x" * 200] * 2000}), "store", "stores")
    rates = {"adaptive": 100.0, "sscj": 200.0}

    def rate(name: str, relation: Relation, _: Room) -> float:
        return rates.get(name, 0.0) if relation.info.name == "stores" or name == "adaptive" else 1.0

    monkeypatch.setattr(auto, "_rate", rate)
    plan = planned(products.on(), other.on())
    assert [p.algorithm for p in plan.lookups] == ["adaptive", "sscj"]
    assert plan.way == "rows"
    assert "; ".join(plan.reasons).startswith("sscj lets rows wait")
    assert "for 'stores' adaptive is planned for 100 rows/s at skew 1, and sscj for 200" in "; ".join(plan.reasons)
    # A worker without a seat has half of the memory, in which a page must fit.
    small = planned(products.on(), other.on(), memory_bytes=600_000)
    assert [p.algorithm for p in small.lookups] == ["adaptive", "adaptive"]
    assert "too small for others" in "; ".join(small.reasons)


# ---------------------------------------------------------------------------------------------------------------------
# Memory
# ---------------------------------------------------------------------------------------------------------------------


def test_the_whole_memory_is_shared_out_and_everyone_gets_some(publish: Publish) -> None:
    sizes = {"tiny": 1, "small": 1_000, "large": 50_000, "other large": 40_000}
    handles = {
        name: publish(pa.table({f"{name} id": range(n), name: ["x" * 30] * n}), f"{name} id", name)
        for name, n in sizes.items()
    }
    stream = pa.schema([(f"{name} id", pa.int64()) for name in sizes])
    plan = planned(*(handle.on() for handle in handles.values()), stream=stream, memory_bytes=2 << 20)
    shares = {p.lookup.relation.name: p.memory_share for p in plan.lookups}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["tiny"] > 0.01
    assert shares["tiny"] <= shares["small"] < shares["large"]
    assert shares["large"] == pytest.approx(shares["other large"], rel=0.2)


def test_memory_that_does_not_hold_a_row_is_refused_with_the_least_that_does(publish: Publish) -> None:
    handle = publish(pa.table({"id": [1], "text": ["x" * 50_000]}))
    with pytest.raises(BudgetExceeded) as refused:
        planned(handle.on(), memory_bytes=60_000)
    assert "too small for one row of relation 'products'" in str(refused.value)
    assert "its largest row has" in str(refused.value)
    least_bytes = int(str(refused.value.allowed).split()[-2])
    assert planned(handle.on(), memory_bytes=least_bytes).way == "rows"
    with pytest.raises(BudgetExceeded):
        planned(handle.on(), memory_bytes=least_bytes - 10)


def test_a_key_that_is_read_to_be_verified_needs_memory_too(publish: Publish) -> None:
    handle = publish(pa.table({"id": ["x" * 50_000], "n": [1]}))
    stream = pa.schema([("id", pa.string())])
    with pytest.raises(BudgetExceeded, match="too small for one row"):
        planned(handle.on(), stream=stream, memory_bytes=60_000)
    assert planned(handle.on(), stream=stream, memory_bytes=4 << 20).lookups[0].least_memory_bytes(1) > 50_000


# ---------------------------------------------------------------------------------------------------------------------
# Names and keys
# ---------------------------------------------------------------------------------------------------------------------


def test_metrics_are_named_after_prefix_and_relation_and_numbered_if_need_be(products: RelationHandle) -> None:
    assert metric_names([products.on()]) == ["products"]
    assert metric_names([products.on(prefix="a_"), products.on(prefix="b_")]) == ["a_products", "b_products"]
    assert metric_names([products.on(), products.on()]) == ["products_1", "products_2"]


@pytest.mark.parametrize("column", ["name", "NAME"])
def test_collisions_are_refused_and_a_prefix_avoids_them(products: RelationHandle, column: str) -> None:
    stream = pa.schema([("id", pa.int64()), (column, pa.string())])
    with pytest.raises(ColumnCollision, match=f"'name' of relation 'products' collides with '{column}' of the stream"):
        planned(products.on(), stream=stream)
    assert planned(products.on(prefix="p_"), stream=stream).lookups[0].lookup.output_names == ("p_name",)


def test_a_stream_column_can_hold_two_parts_of_a_key(publish: Publish) -> None:
    routes = publish(pa.table({"origin": ["a"], "target": ["b"], "km": [1]}), ["origin", "target"], "routes")
    assert planned(routes.on("store", "store")).lookups[0].lookup.on == ("store", "store")


def test_keys_are_compared_by_family(products: RelationHandle) -> None:
    assert planned(products.on("n")).lookups[0].verify_key == (), "integers of any width have exact codes"
    with pytest.raises(KeyMismatch, match=r"the stream's 'store' cannot be compared with the relation's 'id'"):
        planned(products.on("store"))
    with pytest.raises(ColumnNotFound, match="did you mean 'store'"):
        planned(products.on("stroe"))


def test_hashed_keys_are_verified(publish: Publish) -> None:
    stores = publish(pa.table({"store": ["a"], "city": ["x"]}), "store", "stores")
    assert planned(stores.on()).lookups[0].verify_key == ("store",)


def test_arguments_of_a_lookup_are_compared_with_the_key(products: RelationHandle) -> None:
    check_arguments(products, [pa.int8()])
    with pytest.raises(InvalidOption, match="has a key of 1 columns; given: a lookup with 2 columns"):
        check_arguments(products, [pa.int8(), pa.int8()])
    with pytest.raises(KeyMismatch, match="'argument 1' cannot be compared with the relation's 'id'"):
        check_arguments(products, [pa.string()])


# ---------------------------------------------------------------------------------------------------------------------
# Defaults
# ---------------------------------------------------------------------------------------------------------------------

NOON = datetime.datetime(2024, 1, 1, 12)

FITTING: list[tuple[pa.DataType, list[Any], list[Any]]] = [
    (pa.int8(), [0, -1, None, np.int64(5)], [1.5, 300, "1", True]),
    (pa.int64(), [2**62], [2**70, decimal.Decimal("0.5")]),
    (pa.float32(), [0.1, 1, float("nan")], ["0.1"]),
    (pa.string(), ["", "ß"], [7, ["a"]]),
    (pa.bool_(), [False], [0, "no"]),
    (pa.date32(), [NOON.date()], [NOON, 20_000, "2024-01-01"]),
    (pa.timestamp("us"), [NOON], [NOON.date(), 0, "now"]),
    (pa.timestamp("us", tz="Europe/Berlin"), [NOON.replace(tzinfo=datetime.UTC)], [NOON]),
    (pa.decimal128(5, 2), [1, decimal.Decimal("1.25")], [1.25, decimal.Decimal("1.255"), decimal.Decimal(10_000)]),
    (pa.list_(pa.int64()), [[], [1, None]], [1, ["a"]]),
    (pa.struct([("a", pa.int64())]), [{"a": 1}], [[1]]),
    (pa.map_(pa.string(), pa.int64()), [{"k": 1}], ["k"]),
]


@pytest.mark.parametrize(("data_type", "fit", "unfit"), FITTING, ids=lambda value: str(value)[:24])
def test_a_default_must_fit_its_column_without_loss(
    publish: Publish, data_type: pa.DataType, fit: list[Any], unfit: list[Any]
) -> None:
    handle = publish(pa.table({"id": [1], "value": pa.nulls(1, data_type)}))
    for value in fit:
        plan = planned(handle.on(), on_miss="default", defaults={"value": value})
        assert plan.lookups[0].defaults.keys() == {"value"}
    for value in unfit:
        with pytest.raises(InvalidOption, match="the default for 'value' has the wrong type"):
            planned(handle.on(), on_miss="default", defaults={"value": value})


def test_defaults_are_named_as_in_the_output(products: RelationHandle) -> None:
    bound = products.on(prefix="p_")
    assert planned(bound, on_miss="default", defaults={"p_name": "?"}).lookups[0].defaults == {"p_name": "?"}
    with pytest.raises(ColumnNotFound, match="a default for 'name', which no relation adds"):
        planned(bound, on_miss="default", defaults={"name": "?"})


# ---------------------------------------------------------------------------------------------------------------------
# The plan itself
# ---------------------------------------------------------------------------------------------------------------------


def test_a_plan_survives_the_way_to_a_worker(products: RelationHandle) -> None:
    plan = planned(products.on())
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_only_the_same_enrichment_has_the_same_identity(products: RelationHandle) -> None:
    plan = planned(products.on())
    assert plan.id == planned(products.on()).id
    others = [
        planned(products.on(prefix="p_")),
        planned(products.on("n")),
        planned(products.on(), on_miss="drop"),
        planned(products.on(), memory_bytes=65 << 20),
        planned(products.on(), workers=3),
        planned(products.on(), batch_rows=20_000),
        planned(products.on(), algorithm="inlj"),
        planned(products.on(), on_miss="default", defaults={"name": "?"}),
    ]
    assert plan.id not in {other.id for other in others}
