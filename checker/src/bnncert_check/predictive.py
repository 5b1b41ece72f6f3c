"""Posterior-predictive means: lower bounds of E softmax_c, E (1 - softmax_c), the gap to the
rivals, and E a·f, over X.

From a `Proof`: each row is at least m - T on the region, P(T >= sL) <= Q(s), unless one of the
hidden intervals fails, which has probability at most p. With levels s_k = k/8, k = 0 ... 64, and
P_k = max(0, 1 - p - (noisy rows) Q(s_k)):

    softmax:  Σ_k (v_k - v_k+1) P_k,  v_k at the margins m - s_k L
    mean:     m - |m| p - (L + S) sqrt(p)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from flint import arb

from bnncert_check.arithmetic import (
    Array,
    as_probability,
    dot_up,
    lower_float,
    sqrt_up,
    up,
    upper_float,
)
from bnncert_check.functionals import Functional
from bnncert_check.layers import Activation, Layer
from bnncert_check.linear import row_bounds
from bnncert_check.mass import WeightBox
from bnncert_check.model import Model, Posterior
from bnncert_check.network import Network
from bnncert_check.proofs import Proof, functionals
from bnncert_check.region import Region
from bnncert_check.tails import normal_tail
from bnncert_check.verdict import CannotCheck
from bnncert_check.weighted import Linear, fixed_or, meet_up
from bnncert_check.wiring import SUMS, MaxPool, Move, Wiring

LEVELS, PER_UNIT = 65, 8

Means: TypeAlias = tuple[
    arb, arb, arb
]  # lower bounds of the mean, of 1 minus it or its negative, and of the gap
Meaning: TypeAlias = Callable[[list[arb]], arb]


def label(margins: list[arb]) -> arb:
    """softmax_c = 1 / (1 + Σ exp(-margin))"""
    return 1 / (1 + sum(((-margin).exp() for margin in margins), arb(0)))


def rivals(leads: list[arb]) -> arb:
    """1 - softmax_c = Σ exp(lead) / (1 + Σ exp(lead)), the leads y_j - y_c"""
    return 1 - 1 / (1 + sum((lead.exp() for lead in leads), arb(0)))


def lead(margins: list[arb]) -> arb:
    """softmax_c - softmax_j for every j: with v the least margin softmax_c (1 - exp(-v)), or tanh(v
    / 2) if v < 0."""
    least = arb(float(np.min([lower_float(margin) for margin in margins])))  # NaN stays
    return label(margins) * (1 - (-least).exp()) if least >= 0 else (least / 2).tanh()


def layered(found: Functional, fails: arb, meaning: Meaning, floor: int) -> arb:
    """floor + Σ_k (v_k - v_k+1) P_k: the mean of something that is never below the floor, nor below
    v_k with probability P_k; v falls with k, so that what is below the floor counts as the
    floor."""
    values, lipschitz = found
    noisy, total, above = int((lipschitz > 0).sum()), arb(floor), arb(floor)
    for k in reversed(range(LEVELS)):
        s = arb(k) / PER_UNIT
        margins = [
            arb(m) - s * arb(slope)
            for m, slope in zip(values.tolist(), lipschitz.tolist(), strict=True)
        ]
        held = arb(as_probability(lower_float(1 - fails - noisy * normal_tail(s))))
        value = arb(float(np.max([lower_float(meaning(margins)), lower_float(above)])))
        total, above = total + (value - above) * held, value
    return total


def softmax_means(
    model: Model, posterior: Posterior, region: Region, rows: Array, proofs: tuple[Proof, Proof]
) -> Means:
    """The second proof is of the negated rows."""
    (found, fails), (negated, others_fail) = (
        _finite(functionals(model, posterior, region, sign * rows, np.zeros(len(rows)), proof))
        for sign, proof in zip((1.0, -1.0), proofs, strict=True)
    )
    ends = layered(found, fails, label, 0), layered(negated, others_fail, rivals, 0)
    return *ends, layered(found, fails, lead, -1)


def direction_means(
    model: Model, posterior: Posterior, region: Region, row: Array, proofs: tuple[Proof, Proof]
) -> Means:
    """Of E a·f, a = row [1, outputs]; there is no gap."""
    size = float(dot_up(np.abs(row), output_norms(model, posterior, region))[0])
    bounds = []
    for sign, proof in zip((1.0, -1.0), proofs, strict=True):
        (value, lipschitz), fails = _finite(
            functionals(model, posterior, region, sign * row, np.zeros(1), proof)
        )
        m, p = arb(float(value[0])), arb(as_probability(upper_float(fails)))
        bounds.append(m - abs(m) * p - (arb(float(lipschitz[0])) + arb(size)) * p.sqrt())
    return bounds[0], bounds[1], arb(0)


def network_means(
    model: Model, weights: Array, region: Region, rows: Array, softmax: bool
) -> Means:
    """Of one network, by linear bounds of its rows and of their negatives."""
    box, zero = WeightBox(weights, weights), np.zeros(len(rows))
    below, above = (row_bounds(model, box, region, sign * rows, zero) for sign in (1.0, -1.0))
    _finite(((below, zero), arb(0)))
    _finite(((above, zero), arb(0)))
    if not softmax:
        return arb(float(below[0])), arb(float(above[0])), arb(0)
    margins, leads = ([arb(bound) for bound in bounds.tolist()] for bounds in (below, above))
    return label(margins), rivals(leads), lead(margins)


def _finite(found: tuple[Functional, arb]) -> tuple[Functional, arb]:
    """A NaN among the numbers must not be lost when the least of them is taken."""
    if not all(np.isfinite(numbers).all() for numbers in found[0]):
        raise CannotCheck("not-finite", "a row's bound overflowed")
    return found


def output_norms(model: Model, posterior: Posterior, region: Region) -> Array:
    """sqrt(E y_i²) from above, for all x of the region.

    |z|_q <= Σ_j |W_j|_2q |h_j|_2q + |b|_2q and |N(μ, σ²)|_q <= |μ| + sqrt(q - 1) σ;
    where weights are independent of what they meet, q = 2 serves throughout, with the factor 1.
    """
    fields = posterior.fields
    shared = "factor" in fields
    variance = up(fields["std"] ** 2)
    std = fields["std"]
    if shared:
        squares = np.zeros_like(std)
        squares[posterior.first :] = dot_up(fields["factor"], fields["factor"])
        std = sqrt_up(up(variance + squares))
    network, sizes = model.network, [np.maximum(np.abs(region.lower), np.abs(region.upper))]
    remaining = _weighted_beyond(network)
    for k, layer in enumerate(network.layers):
        inputs = [sizes[node] for node in network.reads[k]]
        if isinstance(layer, Linear):
            factor = upper_float((arb(2) ** (remaining[k + 1] + 2) - 1).sqrt()) if shared else 1.0
            weights = up(np.abs(fixed_or(layer, fields["mean"])) + up(factor * layer.matrix(std)))
            sizes.append(meet_up(layer, weights, inputs[0]))
        else:
            sizes.append(SIZES[type(layer)](layer, inputs))
    return sizes[-1]


def _weighted_beyond(network: Network) -> list[int]:
    """For every node the most layers with weights on a way from it to the output."""
    most = [0] * (len(network.layers) + 1)
    for k, layer in reversed(list(enumerate(network.layers))):
        for node in network.reads[k]:
            most[node] = max(
                most[node], most[k + 1] + (isinstance(layer, Linear) and layer.size > 0)
            )
    return most


def _pooled(layer: MaxPool, sizes: list[Array]) -> Array:
    """At most the sum over the window."""
    gathered = layer.gather(sizes[0], 0.0)
    return dot_up(gathered, np.ones_like(gathered))


def _joined(layer: Wiring, sizes: list[Array]) -> Array:
    """|h + h'| <= |h| + |h'|"""
    return layer.join(sizes, up)


def _activated(layer: Activation, sizes: list[Array]) -> Array:
    largest, (factor, offset) = layer.traits.largest, layer.traits.growth
    if math.isinf(largest):
        return sizes[0] if (factor, offset) == (1.0, 0.0) else up(up(factor * sizes[0]) + offset)
    return np.full_like(sizes[0], largest)


SIZES: dict[type[Layer], Callable[[Any, list[Array]], Array]] = {
    MaxPool: _pooled,
    Move: _joined,
    **dict.fromkeys(SUMS, _joined),
    Activation: _activated,
}
