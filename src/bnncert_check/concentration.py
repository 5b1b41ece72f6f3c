"""Concentration: functionals of Gaussian weights, each with its mean m and Lipschitz constant L, and Gaussian tails.

With W = μ + Δ and rows A on z = Wh, h in hc ± hr, and s_j² = Σ_i A_i² σ_ij² (+ Σ_q (A V_q)_j² where noise is shared),

    m:  the walk over the mean network less sqrt(2/π) Σ_j hr_j s_j a layer, at the input A·c - Σ_j r_j E|A_j + g_j|
    L² = Σ_layers Σ_j s_j² max|h_j|² + Σ_q (|a_q·hc| + |a_q|·hr)²

    P_safe >= 1 - (ends of hidden intervals that can fail) Q(t) - Σ_rows q_r,  q_r = Q(m_r / L_r) if m_r >= 0, else 1,

for a row with a tree the sum of q over its leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bnncert_check.activations import image, lines
from bnncert_check.arithmetic import (
    ETA,
    UNIT,
    Array,
    dot_down,
    dot_up,
    down,
    lower_float,
    sqrt_up,
    sum_error,
    up,
    upper_float,
)
from bnncert_check.layers import Activation, Conv, Dense, Layer, Linear, MaxPool, fixed_or, pull_error, pull_up
from bnncert_check.linear import ActivationStep, Interval, MaxStep, center_radius, maximum, unit_rows, with_one
from bnncert_check.model import Model, Posterior
from bnncert_check.region import Region
from bnncert_check.splits import Leaf, SplitStep, Tree, leaf_of, split_step
from bnncert_check.tails import expected_magnitude, normal_tail
from bnncert_check.verdict import CannotCheck


@dataclass(frozen=True)
class Proof:
    """The threshold t and the activations' slopes by position: [n], and [R, n] where output rows have their own.

    `trees` by output row, on the neurons `open` of all (leaky) ReLUs, numbered through.
    """

    t: float
    lower: dict[int, Array]
    upper: dict[int, Array]
    rows: dict[int, Array]
    refined: dict[int, NDArray[np.bool_]]  # by position of a convolution: the neurons with rows of their own
    open: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    trees: dict[int, Tree] = field(default_factory=dict)


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


def failure(model: Model, posterior: Posterior, region: Region, rows: Array, offsets: Array, proof: Proof) -> arb:
    """An upper bound of the probability that some row is not positive somewhere on the region."""
    steps, ends = _trace(model, posterior, region, proof)
    (value, lipschitz), total = _rows(model, steps, region, rows, offsets, proof), _charge(ends, proof)
    for r, (m, L) in enumerate(zip(value.tolist(), lipschitz.tolist(), strict=True)):  # noqa: N806 (the formula's name)
        if r in proof.trees:
            total += _tree_failure(model, steps, region, rows[r], offsets[r], proof, proof.trees[r])
        else:
            total += _row_failure(m, L)
    return total


def functionals(
    model: Model, posterior: Posterior, region: Region, rows: Array, offsets: Array, proof: Proof
) -> tuple[Functional, arb]:
    """m and L of the rows, and an upper bound of the probability that one of the hidden intervals fails."""
    steps, ends = _trace(model, posterior, region, proof)
    return _rows(model, steps, region, rows, offsets, proof), _charge(ends, proof)


def _charge(ends: int, proof: Proof) -> arb:
    return ends * normal_tail(arb(proof.t))


def _rows(model: Model, steps: list[Step], region: Region, rows: Array, offsets: Array, proof: Proof) -> Functional:
    own = [_for_rows(step, layer, proof) for step, layer in zip(steps, model.layers, strict=True)]
    value, lipschitz = _functional(own, region, rows)
    return down(value + offsets), lipschitz


def _tree_failure(
    model: Model, steps: list[Step], region: Region, row: Array, offset: float, proof: Proof, tree: Tree
) -> arb:
    """Where the row fails, it fails in a leaf: Σ q over the leaves, or the tail of their maximum."""
    widths, found = open_widths(model), []
    for number in range(len(tree.paths)):
        own = _leaf_steps(model, steps, leaf_of(tree, number, proof.open, widths))
        coefficients, tally = _walk(own, row[None])
        value, lipschitz = _conclude(own, region, coefficients[0], tally)
        deviation = _deviation(model, own, coefficients[1:], tree) if tree.scale else 0.0
        found.append((float(down(value + offset)[0]), float(lipschitz[0]), deviation))
    if tree.scale:
        return _common_failure(found, arb(tree.scale))
    return sum((_row_failure(m, L) for m, L, _ in found), arb(0))


def _common_failure(leaves: list[tuple[float, float, float]], scale: arb) -> arb:
    """Q(-EF / max L) with EF <= λ⁻¹ log Σ exp(-λm + λ²D²/2): the leaves' largest -Ψ is convex too."""
    total = sum(((scale * (scale * arb(d) ** 2 / 2 - arb(m))).exp() for m, _, d in leaves), arb(0))
    # numpy's maximum: Python's would pass over a NaN
    return _row_failure(lower_float(-(total.log() / scale)), float(np.max([lipschitz for _, lipschitz, _ in leaves])))


