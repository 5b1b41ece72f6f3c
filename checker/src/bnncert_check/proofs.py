"""Proofs by concentration: hidden intervals that hold with known probability, and Gaussian tails of
the output rows.

    P_safe >= 1 - (ends of hidden intervals that can fail) Q(t) - Σ_rows q_r,
    q_r = Q(m_r / L_r) if m_r >= 0, else 1,

with m and L as in `functionals`; for a row with a tree the sum of q over its leaves. At a point
where the last layer alone has noise that is Gaussian, with a standard deviation of at least s, and
q_r = Q(m_r / s) if m_r < 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import numpy as np
from flint import arb
from numpy.typing import NDArray

from bnncert_check.activations import image, lines
from bnncert_check.arithmetic import Array, dot_up, down, lower_float, sqrt_up, up
from bnncert_check.functionals import (
    Functional,
    NoisyStep,
    Step,
    Trace,
    conclude,
    form_of,
    functional,
    has_form,
    last_layer,
    least_std,
    local,
    noisy,
    stands_alone,
    walk,
)
from bnncert_check.layers import Activation, Layer
from bnncert_check.linear import (
    ActivationStep,
    Interval,
    MaxStep,
    WiringStep,
    center_radius,
    joined,
    maximum,
    row_slices,
    unit_rows,
    with_one,
)
from bnncert_check.model import Model, Posterior
from bnncert_check.region import Region
from bnncert_check.splits import Common, Leaf, Tree, leaf_of, split_step, splittable
from bnncert_check.tails import normal_tail
from bnncert_check.weighted import Conv, Dense, Linear, Scale, pull_up
from bnncert_check.wiring import SUMS, MaxPool, Move, Sum
from bnncert_check.zonotopes import (
    Reading,
    image_zonotope,
    input_zonotope,
    new_symbols,
    require_room,
)


@dataclass(frozen=True)
class Proof:
    """The threshold t and the activations' slopes by position: [n], and [R, n] where output rows
    have their own.

    `trees` by output row, on the places `open` of all activations that may be split, numbered
    through.
    """

    t: float
    lower: dict[int, Array]
    upper: dict[int, Array]
    rows: dict[int, Array]
    refined: dict[
        int, NDArray[np.bool_]
    ]  # by position of a convolution: the neurons with rows of their own
    alone: bool = False  # whether dense layers are bounded by themselves too
    forward: bool = False  # whether zonotopes bound what is certain, too
    affine: bool = False  # whether noise behind it meets the input through it, too
    open: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    trees: dict[int, Tree] = field(default_factory=dict)


def failure(
    model: Model, posterior: Posterior, region: Region, rows: Array, offsets: Array, proof: Proof
) -> arb:
    """An upper bound of the probability that some row is not positive somewhere on the region."""
    traced, ends = _trace(model, posterior, region, proof)
    (value, lipschitz), total = _rows(traced, rows, offsets, proof), _charge(ends, proof)
    alone, least = _last_layer(traced, rows, offsets, proof), least_std(traced, rows).tolist()
    for r, (m, L) in enumerate(zip(value.tolist(), lipschitz.tolist(), strict=True)):  # noqa: N806 (the formula's name)
        if r in proof.trees:
            total += _tree_failure(traced, rows[r], offsets[r], proof, proof.trees[r])
        else:
            total += _least(_row_failure(m, L, least[r]), alone[r])
    return total


def _last_layer(traced: Trace, rows: Array, offsets: Array, proof: Proof) -> list[arb]:
    """q_r of every row by the last layer alone; 1 where that says nothing."""
    if not proof.alone or not stands_alone(traced):
        return [arb(1)] * len(rows)
    value, lipschitz = _with_offsets(last_layer(traced, rows), offsets)
    return list(map(_row_failure, value.tolist(), lipschitz.tolist()))


def _with_offsets(found: Functional, offsets: Array) -> Functional:
    value, lipschitz = found
    return down(value + offsets), lipschitz


def _least(first: arb, second: arb) -> arb:
    """The smaller of two upper bounds of the same probability; where that is not certain, the
    first."""
    return second if second < first else first


def functionals(
    model: Model, posterior: Posterior, region: Region, rows: Array, offsets: Array, proof: Proof
) -> tuple[Functional, arb]:
    """m and L of the rows, and an upper bound of the probability that one of the hidden intervals
    fails."""
    traced, ends = _trace(model, posterior, region, proof)
    return _rows(traced, rows, offsets, proof), _charge(ends, proof)


def _charge(ends: int, proof: Proof) -> arb:
    return ends * normal_tail(arb(proof.t))


def _rows(traced: Trace, rows: Array, offsets: Array, proof: Proof) -> Functional:
    value, lipschitz = np.full(len(rows), -np.inf), np.zeros(len(rows))
    for part in row_slices(traced.network, len(rows)):
        pairs = zip(traced.steps, traced.network.layers, strict=True)
        own = replace(traced, steps=[_for_rows(step, layer, proof, part) for step, layer in pairs])
        value[part], lipschitz[part] = functional(own, rows[part])
    return _with_offsets((value, lipschitz), offsets)


def _tree_failure(traced: Trace, row: Array, offset: float, proof: Proof, tree: Tree) -> arb:
    """Where the row fails, it fails in a leaf: Σ q over the leaves, or the tail of their
    maximum."""
    shapes, found = splittable(traced.network), []
    for number in range(len(tree.paths)):
        own = _leaf(traced, leaf_of(tree, number, proof.open, shapes))
        coefficients, tally = walk(own, row[None], keep=True)
        value, lipschitz = conclude(own, coefficients[0], tally)
        deviation = _deviation(own, coefficients, tree.common) if tree.common else 0.0
        found.append((float(down(value + offset)[0]), float(lipschitz[0]), deviation))
    if tree.common:
        return _common_failure(found, arb(tree.common.scale))
    return sum((_row_failure(m, L) for m, L, _ in found), arb(0))


def _common_failure(leaves: list[tuple[float, float, float]], scale: arb) -> arb:
    """Q(-EF / max L) with EF <= λ⁻¹ log Σ exp(-λm + λ²D²/2): the leaves' largest -Ψ is convex
    too."""
    total = sum(((scale * (scale * arb(d) ** 2 / 2 - arb(m))).exp() for m, _, d in leaves), arb(0))
    # numpy's maximum: Python's would pass over a NaN
    return _row_failure(
        lower_float(-(total.log() / scale)),
        float(np.max([lipschitz for _, lipschitz, _ in leaves])),
    )


def _deviation(traced: Trace, coefficients: dict[int, Array], common: Common) -> float:
    """D = |(A - a) ⊗ (h, 1)| + |a ⊗ (h - c)| + |A ⊗ r| from above, |A ⊗ h|² = Σ_ij σ_ij² A_i² h_j²
    over the layers."""
    parts = np.zeros((3, 1))
    for k, step in enumerate(traced.steps):
        if (
            not isinstance(step, NoisyStep) or step.variance is None
        ):  # reading saw to it that no noise is shared
            continue
        center, radius = center_radius(with_one(step.h))
        rows, reference = coefficients[k + 1], common.rows[step.layer.position]
        own = up(np.abs(rows - reference))
        moved = np.zeros_like(center)
        if step.region is None:
            moved[:-1] = up(np.abs(center[:-1] - common.centers[step.layer.position]))
        sides = ((own, np.abs(center)), (np.abs(reference)[None], moved), (np.abs(rows), radius))
        for i, (a, h) in enumerate(sides):
            variances = pull_up(step.layer, step.variance, up(a * a))
            parts[i] = up(parts[i] + dot_up(variances, up(h * h)))
    return float(up(up(sqrt_up(parts[0]) + sqrt_up(parts[1])) + sqrt_up(parts[2]))[0])


def _leaf(root: Trace, leaf: Leaf) -> Trace:
    """The root's trace with the leaf's splits; up to the next sum, boxes are those of the leaf."""
    smaller: dict[int, Interval] = {}  # by node
    changed: list[Step] = []
    for k, (layer, whole) in enumerate(zip(root.network.layers, root.steps, strict=True)):
        step, reads = whole, root.network.reads[k]
        node = reads[0]
        if (
            isinstance(whole, ActivationStep)
            and isinstance(layer, Activation)
            and layer.position in leaf.signs
        ):
            step, smaller[k + 1] = split_step(layer, whole, leaf, _dead(layer, whole.h))
        elif isinstance(layer, MaxPool) and node in smaller:
            step, smaller[k + 1] = MaxStep(layer, smaller[node]), maximum(layer, smaller[node])
        elif isinstance(layer, Move) and any(read in smaller for read in reads):
            held = [smaller[r] if r in smaller else root.intervals[r] for r in reads]
            smaller[k + 1] = joined(layer, held)
        elif isinstance(whole, NoisyStep) and node in smaller:
            step = replace(whole, h=smaller[node])
        changed.append(step)
    return replace(root, steps=changed)


def _row_failure(m: float, lipschitz: float, least: float = 0.0) -> arb:
    """q_r; comparisons are written so that NaN counts as failure."""
    if lipschitz == 0:
        return arb(0) if m > 0 else arb(1)
    if m < 0 and least > 0:
        return normal_tail(arb(m) / arb(least))
    return normal_tail(arb(m) / arb(lipschitz)) if m >= 0 else arb(1)


def _trace(model: Model, posterior: Posterior, region: Region, proof: Proof) -> tuple[Trace, int]:
    """The network as steps on hidden intervals, and how many of their ends fail, with probability
    Q(t) each."""
    network, ends = model.network, 0
    traced = Trace(network, region, [], {0: Interval(region.lower, region.upper)})
    forward = Forward(traced) if proof.forward else None
    for k, layer in enumerate(network.layers):
        if forward is not None and isinstance(layer, Linear) and posterior.is_random(layer):
            forward = None
        TRACED[type(layer)](traced, layer, posterior, proof)
        within = None if forward is None else forward.advance(layer)
        if _is_sum(layer) and network.readers[k + 1] and not network.is_term(k + 1):
            traced.intervals[k + 1], count = _interval(traced, layer, proof, within)
            ends += count
    return traced, ends


class Forward:
    """Zonotopes of the nodes before the first random layer, as long as something reads them."""

    def __init__(self, traced: Trace) -> None:
        self.traced = traced
        self.held = {0: input_zonotope(traced.intervals[0])}
        self.symbols = len(traced.intervals[0].lower)

    def advance(self, layer: Layer) -> Interval:
        """The interval of what the last step gives."""
        k, network = len(self.traced.steps) - 1, self.traced.network
        step, nodes = self.traced.steps[k], network.reads[k]
        matrix = step.mean if isinstance(step, NoisyStep) else None
        slopes = step.lines.upper_slope if isinstance(step, ActivationStep) else None
        reading = Reading(
            [self.held[node] for node in nodes],
            self.traced.intervals.get(nodes[0]),
            slopes,
            self.symbols,
        )
        require_room([*self.held.values()], self.symbols + new_symbols(layer), layer.outputs)
        found = self.held[k + 1] = image_zonotope(layer, matrix, reading)
        self.symbols = max(self.symbols, len(found.directions))
        for node in {*nodes}:
            if network.readers[node][-1] == k:
                del self.held[node]
        return found.interval


def _activation(traced: Trace, layer: Activation, _: Posterior, proof: Proof) -> None:
    z, below, above = _input(traced), proof.lower[layer.position], proof.upper[layer.position]
    dead = _dead(layer, z)
    below, above = np.where(dead, 0.0, below), np.where(dead, 0.0, above)
    traced.steps.append(ActivationStep(lines(layer, z.lower, z.upper, below, above), z))
    traced.intervals[len(traced.steps)] = Interval(*image(layer, z.lower, z.upper))


def _pool(traced: Trace, layer: MaxPool, _: Posterior, __: Proof) -> None:
    h = _input(traced)
    traced.steps.append(MaxStep(layer, h))
    traced.intervals[len(traced.steps)] = maximum(layer, h)


def _linear(traced: Trace, layer: Linear, posterior: Posterior, proof: Proof) -> None:
    (node,) = traced.network.reads[len(traced.steps)]
    if proof.affine and node not in traced.forms and has_form(traced, layer, posterior):
        traced.forms[node] = form_of(replace(traced, steps=traced.steps[:node]))
    traced.steps.append(noisy(layer, posterior, traced, _input(traced)))


def _sum(traced: Trace, layer: Sum, *_: object) -> None:
    traced.steps.append(WiringStep(layer))


def _move(traced: Trace, layer: Move, *_: object) -> None:
    inputs = [traced.intervals[node] for node in traced.network.reads[len(traced.steps)]]
    traced.steps.append(WiringStep(layer))
    traced.intervals[len(traced.steps)] = joined(layer, inputs)


# Each adds its step to the trace, and the interval after it unless that is a sum's.
TRACED: dict[type[Layer], Callable[[Trace, Any, Posterior, Proof], None]] = {
    Dense: _linear,
    Conv: _linear,
    Scale: _linear,
    MaxPool: _pool,
    Move: _move,
    **dict.fromkeys(SUMS, _sum),
    Activation: _activation,
}
NOTICED = 2.0**-30  # relative to an end
LITTLE = 2.0**-200  # of an end that is 0 but for roundings


def _is_sum(layer: Layer) -> TypeGuard[Linear | Sum]:
    """Whether the interval after it consists of functionals' ends, which may fail."""
    return isinstance(layer, (Dense, Conv, Scale, *SUMS))


