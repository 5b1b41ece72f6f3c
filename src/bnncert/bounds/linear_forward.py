"""LBP-forward, as published with the paper (Batten et al. 2024); kept to reproduce its numbers.

Every neuron carries a lower and an upper function that is linear in the input and in all weights so
far, and the output logits are compared apart.

Dense layer with input functions between h and lower ends g <= h, weights in [wl, wu]:

    Σ_i W_ij h_i >= Σ_i wl_ij h_i + Σ_i g_i W_ij - Σ_i g_i wl_ij    (upper function: wu and <=)

with each h_i replaced by its lower or upper function by the sign of its coefficient. The functions
are never written out: a row P·lower functions + N·upper functions (P >= 0 >= N) is evaluated by
walking it back to the input. Its coefficient on W_ij is (P + N)_j g_i, so the minimum over the
weight box is closed-form in every layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.bounds.interval import interval_rows
from bnncert.bounds.linear import box_for, bytes_each
from bnncert.bounds.relaxations import Relaxation, relax
from bnncert.errors import InputError
from bnncert.model.activations import ACTIVATIONS
from bnncert.model.box import Box
from bnncert.model.layers import Dense, Flatten
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.batching import slices
from bnncert.numerics.products import dot
from bnncert.numerics.rounding import TINY, gamma


@dataclass(frozen=True, eq=False)
class Functions:
    """One dense layer's functions, and the activation's lines below it (none at the input)."""

    lower: Tensor  # wl [in, out] or [B, in, out]
    upper: Tensor
    minimum: Tensor  # [B, out] min over the box of Σ_i g_i W_ij
    maximum: Tensor
    lower_constant: Tensor  # [B, out] bl - Σ_i g_i wl_ij
    upper_constant: Tensor
    size: Tensor  # [B, out] magnitude of all terms, for the rounding error
    floor: Tensor  # [B, 1] underflow, which meets |h|
    lines: Relaxation | None


def row_bounds(
    network: Network, weights: Box, region: Region, rows: Tensor, offsets: Tensor
) -> Tensor:
    """C⁺ ζl + C⁻ ζu + d from the logits' own bounds [ζl, ζu].

    For class rows that is ζl(c) - ζu(j).
    """
    if not region.is_box:
        raise InputError(
            f"bound lbp-forward is published for boxes only, not for {region.norm}; use --bound lbp"
        )
    paired = weights.lower.dim() == 2
    each = 2 * bytes_each(network, rows.shape[-1], paired)
    parts = []
    for part in slices(len(region), each, rows.device):
        logits = _logits(network, box_for(weights, part), region[part])
        parts.append(interval_rows(logits, rows[part], offsets[part]))
    return torch.cat(parts)


def _logits(network: Network, weights: Box, region: Region) -> Box:
    functions: list[Functions] = []
    lines: Relaxation | None = None
    z = region.box.reshape(len(region), -1)
    floor = z.lower
    magnitude = z.magnitude
    parameters = zip(network.split(weights.lower), network.split(weights.upper), strict=True)
    for layer, (lower, upper) in zip(network.layers, parameters, strict=True):
        if isinstance(layer, Flatten):
            continue
        if isinstance(layer, Dense):
            functions.append(_functions(lower, upper, floor, magnitude, lines))
            z = _evaluate_neurons(functions, region, layer.outputs)
            lines = None
            floor = z.lower
            magnitude = z.magnitude
        elif isinstance(layer, ACTIVATIONS):
            if lines is not None:
                raise InputError(
                    "bound lbp-forward needs a Dense layer between activations; use --bound lbp"
                )
            lines = relax(layer, z)
            ends, ceiling = _over(lines, z)
            lift = lines.upper_intercept.abs() + lines.lower_intercept.abs()
            steepest = max(1.0, layer.traits.steepest)
            slack = gamma(8) * (steepest * z.magnitude + lift) + TINY
            floor = ends - slack
            magnitude = torch.maximum(ends.abs(), ceiling.abs()) + slack
        else:
            raise InputError(
                "bound lbp-forward is published for dense layers, "
                f"not {type(layer).__name__}; use lbp"
            )
    if lines is None:
        return z
    return Box(floor, ceiling + slack)


def _over(lines: Relaxation, z: Box) -> tuple[Tensor, Tensor]:
    """The least of the lower and the largest of the upper line over the interval: slopes may be
    negative."""
    low = torch.where(lines.lower_slope < 0, z.upper, z.lower)
    high = torch.where(lines.upper_slope < 0, z.lower, z.upper)
    least = lines.lower_slope * low + lines.lower_intercept
    return least, lines.upper_slope * high + lines.upper_intercept


def _functions(
    lower: tuple[Tensor, ...],
    upper: tuple[Tensor, ...],
    floor: Tensor,
    magnitude: Tensor,
    lines: Relaxation | None,
) -> Functions:
    wl, wu = lower[0], upper[0]
    positive, negative = floor.clamp_min(0), floor.clamp_max(0)
    at_lower, at_upper = _through(floor, wl), _through(floor, wu)
    minimum = _through(positive, wl) + _through(negative, wu)
    maximum = _through(positive, wu) + _through(negative, wl)

    # |g| may exceed |h|: it is a line's lower end, not the activation's.
    size = 3 * _through(torch.maximum(magnitude, floor.abs()), torch.maximum(wl.abs(), wu.abs()))
    low, high = -at_lower, -at_upper
    if len(lower) > 1:
        low, high = low + lower[1], high + upper[1]
        size = size + torch.maximum(lower[1].abs(), upper[1].abs())
    floor_error = TINY * (1 + 3 * torch.maximum(magnitude, floor.abs()).sum(-1, keepdim=True))
    return Functions(wl, wu, minimum, maximum, low, high, size, floor_error, lines)


def _evaluate_neurons(functions: list[Functions], region: Region, width: int) -> Box:
    """[ζl, ζu] of the last layer: the extremes of its functions over all boxes."""
    identity = torch.eye(width, dtype=torch.float64, device=region.center.device).unsqueeze(0)
    lower = _evaluate(functions, region, identity, torch.zeros_like(identity))
    upper = -_evaluate(functions, region, torch.zeros_like(identity), -identity)
    return Box(lower, upper)


def _evaluate(
    functions: list[Functions], region: Region, positive: Tensor, negative: Tensor
) -> Tensor:
    """min over all boxes of positive·(lower functions) + negative·(upper functions)."""
    value = torch.zeros((), dtype=torch.float64, device=positive.device)
    for layer in reversed(functions):
        # The coefficient on W_ij is total_j g_i: its sign chooses the end of the weight box.
        total = positive + negative
        size = positive - negative
        value = (
            value + dot(total.clamp_min(0), layer.minimum) + dot(total.clamp_max(0), layer.maximum)
        )
        value = value + dot(positive, layer.lower_constant) + dot(negative, layer.upper_constant)
        value = (
            value
            - 4 * gamma(2 * sum(layer.lower.shape[-2:]) + 64) * dot(size, layer.size)
            - layer.floor
        )

        wl, wu = layer.lower.mT, layer.upper.mT
        on_lower = positive @ wl.clamp_min(0) + negative @ wu.clamp_max(0)
        on_upper = positive @ wl.clamp_max(0) + negative @ wu.clamp_min(0)
        if layer.lines is not None:
            lines = layer.lines
            value = (
                value + dot(on_lower, lines.lower_intercept) + dot(on_upper, lines.upper_intercept)
            )
            # A line that falls takes the other function of what is before it.
            on_lower = on_lower * lines.lower_slope.unsqueeze(1)
            on_upper = on_upper * lines.upper_slope.unsqueeze(1)
            on_lower, on_upper = (
                on_lower.clamp_min(0) + on_upper.clamp_min(0),
                on_lower.clamp_max(0) + on_upper.clamp_max(0),
            )
        positive, negative = on_lower, on_upper
    return value + region.minimum(positive + negative)


def _through(h: Tensor, weights: Tensor) -> Tensor:
    """h [B, in] through shared [in, out] or paired [B, in, out] weights, [B, out]."""
    return h @ weights if weights.dim() == 2 else (h.unsqueeze(1) @ weights).squeeze(1)
