"""Branching: which split promises most.

"point": what the relaxation loses at the averaged minimiser z, -A⁻ (chord(z) - f(z)) + A⁺ (f(z) -
αz), as FSB does at its own point (De Palma et al. 2021). "width": (-A⁻ + 0.3 A⁺) u(-l) / (u - l),
whatever the point, like BaBSR (Bunel et al. 2020); also where the point loses nothing. "both":
their geometric mean. At a kink c with pieces [l, c] and [c, u] on its sides it is (u - c) (c - l) /
(u - l), and A⁺ and -A⁻ change places where the slope falls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bnncert.bounds.steps import ActivationStep
from bnncert.model.activations import ACTIVATIONS
from bnncert.model.layers import Layer

TURNING_SHARE = 0.3  # of the loss of the line that turns, in the rule by widths


def branch(
    columns: Tensor,
    layers: Sequence[Layer],
    lines: Mapping[int, ActivationStep],
    coefficients: Mapping[int, Tensor],
    values: Mapping[int, Tensor],
    rule: str,
) -> tuple[Tensor, Tensor]:
    """The column [D] to split, -1 where none is open, and the row's coefficient there if its line
    is the one that turns.

    columns [D, U]: the open places, numbered through all layers with lines. coefficients: on every
    node; values: of the mean network at the minimiser, by layer.
    """
    count = len(columns)
    if columns.shape[1] == 0:
        return columns.new_full((count,), -1), columns.new_zeros(count, dtype=torch.float64)

    lost = []
    wide = []
    weights = []
    for k, step in lines.items():
        layer = layers[k]
        if not isinstance(layer, ACTIVATIONS):
            raise TypeError(f"layer {type(layer).__name__} has no kinks")
        rows = coefficients[k + 1].flatten(2)[:, 0]
        positive = rows.clamp_min(0)
        negative = -rows.clamp_max(0)
        relaxed = step.relaxation
        z = torch.minimum(torch.maximum(values[k], step.z.lower), step.z.upper)
        f = layer(z.reshape(-1, *step.shape)).flatten(1)
        above = relaxed.upper_slope * z + relaxed.upper_intercept - f
        below = f - (relaxed.lower_slope * z + relaxed.lower_intercept)
        loss = negative * above + positive * below
        kinks = layer.traits.splits
        ends = (-torch.inf, *kinks, torch.inf)
        for j, kink in enumerate(kinks):
            l = step.z.lower.clamp_min(ends[j])
            u = step.z.upper.clamp_max(ends[j + 2])
            turning, other = (negative, positive) if j else (positive, negative)
            unsettled = (l < kink) & (u > kink)
            lost.append(torch.where(unsettled, loss, -1.0))
            gap = (u - kink) * (kink - l) / (u - l).clamp_min(1e-300)
            wide.append(torch.where(unsettled, (other + TURNING_SHARE * turning) * gap, -1.0))
            weights.append(-turning if j else turning)

    # Columns of places that are not there point to the last entry, which promises nothing.
    none = torch.full_like(lost[0][:, :1], -1.0)
    by_point, by_width, heavy = (
        torch.cat([*parts, none], 1).gather(1, columns) for parts in (lost, wide, weights)
    )

    by_both = (by_point.clamp_min(0) * by_width.clamp_min(0)).sqrt()
    chosen = {"both": by_both, "point": by_point, "width": by_width}[rule]
    promising = torch.where(by_width < 0, -1.0, chosen)
    chosen = torch.where(chosen.amax(1, keepdim=True) > 0, promising, by_width)

    most, place = chosen.max(1)
    weight = heavy.gather(1, place.unsqueeze(1)).squeeze(1)
    found = most >= 0
    return torch.where(found, place, -1), torch.where(found, weight, 0.0)
