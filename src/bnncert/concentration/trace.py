"""The trace: a network with Gaussian weights as steps on intervals of known probability.

Each side of each hidden sum (a linear layer's neurons, or those of an `Add`) is m - tL by its
functional, and fails with probability at most Q(t). A side without noise cannot fail, and the lower
side of a neuron that is off under ReLU, and that nothing else reads, is never used: neither is
charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from bnncert.bounds.interval import range_of
from bnncert.bounds.linear import has_rows, worth_rows
from bnncert.bounds.steps import JoinStep, step_of
from bnncert.bounds.walk import Step
from bnncert.concentration.functional import (
    Functional,
    Trace,
    by_rows,
    local,
    one_layer,
    stands_alone,
)
from bnncert.concentration.noise import Noise, layer_noises, weights_and_bias
from bnncert.concentration.steps import NoisyLinear
from bnncert.model.activations import ACTIVATIONS
from bnncert.model.box import Box
from bnncert.model.layers import JOINS, LINEAR, AvgPool2d, Linear
from bnncert.model.maps import spread_bias, through
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.rounding import TINY, UNIT
from bnncert.numerics.tails import normal_tail_up
from bnncert.posteriors.gaussian import Gaussian

NOTICED = 2.0**-30  # relative to an end
Parts: TypeAlias = list[tuple[tuple[Tensor, ...], Noise]]  # each layer's means and noise


@dataclass(frozen=True, eq=False)
class Prefix:
    """What no threshold enters: each layer's means and noise, the trace before the first random
    layer, and that layer's functionals of z, then of -z, if it is dense."""

    parts: Parts
    traced: Trace
    first: Functional | None

    def __getitem__(self, index: Tensor) -> Prefix:
        """For some of the inputs."""
        return Prefix(self.parts, self.traced[index], self.first and self.first[index])


def prefix(network: Network, posterior: Gaussian, region: Region) -> Prefix:
    parts = list(zip(network.split(posterior.mean), layer_noises(network, posterior), strict=True))
    none = torch.zeros(len(region), dtype=torch.float64, device=region.center.device)
    traced = Trace(network, region, [], [region.box], none, {})
    random = next((k for k, (_, noise) in enumerate(parts) if noise.random), len(parts) - 1)
    for k in range(random):
        traced = _with_layer(traced, parts, k, none, None)
    layer = network.layers[random]
    first = None
    if (
        isinstance(layer, LINEAR)
        and len(network.shapes[random + 1]) == 1
        and has_rows(network, random)
    ):
        step = _noisy_linear(traced, parts, random, layer)
        first = _of_vector(replace(traced, steps=[*traced.steps, step]))
    return Prefix(parts, traced, first)


def trace(
    network: Network,
    posterior: Gaussian,
    region: Region,
    t: float | Tensor,
    known: Prefix | None = None,
) -> Trace:
    """Hidden intervals at threshold t (or one per input, [B]), each side charged Q(t)."""
    known = known or prefix(network, posterior, region)
    thresholds = torch.as_tensor(t, dtype=torch.float64, device=region.center.device)
    thresholds = thresholds.expand(len(region))
    traced = known.traced
    first = known.first
    for k in range(len(traced.steps), len(network.layers)):
        traced = _with_layer(traced, known.parts, k, thresholds, first)
        first = None
    return replace(traced, charge=traced.charge * (1 + 64 * UNIT))


def _with_layer(traced: Trace, parts: Parts, k: int, t: Tensor, known: Functional | None) -> Trace:
    """The trace with layer k; `known`: the functionals of its neurons, where they are."""
    network = traced.network
    layer = network.layers[k]
    if isinstance(layer, LINEAR):
        longer = replace(traced, steps=[*traced.steps, _noisy_linear(traced, parts, k, layer)])
    else:
        if isinstance(layer, JOINS):  # its terms need no boxes
            shapes = tuple(network.shapes[node] for node in network.reads[k])
            step: Step = JoinStep(layer, shapes)
            longer = replace(traced, steps=[*traced.steps, step])
        else:
            inputs = [_known(traced.boxes[node]) for node in network.reads[k]]
            step = step_of(layer, inputs)
            return replace(
                traced, steps=[*traced.steps, step], boxes=[*traced.boxes, range_of(layer, inputs)]
            )
    if not has_rows(network, k):
        return replace(longer, boxes=[*traced.boxes, None])
    found, chosen = _neurons(longer, t, known)
    box, sides = _interval(found, t, all(_is_flat_below(r) for r in network.reading(k + 1)))
    return replace(
        longer,
        boxes=[*traced.boxes, box.reshape(len(t), *network.shapes[k + 1])],
        charge=traced.charge + normal_tail_up(t) * sides,
        refined=traced.refined if chosen is None else traced.refined | {k: chosen},
    )


def _known(box: Box | None) -> Box:
    if box is None:
        raise TypeError("only the terms of a sum may have no box")
    return box


