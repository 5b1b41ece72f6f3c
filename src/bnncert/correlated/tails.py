"""E exp(-λ q) from above, of q = tᵀ S t: what bounds q from below.

With r_i = t_i - μ_i, d such that R = diag(d) - S is positive definite on all units but b's, and
p such that the correlations of z are below diag(p), by an integral over a Gaussian vector g of
covariance R and Hölder's inequality for correlated Gaussians

    E e^{-λq} <= e^{-λ μᵀSμ} E_g Π_i e^{N_i(√(2λ) g_i)},
    N_i(s) = (1/p_i) log E exp(p_i (-λ d_i r_i² - λ l_i r_i + s r_i)),   l = 2 S μ.

N_i(s) <= e_i + β_i s + γ_i s²/2, and the integral is Gaussian:

    log E e^{-λq} <= -λ μᵀSμ + Σ e_i - ½ log det(I - 2λ R Γ) + λ βᵀ (I - 2λ R Γ)⁻¹ R β.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtr

from bnncert.correlated.setting import Array, Setting

CELLS, FAR = 1024, 9.0  # of z, between ends that hold nearly all of its law
SATURATED = 8.0  # of h
SLOPES, STRETCH = 80, 4.0  # places of s to either side: sinh of equal steps
STEPS, RATE = 400, 0.03  # of the search for diagonals
PLAIN = 0.02  # what d costs beside the variances: it bounds q from above
SPARE = 1e-6  # of a diagonal
FLOOR = 1e-6  # of the largest entry of a diagonal: what no smaller one is below
SHARES = np.linspace(0, 1, 10)  # of the way from a variance to a sub-Gaussian proxy
WEIGHTS = (1.0, 1.5, 2.5)  # of what γ costs
GOLDEN = 0.381966


@dataclass(frozen=True, eq=False)
class Frame:
    """What all λ share: the centre μ, d and p [n]; cells' masses and values of t at their ends."""

    center: Array
    bound: Array
    power: Array
    mass: Array
    ends: Array


@dataclass(frozen=True, eq=False)
class Tail:
    """λ, β and γ [n], and log E e^{-λq} at most `log`."""

    rate: float
    slope: Array
    curvature: Array
    log: float


def frame(own: Setting) -> Frame:
    mass, ends = _cells(own)
    middle = ends.mean(-1)
    center = (mass * middle).sum(-1)
    variance = (mass * middle**2).sum(-1) - center**2
    within = own.given[1:, 1:]
    bound = above(within, variance + PLAIN)
    loose = (bound - np.diag(within)) * variance + SPARE
    power = np.ones(len(center))
    some = own.random
    power[some] = above(own.correlation[np.ix_(some, some)], loose[some]).clip(1.0)
    return Frame(center, bound, power, mass, ends)


def above(matrix: Array, costs: Array) -> Array:
    """d with diag(d) ≽ matrix and little cost Σ_i c_i d_i."""
    diagonal = np.diag(matrix).clip(max(FLOOR * np.diag(matrix).max(), 1e-300))
    scale = np.sqrt(diagonal)
    unit = torch.from_numpy(matrix / np.outer(scale, scale))
    weight = torch.from_numpy(costs.clip(1e-12) * diagonal)
    logs = torch.zeros(len(scale), dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logs], lr=RATE)
    best, found = np.inf, np.ones(len(scale))
    with torch.enable_grad():
        for _ in range(STEPS):
            root = (-logs / 2).exp()
            top = torch.linalg.eigvalsh(unit * root.unsqueeze(1) * root)[-1]
            own = top * logs.exp()
            cost = (weight * own).sum()
            if cost.item() < best:
                best, found = cost.item(), own.detach().numpy().copy()
            optimiser.zero_grad()
            cost.log().backward()
            optimiser.step()
    return np.asarray(found * scale**2 * (1 + SPARE))


def _cells(own: Setting) -> tuple[Array, Array]:
    """Masses [n, K + 2] and ends of t [n, K + 2, 2]."""
    std = np.where(own.std > 0, own.std, 1.0)[:, None]
    low, high = (((side * SATURATED - own.mean[:, None]) / std).clip(-FAR, FAR) for side in (-1, 1))
    inner = low + (high - low) * (np.arange(CELLS + 1) / CELLS)
    inner[own.std == 0] = 0.0
    edge = np.full((len(std), 1), np.inf)
    z = np.concatenate([-edge, inner, edge], 1)
    below, beyond = ndtr(z), ndtr(-z)
    # On either side by the smaller tails: differences of numbers near 1 lose them.
    mass = np.where(z[:, 1:] <= 0, np.diff(below, axis=1), -np.diff(beyond, axis=1))
    z = np.where(np.isfinite(z), z, np.sign(z) * 1e300)
    h = own.mean[:, None] + own.std[:, None] * z
    h[own.std == 0] = own.mean[own.std == 0, None]
    t = own.values(h)
    return mass, np.stack([t[:, :-1], t[:, 1:]], -1)


