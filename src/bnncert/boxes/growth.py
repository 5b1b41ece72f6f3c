"""Growth: the loop that all box methods share, and the boxes it grows.

Around each centre w a box [w - j v⁻, w + j v⁺], j = 1, 2, ..., is grown while the bound proves it
safe. Methods differ in the rates v⁻, v⁺ and in how far they walk. Every evaluation of the bound on
one box for one input is one bound call, failures included; an input stops at its budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.bounds import BOUNDS, linear
from bnncert.errors import InputError
from bnncert.evidence.boxes import Grown, Growth, grown
from bnncert.model.box import Box
from bnncert.model.problem import Problem
from bnncert.numerics.batching import slices
from bnncert.posteriors.base import sample
from bnncert.posteriors.empirical import Empirical
from bnncert.posteriors.independent import Independent

Test: TypeAlias = Callable[[Tensor, int], Tensor]
RowBounds: TypeAlias = Callable[[Tensor, Box], Tensor]
WALKS = ("linear", "bisection")


@dataclass(frozen=True)
class Plan:
    """What the loop is asked to do."""

    growth: Growth
    samples: int
    mean_first: bool
    budget: int
    bound: str
    walk: str
    longest: int | None = None  # steps after which a walk ends; 1 for fixed boxes

    def __post_init__(self) -> None:
        for name, value in (("samples", self.samples), ("budget", self.budget)):
            if value < 1:
                raise InputError(f"{name} is {value}; give at least 1")
        if not 0 < self.growth.step < float("inf"):
            raise InputError(
                f"step is {self.growth.step}; give a positive number of standard deviations"
            )
        if not 0 <= self.growth.rho < float("inf"):
            raise InputError(f"rho is {self.growth.rho}; give a number of at least 0")
        if self.bound not in BOUNDS:
            raise InputError(f"bound {self.bound!r} is not known; choose {', '.join(BOUNDS)}")
        if self.walk not in WALKS:
            raise InputError(f"walk {self.walk!r} is not known; choose {', '.join(WALKS)}")


def grow(problem: Problem, plan: Plan, seed: int) -> tuple[list[list[Grown]], Tensor]:
    """Safe boxes of every input, and its bound calls [B]."""
    posterior = independent(problem)
    found: list[list[Grown]] = [[] for _ in range(len(problem))]
    calls = torch.zeros(len(problem), dtype=torch.int64)
    wrong = problem.misclassified().cpu()  # counted as unsafe: not worth a call
    bound = _bound(problem, plan)
    for k in range(plan.samples):
        open_inputs = (~wrong & (calls < plan.budget)).nonzero().squeeze(1)
        if len(open_inputs) == 0:
            break
        draw = None if k == 0 and plan.mean_first else k - plan.mean_first
        center = posterior.center if draw is None else sample(posterior, 1, seed, first=draw)[0]
        names = open_inputs.to(center.device)
        signs = gradient_signs(problem[names], center) if plan.growth.rho else None
        test = _test(plan, posterior.spread, center, signs, names, bound)
        steps, used = _walk(plan, test, plan.budget - calls[open_inputs])
        calls[open_inputs] += used
        for row, (i, j) in enumerate(zip(open_inputs.tolist(), steps.tolist(), strict=True)):
            if j:
                found[i].append(Grown(draw, center, j, None if signs is None else signs[row]))
    return found, calls


def independent(problem: Problem) -> Independent:
    if not isinstance(problem.posterior, Independent):
        raise InputError(
            f"posterior family {problem.posterior.family!r} gives no mass of boxes, which "
            "sampling, pie and gie need; use method "
            f"{'enumeration' if isinstance(problem.posterior, Empirical) else 'concentration'}"
        )
    return problem.posterior


def gradient_signs(problem: Problem, center: Tensor) -> Tensor:
    """Sign of the gradient, with respect to the weights, of each input's smallest row at the
    centre: int8 [B, n]."""
    spec = problem.specification
    network = problem.network
    smallest = problem.margins(center).argmin(-1)
    rows = spec.rows[torch.arange(len(spec), device=center.device), smallest]  # [B, outputs]

    def margin(weights: Tensor, x: Tensor, row: Tensor) -> Tensor:
        return network.forward(weights, x.unsqueeze(0)).squeeze(0) @ row

    gradient = torch.func.vmap(torch.func.grad(margin), in_dims=(None, 0, 0))
    parts = slices(len(spec), 4 * 8 * problem.network.size, center.device)
    signs = [
        gradient(center, spec.region.center[part], rows[part]).sign().to(torch.int8)
        for part in parts
    ]
    return torch.cat(signs)


def _bound(problem: Problem, plan: Plan) -> RowBounds:
    """The plan's bound of the rows of some inputs [k, R].

    Layers whose weights are certain are walked only once.
    """
    network = problem.network
    spec = problem.specification
    posterior = independent(problem)
    known = (
        linear.prefix(network, posterior.center, posterior.spread, spec.region)
        if plan.bound == "lbp"
        else None
    )

    def bound(inputs: Tensor, weights: Box) -> Tensor:
        part = spec[inputs]
        arguments = (network, weights, part.region, part.rows, part.offsets)
        if known is None or not known.steps:
            return BOUNDS[plan.bound](*arguments)
        return linear.row_bounds(*arguments, known[inputs])

    return bound


def _test(
    plan: Plan,
    spread: Tensor,
    center: Tensor,
    signs: Tensor | None,
    names: Tensor,
    bound: RowBounds,
) -> Test:
    """Whether the box after j steps is proved safe for inputs that the bound knows by name."""

    def bounded(inputs: Tensor, weights: Box) -> Tensor:
        return (bound(names[inputs], weights) > 0).all(1).cpu()

    def test(inputs: Tensor, steps: int) -> Tensor:
        inputs = inputs.to(center.device)
        if signs is None:  # one box for all inputs
            return bounded(inputs, grown(center, steps, plan.growth.rates(spread, None)))
        safe = []
        for part in slices(len(inputs), 8 * 8 * len(center), center.device):
            rates = plan.growth.rates(spread, signs[inputs[part]])
            safe.append(bounded(inputs[part], grown(center, steps, rates)))
        return torch.cat(safe)

    return test


def _walk(plan: Plan, test: Test, budget: Tensor) -> tuple[Tensor, Tensor]:
    """Steps reached and calls used by each input, within its budget."""
    reached = torch.zeros_like(budget)
    failed = torch.full_like(budget, plan.longest + 1 if plan.longest else 2**31)
    used = torch.zeros_like(budget)
    while bool((going := (used < budget) & (failed > reached + 1)).any()):
        tries = _next_steps(plan.walk, reached, failed)
        for steps in sorted(set(tries[going].tolist())):
            inputs = (going & (tries == steps)).nonzero().squeeze(1)
            safe = test(inputs, steps)
            used[inputs] += 1
            reached[inputs[safe]] = steps
            failed[inputs[~safe]] = steps
    return reached, used


def _next_steps(walk: str, reached: Tensor, failed: Tensor) -> Tensor:
    """Linear: one more. Bisection: double until a failure, then halve the gap."""
    if walk == "linear":
        return reached + 1
    doubled = torch.minimum((2 * reached).clamp_min(1), failed - 1)
    halved = (reached + failed) // 2
    return torch.where(failed < 2**31, halved, doubled)