def _is_flat_below(layer: object) -> bool:
    return isinstance(layer, ACTIVATIONS) and layer.traits.flat_below


def _neurons(
    traced: Trace, t: Tensor, known: Functional | None
) -> tuple[Functional, Tensor | None]:
    """The functionals of z_i, then of -z_i, of the last step's neurons [B, 2n], and which had rows,
    if not all had.

    Where a neuron's end has two functionals the better one is used, and it alone is charged: which
    one that is depends on nothing random.
    """
    k = len(traced.steps) - 1
    step = traced.steps[k]
    shape = traced.network.shapes[k + 1]
    if len(shape) == 1:
        found = known or _of_vector(traced)
        if not isinstance(step, NoisyLinear) or not stands_alone(step):
            return found, None
        return _better(one_layer(step), found, t), None
    terms = _terms(traced, k)
    if any(term.noise.factor is not None for term in terms):
        everyone = torch.ones(len(t), math.prod(shape), dtype=torch.bool, device=t.device)
        return by_rows(traced, everyone), everyone
    found = local(traced, k)
    if isinstance(step, NoisyLinear) and (
        isinstance(step.layer, AvgPool2d) or _is_first(step, traced.region)
    ):
        return found, None  # rows would find the same
    lower, upper = _ends(found, t)
    z = Box(lower, upper).reshape(len(t), *shape)
    chosen = worth_rows(traced.network, k, z)
    if chosen is None or not bool(chosen.any()):
        return found, None
    return _better(found, by_rows(traced, chosen), t), chosen


def _terms(traced: Trace, k: int) -> list[NoisyLinear]:
    """The linear layers whose noise `local` counts for layer k."""
    step = traced.steps[k]
    if isinstance(step, NoisyLinear):
        return [step]
    nodes = [node for node in traced.network.reads[k] if traced.boxes[node] is None]
    return [term for node in nodes for term in _terms(traced, node - 1)]


def _of_vector(traced: Trace) -> Functional:
    """All neurons of a vector by their rows; without rows where that is the same."""
    step = traced.steps[-1]
    if (
        isinstance(step, NoisyLinear)
        and _is_first(step, traced.region)
        and step.noise.factor is None
    ):
        return one_layer(step)
    return by_rows(traced, None)


def _is_first(step: NoisyLinear, region: Region) -> bool:
    """Whether the layer reads the input itself, and the input region is a box."""
    return step.region is not None and region.is_box


def _noisy_linear(traced: Trace, parts: Parts, k: int, layer: Linear) -> NoisyLinear:
    network = traced.network
    (node,) = network.reads[k]
    shape = network.shapes[node]
    h = _known(traced.boxes[node])
    means, noise = parts[k]
    mean, bias = weights_and_bias(means)
    if mean is None:  # pooling has no weights
        mean = torch.zeros_like(h.lower[0])
    size = through(layer, mean.abs(), h.magnitude).flatten(1)
    if bias is not None:
        bias = spread_bias(layer, bias, shape).flatten()
        size = size + bias.abs()
    region = traced.region if node in network.inputs else None
    return NoisyLinear(layer, shape, mean, bias, noise, h, size, region)


def _interval(found: Functional, t: Tensor, flat_below: bool) -> tuple[Box, Tensor]:
    """[value - tL] on both sides, and the number of sides [B] that may fail."""
    lower, upper = _ends(found, t)
    noisy = found.lipschitz > 0
    width = lower.shape[1]
    used = noisy[:, :width]
    if flat_below:
        used = used & ~(upper <= 0)
    # As float64: a whole number times a Python float would be rounded to the default dtype,
    # float32.
    sides = (used.sum(1) + noisy[:, width:].sum(1)).double()
    return Box(lower, upper), sides


def _ends(found: Functional, t: Tensor) -> tuple[Tensor, Tensor]:
    """They would cross only on a region without points, where anything holds."""
    width = found.value.shape[1] // 2
    ends = found.value - t.unsqueeze(-1) * found.lipschitz * (1 + 4 * UNIT) - TINY
    lower = ends[:, :width] - UNIT * ends[:, :width].abs()
    upper = -ends[:, width:] + UNIT * ends[:, width:].abs()
    return torch.minimum(lower, upper), torch.maximum(lower, upper)


def _better(first: Functional, second: Functional, t: Tensor) -> Functional:
    """Per neuron and side, the one with the better end. One that cannot fail is not given up for a
    rounding."""
    wide = t.unsqueeze(-1)
    sure = (first.lipschitz == 0) & first.value.isfinite()
    least = torch.where(sure, first.value + NOTICED * first.value.abs(), first.value)
    better = second.value - wide * second.lipschitz > least - wide * first.lipschitz
    value = torch.where(better, second.value, first.value)
    return Functional(value, torch.where(better, second.lipschitz, first.lipschitz))
