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
    """Of one row of B inputs: the neurons' laws [B, n, P], and of all together [B]."""

    mass: Tensor
    place: Tensor
    rate: Tensor
    curb: Tensor
    beta: Tensor
    beta_std: Tensor


def best_rows(ready: Ready, left: Tensor, options: Remainders) -> Bound:
    """Of R rows with remainders [B, R, C] that lose `left` [B, R] besides, on the processor."""
    each = [best_row(ready, r, left[:, r], options.of(r)) for r in range(left.shape[1])]
    found = [(one.failure, one.numbers, one.remainder) for one in each]
    return Bound(*(torch.stack(x, 1).cpu() for x in zip(*found, strict=True)))


def best_row(ready: Ready, row: int, left: Tensor, options: Remainders) -> Bound:
    """Of rows with remainders [B, C] that lose `left` [B] besides."""
    found = _terms(ready, row)
    start = left + options.most[:, options.most.shape[-1] // 2]
    summed = _summed(found, start, ready.size, ready.wide)
    lost_too = left + SPARE * (summed.std + left.abs())
    return _least(summed, options, lost_too, found.place.shape[-2])


@dataclass(frozen=True, eq=False)
class Summed:
    """The law of a sum of B inputs, what made it, its standard deviation, and a probability that is
    lost besides, infinite where nothing is said."""

    total: Sum
    choice: Choice
    std: Tensor
    extra: Tensor


def _summed(found: Terms, start: Tensor, size: int, wide: float) -> Summed:
    """start: about where it counts, [B]."""
    mean, std, apart = _moments(found)
    known = torch.stack([mean, std, apart, start], -1)
    sure = (known.abs() < LARGEST).all(-1)  # of others nothing is said
    choice = _lattice(size, wide, found, known, sure)
    rest, missing = others(found.beta, found.beta_std, choice, size)
    laws, lost = spread(found.place, found.mass, choice.step, size, rest.shape[-2])
    laws[..., -rest.shape[-2] :, :] = rest
    tilt, beneath = _tilted(laws, choice, std)
    choice = replace(choice, tilt=torch.where(sure, tilt, 1.0))
    extra = torch.where(sure, lost + missing + beneath, torch.inf)
    return Summed(convolved(laws), choice, std, extra)


def failures(
    found: Atoms, beta: tuple[float, float], reach: Tensor, size: int, wide: float
) -> tuple[Tensor, Tensor]:
    """Of one sum of atoms [n, P], none below the least corner of its part, and of a Gaussian:
    bounds [C] of P(sum <= reach), on the processor, and the numbers [C, 6] that gave them."""
    mass, place = found.mass[None], shifted(found, best_rate(found), floored=True)[None]
    rate, mean, std = best_rate(found)[None], *(reach.new_tensor([x]) for x in beta)
    terms = Terms(mass, place, rate, torch.zeros_like(rate), mean, std)
    summed = _summed(terms, reach[len(reach) // 2][None], size, wide)
    nothing = torch.zeros_like(reach)[None]
    each = _each(summed, reach[None], nothing, SPARE * summed.std, len(found.mass))[0]
    failure, best = each.min(-1)
    better = failure < 1
    choice = summed.choice
    noise = torch.where(better, reach.new_tensor(NOISES)[best], choice.noise)
    numbers = (choice.step, choice.low, choice.rate, choice.curb, noise, choice.tilt)
    table = torch.stack([number.expand(len(reach)) for number in numbers], -1)
    return torch.where(better, failure, 1.0).cpu(), table.cpu()


def _terms(ready: Ready, row: int) -> Terms:
    rows, at = ready.rows, ready.at
    value, squared = ready.corners(row)
    curb = _curb(at, squared, row)
    found = atoms(value - curb[:, None, None, None, None, None] * squared, at, row)
    rate = best_rate(found)
    place = shifted(found, rate, ready.floored)
    return Terms(found.mass, place, rate, curb, rows.beta[:, row], rows.beta_std[:, row])


def _curb(at: Grid, squared: Tensor, row: int) -> Tensor:
    """κ' of L g⁺ <= κ' L² + (g⁺)²/4κ', by the mean of L²."""
    first, second = at.first.corners, at.second.corners[:, row]
    mass = first[:, :, :, None, :, None] * second[:, :, None, :, None, :]
    mean = (mass * squared).sum((1, 2, 3, 4, 5))
    return torch.where(mean > 0, CURB / mean.sqrt(), 0.0)


def _moments(found: Terms) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and standard deviation of the sum, and how far from 0 its terms are: each has a law on
    the lattice, which must hold it, however little all of them together vary."""
    first = (found.mass * found.place).sum(-1)
    variance = ((found.mass * found.place**2).sum(-1) - first**2).clamp_min(0)
    farthest = (first.abs() + TERMS * variance.sqrt()).amax(-1)
    together = (variance.sum(-1) + found.beta_std**2).sqrt()
    apart = torch.maximum(farthest, found.beta.abs() + TERMS * found.beta_std)
    return first.sum(-1) + found.beta, together, apart


def _lattice(size: int, wide: float, found: Terms, known: Tensor, sure: Tensor) -> Choice:
    windows = [_window(size, wide, *one) for one in known.where(sure[:, None], 1.0).tolist()]
    step, low = known.new_tensor(windows).unbind(-1)
    rate, curb = (torch.where(sure, x, 0.0) for x in (found.rate, found.curb))
    return Choice(step, low, rate, curb, torch.full_like(step, 0.5), torch.ones_like(step))


def _window(
    size: int, wide: float, mean: float, std: float, apart: float, start: float
) -> tuple[float, float]:
    """The lattice's step, a power of 2, and the lowest index of the window about the sum's mean and
    about where it counts."""
    low, high = min(mean, start) - wide * std, max(mean, start) + wide * std
    span = max(high - low, 2 * apart, 1e-200)
    step = 2.0 ** math.ceil(math.log2(span / (size - 8)))
    if span > high - low:  # what is to spare lies below: nothing that is beyond counts there
        low = high - (size - 8) * step
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


def _each(summed: Summed, most: Tensor, chance: Tensor, lost: Tensor, terms: int) -> Tensor:
    """Failures [B, C, H] of all reaches and noises, `lost` [B] in units of the sum; infinite where
    the window does not hold them."""
    total, choice = summed.total, summed.choice
    step, size = choice.step, total.law.shape[-1]
    noise = step.new_tensor(NOISES).expand(*most.shape, -1)
    reach = (lost[:, None] + most).unsqueeze(-1)
    reach = reach + noise_reach(terms, noise, step[:, None, None])
    last = (reach / step[:, None, None]).floor() - choice.low[:, None, None]
    inside = (last >= 0) & (last < size)
    where = torch.where(inside, last, 0.0).long()
    tail = total.reached(choice.low).clamp_min(0).gather(-1, where.flatten(1)).view_as(where)
    tail = tail + (FFT_SPARE * total.error + summed.extra)[:, None, None]
    failure = (tail / (1 - noise) + chance.unsqueeze(-1)) * (1 + SPARE)
    return torch.where(inside, failure, torch.inf)


def _least(summed: Summed, options: Remainders, lost: Tensor, terms: int) -> Bound:
    """Of all noises and remainders the least failure; 1 where none is less."""
    choice = summed.choice
    every = _each(summed, options.most, options.chance, lost, terms)
    failure, best = every.flatten(1).min(-1)
    better = failure < 1
    option = torch.where(better, best // len(NOISES), 0)[:, None]
    each = (options.share, options.scale, options.chance)
    kept = torch.cat([x.gather(-1, option) for x in each], -1)
    noise = torch.where(better, every.new_tensor(NOISES)[best % len(NOISES)], choice.noise)
    numbers = (choice.step, choice.low, choice.rate, choice.curb, noise, choice.tilt)
    return Bound(torch.where(better, failure, 1.0), torch.stack(numbers, -1), kept)
