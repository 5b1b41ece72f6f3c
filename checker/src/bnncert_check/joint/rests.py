"""What a Fourier series of one or two rows leaves out: frequencies beyond its terms, and what is
beyond its windows.

With C'_k and B' the Schur complements of C_k and B, |χ(s)| <= D_i(s_i) for either row,

    D(s) = e^{-B's²/2} Π_k E e^{-f(z_k)² C'_k s²/2},

which falls: so |χ| <= D_1^θ D_2^{1 - θ}, with θ = 7/8 for the row that is beyond its terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from bnncert_check.arithmetic import Array, down
from bnncert_check.joint.neurons import HEAVY, Neurons
from bnncert_check.joint.sums import Sums
from bnncert_check.laws.exponentials import RELATIVE, exp_up, exponential, log_up

BLOCKS, DOUBLINGS = 8, 64  # of frequencies beyond K
NEGLIGIBLE = 2.0**-50  # of what falls
FLOOR = 2.0**-900  # of D: no product of its factors is lost to underflow
ROUNDING = 2.0**-44  # of exponents, relative


@dataclass(frozen=True)
class Window:
    """low < 0 < high, η, and the tilts of Chernoff's bounds at the two ends."""

    low: float
    high: float
    noise: float
    tilts: tuple[float, float]

    @property
    def length(self) -> float:
        return self.high - self.low

    @property
    def end(self) -> float:
        """low + L, from below."""
        return float(down(np.array(self.low + self.length)))


Power: TypeAlias = Callable[[float], float]


def truncation(
    own: Sums, neurons: Neurons, windows: tuple[Window, ...], terms: tuple[int, ...]
) -> float:
    """Σ |Π ĝ χ| over all other frequencies; |ĝ_k| <= 1/(π|k|)."""
    falls = [_fall(own, neurons, i, window.length) for i, window in enumerate(windows)]
    if len(falls) == 1:
        return _rest(falls[0], terms[0], 1.0, _all) * (2 / math.pi) * HEAVY
    rests = [_rest(fall, k, 7 / 8, _most) for fall, k in zip(falls, terms, strict=True)]
    sums = []
    for fall, k, window in zip(falls, terms, windows, strict=True):
        inner = _first(fall, k) + _rest(fall, k, 1 / 8, _few)
        sums.append(-window.low / window.length + inner * (2 / math.pi))
    return (rests[0] * sums[1] + rests[1] * sums[0]) * (2 / math.pi) * HEAVY


def _all(chance: float) -> float:
    return chance


def _few(chance: float) -> float:
    """D^{1/8}"""
    return math.sqrt(math.sqrt(math.sqrt(chance))) * HEAVY


def _most(chance: float) -> float:
    """D^{7/8}"""
    return chance / _few(chance) * HEAVY**2


@dataclass(frozen=True)
class Fall:
    """D at 2πk/L: k² times these are the exponents of cells of all neurons [n, C], and of β."""

    mass: Array
    half: Array
    beyond: Array
    own: float

    def at(self, k: float) -> float:
        """D, from above."""
        return self.of((self.mass * exponential(-self.half * k**2)).sum(-1), k)

    def of(self, chances: Array, k: float) -> float:
        """Of sums over cells."""
        product = float(((chances + self.beyond) * HEAVY).prod()) * (1 + ROUNDING)
        return product * _exp_up(-self.own * k**2) + FLOOR


def _fall(own: Sums, neurons: Neurons, i: int, length: float) -> Fall:
    square = (2 * math.pi / length) ** 2 / 2 / HEAVY
    left = _complement(own.spread, i, own.share)
    bias = float(_complement(own.own[..., None], i, own.share)[0])
    return Fall(neurons.mass, neurons.least * left[:, None] * square, neurons.beyond, bias * square)


