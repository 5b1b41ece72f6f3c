"""Functionals of Gaussian weights, each with its mean m and Lipschitz constant L.

With W = μ + Δ and rows A on z = Wh, h in hc ± hr, and s_j² = Σ_i A_i² σ_ij² (+ Σ_q (A V_q)_j² where noise is shared),

    m:  the walk over the mean network less sqrt(2/π) Σ_j hr_j s_j a layer, at the input A·c - Σ_j r_j E|A_j + g_j|
    L² = Σ_layers Σ_j s_j² max|h_j|² + Σ_q (|a_q·hc| + |a_q|·hr)²
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from flint import arb

from bnncert_check.arithmetic import ETA, UNIT, Array, dot_down, dot_up, down, sqrt_up, sum_error, up, upper_float
from bnncert_check.layers import Conv, Dense, Linear, fixed_or, pull_error, pull_up
from bnncert_check.linear import ActivationStep, Interval, MaxStep, center_radius, with_one
from bnncert_check.model import Posterior
from bnncert_check.region import Region
from bnncert_check.splits import SplitStep
from bnncert_check.tails import expected_magnitude


@dataclass(frozen=True)
class NoisyStep:
    """A linear layer with mean matrix, variances and shared factors, all with the bias as last input."""

    layer: Linear
    mean: Array  # [entries + 1, channels]
    variance: Array | None  # from above; None where nothing is independent noise
    factors: Array | None  # [k, entries + 1, channels]
    h: Interval
    region: Region | None  # where the layer is the first


@dataclass(frozen=True)
class Tally:
    """What a walk has gathered: the value from below, L² of independent noise from above, and per shared coordinate the
    slope at the boxes' centres with the most that the boxes and roundings add."""

    value: Array
    squared: Array
    center: Array
    radius: Array
    input_std: Array | None = None


Step = NoisyStep | ActivationStep | SplitStep | MaxStep
Functional = tuple[Array, Array]  # m from below and L from above


def noisy(layer: Linear, posterior: Posterior, h: Interval, region: Region | None) -> NoisyStep:
    mean = fixed_or(layer, posterior.fields["mean"])
    if not layer.parameters:
        return NoisyStep(layer, mean, None, None, h, region)
    std = layer.matrix(posterior.fields["std"])
    factors = layer.matrix(posterior.fields["factor"].T) if "factor" in posterior.fields else np.zeros(0)
    return NoisyStep(layer, mean, up(std * std) if std.any() else None, factors if factors.any() else None, h, region)


def functional(steps: list[Step], region: Region, rows: Array) -> tuple[Array, Array]:
    """m from below and L from above of rows·(last step's output), [R]; L is 0 only where nothing is random."""
    coefficients, tally = walk(steps, rows)
    return conclude(steps, region, coefficients[0], tally)


def walk(steps: list[Step], rows: Array) -> tuple[list[Array], Tally]:
    """The rows on the input and then on every step's output, and what was gathered on the way."""
    ranks = [len(step.factors) for step in steps if isinstance(step, NoisyStep) and step.factors is not None]
    zero, none = np.zeros(len(rows)), np.zeros((len(rows), max(ranks, default=0)))
    tally, coefficients = Tally(zero, zero, none, none), [rows]
    for step in reversed(steps):
        if isinstance(step, NoisyStep):
            rows, tally = _pull(step, rows, tally)
        else:
            rows, gained = step.pull(rows)
            tally = replace(tally, value=down(tally.value + gained))
        coefficients.append(rows)
    return coefficients[::-1], tally


def conclude(steps: list[Step], region: Region, rows: Array, tally: Tally) -> tuple[Array, Array]:
    value = down(tally.value + _minimum(region, rows, tally.input_std))
    if all(step.variance is None and step.factors is None for step in steps if isinstance(step, NoisyStep)):
        return value, np.zeros(len(rows))
    shared = up(np.abs(tally.center) + tally.radius)
    return value, sqrt_up(up(tally.squared + dot_up(shared, shared)))


def one_layer(layer: Conv, step: NoisyStep) -> tuple[Functional, Functional]:
    """±(μ·hc) - Σ_e hr_e E|μ_e + g_e| and L² = Σ_e σ_e² max|h_e|² over each neuron's patch: the fold on the box."""
    center, radius = center_radius(step.h)
    middle, spread, size = layer.patches(center), layer.patches(radius), layer.patches(step.h.magnitude)
    spread[-1] = 0.0  # of the constant 1
    expected, squared = np.abs(step.mean), np.zeros((step.mean.shape[1], middle.shape[1]))
    if step.variance is not None:
        expected = expected_magnitude(step.mean, sqrt_up(step.variance))
        total = step.variance.T @ up(size**2)
        squared = up(total + sum_error(layer.terms, total))
    paid = expected.T @ spread
    loss = up(paid + sum_error(2 * layer.terms, expected.T @ size + paid))
    value, lipschitz = step.mean.T @ middle, sqrt_up(squared) if step.variance is not None else squared
    below, above = (down(sign * value - loss).reshape(-1) for sign in (1.0, -1.0))
    return (below, lipschitz.reshape(-1)), (above, lipschitz.reshape(-1).copy())