def _input(traced: Trace) -> Interval:
    """What the next layer reads."""
    (node,) = traced.network.reads[len(traced.steps)]
    return traced.intervals[node]


def _interval(
    traced: Trace, layer: Linear | Sum, proof: Proof, within: Interval | None
) -> tuple[Interval, int]:
    """Of what the last step gives, and how many of its ends can fail; `within`: where it lies for
    certain, if that is known."""
    (low, low_noise), (high, high_noise) = _neurons(traced, layer, proof)
    if within is not None:  # nothing is random so far
        low, high = np.maximum(low, within.lower), np.maximum(high, -within.upper)
    lower, upper = down(low - up(proof.t * low_noise)), -down(high - up(proof.t * high_noise))
    # The lower end of a ReLU that is off is not needed: 0 stands for it, and nothing is charged.
    off = (upper <= 0) & all(map(_flat_below, traced.network.reading(len(traced.steps))))
    found = Interval(np.where(off, 0.0, lower), np.where(off, 0.0, upper))
    return found, int((high_noise > 0).sum() + ((low_noise > 0) & ~off).sum())


def _flat_below(layer: Layer) -> bool:
    return isinstance(layer, Activation) and layer.traits.flat_below


def _dead(layer: Activation, z: Interval) -> NDArray[np.bool_]:
    """ReLUs whose input is at most 0, by how far is not known: only lines of slope 0 hold there."""
    return (z.upper <= 0) & layer.traits.flat_below


