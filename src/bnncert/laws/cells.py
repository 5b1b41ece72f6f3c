"""Cells of standard normal variables: their masses, and where in them the conditional means are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.numerics.tails import normal_tail

REACH = 6.5  # standard deviations that cells cover; what lies beyond is charged
FLAT = math.sqrt(3)  # quantiles of N(0, 3) make Σ mass·width² small for their number
OUTSIDE = math.erfc(REACH / math.sqrt(2)) / 2  # on either side


@dataclass(frozen=True, eq=False)
class Cells:
    """edges [..., K + 1]; each cell in equal parts: their mass [..., K, P], and the place
    [..., K, P] of their conditional mean, 0 at the cell's left end and 1 at its right one."""

    edges: Tensor
    mass: Tensor
    place: Tensor

    @property
    def corners(self) -> Tensor:
        """The masses of a cell's ends where each point of it is spread to them with its own mean,
        and what lies beyond all cells is moved to their ends, [..., K, 2]."""
        right = (self.mass * self.place).sum(-1)
        found = torch.stack([self.mass.sum(-1) - right, right], -1)
        found[..., 0, 0] += OUTSIDE
        found[..., -1, 1] += OUTSIDE
        return found


def base_edges(count: int) -> Tensor:
    """K + 1 edges from -REACH to REACH."""
    outside = math.erfc(REACH / FLAT / math.sqrt(2)) / 2
    levels = torch.linspace(outside, 1 - outside, count + 1, dtype=torch.float64)
    edges: Tensor = FLAT * torch.special.ndtri(levels)
    edges[0], edges[-1] = -REACH, REACH
    return edges


def with_edge(edges: Tensor, at: Tensor) -> Tensor:
    """The edges [K + 1], or [..., K + 1], with the nearest inner one moved to `at` [...], where
    that is inside."""
    moved = edges.expand(*at.shape, edges.shape[-1]).clone()
    inside = at.abs() < REACH
    nearest = (moved[..., 1:-1] - at.unsqueeze(-1)).abs().nan_to_num(math.inf).argmin(
        -1, keepdim=True
    ) + 1
    kept = moved.gather(-1, nearest)
    return moved.scatter(-1, nearest, torch.where(inside.unsqueeze(-1), at.unsqueeze(-1), kept))


def with_edges(edges: Tensor, at: Tensor) -> Tensor:
    """The edges [K + 1] and more [n, M], those that are outside at the ends, [n, K + M + 1]."""
    both = torch.cat([edges.expand(len(at), -1), at.clamp(-REACH, REACH)], -1)
    return both.sort(-1).values


def cells(edges: Tensor, parts: int) -> Cells:
    cuts = torch.arange(parts + 1, dtype=edges.dtype, device=edges.device) / parts
    left, width = edges[..., :-1, None], (edges[..., 1:] - edges[..., :-1]).unsqueeze(-1)
    fine = left + width * cuts
    a, b = fine[..., :-1], fine[..., 1:]
    # Both ends on the side where tails are small.
    flipped = a + b < 0
    near, far = torch.where(flipped, -b, a), torch.where(flipped, -a, b)
    mass = normal_tail(near) - normal_tail(far)
    mean = (_density(a) - _density(b)) / mass
    place = ((mean - left) / width).nan_to_num(0.0)
    return Cells(edges, mass, torch.minimum(torch.maximum(place, cuts[:-1]), cuts[1:]))


def _density(z: Tensor) -> Tensor:
    return (-z * z / 2).exp() / math.sqrt(2 * math.pi)
