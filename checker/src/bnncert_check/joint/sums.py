"""One or two output rows at a point, S_i = β_i + Σ_k v_ik f(z_k), and their characteristic function

    χ(s) = e^{i s·b - s'Bs/2} Π_k χ_k(s),   χ_k(s) = E e^{i f(z_k) s·v̄_k - f(z_k)² s'C_k s/2}.

One row has a second beside it that is 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array, gamma, up
from bnncert_check.joint.neurons import HEAVY, Neurons
from bnncert_check.joint.waves import waves
from bnncert_check.laws.exponentials import exp_up, exponential
from bnncert_check.laws.rows import Form, require_scale
from bnncert_check.model import Posterior

AT_ONCE = 2**16  # numbers of some neurons at nodes and frequencies
RUN, GROWTH = 8, 600.0  # frequencies on end that are found by products; e^GROWTH is a float
ARITHMETIC = 2.0**-42  # of waves, weights, places and powers of them, of one neuron


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
class Frequencies:
    """s_i = 2π k_i / L_i: k_1 [K + 1] from 0, and k_2 [J] to both sides of 0; L [2]."""

    first: Array
    second: Array
    length: Array

    @property
    def steps(self) -> Array:
        """2π / L"""
        return 2 * math.pi / self.length

    @property
    def largest(self) -> Array:
        """Of s_1 and of s_2, from above [2]."""
        return np.asarray([self.first[-1], self.second[-1]]) * self.steps * HEAVY


def characteristic(
    own: Sums, neurons: Neurons, at: Frequencies
) -> tuple[NDArray[np.complex128], Array]:
    """χ [K + 1, J], and what it may be off by."""
    found = _others(own, at)
    for part in _parts(neurons, at):
        found = found * _product(own, neurons, part, at)
    return found, _error(own, neurons, at)


def _others(own: Sums, at: Frequencies) -> NDArray[np.complex128]:
    """e^{i s·b - s'Bs/2}"""
    turns = np.add.outer(
        at.first * (own.b[0] / at.length[0]), at.second * (own.b[1] / at.length[1])
    )
    cosine, sine = waves(turns)
    size = exponential(-_quadratic(own.own[..., None], at.steps, at.first, at.second)[0] / 2)
    return np.asarray((cosine + 1j * sine) * size, np.complex128)


def _quadratic(spread: Array, steps: Array, first: Array, second: Array) -> Array:
    """s'Cs [m, K + 1, J], at least 0, of C [2, 2, m]."""
    k, j = first[:, None], second
    total: Array = (spread[0, 0] * steps[0] ** 2)[:, None, None] * k**2
    total = total + (spread[1, 1] * steps[1] ** 2)[:, None, None] * j**2
    total = total + (2 * spread[0, 1] * steps[0] * steps[1])[:, None, None] * (k * j)
    return np.asarray(np.maximum(total, 0.0))


def _parts(neurons: Neurons, at: Frequencies) -> Iterator[slice]:
    count, nodes = neurons.value.shape
    each = max(1, AT_ONCE // (nodes * 2 * max(len(at.second), RUN)))
    return (slice(start, start + each) for start in range(0, count, each))


def _product(own: Sums, neurons: Neurons, part: slice, at: Frequencies) -> NDArray[np.complex128]:
    """Π χ_k [K + 1, J] of some neurons: from k_1 to k_1 + 1 each takes one factor more."""
    f, weight = neurons.value[part], neurons.weight[part]
    spread, v = own.spread[..., part], own.v[:, part] / at.length[:, None]
    half = f * f / 2
    turned = _stacked(waves((v[1, :, None] * f)[..., None] * at.second))
    bend = spread[0, 0] * at.steps[0] ** 2
    across = (2 * spread[0, 1] * at.steps[0] * at.steps[1])[:, None] * at.second
    factor = exponential(-half[..., None] * across[:, None])[:, :, None]
    run, found = _run(spread, half, at), []
    for start in range(0, len(at.first), run):
        k = at.first[start : start + run]
        size = _quadratic(spread, at.steps, k[:1], at.second)[:, 0]
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


def _run(spread: Array, half: Array, at: Frequencies) -> int:
    """How many k_1 on end: neither what is multiplied nor a factor grows beyond e^GROWTH then."""
    bend = [np.sqrt(spread[i, i]) * at.steps[i] for i in (0, 1)]
    most = bend[0] * (at.first[-1] + RUN) + bend[1] * at.second[-1]
    growth = (2 * half.max(-1) * bend[0] * most).max()
    return int(np.clip(GROWTH / growth, 1, RUN)) if growth > 0 else RUN


def _stacked(parts: tuple[Array, Array]) -> Array:
    return np.stack(parts, -2)


def _error(own: Sums, neurons: Neurons, at: Frequencies) -> Array:
    """Π (1 + ε_k) - 1 <= ε e^ε, ε = Σ ε_k; what v̄, C and f are off by goes with the frequency."""
    v, deviation = np.abs(own.v), np.sqrt([own.spread[i, i] for i in (0, 1)])
    most = at.largest[:, None]
    each = neurons.quadrature((v * most).sum(0) * HEAVY, ((deviation * most).sum(0)) ** 2 * HEAVY)
    each = each + neurons.beyond + ARITHMETIC + 4 * gamma(neurons.value.shape[1])
    linear = (v + deviation) @ neurons.off
    linear = linear + own.share * (own.v_size @ neurons.absolute + own.b_size)
    square = [own.spread[i, i] @ neurons.squared + own.own[i, i] for i in (0, 1)]
    total = np.full((len(at.first), len(at.second)), each.sum() + ARITHMETIC)
    sides = (at.first * at.steps[0])[:, None], np.abs(at.second) * at.steps[1]
    for s, first, second in zip(sides, linear, square, strict=True):
        total = total + s * first + own.share * s**2 * second
    total = total * HEAVY
    return np.asarray(up(total * exp_up(total)))
