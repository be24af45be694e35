"""A sample of a passing stream: bounded, and a smaller stream of the same shape."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.joins.base import Numbers
from semistream.planning import key_sample
from semistream.planning.key_sample import KeySample

pytestmark = pytest.mark.long


def sample_of(codes: Numbers, batch_rows: int) -> KeySample:
    sample = KeySample()
    for begin in range(0, len(codes), batch_rows):
        sample.add(codes[begin : begin + batch_rows])
    return sample


def test_a_small_stream_is_kept_whole_and_in_order() -> None:
    codes = np.random.default_rng(1).integers(-50, 50, 999)
    sample = sample_of(codes, 100)
    before, counted = sample.halves()
    assert (sample.stream_rows, sample.share, sample.distinct_keys) == (999, 1.0, len(np.unique(codes)))
    assert np.concatenate([before, counted]).tolist() == codes.tolist()
    assert len(before) == 499


@pytest.mark.parametrize("batch_rows", [10, 5000, 20_000])
def test_of_many_keys_some_are_kept_with_all_their_rows(monkeypatch: pytest.MonkeyPatch, batch_rows: int) -> None:
    monkeypatch.setattr(key_sample, "SAMPLED_KEYS_MAX", 500)
    codes = np.random.default_rng(2).integers(0, 4000, 20_000)
    sample = sample_of(codes, batch_rows)
    kept = np.concatenate(sample.halves())
    assert sample.share in (1 / 8, 1 / 16)
    assert len(np.unique(kept)) <= 500
    assert kept.tolist() == codes[np.isin(codes, kept)].tolist()
    assert sample.distinct_keys == pytest.approx(4000, rel=0.15)


def test_of_many_rows_a_bounded_number_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sample, "SAMPLED_ROWS_MAX", 2000)
    monkeypatch.setattr(key_sample, "SAMPLED_KEYS_MIN", 100)
    sample = sample_of(np.random.default_rng(3).integers(0, 1000, 50_000), 700)
    assert sum(map(len, sample.halves())) <= 2000
    assert sample.stream_rows == 50_000


def test_of_a_stream_of_few_keys_the_end_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sample, "SAMPLED_ROWS_MAX", 1000)
    codes = np.arange(10_000) % 7
    sample = sample_of(codes, 300)
    before, counted = sample.halves()
    assert sample.share == 1.0
    assert np.concatenate([before, counted]).tolist() == codes[sample.first_row :].tolist()
    assert 500 <= sample.sampled_rows <= 1000
    assert len(before) == sample.sampled_rows // 2


def test_an_empty_stream_has_an_empty_sample() -> None:
    sample = KeySample()
    sample.add(np.zeros(0, np.int64))
    assert sample.stream_rows == sample.distinct_keys == 0
    assert [len(half) for half in sample.halves()] == [0, 0]
