"""The trace: a network with Gaussian weights as steps on intervals of known probability.

Each side of each hidden sum (a linear layer's neurons, or those of an `Add`) is m - tL by its
functional, and fails with probability at most Q(t). A side without noise cannot fail, and the lower
side of a neuron that is off under ReLU, and that nothing else reads, is never used: neither is
charged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.bounds.interval import range_of
from bnncert.bounds.neurons import has_rows, worth_rows
from bnncert.bounds.steps import WiringStep, step_of
from bnncert.bounds.walk import Step, known_boxes
from bnncert.bounds.zonotopes import MOST_HELD, numbers_held
from bnncert.concentration.affine import Affine
from bnncert.concentration.forward import Forward
from bnncert.concentration.functional import (
    Forms,
    Functional,
    Trace,
    by_rows,
    form_of,
    local,
    one_layer,
    stands_alone,
)
from bnncert.concentration.noise import Noise, Parts, layer_noises, weights_and_bias
from bnncert.concentration.steps import Entrywise, NoisyLinear
from bnncert.model.activations import ACTIVATIONS
from bnncert.model.box import Box
from bnncert.model.layers import LINEAR, SUMS, AvgPool2d, Dense, Linear, Scale
from bnncert.model.maps import spread_bias, through
from bnncert.model.moves import MOVES, Concat
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.rounding import TINY, UNIT
from bnncert.numerics.tails import normal_tail_up
from bnncert.posteriors.gaussian import Gaussian

NOTICED = 2.0**-30  # relative to an end
LITTLE = 2.0**-200  # of an end that should be 0: far above what stands for no noise
LARGEST = 2**21  # entries of an affine form's matrix, of one input
WORTH = 2.0**-5  # of noise on a box beside the mean


@dataclass(frozen=True, eq=False)
class Prefix:
    """What no threshold enters: each layer's means and noise, the trace before the first random
    layer, and that layer's functionals of z, then of -z, if it is dense."""

    parts: Parts
    traced: Trace
    first: Functional | None

    def __getitem__(self, index: Tensor | slice) -> Prefix:
        """For some of the inputs."""
        return Prefix(self.parts, self.traced[index], self.first and self.first[index])


def prefix(network: Network, posterior: Gaussian, region: Region) -> Prefix:
    parts = list(zip(network.split(posterior.mean), layer_noises(network, posterior), strict=True))
    none = torch.zeros(len(region), dtype=torch.float64, device=region.center.device)
    unused = torch.zeros_like(none, dtype=torch.bool)
    traced = Trace(network, region, [], [region.box], none, {}, unused)
    certain = next((k for k, (_, noise) in enumerate(parts) if noise.random), len(parts))
    random = min(certain, len(parts) - 1)
    forward = Forward(region, numbers_held(network, certain) <= MOST_HELD)
    for k in range(random):
        traced = _with_layer(traced, parts, k, none, None, forward)
    traced = replace(traced, forms=_forms(traced, parts))
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


def has_random_head(network: Network, posterior: Gaussian) -> bool:
    """Whether the last layer, a dense one, is the only one with random weights, and reads something
    else than the input as it is."""
    *before, last = layer_noises(network, posterior)
    (node, *_) = network.reads[-1]
    certain = not any(noise.random for noise in before)
    return certain and last.random and isinstance(network.layers[-1], Dense) and node > 0


def joined(prefixes: Sequence[Prefix], region: Region) -> Prefix:
    """Of parts of a region's inputs, of all."""
    if len(prefixes) == 1:
        return prefixes[0]
    parts = prefixes[0].parts
    whole = joined_traces([each.traced for each in prefixes], parts, region)
    firsts = [each.first for each in prefixes if each.first is not None]
    first = None
    if firsts:
        first = Functional(
            torch.cat([one.value for one in firsts]), torch.cat([one.lipschitz for one in firsts])
        )
    return Prefix(parts, whole, first)


def joined_traces(found: Sequence[Trace], parts: Parts, region: Region) -> Trace:
    """Of parts of a region's inputs, of all: steps follow from the boxes."""
    if len(found) == 1:
        return found[0]
    boxes = [_all_boxes(same) for same in zip(*(each.boxes for each in found), strict=True)]
    charge = torch.cat([each.charge for each in found])
    forward = torch.cat([each.forward for each in found])
    forms = _all_forms(found, region)
    whole = Trace(found[0].network, region, [], boxes, charge, _all_refined(found), forward, forms)
    for k in range(len(found[0].steps)):
        whole = replace(whole, steps=[*whole.steps, _step(whole, parts, k)])
    return whole


