"""The neurons of one hidden layer at a point, z = m + τ g: f(z) at the nodes of a quadrature of g,
and between two ends on cells of g.

The pieces of f between its kinks, clipped to |g| <= T, are cut into equal panels of N nodes each; a
piece on which f is constant is one node. With f' of another m' and τ', and the same g,

    |E e^{i f' a - f'² b/2} - E e^{i f a - f² b/2}|  <=  (|a| + √b) E|f' - f|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bnncert_check.arithmetic import UNIT, Array, down, gamma, sum_error, up
from bnncert_check.joint.waves import NODES, legendre
from bnncert_check.laws.cells import REACH, outside, with_edges
from bnncert_check.laws.exponentials import (
    density,
    exp_up,
    signed_tails_up,
)
from bnncert_check.laws.rows import LEAST, Form, require_scale, standardised
from bnncert_check.layers import Activation
from bnncert_check.linear import Interval
from bnncert_check.model import Posterior
from bnncert_check.tails import normal_tails_down
from bnncert_check.verdict import CannotCheck

CELLS = 512  # of g, between -T and T
ROUNDINGS = 64 * UNIT  # of z and of f, and of where kinks are
CURVED = 2.0**-44  # of tanh: what its exponential may be off by
RADII = (2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # of ellipses
HEAVY = 1 + 2.0**-40  # what is a little more than a rounded bound
ROOT = 0.3989422804014328  # 1/√(2π), from above


@dataclass(frozen=True)
class Neurons:
    """weight and value of f at nodes [n, J]; half widths of panels, and how fast f rises there in g
    [n, P]; mass of cells, and ends of f on them [n, C]; by how much f may be off on average, and
    P(|g| > T), [n]. strip: of a curve, τ |Im g| within which |f| <= 1."""

    weight: Array
    value: Array
    half: Array
    slope: Array
    mass: Array
    low: Array
    high: Array
    off: Array
    beyond: Array
    std: Array
    strip: float | None

    @property
    def absolute(self) -> Array:
        """E|f| where |g| <= T, and the same sum over nodes, from above [n]."""
        return self._expected(self._most, np.abs(self.value))

    @property
    def squared(self) -> Array:
        """E f² where |g| <= T, and the same sum over nodes, from above [n]."""
        return self._expected(self._most**2, self.value**2)

    @property
    def least(self) -> Array:
        """f² on cells from below [n, C]."""
        return np.maximum(np.maximum(self.low, -self.high), 0.0) ** 2 / HEAVY

    def _expected(self, cells: Array, nodes: Array) -> Array:
        both = (self.mass * cells).sum(-1), (self.weight * nodes).sum(-1)
        return np.asarray(np.maximum(*both) * HEAVY)

    @property
    def _most(self) -> Array:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    def quadrature(self, a: Array, b: Array) -> Array:
        """What sums of e^{i f a - f² b/2} φ(g) over nodes may be off by, [n], for a and b up to
        these: 8 w M ρ^{1 - 2N}/(ρ - 1) a panel, M of the ellipse."""
        best, a, b = np.full(self.half.shape, np.inf), a[:, None], b[:, None]
        for radius in RADII:
            y = self.half * ((radius - 1 / radius) / 2)
            if self.strip is None:
                size = a * self.slope * y + b * (self.slope * y) ** 2 / 2
            else:
                within = self.std[:, None] * y * HEAVY <= self.strip
                size = np.where(within, a + b / 2, np.inf)
            share = 8 * ROOT * radius ** (1 - 2 * NODES) / (radius - 1)
            best = np.fmin(best, exp_up((y * y / 2 + size) * HEAVY) * self.half * (share * HEAVY))
        return np.asarray(np.where(self.half > 0, best, 0.0).sum(-1) * HEAVY)


def at_point(form: Form, posterior: Posterior, box: Interval, panels: int) -> Neurons:
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
    return _neurons(form.activation, Laws(mean, mean_off, std, std_off), panels)


def require_shape(activation: Activation) -> None:
    if activation.traits.form is not None:
        raise CannotCheck(
            "unsupported",
            "joint laws are for activations of linear pieces, for tanh and for the sigmoid",
        )


def pieces(activation: Activation) -> int:
    """How many there are of f."""
    return len(_kinks(activation)) + 1


def _snapped(box: Interval) -> tuple[Array, Array]:
    """A centre and a radius, neither so small that their squares vanish."""
    center = (box.lower + box.upper) / 2
    center = np.where(np.abs(center) < LEAST, 0.0, center)
    radius = up(np.maximum(box.upper - center, center - box.lower))
    same = (box.lower == center) & (box.upper == center)
    return center, np.where(same, 0.0, np.maximum(radius, LEAST))


@dataclass(frozen=True)
class Laws:
    """m and τ of every neuron, and what they may be off by, [n]."""

    mean: Array
    mean_off: Array
    std: Array
    std_off: Array


def _neurons(activation: Activation, own: Laws, panels: int) -> Neurons:
    certain = (own.std == 0) & (own.std_off == 0)
    places = [standardised(kink - own.mean, own.std) for kink in _kinks(activation)]
    kinks = np.stack([*places, np.full(len(own.mean), REACH)], -1)
    steep = _steepest(activation)
    size = np.abs(own.mean) + REACH * own.std
    rough = 4 * ROUNDINGS * steep * size + CURVED * (_strip(activation) is not None)
    weight, value, half, slope = _nodes(activation, own, kinks, panels)
    first = np.arange(weight.shape[-1]) == 0
    mass, low, high = _cells(activation, own, kinks)
    wide = (steep * (own.mean_off + REACH * own.std_off) + rough)[:, None]
    sure = certain[:, None]
    return Neurons(
        np.where(sure, first, weight),
        value,
        np.where(sure, 0.0, half),
        slope,
        np.where(sure, np.arange(mass.shape[-1]) == 0, mass),
        down(low - wide),
        up(high + wide),
        up(steep * (own.mean_off + own.std_off) + rough),
        np.where(certain, 0.0, 2 * outside()),
        own.std,
        _strip(activation),
    )


def _nodes(
    activation: Activation, own: Laws, kinks: Array, panels: int
) -> tuple[Array, Array, Array, Array]:
    """Weights and values at nodes, half widths and slopes of panels, piece by piece."""
    ends = np.clip(np.maximum.accumulate(kinks, -1), -REACH, REACH)
    ends = np.concatenate([np.full((len(ends), 1), -REACH), ends], -1)
    weights, places, halves, slopes = [], [], [], []
    for k, slope in enumerate(_slopes(activation)):
        low, high = ends[:, k : k + 1], ends[:, k + 1 : k + 2]
        if slope is not None and not np.any(slope):
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
        halves.append(half)
        steep = np.broadcast_to(0.0 if slope is None else np.abs(slope), own.std.shape) * own.std
        slopes.append(np.broadcast_to(steep[:, None], half.shape))
    g = np.concatenate(places, -1)
    value = _value(activation, own.mean[:, None] + own.std[:, None] * g)
    return (
        np.concatenate(weights, -1),
        value,
        np.concatenate(halves, -1),
        np.concatenate(slopes, -1),
    )


def _cells(activation: Activation, own: Laws, kinks: Array) -> tuple[Array, Array, Array]:
    """Masses from above, and the ends of f, which is monotone there; but for roundings."""
    edges = with_edges(np.linspace(-REACH, REACH, CELLS + 1), kinks[:, :-1])
    f = _value(activation, own.mean[:, None] + own.std[:, None] * edges)
    low, high = np.minimum(f[:, 1:], f[:, :-1]), np.maximum(f[:, 1:], f[:, :-1])
    return _masses(edges[:, :-1], edges[:, 1:]), low, high


def _masses(a: Array, b: Array) -> Array:
    """P(a < g < b) from above, by less than 2^-46."""
    flipped = a + b < 0
    near, far = np.where(flipped, -b, a), np.where(flipped, -a, b)
    return np.maximum(up(signed_tails_up(near) - normal_tails_down(far)), 0.0)


def _value(activation: Activation, z: Array) -> Array:
    """f(z), neurons first."""
    traits, below = activation.traits, activation.below
    if traits.ends is not None:
        return np.clip(z, *traits.ends)
    if below is not None:
        return np.where(z >= 0, z, np.reshape(below, (-1, 1)) * z)
    lift, height, rate = traits.curve
    return lift + height * (1 - 2 / (exp_up(2 * rate * z) + 1))


def _kinks(activation: Activation) -> tuple[float, ...]:
    """Where pieces that are linear meet; a curve is one piece."""
    return () if _strip(activation) is not None else activation.traits.ends or (0.0,)


def _slopes(activation: Activation) -> tuple[float | Array | None, ...]:
    """Of the pieces."""
    return (None,) if _strip(activation) is not None else activation.pieces


def _steepest(activation: Activation) -> Array:
    """|f'| at most, of one neuron or of each."""
    _, height, rate = activation.traits.curve
    slopes = [np.abs(slope) for slope in _slopes(activation) if slope is not None]
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(height * rate, *slopes)))


def _strip(activation: Activation) -> float | None:
    """Of tanh and the sigmoid: |lift + height tanh(rate z)| <= 1 where |Im z| is at most this."""
    if activation.traits.ends is not None or activation.below is not None:
        return None
    return math.pi / (4 * activation.traits.curve[2]) * (1 - 2.0**-40)
