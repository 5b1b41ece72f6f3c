"""Two hidden layers at a point: an upper bound of the probability that some row is not positive.

With h = relu(z), z_k ~ N(m_k, v_k) the first layer, z_j ~ N(m_j, T_j) given h in the second,
m_j = c_j + U_j·h, T_j = r_j² + Σ s_jk² h_k², and a row M = β + Σ v_j relu(z_j):

    P(M <= 0) <= P(h, m, T or z leave their ends)
               + exp(-λ E β + λ² Var β/2) E_h Π_j E[exp(-λ v̄_j z⁺ + λ² Var v_j (z⁺)²/2)],

the expectation over h and z within the ends; where z_j <= ζ, (z⁺)² <= ζ z⁺.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from flint import arb, arb_mat
from numpy.typing import NDArray

from bnncert_check.arithmetic import Array
from bnncert_check.deep.majorants import CHARGED, Factors, Majorants, hold
from bnncert_check.deep.products import Exponent, expectation
from bnncert_check.deep.rectified import Gaussian, moment
from bnncert_check.layers import Activation
from bnncert_check.model import Posterior
from bnncert_check.network import Network
from bnncert_check.tails import normal_tail
from bnncert_check.weighted import Dense

ACCURATE = CHARGED / 256  # of b and c, relative
CHAIN = (Dense, Activation, Dense, Activation, Dense)


@dataclass(frozen=True)
class Deep:
    """The choices; `evidence.deep` sees to their shapes and signs."""

    caps: Array
    ends: Array
    tilts: Array
    capped: NDArray[np.int64]  # the second layer's neurons that have ceilings
    ceilings: Array
    tails: Array
    scales: Array
    majorants: Array
    centers: Array
    curvatures: Array
    powers: Array


@dataclass(frozen=True)
class Laws:
    """The first layer's z by neuron; U and s² of the second layer [J][K], c and r²; the output
    weights' means and variances [J + 1, O], the biases last."""

    first: list[Gaussian]
    weight: arb_mat
    variance: arb_mat
    bias: list[arb]
    bias_variance: list[arb]
    output: Array
    output_deviation: Array


def is_deep(network: Network, posterior: Posterior) -> bool:
    """Whether the theorem speaks of it."""
    layers = network.layers
    return (
        tuple(map(type, layers)) == CHAIN
        and network.reads == tuple((k,) for k in range(len(layers)))
        and all(one.kind == "ReLU" for one in layers if isinstance(one, Activation))
        and posterior.family == "normal"
    )


def laws(network: Network, posterior: Posterior, x: Array) -> Laws:
    """At the point x."""
    dense = [layer for layer in network.layers if isinstance(layer, Dense)]
    means, deviations = (
        [layer.matrix(posterior.fields[name]) for layer in dense] for name in ("mean", "std")
    )
    with_one = [arb(value) for value in [*x.tolist(), 1.0]]
    squares = [value * value for value in with_one]
    first = [
        Gaussian(_dot(with_one, mean), _dot(squares, deviation, squared=True))
        for mean, deviation in zip(means[0].T.tolist(), deviations[0].T.tolist(), strict=True)
    ]
    weight, spread = means[1].T, deviations[1].T
    return Laws(
        first,
        arb_mat(weight[:, :-1].tolist()),
        arb_mat([[arb(s) ** 2 for s in row] for row in spread[:, :-1].tolist()]),
        [arb(c) for c in weight[:, -1].tolist()],
        [arb(s) ** 2 for s in spread[:, -1].tolist()],
        means[2],
        deviations[2],
    )


def _dot(values: list[arb], others: list[float], squared: bool = False) -> arb:
    total = arb(0)
    for value, other in zip(values, others, strict=True):
        if other != 0:
            total += value * (arb(other) ** 2 if squared else other)
    return total


def deep_failure(found: Laws, rows: Array, offsets: Array, chosen: Deep) -> arb:
    """Of the ends, and of every row within them."""
    total = _limits(found, chosen)
    for r, (row, offset) in enumerate(zip(rows, offsets.tolist(), strict=True)):
        total += _at_most_one(_row(found, row, offset, chosen, r))
    return total


def _at_most_one(probability: arb) -> arb:
    """NaN says nothing."""
    return probability if probability < 1 else arb(1)


def _limits(found: Laws, chosen: Deep) -> arb:
    """P(h > H, or m or T leaves its ends, or z its ceiling)."""
    total = arb(0)
    for z, cap in zip(found.first, chosen.caps.tolist(), strict=True):
        total += normal_tail((cap - z.mean) / z.variance.sqrt())
    for j, (ends, tilts) in enumerate(zip(chosen.ends, chosen.tilts, strict=True)):
        for side in range(4):
            total += _at_most_one(_leaves(found, chosen, (j, side), ends[side], tilts[side]))
    return total + _tails(found, chosen)