def _all_boxes(boxes: tuple[Box | None, ...]) -> Box | None:
    known = [box for box in boxes if box is not None]
    if not known:
        return None
    return Box(torch.cat([box.lower for box in known]), torch.cat([box.upper for box in known]))


def _all_refined(traces: Sequence[Trace]) -> dict[int, Tensor]:
    """Which neurons had rows: where a part has no say, none of its."""
    width = {k: chosen.shape[1] for each in traces for k, chosen in each.refined.items()}
    return {
        k: torch.cat([_refined(each, k, n) for each in traces]) for k, n in sorted(width.items())
    }


def _refined(traced: Trace, k: int, width: int) -> Tensor:
    none = torch.zeros(len(traced.region), width, dtype=torch.bool, device=traced.charge.device)
    return traced.refined.get(k, none)


def _all_forms(traces: Sequence[Trace], region: Region) -> Forms:
    fields = ("matrix", "offset", "error")
    return {
        node: Affine(
            region,
            *(torch.cat([getattr(each.forms[node], name) for each in traces]) for name in fields),
        )
        for node in traces[0].forms
    }


def _forms(traced: Trace, parts: Parts) -> Forms:
    """The vectors among certain nodes that dense layers with random weights read, as functions of
    the input: all of them or, where no noise is worth it, none. Several readers may have flattened
    the same node, each after the other's noise: it is certain as soon as what they flatten is."""
    network = traced.network
    found: dict[int, bool] = {}
    for k, (means, noise) in enumerate(parts):
        (node, *_) = network.reads[k]
        node = network.origins[node]
        layer = network.layers[k]
        if isinstance(layer, Dense) and noise.random and node <= len(traced.steps):
            size = math.prod(network.shapes[node]) * math.prod(network.input_shape)
            if size <= LARGEST and way_of(network, parts, node) is None:
                found[node] = found.get(node, False) or _matters(means[0], noise)
    if not any(found.values()):
        return {}
    return {node: form_of(replace(traced, steps=traced.steps[:node])) for node in found}


def _matters(mean: Tensor, noise: Noise) -> bool:
    """Whether the noise of weights is not little beside their means."""
    spread = noise.spread
    return spread is not None and float(spread.sqrt().sum()) > WORTH * float(mean.abs().sum())


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


def _with_layer(
    traced: Trace,
    parts: Parts,
    k: int,
    t: Tensor,
    known: Functional | None,
    forward: Forward | None = None,
) -> Trace:
    """The trace with layer k; `known`: the functionals of its neurons, where they are; `forward`:
    where nothing is random so far."""
    network = traced.network
    layer = network.layers[k]
    longer = replace(traced, steps=[*traced.steps, _step(traced, parts, k)])
    if not isinstance(layer, (*LINEAR, *SUMS)):
        inputs = known_boxes([traced.boxes[node] for node in network.reads[k]])
        return replace(longer, boxes=[*traced.boxes, range_of(layer, inputs)])
    if not has_rows(network, k):
        return replace(longer, boxes=[*traced.boxes, None])
    found, chosen = _neurons(longer, parts, t, known, forward)
    box, sides = _interval(found, t, all(_is_flat_below(r) for r in network.reading(k + 1)))
    return replace(
        longer,
        boxes=[*traced.boxes, box.reshape(len(t), *network.shapes[k + 1])],
        charge=traced.charge + normal_tail_up(t) * sides,
        refined=traced.refined if chosen is None else traced.refined | {k: chosen},
        forward=forward.used if forward is not None else traced.forward,
    )


def _step(traced: Trace, parts: Parts, k: int) -> Step:
    """Layer k on the boxes of what it reads."""
    network = traced.network
    layer = network.layers[k]
    if isinstance(layer, LINEAR):
        return _noisy_linear(traced, parts, k, layer)
    if isinstance(layer, SUMS):  # its terms need no boxes
        return WiringStep(layer, tuple(network.shapes[node] for node in network.reads[k]))
    return step_of(layer, known_boxes([traced.boxes[node] for node in network.reads[k]]))


