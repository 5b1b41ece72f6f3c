"""Zonotopes through certain layers (DeepZ, Singh et al. 2018): affine arithmetic with a symbol for
every coordinate of the input and for every neuron whose sign is open.

Over a box c ± r every node is written as

    h(x)  =  center + Σ_p g_p δ_p  ±  error,      |δ_p| <= 1,

for all of its entries at once, with x_p = c_p + r_p δ_p for the first symbols. Linear layers map
the centre and the directions g_p. An activation on a known interval is a line and what it is off
by, which becomes a direction of its own; where there are too many, they are added to the error, and
errors go through |W| as intervals do. That is less tight than rows through all layers, for the
price of one forward pass a direction, whatever the number of neurons; so rows are left to those
that stay open. Rounding is charged to the error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bnncert.bounds.pooling import max_pool_step
from bnncert.bounds.relaxations import relax
from bnncert.model.activations import ACTIVATIONS, Activation
from bnncert.model.box import Box
from bnncert.model.layers import LINEAR, WIRING, Layer, Linear, MaxPool2d, Wiring, rule_for
from bnncert.model.maps import apply, fan, through
from bnncert.model.network import Network
from bnncert.model.specification import Region
from bnncert.numerics.rounding import TINY, UNIT, gamma

SPARE = 64  # roundings beside those of a sum
MOST_OPEN = 512  # neurons of a layer that get a symbol of their own
MOST_HELD = 2**26  # numbers of all nodes' directions, of one input: more is not checked


@dataclass(frozen=True, eq=False)
class Zonotope:
    """center [B, *shape], directions [B, D, *shape] and error [B, *shape] of a node.

    Symbols are numbered as they come up: those that a node has no direction for are later ones.
    """

    center: Tensor
    directions: Tensor
    error: Tensor

    @cached_property
    def reach(self) -> Tensor:
        """Σ_p |g_p| from above."""
        total = _sum_of_sizes(self.directions)
        return total * (1 + 2 * gamma(self.directions.shape[1] + SPARE)) + TINY

    @property
    def box(self) -> Box:
        radius = (self.reach + self.error) * (1 + 4 * UNIT) + 2 * UNIT * self.center.abs()
        return Box(self.center - radius, self.center + radius)


@dataclass(frozen=True, eq=False)
class Reading:
    """What a layer reads: zonotopes, the box of the first of them if it has one, and how many
    symbols there are so far."""

    zonotopes: Sequence[Zonotope]
    box: Box | None
    symbols: int


def numbers_held(network: Network, layers: int) -> int:
    """The most that the directions of all nodes that wait take, through the first layers."""
    symbols = math.prod(network.input_shape)
    held = {0: symbols**2}
    most = symbols**2
    for k in range(layers):
        width = math.prod(network.shapes[k + 1])
        if isinstance(network.layers[k], ACTIVATIONS):
            symbols += min(width, MOST_OPEN)
        held[k + 1] = symbols * width
        most = max(most, sum(held.values()))
        for node in {*network.reads[k]}:
            if network.readers[node][-1] == k:
                del held[node]
    return most


def input_zonotope(region: Region) -> Zonotope:
    """The region's box: one direction a coordinate."""
    center = (region.box.lower + region.box.upper) / 2
    radius = (region.box.upper - region.box.lower) / 2
    flat = radius.flatten(1)
    directions = torch.diag_embed(flat).reshape(*flat.shape, *radius.shape[1:])
    error = 4 * UNIT * region.box.magnitude + TINY
    return Zonotope(center, directions, error)


def image_zonotope(layer: Layer, parameters: Sequence[Tensor], reading: Reading) -> Zonotope:
    """What a layer without noise makes of what it reads."""
    return rule_for(IMAGES, layer)(layer, parameters, reading)


def _sum_of_sizes(directions: Tensor) -> Tensor:
    """Σ_p |g_p| [B, *shape], as a product with ones in the order that the entries lie in: many
    times faster than a sum over a dimension that is not the last."""
    last = directions.dim() > 3 and directions.movedim(2, -1).is_contiguous()
    lying = directions.movedim(2, -1) if last else directions
    ones = directions.new_ones(1, directions.shape[1])
    total = (ones @ lying.abs().flatten(2)).reshape(len(lying), *lying.shape[2:])
    return total.movedim(-1, 1) if last else total


def _linear(layer: Linear, parameters: Sequence[Tensor], reading: Reading) -> Zonotope:
    (h,) = reading.zonotopes
    weights = parameters[0] if parameters else h.center
    center = apply(layer, parameters, [h.center], tuple(h.center.shape[1:]))
    lead = h.directions.shape[:2]
    moved = through(layer, weights, h.directions.flatten(0, 1))
    # What meets |W|: the error before, and the rounding of directions and of the centre.
    relative = 4 * gamma(2 * fan(layer) + SPARE)
    rounded = relative * (h.reach + h.center.abs())
    error = through(layer, weights.abs(), h.error + rounded)
    error = error * (1 + relative) + 4 * UNIT * center.abs() + TINY
    return Zonotope(center, moved.reshape(*lead, *moved.shape[1:]), error)


