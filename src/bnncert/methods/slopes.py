"""Optimised slopes: every lower slope of a (leaky) ReLU between its own two is sound, so the best may be searched."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from bnncert.bounds.gaussian import Functional, Step, Trace, functional
from bnncert.bounds.linear import ActivationStep
from bnncert.bounds.relaxations import Relaxation
from bnncert.layers import LeakyReLU, ReLU
from bnncert.network import Network
from bnncert.rounding import UNIT
from bnncert.specification import Specification

ITERATIONS, RATE, DECAY = 20, 0.1, 0.95
LEAST, MOST = 0.5, 6.0  # range of τ


def optimise(network: Network, traced: Trace, spec: Specification) -> tuple[dict[int, Tensor], Functional]:
    """Lower slopes [B, R, n] by position of the activation, and the rows' functional with them.

    Adam on m - τL with τ = clip(m / L, 0.5, 6) held fixed: maximising m / L itself would reward a large L while m < 0.
    Of all iterates each row keeps its best.
    """
    lowest = {k: _lowest(layer) for k, layer in enumerate(network.layers) if isinstance(layer, ReLU | LeakyReLU)}
    lines = {k: _relaxation(traced.steps[k]) for k in lowest}
    # The lower end of a ReLU that is off is not known (nor charged for): only lines of slope 0 hold there.
    highest = {k: (line.upper_slope > 0).double().unsqueeze(1) for k, line in lines.items()}
    slopes = {k: line.lower_slope.unsqueeze(1).repeat(1, spec.rows.shape[1], 1) for k, line in lines.items()}
    best, chosen = evaluate(traced, spec, slopes), {k: slope.clone() for k, slope in slopes.items()}
    if not slopes:
        return chosen, best
    optimiser = torch.optim.Adam(list(slopes.values()), lr=RATE)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimiser, DECAY)
    for _ in range(ITERATIONS):
        with torch.enable_grad():
            for slope in slopes.values():
                slope.requires_grad_()
            found = evaluate(traced, spec, slopes)
            tau = (found.value / found.lipschitz).detach().nan_to_num(LEAST).clamp(LEAST, MOST)
            optimiser.zero_grad()
            (tau * found.lipschitz - found.value).sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        for k, slope in slopes.items():
            slope.requires_grad_(False).clamp_(lowest[k], 1).mul_(highest[k])
        best, chosen = _keep_better(best, chosen, evaluate(traced, spec, slopes), slopes)
    return chosen, best


def evaluate(traced: Trace, spec: Specification, slopes: dict[int, Tensor]) -> Functional:
    """The functional of the specification's rows, offsets included, with other lower slopes at the given steps."""
    steps: list[Step] = [_with_slope(step, slopes.get(k)) for k, step in enumerate(traced.steps)]
    found = functional(steps, spec.region, spec.rows)
    error = 4 * UNIT * (spec.offsets.abs() + found.value.abs())
    return Functional(found.value + spec.offsets - error, found.lipschitz)


def _with_slope(step: Step, slope: Tensor | None) -> Step:
    """A (leaky) ReLU's lower lines pass through 0 whatever their slopes, so nothing else changes."""
    if slope is None or not isinstance(step, ActivationStep):
        return step
    return replace(step, relaxation=replace(step.relaxation, lower_slope=slope))


def _lowest(activation: ReLU | LeakyReLU) -> float:
    return activation.slope if isinstance(activation, LeakyReLU) else 0.0


def _relaxation(step: Step) -> Relaxation:
    if not isinstance(step, ActivationStep):
        raise TypeError(f"step {type(step).__name__} has no slopes")
    return step.relaxation


def _keep_better(
    best: Functional, chosen: dict[int, Tensor], found: Functional, slopes: dict[int, Tensor]
) -> tuple[Functional, dict[int, Tensor]]:
    better = _score(found) > _score(best)
    value = torch.where(better, found.value, best.value)
    lipschitz = torch.where(better, found.lipschitz, best.lipschitz)
    kept = {k: torch.where(better.unsqueeze(-1), slopes[k], slope) for k, slope in chosen.items()}
    return Functional(value, lipschitz), kept


def _score(found: Functional) -> Tensor:
    """m / L where the row can be certified at all, m itself (negative) elsewhere."""
    return torch.where(found.value > 0, found.value / found.lipschitz, found.value)
