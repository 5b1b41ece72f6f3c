"""G(a, q) = A + B a + D a² + C q + Σ_k M_k exp(-λ_k q) above F(a, q) for all a and 0 <= q <= q⁺.

F is the chance that N(a, q) is outside of an interval, or inside. Boxes in (a, q) are cut until F
is surely below G on each: by the ends of each, or by G's tangent at the middle, as D, M_k >= 0
make it convex, and bounds of F's second derivatives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bnncert_check.arithmetic import Array, down, up
from bnncert_check.laws.exponentials import exp_up, signed_tails_up

FAR = 64.0  # √q⁺ beyond the interval, where a's last boxes begin
ROUNDS, PART = 80, 2**11  # of cuts; of boxes at once
BOXES = 2**16  # in all
LOST = -(2.0**-30)
# Of the normal density's first three derivatives: the largest, from above.
FIRST, SECOND, THIRD = 0.242, 0.399, 0.551
ROUNDING = 2.0**-44  # of what is summed
ROOT = 0.3989422804014327  # 1/√(2π)

Box: TypeAlias = tuple[Array, Array, Array, Array]  # a from, a to, q from, q to


@dataclass(frozen=True)
class Interval:
    """Of N(a, q), about a centre; ends may be infinite."""

    low: float
    high: float
    inside: bool

    @property
    def signed(self) -> list[tuple[float, float]]:
        """F = Σ Φ(s (a - end)/√q) - `less`: (s, end) of each finite end."""
        first, second = (1.0, -1.0) if self.inside else (-1.0, 1.0)
        ends = ((first, self.low), (second, self.high))
        return [(sign, end) for sign, end in ends if math.isfinite(end)]

    @property
    def less(self) -> float:
        """1 inside of two ends."""
        return float(self.inside and len(self.signed) == 2)


@dataclass(frozen=True)
class Majorant:
    """(A, B, D, C), M and λ [K]."""

    numbers: tuple[float, float, float, float]
    weights: Array
    rates: Array


def centered(low: float, high: float, inside: bool) -> tuple[float, Interval]:
    """The centre, in the middle or at the one finite end; and the interval about it, whose F is
    not below the true one."""
    ends = [end for end in (low, high) if math.isfinite(end)]
    center = sum(ends) / len(ends)
    out = -math.inf if inside else math.inf
    first, last = low - center, high - center
    first = math.nextafter(first, out) if math.isfinite(first) else first
    last = math.nextafter(last, -out) if math.isfinite(last) else last
    return center, Interval(first, last, inside)


def is_above(asked: Interval, found: Majorant, most: float) -> bool:
    """Whether boxes show it; most: q⁺."""
    half = max(abs(end) for _, end in asked.signed)
    far = half + FAR * math.sqrt(most)
    a, b = np.array([-np.inf, -far, 0.0, far]), np.array([-far, 0.0, far, np.inf])
    waiting, seen = [(0, (a, b, np.zeros(4), np.full(4, most)))], 0
    while waiting:
        # The deepest first: of every depth no more waits than two parts.
        depth, box = waiting.pop()
        seen += len(box[0])
        middle, tangents = _by_tangents(asked, found, box)
        if (middle < LOST).any():  # below F there, and no cut will help
            return False
        left = ~(np.fmax(_by_ends(asked, found, box), tangents) >= 0)
        if left.any() and (depth == ROUNDS or seen > BOXES):
            return False
        waiting += [(depth + 1, part) for part in _cut(*(part[left] for part in box))]
    return True


def _cut(a: Array, b: Array, low: Array, high: Array) -> list[Box]:
    """In two, across what is longer in units of the deviation; as parts."""
    along, across = (a + b) / 2, (low + high) / 2
    first = np.isfinite(along) & ((b - a) / np.sqrt(high) > (high - low) / high)
    every = (
        np.concatenate([a, np.where(first, along, a)]),
        np.concatenate([np.where(first, along, b), b]),
        np.concatenate([low, np.where(first, low, across)]),
        np.concatenate([np.where(first, high, across), high]),
    )
    return [_part(every, start) for start in range(0, len(every[0]), PART)]


def _part(every: Box, start: int) -> Box:
    a, b, low, high = (ends[start : start + PART] for ends in every)
    return a, b, low, high


def _chance(z: Array) -> Array:
    """Φ(z) from above, of z as computed."""
    return signed_tails_up(-z) + ROUNDING


def _by_ends(asked: Interval, found: Majorant, box: Box) -> Array:
    """inf G - sup F from below; where a has no end, F's limit counts."""
    a, b, low, high = box
    level, slope, bend, noise = found.numbers
    if bend > 0:
        at = np.clip(-slope / (2 * bend), a, b)
        along, sizes = slope * at + bend * at * at, np.abs(slope * at) + bend * at * at
        # The vertex as computed is not the vertex, by so much of a².
        along = along - ROUNDING * sizes
    else:
        along = np.zeros_like(a) if slope == 0 else np.full_like(a, -np.inf)
    powers = (down(1 / exp_up(np.outer(high, found.rates))) * found.weights).sum(-1)
    across = np.minimum(noise * low, noise * high)
    size = abs(level) + np.abs(noise) * high + powers
    total = level + along + across + powers - ROUNDING * size + asked.less
    for sign, end in asked.signed:
        x = b - end if sign > 0 else end - a
        x = np.where(np.isfinite(x), up(x), x)
        q = np.where(x >= 0, low, high)
        z = x / np.sqrt(np.where(q > 0, q, 1.0))
        total = total - np.where(q > 0, _chance(z), (x >= 0).astype(float))
    return np.asarray(total - ROUNDING)


def _by_tangents(asked: Interval, found: Majorant, box: Box) -> tuple[Array, Array]:
    """G - F at the middle, nearly, and inf (G - F) from below.

    Of Φ(s (a - end)/√q), with φ the normal density, F_q = F_aa/2, and |F_aa|, |F_aq|, |F_qq| are at
    most |φ'|/q, |φ''|/2q^(3/2) and |φ'''|/4q².
    """
    a, b, low, high = box
    level, slope, bend, noise = found.numbers
    at, q = (a + b) / 2, (low + high) / 2
    da, dq = up(np.maximum(b - at, at - a)), up(np.maximum(high - q, q - low))
    powers = 1 / exp_up(np.outer(q, found.rates)) * found.weights
    value = level + slope * at + bend * at * at + noise * q + powers.sum(-1) + asked.less
    size = abs(level) + np.abs(slope * at) + bend * at * at + np.abs(noise) * q + 4
    along, across = slope + 2 * bend * at, noise - powers @ found.rates
    turned = abs(slope) + 2 * np.abs(bend * at) + 4 / np.sqrt(low)
    tilted = abs(noise) + powers @ found.rates + 4 / low
    for sign, end in asked.signed:
        z = sign * (at - end) / np.sqrt(q)
        density = ROOT / exp_up(np.minimum(z * z / 2, 600.0))
        value = value - _chance(z)
        along = along - sign * density / np.sqrt(q)
        across = across + z * density / (2 * q)
    u, w = da / np.sqrt(low), dq / low
    bent = len(asked.signed) * (FIRST * u * u / 2 + SECOND * u * w / 2 + THIRD * w * w / 8)
    first = np.abs(along) * da + np.abs(across) * dq
    wrong = ROUNDING * (size + powers.sum(-1) + turned * da + tilted * dq + bent)
    return value, np.asarray(value - first - bent - wrong)
