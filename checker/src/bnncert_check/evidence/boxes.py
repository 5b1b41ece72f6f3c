"""Boxes of weights, on each of which every row is positive: P_safe is at least the mass of their
union."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array, lower_float
from bnncert_check.files import require_room
from bnncert_check.grammar import Tensors, exact, flag, index, listed, members, number, whole, word
from bnncert_check.linear import row_bounds
from bnncert_check.mass import WeightBox, alternating_mass, cells_mass, cut
from bnncert_check.model import INDEPENDENT, Model, Posterior
from bnncert_check.question import Question
from bnncert_check.verdict import CannotCheck, Rejected, Support

BOUNDS = ("lbp", "lbp-forward", "ibp")  # what the prover used; nothing rests on it
RULES = ("cells", "inclusion-exclusion", "bonferroni")
MOST_BOXES = 16  # that inclusion-exclusion may intersect


@dataclass(frozen=True)
class Grown:
    """One box [w - j v⁻, w + j v⁺]: its centre w (None: the posterior's own), steps j and, if it
    has any, signs."""

    center: Array | None
    steps: float
    signs: NDArray[np.int8] | None


@dataclass(frozen=True)
class Cell:
    """Box number `parent` with some weights restricted: (weight, low, high)."""

    parent: int
    cuts: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class Boxes:
    """Boxes that grow by step λ and ρ, and the rule that bounds the mass of their union.

    cells: None where each box is one; separators: for cells a > b a weight in which they lie apart.
    """

    step: float
    rho: float
    zero_gradient_only: bool
    boxes: tuple[Grown, ...]
    rule: str
    cells: tuple[Cell, ...] | None
    separators: dict[tuple[int, int], int]

    def supported(self, question: Question, model: Model) -> Support:
        posterior = model.only(INDEPENDENT, "evidence of boxes")
        boxes = [self._box(grown, posterior) for grown in self.boxes]
        for i, box in enumerate(boxes):
            bounds = row_bounds(model, box, question.region, question.rows, question.offsets)
            for row in np.flatnonzero(~(bounds > 0)).tolist():
                value = float(bounds[row])
                raise Rejected(
                    "row-not-positive", f"row {row} is not positive on box {i}: bound {value!r}"
                )
        return Support(lower_float(self._union(boxes, posterior)), 1.0)

    def _box(self, grown: Grown, posterior: Posterior) -> WeightBox:
        """In float64: the box that is proved safe is exactly the one whose mass counts."""
        spread = posterior.spread
        center = posterior.center if grown.center is None else grown.center
        sides: list[Array] = [np.ones_like(spread)] * 2
        if grown.signs is not None:
            flat = grown.signs == 0
            wide = (flat, flat) if self.zero_gradient_only else (grown.signs <= 0, grown.signs >= 0)
            sides = [1 + self.rho * side.astype(np.float64) for side in wide]
        widths = [grown.steps * (self.step * spread * side) for side in sides]
        return WeightBox(center - widths[0], center + widths[1])

    def _union(self, boxes: list[WeightBox], posterior: Posterior) -> arb:
        if self.rule == "cells":
            cells = (
                boxes
                if self.cells is None
                else [cut(boxes[cell.parent], cell.cuts) for cell in self.cells]
            )
            return cells_mass(posterior, cells, self.separators)
        depth = {"inclusion-exclusion": len(boxes), "bonferroni": 2}[self.rule]
        return alternating_mass(posterior, boxes, depth)


def read(value: Any, tensors: Tensors, _: Question, model: Model) -> Boxes:
    posterior = model.only(INDEPENDENT, "evidence of boxes")
    found = members(value, "the evidence", ("bound", "growth", "boxes", "union"))
    word(found["bound"], "the bound", BOUNDS)
    growth = members(found["growth"], "the growth", ("step", "rho", "zero_gradient_only"))
    entries = listed(found["boxes"], "the list of boxes")
    size = len(posterior.spread)
    require_room(16 * size * len(entries), tensors.size + model.size, f"{len(entries)} boxes")
    boxes = tuple(_grown(entry, i, tensors, size) for i, entry in enumerate(entries))
    rule, cells, separators = _union(found["union"], len(boxes), size)
    require_room(
        16 * size * len(cells or ()), tensors.size + model.size, f"{len(cells or ())} cells"
    )
    return Boxes(
        number(growth["step"], "the step", 0.0),
        number(growth["rho"], "rho", 0.0),
        flag(growth["zero_gradient_only"], "zero_gradient_only"),
        boxes,
        rule,
        cells,
        separators,
    )


def _grown(value: Any, i: int, tensors: Tensors, size: int) -> Grown:
    entry = members(value, f"box {i}", ("draw", "steps"))
    center = None
    if entry["draw"] is not None:
        whole(entry["draw"], f"the draw of box {i}", 0)
        center = tensors.numbers(f"center{i}", (size,))
    signs = tensors.take(f"signs{i}", (size,), "int8") if f"signs{i}" in tensors else None
    if signs is not None and not (np.abs(signs) <= 1).all():
        raise CannotCheck("malformed", f"tensor 'signs{i}' holds something else than signs")
    return Grown(center, number(entry["steps"], f"the steps of box {i}", 0.0), signs)


def _union(
    value: Any, boxes: int, size: int
) -> tuple[str, tuple[Cell, ...] | None, dict[tuple[int, int], int]]:
    rule = value.get("rule") if type(value) is dict else None
    if rule not in RULES or (rule == "inclusion-exclusion" and boxes > MOST_BOXES):
        raise CannotCheck(
            "unsupported", f"union rule {str(rule)[:40]!r} of {boxes} boxes is not known"
        )
    if rule != "cells" or "cells" not in value:
        members(value, "the union", ("rule",))
        return rule, None, {}
    union = members(value, "the union", ("rule", "cells", "separators"))
    cells = tuple(_cell(cell, boxes, size) for cell in listed(union["cells"], "the list of cells"))
    separators: dict[tuple[int, int], int] = {}
    for entry in listed(union["separators"], "the list of separators"):
        first, second, weight = listed(entry, "a separator", 3)
        first = index(first, "a separated cell", len(cells))
        pair = first, index(second, "a separated cell", first)
        if pair in separators:
            raise CannotCheck("malformed", f"cells {pair} are separated twice")
        separators[pair] = index(weight, "a separating weight", size)
    return rule, cells, separators


def _cell(value: Any, boxes: int, size: int) -> Cell:
    cell = members(value, "a cell", ("parent", "cuts"))
    cuts: dict[int, tuple[int, float, float]] = {}
    for entry in listed(cell["cuts"], "the cuts of a cell"):
        weight, low, high = listed(entry, "a cut", 3)
        weight = index(weight, "a weight that is cut", size)
        if weight in cuts:
            raise CannotCheck("malformed", f"weight {weight} of a cell is cut twice")
        cuts[weight] = weight, exact(low, "an end of a cell"), exact(high, "an end of a cell")
    return Cell(index(cell["parent"], "the parent of a cell", boxes), tuple(cuts.values()))