def _is_flat_below(layer: object) -> bool:
    return isinstance(layer, ACTIVATIONS) and layer.traits.flat_below


def _neurons(
    traced: Trace, parts: Parts, t: Tensor, known: Functional | None, forward: Forward | None
) -> tuple[Functional, Tensor | None]:
    """The functionals of z_i, then of -z_i, of the last step's neurons [B, 2n], and which had rows,
    if not all had.

    Where a neuron's end has several functionals the best one is used, and it alone is charged:
    which one that is depends on nothing random.
    """
    k = len(traced.steps) - 1
    step = traced.steps[k]
    shape = traced.network.shapes[k + 1]
    if len(shape) == 1:
        found = known or _of_vector(traced)
        if not isinstance(step, NoisyLinear) or not stands_alone(step):
            return found, None
        return _better(one_layer(step), found, t), None
    found = local(traced, k)
    if isinstance(step, NoisyLinear) and (
        _is_charged(traced, step) or _is_first(step, traced.region)
    ):
        return found, None
    chosen = _chosen(traced, parts, found, t)
    ahead = None if forward is None else forward.functional(traced, parts, chosen)
    if ahead is not None:
        found = _better(found, ahead, t)
        chosen = _chosen(traced, parts, found, t)
    if not bool(chosen.any()):
        return found, None
    return _better(found, by_rows(traced, chosen), t), chosen


def _chosen(traced: Trace, parts: Parts, found: Functional, t: Tensor) -> Tensor:
    """The neurons [B, n] of an image, known so far by `found`, that are worth rows."""
    k = len(traced.steps) - 1
    z = Box(*_ends(found, t)).reshape(len(t), *traced.network.shapes[k + 1])
    chosen = worth_rows(traced.network, k, z, [noise.random for _, noise in parts])
    if chosen is None:
        raise TypeError("of vectors all neurons have rows")
    return chosen


def _is_charged(traced: Trace, step: NoisyLinear) -> bool:
    """Whether rows of a scale or an average, whose boxes follow from those before them for nothing,
    would be charged for noise from further back."""
    local_enough = isinstance(step.layer, AvgPool2d | Scale) and not step.noise.random
    return local_enough and any(before.noise.random for before in traced.linear)


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
    """Whether the layer reads the input itself, and the input region is a box: rows would find the
    same as the layer does."""
    return step.region is not None and region.is_box


def _noisy_linear(traced: Trace, parts: Parts, k: int, layer: Linear) -> NoisyLinear:
    network = traced.network
    (node,) = network.reads[k]
    shape = network.shapes[node]
    (h,) = known_boxes([traced.boxes[node]])
    means, noise = parts[k]
    of_input = noise.random and isinstance(layer, Dense)
    form = traced.forms.get(network.origins[node]) if of_input else None
    mean, bias = weights_and_bias(means)
    if mean is None:  # pooling has no weights
        mean = torch.zeros_like(h.lower[0])
    size = through(layer, mean.abs(), h.magnitude).flatten(1)
    if bias is not None:
        bias = spread_bias(layer, bias, shape).flatten()
        size = size + bias.abs()
    way = way_of(network, parts, node)
    region = None if way is None else traced.region
    return NoisyLinear(layer, shape, mean, bias, noise, h, size, region, way or (), form)


def way_of(network: Network, parts: Parts, node: int) -> tuple[Entrywise, ...] | None:
    """The layers between a node and the input, last first, if every entry goes its own way."""
    way: list[Entrywise] = []
    while node not in network.inputs:
        layer = network.layers[node - 1]
        means, noise = parts[node - 1]
        shape = network.shape_before(node - 1)
        if isinstance(layer, Scale) and not noise.random:
            way.append(Entrywise(layer, means[0].abs(), shape))
        elif isinstance(layer, MOVES) and not isinstance(layer, Concat):
            way.append(Entrywise(layer, None, shape))
        else:
            return None
        (node,) = network.reads[node - 1]
    return tuple(way)


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
    least = torch.where(sure, first.value + NOTICED * first.value.abs() + LITTLE, first.value)
    better = second.value - wide * second.lipschitz > least - wide * first.lipschitz
    value = torch.where(better, second.value, first.value)
    return Functional(value, torch.where(better, second.lipschitz, first.lipschitz))
