"""Domains: an output row of one input where the signs of some ReLUs are known.

On the part of X where s_i z_i >= 0 for the split neurons i, their relaxation is exact, their
intervals end at 0, and

    A z >= (A - β∘s) z      for every β >= 0,

so slopes α of the neurons that are still open and multipliers β of the split ones are searched
together, by Adam, from those of the parent (β-CROWN, Wang et al. 2021). Both are rounded to float32
at every step: what is found is what a certificate stores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.bounds.interval import range_of
from bnncert.bounds.relaxations import slope_below
from bnncert.bounds.steps import ActivationStep, activation_step, step_of
from bnncert.bounds.walk import Step, known_boxes, walk
from bnncert.concentration.ascent import Climbing, climb
from bnncert.concentration.branching import branch
from bnncert.concentration.functional import Functional, Trace, bent_steps, conclude, with_offsets
from bnncert.concentration.steps import NoisyLinear, SplitStep
from bnncert.model.activations import ACTIVATIONS, Bent, PReLU
from bnncert.model.box import Box
from bnncert.model.layers import MaxPool2d
from bnncert.model.moves import MOVES
from bnncert.model.problem import Problem

SLOPE_RATE = 0.1
MULTIPLIER_RATE = 0.05


@dataclass(frozen=True, eq=False)
class Roots:
    """What the domains of each input share: the trace at the root, and the neurons whose sign is
    open there.

    Neurons of all (leaky) ReLUs are numbered through, `starts` by layer position; `width` of them
    in all, which as a number stands for no neuron. `open` [B, U] lists those of each input: a
    domain's tensors have a column for each.
    """

    problem: Problem
    mean: Tensor
    traced: Trace
    starts: dict[int, int]
    width: int
    open: Tensor
    lowest: Tensor  # [width + 1] least slope of each neuron's lower line


@dataclass(frozen=True, eq=False)
class Domains:
    """Rows `row` of inputs `input`.

    Splits [D, U]: 0 for none, k or -k where the k-th split says z >= 0 or z <= 0.
    """

    input: Tensor
    row: Tensor
    splits: Tensor  # int16
    slopes: Tensor  # float32, in [0, 1]
    multipliers: Tensor  # float32, at least 0

    def __len__(self) -> int:
        return len(self.input)

    def __getitem__(self, index: Tensor | slice) -> Domains:
        return Domains(*(value[index] for value in vars(self).values()))


@dataclass(frozen=True, eq=False)
class Tightened:
    """Domains with the best slopes and multipliers found, their functional [D], the column to split
    next (-1: none) with the row's coefficient there if positive, and the point [D, *shape] where
    the relaxation is smallest, with the mean network's smallest row [D] there."""

    domains: Domains
    value: Tensor
    lipschitz: Tensor
    branch: Tensor
    weight: Tensor
    point: Tensor
    margin: Tensor


def roots(problem: Problem, mean: Tensor, traced: Trace) -> Roots:
    starts: dict[int, int] = {}
    lowest = []
    unsettled = []
    width = 0
    for k, activation, step in bent_steps(traced):
        starts[k] = width
        width += step.size.shape[1]
        lowest.append(_least_slopes(activation, step))
        unsettled.append((step.z.lower < 0) & (step.z.upper > 0))
    if not unsettled:
        none = torch.zeros(len(problem), 0, dtype=torch.int64, device=mean.device)
        return Roots(problem, mean, traced, starts, 0, none, mean.new_zeros(1))

    mask = torch.cat(unsettled, 1)
    count = int(mask.sum(1).max())
    numbers = torch.arange(width, device=mean.device).expand_as(mask)
    columns = torch.where(mask, numbers, width).sort(1).values[:, :count]
    every = torch.cat([*lowest, lowest[0][:1]])
    return Roots(problem, mean, traced, starts, width, columns, every)


def _least_slopes(layer: Bent | PReLU, step: ActivationStep) -> Tensor:
    """[n], of each neuron the least float32 that is no smaller than its slope below 0: a line
    through 0 that is any flatter lies above the function there."""
    slope = slope_below(layer, step.size[0].reshape(step.shape)).flatten()
    nearest = slope.float()
    above = nearest.nextafter(torch.full_like(nearest, torch.inf))
    return torch.where(nearest.double() >= slope, nearest, above).double()


