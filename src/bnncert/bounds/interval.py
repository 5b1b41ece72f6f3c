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
            h = dense_image(lower, upper, h, dense_size(lower, upper, h))
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


def dense_image(lower: tuple[Tensor, ...], upper: tuple[Tensor, ...], h: Box, size: Tensor) -> Box:
    """{h W + b} over weight boxes [in, out] or [B, in, out] and activations h [B, in]: exact, then rounded outward."""
    if bool((h.lower >= 0).all()):
        # h >= 0: the weights stand at one end, h W⁺ and h W⁻ at the ends of h = c ± r
        c, r = h.lower / 2 + h.upper / 2, h.upper / 2 - h.lower / 2
        low = through(c, lower[0]) - through(r, lower[0].abs())
        high = through(c, upper[0]) + through(r, upper[0].abs())
    else:
        low, high = _signed_products(lower[0], upper[0], h)
    if len(lower) > 1:
        low, high = low + lower[1], high + upper[1]
    error = gamma(2 * h.shape[-1] + 16) * size + TINY
    return Box(low - error, high + error)


def dense_size(lower: tuple[Tensor, ...], upper: tuple[Tensor, ...], h: Box) -> Tensor:
    """|h| |W| + |b| over the boxes [B, out]: the scale of every rounding error in the layer."""
    size = through(h.magnitude, torch.maximum(-lower[0], upper[0]))
    if len(lower) > 1:
        size = size + torch.maximum(-lower[1], upper[1])
    return size


def _signed_products(lower: Tensor, upper: Tensor, h: Box) -> tuple[Tensor, Tensor]:
    """Sums over the inputs of the extreme of the four corner products, where an activation may be negative."""
    lows, highs = [], []
    for part in slices(len(h.lower), 6 * 8 * lower.shape[-1] * h.shape[-1], h.lower.device):
        wl, wu = (w if w.dim() == 2 else w[part] for w in (lower, upper))
        hl, hu = h.lower[part].unsqueeze(-1), h.upper[part].unsqueeze(-1)
        corners = torch.stack([wl * hl, wl * hu, wu * hl, wu * hu])
        lows.append(corners.amin(0).sum(-2))
        highs.append(corners.amax(0).sum(-2))
    return torch.cat(lows), torch.cat(highs)
