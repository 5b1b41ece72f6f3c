"""Evidence of kinds `softmax` and `mean`: for each component proofs of the rows and of their
negatives, without trees; or that the posterior lists its networks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bnncert.evidence.concentration import (
    COMPONENTS,
    LOWER,
    UPPER,
    WEIGHT,
    Proof,
    read_slopes,
    write_slopes,
)
from bnncert.evidence.networks import COUNT
from bnncert.evidence.written import Tensors, Written

SOFTMAX, MEAN = "softmax", "mean"


@dataclass(frozen=True, eq=False)
class Side:
    """A component's weight, and proofs of the rows and of their negatives."""

    weight: float
    lower: Proof
    upper: Proof


@dataclass(frozen=True, eq=False)
class Predictive:
    """One entry a component, or the number of networks that the posterior lists."""

    quantity: str  # SOFTMAX or MEAN
    components: tuple[Side, ...] = ()
    networks: int | None = None


def write(found: Predictive) -> Written:
    if found.networks is not None:
        return Written(found.quantity, {COUNT: found.networks})
    tensors: dict[str, Tensor] = {}
    entries = [
        {
            WEIGHT: side.weight.hex(),
            LOWER: write_slopes(side.lower, f"c{c}.", tensors),
            UPPER: write_slopes(side.upper, f"c{c}.{UPPER}.", tensors),
        }
        for c, side in enumerate(found.components)
    ]
    return Written(found.quantity, {COMPONENTS: entries}, tensors)


def read(quantity: str, value: Any, tensors: Tensors) -> Predictive:
    if COUNT in value:
        return Predictive(quantity, networks=value[COUNT])
    sides = tuple(
        Side(
            float.fromhex(entry[WEIGHT]),
            read_slopes(entry[LOWER], f"c{c}.", tensors),
            read_slopes(entry[UPPER], f"c{c}.{UPPER}.", tensors),
        )
        for c, entry in enumerate(value[COMPONENTS])
    )
    return Predictive(quantity, sides)
