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
    Sum,
    atoms,
    below,
    best_rate,
    convolved,
    noise_reach,
    others,
    shifted,
    spread,
)
from bnncert.laws.remainder import Remainders

CURB = 0.5  # κ', in units of 1/L
TERMS = 6.0  # standard deviations of a term that the lattice holds at the least
FARTHEST = 600.0  # of exponents
LARGEST = 2.0**900  # of numbers that laws are for
SPARE = 2.0**-26  # of a standard deviation, and of a probability: what a checker may lose more
FFT_SPARE = 2.0


@dataclass(frozen=True, eq=False)
class Ready:
    """All that does not depend on the row's lattice, of B inputs: T and (a p̄)² at the corners, by
    row; the lattice's size; the window's reach to either side in standard deviations of the sum;
    and whether no atom is put below the least corner of its part."""

    rows: Margins
    at: Grid
    corners: Callable[[int], tuple[Tensor, Tensor]]
    size: int
    wide: float
    floored: bool


@dataclass(frozen=True, eq=False)
class Bound:
    """Of rows of B inputs bounds of their failure, and what gave them: the numbers of a choice
    [..., 6], and share, scale and chance of a remainder [..., 3]."""

    failure: Tensor
    numbers: Tensor
    remainder: Tensor


@dataclass(frozen=True, eq=False)
class Terms:
    """Sums of independent terms, of B inputs: the neurons as atoms, their rate λ, the curb κ' of
    what moves, β and its deviation, each [B]; the lattice's size, its window's reach, and whether
    no atom is put below the least corner of its part."""

    atoms: Atoms
    rate: Tensor
    curb: Tensor
    beta: Tensor
    beta_std: Tensor
    size: int
    wide: float
    floored: bool


@dataclass(frozen=True, eq=False)
class Failures:
    """Bounds of P(sum <= reach) [B, C], at most 1, and the numbers of choices that gave them
    [B, C, 6]."""

    failure: Tensor
    numbers: Tensor


def best_rows(ready: Ready, left: Tensor, options: Remainders) -> Bound:
    """Of R rows with remainders [B, R, C] that lose `left` [B, R] besides, on the processor."""
    each = [_best_row(ready, r, left[:, r], options.of(r)) for r in range(left.shape[1])]
    found = [(one.failure, one.numbers, one.remainder) for one in each]
    return Bound(*(torch.stack(x, 1).cpu() for x in zip(*found, strict=True)))


def _best_row(ready: Ready, row: int, left: Tensor, options: Remainders) -> Bound:
    """Of rows with remainders [B, C] that lose `left` [B] besides; the first where none helps."""
    lost = left + SPARE * left.abs()
    known = failures(_terms(ready, row), lost.unsqueeze(-1) + options.most)
    failure, best = (known.failure + options.chance * (1 + SPARE)).min(-1, keepdim=True)
    best = torch.where(failure < 1, best, 0)
    each = (options.share, options.scale, options.chance)
    kept = torch.cat([x.gather(-1, best) for x in each], -1)
    numbers = known.numbers.take_along_dim(best.unsqueeze(-1), 1).squeeze(1)
    return Bound(failure.squeeze(-1).clamp_max(1), numbers, kept)


def _terms(ready: Ready, row: int) -> Terms:
    rows, at = ready.rows, ready.at
    value, squared = ready.corners(row)
    curb = _curb(at, squared, row)
    found = atoms(value - curb[:, None, None, None, None, None] * squared, at, row)
    rest = rows.beta[:, row], rows.beta_std[:, row]
    return Terms(found, best_rate(found), curb, *rest, ready.size, ready.wide, ready.floored)


