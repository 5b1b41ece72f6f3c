"""E y, E a² and E q of a direction, from Hermite moments of every neuron.

With D_k = E f(m + σ z) He_k(z) and G = t_i t_j, by Mehler's formula and by parts

    E ∂_i^a ∂_j^b G = Σ_k ρ^k/k! D_{i,a+k} D_{j,b+k},
    E[δv_k δv_l G] = Cov(v_k, v_l) E G + Σ_{p,q in {i,j}} Cov(v_k, z_p) Cov(v_l, z_q) E ∂_p ∂_q G.

The D_k are sums over equidistant nodes: f is analytic, and at most 1, where |Im z| <= π/4σ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bnncert.correlated.setting import Array, Setting

REACH = 12  # of nodes
WIDEST = 0.5  # of the strip
DIGITS = 45.0  # exponent of the error of a sum over nodes
NODES = 2**15  # to either side
TERMS = (8, 96)
EXPONENT = 24.0  # of what Mehler's series leaves out, if so many terms are not too many
SPARE = 2.0**-40  # of an energy
UNIT = 2.0**-52  # of a moment by nodes: rounding of sums, of h, and of tanh by its exponential
ROUNDED_H, ROUNDED_TANH = 16, 2**10


@dataclass(frozen=True)
class Known:
    """E y, E a² about `center`, and E q; vague: by how much a checker, which rounds outward, may
    find each of them off."""

    center: float
    first: float
    second: float
    noise: float
    terms: int
    vague: tuple[float, float, float]


def known(own: Setting, center: float) -> Known | None:
    """None where nodes or terms are too many."""
    n = len(own.mean)
    largest = float(np.abs(own.correlation - np.eye(n)).max()) if n > 1 else 0.0
    terms = math.ceil(EXPONENT / -math.log(largest)) if largest > 0 else 1
    terms = min(max(terms, TERMS[0]), TERMS[1])
    step = node_step(float(own.std.max()))
    if REACH / step > NODES or largest * (terms + 3) > terms + 2:
        return None
    at = np.arange(-REACH / step, REACH / step + 1) * step
    table = _hermite(at, terms + 2) * step
    t = own.values(own.mean[:, None] + own.std[:, None] * at)
    d, squares = (_with_bias(part @ table) for part in (t, t**2))
    v = own.v.copy()
    v[0] -= center
    g = {key: _pairs(d, own.correlation, terms, *key) for key in ((0, 0), (1, 0), (1, 1), (2, 0))}
    for (a, b), part in g.items():
        np.fill_diagonal(part, squares[:, a + b] * math.sqrt(math.factorial(a + b)))
    noise = float((own.given * g[0, 0]).sum())
    along = np.pad(own.along, ((0, 0), (1, 0)))  # unit 0 has no z
    everything = _square(v, own.spread, along, g)
    first = float(v @ d[:, 0] + np.diag(along) @ d[:, 1])
    off = _rounding(own, len(at))
    apart = {key: _apart(d, off, own.correlation, terms, *key) for key in g}
    rest = _rest(d, squares, own.correlation, terms)
    wide = {key: part + rest for key, part in apart.items()}
    loose = float((np.abs(own.given) * wide[0, 0]).sum())
    whole = loose + _square(np.abs(v), np.abs(own.spread), np.abs(along), wide)
    shifted = float((np.abs(v) + np.abs(np.diag(along))) @ off)
    return Known(center, first, everything - noise, noise, terms, (shifted, whole, loose))


def _rounding(own: Setting, nodes: int) -> Array:
    """Of moments of every unit, by a checker."""
    largest = np.abs(own.mean) + REACH * own.std
    return UNIT * np.append(0.0, nodes + ROUNDED_H * largest + ROUNDED_TANH)


def _apart(d: Array, off: Array, correlation: Array, terms: int, a: int, b: int) -> Array:
    """What rounding makes of `_pairs`."""
    size, sign = np.abs(d), np.abs(correlation)
    near, far = (_pairs(part, sign, terms, a, b) for part in (size, size + off[:, None]))
    found = far - near
    np.fill_diagonal(found, 3 * off * math.sqrt(math.factorial(a + b)))
    return np.asarray(found)


def _rest(d: Array, squares: Array, correlation: Array, terms: int) -> Array:
    """What follows the series, [n + 1, n + 1]."""
    rho = np.zeros((len(d), len(d)))
    rho[1:, 1:] = np.abs(correlation - np.eye(len(correlation)))
    energy = (squares[:, 0] - (d[:, :terms] ** 2).sum(-1)).clip(0) + SPARE
    return np.asarray((terms + 2) * rho**terms * np.sqrt(np.outer(energy, energy)))


def node_step(std: float) -> float:
    """A power of 2."""
    strip = min(math.pi / (4 * std), WIDEST) if std > 0 else WIDEST
    return float(2.0 ** math.floor(math.log2(2 * math.pi * strip / DIGITS)))


def _hermite(z: Array, count: int) -> Array:
    """He_k(z)/√k! φ(z), k < count, [nodes, count]."""
    rows = [np.exp(-z * z / 2) / math.sqrt(2 * math.pi)]
    rows.append(z * rows[0])
    for k in range(2, count):
        rows.append((z * rows[-1] - math.sqrt(k - 1) * rows[-2]) / math.sqrt(k))
    return np.stack(rows, -1)


def _with_bias(d: Array) -> Array:
    """Unit 0 is constantly 1."""
    first = np.zeros((1, d.shape[1]))
    first[0, 0] = 1.0
    return np.concatenate([first, d])


def _pairs(d: Array, correlation: Array, terms: int, a: int, b: int) -> Array:
    """E ∂_i^a ∂_j^b t_i t_j, [n + 1, n + 1], i ≠ j."""
    rho = np.zeros((len(d), len(d)))
    rho[1:, 1:] = correlation - np.eye(len(correlation))
    total, power = np.zeros_like(rho), np.ones_like(rho)
    for k in range(terms):
        weight = math.sqrt(math.prod(range(k + 1, k + a + 1)) * math.prod(range(k + 1, k + b + 1)))
        total += weight * power * np.outer(d[:, k + a], d[:, k + b])
        power = power * rho
    return total


def _square(v: Array, spread: Array, along: Array, g: dict[tuple[int, int], Array]) -> float:
    """E y² = Σ_ij E[v_i v_j t_i t_j]; along [k, l] = Cov(v_k, z_l)."""
    own = np.diag(along)
    both = np.outer(v, v) + spread
    one = np.outer(own, v) + v[:, None] * along.T  # of ∂_i
    mixed = np.outer(own, own) + along * along.T
    twice = own[:, None] * along.T  # of ∂_ii
    return float(
        (both * g[0, 0]).sum()
        + 2 * (_off(one) * g[1, 0]).sum()
        + (_off(mixed) * g[1, 1]).sum()
        + 2 * (_off(twice) * g[2, 0]).sum()
        + (2 * v * own * np.diag(g[1, 0])).sum()
        + (own**2 * np.diag(g[2, 0])).sum()
    )


def _off(part: Array) -> Array:
    return part - np.diag(np.diag(part))
