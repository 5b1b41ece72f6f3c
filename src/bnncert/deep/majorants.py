"""Majorants of a neuron's factor in the exponential moment of a row.

Given the first layer, z ~ N(m, T), and with a row's weight N(v, s²) the neuron's factor is

    G(m, T) = Φ(-m/√T) + E[exp(bz + cz²/2); 0 < z <= ζ],   b = -λv, c = λ²s²,

bounded on a rectangle by log G <= α + am + ½BT + ½βm², β >= 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from bnncert.deep.moments import Array, log_positive
from bnncert.deep.programs import solve

SHAPE = (25, 5)  # of the grid on which majorants are chosen
FINE = (81, 21)  # and of that on which they are lifted
CUTS = ((5, 4), (4, 3))  # and of those within cells that need it
SPARED = 2e-4  # of α, that cells may ask for without being cut
SLACK = 3e-4  # of α
ROUNDING = 2.0**-36  # of the terms in exponents: what a checker may charge, and more


@dataclass(frozen=True, eq=False)
class Factors:
    """G of several neurons: b, c and ζ, [J]; ζ infinite where nothing is cut off."""

    b: Array
    c: Array
    ceiling: Array

    def log(self, m: Array, t: Array) -> Array:
        """log G at [J, ...]."""
        b, c, ceiling = (_wide(x, m.ndim) for x in (self.b, self.c, self.ceiling))
        return np.logaddexp(log_ndtr(-m / np.sqrt(t)), log_positive(m, t, b, c, ceiling))

    def size(self, ends: Array) -> Array:
        """Of the largest exponents on the ends."""
        largest, t, least = np.abs(ends[:, :2]).max(1), ends[:, 3], ends[:, 2]
        d = np.minimum(1 - self.c * t, 1)
        size: Array = (largest + np.abs(self.b) * t) ** 2 / (least * d**2) + largest**2 / least
        return size


@dataclass(frozen=True, eq=False)
class Tails:
    """P(z > ζ) of several neurons instead."""

    ceiling: Array

    def log(self, m: Array, t: Array) -> Array:
        found: Array = log_ndtr((m - _wide(self.ceiling, m.ndim)) / np.sqrt(t))
        return found

    def size(self, ends: Array) -> Array:
        """Of the largest exponent on the ends."""
        found: Array = (np.abs(ends[:, :2]).max(1) + self.ceiling) ** 2 / ends[:, 2]
        return found


Part = TypeVar("Part", Factors, Tails, "Majorants", Factors | Tails)


@dataclass(frozen=True, eq=False)
class Moments:
    """What m and T are about, by neuron: the mean and variance of m, the mean of T."""

    mean: Array
    variance: Array
    spread: Array


@dataclass(frozen=True, eq=False)
class Majorants:
    """α, a, B and β by neuron."""

    level: Array
    slope: Array
    spread: Array
    bend: Array

    def at(self, m: Array, t: Array) -> Array:
        """Of m and T [J, ...], without α."""
        a, b, beta = (_wide(x, m.ndim) for x in (self.slope, self.spread, self.bend))
        found: Array = a * m + b * t / 2 + beta * m**2 / 2
        return found

    def size(self, ends: Array) -> Array:
        """Of the largest terms on the ends, without α."""
        m, t = np.abs(ends[:, :2]).max(1), ends[:, 3]
        found: Array = np.abs(self.slope) * m + np.abs(self.spread) * t / 2 + self.bend * m**2 / 2
        return found

    def towards(self, other: Majorants, part: float) -> Majorants:
        """On the way to another, which is a majorant too."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Majorants(*(one + part * (two - one) for one, two in pairs))


