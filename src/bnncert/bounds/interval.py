"""IBP: interval arithmetic through the network, weights and activations both in boxes."""

from __future__ import annotations

import torch
from torch import Tensor

from bnncert.bounds.batching import slices
from bnncert.bounds.relaxations import image
from bnncert.box import Box
from bnncert.network import Dense, Flatten, Network
from bnncert.products import through
from bnncert.rounding import TINY, gamma
from bnncert.specification import Region


def row_bounds(network: Network, weights: Box, region: Region, rows: Tensor, offsets: Tensor) -> Tensor:
    """Lower bounds of rows·y + offsets [B, R] from the outputs' intervals: C⁺ yl + C⁻ yu + d."""
    h = region.box
    lowers, uppers = network.split(weights.lower), network.split(weights.upper)
    for layer, lower, upper in zip(network.layers, lowers, uppers, strict=True):
        if isinstance(layer, Dense):
            h, _ = dense_image(lower, upper, h)
        elif isinstance(layer, Flatten):
            h = h.reshape(len(h.lower), -1)
        else:
            h = image(layer, h)
    return interval_rows(h, rows, offsets)


def interval_rows(outputs: Box, rows: Tensor, offsets: Tensor) -> Tensor:
    """C⁺ yl + C⁻ yu + d, rounded down, for outputs in a box [B, m]."""
    value = (rows.clamp_min(0) @ outputs.lower.unsqueeze(-1) + rows.clamp_max(0) @ outputs.upper.unsqueeze(-1)).squeeze(
        -1
    )
    size = (rows.abs() @ outputs.magnitude.unsqueeze(-1)).squeeze(-1) + offsets.abs()
    return value + offsets - gamma(2 * rows.shape[-1] + 8) * size - TINY


def dense_image(lower: tuple[Tensor, ...], upper: tuple[Tensor, ...], h: Box) -> tuple[Box, Tensor]:
    """{h W + b} over weight boxes [in, out] or [B, in, out] and activations h [B, in]: exact, then rounded outward.

    Also a bound [B, out] of |h| |W| + |b| over the boxes, the scale of every rounding error in the layer.
    """
    products = _nonnegative_products if bool((h.lower >= 0).all()) else _signed_products
    low, high, size = products(lower[0], upper[0], h)
    if len(lower) > 1:
        low, high, size = low + lower[1], high + upper[1], size + torch.maximum(-lower[1], upper[1])
    error = gamma(2 * h.shape[-1] + 16) * size + TINY
    return Box(low - error, high + error), size


def _nonnegative_products(lower: Tensor, upper: Tensor, h: Box) -> tuple[Tensor, Tensor, Tensor]:
    """For h >= 0 the weights stand at one end, and h = c ± r at the ends that the weights' signs choose."""
    c, r = h.lower / 2 + h.upper / 2, h.upper / 2 - h.lower / 2
    ends = torch.stack([r, h.upper], 1)  # [B, 2, in]: both products in one pass over the weights
    at_lower, at_upper = ends @ lower.abs(), ends @ upper.abs()
    low, high = through(c, lower) - at_lower[:, 0], through(c, upper) + at_upper[:, 0]
    return low, high, at_lower[:, 1] + at_upper[:, 1]


def _signed_products(lower: Tensor, upper: Tensor, h: Box) -> tuple[Tensor, Tensor, Tensor]:
    """Sums over the inputs of the extreme of the four corner products, where an activation may be negative."""
    lows, highs = [], []
    for part in slices(len(h.lower), 6 * 8 * lower.shape[-1] * h.shape[-1], h.lower.device):
        wl, wu = (w if w.dim() == 2 else w[part] for w in (lower, upper))
        hl, hu = h.lower[part].unsqueeze(-1), h.upper[part].unsqueeze(-1)
        corners = torch.stack([wl * hl, wl * hu, wu * hl, wu * hu])
        lows.append(corners.amin(0).sum(-2))
        highs.append(corners.amax(0).sum(-2))
    return torch.cat(lows), torch.cat(highs), through(h.magnitude, torch.maximum(-lower, upper))
