"""Domains: an output row of one input where some neurons are known to be on one side of a kink.

On the part of X where s_i (z_i - c_i) >= 0 for the neurons i split at kinks c_i, which is 0 for
(leaky) ReLUs, their intervals end there, on one piece their relaxation is exact, and

    A z >= (A - β∘s) z + β∘s c      for every β >= 0,

so slopes α of the lines that turn at kinks still open and multipliers β of the split ones are
searched together, by Adam, from those of the parent (β-CROWN, Wang et al. 2021). Both are rounded
to float32 at every step: what is found is what a certificate stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor

from bnncert.bounds.interval import range_of
from bnncert.bounds.relaxations import outer_slopes
from bnncert.bounds.steps import ActivationStep, activation_step, step_of, turned_step
from bnncert.bounds.walk import Step, known_boxes, walk
from bnncert.concentration.ascent import Climbing, climb
from bnncert.concentration.branching import branch
from bnncert.concentration.functional import Functional, Trace, conclude, with_offsets
from bnncert.concentration.steps import NoisyLinear, SplitStep
from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.box import Box
from bnncert.model.layers import MaxPool2d
from bnncert.model.moves import MOVES
from bnncert.model.problem import Problem

SLOPE_RATE = 0.1
MULTIPLIER_RATE = 0.05


@dataclass(frozen=True, eq=False)
class Roots:
    """What the domains of each input share: the trace at the root, and the places that may be split
    there.

    A place is a kink of a neuron: of a layer those of all neurons at the first kink, then those at
    the second. They are numbered through all layers, `starts` by layer position; `width` of them in
    all, which as a number stands for none. `open` [B, U] lists for each input those of the neurons
    that have a kink inside their interval: a domain's tensors have a column for each.
    """

    problem: Problem
    mean: Tensor
    traced: Trace
    starts: dict[int, int]
    width: int
    open: Tensor
    lowest: Tensor  # [width + 1] least slope of the line that turns there


@dataclass(frozen=True, eq=False)
class Domains:
    """Rows `row` of inputs `input`.

    Splits [D, U]: 0 for none, k or -k where the k-th split says z >= c or z <= c. Slopes: at a
    neuron's first kink of its lower line, at the second of its upper line.
    """

    input: Tensor
    row: Tensor
    splits: Tensor  # int16
    slopes: Tensor  # float32, at most 1
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
    for k, (layer, step) in enumerate(zip(traced.network.layers, traced.steps, strict=True)):
        if not isinstance(layer, ACTIVATIONS) or not isinstance(step, ActivationStep):
            continue
        kinks = layer.traits.splits
        if kinks:
            starts[k] = width
            width += len(kinks) * step.size.shape[1]
            lowest.append(_least_slopes(layer, step))
            unsettled.append(_inside(step.z, kinks).any(1).repeat(1, len(kinks)))
    if not unsettled:
        none = torch.zeros(len(problem), 0, dtype=torch.int64, device=mean.device)
        return Roots(problem, mean, traced, starts, 0, none, mean.new_zeros(1))

    mask = torch.cat(unsettled, 1)
    count = int(mask.sum(1).max())
    numbers = torch.arange(width, device=mean.device).expand_as(mask)
    columns = torch.where(mask, numbers, width).sort(1).values[:, :count]
    every = torch.cat([*lowest, lowest[0][:1]])
    return Roots(problem, mean, traced, starts, width, columns, every)


def _inside(z: Box, kinks: Sequence[float]) -> Tensor:
    """Whether each kink is inside the interval of each neuron [D, n]: [D, kinks, n]."""
    return torch.stack([(z.lower < kink) & (z.upper > kink) for kink in kinks], 1)


def _least_slopes(layer: Activation, step: ActivationStep) -> Tensor:
    """[kinks n], at each the least float32 that is no smaller than the slope beyond: a line about
    it that is any flatter crosses the function there."""
    beyond = outer_slopes(layer, step.size[0].reshape(step.shape))
    slope = torch.cat([slopes.flatten() for slopes in beyond])
    nearest = slope.float()
    above = nearest.nextafter(torch.full_like(nearest, torch.inf))
    return torch.where(nearest.double() >= slope, nearest, above).double()


def whole(base: Roots, input: Tensor, row: Tensor) -> Domains:  # noqa: A002 (the field's name)
    """The undivided domains of the given rows, with the slopes of the root's lines."""
    slopes = _plain_slopes(base, base.traced)[input].gather(1, base.open[input]).float()
    none = torch.zeros_like(slopes)
    return Domains(input, row, none.to(torch.int16), slopes, none)


