"""LBP, backward: linear bounds of output rows, walked from the output to the input, weights in boxes.

To bound rows A z from below, each layer is replaced by a linear minorant and A is pulled through it. The output rows
are pulled from the start, so that y_c - y_j is bounded itself and not as two logits apart. Hidden intervals are those
of the same walk from each neuron, intersected with interval arithmetic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from bnncert.bounds.batching import slices
from bnncert.bounds.interval import dense_image, interval_rows
from bnncert.bounds.relaxations import Relaxation, image, relax
from bnncert.box import Box, intersect
from bnncert.network import Activation, Dense, Flatten, Network, Shape
from bnncert.products import dot
from bnncert.rounding import TINY, UNIT, gamma
from bnncert.specification import Region

WORKING_TENSORS = 6  # of the rows' size, alive at once in a pull


class Step(Protocol):
    """One layer as the backward walk sees it."""

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """rows·layer(h) >= new rows·h + constant for every h in the layer's input box; rows [B or 1, R, ...]."""
        ...


@dataclass(frozen=True, eq=False)
class DenseStep:
    """A (W h + b) >= (A⁺ Wl + A⁻ Wu) h + A⁺ bl + A⁻ bu, for W in [Wl, Wu] and h >= 0: the box costs no tightness.

    `error` [B, out] is the rounding per unit of |A|: 4 gamma (|W||h| + |b|), since (|A||W|) |h| = |A| (|W||h|).
    """

    lower: Tensor  # [in, out] or [B, in, out]
    upper: Tensor
    bias_lower: Tensor | None
    bias_upper: Tensor | None
    error: Tensor
    floor: Tensor  # [B, 1], underflow

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        constant = -dot(rows.abs(), self.error) - self.floor
        if self.lower.data_ptr() == self.upper.data_ptr():  # deterministic: one product instead of two
            pulled = rows @ self.lower.mT
        else:
            pulled = rows.clamp_min(0) @ self.lower.mT + rows.clamp_max(0) @ self.upper.mT
        if self.bias_lower is not None and self.bias_upper is not None:
            constant = constant + dot(rows.clamp_min(0), self.bias_lower) + dot(rows.clamp_max(0), self.bias_upper)
        return pulled, constant


@dataclass(frozen=True, eq=False)
class SignedDenseStep:
    """A (W h + b) >= (A Wc - |A| Wr κ) h + A bc - |A| br - |A| Wr δ, for W in Wc ± Wr and |h| <= κ h + δ.

    The weight box costs |A| Wr |h|, and |h| is below its chord: κ = 1, δ = 0 where h >= 0, κ = -1 where h <= 0, and in
    between McCormick's envelope.
    """

    center: Tensor  # [in, out] or [B, in, out]
    radius: Tensor
    bias_center: Tensor | None
    bias_radius: Tensor | None
    chord_slope: Tensor  # κ [B, in]
    chord_lift: Tensor  # δ [B, in]
    error: Tensor
    floor: Tensor

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        magnitude = rows.abs()
        spread = magnitude @ self.radius.mT
        pulled = rows @ self.center.mT - spread * self.chord_slope.unsqueeze(1)
        constant = -dot(magnitude, self.error) - self.floor - dot(spread, self.chord_lift)
        if self.bias_center is not None and self.bias_radius is not None:
            constant = constant + dot(rows, self.bias_center) - dot(magnitude, self.bias_radius)
        return pulled, constant


