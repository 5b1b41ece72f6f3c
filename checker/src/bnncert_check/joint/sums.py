"""One or two output rows at a point, S_i = β_i + Σ_k v_ik f(z_k), and their characteristic function

    χ(s) = e^{i s·b - s'Bs/2} Π_k χ_k(s),   χ_k(s) = E e^{i f(z_k) s·v̄_k - f(z_k)² s'C_k s/2},

at frequencies with weights. One row has a second beside it that is 0. Since |χ_k| <= 1, a frequency
whose product is negligible after some neurons is left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array, gamma
from bnncert_check.joint.neurons import HEAVY, Neurons
from bnncert_check.joint.waves import NODES, waves
from bnncert_check.laws.exponentials import exp_up, exponential
from bnncert_check.laws.rows import Form, require_scale
from bnncert_check.model import Posterior

AT_ONCE = 2**16  # numbers of some neurons at nodes and frequencies
RUN, GROWTH = 8, 600.0  # frequencies on end that are found by products; e^GROWTH is a float
ARITHMETIC = 2.0**-42  # of waves, weights, places and powers of them, of one neuron
LEFT_OUT = 2.0**-30  # of a series, by frequencies that are left out
NODES_OF = (2**11, 2**9)  # that a neuron may take at a frequency of one row, and of two
OTHERS, FEWEST = 2**17, 2**4  # nodes beside these; fewer neurons may take as many as these


@dataclass(frozen=True)
class Sums:
    """v̄ [2, n], C [2, 2, n], b [2] and B [2, 2]; v_size and b_size are of what is summed, and so
    are the diagonals of C and B. share: of these sizes, what sums are off by."""

    v: Array
    v_size: Array
    spread: Array
    b: Array
    b_size: Array
    own: Array
    share: float

    def shifted(self, shift: Array, noise: Array) -> Sums:
        """S_i + shift_i + noise_i g'_i"""
        size = self.b_size + np.abs(shift)
        return replace(self, b=self.b + shift, b_size=size, own=self.own + np.diag(noise**2))

    def part(self, chosen: NDArray[np.int64]) -> Sums:
        """Of some neurons."""
        v, size = self.v[:, chosen], self.v_size[:, chosen]
        return replace(self, v=v, v_size=size, spread=self.spread[..., chosen])

    @property
    def deviation(self) -> Array:
        """√C_ii [2, n]"""
        return np.sqrt([self.spread[i, i] for i in (0, 1)])


def sums(form: Form, posterior: Posterior, rows: Array, offsets: Array) -> Sums:
    """rows: one or two [d, O]"""
    require_scale(posterior, (rows,), (offsets,))
    rows = np.concatenate([rows, np.zeros_like(rows)])[:2]
    offsets = np.concatenate([offsets, np.zeros_like(offsets)])[:2]
    out = form.last.matrix(posterior.fields["mean"])
    spread = form.last.matrix(posterior.fields["std"]) ** 2
    v, size = rows @ out.T, np.abs(rows) @ np.abs(out).T
    both = (rows[:, None] * rows) @ spread.T
    return Sums(
        v[:, :-1],
        size[:, :-1],
        both[..., :-1],
        v[:, -1] + offsets,
        size[:, -1] + np.abs(offsets),
        both[..., -1],
        4 * gamma(rows.shape[1]),
    )


