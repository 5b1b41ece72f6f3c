"""A row's failure by its law: the lattice and the curb that are best, of a few.

P(β + Σ T - K - u <= L g⁺) + η
"""

from __future__ import annotations

import math
from collections.abc import Callable
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


def best_row(
    ready: Ready, row: int, left: float, options: tuple[Remainder, ...]
) -> tuple[float, Choice, Remainder]:
    """A bound of the row's failure, and what gave it."""
    value, squared = ready.corners(row)
    curb = _curb(ready.at, squared, row)
    found = atoms(value - curb * squared, ready.at, row)
    return on_lattice(ready, row, found, (best_rate(found), curb), left, options)


def on_lattice(
    ready: Ready,
    row: int,
    found: Atoms,
    chosen: tuple[float, float],
    left: float,
    options: tuple[Remainder, ...],
) -> tuple[float, Choice, Remainder]:
    """The same for atoms and a rate and a curb."""
    rows, (rate, curb) = ready.rows, chosen
    place = shifted(found, rate, ready.floored)
    mean, std, apart = _moments(found, place, float(rows.beta[row]), float(rows.beta_std[row]))
    start = left + options[len(options) // 2].most
    low, high = min(mean, start) - ready.wide * std, max(mean, start) + ready.wide * std
    if not math.isfinite(high - low + apart):  # numbers that laws are not for: nothing is said
        return 1.0, Choice(1.0, 0, 0.0, 0.0, 0.5, 1.0), options[0]
    span = max(high - low, 2 * apart, 1e-200)
    step = 2.0 ** math.ceil(math.log2(span / (ready.size - 8)))
    if span > high - low:  # what is to spare lies below: nothing that is beyond counts there
        low = high - (ready.size - 8) * step
    choice = Choice(step, math.floor(low / step), rate, curb, 0.5, 1.0)
    laws, lost = spread(place, found.mass, step, ready.size)
    beta, beta_std = float(rows.beta[row]), float(rows.beta_std[row])
    rest, missing = others(beta, beta_std, choice, ready.size, laws.device)
    every = torch.cat([laws, rest])
    total = convolved(every)
    # No exponent within the lattice may overflow.
    most = FARTHEST / (ready.size // 2 * step)
    tilts = [min(t / max(std, step), most) for t in TILTS]
    tilt = min(tilts, key=lambda t: below(every, choice.low, step, t))
    extra = lost + missing + below(every, choice.low, step, tilt)
    reached = total.law.roll(-choice.low).cumsum(0)  # from the window's low end on
    best = (1.0, replace(choice, tilt=tilt), options[0])
    for option in options:
        for noise in NOISES:
            reach = (
                left + option.most + SPARE * (std + abs(left)) + noise_reach(len(laws), noise, step)
            )
            last = math.floor(reach / step) - choice.low
            if 0 <= last < ready.size:
                tail = max(0.0, float(reached[last])) + FFT_SPARE * total.error + extra
                failure = (tail / (1 - noise) + option.chance) * (1 + SPARE)
                if failure < best[0]:
                    best = failure, replace(choice, noise=noise, tilt=tilt), option
    return best


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