def failures(terms: Terms, reaches: Tensor) -> Failures:
    """Of reaches [B, C], all on the lattice that is for the middle one."""
    place = shifted(terms.atoms, terms.rate, terms.floored)
    mean, std, apart = _moments(terms, place)
    known = torch.stack([mean, std, apart, reaches[:, reaches.shape[-1] // 2]], -1)
    sure = (known.abs() < LARGEST).all(-1)  # of others nothing is said
    choice = _lattice(terms, known, sure)
    rest, missing = others(terms.beta, terms.beta_std, choice, terms.size)
    laws, lost = spread(place, terms.atoms.mass, choice.step, terms.size, rest.shape[-2])
    laws[..., -rest.shape[-2] :, :] = rest
    tilt, beneath = _tilted(laws, choice, std)
    choice = replace(choice, tilt=torch.where(sure, tilt, 1.0))
    extra = torch.where(sure, lost + missing + beneath, torch.inf)
    farther = reaches + SPARE * std.unsqueeze(-1)
    return _least(convolved(laws), choice, farther, extra, place.shape[-2])


def _curb(at: Grid, squared: Tensor, row: int) -> Tensor:
    """κ' of L g⁺ <= κ' L² + (g⁺)²/4κ', by the mean of L²."""
    first, second = at.first.corners, at.second.corners[:, row]
    mass = first[:, :, :, None, :, None] * second[:, :, None, :, None, :]
    mean = (mass * squared).sum((1, 2, 3, 4, 5))
    return torch.where(mean > 0, CURB / mean.sqrt(), 0.0)


def _moments(terms: Terms, place: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and standard deviation of the sum, and how far from 0 its terms are: each has a law on
    the lattice, which must hold it, however little all of them together vary."""
    mass, beta, beta_std = terms.atoms.mass, terms.beta, terms.beta_std
    first = (mass * place).sum(-1)
    variance = ((mass * place**2).sum(-1) - first**2).clamp_min(0)
    farthest = (first.abs() + TERMS * variance.sqrt()).amax(-1)
    together = (variance.sum(-1) + beta_std**2).sqrt()
    return first.sum(-1) + beta, together, torch.maximum(farthest, beta.abs() + TERMS * beta_std)


def _lattice(terms: Terms, known: Tensor, sure: Tensor) -> Choice:
    windows = [_window(terms, *one) for one in known.where(sure[:, None], 1.0).tolist()]
    step, low = known.new_tensor(windows).unbind(-1)
    rate, curb = (torch.where(sure, x, 0.0) for x in (terms.rate, terms.curb))
    return Choice(step, low, rate, curb, torch.full_like(step, 0.5), torch.ones_like(step))


def _window(
    terms: Terms, mean: float, std: float, apart: float, start: float
) -> tuple[float, float]:
    """The lattice's step, a power of 2, and the lowest index of the window about the sum's mean and
    about where it counts."""
    low, high = min(mean, start) - terms.wide * std, max(mean, start) + terms.wide * std
    span = max(high - low, 2 * apart, 1e-200)
    step = 2.0 ** math.ceil(math.log2(span / (terms.size - 8)))
    if span > high - low:  # what is to spare lies below: nothing that is beyond counts there
        low = high - (terms.size - 8) * step
    return step, float(math.floor(low / step))


def _tilted(laws: Tensor, choice: Choice, std: Tensor) -> tuple[Tensor, Tensor]:
    """The best tilt of Chernoff's bound, and that bound."""
    step = choice.step
    # No exponent within the lattice may overflow.
    most = FARTHEST / (laws.shape[-1] // 2 * step)
    tilts = step.new_tensor(TILTS)
    tilts = (tilts / torch.maximum(std, step)[:, None]).minimum(most[:, None])
    least, best = below(laws, choice.low, step, tilts).min(-1)
    return tilts.gather(-1, best[:, None]).squeeze(-1), least


def _least(total: Sum, choice: Choice, reaches: Tensor, extra: Tensor, terms: int) -> Failures:
    """Of all noises the least failure, at each reach [B, C], with an extra probability [B]; 1 where
    none is less."""
    low, step = (x[:, None, None] for x in (choice.low, choice.step))
    noise = step.new_tensor(NOISES)
    last = ((reaches.unsqueeze(-1) + noise_reach(terms, noise, step)) / step).floor() - low
    inside = (last >= 0) & (last < total.law.shape[-1])
    where = torch.where(inside, last, 0.0).long()
    tail = total.reached(choice.low).clamp_min(0).gather(-1, where.flatten(1)).view_as(where)
    tail = tail + (FFT_SPARE * total.error + extra)[:, None, None]
    failure = torch.where(inside, tail / (1 - noise) * (1 + SPARE), torch.inf)
    failure, best = failure.min(-1)
    better = failure < 1
    best_noise = torch.where(better, noise[best], choice.noise.unsqueeze(-1))
    step, low, rate, curb, tilt = (
        x.unsqueeze(-1).expand_as(failure)
        for x in (choice.step, choice.low, choice.rate, choice.curb, choice.tilt)
    )
    numbers = torch.stack([step, low, rate, curb, best_noise, tilt], -1)
    return Failures(torch.where(better, failure, 1.0), numbers)
