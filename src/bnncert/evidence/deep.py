"""What bounds a row of a network with two hidden layers at a point: choices, in a proof's place.

The mathematics is in docs/wide-two-layers.md; every number here may be anything, and what is
computed from them holds.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from bnncert.evidence.written import Tensors

DEEP, PROBABILITY = "two_layers", "probability"


@dataclass(frozen=True, eq=False)
class Deep:
    """P_safe at a point is at least `bound`.

    caps [K]: of the first layer's activations. ends [J, 4]: between which the second layer's means
    (0, 1) and variances (2, 3) stay, and tilts [J, 4] that show it. capped [n]: neurons of the
    second layer with caps of their own, ceilings [n], and tails [n, 3], (α, a, b) that show those.
    scales [R]: λ of every row. majorants [R, J, 4]: (α, a, b, β). centers [R, K], curvatures
    [R, K] and powers [R]: h⁰, κ and p.
    """

    bound: float
    caps: Tensor
    ends: Tensor
    tilts: Tensor
    capped: Tensor
    ceilings: Tensor
    tails: Tensor
    scales: Tensor
    majorants: Tensor
    centers: Tensor
    curvatures: Tensor
    powers: Tensor


CHOICES = tuple(field.name for field in fields(Deep))[1:]


def write_deep(found: Deep, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    tensors |= {prefix + name: getattr(found, name).clone() for name in CHOICES}
    return {PROBABILITY: found.bound.hex(), DEEP: True}


def read_deep(value: Any, prefix: str, tensors: Tensors) -> Deep:
    chosen = [tensors[prefix + name] for name in CHOICES]
    return Deep(float.fromhex(value[PROBABILITY]), *chosen)
