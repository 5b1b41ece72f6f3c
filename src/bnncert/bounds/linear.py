"""LBP, backward: linear bounds of output rows, walked from the output to the input, weights in boxes.

To bound rows A z from below, each layer is replaced by a linear minorant and A is pulled through it. The output rows
are pulled from the start, so that y_c - y_j is bounded itself and not as two logits apart. Hidden intervals are those
of the same walk from each neuron, intersected with interval arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from bnncert.bounds.batching import slices
from bnncert.bounds.interval import interval_rows, linear_image, pooled
from bnncert.bounds.pooling import max_pool_step
from bnncert.bounds.relaxations import Relaxation, image, relax
from bnncert.box import Box, intersect
from bnncert.layers import (
    Activation,
    AvgPool2d,
    Conv2d,
    Dense,
    Flatten,
    Layer,
    LeakyReLU,
    Linear,
    MaxPool2d,
    ReLU,
    Shape,
)
from bnncert.network import Network
from bnncert.products import dot, fan, pull, spread_bias
from bnncert.rounding import TINY, UNIT, gamma
from bnncert.specification import Region

WORKING_TENSORS = 6  # of the rows' size, alive at once in a pull


class Shaped(Protocol):
    """Anything with the shape of a layer's input."""

    @property
    def shape(self) -> Shape: ...


class Step(Shaped, Protocol):
    """One layer as the backward walk sees it."""

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """rows·layer(h) >= new rows·h + constant for every h in the layer's input box; rows [B or 1, R, ...]."""
        ...

    def __getitem__(self, index: Tensor | slice) -> Step:
        """For some of the inputs."""
        ...


@dataclass(frozen=True, eq=False)
class LinearStep:
    """A (W h + b) >= (A⁺ Wl + A⁻ Wu) h + A⁺ bl + A⁻ bu, for W in [Wl, Wu] and h >= 0: the box costs no tightness.

    Also for a layer whose weights are fixed, whatever the sign of h: then Wl = Wu, and `upper` is None. `error`
    [B, outputs] is the rounding per unit of |A|: 4 gamma (|W||h| + |b|), since (|A||W|) |h| = |A| (|W||h|).
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

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        flat = rows.flatten(2)
        constant = -dot(flat.abs(), self.error) - self.floor
        if self.upper is None:
            pulled = pull(self.layer, self.lower, rows, self.shape)
        else:
            pulled = pull(self.layer, self.lower, rows.clamp_min(0), self.shape)
            pulled = pulled + pull(self.layer, self.upper, rows.clamp_max(0), self.shape)
        if self.bias_lower is not None and self.bias_upper is not None:
            constant = constant + dot(flat.clamp_min(0), self.bias_lower) + dot(flat.clamp_max(0), self.bias_upper)
        return pulled, constant


@dataclass(frozen=True, eq=False)
class SignedLinearStep:
    """A (W h + b) >= (A Wc - |A| Wr κ) h + A bc - |A| br - |A| Wr δ, for W in Wc ± Wr and |h| <= κ h + δ.

    The weight box costs |A| Wr |h|, and |h| is below its chord: κ = 1, δ = 0 where h >= 0, κ = -1 where h <= 0, and in
    between McCormick's envelope.
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
        slope, lift = self.chord_slope[index], self.chord_lift[index]
        return replace(self, chord_slope=slope, chord_lift=lift, error=self.error[index], floor=self.floor[index])

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        flat = rows.flatten(2)
        magnitude = flat.abs()
        spread = pull(self.layer, self.radius, rows.abs(), self.shape)
        pulled = pull(self.layer, self.center, rows, self.shape) - spread * self.chord_slope.unsqueeze(1)
        constant = -dot(magnitude, self.error) - self.floor - dot(spread.flatten(2), self.chord_lift.flatten(1))
        if self.bias_center is not None and self.bias_radius is not None:
            constant = constant + dot(flat, self.bias_center) - dot(magnitude, self.bias_radius)
        return pulled, constant


@dataclass(frozen=True, eq=False)
class ActivationStep:
    """A f(z) >= A⁺ (lower line) + A⁻ (upper line); lower slopes are one a neuron [B, n] or one a row too [B, R, n]."""

    relaxation: Relaxation
    z: Box  # [B, n], the interval that the lines are for
    size: Tensor  # [B, n] bound of |slope z| + |intercept|, for the rounding error
    shape: Shape  # of the activations; lines are over the flattened ones

    def __getitem__(self, index: Tensor | slice) -> ActivationStep:
        """For some of the inputs."""
        return ActivationStep(self.relaxation[index], self.z[index], self.size[index], self.shape)

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        lines = self.relaxation
        rows = rows.flatten(2)
        positive, negative = rows.clamp_min(0), rows.clamp_max(0)
        lower_slope = lines.lower_slope if lines.lower_slope.dim() == 3 else lines.lower_slope.unsqueeze(1)
        pulled = positive * lower_slope + negative * lines.upper_slope.unsqueeze(1)
        constant = dot(positive, lines.lower_intercept) + dot(negative, lines.upper_intercept)
        constant = constant - gamma(rows.shape[-1] + 64) * dot(rows.abs(), self.size) - TINY
        return pulled.reshape(*pulled.shape[:2], *self.shape), constant