def halves(domains: Domains, column: Tensor, weight: Tensor, depth: Tensor) -> Domains:
    """Both children of every domain, split at `column` [D] as the (depth + 1)-th: first all z >= c.

    With A > 0 the coefficient there, multipliers A (1 - α) and A α give the lower line of slope α
    of a ReLU again: so a child starts with a bound no worse than its parent's. Where an upper line
    turns and A < 0 they are -A α and -A (1 - α).
    """
    place = column.unsqueeze(1)
    order = (depth + 1).unsqueeze(1).to(torch.int16)
    slope = domains.slopes.gather(1, place)
    heavy = weight.unsqueeze(1).float()
    rest = 1 - slope
    slope = slope.clamp_min(0)
    above = torch.where(heavy >= 0, rest, slope)
    below = torch.where(heavy >= 0, slope, rest)
    sides = [
        replace(
            domains,
            splits=domains.splits.scatter(1, place, sign * order),
            multipliers=domains.multipliers.scatter(1, place, heavy.abs() * share),
        )
        for sign, share in ((1, above), (-1, below))
    ]
    pairs = zip(*(vars(side).values() for side in sides), strict=True)
    return Domains(*(torch.cat(pair) for pair in pairs))


@dataclass(frozen=True, eq=False)
class Asked:
    """The rows of domains [D, 1, outputs] and their offsets [D, 1], over the root's steps with the
    domains' splits, and from where to where slopes [D, U] may go."""

    domains: Domains
    traced: Trace
    rows: Tensor
    offsets: Tensor
    low: Tensor
    high: Tensor


def asked(base: Roots, domains: Domains) -> Asked:
    spec = base.problem.specification
    index = domains.input
    rows = spec.rows[index, domains.row].unsqueeze(1)
    offsets = spec.offsets[index, domains.row].unsqueeze(1)
    traced = _split(base, domains)
    return Asked(domains, traced, rows, offsets, *_slope_range(base, domains, traced))


