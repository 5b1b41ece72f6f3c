"""The neurons of one hidden layer at a point, z = m + τ g: f(z) between two ends on cells of g, and
at the nodes of a quadrature of g.

The pieces of f between its kinks, clipped to |g| <= T, are cut into equal panels of N nodes each; a
piece on which f is constant is one node. With f' of another m' and τ', and the same g,

    |E e^{i f' a - f'² b/2} - E e^{i f a - f² b/2}|  <=  (|a| + √b) E|f' - f|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array, down, gamma, sum_error, up
from bnncert_check.joint.waves import NODES, legendre
from bnncert_check.laws.cells import REACH, outside, with_edges
from bnncert_check.laws.exponentials import density, exp_up, signed_tails_up
from bnncert_check.laws.rows import LEAST, Form, require_scale, standardised
from bnncert_check.layers import Activation
from bnncert_check.linear import Interval
from bnncert_check.model import Posterior
from bnncert_check.tails import normal_tails_down
from bnncert_check.verdict import CannotCheck

CELLS = 512  # of g, between -T and T
ROUNDINGS = 2.0**-45  # of z and of f, and of where kinks are
CURVED = 2.0**-44  # of tanh: what its exponential may be off by
RADII = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # of ellipses
PANELS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of a piece
ENOUGH = 2.0**-42  # of a neuron's quadrature
HEAVY = 1 + 2.0**-40  # what is a little more than a rounded bound
ROOT = 0.3989422804014328  # 1/√(2π), from above
TANGENT = 1.2733  # tan(y)/y, |y| <= π/4, from above: tanh's imaginary part is at most tan(Im z)


@dataclass(frozen=True)
class Piece:
    """Of f between two kinks, from low to high in g, [n]; Im f is at most slope times Im g."""

    low: Array
    high: Array
    slope: Array
    flat: bool


@dataclass(frozen=True)
class Neurons:
    """m and τ [n], and below: the slope of f below 0, if it is bent there. By how much f may be off
    on average, and P(|g| > T), [n]. mass of cells, and ends of f on them [n, C]."""

    activation: Activation
    mean: Array
    std: Array
    below: Array
    off: Array
    beyond: Array
    mass: Array
    low: Array
    high: Array

    def part(self, chosen: NDArray[np.int64]) -> Neurons:
        """Of some neurons."""
        names = ("mean", "std", "below", "off", "beyond", "mass", "low", "high")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})

    @property
    def absolute(self) -> Array:
        """E|f| where |g| <= T, from above [n]."""
        return np.asarray((self.mass * self._most).sum(-1) * HEAVY)

    @property
    def squared(self) -> Array:
        """E f² where |g| <= T, from above [n]."""
        return np.asarray((self.mass * self._most**2).sum(-1) * HEAVY)

    @property
    def least(self) -> Array:
        """f² on cells, from below [n, C]."""
        return np.asarray(np.maximum(np.maximum(self.low, -self.high), 0.0) ** 2 / HEAVY)

    @property
    def _most(self) -> Array:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def pieces(self) -> list[Piece]:
        kinks = [standardised(kink - self.mean, self.std) for kink in _kinks(self.activation)]
        ends = np.stack([*kinks, np.full_like(self.mean, REACH)])
        ends = np.clip(np.maximum.accumulate(ends), -REACH, REACH)
        starts = [np.full_like(self.mean, -REACH), *ends[:-1]]
        return [
            Piece(low, high, np.abs(slope) * self.std, not np.any(slope))
            for low, high, slope in zip(starts, ends, _slopes(self), strict=True)
        ]

    def panels(self, a: Array, b: Array, most: float) -> tuple[int, float]:
        """So many, at most as said, that sums over nodes of e^{i f a - f² b/2} φ(g) are off by
        little, for a and b up to these [n]; and by how much they may be in all."""
        for count in (count for count in PANELS if count <= max(1.0, most)):
            error = float(self._quadrature(count, a, b)[self.beyond > 0].sum())
            if error <= ENOUGH * len(self.mean):
                break
        return count, error

    def _quadrature(self, count: int, a: Array, b: Array) -> Array:
        """8 w M ρ^{1 - 2N}/(ρ - 1) a panel, M of the ellipse, where |Im g| <= y and |Im f| <= q y:
        √(2π) M = e^{y²/2 + a q y + b (q y)²/2}."""
        radius, total = np.array(RADII), np.zeros_like(self.mean)
        share = 8 * count * ROOT * radius ** (1 - 2 * NODES) / (radius - 1)
        a, b, std = a[:, None], b[:, None], self.std[:, None]
        for piece in (piece for piece in self.pieces if not piece.flat):
            half = ((piece.high - piece.low) / (2 * count) * HEAVY + 2.0**-48)[:, None]
            y = half * ((radius - 1 / radius) / 2)
            rise = piece.slope[:, None] * y
            size = y * y / 2 + a * rise + b * rise * rise / 2
            size = np.where(std * y * HEAVY <= _strip(self.activation), size, np.inf)
            total = total + (exp_up(size * HEAVY) * half * share).min(-1)
        return np.asarray(total * HEAVY)

    def nodes(self, panels: int) -> tuple[Array, Array]:
        """Weights and values of f, [n, J]."""
        weights, places = [], []
        for piece in self.pieces:
            low, high = piece.low[:, None], piece.high[:, None]
            if piece.flat:
                weights.append(_masses(low, high))
                places.append((low + high) / 2)
                continue
            edges = low + (high - low) * (np.arange(panels + 1) / panels)
            edges[:, -1:] = high
            half, middle = np.diff(edges) / 2, (edges[:, 1:] + edges[:, :-1]) / 2
            at, share = legendre()
            g = (middle[..., None] + half[..., None] * at).reshape(len(edges), -1)
            weights.append((half[..., None] * share).reshape(g.shape) * density(g))
            places.append(g)
        weight, g = np.concatenate(weights, -1), np.concatenate(places, -1)
        sure = (self.beyond == 0)[:, None]
        return np.where(sure, np.arange(weight.shape[1]) == 0, weight), self.at(g)

    def at(self, g: Array) -> Array:
        """f [n, P]"""
        z = self.mean[:, None] + self.std[:, None] * g
        traits = self.activation.traits
        if traits.ends is not None:
            return np.clip(z, *traits.ends)
        if self.activation.below is not None:
            return np.where(z >= 0, z, self.below[:, None] * z)
        lift, height, rate = traits.curve
        return lift + height * (1 - 2 / (exp_up(2 * rate * z) + 1))


def at_point(form: Form, posterior: Posterior, box: Interval) -> Neurons:
    """Of what the hidden layer reads: a point, or a small box that holds it."""
    require_shape(form.activation)
    center, radius = _snapped(box)
    require_scale(posterior, (center, radius), ())
    hidden, with_one = form.hidden, np.append(center, 1.0)
    weight = hidden.matrix(posterior.fields["mean"])
    spread = hidden.matrix(posterior.fields["std"]) ** 2
    mean, std = with_one @ weight, np.sqrt(with_one**2 @ spread)
    mean_off = sum_error(len(with_one), np.abs(with_one) @ np.abs(weight))
    mean_off = up(mean_off + radius @ np.abs(weight[:-1]) * HEAVY)
    std_off = (std * gamma(len(with_one)) + np.sqrt(radius**2 @ spread[:-1])) * HEAVY
    return _neurons(form.activation, (mean, mean_off), (std, std_off))


def require_shape(activation: Activation) -> None:
    if activation.traits.form is not None:
        raise CannotCheck(
            "unsupported",
            "joint laws are for activations of linear pieces, for tanh and for the sigmoid",
        )


def _snapped(box: Interval) -> tuple[Array, Array]:
    """A centre and a radius, neither so small that their squares vanish."""
    center = (box.lower + box.upper) / 2
    center = np.where(np.abs(center) < LEAST, 0.0, center)
    radius = up(np.maximum(box.upper - center, center - box.lower))
    same = (box.lower == center) & (box.upper == center)
    return center, np.where(same, 0.0, np.maximum(radius, LEAST))


def _neurons(
    activation: Activation, means: tuple[Array, Array], stds: tuple[Array, Array]
) -> Neurons:
    """By m and τ, and what they may be off by. A neuron that is certain is in the first cell."""
    (mean, mean_off), (std, std_off) = means, stds
    certain = (std == 0) & (std_off == 0)
    below = np.broadcast_to(0.0 if activation.below is None else activation.below, mean.shape)
    nothing, none = np.zeros((len(mean), 0)), np.where(certain, 0.0, 2 * outside())
    found = Neurons(activation, mean, std, below, mean, none, nothing, nothing, nothing)
    steep = np.max([np.abs(slope) for slope in np.broadcast_arrays(*_slopes(found))], 0)
    rough = ROUNDINGS * steep * (np.abs(mean) + REACH * std)
    rough = rough + CURVED * math.isfinite(_strip(activation))
    kinks = np.array([piece.high for piece in found.pieces[:-1]]).reshape(-1, len(mean))
    edges = with_edges(np.linspace(-REACH, REACH, CELLS + 1), kinks.T)
    f, wide = found.at(edges), (steep * (mean_off + REACH * std_off) + rough)[:, None]
    if not np.isfinite(f * f).all():
        raise CannotCheck("not-finite", "squares of hidden neurons overflow; rescale the network")
    mass = _masses(edges[:, :-1], edges[:, 1:])
    return replace(
        found,
        off=up(steep * (mean_off + std_off) + rough),
        mass=np.where(certain[:, None], np.arange(mass.shape[1]) == 0, mass),
        low=down(np.minimum(f[:, 1:], f[:, :-1]) - wide),
        high=up(np.maximum(f[:, 1:], f[:, :-1]) + wide),
    )


def _masses(a: Array, b: Array) -> Array:
    """P(a < g < b) from above, by less than 2^-46."""
    flipped = a + b < 0
    near, far = np.where(flipped, -b, a), np.where(flipped, -a, b)
    return np.maximum(up(signed_tails_up(near) - normal_tails_down(far)), 0.0)


def _kinks(activation: Activation) -> tuple[float, ...]:
    """Where pieces that are linear meet; a curve is one piece."""
    return () if math.isfinite(_strip(activation)) else activation.traits.ends or (0.0,)


def _slopes(own: Neurons) -> list[Array]:
    """Of the pieces, of all neurons or by neuron."""
    if own.activation.traits.ends is not None:
        return [np.array(slope) for slope in (0.0, 1.0, 0.0)]
    if own.activation.below is not None:
        return [own.below, np.array(1.0)]
    _, height, rate = own.activation.traits.curve
    return [np.array(TANGENT * height * rate)]


def _strip(activation: Activation) -> float:
    """|Im z| up to which a curve's imaginary part is below its tangent."""
    if activation.traits.ends is not None or activation.below is not None:
        return math.inf
    return math.pi / (4 * activation.traits.curve[2]) * (1 - 2.0**-40)