@dataclass(frozen=True)
class FlattenStep:
    """Rows over a vector, seen again as rows over the shape it was flattened from."""

    shape: Shape

    def __getitem__(self, index: Tensor | slice) -> FlattenStep:
        return self

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return rows.reshape(*rows.shape[:2], *self.shape), rows.new_zeros(1, 1)


@dataclass(frozen=True, eq=False)
class Prefix:
    """The first layers as steps, with the box of what they give; `exact` if that box is all that is known of it."""

    steps: list[Step]
    h: Box
    exact: bool

    def __getitem__(self, index: Tensor | slice) -> Prefix:
        """For some of the inputs."""
        return Prefix([step[index] for step in self.steps], self.h[index], self.exact)


def no_layers(region: Region) -> Prefix:
    return Prefix([], region.box, region.is_box)


def prefix(network: Network, center: Tensor, spread: Tensor, region: Region) -> Prefix:
    """The layers before the first one whose weights vary: the same for every weight box around the centre."""
    varying = (i for i, parts in enumerate(network.split(spread)) if any(bool((part > 0).any()) for part in parts))
    return _extend(network, Box(center, center), region, no_layers(region), next(varying, 0))


def row_bounds(
    network: Network, weights: Box, region: Region, rows: Tensor, offsets: Tensor, known: Prefix | None = None
) -> Tensor:
    """Lower bounds [B, R] of rows·y + offsets for all weights of the box and all x of the region.

    weights: [size], shared by the batch, or [B, size], one box an input. `known`: what `prefix` gave for the region.
    """
    paired = weights.lower.dim() == 2
    parts = []
    start = known or no_layers(region)
    left = network.layers[len(start.steps) :]
    for part in input_slices(network, left, len(region), rows.shape[1], paired, rows.device):
        traced = _extend(network, box_for(weights, part), region[part], start[part], len(network.layers))
        backward = walk(traced.steps, region[part], rows[part]) + offsets[part] - 4 * UNIT * offsets[part].abs()
        parts.append(torch.maximum(backward, interval_rows(traced.h, rows[part], offsets[part])))
    return torch.cat(parts)


def input_slices(
    network: Network, left: Sequence[Layer], count: int, rows: int, paired: bool, device: torch.device
) -> Iterator[slice]:
    """The inputs in parts that fit; one by one where each has its own kernels in the layers that are left."""
    if paired and any(isinstance(layer, Conv2d) for layer in left):
        return (slice(i, i + 1) for i in range(count))
    return slices(count, bytes_each(network, rows, paired), device)


def box_for(weights: Box, part: slice) -> Box:
    """The weight boxes of a part of the batch; a single input's is treated as shared, which is faster."""
    if weights.lower.dim() == 1:
        return weights
    chosen = weights[part]
    return chosen[0] if len(chosen.lower) == 1 else chosen


def bytes_each(network: Network, rows: int, paired: bool) -> int:
    """Working memory of one input: the rows of the widest hidden layer, both ends, over the widest activation."""
    widest = max(math.prod(shape) for shape in network.shapes)
    hidden = max((layer.outputs for layer in network.layers[1:-1] if isinstance(layer, Dense)), default=0)
    return 8 * (WORKING_TENSORS * widest * max(rows, 2 * hidden) + 4 * network.size * paired)


def _extend(network: Network, weights: Box, region: Region, known: Prefix, stop: int) -> Prefix:
    """The layers before `stop` as steps, with sound hidden intervals, and the interval of what they give."""
    steps, h, exact = list(known.steps), known.h, known.exact
    parameters = list(zip(network.split(weights.lower), network.split(weights.upper), strict=True))
    for i in range(len(steps), stop):
        layer, (lower, upper), shape = network.layers[i], parameters[i], network.shapes[i]
        if isinstance(layer, Linear):
            z, size = linear_image(layer, lower, upper, h, shape)
            steps.append(linear_step(layer, lower, upper, h, size))
            # For the first layer over a box interval arithmetic is exact; outputs are bounded row by row instead.
            known_exactly = isinstance(layer, AvgPool2d) or (exact and _is_exact(layer, lower, upper, h))
            if not known_exactly and i + 1 < len(network.layers):
                z = _refined(steps, region, z, worth_rows(layer, z, network.layers[i + 1]))
            h, exact = z, False
        elif isinstance(layer, MaxPool2d):
            steps.append(max_pool_step(layer, h))
            h, exact = pooled(layer, h), False
        elif isinstance(layer, Flatten):
            steps.append(FlattenStep(shape))
            h = h.reshape(len(region), -1)
        else:
            steps.append(activation_step(layer, h))
            h, exact = image(layer, h), False
    return Prefix(steps, h, exact)


