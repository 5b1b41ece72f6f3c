"""Optimised slopes (α-CROWN, Xu et al. 2021), each row with slopes of its own.

Every lower slope of a (leaky) ReLU between its own two is sound, so the best may be searched. What
climbs here is not a bound over a box, but the tail of a Gaussian functional.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.bounds.relaxations import slope_below
from bnncert.bounds.steps import ActivationStep
from bnncert.bounds.walk import Step
from bnncert.concentration.ascent import Climbing, climb
from bnncert.concentration.functional import (
    Functional,
    Trace,
    bent_steps,
    functional,
    last_layer,
    stands_alone,
    with_offsets,
)
from bnncert.concentration.tails import row_failures
from bnncert.model.specification import Specification

ITERATES = 21
LAST_ITERATES = 10  # of rows that come from the way of Frank and Wolfe, near their best
RATE = 0.1
STEPS = 8  # of Frank and Wolfe's, at most


@dataclass(frozen=True, eq=False)
class Chosen:
    """Rows of inputs, each by itself [P], and what a score thinks of them to first order:
    weight · (m - τL)."""

    input: Tensor
    row: Tensor
    weight: Tensor
    tau: Tensor

    def __getitem__(self, index: Tensor) -> Chosen:
        return Chosen(*(part[index] for part in vars(self).values()))


def optimise(traced: Trace, spec: Specification) -> tuple[dict[int, Tensor], Functional]:
    """Lower slopes [B, R, n] by position of the activation, and the rows' functional with them.

    Of all iterates each row keeps its best.
    """
    choices = _choices(traced, spec)
    plain = {k: choice.slopes for k, choice in choices.items()}
    return _climbed(traced, spec, choices, plain, ITERATES)


def settle(
    traced: Trace, spec: Specification, chosen: Chosen, noticed: float
) -> tuple[dict[int, Tensor], Functional]:
    """As `optimise`, for chosen rows, each by itself, and only as long as its weight · (m - τL)
    promises a gain above `noticed`: lower slopes [P, n] and the functional [P].

    The way of Frank and Wolfe (1956): towards the best ends of all slopes, by 2 / (k + 2) of the
    way. What the gradient promises there is what can be gained at all if the functional is concave
    in the slopes, as it is with one hidden layer. Rows that still promise something climb on from
    their best.
    """
    lines = _choices(traced, spec)
    best = _Kept(
        {k: line.slopes[chosen.input, 0] for k, line in lines.items()},
        Functional(*(torch.full_like(chosen.weight, end) for end in (-math.inf, 0.0))),
    )
    moving = torch.arange(len(chosen.input), device=chosen.input.device)
    slopes = best.slopes
    for step in range(STEPS):
        if len(moving) == 0:
            break
        now = chosen[moving]
        found, gradients = _with_gradients(traced[now.input], spec, now, slopes)
        best = best.better(moving, now.tau, _Kept(slopes, found))
        promised = torch.zeros_like(now.weight)
        towards = {}
        for k, own in slopes.items():
            lowest, highest = lines[k].ends(now.input)
            towards[k] = torch.where(gradients[k] > 0, highest, lowest) - own
            promised = promised + (gradients[k] * towards[k]).sum(-1)
        going = now.weight * promised > noticed
        slopes = {k: (own + 2 / (step + 2) * towards[k])[going] for k, own in slopes.items()}
        moving = moving[going]
    if len(moving):  # the way goes to and fro
        now = chosen[moving]
        part, alone = traced[now.input], spec.row(now.input, now.row)
        begin = {k: own[moving].unsqueeze(1) for k, own in best.slopes.items()}
        tau = now.tau.unsqueeze(1)
        climbed, rows = _climbed(part, alone, _choices(part, alone), begin, LAST_ITERATES, tau)
        found = Functional(rows.value[:, 0], rows.lipschitz[:, 0])
        flat = {k: own[:, 0] for k, own in climbed.items()}
        best = best.better(moving, now.tau, _Kept(flat, found))
    return best.slopes, best.rows


def _climbed(
    traced: Trace,
    spec: Specification,
    choices: Mapping[int, _Choice],
    begin: Mapping[int, Tensor],
    iterates: int,
    tau: Tensor | None = None,
) -> tuple[dict[int, Tensor], Functional]:
    """The best of so many iterates from the given slopes on."""
    climbing = {k: Climbing(begin[k], RATE, choice.project) for k, choice in choices.items()}

    def found() -> Functional:
        return evaluate(traced, spec, {k: part.value for k, part in climbing.items()})

    best, kept = climb(found, list(climbing.values()), iterates, tau=tau)
    return dict(zip(climbing, kept, strict=True)), best


@dataclass(frozen=True, eq=False)
class _Kept:
    """The best slopes of every row so far [P, n], and the rows with them [P]."""

    slopes: dict[int, Tensor]
    rows: Functional

    def better(self, index: Tensor, tau: Tensor, now: _Kept) -> _Kept:
        """With what is found of some of the rows, where m - τL is larger."""
        before = self.rows[index]
        gained = now.rows.value - tau * now.rows.lipschitz > before.value - tau * before.lipschitz
        places = index[gained]
        return _Kept(
            {k: own.index_copy(0, places, now.slopes[k][gained]) for k, own in self.slopes.items()},
            self.rows.put(places, now.rows[gained]),
        )


@dataclass(frozen=True, eq=False)
class _Choice:
    """Lower slopes [B, R, n] of an activation, as they are plainly, and their ends [B, 1, n]."""

    slopes: Tensor
    lowest: Tensor
    highest: Tensor

    def project(self, slopes: Tensor) -> Tensor:
        return slopes.maximum(self.lowest).clamp_max(1) * self.highest

    def ends(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """[P, n], for some of the inputs."""
        highest = self.highest[index, 0]
        return self.lowest[index, 0] * highest, highest


def _choices(traced: Trace, spec: Specification) -> dict[int, _Choice]:
    """What may be chosen, by position of the activation."""
    found = {}
    for k, activation, step in bent_steps(traced):
        lines = step.relaxation
        slopes = lines.lower_slope.unsqueeze(1).repeat(1, spec.rows.shape[1], 1)
        # The lower end of a ReLU that is off is not known (nor charged for): only lines of slope 0
        # hold there.
        lowest = slope_below(activation, step.z.reshape(-1, *step.shape).lower).flatten(1)
        highest = ((lines.upper_slope > 0) | (lowest < 0)).double()
        found[k] = _Choice(slopes, lowest.unsqueeze(1), highest.unsqueeze(1))
    return found


def _with_gradients(
    traced: Trace, spec: Specification, chosen: Chosen, slopes: dict[int, Tensor]
) -> tuple[Functional, dict[int, Tensor]]:
    """The functional [P] with slopes [P, n], and what m - τL gains by each slope."""
    rows = spec.rows[chosen.input, chosen.row].unsqueeze(1)
    offsets = spec.offsets[chosen.input, chosen.row].unsqueeze(1)
    given = {k: own.unsqueeze(1).requires_grad_() for k, own in slopes.items()}
    with torch.enable_grad():
        found = _evaluate(traced, rows, offsets, given)
        worth = (found.value[:, 0] - chosen.tau * found.lipschitz[:, 0]).sum()
    gradients: Sequence[Tensor] = ()
    if given:
        gradients = torch.autograd.grad(worth, list(given.values()), materialize_grads=True)
    return (
        Functional(found.value.detach()[:, 0], found.lipschitz.detach()[:, 0]),
        {k: own[:, 0].nan_to_num(0.0) for k, own in zip(given, gradients, strict=True)},
    )


def evaluate(traced: Trace, spec: Specification, slopes: Mapping[int, Tensor]) -> Functional:
    """The functional of the specification's rows, with other lower slopes at the given steps."""
    return _evaluate(traced, spec.rows, spec.offsets, slopes)


def _evaluate(
    traced: Trace, rows: Tensor, offsets: Tensor, slopes: Mapping[int, Tensor]
) -> Functional:
    steps = [_with_slope(step, slopes.get(k)) for k, step in enumerate(traced.steps)]
    return with_offsets(functional(replace(traced, steps=steps), rows), offsets)


def strongest(traced: Trace, spec: Specification, rows: Functional) -> Functional:
    """Of each row the functional that fails less: the given one, or that of the last layer alone.

    Which one that is depends on nothing random.
    """
    if not stands_alone(traced.steps[-1]):
        return rows
    alone = with_offsets(last_layer(traced, spec.rows), spec.offsets)
    better = row_failures(alone) < row_failures(rows)
    value = torch.where(better, alone.value, rows.value)
    return Functional(value, torch.where(better, alone.lipschitz, rows.lipschitz))


def _with_slope(step: Step, slope: Tensor | None) -> Step:
    """A (leaky) ReLU's lower lines pass through 0 whatever their slopes: nothing else changes."""
    if slope is None or not isinstance(step, ActivationStep):
        return step
    return replace(step, relaxation=replace(step.relaxation, lower_slope=slope))
