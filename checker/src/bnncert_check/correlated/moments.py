"""E y, E a² and E q, from Hermite moments of every neuron.

With D_k = E f(m + σ z) He_k(z) and G = t_i t_j, by Mehler's formula and by parts

    E ∂_i^a ∂_j^b G = Σ_k ρ^k/k! D_{i,a+k} D_{j,b+k},
    E[δv_k δv_l G] = Cov(v_k, v_l) E G + Σ_{p,q in {i,j}} Cov(v_k, z_p) Cov(v_l, z_q) E ∂_p ∂_q G.

D_k is a sum over equidistant nodes: f(m + σ z) He_k(z) φ(z) is analytic where |Im z| <= A = π/4σ,
with |f| <= 1 there, so the sum with step h is off by at most 2 M/(e^{2πA/h} - 1), where
M = √k! (1 + A²)^{k/2} e^{A²/2} bounds ∫ |He_k φ| on every line of the strip.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from flint import arb, ctx

from bnncert_check.arithmetic import BITS, UNIT, Array, gamma
from bnncert_check.correlated.gaussian import Hidden, Joint, floats
from bnncert_check.laws.exponentials import exp_up
from bnncert_check.verdict import CannotCheck

REACH = 12  # of nodes
STRIP, DIGITS = 0.5, 45.0  # the widest strip, and 2πA/h
MOST_NODES, PART = 2**15, 2**9  # to a side, and at once
COLUMNS = 98  # of tables: as many as any sum has
NODE, BESIDE = 8, 4  # steps of a neuron at a node; neurons that a node takes beside its own
BEYOND = 2.0**-48  # of a moment: what nodes beyond REACH may add
EXP = 2.0**-45  # of tanh: what its exponential may be off by


@dataclass(frozen=True)
class Moments:
    """E y and E a², of what is beyond a centre, and E q."""

    first: arb
    second: arb
    noise: arb


@dataclass(frozen=True)
class Hermite:
    """D_k/√k! of t [n, count], and those of t² [n, 3], each with what it may be off by."""

    value: Array
    off: Array
    square: Array
    square_off: Array


def activated(own: Hidden | Joint, z: Array) -> tuple[Array, Array]:
    """t at z [..., P], n neurons first, and what it may be off by [n, 1]."""
    (mean, mean_off), (std, std_off) = floats(own.mean), floats(own.std)
    lift, height, rate = own.activation.traits.curve
    inside = np.abs(np.where(np.isfinite(z), z, 0.0))
    most = np.abs(mean)[:, None] + std[:, None] * inside.max(-1, keepdims=True)
    off = mean_off[:, None] + std_off[:, None] * inside.max(-1, keepdims=True)
    h = np.where(std[:, None] > 0, mean[:, None] + std[:, None] * z, mean[:, None])
    t = lift + height * (1 - 2 / (exp_up(2 * rate * h) + 1))
    return t, off + 8 * UNIT * most + EXP


def spacing(largest: float) -> tuple[float, float]:
    """A and h, by the largest deviation."""
    strip = min(math.pi / (4 * largest), STRIP) * (1 - 2.0**-40) if largest > 0 else STRIP
    widest = 2 * math.pi * strip / DIGITS
    if widest * MOST_NODES < REACH:
        raise CannotCheck("too-large", "pre-activations of such deviations need too many nodes")
    return strip, 2.0 ** math.floor(math.log2(widest))


def node_steps(largest: float, width: int) -> int:
    """What sums of so many neurons take, about, beside tables that are made once."""
    return 2 * NODE * (width + BESIDE) * (int(REACH / spacing(largest)[1]) + 1)


def hermite(own: Hidden | Joint, count: int) -> Hermite:
    """The sums' terms are added in parts, each by a product of matrices."""
    strip, step = spacing(max(float(s.upper()) for s in own.std))
    sums, wrongs = (np.zeros((2, len(own.mean), count)) for _ in range(2))
    sizes = np.zeros(count)
    for places, table in _nodes(step, count):
        t, off = activated(own, np.broadcast_to(places, (len(own.mean), len(places))))
        near = np.abs(table).sum(0)
        sizes += near
        for square, (value, wrong, width) in enumerate(((t, off, count), (t * t, 3 * off, 3))):
            sums[square, :, :width] += value @ table[:, :width]
            wrongs[square] += wrong * 2 * near
    k = np.arange(count)
    apart = 2 * (1 + strip**2) ** (k / 2) * math.exp(strip**2 / 2) / math.expm1(DIGITS)
    errors = (
        wrongs + (gamma(2 * int(REACH / step) + 1) + 16 * UNIT) * 2 * sizes + 2 * apart + BEYOND
    )
    return Hermite(sums[0], errors[0], sums[1, :, :3], errors[1, :, :3])


def _nodes(step: float, count: int) -> Iterator[tuple[Array, Array]]:
    """Places [P], and h He_k(z)/√k! φ(z) there [P, count]."""
    end, odd = int(REACH / step) + 1, np.where(np.arange(count) % 2, -1.0, 1.0)
    for first in range(0, end, PART):
        table = _table(step, first, min(first + PART, end))[:, :count]
        places = np.asarray(np.arange(first, first + len(table)) * step, dtype=np.float64)
        yield places, table
        beside = places > 0
        yield -places[beside], table[beside] * odd


