"""Every model by the name of its algorithm.

`tuned-x-hybridjoin` is X-HYBRIDJOIN with other sizes, and so has its model. SSIJ, the partition join and the join of
Derakhshan et al. were published without a cost equation and have none here.
"""

from __future__ import annotations

from semistream.cost import (
    adaptive,
    cachejoin,
    hybridjoin,
    inlj,
    meshjoin,
    moij,
    optimised_x_hybridjoin,
    pcsrj,
    r_meshjoin,
    ssbj,
    sscj,
    x_hybridjoin,
)
from semistream.cost.base import CostModel
from semistream.errors import check_choice

MODELS: dict[str, CostModel] = {
    "adaptive": adaptive,
    "cachejoin": cachejoin,
    "hybridjoin": hybridjoin,
    "inlj": inlj,
    "meshjoin": meshjoin,
    "moij": moij,
    "optimised-x-hybridjoin": optimised_x_hybridjoin,
    "pcsrj": pcsrj,
    "r-meshjoin": r_meshjoin,
    "ssbj": ssbj,
    "sscj": sscj,
    "tuned-x-hybridjoin": x_hybridjoin,
    "x-hybridjoin": x_hybridjoin,
}


def model_of(algorithm: str) -> CostModel:
    """The cost model of an algorithm."""
    check_choice("algorithm", algorithm, MODELS)
    return MODELS[algorithm]
