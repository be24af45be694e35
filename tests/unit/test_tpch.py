"""TPC-H through tpchgen-cli: the rows of the generator, only the columns a join needs, and clear words without it.

The program takes over a second to start, so it is started few times: one run makes all tables, and a script that hands
out those files stands in for it where only our side is tested.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from semistream.errors import EnvironmentUnfit, InvalidOption
from semistream.lab.workloads import tpch
from semistream.lab.workloads.tpch import CUSTOMER_ORDERS, PARTSUPP_LINEITEM, TpchJoin, write_tpch

pytestmark = pytest.mark.long


SCALE_FACTOR = 0.001
JOINS = pytest.mark.parametrize(
    "join", [CUSTOMER_ORDERS, PARTSUPP_LINEITEM], ids=["customer and orders", "partsupp and lineitem"]
)

StandIn = Callable[[str], None]


@pytest.fixture(scope="module")
def program() -> str:
    try:
        return tpch._program()
    except EnvironmentUnfit as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def made(program: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All four tables, as the program itself writes them."""
    directory = tmp_path_factory.mktemp("tpch")
    names = ",".join(
        table.name for join in (CUSTOMER_ORDERS, PARTSUPP_LINEITEM) for table in (join.master, join.stream)
    )
    command = [program, "parquet", "--quiet", f"--scale-factor={SCALE_FACTOR}", f"--tables={names}", "-o", directory]
    subprocess.run(command, check=True)
    return directory


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Replace the program by a script; in it, $table, $out and $part are what was asked for."""

    def replace(body: str) -> None:
        script = tmp_path / "stand-in"
        script.write_text(
            "#!/bin/sh\n"
            'for option in "$@"; do case "$option" in\n'
            '  --tables=*) table="${option#*=}";;\n'
            '  --output-dir=*) out="${option#*=}";;\n'
            '  --part=*) part="${option#*=}";;\n'
            "esac; done\n"
            f"echo \"$table $part\" >> '{tmp_path}/calls'\n{body}\n"
        )
        script.chmod(0o755)
        monkeypatch.setattr(tpch, "_program", lambda: str(script))

    return replace


def hand_out(made: Path) -> str:
    return f'mkdir -p "$out/$table" && cp \'{made}\'/$table.parquet "$out/$table/$table.$part.parquet"'


def test_the_program_understands_what_it_is_asked(program: str, made: Path, stand_in: StandIn, tmp_path: Path) -> None:
    # One start is enough to see that: customers come from the tables made before.
    stand_in(f"if [ $table = orders ]; then exec '{program}' \"$@\"; fi\n{hand_out(made)}")
    written = write_tpch(CUSTOMER_ORDERS, SCALE_FACTOR, tmp_path / "new" / "place")
    customer, orders = pq.read_table(written.master), pq.read_table(written.stream)
    assert (customer.num_rows, orders.num_rows) == (written.master_rows, written.stream_rows) == (150, 1500)
    assert customer["c_custkey"].to_pylist() == list(range(1, 151))
    known = orders["o_custkey"].to_numpy()
    assert set(known.tolist()) <= set(range(1, 151))
    assert np.all(known % 3 != 0), "every third customer orders nothing"
    assert sorted(path.name for path in written.master.parent.iterdir()) == ["customer.parquet", "orders.parquet"]


@JOINS
def test_files_hold_the_rows_of_the_program_and_only_the_columns_needed(
    join: TpchJoin, made: Path, stand_in: StandIn, tmp_path: Path
) -> None:
    stand_in(hand_out(made))
    written = write_tpch(join, SCALE_FACTOR, tmp_path / "out")
    for table, path in ((join.master, written.master), (join.stream, written.stream)):
        found = pq.read_table(path)
        assert found.column_names == list(table.columns)
        assert table.key in table.columns
        assert not any(pa.types.is_string_view(field.type) for field in found.schema)
        original = pq.read_table(made / f"{table.name}.parquet", columns=list(table.columns))
        assert found.equals(original.cast(found.schema))
        assert found.num_rows == pytest.approx(table.rows_at_scale_1 * SCALE_FACTOR, rel=0.01)


def test_every_part_has_four_suppliers_and_every_line_item_a_part(made: Path) -> None:
    parts = pc.value_counts(pq.read_table(made / "partsupp.parquet")["ps_partkey"])
    assert set(parts.field("counts").to_pylist()) == {4}
    sold = pq.read_table(made / "lineitem.parquet")["l_partkey"]
    assert pc.all(pc.is_in(sold, parts.field("values"))).as_py()


def test_a_large_table_is_made_in_parts_and_no_more_than_needed(
    made: Path, stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tpch, "PART_ROWS", 100)
    monkeypatch.setattr(tpch, "BATCH_ROWS", 400)
    stand_in(hand_out(made))  # every part is the whole table again
    written = write_tpch(CUSTOMER_ORDERS, SCALE_FACTOR, tmp_path / "out", stream_rows_max=3500)
    assert (written.master_rows, written.stream_rows) == (2 * 150, 3500)
    assert pq.read_metadata(written.stream).num_rows == 3500
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["customer 1", "customer 2", "orders 1", "orders 2", "orders 3"]


def test_without_the_program_the_error_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tpch, "PROGRAM", "tpchgen-cli-that-is-not-there")
    with pytest.raises(EnvironmentUnfit, match=r"not installed.\nHint: pip install 'semistream\[lab\]'"):
        write_tpch(CUSTOMER_ORDERS, 1, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("body", "match"),
    [("echo no space left >&2; exit 3", "Hint: no space left"), ("exit 0", "code 0 and wrote 0 files")],
)
def test_a_program_that_fails_is_quoted_and_leaves_the_old_file(
    body: str, match: str, stand_in: StandIn, tmp_path: Path
) -> None:
    old = tmp_path / "out" / "customer.parquet"
    old.parent.mkdir()
    old.write_text("old")
    stand_in(body)
    with pytest.raises(EnvironmentUnfit, match=match):
        write_tpch(CUSTOMER_ORDERS, 1, tmp_path / "out")
    assert [path.name for path in old.parent.iterdir()] == ["customer.parquet"]
    assert old.read_text() == "old"


@pytest.mark.parametrize("scale_factor", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_scale_factor_is_refused(scale_factor: float, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="scale factor"):
        write_tpch(CUSTOMER_ORDERS, scale_factor, tmp_path)


def test_a_stream_of_no_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="stream_rows_max"):
        write_tpch(CUSTOMER_ORDERS, 1, tmp_path, stream_rows_max=0)
