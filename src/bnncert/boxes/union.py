"""Probability mass of a union of overlapping boxes, as a rigorous lower bound.

For a few boxes inclusion-exclusion is exact:  P(∪ B_i) = Σ_S (-1)^{|S|+1} P(∩_S B_i).  Otherwise
two lower bounds compete: its truncation after the pairs on a well-chosen subset, which by the
Bonferroni inequalities bounds from below as every even depth does (odd ones bound from above), and
the total mass of disjoint cells cut out of the boxes. Either way a box counts jointly over all
weights: adding up per weight and multiplying afterwards would count combinations that lie in no
box.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.model.box import Box, intersect
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.independent import UP, Independent

NEGLIGIBLE = 2.0**-56  # total mass of the boxes that are left out
MOST_BOXES = 32
# Weights (of small networks: 2048 at least) times intersections that inclusion-exclusion may cost.
EXACT_WORK = 2**22
# Up to which boxes are cut into cells; with many weights, a cut leaves nothing but its tail.
FEW_WEIGHTS = 16
PIECES = 8  # kept per cut; all of them, up to four weights
MOST_PIECES = 16  # of one box
MOST_CELLS = 64  # of all boxes


@dataclass(frozen=True, eq=False)
class Cell:
    """A box inside the box number `parent`, disjoint (up to mass zero) from every other cell."""

    parent: int
    box: Box


@dataclass(frozen=True, eq=False)
class Union:
    """A lower bound of a union's mass, and why: the rule, the boxes and, for `cells`, the cells."""

    probability: float
    rule: str  # "cells", "inclusion-exclusion" (all intersections) or "bonferroni" (up to pairs)
    members: tuple[int, ...]
    cells: tuple[Cell, ...] = ()


