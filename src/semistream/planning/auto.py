"""What `algorithm="auto"` means: the choice for a relation and a memory when nothing else is known.

It is `choose` with little to go by and little time. Neither rate nor skew nor device are known before a query runs, so
a skew of `ZIPF_EXPONENT`, a stream as fast as the join, and the prices of a usual machine with an NVMe disk are
assumed. The relation's data are not read, and the answer comes in some hundredths of a second, because every start
of a query pays for it:

- One algorithm of a kind is asked (`ASKED`). HYBRIDJOIN is SSCJ without a cache; CACHEJOIN and MOIJ differ from SSCJ,
  and R-MESHJOIN from MESHJOIN, by less than the assumptions do; SSBJ is a sweep of adaptive's in which half as many
  rows share a round; what X-HYBRIDJOIN and its heirs gain depends on the first pages of R being the popular ones, which
  only the data could tell; the others have no model.
- Splits are the usual ones: that is how the operators will be built.
- A large relation is looked at from further away: with `KEYS_MAX` keys, and memory smaller by the same factor. That
  makes popular keys a few percent less popular, for all alike.

The models are of streams without an end, and a micro-batch has one, at which all rows must be finished. So for no
algorithm more rows wait than a micro-batch of `MICRO_BATCH_ROWS` rows leaves waiting. What no model sees is that whole
rows must cross into Python in order to wait there, and that adaptive measures what a model can only assume. So another
algorithm is chosen only if its bill is better by `MARGIN`.

`settings_for` is the tuner's word on the same grounds, for the one algorithm of the papers that is another with its
tuner's numbers: at full size, and for a stream that does not end, because that is what its user asked for by name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from semistream.cost.base import Sizes, Workload
from semistream.cost.models import model_of
from semistream.errors import BudgetExceeded
from semistream.joins.registry import ALGORITHMS
from semistream.planning.capacities import Room, Settings, predict_for, sizes_of, workload_of
from semistream.planning.charging import typical
from semistream.planning.choose import refusal
from semistream.planning.settings import best_setting
from semistream.relations.base import Relation
from semistream.relations.metered import NVME

ASKED = ("adaptive", "inlj", "sscj", "meshjoin")
"""Of which the first is taken where none is better by the margin."""

TUNED = "tuned-x-hybridjoin"
"""X-HYBRIDJOIN with the tuner's numbers."""

MARGIN = 1.2
"""How many times faster than adaptive another must be by its bill."""

ZIPF_EXPONENT = 1.0

MICRO_BATCH_ROWS = 1000
"""What a task gets of a micro-batch in a quiet hour, for which a choice must be good as well: a scan of all of R for a
handful of rows is not."""

KEYS_MAX = 1 << 14
"""Enough for the shape of a skewed stream, few enough for a few hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Automatic:
    """The algorithm that was chosen, and why."""

    algorithm: str
    reason: str
    """One sentence, without its full stop."""


def choose_blindly(relation: Relation, room: Room) -> Automatic:
    """Choose for a stream of which nothing is known."""
    usual = ASKED[0]
    rates = {name: rate for name in ASKED if (rate := _rate(name, relation, room)) > 0}
    if usual not in rates:
        # Whoever builds it will say what is missing.
        return Automatic(usual, f"{usual} is taken, for the memory is too small to compare algorithms")
    bill = f"is planned for {rates[usual]:,.0f} rows/s at skew {ZIPF_EXPONENT:g}"
    others = [name for name in rates if name != usual]
    if not others:
        return Automatic(usual, f"{usual} {bill}, and no other can be used")
    best = max(others, key=lambda name: rates[name])
    if rates[best] >= MARGIN * rates[usual]:
        return Automatic(best, f"{usual} {bill}, and {best} for {rates[best]:,.0f}, more than {MARGIN:g} times as many")
    return Automatic(
        usual,
        f"{usual} {bill}, and the best of the others, {best}, for {rates[best]:,.0f}, not {MARGIN:g} times as many",
    )


def settings_for(name: str, relation: Relation, room: Room) -> dict[str, float]:
    """With what an operator is built beside its relation and its memory: nothing, unless its name says it is tuned."""
    if name != TUNED:
        return {}
    # Who pins the first pages of R assumes that they are the popular ones.
    workload = workload_of(relation, room, zipf_exponent=ZIPF_EXPONENT, layout="frequency")

    def rate_at(settings: Settings) -> float:
        try:
            return predict_for(name, relation, room, workload, typical(NVME), settings).mu_rows_per_s
        except BudgetExceeded:
            return 0.0

    return best_setting(name, relation, room, rate_at)


def _rate(name: str, relation: Relation, room: Room) -> float:
    """Rows a second by the bill; 0 where the algorithm cannot be used."""
    if refusal(ALGORITHMS[name], relation, room) is not None:
        return 0.0
    try:
        sizes = sizes_of(name, relation, room)
    except BudgetExceeded:
        return 0.0
    workload = workload_of(relation, room, zipf_exponent=ZIPF_EXPONENT)
    workload, sizes = _from_further_away(workload, _within_a_micro_batch(name, workload, sizes))
    return model_of(name).predict(workload, sizes, typical(NVME)).mu_rows_per_s


def _within_a_micro_batch(name: str, workload: Workload, sizes: Sizes) -> Sizes:
    """The same with no more rows waiting than there are."""

    def waiting_max(remembered_rows: float) -> float:
        cached_keys = min(remembered_rows / workload.rows_per_key, workload.keys - 1.0)
        misses = MICRO_BATCH_ROWS * (1.0 - workload.popularity.share_of_hottest(cached_keys))
        # In a scan every row waits for all of R; elsewhere rows leave as long as others come.
        return misses if ALGORITHMS[name].needs == "scan" else misses / 2.0

    return replace(
        sizes,
        h_s_rows=max(1.0, min(sizes.h_s_rows, waiting_max(sizes.h_r_rows))),
        sweep_splits=tuple((min(h_s, waiting_max(h_r)), h_r) for h_s, h_r in sizes.sweep_splits),
    )


def _from_further_away(workload: Workload, sizes: Sizes) -> tuple[Workload, Sizes]:
    """The same with at most `KEYS_MAX` keys: as much memory for each, and pages of the same size."""
    factor = min(1.0, KEYS_MAX / workload.keys)
    return (
        replace(workload, r_rows=max(1, round(workload.r_rows * factor))),
        replace(
            sizes,
            h_s_rows=max(1.0, sizes.h_s_rows * factor),
            h_r_rows=sizes.h_r_rows * factor,
            rows_per_step=max(1, round(sizes.rows_per_step * factor)),
            sweep_splits=tuple((h_s * factor, h_r * factor) for h_s, h_r in sizes.sweep_splits),
        ),
    )