def choose(factors: Factors | Tails, ends: Array, about: Moments, bent: bool = True) -> Majorants:
    """Least on average where the moments are, and above log G on a grid over `ends` [J, 4]: what
    `lifted` makes a bound."""
    m, t = (x.reshape(len(ends), -1) for x in _grid(ends, SHAPE))
    center = np.clip(about.mean, ends[:, 0], ends[:, 1])
    unit = np.sqrt(about.variance)
    middle = np.clip(about.spread, ends[:, 2], ends[:, 3])
    u = (m - center[:, None]) / unit[:, None]
    rows = np.stack([np.ones_like(u), u, t / middle[:, None], u * u if bent else 0 * u], -1)
    cost = np.broadcast_to([1.0, 0.0, 1.0, float(bent)], (len(ends), 4))
    free = np.array([-np.inf, -np.inf, -np.inf, 0.0])
    values = factors.log(m, t)
    y = solve(rows, values, cost, free)
    bend = np.maximum(2 * y[:, 3] / unit**2, 0) if bent else np.zeros(len(ends))
    slope = y[:, 1] / unit - bend * center
    chosen = Majorants(np.zeros(len(ends)), slope, 2 * y[:, 2] / middle, bend)
    return replace(chosen, level=(values - chosen.at(m, t)).max(1))


def lifted(factors: Factors | Tails, ends: Array, chosen: Majorants) -> Majorants:
    """With the least α that is known to do: cells that might ask for more than their corners show
    are cut into smaller ones."""
    m, t = _grid(ends, FINE)
    neuron = np.arange(len(ends))
    needed, shown = _needed(factors, chosen, m, t)
    least = shown.max((1, 2))
    closed = least.copy()
    for shape in CUTS:
        asking = needed > least[neuron, None, None] + SPARED
        np.maximum.at(closed, neuron, np.where(asking, -np.inf, needed).max((1, 2)))
        at, i, k = np.nonzero(asking)
        cells = [m[at, i, k], m[at, i + 1, k], t[at, i, k], t[at, i, k + 1]]
        neuron = neuron[at]
        m, t = _grid(np.stack(cells, 1), shape)
        needed, shown = _needed(_of(factors, neuron), _of(chosen, neuron), m, t)
        np.maximum.at(least, neuron, shown.max((1, 2)))
    np.maximum.at(closed, neuron, needed.max((1, 2)))
    least = np.maximum(least, closed)
    size = factors.size(ends) + chosen.size(ends) + np.abs(least)
    return replace(chosen, level=least + SLACK + ROUNDING * size)


def _needed(factors: Factors | Tails, chosen: Majorants, m: Array, t: Array) -> tuple[Array, Array]:
    """By cell what α must be, and what its corners ask for.

    In q = m/T and P = 1/T the function log ∫ ψ exp(qz - Pz²/2) dz is convex, so on a cell log G is
    below the interpolation of its corners, linear in m and in P, and the terms of the remainder.
    """
    excess = factors.log(m, t) - chosen.at(m, t)
    corners = np.maximum(excess[:, 1:], excess[:, :-1])
    highest = np.maximum(corners[..., 1:], corners[..., :-1])
    near, far = t[:, :1, :-1], t[:, :1, 1:]
    step = (m[:, 1:, :1] - m[:, :-1, :1]) ** 2 / 8
    ratio = (far / near - 1) ** 2
    bend, spread = chosen.bend[:, None, None], np.maximum(chosen.spread, 0)[:, None, None]
    return highest + (1 / near + bend) * step + ratio / 16 + spread * ratio * far / 8, highest


def _of(parts: Part, chosen: NDArray[np.int64]) -> Part:
    """Of these neurons, one by one."""
    return replace(parts, **{f.name: getattr(parts, f.name)[chosen] for f in fields(parts)})


def _grid(ends: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Nodes m, evenly, and T, by equal ratios, [J, *shape]."""
    along = np.linspace(0, 1, shape[0])
    m = ends[:, :1] * (1 - along) + ends[:, 1:2] * along
    m[:, 0], m[:, -1] = ends[:, 0], ends[:, 1]
    t = ends[:, 2:3] * (ends[:, 3:] / ends[:, 2:3]) ** np.linspace(0, 1, shape[1])
    t[:, 0], t[:, -1] = ends[:, 2], ends[:, 3]
    return np.repeat(m[:, :, None], shape[1], 2), np.repeat(t[:, None, :], shape[0], 1)


def _wide(x: Array, dimensions: int) -> Array:
    return x.reshape(-1, *[1] * (dimensions - 1))
