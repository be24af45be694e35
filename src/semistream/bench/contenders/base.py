"""What a contender is: a way to put the columns of R beside the rows of a stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame

from semistream.bench.workload import Form

PutsOut = Literal["joined", "prebuilt", "nothing"]
"""What comes out: the joined rows, whose checksum must be that of all others; rows of the right width; or no rows."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a contender works with."""

    products: Path
    """R, in the form it needs."""
    memory_bytes: int
    cores: int


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to join."""

    name: str
    in_words: str
    reads: Form
    join: Callable[[DataFrame, Job], DataFrame]
    """From sales to sales with the columns of their products."""
    by_batch: bool = False
    """Whether it is called with each micro-batch, in `foreachBatch`, rather than once with the stream."""
    puts_out: PutsOut = "joined"
    is_usual: bool = True
    """Whether it takes part unless contenders are named."""