def _complement(spread: Array, i: int, share: float) -> Array:
    """C_ii - C_ij²/C_jj of [2, 2, m], from below."""
    one, other, both = spread[i, i], spread[1 - i, 1 - i], spread[0, 1]
    taken = np.where(other > 0, both * (both / np.where(other > 0, other, 1.0)), 0.0)
    return np.asarray(np.maximum((one - taken) - 4 * share * (one + taken), 0.0))


def _first(fall: Fall, terms: int) -> float:
    """Σ D^{1/8}/k for k up to K. From k to k + 1 a cell's part takes a factor, which takes one in
    its turn."""
    chance = fall.mass * exponential(-fall.half)
    factor, turn = exponential(-3 * fall.half), exponential(-2 * fall.half)
    total, rounding = 0.0, 1 + (terms + 2) ** 2 * len(chance) * 4 * RELATIVE
    for k in range(1, terms + 1):
        total += _few(fall.of(chance.sum(-1), k) * rounding) / k
        chance, factor = chance * factor, factor * turn
    return total * HEAVY


def _rest(fall: Fall, terms: int, share: float, power: Power) -> float:
    """Σ D^share/k for k beyond K: blocks from a to b are at most log(b/a) D(a + 1)^share."""
    total, last = 0.0, 1.0
    end = float(terms)
    for start, end in _blocks(terms):
        last = power(fall.at(start + 1))
        total += math.log(end / start) * HEAVY * last
        if last <= NEGLIGIBLE:
            break
    # By doublings D falls to nothing, or β's own noise makes it.
    total += math.log(2) * HEAVY * (DOUBLINGS * last + _least(fall, end * 2.0**DOUBLINGS, share))
    return total * HEAVY


def _blocks(terms: int) -> Iterator[tuple[float, float]]:
    start, step = float(terms), max(1.0, terms // BLOCKS)
    while start < 4 * terms:
        yield start, start + step
        start += step
    for _ in range(DOUBLINGS):
        yield start, 2 * start
        start *= 2


def _least(fall: Fall, k: float, share: float) -> float:
    """Σ_j e^{-x 4^j} <= e^{-x}/(1 - e^{-3x})"""
    x = share * fall.own * k**2 / HEAVY
    left = 1 - _exp_up(-3 * x)
    return _exp_up(-x) / left if left > 0 else math.inf


def _exp_up(x: float) -> float:
    return float(exp_up(np.array(x)))


def beyond(own: Sums, neurons: Neurons, windows: tuple[Window, ...]) -> float:
    """P(some |g_k| > T), and where none is, Chernoff's bounds at both ends of every window."""
    total = float(neurons.beyond.sum())
    for i, window in enumerate(windows):
        for tilt, end in zip(window.tilts, (window.low, window.end), strict=True):
            total += _chernoff(own, neurons, i, (tilt, end), -1.0 if end < 0 else 1.0)
    return total * HEAVY


def _chernoff(own: Sums, neurons: Neurons, i: int, at: tuple[float, float], side: float) -> float:
    """E e^{side t (S - end)}, given v's law at every f: convex in f, so largest at ends."""
    tilt, end = at
    v, v_off = side * tilt * own.v[i], tilt * own.share * own.v_size[i]
    bend = tilt**2 * own.spread[i, i] * (1 + own.share) / 2
    exponents = []
    for f in (neurons.low, neurons.high):
        first, second, off = v[:, None] * f, bend[:, None] * f * f, v_off[:, None] * np.abs(f)
        exponents.append(first + second + off + ROUNDING * (np.abs(first) + second))
    each = np.maximum(*exponents)
    top = each.max(-1)
    logs = log_up((neurons.mass * exp_up(each - top[:, None])).sum(-1) * HEAVY) + top
    others = np.array(
        [
            side * tilt * own.b[i],
            tilt * own.share * own.b_size[i],
            tilt**2 * own.own[i, i] * (1 + own.share) / 2,
            -side * tilt * end,
        ]
    )
    every = np.concatenate([logs, top, others])
    rounding = ROUNDING * np.abs(every).sum()
    return _exp_up(float(logs.sum() + others.sum() + rounding))
