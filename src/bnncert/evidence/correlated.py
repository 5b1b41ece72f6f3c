"""What bounds a network of one hidden layer with correlated weights at a point: choices, in a
proof's place.

The mathematics is in docs/wide.md; every number here may be anything, and what is computed from
them holds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from bnncert.evidence.written import Tensors

CORRELATED, PROBABILITY = "correlated", "probability"
ROWS, TERMS = "rows", "terms"


@dataclass(frozen=True, eq=False)
class Group:
    """A row, or two that are opposite: how often one of them fails, or none.

    rows: their numbers. terms: of Mehler's series. numbers [4]: A, B, D and C of G. centers,
    bounds and powers [n]: μ, d and p. rates and weights [K]: λ and M; slopes and curvatures
    [K, n]: β and γ.
    """

    rows: tuple[int, ...]
    terms: int
    numbers: Tensor
    centers: Tensor
    bounds: Tensor
    powers: Tensor
    rates: Tensor
    weights: Tensor
    slopes: Tensor
    curvatures: Tensor


CHOICES = tuple(field.name for field in fields(Group))[2:]


@dataclass(frozen=True, eq=False)
class Correlated:
    """Of every group a bound of how often a row fails: all rows hold with at least `bound`. In an
    upper bound one group, and with at least `bound` a row fails."""

    bound: float
    groups: tuple[Group, ...]


def write_correlated(found: Correlated, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    for g, group in enumerate(found.groups):
        tensors |= {f"{prefix}g{g}.{name}": getattr(group, name).clone() for name in CHOICES}
    groups = [{ROWS: list(group.rows), TERMS: group.terms} for group in found.groups]
    return {PROBABILITY: found.bound.hex(), CORRELATED: groups}


def read_correlated(value: Any, prefix: str, tensors: Tensors) -> Correlated:
    groups = [
        Group(
            tuple(said[ROWS]),
            said[TERMS],
            *(tensors[f"{prefix}g{g}.{name}"] for name in CHOICES),
        )
        for g, said in enumerate(value[CORRELATED])
    ]
    return Correlated(float.fromhex(value[PROBABILITY]), tuple(groups))
