"""How often one row, or two together, are at most 0: a Fourier series over periods that hold nearly
all of their law, with what it may be off by.

    P(all S_i <= 0)  ≈  Σ_k Π_i ĝ_i(k_i) χ(2π k_1/L_1, …),    χ(s) = E exp(i s·S)

where ĝ_i are the coefficients of the indicator of [low_i, 0] on [low_i, high_i], of length L_i.
docs/wide-at-points.md has the theorem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from bnncert.joint.neurons import Cells, Nodes, gaussian, moments, nodes
from bnncert.joint.setting import Setting
from bnncert.laws.cells import OUTSIDE
from bnncert.numerics.batching import memory_budget


def _ladder(first: int, last: int) -> tuple[int, ...]:
    found = [first]
    while found[-1] < last:
        found.append(found[-1] + found[-1] // 8)
    return tuple(found)


TURN = 6.0  # deviations of the smoothing by which a row is shifted
UNTURNED = math.erfc(TURN / math.sqrt(2)) / 2
SMOOTH = (0.0, 2.0**-10, 2.0**-8, 2.0**-6)  # η, in deviations of the row
TILTS = tuple(0.5 + 0.5 * k for k in range(24))  # of tails, in units of 1/deviation
REACHES = (4.5, 5.0, 5.5, 6.0, 7.0, 8.0, 10.0, 12.0, 16.0, 24.0, 32.0)  # of windows, in deviations
SPARED = (1e-6, 3e-5)  # of a chance of one row, or of two: what windows and terms left out may cost
LADDER = _ladder(8, 2**12)  # of numbers of terms, each about an 8th more than the one before it
MOST = (1024, 96)  # terms of one row, or of each of two
STEPS = 12  # of the ladder at once
SHARE = 7 / 8  # of a decay along one of two rows, the rest along the other
DROPPED = 1e-6  # what of its terms those that are left out may come to
OFF = 1e-11  # of a chance: what quadratures of some neurons may cost
TOGETHER = 8  # neurons; on a GPU, where each step is a wait, so many times as many
WAITING = 8
CACHE = 2**20  # bytes
VANISHED, GONE = 60.0, 250.0  # exponents of what is next to nothing, its share of an 8th too
SPARE = 2.0**-28  # of a chance: what a checker may lose more


@dataclass(frozen=True, eq=False)
class Window:
    """Of a row its period from low to high, the smoothing η, tilts of Chernoff's bounds below and
    above, and what these leave outside. side: -1 where the row is shifted down, so that it fails
    more often, 1 where up."""

    low: float
    high: float
    smooth: float
    below: float
    above: float
    lost: float
    side: int

    @property
    def period(self) -> float:
        return self.high - self.low

    @property
    def numbers(self) -> list[float]:
        return [self.low, self.high, self.smooth, self.below, self.above]


@dataclass(frozen=True, eq=False)
class Chance:
    """All of one or two rows are at most 0 with a probability that is bounded from above, or by
    side 1 from below. terms: by row."""

    rows: tuple[int, ...]
    windows: tuple[Window, ...]
    terms: tuple[int, ...]
    bound: float


def chance(own: Setting, known: Cells, rows: tuple[int, ...], side: int) -> Chance | None:
    """With the least smoothing that a series of few terms allows."""
    spared = SPARED[len(rows) - 1]
    for smooth in SMOOTH:
        found = [window(own, known, row, smooth, side, spared) for row in rows]
        windows = tuple(one for one in found if one is not None)
        if len(windows) < len(rows):
            return None
        terms = _terms(own, known, rows, windows, spared)
        if terms is not None:
            return _summed(own, known, rows, windows, *terms)
    return None


def window(
    own: Setting, known: Cells, row: int, smooth: float, side: int, spared: float
) -> Window | None:
    """The narrowest that the row's law is outside of with a chance of at most `spared`; η in
    deviations of the row."""
    mean, variance = (float(x) for x in gaussian(own, known, (row,)))
    std = math.sqrt(variance)
    if not 0 < std < math.inf:
        return None
    eta = smooth * std
    center = mean + side * TURN * eta
    tilts = torch.tensor(TILTS, dtype=known.mass.dtype) / std
    below, above = (
        _log_moments(own, known, row, sign * tilts.to(known.mass), eta, side).cpu()
        for sign in (1, -1)
    )
    beyond = 2 * OUTSIDE * len(own.mean)
    for reach in REACHES:
        low, high = min(center - reach * std, -std / 4), max(center + reach * std, std / 4)
        first, where = (below + tilts * low).min(0)
        second, other = (above - tilts * high).min(0)
        lost = float(first.exp() + second.exp())
        if lost <= spared:
            chosen = float(tilts[where]), float(tilts[other])
            return Window(low, high, eta, *chosen, lost + 2 * beyond, side)
    return None


def _log_moments(
    own: Setting, known: Cells, row: int, tilts: Tensor, eta: float, side: int
) -> Tensor:
    """log E e^{-tS} of the smoothed row where no |g| is above REACH, for tilts [T]."""
    variance, shift = (x[0, 0] for x in own.covariances((row,)))
    t = tilts.unsqueeze(-1).unsqueeze(-1)
    v, variance = own.v[row].unsqueeze(-1), variance.unsqueeze(-1)
    ends = (t**2 * variance * f**2 / 2 - t * v * f for f in (known.least, known.largest))
    # One neuron's may be no float, where it moves the row by hundreds of deviations.
    each = (torch.maximum(*ends) + known.mass.log()).logsumexp(-1)
    rest = tilts**2 * (shift + eta**2) / 2 - tilts * (own.beta[row] + side * TURN * eta)
    return (each.sum(-1) + rest).nan_to_num(torch.inf)


def _terms(
    own: Setting, known: Cells, rows: tuple[int, ...], windows: tuple[Window, ...], spared: float
) -> tuple[tuple[int, ...], float] | None:
    """How many of each row, and what all others may come to; None where that is much."""
    decays = _decays(own, known, rows, windows)
    most, share, others = MOST[len(rows) - 1], 1.0, [1.0]
    if len(rows) == 2:
        share, others = SHARE, [decay.every(1 - SHARE) for decay in decays[::-1]]
    counts, rest = [], 0.0
    for decay, other in zip(decays, others, strict=True):
        lost = other * decay.beyond(share)
        enough = (lost <= spared) & (decay.at <= most)
        if not bool(enough.any()):
            return None
        first = int(enough.int().argmax())
        counts.append(int(decay.at[first]))
        rest += float(lost[first])
    return tuple(counts), rest


@dataclass(frozen=True, eq=False)
class _Decay:
    """|χ| is at most D(s), or of two rows D_1(s_1)^h D_2(s_2)^(1-h) for every share h, with

        D(s) = exp(-B s²/2) Π_k E exp(-f² C_k s²/2),

    of which logarithms are known at some k, s = 2πk/L, the last far out. weight: |ĝ(0)|. doublings:
    from there on until exp(-B s²/2)^(1-h) is next to nothing.
    """

    at: Tensor
    logs: Tensor
    weight: float
    doublings: float

    def beyond(self, share: float) -> Tensor:
        """Σ D(s)^h / π|k| over all larger |k|, at each of those that are known: in blocks, with D
        as it is where a block begins."""
        decayed = (share * self.logs).exp()
        blocks = decayed[:-1] * (self.at[1:] / self.at[:-1]).log()
        last = decayed[-1:] * math.log(2) * self.doublings + math.exp(-VANISHED)
        each = torch.cat([blocks, last])
        return 2 / math.pi * each.flip(0).cumsum(0).flip(0)

    def every(self, share: float) -> float:
        """|ĝ(0)| + Σ D(s)^h / π|k| over all k but 0."""
        near = sum(1 / k for k in range(1, LADDER[0] + 1))
        return self.weight + 2 / math.pi * near + float(self.beyond(share)[0])


def _decays(
    own: Setting, known: Cells, rows: tuple[int, ...], windows: tuple[Window, ...]
) -> list[_Decay]:
    """By rows; of two by what each one varies by given the other, which is at most sᵀCs."""
    variances, shifts = _smoothed(own, rows, windows)
    found = []
    for i, one in enumerate(windows):
        variance, shift = variances[i, i], shifts[i, i]
        if len(rows) == 2:
            variance, shift = _given(variances, i), _given(shifts, i)
        found.append(_decay(known, variance, float(shift), one))
    return found


def _decay(known: Cells, variance: Tensor, shift: float, own: Window) -> _Decay:
    on_cells = known.squared * variance.unsqueeze(-1) / 2
    logs: list[Tensor] = []
    at = torch.tensor(LADDER, dtype=torch.float64)
    for part in torch.split(at, STEPS):
        squared = (2 * math.pi / own.period * part) ** 2
        falling = (-squared.to(on_cells)[:, None, None] * on_cells).exp()
        logs.append(known.expected(falling).log().sum(-1).cpu() - squared * shift / 2)
        if logs[-1][-1] < -GONE:
            break
    every = torch.cat(logs)
    last = float(at[len(every) - 1])
    rate = (1 - SHARE) * shift / 2 * (2 * math.pi / own.period) ** 2
    far = math.sqrt(VANISHED / rate) / last if rate > 0 else math.inf
    return _Decay(at[: len(every)], every, -own.low / own.period, max(1.0, math.log2(far) + 1))


def _given(covariance: Tensor, i: int) -> Tensor:
    """C_ii - C_ij²/C_jj"""
    other = covariance[1 - i, 1 - i]
    shared = torch.where(other > 0, covariance[0, 1] ** 2 / other, 0.0)
    return (covariance[i, i] - shared).clamp_min(0)


def _smoothed(
    own: Setting, rows: tuple[int, ...], windows: tuple[Window, ...]
) -> tuple[Tensor, Tensor]:
    variances, shifts = own.covariances(rows)
    etas = shifts.new_tensor([one.smooth for one in windows])
    return variances, shifts + torch.diag(etas**2)


def _summed(
    own: Setting,
    known: Cells,
    rows: tuple[int, ...],
    windows: tuple[Window, ...],
    terms: tuple[int, ...],
    rest: float,
) -> Chance | None:
    """The series, and from it a bound."""
    grids = [_Grid.of(one, count) for one, count in zip(windows, terms, strict=True)]
    found = _series(own, known, rows, windows, grids)
    if found is None:
        return None
    value, off = found
    lost = sum(one.lost + (UNTURNED if one.smooth else 0.0) for one in windows) + rest + off + SPARE
    bound = min(1.0, value + lost) if windows[0].side < 0 else max(0.0, value - lost)
    return Chance(rows, windows, terms, bound)


@dataclass(frozen=True, eq=False)
class _Grid:
    """Frequencies s = 2πk/L and ĝ(k), |k| <= K."""

    s: Tensor
    weight: Tensor

    @classmethod
    def of(cls, window: Window, count: int) -> _Grid:
        k = torch.arange(-count, count + 1, dtype=torch.float64)
        s = 2 * math.pi / window.period * k
        safe = torch.where(k == 0, 1.0, s)
        turned = (torch.exp(-1j * safe * window.low) - 1) / (1j * safe * window.period)
        return cls(s, torch.where(k == 0, -window.low / window.period + 0j, turned))


def _series(
    own: Setting,
    known: Cells,
    rows: tuple[int, ...],
    windows: tuple[Window, ...],
    grids: list[_Grid],
) -> tuple[float, float] | None:
    """Its sum, and what that may be off by; None where a quadrature would need too many nodes.

    No factor of χ is above 1: where some make a term small enough, the others are not needed.
    """
    variances, shifts = _smoothed(own, rows, windows)
    s, weight = _frequencies(grids, own.mean.device)
    turns = own.beta.new_tensor([one.side * TURN * one.smooth for one in windows])
    beta = own.beta[list(rows)] + turns
    total = weight * torch.exp(1j * (beta @ s) - _forms(shifts.unsqueeze(-1), s)[0] / 2)
    v, heavy = own.v[list(rows)], float(weight.abs().sum())
    least = DROPPED / len(total)
    off = float((s.abs() @ weight.abs()) @ _uncertain(own, known, rows))
    # First those that vary most.
    order = (moments(known)[1] * (v**2).sum(0)).argsort(descending=True)
    for part in torch.split(order, TOGETHER * (WAITING if s.is_cuda else 1)):
        alive = total.abs() > least
        off += float(total[~alive].abs().sum())
        total, s = total[alive], s[:, alive]
        farthest = s.abs().amax(-1, keepdim=True) if len(total) else s.new_zeros(len(rows), 1)
        linear = (v[:, part].abs().mT @ farthest).squeeze(-1)
        squared = _forms(variances[..., part].abs(), farthest).squeeze(-1)
        found = nodes(own.part(part), linear, squared, OFF / heavy)
        if found is None:
            return None
        off += heavy * (found.off + 2 * OUTSIDE * len(part))
        total = total * _characteristic(found, s, v[:, part], variances[..., part])
    value = float(total.real.sum())
    return (value, off) if math.isfinite(value) else None


def _uncertain(own: Setting, known: Cells, rows: tuple[int, ...]) -> Tensor:
    """What χ may be off by for every unit of a row's frequency, [d], as z is known about and sums
    are rounded."""
    chosen = list(rows)
    deviation = own.covariances(rows)[0].diagonal().mT.sqrt()
    moved = (own.v[chosen].abs() + deviation) @ own.moved
    summed = own.v_size[chosen] @ known.expected(known.magnitude) + own.beta_size[chosen]
    return moved + own.rounded * summed


def _forms(matrices: Tensor, s: Tensor) -> Tensor:
    """sᵀCs of matrices [d, d, n], d = 1 or 2, and s [d, A]: [n, A]"""
    entries = matrices.flatten(0, 1).mT
    products = (s.unsqueeze(1) * s.unsqueeze(0)).flatten(0, 1)
    return entries @ products


def _frequencies(grids: list[_Grid], device: torch.device) -> tuple[Tensor, Tensor]:
    """All s [d, A] of a grid, of each that is not 0 one of s and -s, whose terms are conjugate."""
    index = torch.cartesian_prod(*(torch.arange(len(grid.s)) for grid in grids))
    index = index.reshape(-1, len(grids))
    index = index[len(index) // 2 :]
    each = zip(grids, index.T, strict=True)
    s, weights = zip(*((grid.s[k], grid.weight[k]) for grid, k in each), strict=True)
    weight = torch.stack(weights).prod(0)
    weight[1:] *= 2
    return torch.stack(s).to(device), weight.to(device)


def _characteristic(found: Nodes, s: Tensor, v: Tensor, variances: Tensor) -> Tensor:
    """Π_k E exp(i s·v̄_k f - sᵀC_k s f²/2) at frequencies s [d, A]."""
    linear = v.mT @ s
    squared = _forms(variances, s) / 2
    f, w = found.value.unsqueeze(1), found.weight.unsqueeze(1)
    real, imaginary = torch.empty_like(linear), torch.empty_like(linear)
    # In pieces that a processor's cache holds.
    budget = memory_budget(s.device) if s.is_cuda else CACHE
    each = max(1, budget // (8 * 4 * found.value.numel()))
    for start in range(0, s.shape[1], each):
        part = slice(start, start + each)
        turn = linear[:, part].unsqueeze(-1) * f
        size = w * (squared[:, part].unsqueeze(-1) * -(f**2)).exp()
        real[:, part] = (size * turn.cos()).sum(-1)
        imaginary[:, part] = (size * turn.sin()).sum(-1)
    return torch.complex(real, imaginary).prod(0)
