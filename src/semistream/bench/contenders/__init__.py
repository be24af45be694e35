"""Who takes part in `bench enrich`: a file for each family, and here the list of all."""

from __future__ import annotations

from collections.abc import Sequence

from semistream.bench.contenders import by_hand, crossing, ours, spark_joins
from semistream.bench.contenders.base import Contender
from semistream.errors import InvalidOption, did_you_mean

CONTENDERS: dict[str, Contender] = {
    contender.name: contender
    for contender in (*spark_joins.CONTENDERS, *by_hand.CONTENDERS, *crossing.CONTENDERS, *ours.CONTENDERS)
}

USUAL = tuple(contender.name for contender in CONTENDERS.values() if contender.is_usual)
"""Those that take part unless others are named."""


def contenders_named(names: Sequence[str]) -> list[Contender]:
    """The contenders of these names, in this order."""
    for name in names:
        if name not in CONTENDERS:
            raise InvalidOption(
                "there is no such contender",
                given=repr(name),
                allowed=", ".join(CONTENDERS),
                hint=did_you_mean(name, CONTENDERS),
            )
    return [CONTENDERS[name] for name in dict.fromkeys(names)]
