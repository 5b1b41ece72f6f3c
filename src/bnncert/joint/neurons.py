"""A neuron's activation under its Gaussian: nodes of a quadrature, and cells between bounds of f.

Both cover |g| <= REACH in equal steps, and are cut where f(m + τ g) has a kink.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

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
NEAR_POLE = 1.5  # of tanh: an imaginary part below π/2
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

    @property
    def magnitude(self) -> Tensor:
        """max |f|, [n, K]"""
        return torch.maximum(self.largest, -self.least)

    def expected(self, value: Tensor) -> Tensor:
        """E of what is `value` [..., n, K] on the cells, [..., n]."""
        return (self.mass * value).sum(-1)


@dataclass(frozen=True, eq=False)
class Nodes:
    """Of a quadrature: values of f and weights [n, P]; and what those of all neurons may be off
    by."""

    value: Tensor
    weight: Tensor
    off: float


def cells(own: Setting) -> Cells:
    edges = _edges(own, CELLS)
    at = _activated(own, edges)
    ends = torch.stack([at[:, :-1], at[:, 1:]])
    return Cells(_mass(edges), ends.amin(0), ends.amax(0))


def moments(known: Cells) -> tuple[Tensor, Tensor]:
    """Mean and variance of f, about, [n]; a variance that is small is no difference of squares."""
    middle = (known.least + known.largest) / 2
    mean = known.expected(middle) / known.mass.sum(-1)
    return mean, known.expected((middle - mean.unsqueeze(-1)) ** 2)


def gaussian(own: Setting, known: Cells, rows: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Means and covariances of so many rows, [d] and [d, d]."""
    v, (mean, variance) = own.v[list(rows)], moments(known)
    variances, shifts = own.covariances(rows)
    covariance = (v * variance) @ v.mT + variances @ (variance + mean**2) + shifts
    return v @ mean + own.beta[list(rows)], covariance


def nodes(own: Setting, linear: Tensor, squared: Tensor, most: float) -> Nodes | None:
    """The fewest by which E exp(i s·v̄ f - sᵀCs f²/2) is off by at most so much, of all neurons
    together, where |s·v̄| <= linear and sᵀCs <= squared [n]; none if these are too many.

    A piece of f between its kinks is cut into equal panels; what is constant is one node.
    """
    ends = _edges(own, 1)
    at = _activated(own, ends)
    # f is monotone on a piece: the same at both ends, it is constant.
    constant = (at[:, 1:] == at[:, :-1]).all(0)
    flat, bent = constant.nonzero().squeeze(-1), (~constant).nonzero().squeeze(-1)
    left, wide = ends[:, :-1][:, bent], ends.diff(dim=-1)[:, bent]
    slope = (at.diff(dim=-1)[:, bent] / wide).abs().nan_to_num(0.0)
    off = _missed(own, wide, slope, (linear[:, None], squared[:, None]))
    enough = off <= most
    if not bool(enough.any()):
        return None
    chosen = int(enough.int().argmax())
    panels = PANELS[chosen]
    steps = (torch.arange(panels, dtype=ends.dtype, device=ends.device) + 0.5) / panels
    place, share = (part.to(ends) for part in _rule())
    within = (steps.unsqueeze(-1) + place / (2 * panels)).flatten()
    g = left.unsqueeze(-1) + wide.unsqueeze(-1) * within
    weight = wide.unsqueeze(-1) * share.repeat(panels) / (2 * panels) * _density(g)
    middle = _activated(own, (ends[:, :-1] + ends[:, 1:]) / 2)
    return Nodes(
        torch.cat([middle[:, flat], _activated(own, g.flatten(1))], -1),
        torch.cat([_mass(ends)[:, flat], weight.flatten(1)], -1),
        float(off[chosen]),
    )


@cache
def _rule() -> tuple[Tensor, Tensor]:
    """Gauss and Legendre's nodes in [-1, 1] and weights."""
    place, share = np.polynomial.legendre.leggauss(NODES)
    return torch.from_numpy(place), torch.from_numpy(share)


def _missed(own: Setting, wide: Tensor, slope: Tensor, most: tuple[Tensor, Tensor]) -> Tensor:
    """What all quadratures may be off by, at every number of panels, of pieces [n, Q].

    On the ellipse of ρ, of half-height y = w (ρ - 1/ρ)/2, |Im f| is at most some r and Re f² at
    least -r², so that an integrand is at most M = exp(y²/2 + a r + b r²/2)/√2π, and what a panel of
    half-width w is off by at most 8 w M ρ^(1-2N)/(ρ - 1).
    """
    a, b = most
    panels, rho = (
        torch.tensor(values, dtype=wide.dtype, device=wide.device) for values in (PANELS, RADII)
    )
    rho = rho[:, None, None]
    half = wide / (2 * panels[:, None, None, None])
    y = half * (rho - 1 / rho) / 2
    reach = slope * y
    if own.activation.traits.pieces is None:
        # |Im tanh(x + iy)| <= tan y, for |y| < π/2.
        height, rate = (0.5, 0.5) if isinstance(own.activation, Sigmoid) else (1.0, 1.0)
        turned = rate * own.std[:, None] * y
        reach = (height * turned.tan()).where(turned <= NEAR_POLE, torch.inf)
    exponent = a * reach + b * reach**2 / 2
    largest = (y**2 / 2 + exponent).exp() / math.sqrt(2 * math.pi)
    each = 8 * half * largest * rho ** (1 - 2 * NODES) / (rho - 1)
    found: Tensor = (each.nan_to_num(torch.inf).amin(1) * panels[:, None, None]).sum((1, 2))
    return found


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