def _split(base: Roots, domains: Domains) -> Trace:
    """The root's trace for each domain: intervals end at kinks where a neuron is split, and the
    boxes after it are smaller, too, up to the next sum."""
    network = base.problem.network
    signs = by_layer(base, scattered(base, domains, domains.splits.sign().double()))
    root = base.traced[domains.input]
    steps: list[Step] = []
    boxes: dict[int, Box] = {}  # of nodes that are smaller than at the root
    for k, step in enumerate(root.steps):
        layer = network.layers[k]
        own = [boxes[node] for node in network.reads[k] if node in boxes]
        if k in base.starts and isinstance(step, ActivationStep) and isinstance(layer, ACTIVATIONS):
            z = _clamped(step.z, layer.traits.splits, signs[k]).reshape(len(domains), *step.shape)
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

    Lower lines of (leaky) ReLUs pass through 0, which is sound for slopes within their range:
    whatever is given, those are taken.
    """
    domains = question.domains
    traced = question.traced
    within = slopes.clamp(question.low, question.high)
    signed = by_layer(base, scattered(base, domains, multipliers * domains.splits.sign()))
    steps = list(traced.steps)
    for k, lines in lines_of(base, question, within).items():
        steps[k] = SplitStep(lines, signed[k].unsqueeze(1), _kinks(base, k))
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
    low, high = question.low, question.high
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
    lines = lines_of(base, question, slopes)
    layers = base.problem.network.layers
    column, weight = branch(base.open[domains.input], layers, lines, coefficients, values, rule)
    done = replace(domains, slopes=slopes.float(), multipliers=multipliers.float())
    return Tightened(done, best.value[:, 0], best.lipschitz[:, 0], column, weight, point, margin)


def scattered(base: Roots, domains: Domains, values: Tensor) -> Tensor:
    """values [D, U] at the open places among zeros at all others, [D, width + 1]."""
    everywhere = values.new_zeros(len(domains), base.width + 1)
    return everywhere.scatter(1, base.open[domains.input], values)


def lines_of(base: Roots, question: Asked, slopes: Tensor) -> dict[int, ActivationStep]:
    """Per layer the lines with the domains' own slopes; where a neuron is settled at the root, with
    those that it has there."""
    plain = _plain_slopes(base, question.traced)
    own = by_layer(base, plain.scatter(1, base.open[question.domains.input], slopes))
    found = {}
    for k, values in own.items():
        step = _lines(question.traced.steps[k])
        found[k] = turned_step(_activation(base, k), step, values.unbind(1))
    return found


def by_layer(base: Roots, everywhere: Tensor) -> dict[int, Tensor]:
    """[D, kinks, n]"""
    ends = [*base.starts.values(), base.width][1:]
    starts = zip(base.starts.items(), ends, strict=True)
    found = {k: everywhere[:, start:end] for (k, start), end in starts}
    return {k: own.reshape(len(own), len(_kinks(base, k)), -1) for k, own in found.items()}


def _activation(base: Roots, k: int) -> Activation:
    layer = base.problem.network.layers[k]
    if not isinstance(layer, ACTIVATIONS):
        raise TypeError(f"layer {type(layer).__name__} has no kinks")
    return layer


def _kinks(base: Roots, k: int) -> tuple[float, ...]:
    return _activation(base, k).traits.splits


def _plain_slopes(base: Roots, traced: Trace) -> Tensor:
    """Of the trace's lines that turn at each place, [D, width + 1]."""
    lines = [(_lines(traced.steps[k]).relaxation, len(_kinks(base, k))) for k in base.starts]
    turning = [(line.lower_slope, line.upper_slope)[:count] for line, count in lines]
    none = traced.region.center.new_zeros(len(traced.region), 1)
    return torch.cat([*chain.from_iterable(turning), none], 1)


def _slope_range(base: Roots, domains: Domains, traced: Trace) -> tuple[Tensor, Tensor]:
    """Where the kink is inside the interval up to 1, elsewhere the slope of the trace's line."""
    index = base.open[domains.input]
    lowest = base.lowest[index]
    settled = _plain_slopes(base, traced).gather(1, index).float().double().maximum(lowest)
    unsettled = [
        _inside(_lines(traced.steps[k]).z, _kinks(base, k)).flatten(1) for k in base.starts
    ]
    none = torch.zeros_like(domains.row, dtype=torch.bool).unsqueeze(1)
    inside = torch.cat([*unsettled, none], 1).gather(1, index)
    return torch.where(inside, lowest, settled), torch.where(inside, 1.0, settled)


def _clamped(z: Box, kinks: Sequence[float], signs: Tensor) -> Box:
    """Whatever the interval [D, n] is, that of the domain holds every z on the right sides of the
    kinks; signs [D, kinks, n]."""
    ends = []
    for end in (z.lower, z.upper):
        for kink, sign in zip(kinks, signs.unbind(1), strict=True):
            end = torch.where(sign > 0, end.clamp_min(kink), end)
            end = torch.where(sign < 0, end.clamp_max(kink), end)
        ends.append(end)
    return Box(*ends)


def _lines(step: Step) -> ActivationStep:
    if not isinstance(step, ActivationStep):
        raise TypeError(f"step {type(step).__name__} has no lines")
    return step


def _forward(base: Roots, domains: Domains, x: Tensor) -> tuple[Tensor, dict[int, Tensor]]:
    """The mean network at x [D, *shape]: its smallest row [D], and z [D, n] of what is split."""
    network = base.problem.network
    held = network.values(base.mean, x)
    values = {k: held[network.reads[k][0]].flatten(1) for k in base.starts}
    spec = base.problem.specification
    margins = (spec.rows[domains.input] @ held[-1].unsqueeze(-1)).squeeze(-1)
    return (margins + spec.offsets[domains.input]).amin(1), values