def union_mass(posterior: Independent, boxes: Sequence[Box]) -> Union:
    """A rigorous lower bound of P(w in some box); 0 for no boxes."""
    members = _relevant(posterior, boxes)
    if not members:
        return Union(0.0, "cells", ())
    kept = [boxes[i] for i in members]
    # Nothing is random, and a box holds it: certain, not nearly certain.
    if not bool((posterior.spread > 0).any()):
        return Union(1.0, "cells", (members[0],), (Cell(members[0], kept[0]),))
    parents = len(kept) if posterior.size <= FEW_WEIGHTS else 1
    candidates = [_by_cells(posterior, kept[:parents], members[:parents])]
    if len(kept) > 1:
        # Boxes with affordably many intersections.
        fit = (EXACT_WORK // max(posterior.size, 2048)).bit_length() - 1
        if fit > 1:
            candidates.append(_by_inclusion_exclusion(posterior, kept[:fit], members[:fit]))
        if fit < len(kept):
            candidates.append(_by_pairs(posterior, kept, members))
    # Cells are the simplest evidence to check: anything else must be worth it.
    return max(candidates, key=lambda union: union.probability - 1e-12 * (union.rule != "cells"))


def heaviest(logs: Sequence[float]) -> list[int]:
    """Indices by falling log-mass, without those whose masses together cannot matter.

    The first stays if positive.
    """
    order = sorted((i for i in range(len(logs)) if logs[i] > -math.inf), key=lambda i: -logs[i])
    return [i for i in order if i == order[0] or math.exp(logs[i]) * len(order) >= NEGLIGIBLE][
        :MOST_BOXES
    ]


def _relevant(posterior: Independent, boxes: Sequence[Box]) -> list[int]:
    """The heaviest boxes, without those that lie inside another."""
    kept: list[int] = []
    for i in heaviest([float(posterior.log_mass(box)) for box in boxes]):
        if not any(bool(boxes[j].contains(boxes[i])) for j in kept):
            kept.append(i)
    return kept


def _by_cells(posterior: Independent, boxes: Sequence[Box], members: Sequence[int]) -> Union:
    cells: list[tuple[float, Cell]] = []  # with their log-masses, heaviest first
    for parent, box in zip(members, boxes, strict=True):
        pieces = [(float(posterior.log_mass(box)), box)]
        for _, cell in cells:
            if not separated(posterior, box, cell.box):
                pieces = _without(posterior, pieces, cell.box)
        cells += [(log, Cell(parent, piece)) for log, piece in pieces]
        cells = sorted(cells, key=lambda pair: -pair[0])[:MOST_CELLS]
    masses = [_rounded_exp(log, -1) for log, _ in cells]
    used = tuple(sorted({cell.parent for _, cell in cells}, key=members.index))
    return Union(_sum_down(masses), "cells", used, tuple(cell for _, cell in cells))


def _without(
    posterior: Independent, pieces: list[tuple[float, Box]], other: Box
) -> list[tuple[float, Box]]:
    """The heaviest pieces of the given ones outside `other`, with their log-masses."""
    rest: list[tuple[float, Box]] = []
    for log, part in pieces:
        if separated(posterior, part, other):
            rest.append((log, part))
        else:
            rest += [
                (float(posterior.log_mass(piece)), piece)
                for piece in _subtract(posterior, part, other)
            ]
    return sorted((pair for pair in rest if pair[0] > -math.inf), key=lambda pair: -pair[0])[
        :MOST_PIECES
    ]


def _subtract(posterior: Independent, part: Box, other: Box) -> list[Box]:
    """Disjoint pieces of part \\ other: the heaviest side outside `other`, then of the rest."""
    pieces: list[Box] = []
    while len(pieces) < PIECES:
        if separated(posterior, part, other):
            return [*pieces, part]
        cut = _heaviest_cut(posterior, part, other)
        if cut is None:
            return pieces
        outside, part = cut
        pieces.append(outside)
    return pieces


def separated(posterior: Independent, first: Box, second: Box) -> bool:
    """Whether some weight keeps the boxes apart; without an atom there, faces may touch."""
    return bool((_gaps(posterior, first, second) > 0).any())


def _gaps(posterior: Independent, first: Box, second: Box) -> Tensor:
    """Per weight 1 where the intervals share no mass, else 0."""
    apart = (first.upper < second.lower) | (second.upper < first.lower)
    touching = (first.upper <= second.lower) | (second.upper <= first.lower)
    return (apart | (touching & (posterior.spread > 0))).to(torch.int8)


def separating_weight(posterior: Independent, first: Box, second: Box) -> int:
    """A weight that keeps the boxes apart; they must be `separated`."""
    return int(_gaps(posterior, first, second).argmax())


def _heaviest_cut(posterior: Independent, part: Box, other: Box) -> tuple[Box, Box] | None:
    """The piece of `part` beyond one face of `other` that keeps the most mass, and the rest.

    None where no such piece has any mass.
    """
    above = Box(torch.maximum(part.lower, torch.minimum(other.upper, part.upper)), part.upper)
    below = Box(part.lower, torch.minimum(part.upper, torch.maximum(other.lower, part.lower)))
    whole = posterior.log_masses(part)
    cuttable = posterior.spread > 0
    kept = [
        torch.where(
            cuttable & (part.upper > other.upper), posterior.log_masses(above) - whole, -math.inf
        ),
        torch.where(
            cuttable & (part.lower < other.lower), posterior.log_masses(below) - whole, -math.inf
        ),
    ]
    best = torch.stack(kept)
    if not bool((best > -math.inf).any()):
        return None
    beneath, weight = divmod(int(best.argmax()), best.shape[-1])
    face = (other.lower if beneath else other.upper)[weight]
    over = Box(_with(part.lower, weight, face), part.upper)
    under = Box(part.lower, _with(part.upper, weight, face))
    return (under, over) if beneath else (over, under)


def _with(vector: Tensor, index: int, value: Tensor) -> Tensor:
    changed = vector.clone()
    changed[index] = value
    return changed


def _by_inclusion_exclusion(
    posterior: Independent, boxes: Sequence[Box], members: Sequence[int]
) -> Union:
    return Union(_sum_down(_signed_terms(posterior, boxes)), "inclusion-exclusion", tuple(members))


def _by_pairs(posterior: Independent, boxes: Sequence[Box], members: Sequence[int]) -> Union:
    chosen: list[int] = []
    terms: list[float] = []
    for i, box in enumerate(boxes):
        pairs = [-_mass_up(posterior, box, boxes[j]) for j in chosen]
        gain = [_rounded_exp(float(posterior.log_mass(box)), -1), *pairs]
        if math.fsum(gain) > 0:
            chosen.append(i)
            terms += gain
    return Union(_sum_down(terms), "bonferroni", tuple(members[i] for i in chosen))


def _signed_terms(posterior: Independent, boxes: Sequence[Box]) -> list[float]:
    """(-1)^{|S|+1} P(∩_S) over all sets S that intersect: odd sets rounded down, even sets up."""
    terms: list[float] = []

    def extend(start: int, common: Box | None, size: int) -> None:
        for i in range(start, len(boxes)):
            joint = boxes[i] if common is None else overlap(common, boxes[i])
            if joint is None:
                continue
            if size % 2 == 0:
                terms.append(_rounded_exp(float(posterior.log_mass(joint)), -1))
            else:
                terms.append(-_rounded_exp(float(posterior.log_mass(joint, UP)), 1))
            extend(i + 1, joint, size + 1)

    extend(0, None, 0)
    return terms


def overlap(first: Box, second: Box) -> Box | None:
    """The intersection; None where it is empty, which sorting the ends must never hide."""
    lower = torch.maximum(first.lower, second.lower)
    upper = torch.minimum(first.upper, second.upper)
    return intersect(first, second) if bool((lower <= upper).all()) else None


def _mass_up(posterior: Independent, first: Box, second: Box) -> float:
    joint = overlap(first, second)
    return 0.0 if joint is None else _rounded_exp(float(posterior.log_mass(joint, UP)), 1)


def _rounded_exp(log: float, direction: int) -> float:
    return math.exp(log) * (1 + 4 * direction * UNIT)


def _sum_down(terms: Sequence[float]) -> float:
    """The exact sum, rounded down into [0, 1]."""
    total = math.fsum(terms)
    return min(max(math.nextafter(total, -math.inf), 0.0), 1.0)
