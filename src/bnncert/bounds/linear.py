"""LBP, backward: CROWN (Zhang et al. 2018) with weights in boxes.

To bound rows A z from below, each layer is replaced by a linear minorant and A is pulled through
it, from the output to the input; CROWN does this for fixed weights. The output rows are pulled from
the start, so that y_c - y_j is bounded itself and not as two logits apart. Hidden intervals are
those of the same walk from each neuron, intersected with interval arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.bounds.cropping import crop_linear, cropped
from bnncert.bounds.interval import interval_rows, linear_image, range_of
from bnncert.bounds.neurons import entries, has_rows, signed_rows, tiles, worth_rows
from bnncert.bounds.steps import step_of
from bnncert.bounds.walk import Step, Tally, walk
from bnncert.bounds.windows import Window
from bnncert.model.box import Box, intersect
from bnncert.model.layers import LINEAR, AvgPool2d, Conv2d, Dense, Layer, Linear, Shape
from bnncert.model.maps import fan, pull, spread_bias
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.batching import slices
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, UNIT, gamma

WORKING_TENSORS = 6  # of the rows' size, alive at once in a pull


@dataclass(frozen=True, eq=False)
class LinearStep:
    """A (W h + b) >= (A⁺ Wl + A⁻ Wu) h + A⁺ bl + A⁻ bu, for W in [Wl, Wu] and h >= 0.

    Here the weight box costs no tightness. Also for a layer whose weights are fixed, whatever the
    sign of h: then Wl = Wu, and `upper` is None. `error` [B, outputs] is the rounding per unit of
    |A|: 4 gamma (|W||h| + |b|), since (|A||W|) |h| = |A| (|W||h|).
    """

    layer: Linear
    shape: Shape
    lower: Tensor  # of a dense layer [in, out] or [B, in, out]
    upper: Tensor | None
    bias_lower: Tensor | None  # [outputs] or [B, outputs]
    bias_upper: Tensor | None
    error: Tensor
    floor: Tensor  # [B, 1], underflow

    def __getitem__(self, index: Tensor | slice) -> LinearStep:
        """For some of the inputs; the weights are those of all."""
        return replace(self, error=self.error[index], floor=self.floor[index])

    def crop(self, before: Window, after: Window) -> LinearStep:
        given = ("bias_lower", "bias_upper", "error")
        return crop_linear(self, before, after, ("lower", "upper"), (), given)

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        flat = rows.flatten(2)
        constant = -dot(flat.abs(), self.error) - self.floor
        if self.upper is None:
            pulled = pull(self.layer, self.lower, rows, self.shape)
        else:
            pulled = pull(self.layer, self.lower, rows.clamp_min(0), self.shape)
            pulled = pulled + pull(self.layer, self.upper, rows.clamp_max(0), self.shape)
        if self.bias_lower is not None and self.bias_upper is not None:
            constant = (
                constant
                + dot(flat.clamp_min(0), self.bias_lower)
                + dot(flat.clamp_max(0), self.bias_upper)
            )
        return (pulled,), tally.gained(constant)


@dataclass(frozen=True, eq=False)
class SignedLinearStep:
    """A (W h + b) >= (A Wc - |A| Wr κ) h + A bc - |A| br - |A| Wr δ.

    It holds for W in Wc ± Wr and |h| <= κ h + δ. The weight box costs |A| Wr |h|, and |h| is below
    its chord: κ = 1, δ = 0 where h >= 0, κ = -1 where h <= 0, and in between McCormick's envelope.
    """

    layer: Linear
    shape: Shape
    center: Tensor  # of a dense layer [in, out] or [B, in, out]
    radius: Tensor
    bias_center: Tensor | None
    bias_radius: Tensor | None
    chord_slope: Tensor  # κ [B, *shape]
    chord_lift: Tensor  # δ [B, *shape]
    error: Tensor
    floor: Tensor

    def __getitem__(self, index: Tensor | slice) -> SignedLinearStep:
        slope = self.chord_slope[index]
        lift = self.chord_lift[index]
        return replace(
            self,
            chord_slope=slope,
            chord_lift=lift,
            error=self.error[index],
            floor=self.floor[index],
        )

    def crop(self, before: Window, after: Window) -> SignedLinearStep:
        read = ("chord_slope", "chord_lift")
        given = ("bias_center", "bias_radius", "error")
        return crop_linear(self, before, after, ("center", "radius"), read, given)

    def pull(self, rows: Tensor, tally: Tally) -> tuple[tuple[Tensor, ...], Tally]:
        flat = rows.flatten(2)
        magnitude = flat.abs()
        spread = pull(self.layer, self.radius, rows.abs(), self.shape)
        pulled = pull(
            self.layer, self.center, rows, self.shape
        ) - spread * self.chord_slope.unsqueeze(1)
        constant = (
            -dot(magnitude, self.error)
            - self.floor
            - dot(spread.flatten(2), self.chord_lift.flatten(1))
        )
        if self.bias_center is not None and self.bias_radius is not None:
            constant = constant + dot(flat, self.bias_center) - dot(magnitude, self.bias_radius)
        return (pulled,), tally.gained(constant)


@dataclass(frozen=True, eq=False)
class Prefix:
    """The first layers as steps, and the boxes of all nodes so far."""

    steps: list[Step]
    boxes: list[Box]

    def __getitem__(self, index: Tensor | slice) -> Prefix:
        """For some of the inputs."""
        steps = [step[index] for step in self.steps]
        return Prefix(steps, [box[index] for box in self.boxes])


def no_layers(region: Region) -> Prefix:
    return Prefix([], [region.box])


def prefix(network: Network, center: Tensor, spread: Tensor, region: Region) -> Prefix:
    """The layers before the first whose weights vary: the same for every box around the centre."""
    varying = (
        k
        for k, parts in enumerate(network.split(spread))
        if any(bool((part > 0).any()) for part in parts)
    )
    return _extend(network, Box(center, center), region, no_layers(region), next(varying, 0))


def row_bounds(
    network: Network,
    weights: Box,
    region: Region,
    rows: Tensor,
    offsets: Tensor,
    known: Prefix | None = None,
) -> Tensor:
    """Lower bounds [B, R] of rows·y + offsets for all weights of the box and all x of the region.

    weights: [size], shared by the batch, or [B, size], one box per input. `known`: what `prefix`
    gave for the region.
    """
    paired = weights.lower.dim() == 2
    parts = []
    start = known or no_layers(region)
    left = network.layers[len(start.steps) :]
    for part in input_slices(network, left, len(region), rows.shape[1], paired, rows.device):
        own = box_for(weights, part)
        traced = _extend(network, own, region[part], start[part], len(network.layers))
        found, tally = walk(network, traced.steps, traced.boxes, rows[part])
        backward = tally.value + region[part].minimum(found[0])
        backward = backward + offsets[part] - 4 * UNIT * offsets[part].abs()
        direct = interval_rows(traced.boxes[-1], rows[part], offsets[part])
        parts.append(torch.maximum(backward, direct))
    return torch.cat(parts)


def input_slices(
    network: Network,
    left: Sequence[Layer],
    count: int,
    rows: int,
    paired: bool,
    device: torch.device,
) -> Iterator[slice]:
    """The inputs in parts that fit.

    They go one by one where each has its own kernels in the layers that are left.
    """
    if paired and any(isinstance(layer, Conv2d) for layer in left):
        return (slice(i, i + 1) for i in range(count))
    return slices(count, bytes_each(network, rows, paired), device)


def box_for(weights: Box, part: slice) -> Box:
    """The weight boxes of a part of the batch.

    A single input's is treated as shared, which is faster.
    """
    if weights.lower.dim() == 1:
        return weights
    chosen = weights[part]
    return chosen[0] if len(chosen.lower) == 1 else chosen


def bytes_each(network: Network, rows: int, paired: bool) -> int:
    """Working memory of one input: both ends of the widest layer's rows, widest activation."""
    widest = max(math.prod(shape) for shape in network.shapes)
    hidden = max(
        (layer.outputs for layer in network.layers[1:-1] if isinstance(layer, Dense)), default=0
    )
    return 8 * (WORKING_TENSORS * widest * max(rows, 2 * hidden) + 4 * network.size * paired)