def whole(base: Roots, input: Tensor, row: Tensor) -> Domains:  # noqa: A002 (the field's name)
    """The undivided domains of the given rows, with the slopes of the root's lines."""
    lines = [_lines(base.traced.steps[k]).relaxation.lower_slope[input] for k in base.starts]
    plain = torch.cat([*lines, torch.zeros_like(input)[:, None]], 1)
    slopes = plain.gather(1, base.open[input]).float()
    none = torch.zeros_like(slopes)
    return Domains(input, row, none.to(torch.int16), slopes, none)


def halves(domains: Domains, column: Tensor, weight: Tensor, depth: Tensor) -> Domains:
    """Both children of every domain, split at `column` [D] as the (depth + 1)-th: first all z >= 0.

    With A > 0 the coefficient there, multipliers A (1 - α) and A α give the lower line of slope α
    of a ReLU again: so a child starts with a bound no worse than its parent's.
    """
    place = column.unsqueeze(1)
    order = (depth + 1).unsqueeze(1).to(torch.int16)
    slope = domains.slopes.gather(1, place)
    heavy = weight.unsqueeze(1).float()
    sides = [
        replace(
            domains,
            splits=domains.splits.scatter(1, place, sign * order),
            multipliers=domains.multipliers.scatter(1, place, heavy * share),
        )
        for sign, share in ((1, 1 - slope), (-1, slope.clamp_min(0)))
    ]
    pairs = zip(*(vars(side).values() for side in sides), strict=True)
    return Domains(*(torch.cat(pair) for pair in pairs))


@dataclass(frozen=True, eq=False)
class Asked:
    """The rows of domains [D, 1, outputs] and their offsets [D, 1], over the root's steps with the
    domains' signs."""

    domains: Domains
    traced: Trace
    rows: Tensor
    offsets: Tensor


def asked(base: Roots, domains: Domains) -> Asked:
    spec = base.problem.specification
    index = domains.input
    rows = spec.rows[index, domains.row].unsqueeze(1)
    offsets = spec.offsets[index, domains.row].unsqueeze(1)
    return Asked(domains, _signed(base, domains), rows, offsets)


def _signed(base: Roots, domains: Domains) -> Trace:
    """The root's trace for each domain: intervals end at 0 where a neuron is split, and so do the
    boxes after it, up to the next sum."""
    network = base.problem.network
    signs = by_layer(base, scattered(base, domains, domains.splits.sign().double()))
    root = base.traced[domains.input]
    steps: list[Step] = []
    boxes: dict[int, Box] = {}  # of nodes that are smaller than at the root
    for k, step in enumerate(root.steps):
        layer = network.layers[k]
        own = [boxes[node] for node in network.reads[k] if node in boxes]
        if k in base.starts and isinstance(step, ActivationStep) and isinstance(layer, ACTIVATIONS):
            z = _clamped(step.z, signs[k]).reshape(len(domains), *step.shape)
            steps.append(activation_step(layer, z))
            boxes[k + 1] = range_of(layer, [z])
        elif isinstance(layer, (MaxPool2d, *MOVES)) and own:
            inputs = known_boxes([boxes.get(node, root.boxes[node]) for node in network.reads[k]])
            steps.append(step_of(layer, inputs))
            boxes[k + 1] = range_of(layer, inputs)
        elif isinstance(step, NoisyLinear) and own:
            steps.append(replace(step, h=own[0]))
        else:
            steps.append(step)
    return replace(root, steps=steps)


def evaluate(base: Roots, domains: Domains) -> Functional:
    """The functional of every domain's row [D, 1] with its own slopes and multipliers."""
    slopes = domains.slopes.double()
    return functional_of(base, asked(base, domains), slopes, domains.multipliers.double())[0]


def walk_of(base: Roots, domains: Domains) -> tuple[list[Step], dict[int, Tensor]]:
    """The steps of every domain, and its coefficients on every node."""
    question = asked(base, domains)
    slopes = domains.slopes.double()
    found = functional_of(base, question, slopes, domains.multipliers.double())
    return question.traced.steps, found[1]


def functional_of(
    base: Roots, question: Asked, slopes: Tensor, multipliers: Tensor
) -> tuple[Functional, dict[int, Tensor]]:
    """The rows' functional, and their coefficients on every node.

    Lower lines pass through 0, which is sound for slopes within their range: whatever is given,
    those are taken.
    """
    domains = question.domains
    traced = question.traced
    within = slopes.clamp(*_slope_range(base, domains))
    signed = by_layer(base, scattered(base, domains, multipliers * domains.splits.sign()))
    values = lower_slopes(base, question, within)
    steps = list(traced.steps)
    for k in base.starts:
        lines = _lines(steps[k])
        relaxation = replace(lines.relaxation, lower_slope=values[k].unsqueeze(1))
        steps[k] = SplitStep(replace(lines, relaxation=relaxation), signed[k].unsqueeze(1))
    split = replace(traced, steps=steps)
    coefficients, tally = walk(split.network, steps, split.boxes, question.rows)
    found = conclude(split, coefficients[0], tally)
    return with_offsets(found, question.offsets), coefficients


