"""The two limits: what a micro-batch costs without rows, and what rows cost without a lookup.

`empty` is our query over empty batches: planning, offsets, commits. `nothing` is our query with the lookup taken out:
the same columns cross into Python, and an answer that was built once comes back, of the same types and string lengths.
No lookup in Python can be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pyspark.sql import DataFrame

from semistream.bench.contenders.base import Contender, Job
from semistream.bench.contenders.ours import enriched
from semistream.errors import InvalidOption
from semistream.spark import worker

Answer = Callable[[Iterator[Any]], Iterator[pa.Array]]

_prebuilt: dict[str, pa.Array] = {}
"""The one answer of this process, which is a Python worker."""


def crossing_only(sales: DataFrame, job: Job) -> DataFrame:
    """Our query, whose workers look up one Arrow batch and repeat its answer for ever."""
    lookups: list[Answer] = []

    def without_lookup(*arguments: Any, **options: Any) -> Answer:
        lookups.append(look_up(*arguments, **options))
        answer = lookups[-1]

        def run(batches: Iterator[Any]) -> Iterator[pa.Array]:
            yield from repeated(answer, batches)

        return run

    look_up: Callable[..., Answer] = worker.answers
    with patch.object(worker, "answers", without_lookup):
        joined = enriched(sales, job)
    if not lookups:
        raise InvalidOption(
            "there is too little memory for the way of crossing that `nothing` stands for",
            given=f"{job.memory_bytes} bytes for {job.cores} workers",
            hint="raise --memory",
        )
    return joined


def repeated(answer: Answer, batches: Iterator[Any]) -> Iterator[pa.Array]:
    """Answer every batch with the answer to the longest that was ever seen."""
    for batch in batches:
        length = len(batch if isinstance(batch, pa.Array) else batch[0])
        if len(_prebuilt.get("answer", ())) < length:
            _prebuilt["answer"] = pa.concat_arrays(list(answer(iter([batch]))))
        prebuilt = _prebuilt["answer"]
        yield prebuilt if len(prebuilt) == length else prebuilt.slice(0, length)


CONTENDERS = (
    Contender("empty", "our query over empty batches", "relation", enriched, puts_out="nothing"),
    Contender("nothing", "a Python pass that does nothing", "relation", crossing_only, puts_out="prebuilt"),
)
