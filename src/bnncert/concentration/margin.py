"""Margins that training can raise: what a certificate proves from intervals alone, differentiable.

For a region c ± r every hidden sum is bounded as `functional.one_layer` bounds it, from the box of
what it reads and without rows through several layers,

    ±z >= ±(μ·c + b) - Σ_j r_j E|W_j| - t sqrt(Σ_j σ_j² max|h_j|² + σ_b²)   but for Q(t),

and the rows of a specification as a functional (m, L) of the last layer. These are bounds in their
own right. A certificate at the same threshold follows rows through all layers instead: nearly
always better, and seldom worse, mostly behind max pooling or an activation of the outputs. So what
training raises is what is certified.
Nothing is rounded outward: the arithmetic is that of the weights, float32 or float64, on any
device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from scipy import special
from torch import Tensor

from bnncert.bounds.neurons import has_rows
from bnncert.concentration.functional import Functional
from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.layers import (
    LINEAR,
    SUMS,
    AvgPool2d,
    Dense,
    Linear,
    MaxPool2d,
    Sum,
    rule_for,
)
from bnncert.model.maps import apply, pull, split_rows, through
from bnncert.model.moves import MOVES, Move
from bnncert.model.network import Network
from bnncert.numerics.tails import expected_magnitude

CHARGE = 0.03  # of all hidden intervals together, which `threshold` aims at
SMALLEST_VARIANCE = 1e-20  # sqrt has no gradient at 0
SMALLEST_STD = 1e-12  # stands for a standard deviation of 0 where it divides

# Each layer's means, and its standard deviations, None where nothing is random.
Weights: TypeAlias = Sequence[tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]]


@dataclass(frozen=True, eq=False)
class Ends:
    """low <= z + noise and z + noise <= high [B, *shape], the noise of each neuron Gaussian-like
    with `squared` its squared Lipschitz constant; None where there is none."""

    low: Tensor
    high: Tensor
    squared: Tensor | None = None

    @property
    def magnitude(self) -> Tensor:
        return torch.maximum(self.low.abs(), self.high.abs())

    def at(self, t: float) -> Ends:
        """The interval that holds but for Q(t) on each side."""
        if self.squared is None:
            return self
        reach = t * self.squared.clamp_min(SMALLEST_VARIANCE).sqrt()
        return Ends(self.low - reach, self.high + reach)


def margins(
    network: Network, weights: Weights, lower: Tensor, upper: Tensor, rows: Tensor, t: float
) -> Functional:
    """The functionals (m, L) [B, R] of rows·y over the boxes [lower, upper] [B, *input_shape],
    hidden intervals at threshold t; rows [B or 1, R, outputs].

    All rows are positive on all of the box with probability at least 1 - Σ Q(m / L) - the hidden
    intervals' charge, where every m is positive.
    """
    ends = [Ends(lower, upper)]
    last = len(network.layers) - 1
    for k in range(last + 1):
        if k == last and isinstance(network.layers[k], (Dense, *SUMS)):
            break  # rows go on from here
        ends.append(_ends(network, weights, ends, k, t))
    return _rows(network, weights, ends, last + 1, rows)


def threshold(network: Network, random: Sequence[bool]) -> float:
    """The t at which both sides of all N noisy hidden sums fail with probability CHARGE together:
    2 N Q(t) = CHARGE.

    random: for each layer whether its weights are. A layer without noise of its own has a noisy
    input in known intervals, and counts for nothing here; rows of a certificate see through them.
    """
    noisy = [False]
    count = 0
    for k, layer in enumerate(network.layers):
        summed = isinstance(layer, SUMS) and any(
            noisy[node] and not has_rows(network, node - 1) for node in network.reads[k] if node
        )
        noisy.append(random[k] or summed)
        if noisy[-1] and has_rows(network, k):
            count += math.prod(network.shapes[k + 1])
    return 0.0 if count == 0 else float(-special.ndtri(CHARGE / (2 * count)))


def _ends(network: Network, weights: Weights, ends: Sequence[Ends], k: int, t: float) -> Ends:
    """What layer k gives: an interval where something needs one."""
    layer = network.layers[k]
    inputs = [ends[node] for node in network.reads[k]]
    if isinstance(layer, LINEAR):
        found = _linear(layer, *weights[k], inputs[0], network.shape_before(k))
    else:
        found = rule_for(RANGES, layer)(layer, inputs)
    return found.at(t) if has_rows(network, k) else found


def _linear(
    layer: Linear,
    means: tuple[Tensor, ...],
    stds: tuple[Tensor, ...] | None,
    h: Ends,
    shape: tuple[int, ...],
) -> Ends:
    """μ·c + b ± Σ_j r_j E|W_j| with L² = Σ_j σ_j² max|h_j|² + σ_b²."""
    center = (h.low + h.high) / 2
    radius = (h.high - h.low) / 2
    if isinstance(layer, AvgPool2d):
        middle, reach = through(layer, center, torch.stack([center, radius]))
        return Ends(middle - reach, middle + reach)
    middle = apply(layer, means, [center], shape)
    if stds is None:
        reach = through(layer, means[0].abs(), radius)
        return Ends(middle - reach, middle + reach)
    magnitude = expected_magnitude(means[0], stds[0].clamp_min(SMALLEST_STD))
    reach = through(layer, magnitude, radius)
    squared = apply(layer, [std.square() for std in stds], [h.magnitude.square()], shape)
    return Ends(middle - reach, middle + reach, squared)


def _rows(
    network: Network, weights: Weights, ends: Sequence[Ends], node: int, rows: Tensor
) -> Functional:
    """The functional of rows·(what a node holds): by its interval, or as the layer that gives it.

    A sum is as its terms; noises of different layers are independent.
    """
    k = node - 1
    layer = network.layers[k] if k >= 0 else None
    if isinstance(layer, SUMS) and not has_rows(network, k):
        nodes = network.reads[k]
        parts = split_rows(layer, rows, [network.shapes[read] for read in nodes])
        terms = [
            _rows(network, weights, ends, read, part)
            for read, part in zip(nodes, parts, strict=True)
        ]
        squared = sum(term.lipschitz.square() for term in terms)
        value = sum(term.value for term in terms)
        if isinstance(squared, Tensor) and isinstance(value, Tensor):
            return Functional(value, squared.clamp_min(SMALLEST_VARIANCE).sqrt())
    if isinstance(layer, Dense) and not has_rows(network, k):
        return _dense_rows(layer, *weights[k], ends[network.reads[k][0]], rows)
    held = ends[node]
    value = _dot(rows.clamp_min(0), held.low) + _dot(rows.clamp_max(0), held.high)
    return Functional(value, torch.zeros_like(value))


def _dense_rows(
    layer: Dense,
    means: tuple[Tensor, ...],
    stds: tuple[Tensor, ...] | None,
    h: Ends,
    rows: Tensor,
) -> Functional:
    """D·c + d - Σ_j r_j E|D_j + g_j| with D = rows·μ and L² = Σ_j s_j² max|h_j|² + s_b²."""
    center = (h.low + h.high) / 2
    radius = (h.high - h.low) / 2
    shape = (layer.inputs,)
    pulled = pull(layer, means[0], rows, shape)
    value = _dot(pulled, center)
    if layer.bias:
        value = value + rows @ means[1]
    if stds is None:
        value = value - _dot(pulled.abs(), radius)
        return Functional(value, torch.zeros_like(value))
    variances = [std.square() for std in stds]
    spread = pull(layer, variances[0], rows.square(), shape)
    std = spread.clamp_min(SMALLEST_STD**2).sqrt()
    value = value - _dot(expected_magnitude(pulled, std), radius)
    squared = _dot(spread, h.magnitude.square())
    if layer.bias:
        squared = squared + rows.square() @ variances[1]
    return Functional(value, squared.clamp_min(SMALLEST_VARIANCE).sqrt())


def _dot(rows: Tensor, h: Tensor) -> Tensor:
    """rows [B, R, *shape] · h [B, *shape]: [B, R]"""
    return (rows.flatten(2) @ h.flatten(1).unsqueeze(-1)).squeeze(-1)


def _rising(layer: Activation | MaxPool2d, inputs: Sequence[Ends]) -> Ends:
    (h,) = inputs
    shape = tuple(h.low.shape[1:])
    low, high = (apply(layer, (), [end], shape) for end in (h.low, h.high))
    return Ends(low, high)


def _activated(layer: Activation, inputs: Sequence[Ends]) -> Ends:
    """From the ends, and from where f is least if it falls before."""
    ends = _rising(layer, inputs)
    if layer.traits.valley is None:
        return ends
    (h,) = inputs
    place, least = layer.traits.valley
    low = torch.minimum(ends.low, ends.high)
    inside = (h.low <= place) & (place <= h.high)
    return Ends(torch.where(inside, least, low), torch.maximum(ends.low, ends.high))


def _moved(layer: Move, inputs: Sequence[Ends]) -> Ends:
    shape = tuple(inputs[0].low.shape[1:])
    low = apply(layer, (), [h.low for h in inputs], shape)
    return Ends(low, apply(layer, (), [h.high for h in inputs], shape))


def _summed(layer: Sum, inputs: Sequence[Ends]) -> Ends:
    shape = tuple(inputs[0].low.shape[1:])
    low = apply(layer, (), [h.low for h in inputs], shape)
    high = apply(layer, (), [h.high for h in inputs], shape)
    if all(h.squared is None for h in inputs):
        return Ends(low, high)
    none = torch.zeros_like(low)
    noises = [none if h.squared is None else h.squared for h in inputs]
    return Ends(low, high, apply(layer, (), noises, shape))


RANGES: dict[type, Callable[[Any, Sequence[Ends]], Ends]] = {
    MaxPool2d: _rising,
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(SUMS, _summed),
    **dict.fromkeys(ACTIVATIONS, _activated),
}
