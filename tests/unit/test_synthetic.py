"""The papers' synthetic data: as many bytes as they say, as many rows a key as asked for, told apart by number."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from semistream.errors import InvalidOption
from semistream.lab.workloads.key_stream import KeyStream
from semistream.lab.workloads.synthetic import (
    CHUNK_ROWS,
    MASTER_ROW_BYTES,
    MASTER_SCHEMA,
    ROWS_PER_KEY_MAX,
    STREAM_ROW_BYTES,
    STREAM_SCHEMA,
    MasterData,
    master_batches,
    stream_batches,
)
from semistream.lab.workloads.zipf import Shuffle, Zipf


def master_table(data: MasterData) -> pa.Table:
    return pa.Table.from_batches(master_batches(data))


def row_numbers(master: pa.Table) -> np.ndarray:
    payload = b"".join(master["payload"].to_pylist())
    return np.frombuffer(payload, dtype=np.uint8).reshape(master.num_rows, -1)[:, :8].copy().view("<i8").ravel()


def test_a_master_row_has_120_bytes_and_a_stream_row_20() -> None:
    master = next(master_batches(MasterData(keys=CHUNK_ROWS * 2)))
    master.validate(full=True)
    assert master.schema == MASTER_SCHEMA
    assert master.nbytes == pytest.approx(MASTER_ROW_BYTES * master.num_rows, abs=8)
    stream = next(stream_batches(KeyStream(Zipf(1000, 1.0)), rows=5000, seed=60))
    assert stream.schema == STREAM_SCHEMA
    assert stream.nbytes == STREAM_ROW_BYTES * stream.num_rows


@given(
    keys=st.integers(1, 400),
    rows_per_key=st.integers(1, 6),
    order=st.sampled_from(["frequency", "shuffled"]),
    seed=st.integers(0, 2**32),
)
def test_every_key_has_its_rows_and_every_row_its_number(keys: int, rows_per_key: int, order: str, seed: int) -> None:
    data = MasterData(keys, rows_per_key, order=order, seed=seed)  # type: ignore[arg-type]
    master = master_table(data)
    found = master["key"].to_numpy()
    assert len(found) == data.rows == keys * rows_per_key
    ranks = np.repeat(np.arange(keys), rows_per_key)
    assert np.array_equal(found, ranks if order == "frequency" else Shuffle(keys, seed)(ranks))
    assert np.array_equal(row_numbers(master), np.arange(len(found)))


@pytest.mark.parametrize("mean", [1, 1.5, 4, 40])
def test_rows_a_key_may_vary_around_a_mean(mean: float) -> None:
    data = MasterData(keys=30_000, rows_per_key=mean, spread="geometric", order="shuffled", seed=61)
    keys = np.concatenate([batch.column("key").to_numpy() for batch in master_batches(data)])
    counts = np.bincount(keys, minlength=data.keys)
    assert len(keys) == data.rows
    assert counts.min() >= 1
    assert counts.mean() == pytest.approx(mean, rel=0.03)
    # A geometric distribution around m has the variance m (m - 1).
    assert counts.var() == pytest.approx(mean * (mean - 1), rel=0.1, abs=1e-9)


def test_chunks_are_made_one_at_a_time_and_numbered_on() -> None:
    batches = master_batches(MasterData(keys=100_000_000))
    first, second = next(batches), next(batches)
    assert first.num_rows == second.num_rows == CHUNK_ROWS
    assert second.column("key")[0].as_py() == CHUNK_ROWS
    assert int.from_bytes(second.column("payload")[0].as_py()[:8], "little") == CHUNK_ROWS


def test_a_batch_larger_than_a_chunk_is_filled_all_the_same() -> None:
    master = master_table(MasterData(keys=2, rows_per_key=CHUNK_ROWS + 10))
    assert master.num_rows == 2 * CHUNK_ROWS + 20
    assert np.array_equal(row_numbers(master), np.arange(master.num_rows))


def test_a_seed_gives_the_same_data_again_and_another_seed_other_data() -> None:
    make = [MasterData(500, 2.5, "geometric", "shuffled", seed) for seed in (62, 62, 63)]
    first, again, other = (master_table(data) for data in make)
    assert first.equals(again)
    assert not first.equals(other)


@given(rows=st.integers(0, 100), batch_rows=st.integers(1, 50), seed=st.integers(0, 2**32))
def test_a_stream_is_cut_into_batches_and_counted(rows: int, batch_rows: int, seed: int) -> None:
    batches = list(stream_batches(KeyStream(Zipf(50, 1.0), "shuffled", seed), rows, seed, batch_rows))
    assert all(batch.num_rows <= batch_rows for batch in batches)
    stream = pa.Table.from_batches(batches, schema=STREAM_SCHEMA)
    assert stream["row"].to_pylist() == list(range(rows))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"keys": 0}, "at least one key"),
        ({"keys": 5, "rows_per_key": 0}, "rows_per_key"),
        ({"keys": 5, "rows_per_key": ROWS_PER_KEY_MAX + 1}, "rows_per_key"),
        ({"keys": 5, "rows_per_key": float("nan")}, "rows_per_key"),
        ({"keys": 5, "rows_per_key": 2.5}, "geometric"),
        ({"keys": 5, "spread": "geometrical"}, "did you mean 'geometric'"),
    ],
)
def test_impossible_master_data_is_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(InvalidOption, match=match):
        MasterData(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("rows", "batch_rows"), [(-1, 10), (10, 0)])
def test_an_impossible_stream_is_refused(rows: int, batch_rows: int) -> None:
    with pytest.raises(InvalidOption):
        next(stream_batches(KeyStream(Zipf(5, 1.0)), rows, 64, batch_rows))
