"""Branch and bound: leaves that cover a region by the sides of kinks on which some neurons are, and
the steps of each leaf.

A place is a kink of a neuron. In a leaf s_i (z_i - c_i) >= 0 at the split places i, so that A z >=
(A - β∘s) z + β∘s c for every β >= 0, intervals end at c, and lines are exact where a neuron is on
one piece. Leaves cover the region if they are the ends of a binary tree: at every node one place,
and both of its sides.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bnncert_check.activations import image, lines
from bnncert_check.arithmetic import ETA, UNIT, Array, dot_down, dot_up, down, up
from bnncert_check.layers import Activation
from bnncert_check.linear import ActivationStep, Interval
from bnncert_check.network import Network

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Common:
    """The reference of the common-noise bound: λ, and by position of the random layers rows and,
    but for the input, centres."""

    scale: float
    rows: dict[int, Array]
    centers: dict[int, Array]


@dataclass(frozen=True)
class Tree:
    """The leaves of one output row, on U open places: splits [leaves, depth], k or -k for z >= c or
    z <= c at the k-th of them, 0 after the last; multipliers β [leaves, depth]; slopes [leaves,
    U]."""

    paths: Indices
    multipliers: Array
    slopes: Array
    common: Common | None = None


@dataclass(frozen=True)
class Leaf:
    """By position of an activation [kinks, n]: signs (0: not split), multipliers β∘s, slopes at the
    first kink of the lower line, at the second of the upper one (NaN: the root's)."""

    signs: dict[int, Array]
    multipliers: dict[int, Array]
    slopes: dict[int, Array]


@dataclass(frozen=True)
class SplitStep:
    """rows·f(z) >= (A' - β∘s)·z + β∘s·c + constant, A' and the constant as the activation's lines
    give them."""

    activation: ActivationStep
    multipliers: Array  # β∘s [kinks, n]
    kinks: tuple[float, ...]

    def pull(self, rows: Array) -> tuple[Array, Array]:
        changed, constant = self.activation.pull(rows)
        for kink, multipliers in zip(self.kinks, self.multipliers, strict=True):
            changed = changed - multipliers
            rounding = up(UNIT * np.abs(changed) + ETA)
            constant = down(constant - dot_up(rounding, self.activation.h.magnitude))
            if kink:
                constant = down(constant + dot_down(multipliers, np.full_like(multipliers, kink)))
        return changed, constant


def covers(paths: Indices) -> bool:
    """Whether the paths are all the ends of a binary tree: where several go on, one place divides
    them by its sides."""
    nodes = [(np.arange(len(paths)), 0)]
    while nodes:
        leaves, depth = nodes.pop()
        rest = paths[leaves, depth:]
        if len(leaves) == 1 and not rest.any():
            continue
        if rest.size == 0 or not rest[0, 0] or not (np.abs(rest[:, 0]) == abs(rest[0, 0])).all():
            return False
        nodes += [(leaves[rest[:, 0] > 0], depth + 1), (leaves[rest[:, 0] < 0], depth + 1)]
    return True


def splittable(network: Network) -> dict[int, tuple[int, int]]:
    """How many kinks and neurons every activation has that may be split, by position: what `open`
    numbers through, of each layer all neurons at the first kink, then all at the second."""
    return {
        layer.position: (len(layer.traits.kinks), layer.width)
        for layer in network.layers
        if isinstance(layer, Activation) and layer.traits.kinks
    }


def repeats(paths: Indices) -> bool:
    """Whether a path splits a place twice."""
    found = np.sort(np.abs(paths), axis=1)
    return bool(((found[:, 1:] == found[:, :-1]) & (found[:, 1:] > 0)).any())


def leaf_of(tree: Tree, number: int, numbered: Indices, shapes: dict[int, tuple[int, int]]) -> Leaf:
    """One leaf, its splits at the numbered places; `shapes` are those of `splittable`."""
    total = sum(map(math.prod, shapes.values()))
    signs, multipliers, slopes = np.zeros(total), np.zeros(total), np.full(total, np.nan)
    slopes[numbered] = tree.slopes[number]
    for k, beta in zip(tree.paths[number].tolist(), tree.multipliers[number].tolist(), strict=True):
        if k:
            place = numbered[abs(k) - 1]
            signs[place] = np.sign(k)
            multipliers[place] = np.sign(k) * beta
    return Leaf(*(_by_position(values, shapes) for values in (signs, multipliers, slopes)))


def _by_position(values: Array, shapes: dict[int, tuple[int, int]]) -> dict[int, Array]:
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])[:-1]
    parts = zip(shapes.items(), np.split(values, ends), strict=True)
    return {k: part.reshape(shape) for (k, shape), part in parts}


def split_step(
    layer: Activation, root: ActivationStep, leaf: Leaf, dead: NDArray[np.bool_]
) -> tuple[SplitStep, Interval]:
    """The activation in a leaf, and the range of what it gives; a ReLU that is off at the root
    stays as it is there."""
    k, kinks = layer.position, layer.traits.kinks
    signs, multipliers = (np.where(dead, 0.0, own[k]) for own in (leaf.signs, leaf.multipliers))
    h = Interval(*(_clamped(end, kinks, signs) for end in (root.h.lower, root.h.upper)))
    own = np.where(dead, np.nan, leaf.slopes[k])
    below, above = root.lines.lower_slope, root.lines.upper_slope
    below = np.where(np.isnan(own[0]), below, own[0])
    if len(own) > 1:
        above = np.where(np.isnan(own[1]), above, own[1])
    always = np.ones((1, layer.width), bool)
    on_piece = np.vstack([always, signs > 0]) & np.vstack([signs < 0, always])
    for slope, known in zip(layer.pieces, on_piece, strict=True):
        below, above = np.where(known, slope, below), np.where(known, slope, above)
    step = ActivationStep(lines(layer, h.lower, h.upper, below, above), h)
    return SplitStep(step, multipliers, kinks), Interval(*image(layer, h.lower, h.upper))


def _clamped(end: Array, kinks: tuple[float, ...], signs: Array) -> Array:
    """Of an interval: whatever it is, that of the leaf holds every z in it on the right sides."""
    for kink, sign in zip(kinks, signs, strict=True):
        end = np.where(sign > 0, np.maximum(end, kink), end)
        end = np.where(sign < 0, np.minimum(end, kink), end)
    return end
