"""From grown boxes to a certified probability: the mass of their union, with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from bnncert.boxes.growth import Plan, grow, independent
from bnncert.boxes.union import Union, heaviest, separating_weight, union_mass
from bnncert.evidence.boxes import Boxes, Cell, Grown
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.outcome import Outcome
from bnncert.posteriors.base import Posterior
from bnncert.posteriors.independent import Independent


class BoxMethod:
    """What sampling, PIE and GIE share: each is options, and a plan made from them."""

    posteriors: ClassVar[tuple[type[Posterior], ...]] = (Independent,)

    def __post_init__(self) -> None:
        self.plan()  # checks the options

    def plan(self) -> Plan:
        raise NotImplementedError

    def __call__(self, problem: Problem, seed: int) -> list[Outcome]:
        return cover(problem, self.plan(), seed)


def cover(problem: Problem, plan: Plan, seed: int) -> list[Outcome]:
    """P_safe >= P(union of the boxes grown by the plan), for every input."""
    posterior = independent(problem)
    found, calls = grow(problem, plan, seed)
    masses: dict[tuple[int | None, int], float] = {}  # boxes without signs are shared by the inputs
    outcomes = []
    for boxes, used in zip(found, calls.tolist(), strict=True):
        logs = [_log_mass(posterior, plan, grown, masses) for grown in boxes]
        outcomes.append(_outcome(posterior, plan, [boxes[i] for i in heaviest(logs)], used))
    return outcomes


def _log_mass(
    posterior: Independent, plan: Plan, grown: Grown, masses: dict[tuple[int | None, int], float]
) -> float:
    if grown.signs is not None:
        return float(posterior.log_mass(grown.box(plan.growth, posterior.spread)))
    key = (grown.draw, grown.steps)
    if key not in masses:
        masses[key] = float(posterior.log_mass(grown.box(plan.growth, posterior.spread)))
    return masses[key]


def _outcome(posterior: Independent, plan: Plan, kept: Sequence[Grown], calls: int) -> Outcome:
    boxes = [grown.box(plan.growth, posterior.spread) for grown in kept]
    union = union_mass(posterior, boxes)
    members = tuple(kept[i] for i in union.members)
    cells = _cells(union, boxes)
    separators = _separators(posterior, union) if cells else ()
    evidence = Boxes(plan.bound, plan.growth, members, union.rule, cells, separators)
    return Outcome(union.probability, 1.0, calls, evidence)


def _cells(union: Union, boxes: Sequence[Box]) -> tuple[Cell, ...]:
    """Several cells, each as its parent with the weights it cuts; one needs no words."""
    if len(union.cells) < 2:
        return ()
    cells = []
    for cell in union.cells:
        parent = boxes[cell.parent]
        changed = (cell.box.lower != parent.lower) | (cell.box.upper != parent.upper)
        cuts = tuple(
            (d, float(cell.box.lower[d]), float(cell.box.upper[d]))
            for d in changed.nonzero().squeeze(1).tolist()
        )
        cells.append(Cell(union.members.index(cell.parent), cuts))
    return tuple(cells)


def _separators(posterior: Independent, union: Union) -> tuple[tuple[int, int, int], ...]:
    """A weight that keeps them apart, for every two cells."""
    return tuple(
        (i, j, separating_weight(posterior, union.cells[i].box, union.cells[j].box))
        for i in range(len(union.cells))
        for j in range(i)
    )
