"""A row's failure by its law: the lattice and the curb that are best, of a few.

P(β + Σ T - K - u <= L g⁺) + η
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.laws.corners import Grid
from bnncert.laws.head import Margins
from bnncert.laws.lattice import (
    NOISES,
    TILTS,
    Atoms,
    Choice,
    atoms,
    below,
    best_rate,
    convolved,
    noise_reach,
    others,
    shifted,
    spread,
)
from bnncert.laws.remainder import Remainder

CURB = 0.5  # κ', in units of 1/L
TERMS = 6.0  # standard deviations of a term that the lattice holds at the least
FARTHEST = 600.0  # of exponents
SPARE = 2.0**-26  # of a standard deviation, and of a probability: what a checker may lose more
FFT_SPARE = 2.0


@dataclass(frozen=True, eq=False)
class Ready:
    """All that does not depend on the row's lattice: T and (a p̄)² at the corners, by row; the
    lattice's size; the window's reach to either side in standard deviations of the sum; and whether
    no atom is put below the least corner of its part."""

    rows: Margins
    at: Grid
    corners: Callable[[int], tuple[Tensor, Tensor]]
    size: int
    wide: float
    floored: bool


@dataclass(frozen=True, eq=False)
class Terms:
    """A sum of independent terms: neurons as atoms, β, and κ' of what moves; the lattice's size,
    its window's reach, and whether no atom is put below the least corner of its part."""

    atoms: Atoms
    beta: float
    beta_std: float
    size: int
    wide: float
    floored: bool
    curb: float = 0.0


def best_row(
    ready: Ready, row: int, left: float, options: tuple[Remainder, ...]
) -> tuple[float, Choice, Remainder]:
    """A bound of the row's failure, and what gave it."""
    rows, at = ready.rows, ready.at
    value, squared = ready.corners(row)
    curb = _curb(at, squared, row)
    found = atoms(value - curb * squared, at, row)
    beta, std = float(rows.beta[row]), float(rows.beta_std[row])
    terms = Terms(found, beta, std, ready.size, ready.wide, ready.floored, curb)
    spare = SPARE * abs(left)
    known = failures(terms, [left + option.most + spare for option in options])
    pairs = zip(known, options, strict=True)
    each = [(fail + option.chance * (1 + SPARE), own, option) for (fail, own), option in pairs]
    failure, own, option = min(each, key=lambda one: one[0])
    return min(failure, 1.0), own, option


def failures(terms: Terms, reaches: Sequence[float]) -> list[tuple[float, Choice]]:
    """Bounds of P(sum <= reach), and what gave them."""
    found, size = terms.atoms, terms.size
    rate = best_rate(found)
    place = shifted(found, rate, terms.floored)
    mean, std, apart = _moments(found, place, terms.beta, terms.beta_std)
    start = reaches[len(reaches) // 2]
    low, high = min(mean, start) - terms.wide * std, max(mean, start) + terms.wide * std
    if not math.isfinite(high - low + apart):  # numbers that laws are not for: nothing is said
        return [(1.0, Choice(1.0, 0, 0.0, 0.0, 0.5, 1.0))] * len(reaches)
    span = max(high - low, 2 * apart, 1e-200)
    step = 2.0 ** math.ceil(math.log2(span / (size - 8)))
    if span > high - low:  # what is to spare lies below: nothing that is beyond counts there
        low = high - (size - 8) * step
    choice = Choice(step, math.floor(low / step), rate, terms.curb, 0.5, 1.0)
    laws, lost = spread(place, found.mass, step, size)
    rest, missing = others(terms.beta, terms.beta_std, choice, size, laws.device)
    every = torch.cat([laws, rest])
    total = convolved(every)
    # No exponent within the lattice may overflow.
    most = FARTHEST / (size // 2 * step)
    tilts = [min(t / max(std, step), most) for t in TILTS]
    tilt = min(tilts, key=lambda t: below(every, choice.low, step, t))
    extra = lost + missing + below(every, choice.low, step, tilt)
    reached = total.law.roll(-choice.low).cumsum(0)  # from the window's low end on
    each = []
    for reach in reaches:
        best = 1.0, replace(choice, tilt=tilt)
        for noise in NOISES:
            farthest = reach + SPARE * std + noise_reach(len(laws), noise, step)
            last = math.floor(farthest / step) - choice.low
            if 0 <= last < size:
                tail = max(0.0, float(reached[last])) + FFT_SPARE * total.error + extra
                failure = tail / (1 - noise) * (1 + SPARE)
                if failure < best[0]:
                    best = failure, replace(choice, noise=noise, tilt=tilt)
        each.append(best)
    return each


def _curb(at: Grid, squared: Tensor, row: int) -> float:
    """κ' of L g⁺ <= κ' L² + (g⁺)²/4κ', by the mean of L²."""
    first, second = at.first.corners, at.second.corners[row]
    mass = first[:, :, None, :, None] * second[:, None, :, None, :]
    mean = float((mass * squared).sum())
    return CURB / math.sqrt(mean) if mean > 0 else 0.0


def _moments(found: Atoms, place: Tensor, beta: float, std: float) -> tuple[float, float, float]:
    """Mean and standard deviation of the sum, and how far from 0 its terms are: each has a law on
    the lattice, which must hold it, however little all of them together vary."""
    first = (found.mass * place).sum(-1)
    variance = ((found.mass * place**2).sum(-1) - first**2).clamp_min(0)
    farthest = float((first.abs() + TERMS * variance.sqrt()).amax())
    together = math.sqrt(float(variance.sum()) + std**2)
    return float(first.sum()) + beta, together, max(farthest, abs(beta) + TERMS * std)
