"""The law of a sum of independent terms on a lattice, from which P(sum <= x) is bounded above.

A cell's points are put at their conditional mean. Given the cell, a coordinate's density is
log-concave on a segment, and so is each tilt of it, whose variance is at most width²/12: hence
E exp(-λ(I - E I)) <= exp(λ²(d_z² + d_v²)/24), and with Y = E I - λ(d_z² + d_v²)/24 a cell,

    P(Σ I + R <= 0) <= P(Σ Y + R <= E),   E exponential of rate λ, independent.

Then every atom is spread to the two lattice points about it, with its own mean: the noise of that
exceeds w with a chance of at most h = exp(-2w²/(n Δ²)), so P(Σ Y <= x) <= P(Σ Ỹ <= x + w)/(1 - h).
Sums are cyclic: what leaves the window above counts as failed, what leaves it below is charged by
Chernoff's bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.laws.corners import Grid
from bnncert.numerics.rounding import UNIT
from bnncert.numerics.tails import normal_tail

CELLS = 24.0  # variance of what is in a cell, in units of 1/width²: λ²d²/24
NOISES = (1e-6, 1e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1)  # h
TILTS = (0.03, 0.1, 0.3, 1.0, 2.0, 4.0)  # of Chernoff's bound, in units of 1/standard deviation
CHECKED = 2.0**-40  # of a mass: what a checker may find more, also where tails end for it
LEAST_TAIL = math.erfc(12 / math.sqrt(2)) / 2
TRANSFORM = 32.0  # units of rounding a stage of a fast Fourier transform, generously


@dataclass(frozen=True, eq=False)
class Choice:
    """What makes a row's bound, of every input [...]: the lattice's step and lowest index in the
    sum's window, the rate λ, the curb κ' of L g⁺ <= κ' L² + (g⁺)²/4κ', the noise h, and the tilt of
    Chernoff's bound."""

    step: Tensor
    low: Tensor
    rate: Tensor
    curb: Tensor
    noise: Tensor
    tilt: Tensor


@dataclass(frozen=True, eq=False)
class Atoms:
    """Of n independent terms: positions and masses [..., n, P]; the variances λ stands for, and the
    most that a position may be above its cell's least corner, [..., n, P]."""

    place: Tensor
    mass: Tensor
    squared: Tensor
    drop: Tensor


def atoms(value: Tensor, at: Grid, row: int) -> Atoms:
    """Of one row, whose T at the corners is `value` [..., n, K, L, 2, 2]."""
    first, to_z = (x[..., None, None] for x in (at.first.mass, at.first.place))
    second, to_v = (x[..., row, :, None, None, :, :] for x in (at.second.mass, at.second.place))
    parts, others = first.shape[-3], second.shape[-1]
    (here, up), (along, both) = (
        (x[..., None, :, None] for x in side.unbind(-1)) for side in value.unbind(-2)
    )
    by_z, by_v, twist = along - here, up - here, both - along - up + here
    place = here + to_z * by_z + to_v * (by_v + to_z * twist)
    wide = [_steepest(by_z, twist, others, -1) / parts, _steepest(by_v, twist, parts, -3) / others]
    squared = (wide[0] ** 2 + wide[1] ** 2).expand_as(place)
    drop = (wide[0] + wide[1]).expand_as(place)
    return Atoms(*(x.flatten(-4) for x in (place, first * second, squared, drop)))


def _steepest(slope: Tensor, twist: Tensor, parts: int, axis: int) -> Tensor:
    """The largest slope in one coordinate over a part of a cell in the other, along `axis`."""
    shape = [1] * 5
    shape[axis] = parts + 1
    cuts = torch.arange(parts + 1, dtype=slope.dtype, device=slope.device) / parts
    ends = (slope + cuts.reshape(shape) * twist).abs()
    return torch.maximum(ends.narrow(axis, 0, parts), ends.narrow(axis, 1, parts))


def best_rate(found: Atoms) -> Tensor:
    """λ [...] that makes the loss 1/λ + λ Σ E d²/24 smallest; 0 where nothing is lost."""
    total = (found.mass * found.squared).sum((-2, -1))
    return torch.where(total > 0, (CELLS / total).sqrt(), 0.0)


def shifted(found: Atoms, rate: Tensor, floored: bool = False) -> Tensor:
    """Y [..., n, P], without a rate [...] and where `floored` at the cell's least corner at the
    lowest."""
    rate = rate[..., None, None]
    loss = rate / CELLS * found.squared
    if floored:
        loss = torch.minimum(loss, found.drop)
    return found.place - torch.where(rate > 0, loss, found.drop)


