"""Functionals of Gaussian weights, each with its mean m and Lipschitz constant L.

With W = μ + Δ and rows A on z = Wh, h in hc ± hr, and s_j² = Σ_i A_i² σ_ij² (+ Σ_q (A V_q)_j² where
noise is shared),

    m:  the walk over the mean network less sqrt(2/π) Σ_j hr_j s_j a layer,
        at the input A·c - Σ_j r_j E|A_j + g_j|
    L² = Σ_layers Σ_j s_j² max|h_j|² + Σ_q (|a_q·hc| + |a_q|·hr)²
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from flint import arb

from bnncert_check.arithmetic import (
    ETA,
    UNIT,
    Array,
    dot_down,
    dot_up,
    down,
    sqrt_up,
    sum_error,
    up,
    upper_float,
)
from bnncert_check.layers import JOINS, Conv, Dense, Linear, fixed_or, pull_error, pull_up
from bnncert_check.linear import (
    ActivationStep,
    Interval,
    JoinStep,
    MaxStep,
    center_radius,
    merged,
    terms,
    with_one,
)
from bnncert_check.model import Posterior
from bnncert_check.network import Network
from bnncert_check.region import Region
from bnncert_check.splits import SplitStep
from bnncert_check.tails import expected_magnitude
from bnncert_check.verdict import CannotCheck


@dataclass(frozen=True)
class NoisyStep:
    """A linear layer with mean matrix, variances and shared factors, all with the bias as last
    input."""

    layer: Linear
    mean: Array  # [entries + 1, channels]
    variance: Array | None  # from above; None where nothing is independent noise
    factors: Array | None  # [k, entries + 1, channels]
    h: Interval
    region: Region | None  # where the layer reads the input


@dataclass(frozen=True)
class Tally:
    """What a walk has gathered: the value from below, L² of independent noise from above, and per
    shared coordinate the slope at the boxes' centres with the most that the boxes and roundings
    add."""

    value: Array
    squared: Array
    center: Array
    radius: Array
    input_std: Array | None = None
    random: bool = False  # whether a layer on the way has noise


Step = NoisyStep | ActivationStep | SplitStep | MaxStep | JoinStep
Functional = tuple[Array, Array]  # m from below and L from above


@dataclass(frozen=True)
class Trace:
    """The first layers of a network as steps, and the intervals of its nodes, but for terms whose
    sum has one."""

    network: Network
    region: Region
    steps: list[Step]
    intervals: dict[int, Interval]

    @property
    def noisy(self) -> list[NoisyStep]:
        return [step for step in self.steps if isinstance(step, NoisyStep)]


def noisy(layer: Linear, posterior: Posterior, h: Interval, region: Region | None) -> NoisyStep:
    mean = fixed_or(layer, posterior.fields["mean"])
    if not layer.parameters:
        return NoisyStep(layer, mean, None, None, h, region)
    std = layer.matrix(posterior.fields["std"])
    factors = (
        layer.matrix(posterior.fields["factor"].T) if "factor" in posterior.fields else np.zeros(0)
    )
    return NoisyStep(
        layer,
        mean,
        up(std * std) if std.any() else None,
        factors if factors.any() else None,
        h,
        region,
    )


def functional(traced: Trace, rows: Array) -> Functional:
    """m from below and L from above of rows·(last step's output), [R]; L is 0 where nothing on the
    way is random."""
    found, tally = walk(traced, rows)
    return conclude(traced, found[0], tally)


def walk(traced: Trace, rows: Array, keep: bool = False) -> tuple[dict[int, Array], Tally]:
    """The rows on the input, or on every node that they come by, and what was gathered on the
    way."""
    ranks = [len(step.factors) for step in traced.noisy if step.factors is not None]
    zero, none = np.zeros(len(rows)), np.zeros((len(rows), max(ranks, default=0)))
    tally, waiting = Tally(zero, zero, none, none), {len(traced.steps): rows}
    for k in reversed(range(len(traced.steps))):
        if k + 1 not in waiting:
            continue  # a node that only layers beyond the walk's start read
        step, rows = traced.steps[k], waiting[k + 1] if keep else waiting.pop(k + 1)
        if isinstance(step, NoisyStep):
            rows, tally = _pull(step, rows, tally)
        else:
            rows, gained = step.pull(rows)
            tally = replace(tally, value=down(tally.value + gained))
        for node, part in terms(step, traced.network.reads[k], rows):
            if node in waiting:
                waiting[node], paid = merged(waiting[node], part, traced.intervals[node])
                tally = replace(tally, value=down(tally.value - paid))
            else:
                waiting[node] = part
    return waiting, tally


def conclude(traced: Trace, rows: Array, tally: Tally) -> Functional:
    value = down(tally.value + _minimum(traced.region, rows, tally.input_std))
    if not tally.random:
        return value, np.zeros(len(rows))
    shared = up(np.abs(tally.center) + tally.radius)
    return value, sqrt_up(up(tally.squared + dot_up(shared, shared)))


def stands_alone(traced: Trace) -> bool:
    """Whether the last layer has a bound of its own, from the box of what it reads: there is such a
    box, and no noise is shared with other layers."""
    step = traced.steps[-1]
    return (
        isinstance(step, NoisyStep)
        and isinstance(step.layer, Dense)
        and step.region is None
        and step.factors is None
    )


def last_layer(traced: Trace, rows: Array) -> Functional:
    """m from below and L from above of rows·(last step's output) for every input of the layer in
    its box: the layer alone, with that box as its region."""
    step = traced.steps[-1]
    assert isinstance(step, NoisyStep)
    h = step.h
    box = Region("box", h.lower, 0.0, h.lower, h.upper)
    none = np.zeros(len(rows))
    tally = Tally(none, none, np.zeros((len(rows), 0)), np.zeros((len(rows), 0)))
    pulled, tally = _pull(replace(step, region=box), rows, tally)
    return conclude(replace(traced, region=box), pulled, tally)


def local(traced: Trace, k: int) -> tuple[Functional, Functional]:
    """Of the neurons of an image that layer k gives, and of their negatives, from the nearest
    intervals alone.

    A term with an interval counts by its ends, another by its own functional; noises of different
    layers are independent, so that the squares of L add up.
    """
    step = traced.steps[k]
    if isinstance(step, NoisyStep):
        if step.factors is not None or not isinstance(step.layer, Conv):
            raise CannotCheck(
                "unsupported", "convolutions with correlated weights cannot be checked yet"
            )
        return one_layer(step.layer, step)
    layer = traced.network.layers[k]
    assert isinstance(layer, JOINS)  # of images: nothing else has no interval of its own
    lows, highs, squares, noisy = list[Array](), list[Array](), list[Array](), list[Array]()
    for node in traced.network.reads[k]:
        if node in traced.intervals:
            h = traced.intervals[node]
            below, above, noise = h.lower, -h.upper, np.zeros_like(h.lower)
        else:
            (below, noise), (above, _) = local(traced, node - 1)
        lows.append(below)
        highs.append(above)
        squares.append(np.where(noise > 0, up(noise**2), 0.0))
        noisy.append((noise > 0).astype(np.float64))
    random = layer.join(noisy, lambda count: count) > 0
    lipschitz = np.where(random, sqrt_up(layer.join(squares, up)), 0.0)
    return (layer.join(lows, down), lipschitz), (layer.join(highs, down), lipschitz.copy())


def one_layer(layer: Conv, step: NoisyStep) -> tuple[Functional, Functional]:
    """±(μ·hc) - Σ_e hr_e E|μ_e + g_e| and L² = Σ_e σ_e² max|h_e|² over each neuron's patch: the
    fold on the box."""
    center, radius = center_radius(step.h)
    middle, spread, size = (
        layer.patches(center),
        layer.patches(radius),
        layer.patches(step.h.magnitude),
    )
    spread[-1] = 0.0  # of the constant 1
    expected, squared = np.abs(step.mean), np.zeros((step.mean.shape[1], middle.shape[1]))
    if step.variance is not None:
        expected = expected_magnitude(step.mean, sqrt_up(step.variance))
        total = step.variance.T @ up(size**2)
        squared = up(total + sum_error(layer.terms, total))
    paid = expected.T @ spread
    loss = up(paid + sum_error(2 * layer.terms, expected.T @ size + paid))
    value, lipschitz = (
        step.mean.T @ middle,
        sqrt_up(squared) if step.variance is not None else squared,
    )
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
        reach = (
            _reach(step, variances)
            if isinstance(layer, Dense)
            else _kernel_reach(layer, step, step.variance, rows)
        )
        tally = replace(tally, squared=up(tally.squared + reach))
        std = variances
    if step.factors is not None:
        tally, shared = _pull_shared(step.layer, step.factors, h, rows, tally)
        std = shared if std is None else up(std + shared)
    if std is not None:
        std, tally = sqrt_up(std), replace(tally, random=True)
        if step.region is not None:
            tally = replace(tally, input_std=_joined(std[:, :-1], tally))
        else:
            expected = up(_half_normal_mean() * dot_up(std, center_radius(h)[1]))
            tally = replace(tally, value=down(tally.value - expected))
    return pulled[:, :-1], tally


def _joined(std: Array, tally: Tally) -> Array:
    """Of all coefficients on the input, where several layers read it: their noises add up as
    independent ones do or, where anything is shared, at most as their sizes do."""
    if tally.input_std is None:
        return std
    if tally.center.shape[1]:
        return up(std + tally.input_std)
    return sqrt_up(up(up(std * std) + up(tally.input_std * tally.input_std)))


def _reach(step: NoisyStep, variances: Array) -> Array:
    """sup over h of Σ_j s_j² h_j², the bias with h = 1; in a ball also |s∘x| <= |s∘c| + eps max_j
    s_j."""
    own, bias = variances[:, :-1], variances[:, -1]
    reach = dot_up(own, up(step.h.magnitude**2))
    if step.region is not None and not step.region.is_box:
        center = sqrt_up(dot_up(own, up(step.region.x**2)))
        ball = up(center + up(step.region.eps * sqrt_up(own.max(-1))))
        reach = np.minimum(reach, up(ball * ball))
    return up(reach + bias)


def _kernel_reach(layer: Conv, step: NoisyStep, variance: Array, rows: Array) -> Array:
    """Σ_e σ_e² (|g_e(A, hc)| + g_e(|A|, hr))², g_e(A, h) the derivative of A·(W h) with respect to
    a kernel entry."""
    middle, spread = center_radius(step.h)
    shaped = rows.reshape(len(rows), variance.shape[1], -1)
    centers, radii = layer.patches(middle).T, layer.patches(spread).T
    radii[:, -1] = 0.0  # of the constant 1
    at_center, size = shaped @ centers, np.abs(shaped) @ np.abs(centers)
    reach = np.abs(shaped) @ radii
    slope = up(np.abs(at_center) + up(reach + sum_error(2 * len(centers), size + reach)))
    return dot_up(up(slope * slope).reshape(len(rows), -1), variance.T.reshape(-1))


def _pull_shared(
    layer: Linear, factors: Array, h: Interval, rows: Array, tally: Tally
) -> tuple[Tally, Array]:
    """For every shared coordinate q with coefficients a_q = A V_q: |a_q·hc|, |a_q|·hr; and Σ_q
    a_q², [R, in + 1]."""
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
    """E min over the region of Σ_j (A_j + g_j) x_j from below, g_j ~ N(0, std_j²): the adversary
    sees the noise."""
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
