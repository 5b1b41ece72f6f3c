"""A neuron's activation under its Gaussian: nodes of a quadrature, and cells between bounds of f.

Both cover |g| <= REACH in equal steps, and are cut where f(m + τ g) has a kink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from bnncert.joint.setting import Setting
from bnncert.laws.cells import REACH
from bnncert.model.activations import Sigmoid
from bnncert.numerics.tails import normal_tail

CELLS = 128
NODES = 16  # of Gauss and Legendre's rule on a panel
PANELS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of a piece of f
RADII = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # ρ of ellipses, of which the best counts


@dataclass(frozen=True, eq=False)
class Cells:
    """Of g: masses, and the least and the largest value of f, [n, K]."""

    mass: Tensor
    least: Tensor
    largest: Tensor

    @property
    def squared(self) -> Tensor:
        """min f², [n, K]"""
        apart = torch.maximum(self.least, -self.largest).clamp_min(0)
        return apart**2

    def expected(self, value: Tensor) -> Tensor:
        """E of what is `value` [..., n, K] on the cells, [..., n]."""
        return (self.mass * value).sum(-1)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Values of f and weights [n, P]; of panels half-widths and |slopes| of f in g, [n, Q]."""

    value: Tensor
    weight: Tensor
    width: Tensor
    slope: Tensor


def cells(own: Setting) -> Cells:
    edges = _edges(own, CELLS)
    at = _activated(own, edges)
    ends = torch.stack([at[:, :-1], at[:, 1:]])
    return Cells(_mass(edges), ends.amin(0), ends.amax(0))


def nodes(own: Setting, panels: int) -> Nodes:
    """Panels are equal parts of the pieces between kinks; what is constant is one node."""
    ends = _edges(own, 1)
    steps = torch.linspace(0, 1, panels + 1, dtype=ends.dtype, device=ends.device)
    left, wide = ends[:, :-1, None], ends.diff(dim=-1).unsqueeze(-1)
    edges = left + wide * steps
    width, center = edges.diff(dim=-1) / 2, (edges[..., 1:] + edges[..., :-1]) / 2
    at, weight = (torch.from_numpy(x).to(edges) for x in np.polynomial.legendre.leggauss(NODES))
    g = (center.unsqueeze(-1) + width.unsqueeze(-1) * at).flatten(2)
    weight = (width.unsqueeze(-1) * weight).flatten(2) * _density(g)
    values = _activated(own, g.flatten(1)).view_as(g)
    slope = (_activated(own, edges.flatten(1)).view_as(edges).diff(dim=-1) / (2 * width)).abs()
    # f is monotone on a piece: the same at both ends, it is constant.
    constant = (_activated(own, ends).diff(dim=-1) == 0).all(0)
    flat, curved = constant.nonzero().squeeze(-1), (~constant).nonzero().squeeze(-1)
    middle = _activated(own, (ends[:, :-1] + ends[:, 1:]) / 2)
    return Nodes(
        torch.cat([middle[:, flat], values[:, curved].flatten(1)], -1),
        torch.cat([_mass(ends)[:, flat], weight[:, curved].flatten(1)], -1),
        width[:, curved].flatten(1),
        slope[:, curved].flatten(1).nan_to_num(0.0),
    )


def moments(known: Cells) -> tuple[Tensor, Tensor]:
    """Mean and variance of f, about, [n]"""
    middle = (known.least + known.largest) / 2
    first, second = ((known.mass * middle**k).sum(-1) for k in (1, 2))
    return first, (second - first**2).clamp_min(0)


def enough_nodes(
    own: Setting, linear: Tensor, squared: Tensor, most: float
) -> tuple[Nodes, float] | None:
    """The fewest that miss at most so much, and what they miss."""
    for panels in PANELS:
        found = nodes(own, panels)
        off = missed(own, found, linear, squared)
        if off <= most:
            return found, off
    return None


def missed(own: Setting, found: Nodes, linear: Tensor, squared: Tensor) -> float:
    """What all neurons' quadratures may be off by, where |s·v̄| <= linear and sᵀCs <= squared [n].

    On the ellipse of ρ, of half-height y = w (ρ - 1/ρ)/2, an integrand is at most M, and so what a
    panel is off by is at most 8 w M ρ^(1-2N)/(ρ - 1).
    """
    a, b = linear.unsqueeze(-1), squared.unsqueeze(-1)
    each = []
    for rho in RADII:
        y = found.width * (rho - 1 / rho) / 2
        if own.activation.traits.pieces is not None:
            reach = found.slope * y
            exponent = a * reach + b * reach**2 / 2
        else:
            inside = own.std.unsqueeze(-1) * y <= _strip(own)
            exponent = torch.where(inside, a + b / 2, torch.inf)
        largest = (y**2 / 2 + exponent).exp() / math.sqrt(2 * math.pi)
        each.append(8 * found.width * largest * rho ** (1 - 2 * NODES) / (rho - 1))
    return float(torch.stack(each).amin(0).nan_to_num(torch.inf).sum())


def _strip(own: Setting) -> float:
    """Where |Im z| is no more, |f| <= 1 and f is analytic."""
    return math.pi / (2 if isinstance(own.activation, Sigmoid) else 4)


def _edges(own: Setting, count: int) -> Tensor:
    """[n, count + 1] and one more for every kink."""
    even = torch.linspace(-REACH, REACH, count + 1, dtype=own.mean.dtype, device=own.mean.device)
    kinks = own.mean.new_tensor(own.activation.traits.kinks)
    at = ((kinks - own.mean.unsqueeze(-1)) / own.std.unsqueeze(-1)).nan_to_num(0.0)
    both = torch.cat([even.expand(len(own.mean), -1), at.clamp(-REACH, REACH)], -1)
    return both.sort(-1).values


def _mass(edges: Tensor) -> Tensor:
    """Of a standard normal between them."""
    a, b = edges[..., :-1], edges[..., 1:]
    flipped = a + b < 0
    mass = normal_tail(torch.where(flipped, -b, a)) - normal_tail(torch.where(flipped, -a, b))
    return mass.clamp_min(0)


def _density(g: Tensor) -> Tensor:
    return (-g * g / 2).exp() / math.sqrt(2 * math.pi)


def _activated(own: Setting, g: Tensor) -> Tensor:
    """f(m + τ g) [n, P], with a slope for every neuron where there are several."""
    value: Tensor = own.activation((own.mean.unsqueeze(-1) + own.std.unsqueeze(-1) * g).mT).mT
    return value
