"""Bisection of the input region, for few dimensions: what fails on X fails on one of its parts.

    P(fail on X) <= Σ_a P(fail on X_a),    X the union of the boxes X_a (a ball's: its parts there).

Every part has a proof of its own, hidden intervals included, which its smaller region makes
tighter; any activation may be used. A part is cut in two along the coordinate that moves the rows
most, and of every part either its own failure counts or the sum of its halves', whichever is less.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.bounds.walk import walk
from bnncert.concentration.proof import prove
from bnncert.concentration.refine import CLOSED, Limits, Refined
from bnncert.concentration.trace import trace
from bnncert.evidence.concentration import Cut, Proof
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.model.specification import Region, Specification
from bnncert.numerics.rounding import UNIT
from bnncert.posteriors.gaussian import Gaussian

LOW = 8  # dimensions at most
AT_ONCE = 256  # parts cut in a round, of all inputs
STAGE = 16  # times as many parts, after which they must have gained something


@dataclass(frozen=True)
class Mark:
    """The bound that an input had when it was last looked at, when to look again, and whether
    cutting is no use."""

    count: int
    bound: float
    idle: bool = False


@dataclass(eq=False)
class Part:
    """A box [lower, upper] (flat) of one input's region, its proof and where to cut it.

    It has halves once it is cut.
    """

    input: int
    lower: Tensor
    upper: Tensor
    proof: Proof
    dimension: int
    halves: tuple[Part, Part] | None = None

    @property
    def at(self) -> float:
        """The middle of the coordinate to cut, as one float for both halves."""
        return float(self.lower[self.dimension] / 2 + self.upper[self.dimension] / 2)


def bisect(problem: Problem, posterior: Gaussian, known: Refined, limits: Limits) -> Refined:
    """Better proofs by parts, where a noticeable failure and no counterexample is known."""
    deadline = time.perf_counter() + limits.seconds
    counts = [0] * len(problem)
    points = dict(known.counterexamples)
    interrupted = False

    enough = min(limits.enough, 1 - limits.precision)
    left = [i for i, proof in enumerate(known.proofs) if proof.bound < enough and i not in points]
    box = problem.specification.region.box.reshape(len(problem), -1)
    whole = _prove(problem, posterior, [(i, box.lower[i], box.upper[i]) for i in left], points)
    leaves = list(whole)
    marks = {part.input: Mark(STAGE, part.proof.bound) for part in whole}

    try:
        while leaves and time.perf_counter() < deadline:
            lower = {part.input: _best(part).bound for part in whole}
            marks = {
                i: _next_mark(mark, counts[i], lower[i], limits.precision)
                for i, mark in marks.items()
            }
            leaves = [
                part
                for part in leaves
                if part.input not in points
                and counts[part.input] < limits.nodes
                and lower[part.input] < enough
                and not marks[part.input].idle
                and 1 - part.proof.bound > CLOSED
                and bool(part.lower[part.dimension] < part.at < part.upper[part.dimension])
            ]

            # The worst leaves are cut first.
            leaves.sort(key=lambda part: part.proof.bound)
            chosen, leaves = leaves[:AT_ONCE], leaves[AT_ONCE:]
            children = _prove(
                problem, posterior, [half for part in chosen for half in _halves(part)], points
            )
            for part, below, above in zip(chosen, children[::2], children[1::2], strict=True):
                part.halves = below, above
                counts[part.input] += 2
            leaves += children
    except KeyboardInterrupt:  # what is known so far is a proof
        interrupted = True

    proofs = list(known.proofs)
    for part in whole:
        found = _best(part)
        proofs[part.input] = max(proofs[part.input], found, key=lambda proof: proof.bound)
    total = [before + count for before, count in zip(known.domains, counts, strict=True)]
    return Refined(proofs, points, total, interrupted)


def _next_mark(mark: Mark, count: int, bound: float, precision: float) -> Mark:
    """Once there are STAGE times as many parts: where they gained less than the precision, noise is
    what is left, and failures of more parts only add up. Where nothing is proved yet, that cannot
    be told."""
    if count < mark.count:
        return mark
    return Mark(STAGE * count, bound, mark.idle or 0 < bound < mark.bound + precision)


def _halves(part: Part) -> list[tuple[int, Tensor, Tensor]]:
    ends = []
    for side in (0, 1):
        lower, upper = part.lower.clone(), part.upper.clone()
        (upper if side == 0 else lower)[part.dimension] = part.at
        ends.append((part.input, lower, upper))
    return ends


def _prove(
    problem: Problem,
    posterior: Gaussian,
    boxes: list[tuple[int, Tensor, Tensor]],
    points: dict[int, Tensor],
) -> list[Part]:
    """A part for every box; middles where the mean network fails are entered among the points."""
    if not boxes:
        return []
    spec = problem.specification
    index = torch.tensor([i for i, _, _ in boxes], device=spec.rows.device)
    lower = torch.stack([low for _, low, _ in boxes])
    upper = torch.stack([high for _, _, high in boxes])
    region = replace(
        spec.region[index], box=Box(lower, upper).reshape(*spec.region.center[index].shape)
    )
    asked = Problem(
        problem.network, posterior, Specification(region, spec.rows[index], spec.offsets[index])
    )

    # A middle may lie outside of the ball that a part is cut from: then it refutes nothing.
    middle = region.box.lower / 2 + region.box.upper / 2
    if region.is_box:
        outputs = problem.network.forward(posterior.mean, middle)
        margins = asked.specification.margins(outputs).amin(1)
        for place in (margins < 0).nonzero().squeeze(1).tolist():
            points.setdefault(boxes[place][0], middle[place])

    proofs = prove(asked, posterior, 0)
    dimensions = _longest(asked, posterior)
    for place in _empty(region).nonzero().squeeze(1).tolist():
        proofs[place] = replace(proofs[place], bound=1.0)
    parts = zip(boxes, proofs, dimensions.tolist(), strict=True)
    return [Part(i, low, high, proof, dimension) for (i, low, high), proof, dimension in parts]


def _empty(region: Region) -> Tensor:
    """Boxes [B] that surely miss the ball: by more than roundings could explain."""
    if region.is_box:
        return torch.zeros(len(region), dtype=torch.bool)
    apart = (region.box.lower - region.center).clamp_min(0) + (
        region.center - region.box.upper
    ).clamp_min(0)
    distance = torch.linalg.vector_norm(apart.flatten(1), 1 if region.norm == "l1" else 2, dim=1)
    missed: Tensor = distance * (1 - 2.0**-30) > region.eps
    return missed


def _longest(problem: Problem, posterior: Gaussian) -> Tensor:
    """The coordinate [B] of the largest width times coefficient, summed over plain rows."""
    spec = problem.specification
    traced = trace(problem.network, posterior, spec.region, 4.0)
    coefficients, _ = walk(traced.network, traced.steps, traced.boxes, spec.rows)
    size = coefficients[0].flatten(2).abs().sum(1) + UNIT
    return (size * (spec.region.box.upper - spec.region.box.lower).flatten(1)).argmax(1)


def _best(part: Part) -> Proof:
    """The part's own proof, or one in two halves."""
    if part.halves is None:
        return part.proof
    below, above = (_best(half) for half in part.halves)
    together = below.bound + above.bound - 1 - 4 * UNIT
    if together <= part.proof.bound:
        return part.proof
    return replace(
        part.proof, bound=together, row_slopes={}, cut=Cut(part.dimension, part.at, below, above)
    )