def _for_rows(step: Step, layer: Layer, proof: Proof, part: slice) -> Step:
    """The own lower slopes of some output rows, where there are any."""
    if (
        not isinstance(step, ActivationStep)
        or not isinstance(layer, Activation)
        or layer.position not in proof.rows
    ):
        return step
    own = np.where(_dead(layer, step.h), 0.0, proof.rows[layer.position][part])
    return ActivationStep(
        lines(layer, step.h.lower, step.h.upper, own, step.lines.upper_slope), step.h
    )


def _neurons(traced: Trace, layer: Linear | Sum, proof: Proof) -> tuple[Functional, Functional]:
    """m and L of every z_i and of every -z_i, z what the last step gives: by rows for a vector,
    and by its layer alone; else without, or with where the proof says so.

    Of two functionals that one is used whose end is the better: a choice that depends on nothing
    random. An end that cannot fail is not given up for a rounding.
    """
    alone = False
    if layer.is_image:
        sides, flags = (
            local(traced, len(traced.steps) - 1),
            proof.refined.get(layer.position, np.zeros(0, bool)),
        )
        chosen = np.flatnonzero(flags)
    else:
        alone = proof.alone and stands_alone(traced)
        unknown, chosen = np.full(layer.outputs, -np.inf), np.arange(layer.outputs)
        sides = (unknown, np.zeros_like(unknown)), (unknown.copy(), np.zeros_like(unknown))
    for rows, places in unit_rows(chosen, layer.outputs, traced.network):
        for (value, lipschitz), sign in zip(sides, (1.0, -1.0), strict=True):
            m, slope = functional(traced, sign * rows)
            if alone:
                value[places], lipschitz[places] = last_layer(traced, sign * rows)
            sure = (lipschitz[places] == 0) & np.isfinite(value[places])
            gained = NOTICED * np.abs(value[places]) + LITTLE
            least = np.where(sure, value[places] + gained, value[places])
            better = m - proof.t * slope > least - proof.t * lipschitz[places]
            value[places] = np.where(better, m, value[places])
            lipschitz[places] = np.where(better, slope, lipschitz[places])
    return sides