def _extend(network: Network, weights: Box, region: Region, known: Prefix, stop: int) -> Prefix:
    """The layers before `stop` as steps, with sound intervals of all nodes."""
    steps = list(known.steps)
    boxes = list(known.boxes)
    parameters = list(zip(network.split(weights.lower), network.split(weights.upper), strict=True))
    varying = [not all(map(torch.equal, *ends)) for ends in parameters]
    for k in range(len(steps), stop):
        layer = network.layers[k]
        inputs = [boxes[node] for node in network.reads[k]]
        exact = False
        if isinstance(layer, LINEAR):
            lower, upper = parameters[k]
            z, size = linear_image(layer, lower, upper, inputs[0], network.shape_before(k))
            steps.append(linear_step(layer, lower, upper, inputs[0], size))
            # On the region's own box interval arithmetic is exact; outputs are bounded row by row
            # instead.
            direct = region.is_box and network.reads[k][0] in network.inputs
            exact = isinstance(layer, AvgPool2d) or (
                direct and _is_exact(layer, lower, upper, inputs[0])
            )
        else:
            z = range_of(layer, inputs)
            steps.append(step_of(layer, inputs))
        if not exact and has_rows(network, k):
            chosen = worth_rows(network, k, z, varying)
            z = _refined(network, Prefix(steps, boxes), region, z, chosen)
        boxes.append(z)
    return Prefix(steps, boxes)


