"""Evidence by laws: the exact law of each output row, from below, with all that was chosen for it.

A part of evidence of kind `concentration`, in the place of a proof.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from bnncert.evidence.written import Tensors

LAW, CELLS, SIZE = "law", "cells", "size"
PROBABILITY = "probability"
NUMBERS, REMAINDERS, THETA, Y = "numbers", "remainders", "theta", "y"
TENSORS = (NUMBERS, REMAINDERS, THETA, Y)


@dataclass(frozen=True, eq=False)
class Law:
    """P_safe is at least `bound`, by the laws of all rows.

    cells: of z, parts of each, of v, parts of each. size: of the lattice. numbers [R, 6]: step,
    low, rate, curb, noise and tilt of every row; remainders [R, 3]: share, scale and chance; theta
    and y [R, inputs], float32: references.
    """

    bound: float
    cells: tuple[int, int, int, int]
    size: int
    numbers: Tensor
    remainders: Tensor
    theta: Tensor
    y: Tensor


def write_law(found: Law, prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    for name in TENSORS:
        tensors[f"{prefix}{LAW}.{name}"] = getattr(found, name).clone()
    said = {CELLS: list(found.cells), SIZE: found.size}
    return {PROBABILITY: found.bound.hex(), LAW: said}


def read_law(value: Any, prefix: str, tensors: Tensors) -> Law:
    said = value[LAW]
    parts = (tensors[f"{prefix}{LAW}.{name}"] for name in TENSORS)
    cells: tuple[int, int, int, int] = tuple(said[CELLS])
    return Law(float.fromhex(value[PROBABILITY]), cells, said[SIZE], *parts)