def _deviation(model: Model, steps: list[Step], coefficients: list[Array], tree: Tree) -> float:
    """D = |(A - a) ⊗ (h, 1)| + |a ⊗ (h - c)| + |A ⊗ r| from above, |A ⊗ h|² = Σ_ij σ_ij² A_i² h_j² over the layers."""
    parts = np.zeros((3, 1))
    for layer, step, rows in zip(model.layers, steps, coefficients, strict=True):
        if not isinstance(step, NoisyStep) or (step.variance is None and step.factors is None):
            continue
        if not isinstance(layer, Dense) or step.variance is None or step.factors is not None:
            raise CannotCheck("unsupported", "common noise is for independent weights of dense layers")
        center, radius = center_radius(with_one(step.h))
        common = tree.rows[layer.position]
        own = up(np.abs(rows - common))
        moved = np.zeros_like(center)
        if step.region is None:
            moved[:-1] = up(np.abs(center[:-1] - tree.centers[layer.position]))
        sides = ((own, np.abs(center)), (np.abs(common)[None], moved), (np.abs(rows), radius))
        for i, (a, h) in enumerate(sides):
            variances = pull_up(layer, step.variance, up(a * a))
            parts[i] = up(parts[i] + dot_up(variances, up(h * h)))
    return float(up(up(sqrt_up(parts[0]) + sqrt_up(parts[1])) + sqrt_up(parts[2]))[0])


def open_widths(model: Model) -> dict[int, int]:
    """The neurons of every (leaky) ReLU, by position."""
    width, widths = 0, {}
    for layer in model.layers:
        if not isinstance(layer, Activation):
            width = layer.outputs
        elif layer.slope is not None:
            widths[layer.position] = width
    return widths


def _leaf_steps(model: Model, steps: list[Step], leaf: Leaf) -> list[Step]:
    """The root's steps with the leaf's signs; up to the next linear layer, boxes are those of the leaf."""
    h: Interval | None = None
    changed: list[Step] = []
    for layer, root in zip(model.layers, steps, strict=True):
        step = root
        if isinstance(root, ActivationStep) and isinstance(layer, Activation):
            h = None
            if layer.position in leaf.signs:
                step, h = split_step(layer, root, leaf, _dead(layer, root.h))
        elif isinstance(layer, MaxPool):
            step, h = (root, None) if h is None else (MaxStep(layer, h), maximum(layer, h))
        elif isinstance(root, NoisyStep) and h is not None:
            step, h = replace(root, h=h), None
        changed.append(step)
    return changed


def _row_failure(m: float, lipschitz: float) -> arb:
    """q_r; comparisons are written so that NaN counts as failure."""
    if lipschitz == 0:
        return arb(0) if m > 0 else arb(1)
    return normal_tail(arb(m) / arb(lipschitz)) if m >= 0 else arb(1)


