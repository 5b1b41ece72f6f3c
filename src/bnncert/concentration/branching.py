"""Branching: which neuron's split promises most.

"point": what the relaxation loses at the averaged minimiser z, -A⁻ (chord(z) - f(z)) + A⁺ (f(z) -
αz), as FSB does at its own point (De Palma et al. 2021). "width": (-A⁻ + 0.3 A⁺) u(-l) / (u - l),
whatever the point, like BaBSR (Bunel et al. 2020); also where the point loses nothing. "both":
their geometric mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bnncert.bounds.steps import ActivationStep
from bnncert.model.layers import Layer

POSITIVE_SHARE = 0.3  # of a lower line's loss, in the rule by widths


def branch(
    columns: Tensor,
    layers: Sequence[Layer],
    lines: Mapping[int, ActivationStep],
    coefficients: Mapping[int, Tensor],
    slopes: Mapping[int, Tensor],
    values: Mapping[int, Tensor],
    rule: str,
) -> tuple[Tensor, Tensor]:
    """The column [D] to split, -1 where no neuron is open, and the row's coefficient there if
    positive.

    columns [D, U]: the open neurons, numbered through all layers with lines. coefficients: on every
    node; slopes and values: of the lower lines, and of the mean network at the minimiser, by layer.
    """
    count = len(columns)
    if columns.shape[1] == 0:
        return columns.new_full((count,), -1), columns.new_zeros(count, dtype=torch.float64)

    lost = []
    wide = []
    weights = []
    for k, step in lines.items():
        rows = coefficients[k + 1].flatten(2)[:, 0]
        positive = rows.clamp_min(0)
        negative = -rows.clamp_max(0)
        l, u = step.z.lower, step.z.upper
        z = torch.minimum(torch.maximum(values[k], l), u)
        f = layers[k](z.reshape(-1, *step.shape)).flatten(1)  # type: ignore[operator]
        above = step.relaxation.upper_slope * z + step.relaxation.upper_intercept - f
        below = f - slopes[k] * z
        unsettled = (l < 0) & (u > 0)
        lost.append(torch.where(unsettled, negative * above + positive * below, -1.0))
        gap = u * -l / (u - l).clamp_min(1e-300)
        wide.append(torch.where(unsettled, (negative + POSITIVE_SHARE * positive) * gap, -1.0))
        weights.append(positive)

    # Columns of neurons that are not there point to the last entry, which promises nothing.
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
    return torch.where(most >= 0, place, -1), weight.clamp_min(0)
