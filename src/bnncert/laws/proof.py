"""Proofs by laws: a lower bound of P_safe from the law of each row, summed over the rows.

P(some x, row r: M_r(x) <= 0) <= Σ_r [P(β + Σ T - K - u <= L g⁺) + η] + P(some z, v beyond cells)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bnncert.evidence.laws import Law
from bnncert.laws.cells import OUTSIDE, base_edges, cells, with_edge
from bnncert.laws.corners import Grid, References, constant, corners, grid, references, slopes
from bnncert.laws.head import Head, Margins, head, in_scale, margins
from bnncert.laws.lattice import (
    NOISES,
    TILTS,
    WIDE,
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
from bnncert.laws.references import chosen
from bnncert.laws.remainder import Remainder, remainders
from bnncert.model.problem import Problem
from bnncert.posteriors.independent import Normal

MANY = 48  # neurons from which on cells are coarser
FINE, COARSE = (32, 2, 16, 3), (26, 3, 12, 5)  # cells of z and their parts, of v and theirs
SIZES = (2**12, 2**14)  # of the lattice
CURB = 0.5  # κ', in units of 1/L
FARTHEST = 600.0  # of exponents
SPARE = 2.0**-26  # of a standard deviation, and of a probability: what a checker may lose more
FFT_SPARE = 2.0


@dataclass(frozen=True, eq=False)
class _Ready:
    """All that does not depend on the lattice."""

    rows: Margins
    found: References
    at: Grid
    value: Tensor
    squared: Tensor
    size: int


def prove_laws(problem: Problem, posterior: Normal) -> list[Law]:
    """The bound of every input on its region's bounding box."""
    net, box = head(problem.network, posterior), problem.specification.region.box
    lower, upper = box.lower.flatten(1), box.upper.flatten(1)
    spec = problem.specification
    return [
        _prove(net, lower[i], upper[i], spec.rows[i], spec.offsets[i]) for i in range(len(problem))
    ]


def _prove(net: Head, lower: Tensor, upper: Tensor, rows: Tensor, offsets: Tensor) -> Law:
    own = margins(net, lower, upper, rows, offsets)
    many = len(own.mean) >= MANY
    counts = COARSE if many else FINE
    at = _grid(own, counts)
    found = _rounded(own, chosen(own, at))
    ends = corners(own, found, at, slopes(own, found, at))
    ready = _Ready(own, found, at, ends.value, ends.squared, SIZES[many])
    left = constant(own, found).tolist()
    each = [
        _row(ready, r, left[r], options)
        for r, options in enumerate(remainders(own, found, at, ends))
    ]
    beyond = 2 * OUTSIDE * len(own.mean) * (1 + len(each)) * (1 + SPARE)
    failing = (math.fsum(failure for failure, _, _ in each) + beyond) * (1 + SPARE)
    if not in_scale(net, lower, upper, rows, offsets):
        failing = 1.0
    theta, y = (_on_all(x, upper > lower) for x in (found.theta, found.y))
    return Law(
        max(0.0, 1 - failing),
        counts,
        ready.size,
        _table([(c.step, float(c.low), c.rate, c.curb, c.noise, c.tilt) for _, c, _ in each]),
        _table([(u.share, u.scale, u.chance) for _, _, u in each]),
        theta,
        y,
    )


def _grid(rows: Margins, counts: tuple[int, int, int, int]) -> Grid:
    """With an edge at z = 0 and at v = 0."""
    parts = []
    for center, std, count in ((rows.mean, rows.std, counts[0]), (rows.v, rows.s, counts[2])):
        edges = base_edges(count).to(center.device)
        parts.append(with_edge(edges, (-center / std).nan_to_num(math.inf)))
    return grid(rows, cells(parts[0], counts[1]), cells(parts[1], counts[3]))


def _rounded(rows: Margins, found: References) -> References:
    """With references that float32 holds."""
    theta, y = (x.float().double() for x in (found.theta, found.y))
    return references(rows, theta.clamp_min(1e-12), y)


def _on_all(values: Tensor, moving: Tensor) -> Tensor:
    """Of the moving inputs, among ones for the others; on the processor, as files hold it."""
    found = torch.ones(len(values), len(moving), dtype=torch.float32)
    found[:, moving.cpu()] = values.float().cpu()
    return found


def _table(rows: list[tuple[float, ...]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def _row(
    ready: _Ready, row: int, left: float, options: tuple[Remainder, ...]
) -> tuple[float, Choice, Remainder]:
    """A bound of the row's failure, and what gave it."""
    rows, at = ready.rows, ready.at
    curb = _curb(ready, row)
    found = atoms(ready.value[row] - curb * ready.squared[row], at, row)
    rate = best_rate(found)
    place = shifted(found, rate)
    mean, std = _moments(found, place, float(rows.beta[row]), float(rows.beta_std[row]))
    start = left + options[len(options) // 2].most
    low, high = min(mean, start) - WIDE * std, max(mean, start) + WIDE * std
    step = 2.0 ** math.ceil(math.log2(max(high - low, 1e-200) / (ready.size - 8)))
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


def _curb(ready: _Ready, row: int) -> float:
    """κ' of L g⁺ <= κ' L² + (g⁺)²/4κ', by the mean of L²."""
    first, second = ready.at.first.corners, ready.at.second.corners[row]
    mass = first[:, :, None, :, None] * second[:, None, :, None, :]
    squared = float((mass * ready.squared[row]).sum())
    return CURB / math.sqrt(squared) if squared > 0 else 0.0


def _moments(found: Atoms, place: Tensor, beta: float, std: float) -> tuple[float, float]:
    first = (found.mass * place).sum(-1)
    variance = (found.mass * place**2).sum(-1) - first**2
    return float(first.sum()) + beta, math.sqrt(max(float(variance.sum()), 0.0) + std**2)