@dataclass(frozen=True, eq=False)
class ActivationStep:
    """A f(z) >= A⁺ (lower line) + A⁻ (upper line); lower slopes are one a neuron [B, n] or one a row too [B, R, n]."""

    relaxation: Relaxation
    size: Tensor  # [B, n] bound of |slope z| + |intercept|, for the rounding error
    shape: Shape  # of the activations; lines are over the flattened ones

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

    def pull(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        return rows.reshape(*rows.shape[:2], *self.shape), rows.new_zeros(1, 1)


def row_bounds(network: Network, weights: Box, region: Region, rows: Tensor, offsets: Tensor) -> Tensor:
    """Lower bounds [B, R] of rows·y + offsets for all weights of the box and all x of the region.

    weights: [size], shared by the batch, or [B, size], one box an input.
    """
    paired = weights.lower.dim() == 2
    each = bytes_each(network, rows.shape[1], paired)
    parts = []
    for part in slices(len(region), each, rows.device):
        box = box_for(weights, part)
        steps, outputs = trace(network, box, region[part])
        backward = walk(steps, region[part], rows[part]) + offsets[part] - 4 * UNIT * offsets[part].abs()
        parts.append(torch.maximum(backward, interval_rows(outputs, rows[part], offsets[part])))
    return torch.cat(parts)


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


def trace(network: Network, weights: Box, region: Region) -> tuple[list[Step], Box]:
    """Every layer as a step, with sound hidden intervals, and the interval of the outputs."""
    steps: list[Step] = []
    h, linear = region.box, region.is_box
    parameters = zip(network.split(weights.lower), network.split(weights.upper), strict=True)
    for i, (layer, (lower, upper)) in enumerate(zip(network.layers, parameters, strict=True)):
        if isinstance(layer, Dense):
            z, size = dense_image(lower, upper, h)
            steps.append(dense_step(lower, upper, h, size))
            # For the first layer over a box interval arithmetic is exact; outputs are bounded row by row instead.
            if not linear and i + 1 < len(network.layers):
                z = intersect(z, _neurons(steps, region, layer.outputs))
            h, linear = z, False
        elif isinstance(layer, Flatten):
            steps.append(FlattenStep(network.shapes[i]))
            h = h.reshape(len(region), -1)
        else:
            steps.append(activation_step(layer, h))
            h, linear = image(layer, h), False
    return steps, h


def walk(steps: list[Step], region: Region, rows: Tensor) -> Tensor:
    """Lower bounds [B, R] of rows·(last step's output) over the region."""
    value = torch.zeros((), dtype=torch.float64, device=rows.device)
    for step in reversed(steps):
        rows, constant = step.pull(rows)
        value = value + constant
    return value + region.minimum(rows)


def dense_step(lower: tuple[Tensor, ...], upper: tuple[Tensor, ...], h: Box, size: Tensor) -> Step:
    error = 4 * gamma(sum(lower[0].shape[-2:]) + 64) * size
    # A product that underflows is off by less than TINY, and then meets |h|.
    floor = TINY * (1 + h.magnitude.sum(-1, keepdim=True))
    if bool((h.lower >= 0).all()):
        low, high = (lower[1], upper[1]) if len(lower) > 1 else (None, None)
        return DenseStep(lower[0], upper[0], low, high, error, floor)
    middle, reach = _center_radius(lower[1], upper[1]) if len(lower) > 1 else (None, None)
    center, radius = _center_radius(lower[0], upper[0])
    slope, lift = _chord_of_magnitude(h)
    return SignedDenseStep(center, radius, middle, reach, slope, lift, error, floor)


def activation_step(activation: Activation, z: Box) -> ActivationStep:
    """The activation's lines on the interval z [B, *shape]; slopes of all activations here are at most 1."""
    flat = z.reshape(len(z.lower), -1)
    lines = relax(activation, flat)
    lift = torch.maximum(lines.lower_intercept.abs(), lines.upper_intercept.abs())
    return ActivationStep(lines, flat.magnitude + lift, tuple(z.shape[1:]))


def _neurons(steps: list[Step], region: Region, width: int) -> Box:
    """The interval of each of `width` neurons after the last step: the walk from e_i and from -e_i."""
    identity = torch.eye(width, dtype=torch.float64, device=region.center.device)
    signed = torch.cat([identity, -identity]).unsqueeze(0)
    each = 8 * WORKING_TENSORS * len(region) * max(width, region.center[0].numel())
    bounds = [walk(steps, region, signed[:, part]) for part in slices(2 * width, each, signed.device)]
    both = torch.cat(bounds, 1)
    return Box(both[:, :width], -both[:, width:])


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
