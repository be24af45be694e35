"""`estimate`: from the pairs of a window join that sheds to the count, sums and averages of all pairs, with intervals.

The arithmetic is that of `semistream.window.estimate`, where it is explained; here Spark adds up. A pair has the weight
w = 1 / (q p). What is needed of all pairs are sums over rows: of each row that probed, and of each that was held, the
moments of the sums of w and of w f over its pairs. They come from two group-bys, and what reaches the driver are three
rows of numbers, however many pairs there are.

Rows are told apart by the number of their partition, the side that probed and their own number. A row that is held may
have lost some of its chance between two of its pairs; its pairs are added up by share first, and a running sum from the
largest share down gives the products of all with all (two pairs of a row count with 1 - the larger share).

Pairs may be left out before: a sum over some of the pairs is one in which the others count nothing, so what is
estimated is that of the pairs that would have stayed. Pairs of two joins must not be mixed: their rows have the same
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType, StructType

from semistream.errors import ColumnNotFound, InvalidOption, did_you_mean
from semistream.spark.window_options import SAMPLE
from semistream.window.estimate import Estimate, PairTally

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

MOMENTS = ("cc", "cs", "ss")
"""Count with count, count with sum, sum with sum."""

SQUARES = tuple(combinations_with_replacement(range(len(MOMENTS)), 2))
"""Which moments are multiplied with each other."""

_ROW = ("partition", "probe_side")


def estimate(pairs: DataFrame, *columns: str) -> dict[str, Estimate]:
    """Estimate what a window join with `shed="sample"` would have found if nothing had been shed.

    Use it on pairs that were written somewhere, all of them or those that a filter leaves; one join's at a time.

    Args:
        pairs: A batch DataFrame of pairs, with the column `sample` that the join has added.
        columns: Columns of numbers to be summed up and averaged over all pairs; nulls are left out, as in SQL.

    Returns:
        An `Estimate` with `value`, `low` and `high`, the ends of the 95 % interval, for `"count"` and for
        `"sum(column)"` and `"avg(column)"` of every column.

    Example:
        found = ss.estimate(spark.read.parquet("pairs"), "amount")
        print(found["count"].value, found["avg(amount)"].low, found["avg(amount)"].high)
    """
    _check(pairs, columns)
    sampled = pairs.select(F.col(f"{SAMPLE}.*"), *_values(columns))
    sums = _sums(sampled, len(columns))
    found = {"count": _tally(sums, 0).estimates().count}
    for number, column in enumerate(columns, start=1):
        estimates = _tally(sums, number).estimates()
        found[f"sum({column})"], found[f"avg({column})"] = estimates.sum, estimates.average
    return found


def _check(pairs: DataFrame, columns: tuple[str, ...]) -> None:
    if not isinstance(pairs, DataFrame):
        raise InvalidOption(
            "`pairs` is not a DataFrame of Spark", given=type(pairs).__name__, allowed="pyspark.sql.DataFrame"
        )
    if pairs.isStreaming:
        raise InvalidOption(
            "an estimate is made of pairs that are there",
            given="a stream",
            allowed="a batch DataFrame",
            hint="write the stream somewhere and read that",
        )
    types = {field.name: field.dataType for field in pairs.schema.fields}
    if not isinstance(types.get(SAMPLE), StructType):
        raise ColumnNotFound(
            f"the pairs have no column {SAMPLE!r} that tells how they were sampled",
            given=", ".join(types),
            hint='join with shed="sample"; without shedding nothing has to be estimated',
        )
    for column in columns:
        if column not in types:
            raise ColumnNotFound(
                f"the pairs have no column {column!r}",
                given=str(column),
                allowed=", ".join(types),
                hint=did_you_mean(str(column), list(types)),
            )
        if not isinstance(types[column], NumericType):
            raise InvalidOption(
                f"the column {column!r} cannot be summed up", given=types[column].simpleString(), allowed="a number"
            )


def _values(columns: tuple[str, ...]) -> list[Column]:
    """Weight and weighted value of each estimate: of the count, then of each column; nothing where it is null."""
    weight = F.col(f"{SAMPLE}.weight")
    values = [weight.alias("c0"), F.lit(0.0).alias("s0"), F.lit(1).alias("n0")]
    for number, name in enumerate(columns, start=1):
        column = F.col("`" + name.replace("`", "``") + "`").cast("double")
        values.append(F.when(column.isNull(), 0.0).otherwise(weight).alias(f"c{number}"))
        values.append(F.coalesce(weight * column, F.lit(0.0)).alias(f"s{number}"))
        values.append(column.isNotNull().cast("long").alias(f"n{number}"))
    return values


def _sums(sampled: DataFrame, columns: int) -> list[Row]:
    """Sums over pairs, over rows that probed and over rows that were held, in this order of their `source`."""
    numbers = range(columns + 1)
    own = [f"{what}{number}" for number in numbers for what in "cs"]
    loss_of_both = (1 - F.col("probe_share")) * (1 - F.col("held_share"))
    of_pairs = sampled.select("*", *_moments(numbers, lambda number: _products(number, loss_of_both)))
    probing = sampled.groupBy(*_ROW, "probe_row", "probe_share").agg(*(F.sum(name).alias(name) for name in own))
    of_probing = probing.select(*_moments(numbers, lambda number: _products(number, 1 - F.col("probe_share"))))
    frames = [
        _summed(of_pairs, numbers, 0, with_totals=True),
        _summed(of_probing, numbers, 1),
        _summed(_of_held(sampled, numbers, own), numbers, 2),
    ]
    rows = frames[0].unionByName(frames[1]).unionByName(frames[2]).collect()
    return sorted(rows, key=lambda row: int(row["source"]))


def _of_held(sampled: DataFrame, numbers: range, own: list[str]) -> DataFrame:
    """Moments of the rows that were held."""
    by_share = sampled.groupBy(*_ROW, "held_row", "held_share").agg(*(F.sum(name).alias(name) for name in own))
    larger = (
        Window.partitionBy(*_ROW, "held_row")
        .orderBy(F.col("held_share").desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    loss = 1 - F.col("held_share")
    earlier = [F.coalesce(F.sum(loss * F.col(name)).over(larger), F.lit(0.0)).alias(f"earlier_{name}") for name in own]

    def moments(number: int) -> tuple[Column, Column, Column]:
        c, s = F.col(f"c{number}"), F.col(f"s{number}")
        before_c, before_s = F.col(f"earlier_c{number}"), F.col(f"earlier_s{number}")
        return c * (2 * before_c + loss * c), c * before_s + s * before_c + loss * c * s, s * (2 * before_s + loss * s)

    pieces = by_share.select("*", *earlier).select(*_ROW, "held_row", *_moments(numbers, moments))
    names = [f"{moment}{number}" for number in numbers for moment in MOMENTS]
    return pieces.groupBy(*_ROW, "held_row").agg(*(F.sum(name).alias(name) for name in names))


def _products(number: int, loss: Column) -> tuple[Column, Column, Column]:
    c, s = F.col(f"c{number}"), F.col(f"s{number}")
    return loss * c * c, loss * c * s, loss * s * s


def _moments(numbers: range, of: Callable[[int], tuple[Column, Column, Column]]) -> list[Column]:
    return [
        column.alias(f"{moment}{number}")
        for number in numbers
        for moment, column in zip(MOMENTS, of(number), strict=True)
    ]


def _summed(rows: DataFrame, numbers: range, source: int, *, with_totals: bool = False) -> DataFrame:
    """One row: sums of moments, of their products, and of pairs where those are given."""
    sums = [F.lit(source).alias("source")]
    for number in numbers:
        columns = [F.col(f"{moment}{number}") for moment in MOMENTS]
        sums += [F.sum(column).alias(f"{moment}{number}") for moment, column in zip(MOMENTS, columns, strict=True)]
        sums += [F.sum(columns[i] * columns[j]).alias(f"square{number}_{i}{j}") for i, j in SQUARES]
        for what in ("n", "c", "s"):
            name = f"{what}{number}"
            sums.append(F.sum(F.col(name) if with_totals else F.lit(0)).cast("double").alias(f"total_{name}"))
    return rows.agg(*sums)


def _tally(sums: list[Row], number: int) -> PairTally:
    def sum_of(source: int, name: str) -> float:
        # Spark's sum of nothing is null.
        return float(sums[source][name] or 0.0)

    # Every pair is among those of the row that probed and of the row that was held.
    signs = (-1.0, 1.0, 1.0)
    moments = np.array(
        [sum(sign * sum_of(source, f"{moment}{number}") for source, sign in enumerate(signs)) for moment in MOMENTS]
    )
    squares = np.zeros((len(MOMENTS), len(MOMENTS)))
    for i, j in SQUARES:
        squares[i, j] = squares[j, i] = sum(sum_of(source, f"square{number}_{i}{j}") for source in (1, 2))
    pairs, count, total = (sum_of(0, f"total_{what}{number}") for what in ("n", "c", "s"))
    return PairTally.of_sums(int(pairs), count, total, moments, squares)