def tighten(base: Roots, domains: Domains, iterations: int, rule: str) -> Tightened:
    """Better slopes and multipliers.

    The minimising points of the last half of the walks are averaged: they approach the relaxation's
    minimum.
    """
    question = asked(base, domains)
    low, high = _slope_range(base, domains)
    slopes = domains.slopes.double().clamp(low, high)
    multipliers = domains.multipliers.double().clone()
    split = (domains.splits != 0).double()
    region = question.traced.region
    total = torch.zeros_like(region.center)
    at_input = torch.zeros_like(region.center)

    def found() -> Functional:
        nonlocal at_input
        functional, coefficients = functional_of(base, question, slopes, multipliers)
        at_input = coefficients[0].detach()[:, 0]
        return functional

    def observe(iterate: int) -> None:
        if 2 * iterate >= iterations:
            total.add_(region.minimiser(at_input))

    climbing = [
        Climbing(slopes, SLOPE_RATE, lambda value: value.clamp(low, high).float()),
        Climbing(multipliers, MULTIPLIER_RATE, lambda value: (value.clamp_min(0) * split).float()),
    ]
    best, (slopes, multipliers) = climb(found, climbing, iterations, observe)
    _, coefficients = functional_of(base, question, slopes, multipliers)
    point = total / max(1, iterations - (iterations + 1) // 2)
    margin, values = _forward(base, domains, point)
    lines = {k: _lines(question.traced.steps[k]) for k in base.starts}
    dense = lower_slopes(base, question, slopes)
    layers = base.problem.network.layers
    column, weight = branch(
        base.open[domains.input], layers, lines, coefficients, dense, values, rule
    )
    done = replace(domains, slopes=slopes.float(), multipliers=multipliers.float())
    return Tightened(done, best.value[:, 0], best.lipschitz[:, 0], column, weight, point, margin)


def scattered(base: Roots, domains: Domains, values: Tensor) -> Tensor:
    """values [D, U] of the open neurons among zeros for all others, [D, width + 1]."""
    everywhere = values.new_zeros(len(domains), base.width + 1)
    return everywhere.scatter(1, base.open[domains.input], values)


def lower_slopes(base: Roots, question: Asked, slopes: Tensor) -> dict[int, Tensor]:
    """Lower slopes [D, n] per layer: the domain's own; where a neuron is settled, the lines'."""
    if not base.starts:
        return {}
    lines = [_lines(question.traced.steps[k]).relaxation.lower_slope for k in base.starts]
    plain = torch.cat([*lines, slopes.new_zeros(len(slopes), 1)], 1)
    return by_layer(base, plain.scatter(1, base.open[question.domains.input], slopes))


def by_layer(base: Roots, everywhere: Tensor) -> dict[int, Tensor]:
    ends = [*base.starts.values(), base.width][1:]
    starts = zip(base.starts.items(), ends, strict=True)
    return {k: everywhere[:, start:end] for (k, start), end in starts}


def _slope_range(base: Roots, domains: Domains) -> tuple[Tensor, Tensor]:
    lowest = base.lowest[base.open[domains.input]]
    low = torch.where(domains.splits > 0, 1.0, lowest)
    return low, torch.where(domains.splits < 0, lowest, 1.0)


def _clamped(z: Box, signs: Tensor) -> Box:
    lower = torch.where(signs > 0, z.lower.clamp_min(0), z.lower)
    return Box(lower, torch.where(signs < 0, z.upper.clamp_max(0), z.upper))


def _lines(step: Step) -> ActivationStep:
    if not isinstance(step, ActivationStep):
        raise TypeError(f"step {type(step).__name__} has no lines")
    return step


def _forward(base: Roots, domains: Domains, x: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
    """The mean network at x [D, *shape]: its smallest row [D], and z [D, n] of (leaky) ReLUs."""
    network = base.problem.network
    held = network.values(base.mean, x)
    values = {k: held[network.reads[k][0]].flatten(1) for k in base.starts}
    spec = base.problem.specification
    margins = (spec.rows[domains.input] @ held[-1].unsqueeze(-1)).squeeze(-1)
    return (margins + spec.offsets[domains.input]).amin(1), values