def _trace(model: Model, posterior: Posterior, region: Region, proof: Proof) -> tuple[list[Step], int]:
    """The network as steps on hidden intervals, and how many of their ends fail, with probability Q(t) each."""
    steps: list[Step] = []
    ends = 0
    h = Interval(region.lower, region.upper)
    for i, layer in enumerate(model.layers):
        if isinstance(layer, Activation):
            below, above = proof.lower[layer.position], proof.upper[layer.position]
            dead = _dead(layer, h)
            below, above = np.where(dead, 0.0, below), np.where(dead, 0.0, above)
            steps.append(ActivationStep(lines(layer, h.lower, h.upper, below, above), h))
            h = Interval(*image(layer, h.lower, h.upper))
            continue
        if isinstance(layer, MaxPool):
            steps.append(MaxStep(layer, h))
            h = maximum(layer, h)
            continue
        step = _noisy(layer, posterior, h, None if steps else region)
        steps.append(step)
        if i + 1 < len(model.layers):
            (low, low_noise), (high, high_noise) = _neurons(steps, step, region, proof)
            lower, upper = down(low - up(proof.t * low_noise)), -down(high - up(proof.t * high_noise))
            # The lower end of a ReLU that is off is not needed: 0 stands for it, and nothing is charged.
            off = (upper <= 0) & _is_relu(model.layers[i + 1])
            h = Interval(np.where(off, 0.0, lower), np.where(off, 0.0, upper))
            ends += int((high_noise > 0).sum() + ((low_noise > 0) & ~off).sum())
    return steps, ends


def _is_relu(layer: Layer) -> bool:
    return isinstance(layer, Activation) and layer.kind == "ReLU"


def _dead(layer: Activation, z: Interval) -> NDArray[np.bool_]:
    """ReLUs whose input is at most 0, by how far is not known: only lines of slope 0 hold there."""
    return (z.upper <= 0) & _is_relu(layer)


def _for_rows(step: Step, layer: Layer, proof: Proof) -> Step:
    """The output rows' own lower slopes, where there are any."""
    if not isinstance(step, ActivationStep) or not isinstance(layer, Activation) or layer.position not in proof.rows:
        return step
    own = np.where(_dead(layer, step.h), 0.0, proof.rows[layer.position])
    return ActivationStep(lines(layer, step.h.lower, step.h.upper, own, step.lines.upper_slope), step.h)


def _noisy(layer: Linear, posterior: Posterior, h: Interval, region: Region | None) -> NoisyStep:
    mean, std = fixed_or(layer, posterior.fields["mean"]), layer.matrix(posterior.fields["std"])
    factors = layer.matrix(posterior.fields["factor"].T) if "factor" in posterior.fields else np.zeros(0)
    return NoisyStep(layer, mean, up(std * std) if std.any() else None, factors if factors.any() else None, h, region)


def _neurons(steps: list[Step], step: NoisyStep, region: Region, proof: Proof) -> tuple[Functional, Functional]:
    """m and L of every z_i and of every -z_i: by rows for a dense layer, else without, or with where the proof says so.

    Of two functionals that one is used whose end is the better: a choice that depends on nothing random.
    """
    layer = step.layer
    if isinstance(layer, Dense):
        unknown, chosen = np.full(layer.outputs, -np.inf), np.arange(layer.outputs)
        sides = (unknown, np.zeros_like(unknown)), (unknown.copy(), np.zeros_like(unknown))
    elif step.factors is not None:
        raise CannotCheck("unsupported", "convolutions with correlated weights cannot be checked yet")
    else:
        sides, chosen = _one_layer(layer, step), np.flatnonzero(proof.refined.get(layer.position, np.zeros(0, bool)))
    for rows, places in unit_rows(chosen, layer.outputs):
        for (value, lipschitz), sign in zip(sides, (1.0, -1.0), strict=True):
            m, slope = _functional(steps, region, sign * rows)
            better = m - proof.t * slope > value[places] - proof.t * lipschitz[places]
            value[places] = np.where(better, m, value[places])
            lipschitz[places] = np.where(better, slope, lipschitz[places])
    return sides


def _one_layer(layer: Conv, step: NoisyStep) -> tuple[Functional, Functional]:
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


def _functional(steps: list[Step], region: Region, rows: Array) -> tuple[Array, Array]:
    """m from below and L from above of rows·(last step's output), [R]; L is 0 only where nothing is random."""
    coefficients, tally = _walk(steps, rows)
    return _conclude(steps, region, coefficients[0], tally)


def _walk(steps: list[Step], rows: Array) -> tuple[list[Array], Tally]:
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


def _conclude(steps: list[Step], region: Region, rows: Array, tally: Tally) -> tuple[Array, Array]:
    value = down(tally.value + _minimum(region, rows, tally.input_std))
    if all(step.variance is None and step.factors is None for step in steps if isinstance(step, NoisyStep)):
        return value, np.zeros(len(rows))
    shared = up(np.abs(tally.center) + tally.radius)
    return value, sqrt_up(up(tally.squared + dot_up(shared, shared)))


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
