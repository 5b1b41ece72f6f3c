"""log E exp(-λ q) from above, of q = tᵀ S t.

With r_i = t_i - μ_i, R = diag(d) - S positive definite on all units but b's, and the correlations
of z below diag(p), by an integral over g ~ N(0, R) and Hölder's inequality for correlated Gaussians

    E e^{-λq} <= e^{-λ μᵀSμ} E_g Π_i e^{N_i(√(2λ) g_i)},
    N_i(s) = (1/p_i) log E exp(p_i (-λ d_i r_i² - λ l_i r_i + s r_i)),   l = 2 S μ.

N_i is convex, so it is below its chords between places of s; beyond the last it rises no faster
than r does. With N_i(s) <= e_i + β_i s + γ_i s²/2 for all s the integral is Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from flint import arb, arb_mat

from bnncert_check.arithmetic import UNIT, Array, gamma, up
from bnncert_check.correlated.gaussian import Joint, floats
from bnncert_check.correlated.moments import activated
from bnncert_check.deep.products import is_positive
from bnncert_check.laws.exponentials import exp_up, log_up, signed_tails_up
from bnncert_check.tails import normal_tails_down

CELLS, FAR = 1024, 9.0  # of z, between ends that hold nearly all of its law
SATURATED = 8.0  # of h
SLOPES, STRETCH = 80, 4.0  # places of s to either side
ROUNDING = 2.0**-44  # of exponents, relative
NEAR = 2.0**-40  # of exponents from -700 to 0, absolute
INFINITE = arb("inf")


@dataclass(frozen=True)
class Frame:
    """Choices that all λ share: μ, d and p [n]."""

    center: Array
    bound: Array
    power: Array


@dataclass(frozen=True)
class Choice:
    """λ, β and γ [n]."""

    rate: float
    slope: Array
    curvature: Array


@dataclass(frozen=True)
class Cells:
    """Masses from above [n, K] and ends of r from outside, low and high, [n, K]."""

    mass: Array
    low: Array
    high: Array


def is_framed(own: Joint, at: Frame) -> bool:
    """Whether diag(d) ≽ S and diag(p) ≽ the correlations, of what is random."""
    random, size = [s > 0 for s in own.std], range(len(own.std))
    within = arb_mat(
        [
            [arb(at.power[i]) * (i == j) - own.correlation[i, j] * random[i] for j in size]
            for i in size
        ]
    )
    return is_positive(within) and is_positive(_rest(own, at))


def _rest(own: Joint, at: Frame) -> arb_mat:
    """R = diag(d) - S, [n, n]"""
    size = range(len(own.mean))
    return arb_mat(
        [[arb(at.bound[i]) * (i == j) - own.given[i + 1, j + 1] for j in size] for i in size]
    )


def most(own: Joint, at: Frame) -> arb:
    """Of q, where |t| <= 1 and diag(d) ≽ S."""
    total = own.given[0, 0] + sum((arb(d) for d in at.bound.tolist()), arb(0))
    return total + 2 * sum((abs(own.given[0, k + 1]) for k in range(len(own.mean))), arb(0))


def cells(own: Joint, at: Frame) -> Cells:
    """Of z between ends, and two cells beyond."""
    (mean, _), (std, _) = floats(own.mean), floats(own.std)
    width = np.where(std > 0, std, 1.0)[:, None]
    first, last = (((side * SATURATED - mean[:, None]) / width).clip(-FAR, FAR) for side in (-1, 1))
    inner = first + (last - first) * (np.arange(CELLS + 1) / CELLS)
    inner = np.maximum.accumulate(inner, -1)
    edge = np.full((len(mean), 1), np.inf)
    z = np.concatenate([-edge, inner, edge], 1)
    a, b = z[:, :-1], z[:, 1:]
    flipped = a + np.where(np.isfinite(a), b, 0.0) < 0
    near, far = np.where(flipped, -b, a), np.where(flipped, -a, b)
    mass = np.maximum(up(signed_tails_up(near) - normal_tails_down(far)), 0.0)
    t, off = activated(own, z)
    r = t - at.center[:, None]
    off = off + 4 * UNIT * (1 + np.abs(at.center[:, None]))
    return Cells(mass, r[:, :-1] - off, r[:, 1:] + off)


def places() -> Array:
    found: Array = np.sinh(np.arange(-SLOPES, SLOPES + 1) * (STRETCH / SLOPES))
    return found


def log_tail(own: Joint, at: Frame, of: Cells, chosen: Choice) -> arb:
    """Infinite where the choices show nothing."""
    size = range(len(own.mean))
    rate, center = arb(chosen.rate), [arb(1), *(arb(x) for x in at.center.tolist())]
    both = own.given * arb_mat([[x] for x in center])
    level = -rate * sum((x * both[k, 0] for k, x in enumerate(center)), arb(0))
    linear, off = floats([2 * both[k + 1, 0] for k in size])
    lifts = _lifts(at, of, chosen, linear, off)
    rest, root = _rest(own, at), [arb(x).sqrt() for x in chosen.curvature.tolist()]
    whole = arb_mat(
        [[arb(i == j) - 2 * rate * root[i] * rest[i, j] * root[j] for j in size] for i in size]
    )
    if not (np.isfinite(lifts).all() and is_positive(whole)):
        return INFINITE
    slope = arb_mat([[arb(x)] for x in chosen.slope.tolist()])
    tilted = arb_mat(
        [[arb(i == j) - 2 * rate * rest[i, j] * chosen.curvature[j] for j in size] for i in size]
    )
    solved = slope.transpose() * tilted.solve(rest * slope)
    total = level + sum((arb(x) for x in lifts.tolist()), arb(0))
    return total - whole.det().log() / 2 + rate * solved[0, 0]


def _lifts(at: Frame, of: Cells, chosen: Choice, linear: Array, off: Array) -> Array:
    """e_i, from above: infinite where the parabola does not hold beyond the last place."""
    s = places()
    logs = np.stack([_logs(at, of, chosen, linear, off, slope) for slope in s.tolist()], -1)
    beta, gamma_ = chosen.slope[:, None], chosen.curvature[:, None]
    sizes = np.abs(logs) + np.abs(beta * s) + gamma_ * s * s
    gap = logs - beta * s - gamma_ * s * s / 2 + ROUNDING * sizes
    bend = gamma_ * np.diff(s) ** 2 / 8 * (1 + ROUNDING)
    lift = (np.maximum(gap[:, 1:], gap[:, :-1]) + bend).max(-1)
    reach = chosen.curvature * s[-1] * (1 - ROUNDING)
    rises = of.high.max(-1) - chosen.slope <= reach
    falls = chosen.slope - of.low.min(-1) <= reach
    return np.where(rises & falls, up(lift), np.inf)


def _logs(at: Frame, of: Cells, chosen: Choice, linear: Array, off: Array, slope: float) -> Array:
    """N at s = slope, from above [n]: the exponent is a parabola that opens below."""
    power = at.power[:, None]
    bend = power * (chosen.rate * at.bound)[:, None]
    tilt = power * (slope - chosen.rate * linear)[:, None]
    ends = [tilt * r - bend * r * r for r in (of.low, of.high)]
    half = (of.high - of.low) / 2
    largest = np.maximum(np.abs(of.low), np.abs(of.high))
    size = np.abs(tilt) * largest + bend * largest * largest
    wrong = ROUNDING * size + power * (chosen.rate * off)[:, None] * largest
    exponent = np.maximum(*ends) + bend * half * half + wrong
    top = exponent.max(-1, keepdims=True)
    total = (of.mass * exp_up(exponent - top + NEAR)).sum(-1)
    sums = log_up(total * (1 + 2 * gamma(of.mass.shape[1])))
    found: Array = up(up(sums + top[:, 0]) / at.power) + ROUNDING * np.abs(top[:, 0]) / at.power
    return found