def slopes() -> Array:
    """Places of s at which N is computed."""
    found: Array = np.sinh(np.arange(-SLOPES, SLOPES + 1) * (STRETCH / SLOPES))
    return found


def tail(own: Setting, at: Frame, rate: float) -> Tail | None:
    """None where no choice that is tried says more than E e^{-λq} <= 1."""
    center = np.append(1.0, at.center)
    level = -rate * float(center @ own.given @ center)
    linear = 2 * (own.given @ center)[1:]
    s = slopes()
    logs, spread = _logs(at, rate, linear, s)
    rest = np.diag(at.bound) - own.given[1:, 1:]
    choices = _parabolas(at, logs, spread, s)
    best: Tail | None = None
    for weight in WEIGHTS:
        lift, slope, curvature = _cheapest(choices, weight * rate * np.diag(rest))
        log = level + lift.sum() + _integral(rest, rate, slope, curvature)
        if log < (best.log if best else 0.0):
            best = Tail(rate, slope, curvature, float(log))
    return best


def _logs(at: Frame, rate: float, linear: Array, s: Array) -> tuple[Array, Array]:
    """N at s, from above [n, S], and about p times the variance at s = 0 [n]."""
    r = at.ends - at.center[:, None, None]
    bend = at.power * rate * at.bound
    even = -bend[:, None, None] * r**2 - (at.power * rate * linear)[:, None, None] * r
    lift = bend[:, None] * ((r[..., 1] - r[..., 0]) / 2) ** 2
    mass = np.log(at.mass.clip(1e-300))
    found = np.empty((len(r), len(s)))
    for k, slope in enumerate(s):
        exponent = (even + (at.power * slope)[:, None, None] * r).max(-1) + lift + mass
        top = exponent.max(-1)
        found[:, k] = (np.log(np.exp(exponent - top[:, None]).sum(-1)) + top) / at.power
    middle = even.mean(-1)
    weight = np.exp(middle - middle.max(-1, keepdims=True)) * at.mass
    weight /= weight.sum(-1, keepdims=True)
    middle = r.mean(-1)
    mean = (weight * middle).sum(-1, keepdims=True)
    return found, at.power * (weight * (middle - mean) ** 2).sum(-1)


def _parabolas(at: Frame, logs: Array, spread: Array, s: Array) -> tuple[Array, Array, Array]:
    """Of some γ [n, G] the least e and its β."""
    own = spread.clip(1e-9)[:, None] ** (1 - SHARES) * at.power[:, None] ** SHARES
    # Beyond the last place N rises no faster than what t can reach.
    reach = at.ends.max((1, 2)) - at.ends.min((1, 2))
    curvature = np.maximum(own, (1 + SPARE) * reach[:, None] / s[-1] + SPARE)
    beyondline = logs[:, None, :] - curvature[..., None] * s**2 / 2
    # The chord of N may leave the parabola between two places.
    steps = np.diff(s)
    bend = curvature[..., None] * steps**2 / 8
    low = np.zeros_like(curvature) + (-1 - at.center)[:, None]
    high = np.zeros_like(curvature) + (1 - at.center)[:, None]
    for _ in range(40):
        a, b = low + GOLDEN * (high - low), high - GOLDEN * (high - low)
        left = _lift(beyondline, bend, a, s) < _lift(beyondline, bend, b, s)
        low, high = np.where(left, low, a), np.where(left, b, high)
    slope = (low + high) / 2
    return _lift(beyondline, bend, slope, s), slope, curvature


def _lift(beyondline: Array, bend: Array, slope: Array, s: Array) -> Array:
    gap = beyondline - slope[..., None] * s
    return np.asarray((np.maximum(gap[..., 1:], gap[..., :-1]) + bend).max(-1))


def _cheapest(choices: tuple[Array, Array, Array], price: Array) -> tuple[Array, Array, Array]:
    lift, slope, curvature = choices
    chosen = (lift + price[:, None] * curvature).argmin(1)[:, None]
    a, b, c = (np.take_along_axis(part, chosen, 1)[:, 0] for part in (lift, slope, curvature))
    return a, b, c


def _integral(rest: Array, rate: float, slope: Array, curvature: Array) -> float:
    """Over g; infinite where it does not converge."""
    root = np.sqrt(curvature)
    values = np.linalg.eigvalsh(np.eye(len(rest)) - 2 * rate * root[:, None] * rest * root)
    if values[0] <= SPARE:
        return np.inf
    solved = np.linalg.solve(np.eye(len(rest)) - 2 * rate * rest * curvature, rest @ slope)
    return float(-np.log(values).sum() / 2 + rate * slope @ solved)
