"""Joint laws of small networks, by quadrature that shares nothing with the checker's, and choices
for certificates of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[np.float64]

REACH, PARTS = 9.0, 40  # of a normal variable, and of its range
NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)
MANY, MANY_WEIGHTS = np.polynomial.legendre.leggauss(200)


@dataclass(frozen=True)
class Shape:
    """An activation: between two kinks, bent at 0 (with a slope for all neurons or one each), or a
    stretched tanh."""

    ends: tuple[float, float] | None = None
    below: Any = None
    curve: tuple[float, float, float] = (0.0, 1.0, 1.0)

    @property
    def kinks(self) -> tuple[float, ...]:
        return self.ends or ((0.0,) if self.below is not None else ())

    def at(self, z: Array) -> Array:
        """Of z [..., n]"""
        if self.ends is not None:
            return np.clip(z, *self.ends)
        if self.below is not None:
            return np.where(z >= 0, z, np.asarray(self.below) * z)
        lift, height, rate = self.curve
        return np.asarray(lift + height * np.tanh(rate * z))


@dataclass(frozen=True)
class Weights:
    """Of one hidden layer at a point: means and deviations of W [J + 1, n] and V [n + 1, O], biases
    last; the point, rows and offsets."""

    shape: Shape
    w: Array
    w_std: Array
    v: Array
    v_std: Array
    x: Array
    rows: Array
    offsets: Array

    def hidden(self) -> tuple[Array, Array]:
        one = np.append(self.x, 1.0)
        return one @ self.w, np.sqrt(one**2 @ self.w_std**2)

    def moments(self, f: Array) -> tuple[Array, Array]:
        """Means [P, d] and covariances [P, d, d] of the rows, given f [P, n]."""
        f = np.concatenate([f, np.ones((len(f), 1))], -1)
        outputs = f @ self.v, f**2 @ self.v_std**2
        covariance = np.einsum("io,jo,po->pij", self.rows, self.rows, outputs[1])
        return outputs[0] @ self.rows.T + self.offsets, covariance

    def chance(self) -> float:
        """P(all rows <= 0), for one row or two, of one neuron or two."""
        points, weights = self.grid()
        mean, covariance = self.moments(self.shape.at(points))
        return float(weights @ _below_zero(mean, covariance))

    def sampled(self, count: int) -> float:
        r = np.random.default_rng(0)
        m, tau = self.hidden()
        mean, covariance = self.moments(self.shape.at(m + tau * r.normal(size=(count, len(m)))))
        return float(_below_zero(mean, covariance).mean())

    def grid(self) -> tuple[Array, Array]:
        m, tau = self.hidden()
        sides = [_side(m[k], tau[k], self.shape.kinks) for k in range(len(m))]
        places = np.meshgrid(*(place for place, _ in sides), indexing="ij")
        weights = np.meshgrid(*(weight for _, weight in sides), indexing="ij")
        return np.stack([p.ravel() for p in places], -1), np.prod([w.ravel() for w in weights], 0)


def _side(mean: float, std: float, kinks: tuple[float, ...]) -> tuple[Array, Array]:
    """Places of z and weights, with an edge at every kink."""
    if std == 0:
        return np.array([mean]), np.ones(1)
    cuts = np.clip([(kink - mean) / std for kink in kinks], -REACH, REACH)
    edges = np.sort(np.concatenate([np.linspace(-REACH, REACH, PARTS + 1), cuts]))
    half, middle = np.diff(edges)[:, None] / 2, (edges[1:] + edges[:-1])[:, None] / 2
    g = (middle + half * NODES).ravel()
    weights = (half * WEIGHTS).ravel() * np.exp(-g * g / 2) / np.sqrt(2 * np.pi)
    return mean + std * g, weights


def _below_zero(mean: Array, covariance: Array) -> Array:
    """P(all of a Gaussian vector [P, d] <= 0); of one that is certain, whether it is."""
    std = np.sqrt(covariance[:, 0, 0])
    over = np.where(std > 0, std, 1.0)
    end = np.where(std > 0, -mean[:, 0] / over, np.where(mean[:, 0] <= 0, REACH, -REACH))
    if mean.shape[1] == 1:
        return np.asarray(ndtr(end))
    half = np.maximum(np.minimum(end, REACH) + REACH, 0.0)[:, None] / 2
    g = half - REACH + half * MANY
    slope = covariance[:, 0, 1] / over
    rest = np.sqrt(np.maximum(covariance[:, 1, 1] - slope**2, 0.0))[:, None]
    level = mean[:, 1, None] + slope[:, None] * g
    inner = np.where(rest > 0, ndtr(-level / np.where(rest > 0, rest, 1.0)), level <= 0)
    density = np.exp(-g * g / 2) / np.sqrt(2 * np.pi)
    return np.asarray((half * MANY_WEIGHTS * density * inner).sum(-1))


def windows(given: Weights, noise: float = 0.0, reach: float = 12.0, tilt: float = 3.0) -> Array:
    """By row low, high, η and two tilts, [d, 5]: whole deviations, from samples."""
    r = np.random.default_rng(1)
    m, tau = given.hidden()
    mean, covariance = given.moments(given.shape.at(m + tau * r.normal(size=(4000, len(m)))))
    std = np.sqrt(mean.var(0) + np.einsum("pii->i", covariance) / len(mean) + noise**2)
    middle = mean.mean(0)
    low = np.minimum(middle - reach * std, -std / 8)
    high = np.maximum(middle + reach * std, std / 8)
    size = np.full(len(std), noise)
    return np.stack([low, high, size, tilt / std, tilt / std], -1)
