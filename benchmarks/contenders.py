"""One contender, one process: what a benchmark needs to measure several and show their ratios."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from semistream.clock import RealClock


def median_seconds(work: Callable[[], Any], *, warm_ups: int, repeats: int) -> float:
    """Run `work` a few times unmeasured and then `repeats` times; return the median."""
    clock = RealClock()
    for _ in range(warm_ups):
        work()
    seconds = []
    for _ in range(repeats):
        begun = clock.now_s()
        work()
        seconds.append(clock.now_s() - begun)
    return statistics.median(seconds)


def run_contender(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Run `python -m module arguments` in a process of its own; its last line of output is its result as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if not os.environ.get("BENCH_DEBUG") else None,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def parse_count(text: str) -> int:
    """`10M`, `100k` or `1000` as a number.

    Example:
        >>> parse_count("1.5M"), parse_count("100k")
        (1500000, 100000)
    """
    factor = {"k": 1_000, "m": 1_000_000, "g": 1_000_000_000}.get(text[-1].lower())
    return int(float(text[:-1]) * factor) if factor else int(text)


def spark_session() -> Any:
    """A quiet session on two cores, the same for every contender."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    return builder.config("spark.driver.memory", "4g").config("spark.ui.showConsoleProgress", "false").getOrCreate()
