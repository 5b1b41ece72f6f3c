"""From grown boxes to a certified probability: the mass of their union, with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from torch import Tensor

from bnncert.box import Box
from bnncert.methods.growth import GrownBox, Plan, grow, independent
from bnncert.methods.outcome import Outcome
from bnncert.posterior import Independent
from bnncert.problem import Problem
from bnncert.union import Union, heaviest, separating_weight, union_mass


def cover(problem: Problem, plan: Plan, seed: int) -> list[Outcome]:
    """P_safe >= P(union of the boxes grown by the plan), for every input."""
    posterior = independent(problem)
    found, calls = grow(problem, plan, seed)
    masses: dict[tuple[int | None, int], float] = {}  # boxes without signs are shared by the inputs
    outcomes = []
    for boxes, used in zip(found, calls.tolist(), strict=True):
        kept = [boxes[i] for i in heaviest([_log_mass(posterior, plan, grown, masses) for grown in boxes])]
        outcomes.append(_outcome(posterior, plan, kept, used))
    return outcomes


def _log_mass(
    posterior: Independent, plan: Plan, grown: GrownBox, masses: dict[tuple[int | None, int], float]
) -> float:
    if grown.signs is not None:
        return float(posterior.log_mass(grown.box(plan.rule, posterior.spread)))
    key = (grown.draw, grown.steps)
    if key not in masses:
        masses[key] = float(posterior.log_mass(grown.box(plan.rule, posterior.spread)))
    return masses[key]


def _outcome(posterior: Independent, plan: Plan, kept: Sequence[GrownBox], calls: int) -> Outcome:
    boxes = [grown.box(plan.rule, posterior.spread) for grown in kept]
    union = union_mass(posterior, boxes)
    members = [kept[i] for i in union.members]
    evidence: dict[str, Any] = {
        "bound": plan.bound,
        "growth": asdict(plan.rule),
        "boxes": [{"draw": grown.draw, "steps": grown.steps} for grown in members],
        "union": _describe(posterior, union, boxes),
    }
    tensors: dict[str, Tensor] = {}
    for i, grown in enumerate(members):
        if grown.draw is not None:
            tensors[f"center{i}"] = grown.center
        if grown.signs is not None:
            tensors[f"signs{i}"] = grown.signs
    return Outcome(union.probability, 1.0, calls, "boxes", evidence, tensors)


def _describe(posterior: Independent, union: Union, boxes: Sequence[Box]) -> dict[str, Any]:
    """The rule; for several cells each as its parent with the weights it cuts, and a separating weight per pair."""
    if len(union.cells) < 2:
        return {"rule": union.rule}
    cells = []
    for cell in union.cells:
        parent = boxes[cell.parent]
        cut = ((cell.box.lower != parent.lower) | (cell.box.upper != parent.upper)).nonzero().squeeze(1).tolist()
        ends = [[d, float(cell.box.lower[d]).hex(), float(cell.box.upper[d]).hex()] for d in cut]
        cells.append({"parent": union.members.index(cell.parent), "cuts": ends})
    separators = [
        [i, j, separating_weight(posterior, union.cells[i].box, union.cells[j].box)]
        for i in range(len(cells))
        for j in range(i)
    ]
    return {"rule": union.rule, "cells": cells, "separators": separators}