def _leaves(found: Laws, chosen: Deep, which: tuple[int, int], end: float, tilt: float) -> arb:
    """P(h <= H, and the end does not hold) by Markov's inequality; T_j >= r_j² holds anyway."""
    j, side = which
    sign, theta = (1 if side % 2 else -1), arb(tilt)
    if side < 2:
        reach = sign * (arb(end) - found.bias[j])
        return (-theta * reach).exp() * _product(found, chosen, j, sign * theta, arb(0))
    if side == 2 and arb(end) <= found.bias_variance[j]:
        return arb(0)
    reach = sign * (arb(end) - found.bias_variance[j])
    return (-theta * reach).exp() * _product(found, chosen, j, arb(0), 2 * sign * theta)


def _product(found: Laws, chosen: Deep, j: int, a: arb, b: arb) -> arb:
    """E[exp(a U_j·h + b Σ s_jk² h_k²/2); h <= H]"""
    total = arb(1)
    for k, z in enumerate(found.first):
        total *= moment(z, a * found.weight[j, k], b * found.variance[j, k], arb(chosen.caps[k]))
    return total


def _tails(found: Laws, chosen: Deep) -> arb:
    """P(z > ζ within the ends) of those with ceilings."""
    level, slope, spread = chosen.tails.T
    nothing = np.zeros(len(chosen.capped))
    above = Majorants(level, slope, spread, nothing)
    factors = Factors(nothing, nothing, chosen.ceilings, tail=True)
    proved = hold(factors, chosen.ends[chosen.capped], above)
    total = arb(0)
    for n, j in enumerate(chosen.capped.tolist()):
        a, b = arb(slope[n]), arb(spread[n])
        exponent = level[n] + a * found.bias[j] + b * found.bias_variance[j] / 2
        one = exponent.exp() * _product(found, chosen, j, a, b)
        total += _at_most_one(one) if proved[n] else arb(1)
    return total


def _row(found: Laws, row: Array, offset: float, chosen: Deep, r: int) -> arb:
    """P(M <= 0 within the ends)."""
    scale = arb(chosen.scales[r])
    if not scale > 0:
        return arb(1)
    means, variances = _row_law(found, row)
    majorants = Majorants(*chosen.majorants[r].T)
    if not hold(_factors(chosen, scale, means, variances), chosen.ends, majorants).all():
        return arb(1)
    own = scale * scale * variances[-1] / 2 - scale * (means[-1] + offset)
    level, exponent = _exponent(found, majorants, chosen.centers[r])
    curvature, power = chosen.curvatures[r], float(chosen.powers[r])
    return (own + level).exp() * expectation(found.first, chosen.caps, exponent, curvature, power)


def _row_law(found: Laws, row: Array) -> tuple[list[arb], list[arb]]:
    """Means and variances of v_j, and of β without its offset last."""
    weights = [arb(value) for value in row.tolist()]
    squares = [value * value for value in weights]
    means = [_dot(weights, values) for values in found.output.tolist()]
    noise = [_dot(squares, values, squared=True) for values in found.output_deviation.tolist()]
    return means, noise


def _factors(chosen: Deep, scale: arb, means: list[arb], variances: list[arb]) -> Factors:
    """Of the neurons; up to a ceiling, z² <= ζz."""
    size = len(chosen.ends)
    b = [-scale * mean for mean in means[:size]]
    c = [scale * scale * variance for variance in variances[:size]]
    ceilings = np.full(size, np.inf)
    for j, ceiling in zip(chosen.capped.tolist(), chosen.ceilings.tolist(), strict=True):
        b[j], c[j], ceilings[j] = b[j] + c[j] * ceiling / 2, arb(0), ceiling
    return Factors(_floats(b), _floats(c), ceilings)


def _floats(values: list[arb]) -> Array:
    """As accurate as `Factors` asks for, else NaN."""
    floats = [float(value) for value in values]
    close = [abs(x - y) <= ACCURATE * abs(y) for x, y in zip(floats, values, strict=True)]
    return np.where(close, floats, np.nan)


def _exponent(found: Laws, majorants: Majorants, center: Array) -> tuple[arb, Exponent]:
    """Σ_j of the majorants as a function of h, about h⁰ = center."""
    at = arb_mat([[arb(value)] for value in center.tolist()])
    through = found.weight * at
    level, tilts = arb(0), []
    pairs = zip(*(getattr(majorants, f.name).tolist() for f in fields(majorants)), strict=True)
    for j, (alpha, slope, spread, bend) in enumerate(pairs):
        m = through[j, 0] + found.bias[j]
        level += alpha + (slope + bend * m / 2) * m + spread * found.bias_variance[j] / 2
        tilts.append(slope + bend * m)
    square = arb_mat([majorants.spread.tolist()]) * found.variance
    linear = arb_mat([tilts]) * found.weight
    size = len(center)
    bent = [
        [found.weight[j, k] * bend for k in range(size)]
        for j, bend in enumerate(majorants.bend.tolist())
    ]
    coupling = found.weight.transpose() * arb_mat(bent)
    a, b = ([matrix[0, k] for k in range(size)] for matrix in (linear, square))
    return level, Exponent(a, b, center, coupling)