@dataclass(frozen=True)
class Series:
    """At s_i = 2π k_i/L_i, k_1 [K] from 0 and k_2 [J] with 0 among them: weights times products so
    far, and what these may be off by; bounds of the weights; and what was left out."""

    first: Array
    second: Array
    length: Array
    value: NDArray[np.complex128]
    wrong: Array
    weight: Array
    lost: float = 0.0

    @property
    def steps(self) -> Array:
        """2π/L"""
        return 2 * math.pi / self.length

    @property
    def largest(self) -> Array:
        """Of |s_1| and of |s_2|, from above [2, 1]."""
        most = np.array([self.first[-1], np.abs(self.second).max()])
        return np.asarray(most * self.steps * HEAVY)[:, None]

    @property
    def off(self) -> Array:
        """Π (1 + ε_k) - 1 <= ε e^ε, ε = Σ ε_k, of weighted products."""
        return np.asarray(self.weight * self.wrong * exp_up(self.wrong) * HEAVY)

    def cropped(self, cut: float) -> Series:
        """Without frequencies beyond all those of which as much is left."""
        size = np.abs(self.value)
        alive = size > cut
        alive[0, self.second == 0] = True
        end = np.flatnonzero(alive.any(1))[-1] + 1
        left, right = np.flatnonzero(alive.any(0))[[0, -1]]
        kept = slice(0, end), slice(left, right + 1)
        rest = size + self.off
        rest[kept] = 0.0
        return Series(
            self.first[kept[0]],
            self.second[kept[1]],
            self.length,
            self.value[kept],
            self.wrong[kept],
            self.weight[kept],
            self.lost + float(rest.sum() * HEAVY),
        )


def work(neurons: int, rows: int, frequencies: int) -> int:
    """How many nodes there are at the most, at every frequency."""
    return max(neurons, FEWEST) * (NODES_OF[rows - 1] * frequencies + OTHERS)


def summed(own: Sums, neurons: Neurons, at: Series) -> tuple[float, float]:
    """Σ weight χ, its real part, and how far it may be off; at: nothing but weights."""
    cut, count = LEFT_OUT / at.value.size, len(neurons.mean)
    left = float(work(count, 1 if len(at.second) == 1 else 2, at.value.size))
    # The first neurons, of most frequencies, need most nodes: few of them at once.
    start, panels = 0, 16
    at = _with_biases(own, at)
    order = _order(own, neurons, at)
    while start < count:
        at = at.cropped(cut)
        part = order[start : start + _together(panels, at)]
        # Of one neuron: the more panels, the fewer neurons are taken together, and those after them
        # will have fewer frequencies.
        share = left / min(4, count - start)
        mine, those = own.part(part), neurons.part(part)
        a, b = (np.abs(mine.v) * at.largest).sum(0), (mine.deviation * at.largest).sum(0) ** 2
        most = share / (at.value.size * 2 * NODES)
        panels, error = those.panels(a * HEAVY, b * HEAVY, most)
        first = np.arange(min(len(part), _together(panels, at)))
        mine, those = mine.part(first), those.part(first)
        weight, f = those.nodes(panels)
        left, start = left - weight.size * at.value.size, start + len(first)
        wrong = at.wrong + _wrong(mine, those, (weight, f), at) + error
        at = replace(at, value=at.value * _product(mine, weight, f, at), wrong=wrong)
    rounding = np.abs(at.value).sum() * 4 * gamma(at.value.size)
    return float(at.value.real.sum()), float((at.lost + at.off.sum() + rounding) * HEAVY)


