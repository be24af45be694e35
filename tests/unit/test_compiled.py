"""Kernels are kept on disk, and compiled anew when anything changes that they may be made of."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semistream.structures import compiled

SOURCE = """
from semistream.structures.compiled import I64, READ_I64, kernel

@kernel(I64(READ_I64))
def total(numbers):
    added = 0
    for i in range(numbers.size):
        added += numbers[i]
    return added
"""


@pytest.fixture
def total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that imports a kernel as if the process had just begun."""
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "kept"))
    path = tmp_path / "made_for_a_test.py"
    path.write_text(SOURCE)

    def imported() -> Any:
        spec = importlib.util.spec_from_file_location("made_for_a_test", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.total

    return imported


def hits(kernel: Any) -> int:
    return sum(kernel.stats.cache_hits.values())


def test_a_kernel_is_loaded_from_disk_as_long_as_nothing_has_changed(total: Any) -> None:
    assert (hits(total()), hits(total())) == (0, 1)
    assert total()(np.arange(4)) == 6


def test_a_kernel_is_compiled_anew_when_a_file_of_helpers_has_changed(
    total: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    total()
    monkeypatch.setattr(compiled, "_sources", "others")
    assert (hits(total()), hits(total())) == (0, 1)


def test_a_kernel_takes_no_other_types_than_those_it_states(total: Any) -> None:
    with pytest.raises(TypeError, match="No matching definition"):
        total()(np.arange(4.0))
