"""What `bench enrich` found: one result for each contender and setting, and whether they agree.

Checksums are compared batch by batch, so that a contender that ran out of time is compared as far as it came.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from semistream.errors import BalanceBroken

Status = Literal["ok", "stopped", "died"]
"""Ended by itself; ended by the time limit; ended by a mistake or by the system."""

CHECKSUM_BITS = 64


@dataclass(frozen=True, slots=True)
class Setting:
    """What is varied."""

    relation_rows: int
    batch_rows: int
    skew: float


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of one contender."""

    seconds: float
    rows: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Result:
    """One contender at one setting."""

    contender: str
    setting: Setting
    status: Status
    note: str
    """What there is to say about the status; empty where all went well."""
    is_compared: bool
    """Whether it puts out the joined rows."""
    batches: tuple[Batch, ...]
    warm_up_batches: int
    checked_batches: int
    """From the first on, those over which the checksum goes: all contenders have done as many."""
    peak_bytes: int | None
    """The most that all its processes held together; None where the system does not show it."""

    @property
    def measured(self) -> tuple[Batch, ...]:
        """The batches behind the warm-up."""
        return self.batches[self.warm_up_batches :]

    @property
    def seconds_per_batch(self) -> float | None:
        """The median of the measured batches; None if there is none."""
        return statistics.median(batch.seconds for batch in self.measured) if self.measured else None

    @property
    def rows_per_second(self) -> float | None:
        """Rows of a batch in the median time; None if no batch was measured."""
        if not self.measured or self.seconds_per_batch is None:
            return None
        return statistics.median(batch.rows for batch in self.measured) / self.seconds_per_batch

    @property
    def checksum(self) -> str | None:
        """Of the checked batches; None for a contender that puts out other rows than the joined ones, or not all."""
        if not self.is_compared or self.status != "ok":
            return None
        return f"{sum(batch.checksum for batch in self.batches[: self.checked_batches]) % 2**CHECKSUM_BITS:016x}"

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON values."""
        return {
            "contender": self.contender,
            "relation_rows": self.setting.relation_rows,
            "batch_rows": self.setting.batch_rows,
            "skew": self.setting.skew,
            "rows_per_second": _rounded(self.rows_per_second, 1),
            "seconds_per_batch": _rounded(self.seconds_per_batch, 4),
            "checksum": self.checksum,
            "peak_bytes": self.peak_bytes,
            "status": self.status,
            "note": self.note,
            "batch_seconds": [batch.seconds for batch in self.batches],
            "warm_up_batches": self.warm_up_batches,
        }


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def check_agreement(results: Sequence[Result]) -> None:
    """Raise unless all contenders that join have put out the same rows, in every batch that they have done."""
    compared = [result for result in results if result.is_compared]
    for number in range(max((len(result.batches) for result in compared), default=0)):
        there = [result for result in compared if number < len(result.batches)]
        found = {result.contender: result.batches[number] for result in there}
        if len({(batch.rows, batch.checksum) for batch in found.values()}) > 1:
            told = ", ".join(
                f"{name}: {batch.rows} rows, {batch.checksum % 2**CHECKSUM_BITS:016x}" for name, batch in found.items()
            )
            raise BalanceBroken(
                f"contenders have joined the same sales and put out different rows in batch {number}",
                given=f"{told} ({compared[0].setting})",
                allowed="one checksum",
            )
