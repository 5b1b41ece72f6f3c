"""Evidence of kind `boxes`: weight boxes proved safe, and the rule that bounds their mass."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from bnncert.evidence.written import Tensors, Written
from bnncert.model.box import Box

KIND = "boxes"
BOUND, GROWTH, BOXES, UNION = "bound", "growth", "boxes", "union"
DRAW, STEPS, CENTER, SIGNS = "draw", "steps", "center", "signs"
RULE, CELLS, SEPARATORS, PARENT, CUTS = "rule", "cells", "separators", "parent", "cuts"


@dataclass(frozen=True)
class Growth:
    """v⁺ = λσ(1 + ρ·1[g >= 0]),  v⁻ = λσ(1 + ρ·1[g <= 0]),  g the sign of the row's gradient at the
    centre.

    ρ = 0 is PIE's symmetric growth. With `zero_gradient_only` both sides grow by 1 + ρ where g = 0
    and by 1 elsewhere, as the code published with the paper does.
    """

    step: float
    rho: float = 0.0
    zero_gradient_only: bool = False

    def rates(self, spread: Tensor, signs: Tensor | None) -> tuple[Tensor, Tensor]:
        """v⁻, v⁺ for spread [n] and signs [..., n] in {-1, 0, 1}, or none for ρ = 0."""
        if signs is None:
            return self.step * spread, self.step * spread
        if self.zero_gradient_only:
            both = self.step * spread * (1 + self.rho * (signs == 0).to(spread.dtype))
            return both, both
        down = self.step * spread * (1 + self.rho * (signs <= 0).to(spread.dtype))
        up = self.step * spread * (1 + self.rho * (signs >= 0).to(spread.dtype))
        return down, up


@dataclass(frozen=True, eq=False)
class Grown:
    """A box proved safe for one input: [center - steps v⁻, center + steps v⁺].

    Draw None: the posterior's centre.
    """

    draw: int | None
    center: Tensor
    steps: int
    signs: Tensor | None

    def box(self, growth: Growth, spread: Tensor) -> Box:
        return grown(self.center, self.steps, growth.rates(spread, self.signs))


def grown(center: Tensor, steps: int, rates: tuple[Tensor, Tensor]) -> Box:
    return Box(center - steps * rates[0], center + steps * rates[1])


@dataclass(frozen=True)
class Cell:
    """Box number `parent` with some weights restricted: (weight, low, high)."""

    parent: int
    cuts: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes, the bound that proved them, and their union.

    cells: none where the rule needs none, or there is one box; separators: (a, b, weight) for cells
    a > b.
    """

    bound: str
    growth: Growth
    boxes: tuple[Grown, ...]
    rule: str
    cells: tuple[Cell, ...] = ()
    separators: tuple[tuple[int, int, int], ...] = ()


def write(found: Boxes) -> Written:
    tensors: dict[str, Tensor] = {}
    for i, box in enumerate(found.boxes):
        if box.draw is not None:
            tensors[f"{CENTER}{i}"] = box.center
        if box.signs is not None:
            tensors[f"{SIGNS}{i}"] = box.signs
    union: dict[str, Any] = {RULE: found.rule}
    if found.cells:
        union[CELLS] = [
            {PARENT: cell.parent, CUTS: [[d, low.hex(), high.hex()] for d, low, high in cell.cuts]}
            for cell in found.cells
        ]
        union[SEPARATORS] = [list(entry) for entry in found.separators]
    boxes = [{DRAW: box.draw, STEPS: box.steps} for box in found.boxes]
    value = {BOUND: found.bound, GROWTH: asdict(found.growth), BOXES: boxes, UNION: union}
    return Written(KIND, value, tensors)


def read(value: Any, tensors: Tensors, center: Tensor) -> Boxes:
    """center: the posterior's, which is not stored."""
    boxes = tuple(
        Grown(
            entry[DRAW],
            center if entry[DRAW] is None else tensors[f"{CENTER}{i}"],
            entry[STEPS],
            tensors.get(f"{SIGNS}{i}"),
        )
        for i, entry in enumerate(value[BOXES])
    )
    union = value[UNION]
    cells = tuple(
        Cell(cell[PARENT], tuple((d, float.fromhex(l), float.fromhex(u)) for d, l, u in cell[CUTS]))
        for cell in union.get(CELLS, [])
    )
    separators = tuple((a, b, d) for a, b, d in union.get(SEPARATORS, []))
    growth = Growth(**value[GROWTH])
    return Boxes(value[BOUND], growth, boxes, union[RULE], cells, separators)
