"""What a relation can be built from: every format and type gives the same rows, and wrong input a clear error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from semistream.errors import (
    ColumnNotFound,
    InvalidOption,
    KeyMismatch,
    RelationNotFound,
    SemistreamError,
)
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.arrow_file.reader import ArrowFileRelation
from semistream.relations.base import CODE_COLUMN
from semistream.relations.building.build import build_relation
from tests.unit.built import assert_holds, current_rows, products, staging_of

# Sources


def write_gzipped_csv(table: pa.Table, path: Path) -> None:
    with pa.CompressedOutputStream(str(path), "gzip") as sink:
        pyarrow.csv.write_csv(table, sink)


def write_arrow(table: pa.Table, path: Path, new_writer: Callable[..., pa.ipc.RecordBatchFileWriter]) -> None:
    with pa.OSFile(str(path), "wb") as sink, new_writer(sink, table.schema) as writer:
        writer.write_table(table)


WRITERS: dict[str, Callable[[pa.Table, Path], None]] = {
    "rows.parquet": lambda table, path: pq.write_table(table, path, row_group_size=700),
    "rows.csv": pyarrow.csv.write_csv,
    "rows.csv.gz": write_gzipped_csv,
    "rows.feather": lambda table, path: pyarrow.feather.write_feather(table, str(path), chunksize=900),
    "rows.arrow": lambda table, path: write_arrow(table, path, pa.ipc.new_file),
    "rows.arrows": lambda table, path: write_arrow(table, path, pa.ipc.new_stream),
    "parquet without suffix": pq.write_table,
    "arrow.without.known.suffix": lambda table, path: write_arrow(table, path, pa.ipc.new_file),
    "stream": lambda table, path: write_arrow(table, path, pa.ipc.new_stream),
}


@pytest.mark.parametrize("name", WRITERS)
def test_each_format_gives_the_same_relation(name: str, tmp_path: Path) -> None:
    table = products(3_000)
    source = tmp_path / name
    WRITERS[name](table, source)
    report = build_relation(source, key="product_id", out=tmp_path / "out")
    assert (report.version, report.row_count, report.unique) == (1, 3_000, True)
    assert_holds(tmp_path / "out", table, "product_id")


IN_MEMORY: dict[str, Callable[[pa.Table], object]] = {
    "table": lambda table: table,
    "reader": lambda table: table.to_reader(max_chunksize=100),
    "list": lambda table: table.to_batches(max_chunksize=100),
    "generator": lambda table: (batch for batch in table.to_batches(max_chunksize=100)),
    "one batch": lambda table: table.combine_chunks().to_batches()[0],
    "pandas": lambda table: table.to_pandas(),
}


@pytest.mark.parametrize("form", IN_MEMORY)
def test_each_form_in_memory_gives_the_same_relation(form: str, tmp_path: Path) -> None:
    table = products(2_000)
    build_relation(IN_MEMORY[form](table), key="product_id", out=tmp_path / "out")
    assert_holds(tmp_path / "out", table, "product_id")


@pytest.mark.parametrize("pattern", ["", "*.parquet", "part-?.parquet", "**/*.parquet"])
def test_several_files_are_read_in_the_order_of_their_names(pattern: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    table = products(4_000, distinct=500)
    for number in range(4):
        pq.write_table(table.slice(number * 1_000, 1_000), source / f"part-{number}.parquet")
    (source / "_SUCCESS").touch()
    (source / ".part-0.parquet.crc").write_bytes(b"crc")
    report = build_relation(str(source / pattern) if pattern else source, key="product_id", out=tmp_path / "out")
    assert report.row_count == 4_000
    assert_holds(tmp_path / "out", table, "product_id")


def test_directories_named_like_columns_become_columns(tmp_path: Path) -> None:
    source = tmp_path / "source"
    for year, country in ((2023, "AT"), (2024, "a%20b"), (2024, "__HIVE_DEFAULT_PARTITION__")):
        folder = source / f"year={year}" / f"country={country}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"id": [year]}), folder / "part-0.parquet")
    build_relation(source, key=["id", "year"], out=tmp_path / "out")
    rows = current_rows(tmp_path / "out").to_pylist()
    assert sorted((row["year"], row["country"] or "") for row in rows) == [(2023, "AT"), (2024, ""), (2024, "a b")]


def test_only_the_chosen_columns_and_the_key_are_stored(tmp_path: Path) -> None:
    unheld = pa.array([pa.MonthDayNano([1, 2, 3])] * 10)
    pq.write_table(products(10), tmp_path / "rows.parquet")
    build_relation(tmp_path / "rows.parquet", key="product_id", columns=["price"], out=tmp_path / "a")
    assert current_rows(tmp_path / "a").column_names == [CODE_COLUMN, "product_id", "price"]
    table = products(10).append_column("interval", unheld)
    build_relation(table, key="product_id", columns=["name", "product_id"], out=tmp_path / "b")
    assert current_rows(tmp_path / "b").column_names == [CODE_COLUMN, "name", "product_id"]


def test_an_empty_source_with_a_schema_is_an_empty_relation(tmp_path: Path) -> None:
    pq.write_table(products(0), tmp_path / "none.parquet")
    report = build_relation(tmp_path / "none.parquet", key="product_id", out=tmp_path / "out", unique=True)
    assert (report.row_count, report.rows_per_code_max, report.unique) == (0, 0, True)
    assert current_rows(tmp_path / "out").num_rows == 0


def test_csv_follows_spark_in_what_is_null(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text('id,name,note\n1,NA,""\n2,,\n,"a\nb",x\n')
    report = build_relation(tmp_path / "rows.csv", key="id", out=tmp_path / "out")
    assert report.null_key_rows == 1
    rows = current_rows(tmp_path / "out").drop_columns([CODE_COLUMN]).to_pylist()
    assert rows == [{"id": 1, "name": "NA", "note": ""}, {"id": 2, "name": None, "note": None}]


# Types


STORED: list[tuple[pa.Array, pa.DataType, object]] = [
    (pa.array([250], pa.uint8()), pa.int16(), 250),
    (pa.array([65_000], pa.uint16()), pa.int32(), 65_000),
    (pa.array([2**32 - 1], pa.uint32()), pa.int64(), 2**32 - 1),
    (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0), Decimal(2**64 - 1)),
    (pa.array([1.5], pa.float16()), pa.float32(), 1.5),
    (pa.array(["a"]).dictionary_encode(), pa.string(), "a"),
    (pa.array(["a"], pa.large_string()), pa.string(), "a"),
    (pa.array(["a"], pa.string_view()), pa.string(), "a"),
    (pa.array([b"ab"], pa.binary(2)), pa.binary(), b"ab"),
    (pa.array([b"a" * 16], pa.uuid()), pa.binary(), b"a" * 16),
    (pa.array([86_400_000], pa.date64()), pa.date32(), date(1970, 1, 2)),
    (pa.array([5], pa.timestamp("s")), pa.timestamp("us"), datetime(1970, 1, 1, second=5)),
    (pa.array([5_000], pa.timestamp("ns", tz="UTC")), pa.timestamp("us", tz="UTC"), datetime.fromtimestamp(5e-6, UTC)),
    (pa.array([5], pa.time32("s")), pa.time64("ns"), time(second=5)),
    (pa.array([5], pa.duration("ms")), pa.duration("us"), timedelta(milliseconds=5)),
    (pa.array([Decimal("1.25")], pa.decimal64(9, 2)), pa.decimal128(9, 2), Decimal("1.25")),
    (pa.array([None]), pa.string(), None),
    (pa.array([[1]], pa.large_list(pa.uint8())), pa.list_(pa.int16()), [1]),
    (pa.array([{"x": 1}], pa.struct([("x", pa.uint32())])), pa.struct([("x", pa.int64())]), {"x": 1}),
    (pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.uint8())), pa.map_(pa.string(), pa.int16()), [("k", 1)]),
    (pc.run_end_encode(pa.array(["a"])), pa.string(), "a"),
]


@pytest.mark.parametrize(("column", "stored", "value"), STORED, ids=[str(column.type) for column, _, _ in STORED])
def test_a_type_that_spark_lacks_is_stored_as_one_it_has(
    column: pa.Array, stored: pa.DataType, value: object, tmp_path: Path
) -> None:
    build_relation(pa.table({"id": [1], "value": column}), key="id", out=tmp_path / "out")
    found = current_rows(tmp_path / "out").column("value")
    assert (found.type, found.to_pylist()) == (stored, [value])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([pa.MonthDayNano([1, 2, 3])]),
        pa.array([1], pa.decimal256(60, 0)),
        pa.array([100], pa.decimal128(5, -2)),
    ],
    ids=lambda column: str(column.type),
)
def test_a_type_that_spark_cannot_hold_is_refused_by_name(column: pa.Array, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"'odd' of the given Table has a type that Spark cannot hold; given: .+\n"):
        build_relation(pa.table({"id": [1], "odd": column}), key="id", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "column", [pa.array([1_001], pa.timestamp("ns")), pa.array([2**62], pa.timestamp("s"))], ids=["digits", "range"]
)
def test_a_timestamp_that_microseconds_cannot_hold_is_refused(column: pa.Array, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"'at' of the given Table cannot be stored as timestamp.us. without loss"):
        build_relation(pa.table({"id": [1], "at": column}), key="id", out=tmp_path / "out")


def test_far_dates_in_the_timestamps_of_old_spark_files_survive(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "until": pa.array([253_402_214_400_000_000], pa.timestamp("us"))})
    pq.write_table(table, tmp_path / "rows.parquet", use_deprecated_int96_timestamps=True)
    build_relation(tmp_path / "rows.parquet", key="id", out=tmp_path / "out")
    assert current_rows(tmp_path / "out").column("until").to_pylist()[0].year == 9999


# Wrong input


def broken_parquet(path: Path) -> Path:
    pq.write_table(products(1_000), path)
    path.write_bytes(path.read_bytes()[:5_000])
    return path


def wrong_input(tmp_path: Path) -> Iterator[tuple[str, object, dict[str, object], type[SemistreamError], str]]:
    """Name, source, options, error, text."""
    good = products(10)
    text = tmp_path / "rows.txt"
    text.write_text("hello")
    late = tmp_path / "late.csv"
    late.write_text("id,name\n" + "".join(f"{number},n\n" for number in range(900_000)) + "x1,n\n")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    pq.write_table(good, mixed / "a.parquet")
    pyarrow.csv.write_csv(good, mixed / "b.csv")
    unlike = tmp_path / "unlike"
    unlike.mkdir()
    pq.write_table(good, unlike / "a.parquet")
    pq.write_table(good.set_column(2, "price", pa.array(["dear"] * 10)), unlike / "b.parquet")
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    pq.write_table(good, lacking / "a.parquet")
    pq.write_table(good.drop_columns(["price"]), lacking / "b.parquet")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.arrow").touch()
    (tmp_path / "empty.csv").touch()
    twice = pa.table([[1], [2], [3]], names=["product_id", "a", "a"])
    reserved = good.append_column(CODE_COLUMN, pa.array(range(10)))
    not_found, invalid = RelationNotFound, InvalidOption
    yield "missing", tmp_path / "nowhere.parquet", {}, not_found, "does not exist; given: .*nowhere.parquet"
    yield "misspelt", tmp_path / "lat.csv", {}, not_found, "(?s)does not exist.*did you mean '.*/late.csv'"
    yield "empty glob", str(tmp_path / "*.orc"), {}, not_found, "matches no file"
    yield "empty directory", tmp_path / "empty", {}, not_found, "holds no file"
    yield "unknown format", text, {}, invalid, "allowed: Parquet, CSV, Arrow IPC"
    yield "mixed formats", mixed, {}, invalid, "several formats; given: .csv, .parquet"
    yield "truncated", broken_parquet(tmp_path / "cut.parquet"), {}, invalid, "cut.parquet' could not be read"
    yield "empty arrow", tmp_path / "empty.arrow", {}, invalid, "empty.arrow' could not be read"
    yield "empty csv", tmp_path / "empty.csv", {}, invalid, "empty.csv' could not be read"
    yield "late conflict", late, {"key": "id"}, invalid, r"(?s)late.csv' could .* column 'id': .*'x1'.*inferred"
    yield "other type", unlike, {}, invalid, "'price' of .*b.parquet' has another type .* given: string"
    yield "lacking column", lacking, {}, invalid, "b.parquet' lacks the column 'price'"
    yield "key missing", good, {"key": "product"}, ColumnNotFound, "did you mean 'product_id'"
    yield "column missing", good, {"columns": ["prize"]}, ColumnNotFound, "did you mean 'price'"
    yield "columns as text", good, {"columns": "price"}, invalid, r"allowed: \['price'\]"
    yield "key twice", good, {"key": ["product_id", "product_id"]}, invalid, "`key` names a column twice"
    yield "no key", good, {"key": []}, invalid, "wrong number of columns"
    yield "float key", good, {"key": "price"}, KeyMismatch, "'price' has a type that cannot be a key"
    yield "column twice", twice, {}, invalid, "two columns of the given Table have the same name; given: 'a'"
    yield "reserved name", reserved, {}, invalid, "reserved for the code of the key; given: '__code'"
    yield "no rows at all", 7, {}, invalid, "given: int; allowed: a path"
    yield "no batches", [], {}, invalid, "given: nothing; allowed: an iterable of RecordBatches"
    yield "not batches", [1], {}, invalid, "given: int; allowed: an iterable of RecordBatches"
    yield "memory", good, {"memory": "lots"}, invalid, "memory size could not be read"


def test_wrong_input_is_refused_with_a_clear_error_and_nothing_is_published(tmp_path: Path) -> None:
    for number, (name, source, options, error, text) in enumerate(wrong_input(tmp_path)):
        out = tmp_path / f"out{number}"
        with pytest.raises(error, match=text) as caught:
            build_relation(source, out=out, **{"key": "product_id", **options})  # type: ignore[arg-type]
        assert str(caught.value).endswith((".", "?")), name
        assert staging_of(out) == [], name
        assert not (out / "CURRENT").exists(), name


def test_an_error_of_the_iterable_itself_is_not_blamed_on_the_disk(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from products(10).to_batches()
        raise OSError("the network is gone")

    with pytest.raises(InvalidOption, match="the given generator could not be read; given: the network is gone"):
        build_relation(broken(), key="product_id", out=tmp_path / "out")


def test_timestamps_that_spark_wrote_as_int96_are_instants(tmp_path: Path) -> None:
    moments = pa.array([0, 1_700_000_000_000_001, None], pa.timestamp("us", "UTC"))
    table = pa.table({"product_id": [1, 2, 3], "seen_at": moments})
    pq.write_table(table, tmp_path / "spark.parquet", use_deprecated_int96_timestamps=True)
    build_relation(tmp_path / "spark.parquet", key="product_id", out=tmp_path / "r")
    stored = ArrowFileRelation(RelationDirectory(tmp_path / "r"), 1).segment(0).column("seen_at")
    assert stored.equals(moments)


def test_timestamps_that_spark_wrote_as_int96_are_instants_inside_other_types_too(tmp_path: Path) -> None:
    instant = pa.timestamp("us", "UTC")
    moments = pa.array([1_700_000_000_000_001, None], instant)
    table = pa.table(
        {
            "visit": pa.StructArray.from_arrays([pa.array([1, 2]), moments], names=["n", "at"]),
            "product_id": [1, 2],
            "times": pa.array([moments.to_pylist(), None], pa.list_(instant)),
            "by_name": pa.array([[("x", moments[0].as_py())], []], pa.map_(pa.string(), instant)),
        }
    )
    # As Spark does: without Arrow's own note of the types.
    pq.write_table(table, tmp_path / "s.parquet", use_deprecated_int96_timestamps=True, store_schema=False)
    build_relation(tmp_path / "s.parquet", key="product_id", out=tmp_path / "r")
    stored = ArrowFileRelation(RelationDirectory(tmp_path / "r"), 1).segment(0)
    for name in ("visit", "times", "by_name"):
        assert stored.column(name).to_pylist() == table[name].to_pylist()


def test_a_name_with_a_dot_is_not_the_part_of_another_column(tmp_path: Path) -> None:
    table = pa.table({"id": [1], "a": [{"b": 2, "c": 3}], "a.b": [4]})
    pq.write_table(table, tmp_path / "dots.parquet")
    for columns in (["a.b"], ["a"], None):
        report = build_relation(tmp_path / "dots.parquet", key="id", out=tmp_path / "r", columns=columns)
        stored = ArrowFileRelation(RelationDirectory(tmp_path / "r"), report.version).segment(0)
        kept = columns or ["a", "a.b"]
        assert stored.select(kept).to_pylist() == table.select(kept).to_pylist()
