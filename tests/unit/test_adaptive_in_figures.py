"""Our own join beside all others of a figure, at a point of each paper and at the size that reports are made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from semistream.lab.beside_best import beside_best
from semistream.lab.experiments import EXPERIMENTS
from semistream.lab.part import part_of
from semistream.lab.run import run

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    ("name", "at"),
    [("pcsrj-3a", "1"), ("moij-7a", "10"), ("tuned-6a", "0.5"), ("sscj-4a", "1"), ("sscj-5b", "0.5"), ("sscj-5b", "4")],
)
def test_our_own_join_is_the_best_or_within_5_percent_of_it(name: str, at: str) -> None:
    point = part_of(EXPERIMENTS[name], "default", at=at)
    # All series are run, so at this point the best other is among them.
    ours = beside_best(replace(point, is_part=False), run(point, "default").lines)
    assert ours.measured
    assert ours.is_near_everywhere, ours.measured
