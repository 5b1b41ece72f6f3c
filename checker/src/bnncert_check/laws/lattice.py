"""P(β + Σ_i T_i - K - u <= L g⁺) from above, on a lattice.

A part of a cell is an atom at Y = E I - λ(d_z² + d_v²)/24, I bilinear on the cell, d its ranges
over the part; then with E exponential of rate λ

    P(Σ I + R <= 0) <= P(Σ Y + R - E <= 0),

since a tilted truncated Gaussian is log-concave on a segment, of variance at most width²/12. Atoms
are spread to two points of the lattice each: the noise of that exceeds w with a chance of at most
h = exp(-2w²/(n Δ²)). Sums are cyclic in a window: above it they count as failed, below it they are
charged by Chernoff's bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bnncert_check.arithmetic import UNIT, Array, up, upper_float
from bnncert_check.laws.cells import Cells
from bnncert_check.laws.exponentials import exp_up, log_up, signed_tails_up

CELLS = 24.0  # λ²d²/24 of a log-concave law on a segment
ROUNDING = 2.0**-40
TRANSFORM = 32.0  # units of rounding a stage of a fast Fourier transform (Higham, theorem 24.2: 10)


@dataclass(frozen=True)
class Choice:
    """Step Δ and lowest index of the window, rate λ, curb κ', noise h, and the tilt of Chernoff's
    bound. A rate or a curb of 0 is none."""

    step: float
    low: int
    rate: float
    curb: float
    noise: float
    tilt: float


@dataclass(frozen=True)
class Ends:
    """β's mean from below and its standard deviation, and K + u from above."""

    beta: float
    beta_std: float
    least: float


@dataclass(frozen=True)
class Summed:
    """Of independent terms, which need not be held: the product of their laws' transforms; the
    product of their masses, each at least 1, and the sum of their laws' norms; Σ log E e^{-tilt X}
    from above; and the mass that their laws leave out."""

    count: int
    spectrum: NDArray[np.complex128]
    heavy: float
    norms: float
    moments: arb
    lost: float

    def with_others(self, other: Summed) -> Summed:
        return Summed(
            self.count + other.count,
            self.spectrum * other.spectrum,
            self.heavy * other.heavy,
            self.norms + other.norms,
            self.moments + other.moments,
            float(np.nextafter(self.lost + other.lost, np.inf)),
        )


def failing(terms: Summed, choice: Choice, size: int, ends: Ends) -> arb:
    """Of one row, whose neurons are summed."""
    every = terms.with_others(_summed(*_others(ends, choice, size), choice))
    noise = choice.step * (terms.count * (1 / arb(choice.noise)).log() / 2).sqrt()
    end = (arb(ends.least) + noise) / choice.step  # which may be beyond all floats
    if not (end >= choice.low and end < choice.low + size):
        return arb(1)
    last = math.floor(upper_float(end))
    sums, error = _convolved(every, size)
    indices = np.arange(choice.low, last + 1) % size
    tail = arb(float(up(sums[indices].sum() + error))) + every.lost
    below = (every.moments + arb(choice.tilt) * choice.low * arb(choice.step)).exp()
    return (tail + below) / (1 - arb(choice.noise))


@dataclass(frozen=True)
class Terms:
    """T and (a p̄)² at the corners [n, K, L, 2, 2] of a row's cells of z and of v; floored: whether
    no atom is put below the least corner of its part."""

    value: Array
    squared: Array
    first: Cells
    second: Cells
    floored: bool = False


def neurons(terms: Terms, choice: Choice, size: int) -> Summed:
    """Of one row."""
    if not choice.curb and terms.squared.any():  # nothing stands for L g
        return replace(_summed(np.ones((1, size)), 1.0, choice), count=len(terms.value))
    place, mass = _atoms(terms, choice)
    return _summed(*_spread(place, mass, choice.step, size), choice)


@dataclass(frozen=True)
class Products:
    """Independent terms that are products of independent factors, by parts of cells, [n, P]: means
    from below, how far a part's points may be from there, coordinate by coordinate, in all and
    squared; and masses from above."""

    mean: Array
    drop: Array
    squared: Array
    mass: Array


def products(terms: Products, choice: Choice, size: int) -> Summed:
    """Of one row; no atom is put below the least corner of its part."""
    place = terms.mean - _loss(terms.drop, terms.squared, choice, floored=True)
    return _summed(*_spread(place, terms.mass, choice.step, size), choice)


def _atoms(terms: Terms, choice: Choice) -> tuple[Array, Array]:
    """Y from below and masses from above, [n, P]."""
    value, first, second = terms.value - up(choice.curb * terms.squared), terms.first, terms.second
    x, y = first.place[:, :, :, None, None], second.place[:, None, None, :, :]
    here, along = value[:, :, None, :, None, 0, 0], value[:, :, None, :, None, 1, 0]
    over, both = value[:, :, None, :, None, 0, 1], value[:, :, None, :, None, 1, 1]
    by_z, by_v = along - here, over - here
    twist = both - along - by_v
    steep_z = _steepest(by_z, twist, second.mass.shape[-1], 4)
    steep_v = _steepest(by_v, twist, first.mass.shape[-1], 2)
    place = here + x * by_z + y * (by_v + x * twist)
    size = np.abs(here) + np.abs(along) + np.abs(over) + np.abs(both)
    place = place - 32 * UNIT * size
    # Where the conditional means may be off; both slopes hold over the whole part.
    place = place - steep_z * first.off[:, :, :, None, None]
    place = place - steep_v * second.off[:, None, None, :, :]
    wide_z = (steep_z + 16 * UNIT * size) / first.mass.shape[-1]
    wide_v = (steep_v + 16 * UNIT * size) / second.mass.shape[-1]
    loss = _loss(wide_z + wide_v, wide_z**2 + wide_v**2, choice, floored=terms.floored)
    place = place - loss
    mass = first.mass[:, :, :, None, None] * second.mass[:, None, None, :, :]
    return place.reshape(len(place), -1), up(mass).reshape(len(place), -1)


