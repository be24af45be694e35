"""`estimate` on Spark: what it says of a sample is what one process says, and the truth is inside its intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import semistream as ss
from semistream.errors import ColumnNotFound, InvalidOption
from semistream.window.estimate import Estimate, SampledPairs
from semistream.window.estimate import estimate as estimate_in_one_process
from tests.support.frames import frame_of

pytestmark = pytest.mark.long

ROWS, KEYS = 3000, 300


def streams(session: SparkSession, seed: int) -> tuple[DataFrame, DataFrame, dict[str, float]]:
    """Two frames and the truth about their pairs of equal keys."""
    rng = np.random.default_rng(seed)
    key_a, key_b = rng.integers(0, KEYS, ROWS), rng.integers(0, KEYS, ROWS)
    amount = rng.gamma(2.0, 10.0, ROWS)
    partners = np.bincount(key_b, minlength=KEYS)[key_a]
    known = rng.random(ROWS) < 0.8
    truth = {
        "count": float(partners.sum()),
        "sum(amount)": float((partners * amount).sum()),
        "avg(amount)": float((partners * amount).sum() / partners.sum()),
        "sum(gaps)": float((partners * amount)[known].sum()),
        "avg(gaps)": float((partners * amount)[known].sum() / partners[known].sum()),
    }
    a = pa.table({"k": key_a, "amount": amount, "gaps": pa.array(amount, mask=~known)})
    return frame_of(session, a), frame_of(session, pa.table({"k": key_b, "n": np.arange(ROWS)})), truth


def in_one_process(found: pa.Table, value: str) -> list[Estimate]:
    sample = found["sample"].combine_chunks()
    column = {f.name: c.to_numpy(zero_copy_only=False) for f, c in zip(sample.type, sample.flatten(), strict=True)}
    # Rows of two partitions may have one number, so each gets numbers of its own.
    apart = column["partition"].astype(np.int64) * ROWS
    order = np.lexsort((-column["held_share"], apart + column["probe_row"]))
    estimates = estimate_in_one_process(
        SampledPairs(
            (apart + column["probe_row"])[order],
            (apart + column["held_row"])[order],
            column["probe_share"][order],
            column["held_share"][order],
            (column["probe_side"] == "a")[order],
            found[value].to_numpy()[order],
        )
    )
    return [estimates.count, estimates.sum, estimates.average]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("given", [{"memory": "60kB"}, {"rate": 1500}], ids=["memory", "rate"])
def test_the_truth_is_inside_and_one_process_says_the_same(
    classic_session: SparkSession, given: dict[str, Any], seed: int
) -> None:
    print(f"seed {seed}")
    a, b, truth = streams(classic_session, seed)
    pairs = ss.window_join(a, b, on="k", within=ss.seconds(5), shed="sample", seed=seed, partitions=2, **given).cache()
    assert 0 < pairs.count() < truth["count"] / 2
    found = ss.estimate(pairs, "amount", "gaps")
    for name, value in truth.items():
        assert found[name].low < value < found[name].high, name
    expected = in_one_process(pairs.toArrow(), "amount")
    for estimate, other in zip([found[n] for n in ("count", "sum(amount)", "avg(amount)")], expected, strict=True):
        assert (estimate.value, estimate.low, estimate.high) == pytest.approx((other.value, other.low, other.high))
    # A filter leaves an estimate of what it leaves.
    few = ss.estimate(pairs.where("n < 1000"))["count"]
    assert few.value < found["count"].value
    assert ss.estimate(pairs.where("n < 0"))["count"].high == float("inf")
    pairs.unpersist()


def test_what_is_no_sample_or_no_number_is_refused(classic_session: SparkSession) -> None:
    a, b, _ = streams(classic_session, 0)
    pairs = ss.window_join(a, b, on="k", within=ss.seconds(5), shed="sample", partitions=1)
    with pytest.raises(ColumnNotFound, match="no column 'sample' that tells how"):
        ss.estimate(a, "amount")
    with pytest.raises(ColumnNotFound, match="did you mean 'amount'"):
        ss.estimate(pairs, "amuont")
    with pytest.raises(InvalidOption, match="cannot be summed up"):
        ss.estimate(pairs, "sample")
    stream = classic_session.readStream.format("rate").load()
    with pytest.raises(InvalidOption, match="pairs that are there"):
        ss.estimate(stream)