@lru_cache(maxsize=2 * MOST_NODES // PART)
def _table(step: float, first: int, last: int) -> Array:
    """The tables of all steps, each half the one before it, are kept: no file has any made
    twice."""
    with ctx.workprec(BITS):
        roots = [arb(k).sqrt() for k in range(COLUMNS + 1)]
        return np.array([_row(arb(k) * step, step, roots) for k in range(first, last)])


def _row(z: arb, step: float, roots: list[arb]) -> list[float]:
    values = [step * (-z * z / 2).exp() / (2 * arb.pi()).sqrt()]
    values.append(z * values[0])
    for k in range(2, COLUMNS):
        values.append((z * values[-1] - roots[k - 1] * values[-2]) / roots[k])
    return [float(value) for value in values]


def moments(own: Joint, neurons: Hermite, terms: int, center: float) -> Moments:
    """By so many terms of Mehler's series, and a bound of the others; neurons: at least terms +
    2."""
    found = _with_bias(neurons)
    rho, rho_off = _correlations(own)
    g = {
        key: _balls(*_pairs(found, rho, rho_off, terms, *key), found, sum(key))
        for key in ((0, 0), (1, 0), (1, 1), (2, 0))
    }
    v = [own.v[0] - center, *own.v[1:]]
    every = range(len(v))
    noise = sum((own.given[i, j] * g[0, 0][i][j] for i in every for j in every), arb(0))
    at = [[arb(0), *(own.along[i, j] for j in range(len(v) - 1))] for i in every]
    first, slope = (_ball_list(found.value[:, k], found.off[:, k]) for k in (0, 1))
    mean = sum((v[i] * first[i] + at[i][i] * slope[i] for i in every), arb(0))
    whole = sum((_entry(v, own, at, g, i, j) for i in every for j in every), arb(0))
    return Moments(mean, whole - noise, noise)


Balls = list[list[arb]]


def _entry(
    v: list[arb], own: Joint, at: Balls, g: dict[tuple[int, int], Balls], i: int, j: int
) -> arb:
    """E[v_i v_j t_i t_j], whose sum over i and j is right: terms of ∂_j stand with (j, i)."""
    total = (v[i] * v[j] + own.spread[i, j]) * g[0, 0][i][j]
    if i == j:
        total += 2 * v[i] * at[i][i] * g[1, 0][i][i]
        return total + at[i][i] * at[i][i] * g[2, 0][i][i]
    total += 2 * (v[j] * at[i][i] + v[i] * at[j][i]) * g[1, 0][i][j]
    total += 2 * at[i][i] * at[j][i] * g[2, 0][i][j]
    return total + (at[i][i] * at[j][j] + at[i][j] * at[j][i]) * g[1, 1][i][j]


def _with_bias(found: Hermite) -> Hermite:
    """Unit 0 is constantly 1."""

    def before(part: Array, first: float) -> Array:
        row = np.zeros((1, part.shape[1]))
        row[0, 0] = first
        return np.concatenate([row, part])

    return Hermite(
        before(found.value, 1.0),
        before(found.off, 0.0),
        before(found.square, 1.0),
        before(found.square_off, 0.0),
    )


def _correlations(own: Joint) -> tuple[Array, Array]:
    """Of different units [n + 1, n + 1], 0 elsewhere, and what they may be off by."""
    size = len(own.mean)
    value, off = np.zeros((size + 1, size + 1)), np.zeros((size + 1, size + 1))
    for i in range(size):
        value[i + 1, 1:], off[i + 1, 1:] = floats([own.correlation[i, j] for j in range(size)])
    np.fill_diagonal(value, 0.0)
    np.fill_diagonal(off, 0.0)
    return value, off


def _pairs(
    found: Hermite, rho: Array, rho_off: Array, terms: int, a: int, b: int
) -> tuple[Array, Array]:
    """E ∂_i^a ∂_j^b t_i t_j of different units, and what it may be off by."""
    size, most = np.abs(found.value), np.abs(found.value) + found.off
    wide = np.abs(rho) + rho_off
    total, bound, near = np.zeros_like(rho), np.zeros_like(rho), np.zeros_like(rho)
    for k in range(terms):
        weight = math.sqrt(math.prod(range(k + 1, k + a + 1)) * math.prod(range(k + 1, k + b + 1)))
        total += weight * rho**k * np.outer(found.value[:, k + a], found.value[:, k + b])
        near += weight * np.abs(rho) ** k * np.outer(size[:, k + a], size[:, k + b])
        bound += weight * wide**k * np.outer(most[:, k + a], most[:, k + b])
    rest = np.sqrt(_energy(found, terms))
    # (k + 2) ρ^k falls from the last term on, and no weight is above k + 2.
    falling = wide * (terms + 3) <= terms + 2
    left = np.where(wide > 0, (terms + 2) * wide**terms, 0.0) * np.outer(rest, rest)
    error = np.abs(bound - near) + (gamma(8 * terms) + 64 * UNIT) * bound + left * (1 + 2.0**-30)
    return total, np.where(falling, error, np.inf)


def _energy(found: Hermite, terms: int) -> Array:
    """Σ_{k >= N} (D_k/√k!)², from above: all of E t² less what is known."""
    known = (np.abs(found.value) - found.off).clip(0)[:, :terms]
    left = found.square[:, 0] + found.square_off[:, 0] - (known**2).sum(-1)
    return np.asarray((left + (gamma(terms) + 16 * UNIT) * 2).clip(0))


def _ball_list(value: Array, off: Array) -> list[arb]:
    return [arb(x, e) for x, e in zip(value.tolist(), off.tolist(), strict=True)]


def _balls(value: Array, off: Array, found: Hermite, order: int) -> Balls:
    """As balls, those of one unit by the moments of t²."""
    root = arb(math.factorial(order)).sqrt()
    balls = [_ball_list(*pair) for pair in zip(value, off, strict=True)]
    for i in range(len(balls)):
        own = arb(float(found.square[i, order]), float(found.square_off[i, order]))
        balls[i][i] = own * root
    return balls