def spread(
    place: Tensor, mass: Tensor, step: Tensor, size: int, room: int = 0
) -> tuple[Tensor, Tensor]:
    """Laws [..., n + room, size] of the atoms on a lattice of steps [...], index k in place k mod
    size, and behind them zeros for others; and what is too low for it."""
    exact = (place / step[..., None, None]).clamp_max(size // 2 - 2)
    index = exact.floor()
    low = index < -(size // 2)
    lost = torch.where(low, mass, 0.0).sum((-2, -1))
    mass = torch.where(low, 0.0, mass)
    right = mass * ((exact - index) - 2.0**-40).clamp(0, 1)
    where = index.long() & (size - 1)  # the size is a power of 2
    *batch, count, _ = place.shape
    laws = torch.zeros(*batch, count + room, size, dtype=place.dtype, device=place.device)
    laws.scatter_add_(-1, where, mass - right)
    laws.scatter_add_(-1, (where + 1) & (size - 1), right)
    return laws, lost


def others(beta: Tensor, std: Tensor, choice: Choice, size: int) -> tuple[Tensor, Tensor]:
    """Laws [..., 3, size], rounded down, of β, of -E and of -(g⁺)²/4κ'; 0 is none. And what is too
    low for the lattice."""
    beta, std, rate, curb = (x[..., None] for x in (beta, std, choice.rate, choice.curb))
    k = torch.arange(size + 1, dtype=torch.float64, device=beta.device) - size // 2
    at = k * choice.step[..., None]
    below, positive = at.clamp_max(0), (at > 0).double()
    # P(X < kΔ): the mass of [kΔ, (k+1)Δ) is put at kΔ.
    noisy = normal_tail((beta - at) / std).clamp_min(LEAST_TAIL)
    before = torch.stack(
        [
            torch.where(std > 0, noisy, (at > beta).double()),
            torch.where(rate > 0, (rate * below).exp(), positive),
            torch.where((curb > 0) & (at <= 0), _curbed(curb, below), positive),
        ],
        -2,
    )
    before[..., -1] = 1.0  # what is above is put at the top
    masses = before[..., 1:] - before[..., :-1] + CHECKED * before[..., 1:]
    return masses.roll(-(size // 2), -1), before[..., 0].sum(-1) + 2.0**-44


def _curbed(curb: Tensor, at: Tensor) -> Tensor:
    """P(-(g⁺)²/4κ' < at), at <= 0"""
    return normal_tail((-4 * curb * at).sqrt()).clamp_min(LEAST_TAIL)


@dataclass(frozen=True, eq=False)
class Sum:
    """The law of a sum, cyclic [..., size], and what its transforms may be off by for any set of
    indices, [...]."""

    law: Tensor
    error: Tensor

    def reached(self, low: Tensor) -> Tensor:
        """P(sum <= kΔ) [..., size] for k from `low` [...] on, where the window has its low end."""
        size = self.law.shape[-1]
        k = torch.arange(size, device=self.law.device) + low.long()[..., None]
        return self.law.gather(-1, k & (size - 1)).cumsum(-1)


def convolved(laws: Tensor) -> Sum:
    """Of independent terms with laws [..., n, size]."""
    count, size = laws.shape[-2:]
    stages = TRANSFORM * UNIT * math.log2(size)
    spectrum = torch.fft.rfft(laws).prod(-2)
    norms = torch.linalg.vector_norm(laws, dim=-1).sum(-1)
    off = 2 * stages * math.sqrt(size) * norms + 16 * count * UNIT
    error = math.sqrt(size) * (off + 2 * stages) + 2 * size * UNIT
    return Sum(torch.fft.irfft(spectrum, n=size), error)


def noise_reach(terms: int, noise: Tensor, step: Tensor) -> Tensor:
    """w with exp(-2w²/(n Δ²)) = h"""
    reach: Tensor = step * (terms * -noise.log() / 2).sqrt()
    return reach


def below(laws: Tensor, low: Tensor, step: Tensor, tilts: Tensor) -> Tensor:
    """P(sum < low Δ) by Chernoff's bound of the laws [..., n, size], index k in place k mod size,
    for each of T tilts [..., T]."""
    size = laws.shape[-1]
    k = torch.arange(size, dtype=laws.dtype, device=laws.device)
    at = torch.where(k < size // 2, k, k - size) * step[..., None]
    tilted = (-tilts[..., None] * at[..., None, :]).exp()
    logs = (tilted @ laws.mT).log().sum(-1)
    end = (low * step)[..., None]
    return (logs + tilts * end).clamp_max(0).exp() * (1 + 2.0**-30)
