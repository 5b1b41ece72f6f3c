"""IBP, interval bound propagation (Gowal et al. 2018), weights and activations both in boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bnncert.bounds.relaxations import image
from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.box import Box
from bnncert.model.layers import (
    LINEAR,
    SUMS,
    AvgPool2d,
    Dense,
    Layer,
    Linear,
    MaxPool2d,
    Shape,
    Sum,
    rule_for,
)
from bnncert.model.maps import apply, fan, spread_bias, through
from bnncert.model.moves import MOVES, Move
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.batching import slices
from bnncert.numerics.rounding import TINY, gamma


def row_bounds(
    network: Network, weights: Box, region: Region, rows: Tensor, offsets: Tensor
) -> Tensor:
    """Lower bounds of rows·y + offsets [B, R] from the outputs' intervals: C⁺ yl + C⁻ yu + d."""
    boxes = [region.box]
    parameters = zip(network.split(weights.lower), network.split(weights.upper), strict=True)
    for k, (lower, upper) in enumerate(parameters):
        layer = network.layers[k]
        inputs = [boxes[node] for node in network.reads[k]]
        if isinstance(layer, LINEAR):
            boxes.append(linear_image(layer, lower, upper, inputs[0], network.shape_before(k))[0])
        else:
            boxes.append(range_of(layer, inputs))
    return interval_rows(boxes[-1], rows, offsets)


def interval_rows(outputs: Box, rows: Tensor, offsets: Tensor) -> Tensor:
    """C⁺ yl + C⁻ yu + d, rounded down, for outputs in a box [B, m]."""
    below = rows.clamp_min(0) @ outputs.lower.unsqueeze(-1)
    above = rows.clamp_max(0) @ outputs.upper.unsqueeze(-1)
    value = (below + above).squeeze(-1)
    size = (rows.abs() @ outputs.magnitude.unsqueeze(-1)).squeeze(-1) + offsets.abs()
    return value + offsets - gamma(2 * rows.shape[-1] + 8) * size - TINY


def range_of(layer: Layer, inputs: Sequence[Box]) -> Box:
    """The range of a layer without weights over the boxes it reads [B, *shape]."""
    return rule_for(RANGES, layer)(layer, inputs)


def _pooled(layer: MaxPool2d, inputs: Sequence[Box]) -> Box:
    """The maximum is monotone in every entry: exact."""
    (h,) = inputs
    ends = (apply(layer, (), [end], tuple(h.shape[1:])) for end in (h.lower, h.upper))
    return Box(*ends)


def _moved(layer: Move, inputs: Sequence[Box]) -> Box:
    """Every entry is one of those before, or 0: exact."""
    shape = tuple(inputs[0].shape[1:])
    lower = apply(layer, (), [h.lower for h in inputs], shape)
    return Box(lower, apply(layer, (), [h.upper for h in inputs], shape))


def _summed(layer: Sum, inputs: Sequence[Box]) -> Box:
    shape = tuple(inputs[0].shape[1:])
    lower = apply(layer, (), [h.lower for h in inputs], shape)
    upper = apply(layer, (), [h.upper for h in inputs], shape)
    size = apply(layer, (), [h.magnitude for h in inputs], shape)
    slack = gamma(2 * len(inputs) + 8) * size + TINY
    return Box(lower - slack, upper + slack)


def _image(layer: Activation, inputs: Sequence[Box]) -> Box:
    (z,) = inputs
    return image(layer, z)


RANGES: dict[type, Callable[[Any, Sequence[Box]], Box]] = {
    MaxPool2d: _pooled,
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(SUMS, _summed),
    **dict.fromkeys(ACTIVATIONS, _image),
}


def linear_image(
    layer: Linear, lower: tuple[Tensor, ...], upper: tuple[Tensor, ...], h: Box, shape: Shape
) -> tuple[Box, Tensor]:
    """{W h + b} over weight boxes (of a dense layer also one per input) and activations h [B,
    *shape], rounded outward.

    Also a bound [B, *outputs] of |W| |h| + |b| over the boxes, the scale of every rounding error in
    the layer.
    """
    if isinstance(layer, AvgPool2d):
        low, high, size = through(layer, h.lower, torch.stack([h.lower, h.upper, h.magnitude]))
    elif bool((h.lower >= 0).all()):
        low, high, size = _nonnegative(layer, lower[0], upper[0], h)
    elif isinstance(layer, Dense):
        low, high, size = _signed(lower[0], upper[0], h)
    else:
        low, high, size = _signed_by_radius(layer, lower[0], upper[0], h)
    if len(lower) > 1:
        below, above = (spread_bias(layer, end[1], shape) for end in (lower, upper))
        low = low + below
        high = high + above
        size = size + torch.maximum(-below, above)
    error = gamma(2 * fan(layer) + 16) * size + TINY
    return Box(low - error, high + error), size


def _nonnegative(
    layer: Linear, lower: Tensor, upper: Tensor, h: Box
) -> tuple[Tensor, Tensor, Tensor]:
    """For h >= 0 the weights stand at one end, and h = c ± r where the weights' signs choose."""
    c = h.lower / 2 + h.upper / 2
    r = h.upper / 2 - h.lower / 2
    # [B, 2, *shape]: both products in one pass over the weights.
    ends = torch.stack([r, h.upper], 1)
    at_lower = through(layer, lower.abs(), ends)
    at_upper = through(layer, upper.abs(), ends)
    middle = c.unsqueeze(1)
    low = through(layer, lower, middle)[:, 0] - at_lower[:, 0]
    high = through(layer, upper, middle)[:, 0] + at_upper[:, 0]
    return low, high, at_lower[:, 1] + at_upper[:, 1]


def _signed(lower: Tensor, upper: Tensor, h: Box) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of the extreme of the four corner products, where an activation may be negative."""
    lows = []
    highs = []
    for part in slices(len(h.lower), 6 * 8 * lower.shape[-1] * h.shape[-1], h.lower.device):
        wl, wu = (w if w.dim() == 2 else w[part] for w in (lower, upper))
        hl = h.lower[part].unsqueeze(-1)
        hu = h.upper[part].unsqueeze(-1)
        corners = torch.stack([wl * hl, wl * hu, wu * hl, wu * hu])
        lows.append(corners.amin(0).sum(-2))
        highs.append(corners.amax(0).sum(-2))
    size = (h.magnitude.unsqueeze(1) @ torch.maximum(-lower, upper)).squeeze(1)
    return torch.cat(lows), torch.cat(highs), size


def _signed_by_radius(
    layer: Linear, lower: Tensor, upper: Tensor, h: Box
) -> tuple[Tensor, Tensor, Tensor]:
    """Wc hc ± (|Wc| hr + Wr max|h|): exact where the weights are not random."""
    center = (lower + upper) / 2
    radius = (upper - lower) / 2
    # One image per input: each has weights of its own.
    c = (h.lower / 2 + h.upper / 2).unsqueeze(1)
    r = (h.upper / 2 - h.lower / 2).unsqueeze(1)
    size = h.magnitude.unsqueeze(1)
    middle = through(layer, center, c)[:, 0]
    reach = (through(layer, center.abs(), r) + through(layer, radius, size))[:, 0]
    most = 2 * through(layer, torch.maximum(lower.abs(), upper.abs()), size)[:, 0]
    return middle - reach, middle + reach, most