def _pull(step: NoisyStep, rows: Array, tally: Tally) -> tuple[Array, Tally]:
    """The rows before the layer, and the tally with its mean, its rounding and its noise."""
    h, magnitude = with_one(step.h), np.abs(rows)
    pulled = step.layer.pull(step.mean, rows)
    error = dot_up(pull_error(step.layer, np.abs(step.mean), magnitude), h.magnitude)
    tally = replace(tally, value=down(tally.value + down(pulled[:, -1] - error)))
    std = None
    if step.variance is not None:
        variances = pull_up(step.layer, step.variance, up(rows * rows))  # s_j²
        layer = step.layer
        reach = _reach(step, variances) if isinstance(layer, Dense) else _kernel_reach(layer, step, step.variance, rows)
        tally = replace(tally, squared=up(tally.squared + reach))
        std = variances
    if step.factors is not None:
        tally, shared = _pull_shared(step.layer, step.factors, h, rows, tally)
        std = shared if std is None else up(std + shared)
    if std is not None:
        std = sqrt_up(std)
        if step.region is not None:
            tally = replace(tally, input_std=std[:, :-1])
        else:
            expected = up(_half_normal_mean() * dot_up(std, center_radius(h)[1]))
            tally = replace(tally, value=down(tally.value - expected))
    return pulled[:, :-1], tally


def _reach(step: NoisyStep, variances: Array) -> Array:
    """sup over h of Σ_j s_j² h_j², the bias with h = 1; in a ball also |s∘x| <= |s∘c| + eps max_j s_j."""
    own, bias = variances[:, :-1], variances[:, -1]
    reach = dot_up(own, up(step.h.magnitude**2))
    if step.region is not None and not step.region.is_box:
        center = sqrt_up(dot_up(own, up(step.region.x**2)))
        ball = up(center + up(step.region.eps * sqrt_up(own.max(-1))))
        reach = np.minimum(reach, up(ball * ball))
    return up(reach + bias)


def _kernel_reach(layer: Conv, step: NoisyStep, variance: Array, rows: Array) -> Array:
    """Σ_e σ_e² (|g_e(A, hc)| + g_e(|A|, hr))², g_e(A, h) the derivative of A·(W h) with respect to a kernel entry."""
    middle, spread = center_radius(step.h)
    shaped = rows.reshape(len(rows), variance.shape[1], -1)
    centers, radii = layer.patches(middle).T, layer.patches(spread).T
    radii[:, -1] = 0.0  # of the constant 1
    at_center, size = shaped @ centers, np.abs(shaped) @ np.abs(centers)
    reach = np.abs(shaped) @ radii
    slope = up(np.abs(at_center) + up(reach + sum_error(2 * len(centers), size + reach)))
    return dot_up(up(slope * slope).reshape(len(rows), -1), variance.T.reshape(-1))


def _pull_shared(layer: Linear, factors: Array, h: Interval, rows: Array, tally: Tally) -> tuple[Tally, Array]:
    """For every shared coordinate q with coefficients a_q = A V_q: |a_q·hc|, |a_q|·hr; and Σ_q a_q², [R, in + 1]."""
    middle, spread = center_radius(h)
    centers, radii, squares = [], [], np.zeros((len(rows), len(middle)))
    for factor in factors:
        coefficients = layer.pull(factor, rows)
        error = pull_error(layer, np.abs(factor), np.abs(rows))
        size = up(np.abs(coefficients) + error)
        low, high = dot_down(coefficients, middle), dot_up(coefficients, middle)
        centers.append(low)
        radii.append(up(up(high - low) + up(dot_up(size, spread) + dot_up(error, h.magnitude))))
        squares = up(squares + up(size * size))
    total = tally.center + np.stack(centers, -1)
    radius = up(up(tally.radius + np.stack(radii, -1)) + up(UNIT * np.abs(total) + ETA))
    return replace(tally, center=total, radius=radius), squares


def _minimum(region: Region, rows: Array, std: Array | None) -> Array:
    """E min over the region of Σ_j (A_j + g_j) x_j from below, g_j ~ N(0, std_j²): the adversary sees the noise."""
    if std is None:
        return region.minimum(rows)
    center, radius = center_radius(Interval(region.lower, region.upper))
    best = down(dot_down(rows, center) - dot_up(expected_magnitude(rows, std), radius))
    if region.is_box:
        return best
    size = np.abs(rows)
    if region.norm == "l2":
        dual = sqrt_up(up(dot_up(size, size) + dot_up(std, std)))
    else:
        dual = up(size.max(-1) + up(_maximal_gain(rows.shape[-1]) * std.max(-1)))
    return np.maximum(best, down(dot_down(rows, region.x) - up(region.eps * dual)))


@cache
def _half_normal_mean() -> float:
    """sqrt(2/π) = E|N(0, 1)|"""
    return upper_float((2 / arb.pi()).sqrt())


def _maximal_gain(n: int) -> float:
    """sqrt(2 ln 2n) bounds E max_j |g_j| / max_j s_j"""
    return upper_float((2 * arb(2 * n).log()).sqrt())