def _is_exact(layer: Linear, lower: tuple[Tensor, ...], upper: tuple[Tensor, ...], h: Box) -> bool:
    """Whether `linear_image` is the layer's range: not for signed inputs of a random convolution."""
    return isinstance(layer, Dense) or bool((h.lower >= 0).all()) or torch.equal(lower[0], upper[0])


def walk(steps: list[Step], region: Region, rows: Tensor) -> Tensor:
    """Lower bounds [B, R] of rows·(last step's output) over the region."""
    value = torch.zeros((), dtype=torch.float64, device=rows.device)
    for step in reversed(steps):
        rows, constant = step.pull(rows)
        value = value + constant
    return value + region.minimum(rows)


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
        return LinearStep(layer, shape, lower[0], None if fixed else upper[0], low, high, error, floor)
    middle, reach = _center_radius(*biases) if biases else (None, None)
    center, radius = _center_radius(lower[0], upper[0])
    slope, lift = _chord_of_magnitude(h)
    return SignedLinearStep(layer, shape, center, radius, middle, reach, slope, lift, error, floor)


def activation_step(activation: Activation, z: Box) -> ActivationStep:
    """The activation's lines on the interval z [B, *shape]; slopes of all activations here are at most 1."""
    flat = z.reshape(len(z.lower), -1)
    lines = relax(activation, flat)
    lift = torch.maximum(lines.lower_intercept.abs(), lines.upper_intercept.abs())
    return ActivationStep(lines, flat, flat.magnitude + lift, tuple(z.shape[1:]))


def _refined(steps: list[Step], region: Region, z: Box, chosen: Tensor | None) -> Box:
    """z [B, *shape] of the last step's outputs, intersected with the walks from e_i and -e_i of the chosen neurons."""
    shape, flat = tuple(z.shape[1:]), z.reshape(len(region), -1)
    width, ends = flat.shape[-1], [torch.full_like(flat.lower, -math.inf) for _ in range(2)]
    each = 8 * WORKING_TENSORS * len(region) * widest(steps, width)
    for side, sign in enumerate((1.0, -1.0)):
        for index, rows in signed_rows(chosen, width, len(region), sign, each, flat.lower.device):
            found = walk(steps, region, rows.reshape(*rows.shape[:2], *shape))
            places = index.expand(len(region), -1)
            ends[side] = ends[side].scatter(1, places, found.expand_as(places))
    return intersect(flat, Box(ends[0], -ends[1])).reshape(len(region), *shape)


def worth_rows(layer: Linear, z: Box, following: Layer) -> Tensor | None:
    """Which neurons [B, n] get rows of their own: all (None) of a dense layer, of others those whose sign is open."""
    if isinstance(layer, Dense):
        return None
    if isinstance(following, ReLU | LeakyReLU):
        return ((z.lower < 0) & (z.upper > 0)).flatten(1)
    return torch.ones_like(z.lower, dtype=torch.bool).flatten(1)


def signed_rows(
    chosen: Tensor | None, width: int, batch: int, sign: float, bytes_each: int, device: torch.device
) -> Iterator[tuple[Tensor, Tensor]]:
    """Indices [B or 1, R] and rows sign·e_i [B or 1, R, width] of the chosen neurons (None: all), in parts that fit."""
    if chosen is None:
        identity = sign * torch.eye(width, dtype=torch.float64, device=device).unsqueeze(0)
        indices = torch.arange(width, device=device).unsqueeze(0)
        yield from ((indices[:, part], identity[:, part]) for part in slices(width, bytes_each, device))
        return
    count = int(chosen.sum(1).max())
    order = chosen.to(torch.int8).topk(count, 1).indices  # the chosen ones first; where they are fewer, others too
    for part in slices(count, bytes_each, device):
        index = order[:, part]
        rows = torch.zeros(batch, index.shape[1], width, dtype=torch.float64, device=device)
        yield index, rows.scatter(2, index.unsqueeze(-1), sign)


def widest(steps: Sequence[Shaped], width: int) -> int:
    """The most entries that a row has on its way from `width` neurons back to the input."""
    return max(width, *(math.prod(step.shape) for step in steps))


def _center_radius(lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """[lower, upper] within center ± radius."""
    center = (lower + upper) / 2
    radius = torch.maximum(center - lower, upper - center)
    return center, radius * (1 + 4 * UNIT)


def _chord_of_magnitude(h: Box) -> tuple[Tensor, Tensor]:
    """κ, δ with |h| <= κ h + δ on the box: |h| is convex, so it is enough at the ends."""
    width = h.upper - h.lower
    signed = (h.lower < 0) & (h.upper > 0)
    slope = torch.where(signed, (h.upper + h.lower) / width, torch.where(h.lower >= 0, 1.0, -1.0)).clamp(-1, 1)
    lift = torch.maximum(h.lower.abs() - slope * h.lower, h.upper.abs() - slope * h.upper)
    return slope, torch.where(signed, lift * (1 + 8 * UNIT) + TINY, 0.0)