def _loss(drop: Array, squared: Array, choice: Choice, *, floored: bool) -> Array:
    """From the mean of a part down to its atom; drop: to the part's least corner."""
    loss = drop
    if choice.rate:
        loss = choice.rate / CELLS * squared
    if floored:
        loss = np.minimum(loss, drop)
    return np.asarray(loss * (1 + ROUNDING))


def _steepest(slope: Array, twist: Array, parts: int, axis: int) -> Array:
    """The largest slope in one coordinate over each part of the other, along `axis`."""
    shape = [1] * 5
    shape[axis] = parts + 1
    ends = np.abs(slope + (np.arange(parts + 1) / parts).reshape(shape) * twist)
    ends = np.moveaxis(ends, axis, 0)
    return np.moveaxis(np.maximum(ends[:-1], ends[1:]), 0, axis)


def _spread(place: Array, mass: Array, step: float, size: int) -> tuple[Array, float]:
    """Laws [n, size] with index k in place k mod size, each atom with a mean no more than its own;
    and the mass of what is too low for the lattice."""
    exact = np.minimum(place / step, size // 2 - 2)
    index = np.floor(exact)
    low = index < -(size // 2)
    lost = float(up(mass[low].sum() * (1 + ROUNDING)))
    mass = np.where(low, 0.0, mass)
    right = mass * np.maximum(exact - index - (ROUNDING + size * UNIT), 0.0)
    where = np.where(low, 0, index).astype(np.int64) & (size - 1)  # mod a power of 2
    start = (np.arange(len(place)) * size)[:, None]
    count = len(place) * size
    found = np.bincount((start + where).reshape(-1), (mass - right).reshape(-1), count)
    found += np.bincount((start + ((where + 1) & (size - 1))).reshape(-1), right.reshape(-1), count)
    # One mass is added after the other.
    laws: Array = np.asarray(found * (1 + 2 * ROUNDING + 2 * place.shape[-1] * UNIT), np.float64)
    return laws.reshape(len(place), size), lost


def _others(ends: Ends, choice: Choice, size: int) -> tuple[Array, float]:
    """Laws [3, size], rounded down, of β, of -E and of -(g⁺)²/4κ', and the mass they leave out."""
    at: Array = (np.arange(size + 1) - size // 2) * np.float64(choice.step)
    after, before = (at > 0).astype(np.float64), np.minimum(at, 0)
    beta, rate, curb = (~(at <= ends.beta)).astype(np.float64), after, after
    if ends.beta_std:
        beta = signed_tails_up((ends.beta - at) / ends.beta_std)
    if choice.rate:
        rate = exp_up(choice.rate * before)
    if choice.curb:
        root = np.sqrt(np.maximum(-4 * (choice.curb * before), 0))
        curb = np.where(at > 0, 1.0, signed_tails_up(root))
    # P(X < kΔ), each from above by less than a rounding: masses between them, from above.
    chances = np.stack([beta, rate, curb])
    chances[:, -1] = 1.0  # what is above is put at the top
    slack = ROUNDING * chances[:, 1:]
    masses = np.maximum(chances[:, 1:] - chances[:, :-1], 0) + slack
    missing = float(up(chances[:, 0].sum() * (1 + ROUNDING)))
    return np.roll(masses, -(size // 2), -1), missing


def _summed(laws: Array, lost: float, choice: Choice) -> Summed:
    """Of laws [n, size] with index k in place k mod size."""
    spectrum = np.fft.rfft(laws[0])
    for law in laws[1:]:
        spectrum = spectrum * np.fft.rfft(law)
    return Summed(
        len(laws),
        spectrum,
        float(np.maximum(laws.sum(-1), 1.0).prod()),  # masses may be a little more than 1
        float(np.sqrt((laws * laws).sum(-1)).sum()),
        _moments(laws, choice),
        lost,
    )


def _convolved(found: Summed, size: int) -> tuple[Array, float]:
    """The law of the sum, cyclic, and what its transforms may be off by over any set of indices.

    A transform's error is at most TRANSFORM u log2 N of its norm; a product of factors that are at
    most 1 adds their errors; sums of N entries are at most √N times their norm.
    """
    stages = TRANSFORM * UNIT * math.log2(size)
    heavy = found.heavy * (1 + ROUNDING)
    off = (stages * math.sqrt(size) * found.norms + 8 * found.count * UNIT) * heavy**2
    error = math.sqrt(size) * (off + stages * heavy) * (1 + ROUNDING) + 2 * size * UNIT
    return np.fft.irfft(found.spectrum, size), error


def _moments(laws: Array, choice: Choice) -> arb:
    """Σ log E e^{-tilt X}, from above, for P(sum < low Δ) <= e^{tilt low Δ} Π E e^{-tilt X}; also
    for the true laws, which are below."""
    size = laws.shape[-1]
    k = np.arange(size)
    at = np.where(k < size // 2, k, k - size) * choice.step
    moments = (laws @ exp_up(-choice.tilt * at)) * (1 + ROUNDING + 2 * size * UNIT)
    total = arb(float(np.sum(up(log_up(moments)))))
    return total + arb(ROUNDING) * arb(float(np.abs(log_up(moments)).sum()))
