"""Majorants of neurons' factors on rectangles of means and variances of their pre-activations.

G(m, T) = ∫ ψ(z) N(z; m, T) dz with ψ >= 0. In q = m/T and P = 1/T the function log ∫ ψ(z) exp(qz -
Pz²/2) dz is convex: along q for every P, and along P for every m. So on a cell [m1, m2] x [T1, T2]

    log G - (α + am + BT/2 + βm²/2) <= largest of the corners + K,
    K = (1/T1 + β) (m2 - m1)²/8 + ρ²/16 + B⁺ ρ² T2/8,    ρ = (T2 - T1)/T1:

the terms of K bound what m²P/2 + βm²/2, ½ log P and BT/2 differ from their interpolations, linear
in m and in P. At the corners W = G exp(-α - am - ...) is compared with 1 - K <= exp(-K), in float64
with all roundings charged; cells that do not pass are cut in two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import TypeAlias, TypeVar

import numpy as np
from flint import arb, ctx
from numpy.typing import NDArray

from bnncert_check.arithmetic import BITS, Array, up
from bnncert_check.tails import LAST_NODE, normal_tails_down, normal_tails_up

FIRST = (24, 6)  # cells of a rectangle, along m and T
DEPTH = 20  # times that a cell is halved
AT_ONCE = 5  # neurons
MOST = 300_000  # cells that are open at once
CHARGED = 2.0**-40  # relative: hundreds of roundings, of arguments and of what is made of them
NARROW = 2.0**-6  # the least 1 - cT: below it more of its digits would be lost than are charged
STEPS = 64  # of the exponential's table, between powers of 2
LARGEST = 700.0  # of an argument of it

Ends: TypeAlias = Array  # [J, 4]: m1, m2, T1, T2


@dataclass(frozen=True)
class Majorants:
    """α, a, B and β by neuron, [J]; β >= 0."""

    level: Array
    slope: Array
    spread: Array
    bend: Array


@dataclass(frozen=True)
class Factors:
    """Φ(-m/√T) + E[exp(bz + cz²/2); 0 < z <= ζ] by neuron; ζ infinite: all z > 0. Where `tail`:
    P(z > ζ) instead. b and c are within CHARGED/256 of what is meant, relatively."""

    b: Array
    c: Array
    ceiling: Array
    tail: bool = False


Part = TypeVar("Part", Factors, Majorants)


def hold(factors: Factors, ends: Ends, above: Majorants) -> NDArray[np.bool_]:
    """For every neuron whether its majorant is proved above log G on its whole rectangle."""
    size = len(ends)
    parts = (slice(start, start + AT_ONCE) for start in range(0, size, AT_ONCE))
    found = [_hold(_part(factors, part), ends[part], _part(above, part)) for part in parts]
    return np.concatenate([np.ones(0, bool), *found])


def _part(of: Part, part: slice | NDArray[np.int64]) -> Part:
    """Of some neurons, one by one."""
    own = {field.name: getattr(of, field.name) for field in fields(of)}
    return replace(of, **{n: value[part] for n, value in own.items() if n != "tail"})


def _hold(factors: Factors, ends: Ends, above: Majorants) -> NDArray[np.bool_]:
    cells = _first_cells(ends)
    cells = replace(cells, ratios=_corners(factors, above, cells))
    proved = np.ones(len(ends), bool)
    for _ in range(DEPTH):
        highest = np.max(cells.ratios, axis=1)  # numpy's maximum: NaN stays
        proved[cells.neuron[~(highest <= 1)]] = False
        along, across = _remainders(above, cells)
        known = highest <= 1 - (along + across) * (1 + CHARGED)
        left = ~known & proved[cells.neuron]
        cells = _of(cells, left)
        if 2 * len(cells.neuron) > MOST:
            break
        cells = _halves(factors, above, cells, (along > across)[left])
    proved[cells.neuron] = False
    return proved


@dataclass(frozen=True)
class _Cells:
    """Neurons [n], rectangles [n, 4], and W at (m1, T1), (m1, T2), (m2, T1), (m2, T2)."""

    neuron: NDArray[np.int64]
    ends: Ends
    ratios: Array


def _of(cells: _Cells, chosen: NDArray[np.bool_]) -> _Cells:
    return _Cells(cells.neuron[chosen], cells.ends[chosen], cells.ratios[chosen])


def _first_cells(ends: Ends) -> _Cells:
    along, across = (np.linspace(0, 1, count + 1) for count in FIRST)
    low, high, near, far = ends.T[..., None]
    m = np.clip(low + (high - low) * along, low, high)
    t = np.clip(near * (far / near) ** across, near, far)
    m[:, 0], m[:, -1], t[:, 0], t[:, -1] = ends.T
    shape = (len(ends), *FIRST)
    sides = (m[:, :-1, None], m[:, 1:, None], t[:, None, :-1], t[:, None, 1:])
    cells = np.stack([np.broadcast_to(side, shape) for side in sides], -1).reshape(-1, 4)
    neuron = np.broadcast_to(np.arange(len(ends))[:, None, None], shape).reshape(-1)
    return _Cells(neuron, cells, np.zeros_like(cells))


def _corners(factors: Factors, above: Majorants, cells: _Cells) -> Array:
    low, high, near, far = cells.ends.T
    pairs = ((m, t) for m in (low, high) for t in (near, far))
    return np.stack([_ratios(factors, above, cells.neuron, m, t) for m, t in pairs], -1)


def _ratios(
    factors: Factors, above: Majorants, neuron: NDArray[np.int64], m: Array, t: Array
) -> Array:
    return ratio_up(_part(factors, neuron), _part(above, neuron), m, t)


def _halves(factors: Factors, above: Majorants, cells: _Cells, along: NDArray[np.bool_]) -> _Cells:
    """Each in two, along m or across."""
    first, second = _of(cells, along), _of(cells, ~along)
    low, high, near, far = first.ends.T
    m = np.clip(low / 2 + high / 2, low, high)
    w = first.ratios.T
    at = [_ratios(factors, above, first.neuron, m, t) for t in (near, far)]
    parts = [(first.neuron, (low, m, near, far), (w[0], w[1], *at))]
    parts += [(first.neuron, (m, high, near, far), (*at, w[2], w[3]))]
    low, high, near, far = second.ends.T
    t = np.clip(np.sqrt(near) * np.sqrt(far), near, far)
    w = second.ratios.T
    at = [_ratios(factors, above, second.neuron, m, t) for m in (low, high)]
    parts += [(second.neuron, (low, high, near, t), (w[0], at[0], w[2], at[1]))]
    parts += [(second.neuron, (low, high, t, far), (at[0], w[1], at[1], w[3]))]
    neurons, ends, ratios = zip(*parts, strict=True)
    stacked = (np.concatenate([np.stack(part, -1) for part in of]) for of in (ends, ratios))
    return _Cells(np.concatenate(neurons), *stacked)


def _remainders(above: Majorants, cells: _Cells) -> tuple[Array, Array]:
    """K in two parts: what interpolation may miss along m, and across."""
    low, high, near, far = cells.ends.T
    ratio = ((far - near) / near) ** 2
    along = (1 / near + above.bend[cells.neuron]) * (high - low) ** 2 / 8
    across = ratio / 16 + np.maximum(above.spread[cells.neuron], 0) * ratio * far / 8
    return along, across


def ratio_up(factors: Factors, above: Majorants, m: Array, t: Array) -> Array:
    """W = G(m, T) exp(-α - am - BT/2 - βm²/2), from above; NaN or infinite where floats end."""
    terms = (above.level, above.slope * m, above.spread * t / 2, above.bend * m * m / 2)
    less = -np.sum(terms, axis=0)
    size = np.abs(terms).sum(0)
    root = np.sqrt(t)
    if factors.tail:
        z = (factors.ceiling - m) / root
        return _weighted_tail(z, (np.abs(m) + factors.ceiling) / root, less, size)
    off = _weighted_tail(m / root, np.abs(m) / root, less, size)
    return up(off + _positive(factors, m, t, less, size))


def _positive(factors: Factors, m: Array, t: Array, less: Array, size: Array) -> Array:
    """E[exp(bz + cz²/2); 0 < z <= ζ] exp(less), from above."""
    b, c, ceiling = factors.b, factors.c, factors.ceiling
    d = 1 - c * t
    scale = np.sqrt(t * d)
    exponent = (2 * b * m + b * b * t + c * m * m) / (2 * d)
    sizes = (2 * np.abs(b * m) + b * b * t + c * m * m) / (2 * d) / d
    reach = (np.abs(m) + np.abs(b * t)) / scale / d
    low = -(m + b * t) / scale
    finite = np.isfinite(ceiling)
    end = np.where(finite, ceiling, 0.0)
    high = np.where(finite, (end * d - (m + b * t)) / scale, np.inf)
    further = reach + end * d / scale
    # Of Q(low) - Q(high) = Q(-high) - Q(-low) the one that cancels less.
    turned = high < 0
    near, far = np.where(turned, -high, low), np.where(turned, -low, high)
    exponent, size = less + exponent, size + sizes
    found = _weighted_tail(near, np.where(turned, further, reach), exponent, size)
    past = _tails_down(far + CHARGED * (1 + further)) * exp_down(exponent - CHARGED * (1 + size))
    whole_up = up((found - past) / np.sqrt(d) * (1 + CHARGED))
    # A ceiling of 0 leaves nothing; a difference of bounds may be below 0, a probability is not.
    return np.where(ceiling > 0, np.where(d > NARROW, np.maximum(whole_up, 0), np.inf), 0.0)


def _weighted_tail(z: Array, reach: Array, exponent: Array, size: Array) -> Array:
    """Q(z) exp(exponent) from above, where z is off by CHARGED · reach and the exponent by
    CHARGED · size; far out by Q(z) <= φ(z)/z (1 - 1/z² + 3/z⁴)."""
    z, exponent = z - CHARGED * (1 + reach), exponent + CHARGED * (1 + size)
    inner = _tails_up(np.minimum(z, LAST_NODE)) * exp_up(exponent)
    far = np.maximum(z, LAST_NODE)
    square = far * far
    series = 1 - (1 - 3 / square) / square
    outer = exp_up(exponent - square / 2 * (1 - CHARGED)) * series / (2.5066 * far)
    return up(np.where(z > LAST_NODE, outer, inner) * (1 + CHARGED))


def _tails_up(z: Array) -> Array:
    """Q(z) from above; NaN stays."""
    size = np.where(np.isnan(z), 0.0, np.abs(z))
    found = np.where(z < 0, up(1 - normal_tails_down(size)), normal_tails_up(size))
    return np.where(np.isnan(z), np.nan, found)


def _tails_down(z: Array) -> Array:
    size = np.where(np.isnan(z), 0.0, np.abs(z))
    found = np.where(z < 0, 1 - normal_tails_up(size), normal_tails_down(size))
    return np.where(np.isnan(z), np.nan, found * (1 - CHARGED))


def exp_up(x: Array) -> Array:
    """exp from above: 2^(n/STEPS) of a table times a polynomial of what is left, |r| < 2^-7; its
    error and all roundings are below CHARGED (1 + |x|)/2 relatively. Infinite for large x."""
    found = _exp(np.minimum(x, LARGEST)) * (
        1 + CHARGED * (1 + np.abs(np.clip(x, -LARGEST, LARGEST)))
    )
    return np.where(x > LARGEST, np.inf, found)


def exp_down(x: Array) -> Array:
    found = _exp(np.minimum(x, LARGEST)) * (
        1 - CHARGED * (1 + np.abs(np.clip(x, -LARGEST, LARGEST)))
    )
    return np.where(x < -LARGEST, 0.0, found)


def _exp(x: Array) -> Array:
    """exp(max(x, -LARGEST)), x <= LARGEST."""
    x = np.where(np.isnan(x), np.nan, np.maximum(x, -LARGEST))
    table, unit = _table()
    n = np.rint(np.nan_to_num(x) / unit)
    r = x - n * unit
    series = 1 + r * (1 + r / 2 * (1 + r / 3 * (1 + r / 4 * (1 + r / 5 * (1 + r / 6)))))
    whole = n.astype(np.int64)
    return np.ldexp(table[whole % STEPS] * series, (whole // STEPS).astype(np.int32))


@cache
def _table() -> tuple[Array, float]:
    """2^(i/STEPS), and log 2/STEPS."""
    with ctx.workprec(BITS):
        values = [float((arb(2).log() * i / STEPS).exp()) for i in range(STEPS)]
        return np.array(values), float(arb(2).log() / STEPS)
