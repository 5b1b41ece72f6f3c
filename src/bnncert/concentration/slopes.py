"""Optimised slopes (α-CROWN, Xu et al. 2021), each row with slopes of its own.

Every lower slope of a (leaky) ReLU between its own two is sound, so the best may be searched. What
climbs here is not a bound over a box, but the tail of a Gaussian functional.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

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
RATE = 0.1


def optimise(traced: Trace, spec: Specification) -> tuple[dict[int, Tensor], Functional]:
    """Lower slopes [B, R, n] by position of the activation, and the rows' functional with them.

    Of all iterates each row keeps its best.
    """
    climbing: dict[int, Climbing] = {}
    for k, activation, step in bent_steps(traced):
        lines = step.relaxation
        slopes = lines.lower_slope.unsqueeze(1).repeat(1, spec.rows.shape[1], 1)
        # The lower end of a ReLU that is off is not known (nor charged for): only lines of slope 0
        # hold there.
        lowest = slope_below(activation, step.z.reshape(-1, *step.shape).lower).flatten(1)
        highest = ((lines.upper_slope > 0) | (lowest < 0)).double()
        climbing[k] = Climbing(slopes, RATE, _within(lowest.unsqueeze(1), highest.unsqueeze(1)))

    def found() -> Functional:
        return evaluate(traced, spec, {k: part.value for k, part in climbing.items()})

    best, kept = climb(found, list(climbing.values()), ITERATES)
    return dict(zip(climbing, kept, strict=True)), best


def _within(lowest: Tensor, highest: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda slopes: slopes.maximum(lowest).clamp_max(1) * highest


def evaluate(traced: Trace, spec: Specification, slopes: Mapping[int, Tensor]) -> Functional:
    """The functional of the specification's rows, with other lower slopes at the given steps."""
    steps = [_with_slope(step, slopes.get(k)) for k, step in enumerate(traced.steps)]
    return with_offsets(functional(replace(traced, steps=steps), spec.rows), spec.offsets)


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