def _wired(layer: Wiring, _: Sequence[Tensor], reading: Reading) -> Zonotope:
    """Moves are exact, sums are rounded."""
    inputs = reading.zonotopes
    shape = tuple(inputs[0].center.shape[1:])

    def joined(parts: Sequence[Tensor]) -> Tensor:
        return apply(layer, (), parts, shape)

    most = max(h.directions.shape[1] for h in inputs)
    center = joined([h.center for h in inputs])
    directions = joined([_padded(h.directions, most) for h in inputs])
    relative = 4 * gamma(len(inputs) + SPARE)
    rounded = joined([relative * (h.center.abs() + h.reach) for h in inputs])
    error = joined([h.error for h in inputs]) * (1 + relative) + rounded + TINY
    return Zonotope(center, directions, error)


def _activated(layer: Activation, _: Sequence[Tensor], reading: Reading) -> Zonotope:
    """f(z) in slope z + [low, high] on the interval z."""
    (h,) = reading.zonotopes
    z = _known(reading.box)
    slope, low, high = one_slope(layer, z)
    center = slope * h.center + (low + high) / 2
    error = slope.abs() * (h.error + 4 * UNIT * (h.reach + h.center.abs()))
    error = error * (1 + 8 * UNIT) + 4 * UNIT * (center.abs() + low.abs() + high.abs()) + TINY
    directions = _padded(h.directions * slope.unsqueeze(1), reading.symbols)
    own, left = _own_directions((high - low) / 2)
    return Zonotope(center, torch.cat([directions, own], 1), error + left)


def one_slope(layer: Activation, z: Box) -> tuple[Tensor, Tensor, Tensor]:
    """The upper line's slope [B, *shape], and the least and the largest of f(z) - slope z over the
    interval, rounded outward."""
    lines = relax(layer, z)
    slope = lines.upper_slope
    if layer.traits.bent:  # least at its kink, and 0 there
        return slope, torch.zeros_like(slope), lines.upper_intercept
    # By the lower line, whose distance is least at an end.
    change = lines.lower_slope - slope
    ends = torch.minimum(change * z.lower, change * z.upper)
    slack = 8 * UNIT * (change.abs() + slope.abs()) * z.magnitude + TINY
    return slope, ends + lines.lower_intercept - slack, lines.upper_intercept


def _own_directions(off: Tensor) -> tuple[Tensor, Tensor]:
    """What neurons are off by [B, *shape] as directions [B, d, *shape], and the rest of it: those
    that are off by most get one. Of those that are by the same, but for rounding, the first ones:
    the checker takes them too."""
    flat = off.flatten(1)
    count = min(int((flat > 0).sum(1).max()), MOST_OPEN)
    index = flat.float().argsort(dim=1, descending=True, stable=True)[:, :count]
    size = flat.gather(1, index)
    none = flat.new_zeros(*index.shape, flat.shape[1])
    directions = none.scatter(2, index.unsqueeze(-1), size.unsqueeze(-1))
    left = flat.scatter(1, index, 0.0)
    return directions.reshape(*index.shape, *off.shape[1:]), left.reshape(off.shape)


def _padded(directions: Tensor, symbols: int) -> Tensor:
    """With directions of 0 for later symbols."""
    missing = symbols - directions.shape[1]
    if missing == 0:
        return directions
    zeros = directions.new_zeros(len(directions), missing, *directions.shape[2:])
    return torch.cat([directions, zeros], 1)


def _pooled(layer: MaxPool2d, _: Sequence[Tensor], reading: Reading) -> Zonotope:
    """The entry that no other can exceed, else the interval."""
    (h,) = reading.zonotopes
    z = _known(reading.box)
    step = max_pool_step(layer, z)
    shape = (len(z.lower), z.shape[1], *step.places)
    alone = step.alone.reshape(shape)
    ends = [apply(layer, (), [end], tuple(z.shape[1:])) for end in (z.lower, z.upper)]
    middle = (ends[0] + ends[1]) / 2
    radius = (ends[1] - ends[0]) / 2 + 2 * UNIT * torch.maximum(ends[0].abs(), ends[1].abs())
    center, error = (
        part.flatten(1).gather(1, step.chosen).reshape(shape) for part in (h.center, h.error)
    )
    index = step.chosen.unsqueeze(1).expand(-1, h.directions.shape[1], -1)
    directions = h.directions.flatten(2).gather(2, index) * step.alone.unsqueeze(1)
    return Zonotope(
        torch.where(alone, center, middle),
        directions.reshape(*directions.shape[:2], *shape[1:]),
        torch.where(alone, error, radius),
    )


def _known(box: Box | None) -> Box:
    if box is None:
        raise TypeError("activations and maxima need a box")
    return box


IMAGES: dict[type, Callable[[Any, Sequence[Tensor], Reading], Zonotope]] = {
    MaxPool2d: _pooled,
    **dict.fromkeys(LINEAR, _linear),
    **dict.fromkeys(WIRING, _wired),
    **dict.fromkeys(ACTIVATIONS, _activated),
}
