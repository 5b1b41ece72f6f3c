"""Every bound on the rows of a problem, and what a forward pass may round."""

from __future__ import annotations

from torch import Tensor

from bnncert.bounds import BOUNDS
from bnncert.model.box import Box
from bnncert.model.network import Network
from bnncert.model.problem import Problem
from bnncert.model.specification import NORMS, Region
from scenarios import vector

ALL = sorted(BOUNDS)
NORM_AND_BOUND = [
    (norm, bound) for norm in NORMS for bound in ALL if norm == "linf" or bound != "lbp-forward"
]
ROUNDING = 1e-12  # of a plain float64 forward pass of these small networks, relative to its values


def bounded(bound: str, problem: Problem, weights: Box) -> Tensor:
    spec = problem.specification
    return BOUNDS[bound](problem.network, weights, spec.region, spec.rows, spec.offsets)


def single(
    bound: str,
    network: Network,
    weights: Box,
    region: Region,
    row: float = 1.0,
    offset: float = 0.0,
) -> float:
    """The bound of one row `row * y + offset` of a network with one output, at one input."""
    return float(
        BOUNDS[bound](
            network, weights, region, vector(row).reshape(1, 1, 1), vector(offset).reshape(1, 1)
        )
    )


def allowance(values: Tensor) -> Tensor:
    return ROUNDING * (1 + values.abs())