def _together(panels: int, at: Series) -> int:
    """How many neurons, so that what is held is little."""
    return max(1, AT_ONCE // (2 * panels * NODES * max(len(at.second), RUN)))


def _order(own: Sums, neurons: Neurons, at: Series) -> NDArray[np.int64]:
    """Those first that leave little of high frequencies."""
    linear, square = ((x * at.largest).sum(0) for x in (np.abs(own.v), own.deviation))
    return np.argsort(-(linear * neurons.std + square * (np.abs(neurons.mean) + neurons.std)))


def _with_biases(own: Sums, at: Series) -> Series:
    """e^{i s·b - s'Bs/2}"""
    turns = (at.first * (own.b[0] / at.length[0]))[:, None] + at.second * (own.b[1] / at.length[1])
    cosine, sine = waves(turns)
    size = exponential(-_quadratic(own.own[..., None], at)[0] / 2)
    linear, square = own.share * own.b_size, own.share * np.diag(own.own)
    wrong = _along(at, linear, square) + ARITHMETIC
    return replace(at, value=at.value * ((cosine + 1j * sine) * size), wrong=wrong)


def _wrong(own: Sums, neurons: Neurons, nodes: tuple[Array, Array], at: Series) -> Array:
    """Σ ε_k over some neurons, but for quadrature: of v̄ and C, and of f, by frequency."""
    weight, f = nodes
    first = np.maximum(neurons.absolute, (weight * np.abs(f)).sum(-1))
    second = np.maximum(neurons.squared, (weight * f * f).sum(-1))
    linear = (np.abs(own.v) + own.deviation) @ neurons.off + own.share * (own.v_size @ first)
    square = own.share * (own.deviation**2 @ second)
    each = neurons.beyond + ARITHMETIC + 4 * gamma(f.shape[1])
    return np.asarray((_along(at, linear, square) + each.sum()) * HEAVY)


def _along(at: Series, linear: Array, square: Array) -> Array:
    """Σ_i |s_i| linear_i + s_i² square_i"""
    s = (at.first * at.steps[0])[:, None], np.abs(at.second) * at.steps[1]
    first, second = (s[i] * linear[i] + s[i] ** 2 * square[i] for i in (0, 1))
    return np.asarray(first + second)


def _quadratic(spread: Array, at: Series) -> Array:
    """s'Cs [m, K, J], at least 0, of C [2, 2, m]."""
    k, j = at.first[:, None], at.second
    total: Array = (spread[0, 0] * at.steps[0] ** 2)[:, None, None] * k**2
    total = total + (spread[1, 1] * at.steps[1] ** 2)[:, None, None] * j**2
    total = total + (2 * spread[0, 1] * at.steps[0] * at.steps[1])[:, None, None] * (k * j)
    return np.asarray(np.maximum(total, 0.0))


def _product(own: Sums, weight: Array, f: Array, at: Series) -> NDArray[np.complex128]:
    """Π χ_k [K, J] of some neurons: from k_1 to k_1 + 1 each takes one factor more."""
    spread, v, half = own.spread, own.v / at.length[:, None], f * f / 2
    turned = _stacked(waves((v[1, :, None] * f)[..., None] * at.second))
    bend = spread[0, 0] * at.steps[0] ** 2
    across = (2 * spread[0, 1] * at.steps[0] * at.steps[1])[:, None] * at.second
    factor = exponential(-half[..., None] * across[:, None])[:, :, None]
    run, found = _run(own.deviation, half, at), []
    for start in range(0, len(at.first), run):
        k = at.first[start : start + run]
        size = _quadratic(spread, replace(at, first=k[:1]))[:, 0]
        now = turned * exponential(-half[..., None] * size[:, None])[:, :, None]
        since = bend[:, None] * (k**2 - k[0] ** 2)
        fallen = exponential(-half[:, None] * since[..., None])
        ahead = _stacked(waves((v[0, :, None] * f)[:, None] * k[:, None]))
        left = ahead * (weight[:, None] * fallen)[:, :, None]
        for j in range(len(k)):
            now = now * factor if j else now
            found.append(left[:, j] @ now.reshape(*half.shape, -1))
    both = np.stack(found, 1).reshape(len(f), len(at.first), 2, 2, -1)
    real, imaginary = both[:, :, 0, 0] - both[:, :, 1, 1], both[:, :, 0, 1] + both[:, :, 1, 0]
    return np.asarray((real + 1j * imaginary).prod(0), np.complex128)


def _run(deviation: Array, half: Array, at: Series) -> int:
    """How many k_1 on end: neither what is multiplied nor a factor grows beyond e^GROWTH then."""
    bend = deviation * at.steps[:, None]
    most = bend[0] * (at.first[-1] + RUN) + bend[1] * np.abs(at.second).max()
    growth = float((2 * half.max(-1) * bend[0] * most).max())
    return int(np.clip(GROWTH / growth, 1, RUN)) if growth > 0 else RUN


def _stacked(parts: tuple[Array, Array]) -> Array:
    return np.stack(parts, -2)