def _is_exact(layer: Linear, lower: tuple[Tensor, ...], upper: tuple[Tensor, ...], h: Box) -> bool:
    """Whether `linear_image` is the range: not for signed inputs of a random convolution."""
    return isinstance(layer, Dense) or bool((h.lower >= 0).all()) or torch.equal(lower[0], upper[0])


def linear_step(
    layer: Linear, lower: tuple[Tensor, ...], upper: tuple[Tensor, ...], h: Box, size: Tensor
) -> LinearStep | SignedLinearStep:
    """The layer as a step on inputs h [B, *shape]; `size` as `linear_image` gives it."""
    shape = tuple(h.shape[1:])
    error = 4 * gamma(2 * fan(layer) + size[0].numel() + 64) * size.flatten(1)
    # A product that underflows is off by less than TINY, and then meets |h|.
    floor = TINY * (1 + h.magnitude.flatten(1).sum(-1, keepdim=True))
    if isinstance(layer, AvgPool2d):
        return LinearStep(layer, shape, h.lower, None, None, None, error, floor)
    biases = [spread_bias(layer, end[1], shape) for end in (lower, upper)] if layer.bias else []
    biases = [bias.flatten(bias.dim() - len(size.shape) + 1) for bias in biases]
    fixed = torch.equal(lower[0], upper[0])
    if fixed or bool((h.lower >= 0).all()):
        low, high = biases or (None, None)
        return LinearStep(
            layer, shape, lower[0], None if fixed else upper[0], low, high, error, floor
        )
    middle, reach = _center_radius(*biases) if biases else (None, None)
    center, radius = _center_radius(lower[0], upper[0])
    slope, lift = _chord_of_magnitude(h)
    return SignedLinearStep(layer, shape, center, radius, middle, reach, slope, lift, error, floor)


def _refined(
    network: Network, traced: Prefix, region: Region, z: Box, chosen: Tensor | None
) -> Box:
    """z [B, *shape] of the last step, cut by the walks from ±e_i of the chosen neurons."""
    node = len(traced.steps)
    flat = z.reshape(len(region), -1)
    width = flat.lower.shape[1]
    ends = torch.full_like(flat.lower, -math.inf).repeat(1, 2)
    count = flat.lower.numel() if chosen is None else int(chosen.sum())
    for tile in tiles(network, node, count, flat.lower.device):
        part = cropped(network, traced.steps, traced.boxes, region, tile.crop)
        each = 8 * WORKING_TENSORS * len(region) * entries(network, tile, node)
        for index, rows in signed_rows(chosen, tile, width, each):
            found, tally = walk(network, part.steps, part.boxes, rows)
            bound = tally.value + part.region.minimum(found[0])
            places = index.expand(len(region), -1)
            ends = ends.scatter(1, places, bound.expand_as(places))
    if chosen is not None:  # rows are filled up with other neurons: not to depend on the batch
        ends = torch.where(chosen.repeat(1, 2), ends, -math.inf)
    below, above = ends.chunk(2, 1)
    return intersect(flat, Box(below, -above)).reshape(*z.shape)


def _center_radius(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """[lower, upper] within center ± radius."""
    center = (lower + upper) / 2
    radius = torch.maximum(center - lower, upper - center)
    return center, radius * (1 + 4 * UNIT)


def _chord_of_magnitude(h: Box) -> tuple[Tensor, Tensor]:
    """κ, δ with |h| <= κ h + δ on the box: |h| is convex, so it is enough at the ends."""
    width = h.upper - h.lower
    signed = (h.lower < 0) & (h.upper > 0)
    slope = torch.where(
        signed, (h.upper + h.lower) / width, torch.where(h.lower >= 0, 1.0, -1.0)
    ).clamp(-1, 1)
    lift = torch.maximum(h.lower.abs() - slope * h.lower, h.upper.abs() - slope * h.upper)
    return slope, torch.where(signed, lift * (1 + 8 * UNIT) + TINY, 0.0)
