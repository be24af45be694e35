"""What the tests of building share: rows to build from, and what a relation must hold afterwards."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from semistream.keys import KeyCodec
from semistream.relations.arrow_file.directory import RelationDirectory
from semistream.relations.base import CODE_COLUMN

TINY = 300_000
"""A `memory` that a few ten thousand rows exceed many times over."""


def products(row_count: int, *, distinct: int | None = None, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    ids = rng.permutation(row_count) if distinct is None else rng.integers(0, distinct, row_count)
    return pa.table(
        {
            "product_id": pa.array(ids),
            "name": pa.array([f"product {number}" for number in ids]),
            "price": pa.array(rng.random(row_count)),
            "arrival": pa.array(np.arange(row_count)),
        }
    )


def current_rows(out: Path) -> pa.Table:
    """The rows of the current version, code included, in the order of the file."""
    directory = RelationDirectory(out)
    return pa.ipc.open_file(str(directory.data_path(directory.current_version()))).read_all()


def assert_holds(out: Path, expected: pa.Table, *key: str) -> None:
    """The relation holds these rows, ascending by code, rows of one code in the order of `expected`."""
    stored = current_rows(out)
    codes = stored.column(CODE_COLUMN).to_numpy()
    assert (codes[1:] >= codes[:-1]).all()
    columns = [stored.column(name).combine_chunks() for name in key]
    encoded = KeyCodec([column.type for column in columns], key).encode(columns)
    assert np.array_equal(codes, encoded.codes), "each row carries the code of its own key"
    numbered = expected.append_column("expected_row", pa.array(np.arange(expected.num_rows)))
    wanted = KeyCodec([expected.schema.field(name).type for name in key], key).encode(
        [numbered.column(name).combine_chunks() for name in key]
    )
    numbered = numbered.append_column(CODE_COLUMN, pa.array(wanted.codes))
    in_order = duckdb.sql(f"select * exclude expected_row from numbered order by {CODE_COLUMN}, expected_row")
    assert in_order is not None
    assert stored.select(in_order.columns).to_pylist() == in_order.to_arrow_table().to_pylist()


def staging_of(out: Path) -> list[str]:
    return [entry.name for entry in out.iterdir() if entry.name.startswith(".building")] if out.exists() else []
