"""P(all rows <= 0) at a point for one or two rows: a Fourier series of the indicator on a window,
and what it leaves out.

With windows [low, low + L] that hold 0, g_i the indicator of S_i <= 0 continued with period L_i,

    | P(all S_i <= 0) - Σ_{|k_i| <= K_i} Π ĝ_{i k_i} χ(2π k_i/L_i) |
        <=  P(some |g_k| > T) + Σ_i (tails of S_i beyond its window) + truncation + errors of χ.

A row may be made smoother: S + η g' - T' η is at most 0 where S is and g' <= T', S + η g' + T' η
nowhere else where g' >= -T'.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bnncert_check.joint.neurons import Neurons
from bnncert_check.joint.rests import Window, beyond, truncation
from bnncert_check.joint.sums import Series, Sums, summed
from bnncert_check.joint.waves import waves
from bnncert_check.tails import normal_tail

SMOOTH = 6.0  # T'
COEFFICIENT = 2.0**-45  # error of ĝ


@dataclass(frozen=True)
class Joint:
    """Of one row or two: their numbers, K and a window of each."""

    rows: tuple[int, ...]
    terms: tuple[int, ...]
    windows: tuple[Window, ...]


def above(own: Sums, neurons: Neurons, law: Joint) -> arb:
    """P(all rows <= 0), from above."""
    value, error = _around(own, neurons, law, -1.0)
    found = arb(value) + arb(error)
    return found if found < 1 else arb(1)


def below(own: Sums, neurons: Neurons, law: Joint) -> arb:
    value, error = _around(own, neurons, law, 1.0)
    found = arb(value) - arb(error)
    return found if found > 0 else arb(0)


def _around(own: Sums, neurons: Neurons, law: Joint, side: float) -> tuple[float, float]:
    """The series of the smoothed rows, and how far P(all rows <= 0) may be on one side of it."""
    noise = np.zeros(2)
    noise[: len(law.windows)] = [window.noise for window in law.windows]
    smooth = own.shifted(side * SMOOTH * noise, noise)
    value, error = _series(smooth, neurons, law)
    error += truncation(smooth, neurons, law.windows, law.terms)
    error += beyond(smooth, neurons, law.windows)
    error += np.count_nonzero(noise) * float(normal_tail(arb(SMOOTH)).upper())
    return value, float(error * (1 + 2.0**-40))


def _series(own: Sums, neurons: Neurons, law: Joint) -> tuple[float, float]:
    """Half of the plane: every other term is another's conjugate."""
    found = [_coefficients(*each) for each in zip(law.windows, law.terms, strict=True)]
    lengths = [window.length for window in law.windows]
    first, second = [*found, np.ones(1, complex)][:2]
    second = np.concatenate([second[:0:-1].conj(), second])
    k, j = (np.arange(len(part), dtype=np.float64) for part in (first, second))
    twice = np.where(k > 0, 2.0, 1.0)[:, None]
    value = twice * np.outer(first, second)
    most = twice * np.outer(np.abs(first) + COEFFICIENT, np.abs(second) + COEFFICIENT)
    length = np.array([*lengths, 1.0][:2])
    at = Series(k, j - len(j) // 2, length, value, np.zeros(value.shape), most)
    total, error = summed(own, neurons, at)
    return total, error + float((most - np.abs(value)).sum())


def _coefficients(window: Window, terms: int) -> NDArray[np.complex128]:
    """ĝ_k, k from 0 to K: (1/L) ∫ e^{-2πikx/L} dx from low to 0."""
    k = np.arange(1, terms + 1, dtype=np.float64)
    cosine, sine = waves(k * (window.low / window.length))
    rest = (-sine + 1j * (1 - cosine)) / (2 * math.pi * k)
    found: NDArray[np.complex128] = np.concatenate([[-window.low / window.length], rest])
    return found
